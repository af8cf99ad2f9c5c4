// SPDX-License-Identifier: MIT OR Apache-2.0

//! Services of NDIS, called as a miniport calls them: timers, locks, events, data of several MDLs, registers.
//!
//! What NDIS does is known from the documentation of each function.

use std::{
    ffi::c_void,
    mem::offset_of,
    sync::atomic::{AtomicI32, Ordering::SeqCst},
};

use crate::common::{
    lists::{list_pool, mdl},
    scripted::{Script, assert_reported, host, in_initialize, kept, register, simulation, verdict},
};
use device_sim::pci;
use ndis_sim::{Miniport, bus, data_path, nbl, runtime};
use ndk_abi::{
    ndis::{
        LOCK_STATE_EX, NDIS_EVENT, NDIS_RECEIVE_FLAGS_RESOURCES, NDIS_STATUS_RESOURCES, NDIS_STATUS_SUCCESS,
        NDIS_TIMER_CHARACTERISTICS, NET_BUFFER, NET_BUFFER_LIST,
    },
    nt::{LARGE_INTEGER, MDL},
};
use nt_sim::{current, guest::Guest, nt::mdl::GuestMdl};

/// Runs `body` with an adapter's handle while it is initialized; expects no violation.
#[track_caller]
fn correct(body: fn(usize)) {
    assert_eq!(verdict(in_initialize(body)), "no violation");
}

fn milliseconds(count: i64) -> LARGE_INTEGER {
    LARGE_INTEGER { QuadPart: -10_000 * count }
}

fn sleep(milliseconds: u32) {
    runtime::NdisMSleep(1000 * milliseconds);
}

unsafe extern "efiapi" fn counts(_: *mut c_void, count: *mut c_void, _: *mut c_void, _: *mut c_void) {
    let count: Guest<u32> = Guest::new(count.cast());
    count.write(count.read() + 1);
}

/// A timer whose function counts, and its count.
fn timer(handle: usize) -> (usize, Guest<u32>) {
    let count = kept(0_u32);
    let mut characteristics = NDIS_TIMER_CHARACTERISTICS::zeroed();
    characteristics.TimerFunction = Some(counts);
    characteristics.FunctionContext = count.as_ptr().cast();
    let timer = kept(0_usize);
    assert_eq!(runtime::NdisAllocateTimerObject(handle, kept(characteristics), timer), NDIS_STATUS_SUCCESS);
    (timer.read(), count)
}

#[test]
fn a_timer_fires_once_unless_it_is_cancelled_or_set_again() {
    correct(|handle| {
        let (timer, count) = timer(handle);
        assert_eq!(runtime::NdisCancelTimerObject(timer), 0);
        assert_eq!(runtime::NdisSetTimerObject(timer, milliseconds(5), 0, 0), 0);
        assert_eq!(runtime::NdisCancelTimerObject(timer), 1);
        assert_eq!(runtime::NdisSetTimerObject(timer, milliseconds(5), 0, 0), 0);
        assert_eq!(runtime::NdisSetTimerObject(timer, milliseconds(20), 0, 0), 1);
        sleep(15);
        assert_eq!(count.read(), 0);
        sleep(15);
        assert_eq!(count.read(), 1);
        // It is no longer set.
        assert_eq!(runtime::NdisCancelTimerObject(timer), 0);
        let other = kept(0_u32);
        assert_eq!(runtime::NdisSetTimerObject(timer, milliseconds(5), 0, other.address()), 0);
        sleep(40);
        assert_eq!((count.read(), other.read()), (1, 1), "the context of this setting");
        runtime::NdisFreeTimerObject(timer);
    });
}

#[test]
fn a_periodic_timer_fires_until_it_is_cancelled() {
    correct(|handle| {
        let (timer, count) = timer(handle);
        runtime::NdisSetTimerObject(timer, milliseconds(2), 3, 0);
        // At 2, 5, 8 and 11 ms, each at most one tick later.
        runtime::NdisMSleep(12_500);
        assert_eq!(count.read(), 4);
        assert_eq!(runtime::NdisCancelTimerObject(timer), 1);
        sleep(20);
        assert_eq!(count.read(), 4);
        runtime::NdisFreeTimerObject(timer);
    });
}

#[test]
fn a_lock_has_readers_or_one_writer() {
    static INSIDE: AtomicI32 = AtomicI32::new(0);
    correct(|handle| {
        let lock = runtime::NdisAllocateRWLock(handle);
        let state = || kept(LOCK_STATE_EX { OldIrql: 0xff, LockState: 0, Flags: 0 });
        let host = current().host().clone();
        // -1 for a writer.
        let enter = move |write: bool| {
            let state = state();
            if write {
                runtime::NdisAcquireRWLockWrite(lock, state, 0);
                assert_eq!((INSIDE.swap(-1, SeqCst), state.read().LockState), (0, 1));
            } else {
                runtime::NdisAcquireRWLockRead(lock, state, 0);
                assert!(INSIDE.fetch_add(1, SeqCst) >= 0, "beside a writer");
                assert_eq!(state.read().LockState, 2);
            }
            state
        };
        let leave = move |write: bool, state| {
            if write {
                INSIDE.store(0, SeqCst);
            } else {
                INSIDE.fetch_sub(1, SeqCst);
            }
            runtime::NdisReleaseRWLock(lock, state);
        };
        for (mine, theirs) in [(false, false), (false, true), (true, false), (true, true)] {
            let state = enter(mine);
            let other = host.spawn("other", move || leave(theirs, enter(theirs)));
            while !(mine || theirs || other.is_finished()) {
                current().stall(1000);
            }
            current().stall(5_000_000);
            assert_eq!(other.is_finished(), !mine && !theirs, "{mine} {theirs}");
            leave(mine, state);
            other.join().unwrap();
        }
        runtime::NdisFreeRWLock(lock);
    });
}

/// (WDK, `NdisAllocateRWLock`: null, since Windows 8, where no handle is there yet; NetKVM passes it in `MiniportInitializeEx`.)
#[test]
fn a_lock_is_allocated_without_a_handle() {
    correct(|_| {
        let lock = runtime::NdisAllocateRWLock(0);
        assert!(current().host().objects.contains("NdisAllocateRWLock", lock), "a leak is reported");
        runtime::NdisFreeRWLock(lock);
    });
}

#[test]
fn an_event_is_waited_for_up_to_a_limit() {
    correct(|_| {
        let event: Guest<NDIS_EVENT> = kept([0xff_u8; size_of::<NDIS_EVENT>()]).cast();
        runtime::NdisInitializeEvent(event);
        let now = || current().world().now();
        let start = now();
        assert_eq!(runtime::NdisWaitEvent(event, 5), 0);
        assert!((5_000_000..6_000_000).contains(&(now() - start)));
        runtime::NdisSetEvent(event);
        assert_eq!((runtime::NdisWaitEvent(event, 0), runtime::NdisWaitEvent(event, 5)), (1, 1));
        runtime::NdisResetEvent(event);
        assert_eq!(runtime::NdisWaitEvent(event, 1), 0);
    });
}

/// A chain of MDLs whose bytes are numbered from 0.
fn numbered(handle: usize, lengths: &[u32]) -> Guest<MDL> {
    let mut number = 0_u8;
    let mdls: Vec<_> = lengths
        .iter()
        .map(|&length| {
            let mdl = mdl(handle, length);
            for at in 0..length as usize {
                Guest::<u8>::from_address(GuestMdl(mdl).mapped() + at).write(number);
                number = number.wrapping_add(1);
            }
            mdl
        })
        .collect();
    for pair in mdls.windows(2) {
        GuestMdl(pair[0]).set_next(pair[1].address());
    }
    mdls[0]
}

/// A frame in a chain of MDLs: a list with one buffer.
struct Frame {
    pool: usize,
    list: Guest<NET_BUFFER_LIST>,
    buffer: Guest<NET_BUFFER>,
}

impl Frame {
    fn new(handle: usize, lengths: &[u32], offset: u32, length: usize) -> Self {
        let (pool, chain) = (list_pool(handle), numbered(handle, lengths));
        let list = nbl::NdisAllocateNetBufferAndNetBufferList(pool, 0, 0, chain, offset, length);
        list.field::<usize>(offset_of!(NET_BUFFER_LIST, SourceHandle)).write(handle);
        let first = list.field::<*mut NET_BUFFER>(offset_of!(NET_BUFFER_LIST, FirstNetBuffer)).read();
        Self { pool, list, buffer: Guest::new(first) }
    }

    fn free(self) {
        nbl::NdisFreeNetBufferList(self.list);
        nbl::NdisFreeNetBufferListPool(self.pool);
    }
}

#[test]
fn the_current_mdl_is_the_one_in_which_the_data_starts() {
    correct(|handle| {
        for (offset, expected) in
            [(0, (0, 0)), (15, (0, 15)), (16, (1, 0)), (23, (1, 7)), (24, (2, 0)), (30, (2, 6))]
        {
            let list = Frame::new(handle, &[16, 8, 32], offset, 20);
            let buffer = list.buffer;
            let current = || {
                let fields = buffer.read();
                let chain = std::iter::successors(Some(fields.MdlChain), |&mdl| {
                    let next = GuestMdl(Guest::new(mdl)).next();
                    (next != 0).then(|| std::ptr::with_exposed_provenance_mut(next))
                });
                let index = chain.into_iter().position(|mdl| mdl == fields.CurrentMdl);
                (index.expect("in the chain"), fields.CurrentMdlOffset)
            };
            assert_eq!(current(), expected, "at {offset}");
            nbl::NdisAdvanceNetBufferDataStart(buffer, 10, 0, 0);
            // SAFETY: any bits are an integer.
            let length = unsafe { buffer.read().Anonymous.stDataLength };
            assert_eq!((buffer.read().DataOffset, length), (offset + 10, 10));
            assert_eq!(nbl::NdisRetreatNetBufferDataStart(buffer, 10, 0, 0), NDIS_STATUS_SUCCESS);
            assert_eq!(current(), expected);
            assert_eq!(nbl::NdisRetreatNetBufferDataStart(buffer, offset + 1, 0, 0), NDIS_STATUS_RESOURCES);
            list.free();
        }
    });
}

#[test]
fn the_first_bytes_are_contiguous_or_copied() {
    correct(|handle| {
        let list = Frame::new(handle, &[16, 8, 32], 12, 40);
        let storage = kept([0xff_u8; 64]).cast::<u8>();
        let get = |needed| nbl::NdisGetDataBuffer(list.buffer, needed, storage, 1, 0);
        assert!(get(0).is_null() && get(41).is_null());
        let in_place = get(4);
        assert!(in_place != storage && in_place.read() == 12);
        assert!(nbl::NdisGetDataBuffer(list.buffer, 5, Guest::null(), 1, 0).is_null());
        assert!(get(5) == storage);
        let expected: Vec<u8> = (12..17).collect();
        assert!(storage.holds(&expected) && storage.add(5).read() == 0xff);
        assert!(get(40) == storage);
        let expected: Vec<u8> = (12..52).collect();
        assert!(storage.holds(&expected) && storage.add(40).read() == 0xff);
        list.free();
    });
}

/// Runs `body` on a thread of the host of a running adapter, with its handle; returns the frames that the stack received.
fn received(body: fn(usize)) -> Vec<Vec<u8>> {
    let mut sim = simulation();
    let host = host(&mut sim);
    assert_eq!(register(&host, Script::default(), |_| {}), Some(NDIS_STATUS_SUCCESS));
    let miniport = Miniport::start(&host).expect("there is a device");
    let handle = miniport.adapter().handle;
    let _ = host.spawn("receives", move || body(handle)).join();
    let frames = miniport.received();
    assert!(miniport.received().is_empty(), "they were taken");
    let _ = miniport.halt();
    assert!(sim.verdict().is_clean(), "{}", sim.verdict());
    frames
}

#[test]
fn frames_in_several_mdls_are_received_whole() {
    const FRAMES: [(u32, usize); 5] = [(0, 60), (3, 57), (16, 44), (20, 40), (24, 36)];
    let frames = received(|handle| {
        for (offset, length) in FRAMES {
            let list = Frame::new(handle, &[16, 8, 36], offset, length);
            data_path::NdisMIndicateReceiveNetBufferLists(handle, list.list, 0, 1, 0);
            // The stack returns the list meanwhile.
            sleep(1);
            list.free();
        }
    });
    assert_eq!(frames.len(), FRAMES.len());
    for (frame, (offset, length)) in frames.iter().zip(FRAMES) {
        let expected: Vec<u8> = (offset as u8..).take(length).collect();
        assert_eq!(frame, &expected);
    }
}

#[test]
fn data_behind_the_last_mdl_is_reported() {
    let pause = |handle| {
        let list = Frame::new(handle, &[16], 20, 10);
        assert!(list.buffer.read().CurrentMdl.is_null());
        data_path::NdisMIndicateReceiveNetBufferLists(handle, list.list, 0, 1, 0);
        NDIS_STATUS_SUCCESS
    };
    let script = Script { pause: Some(pause), ..Script::default() };
    assert_reported(script, "a NET_BUFFER has DataLength 10, but its MDLs describe 0 bytes");
}

#[test]
fn the_stack_keeps_a_limited_number_of_received_frames() {
    const MAX_RECEIVED: usize = 4096;
    let frames = received(|handle| {
        let list = Frame::new(handle, &[1], 0, 1);
        for number in 0..=MAX_RECEIVED {
            let data = GuestMdl(Guest::new(list.buffer.read().CurrentMdl)).mapped();
            Guest::<u8>::from_address(data).write(number.to_le_bytes()[0]);
            data_path::NdisMIndicateReceiveNetBufferLists(
                handle,
                list.list,
                0,
                1,
                NDIS_RECEIVE_FLAGS_RESOURCES,
            );
        }
        list.free();
    });
    assert_eq!((frames.len(), &*frames[0], &*frames[MAX_RECEIVED - 1]), (MAX_RECEIVED, &[1][..], &[0][..]));
}

/// Maps a part of the registers; returns their address.
fn map(handle: usize, start: u64, length: usize) -> usize {
    let mapped = kept(0_usize);
    let start = LARGE_INTEGER { QuadPart: start.cast_signed() };
    assert_eq!(bus::NdisMMapIoSpace(mapped, handle, start, length as u32), NDIS_STATUS_SUCCESS);
    mapped.read()
}

#[test]
fn parts_of_the_registers_are_mapped_at_their_place_in_a_page() {
    correct(|handle| {
        const STATUS: u64 = 0x14;
        let [whole, part] = [(0, pci::VIRTIO_BAR_LEN as usize), (STATUS, 1)]
            .map(|(at, length)| (map(handle, pci::VIRTIO_BAR_AT + at, length), length));
        assert_eq!((whole.0 % 4096, part.0 % 4096), (0, STATUS as usize));
        let status = |address: usize| std::ptr::with_exposed_provenance_mut::<u8>(address);
        // SAFETY: a window of registers: the access is trapped.
        unsafe { status(part.0).write_volatile(1) };
        // SAFETY: an address in a window of registers, each access to which is trapped.
        assert_eq!(unsafe { status(whole.0 + STATUS as usize).read_volatile() }, 1);
        let last = map(handle, pci::VIRTIO_BAR_AT + pci::VIRTIO_BAR_LEN - 4, 4);
        for (address, length) in [whole, part, (last, 4)] {
            bus::NdisMUnmapIoSpace(handle, address, length as u32);
        }
    });
    for offence in [
        |handle| _ = map(handle, pci::VIRTIO_BAR_AT + 1, pci::VIRTIO_BAR_LEN as usize),
        |handle| _ = map(handle, pci::VIRTIO_BAR_AT - 4, 8),
        |handle| _ = map(handle, pci::VIRTIO_BAR_AT, 0),
    ] as [fn(usize); 3]
    {
        assert_reported(in_initialize(offence), "which are not among the adapter's resources");
    }
}
