// SPDX-License-Identifier: MIT OR Apache-2.0

//! Shared memory by parameters (WDK, `NdisAllocateSharedMemory`, `NDIS_SHARED_MEMORY_PARAMETERS`).

use std::ffi::c_void;

use crate::common::scripted::{Script, header, host, in_initialize, kept, register, simulation, verdict};
use device_sim::NicOptions;
use ndis_sim::{
    Miniport, NdisHost as _, dma,
    shared_memory::{NdisAllocateSharedMemory, NdisFreeSharedMemory},
};
use ndk_abi::{
    ndis::{
        NDIS_OBJECT_TYPE_DEFAULT, NDIS_OBJECT_TYPE_SG_DMA_DESCRIPTION, NDIS_SG_DMA_64_BIT_ADDRESS,
        NDIS_SG_DMA_DESCRIPTION, NDIS_SIZEOF_SG_DMA_DESCRIPTION_REVISION_1, NDIS_STATUS,
        NDIS_STATUS_INVALID_PARAMETER, NDIS_STATUS_RESOURCES, NDIS_STATUS_SUCCESS,
    },
    nt::{DEVICE_OBJECT, KTIMER, SCATTER_GATHER_LIST, TIMER_TYPE},
};
use nt_sim::{
    current,
    guest::Guest,
    host::HostOptions,
    nt::timer::{KeCancelTimer, KeInitializeTimerEx, KeSetTimer},
};

unsafe extern "efiapi" fn process(
    _: *mut DEVICE_OBJECT,
    _: *mut c_void,
    _: *mut SCATTER_GATHER_LIST,
    _: *mut c_void,
) {
}

/// Registers an adapter for DMA, runs `body`, and ends the registration.
fn with_dma(adapter: usize, body: impl FnOnce()) {
    let mut description = NDIS_SG_DMA_DESCRIPTION::zeroed();
    description.Header =
        header(NDIS_OBJECT_TYPE_SG_DMA_DESCRIPTION, 1, NDIS_SIZEOF_SG_DMA_DESCRIPTION_REVISION_1);
    description.Flags = NDIS_SG_DMA_64_BIT_ADDRESS;
    description.ProcessSGListHandler = Some(process);
    let registration = kept(0_usize);
    assert_eq!(
        dma::NdisMRegisterScatterGatherDma(adapter, kept(description), registration),
        NDIS_STATUS_SUCCESS
    );
    body();
    dma::NdisMDeregisterScatterGatherDma(registration.read());
}

/// Parameters of an allocation of `length` bytes, with a list of `room` bytes.
fn parameters(length: u32, list: Guest<u8>, room: u32) -> Guest<u8> {
    let memory: Guest<u8> = kept([0_u64; 8]).cast();
    memory.cast().write(header(NDIS_OBJECT_TYPE_DEFAULT, 1, 0x40));
    memory.field::<u32>(0x20).write(length);
    memory.field::<u32>(0x30).write(room);
    memory.field::<usize>(0x38).write(list.address());
    memory
}

fn allocate(adapter: usize, parameters: Guest<u8>) -> (NDIS_STATUS, usize) {
    let allocation = kept(7_usize);
    let status = NdisAllocateSharedMemory(adapter, parameters, allocation);
    (status, allocation.read())
}

#[test]
fn memory_has_an_address_for_the_driver_and_a_list_for_the_device() {
    let body = |adapter| {
        with_dma(adapter, || {
            let list: Guest<u8> = kept([0_u64; 8]).cast();
            let given = parameters(5000, list, 0x28);
            let (status, allocation) = allocate(adapter, given);
            assert_eq!((status, given.field::<usize>(0x10).read()), (NDIS_STATUS_SUCCESS, allocation));
            let memory: Guest<u8> = Guest::from_address(given.field::<usize>(0x28).read());
            memory.add(4999).write(9);
            assert_eq!((list.cast::<u32>().read(), list.field::<u32>(0x18).read()), (1, 5000));
            assert_ne!(list.field::<u64>(0x10).read(), 0);
            NdisFreeSharedMemory(adapter, allocation);
        });
    };
    assert_eq!(verdict(in_initialize(body)), "no violation");
}

#[test]
fn allocation_is_refused_as_documented() {
    let body = |adapter| {
        with_dma(adapter, || {
            let list: Guest<u8> = kept([0_u64; 8]).cast();
            for wrong in [parameters(0, Guest::null(), 0), parameters(64, list, 0x20)] {
                assert_eq!(allocate(adapter, wrong), (NDIS_STATUS_INVALID_PARAMETER, 0));
            }
            current().host().low_resources.fail_nth(0);
            assert_eq!(allocate(adapter, parameters(64, Guest::null(), 0)), (NDIS_STATUS_RESOURCES, 0));
        });
    };
    assert_eq!(verdict(in_initialize(body)), "no violation");
}

/// Freed memory can be allocated again: this is more than the host has.
#[test]
fn memory_is_free_for_others_after_the_driver_has_freed_it() {
    let body = |adapter| {
        with_dma(adapter, || {
            for _ in 0..16 {
                let (status, allocation) = allocate(adapter, parameters(8 << 20, Guest::null(), 0));
                assert_eq!(status, NDIS_STATUS_SUCCESS);
                NdisFreeSharedMemory(adapter, allocation);
            }
        });
    };
    let mut sim = simulation();
    let host = sim.add_host(HostOptions { memory: 64 << 20, ..HostOptions::new("host") });
    host.plug(NicOptions::new([2, 0, 0, 0, 0, 1]));
    assert_eq!(register(&host, in_initialize(body), |_| {}), Some(NDIS_STATUS_SUCCESS));
    let _ = Miniport::start(&host).expect("it starts").halt();
    assert_eq!(sim.verdict().to_string(), "no violation");
}

/// (WDK, `NdisAllocateSharedMemory`: a handle of NdisMRegisterMiniportDriver or of MiniportInitializeEx.)
#[test]
fn driver_allocates_memory_by_its_own_handle() {
    let mut sim = simulation();
    let host = host(&mut sim);
    let body = |adapter| {
        with_dma(adapter, || {
            let driver = current().host().adapters()[0].driver.handle;
            let (status, allocation) = allocate(driver, parameters(64, Guest::null(), 0));
            assert_eq!(status, NDIS_STATUS_SUCCESS);
            NdisFreeSharedMemory(driver, allocation);
        });
    };
    assert_eq!(register(&host, in_initialize(body), |_| {}), Some(NDIS_STATUS_SUCCESS));
    let _ = Miniport::start(&host).expect("it starts").halt();
    assert_eq!(sim.verdict().to_string(), "no violation");
}

/// The next owner of the memory finds nothing of what the driver has written.
#[test]
fn freed_memory_is_overwritten_to_its_last_page() {
    const LENGTH: u32 = 3 << 12;
    let body = |adapter| {
        with_dma(adapter, || {
            let get = || {
                let given = parameters(LENGTH, Guest::null(), 0);
                let (status, allocation) = allocate(adapter, given);
                assert_eq!(status, NDIS_STATUS_SUCCESS);
                (Guest::<u8>::from_address(given.field::<usize>(0x28).read()), allocation)
            };
            let frame = |at: Guest<u8>, page: usize| current().host().memory.pfn(at.address() + (page << 12));
            let (memory, allocation) = get();
            memory.fill(0x11, LENGTH as usize);
            let frames = [0, 1, 2].map(|page| frame(memory, page).expect("it is mapped"));
            NdisFreeSharedMemory(adapter, allocation);
            let me = current();
            let physical = &me.host().memory.physical;
            for frame in frames {
                let mut bytes = [0; 1 << 12];
                physical.direct(frame.address()).read_bytes(&mut bytes);
                assert_eq!(bytes, [0xdd; 1 << 12]);
            }
        });
    };
    assert_eq!(verdict(in_initialize(body)), "no violation");
}

#[test]
fn timer_in_memory_behind_that_is_freed_is_no_violation() {
    let body = |adapter| {
        with_dma(adapter, || {
            let mut blocks = [(); 2].map(|()| {
                let given = parameters(256, Guest::null(), 0);
                let (_, allocation) = allocate(adapter, given);
                (given.field::<usize>(0x28).read(), allocation)
            });
            blocks.sort_unstable();
            let [(_, first), (behind, second)] = blocks;
            let timer: Guest<KTIMER> = Guest::from_address(behind);
            KeInitializeTimerEx(timer, TIMER_TYPE::NotificationTimer);
            KeSetTimer(timer, -10_000_000, Guest::null());
            NdisFreeSharedMemory(adapter, first);
            KeCancelTimer(timer);
            NdisFreeSharedMemory(adapter, second);
        });
    };
    assert_eq!(verdict(in_initialize(body)), "no violation");
}

#[track_caller]
fn assert_reported(body: fn(usize), expected: &str) {
    let verdict = verdict(Script { ..in_initialize(body) });
    assert!(verdict.contains(expected), "{verdict}");
}

#[test]
fn misuse_of_shared_memory_is_reported() {
    assert_reported(
        |adapter| {
            allocate(adapter, parameters(64, Guest::null(), 0));
        },
        "NdisAllocateSharedMemory before NdisMRegisterScatterGatherDma (source: WDK, NdisAllocateSharedMemory)",
    );
    assert_reported(
        |adapter| {
            with_dma(adapter, || {
                let (_, allocation) = allocate(adapter, parameters(64, Guest::null(), 0));
                NdisFreeSharedMemory(adapter, allocation);
                NdisFreeSharedMemory(adapter, allocation);
            });
        },
        "is not a handle of NdisAllocateSharedMemory",
    );
    assert_reported(
        |adapter| {
            with_dma(adapter, || {
                allocate(adapter, parameters(64, Guest::null(), 0));
            });
        },
        "returned without releasing: NdisAllocateSharedMemory",
    );
    assert_reported(
        |adapter| {
            with_dma(adapter, || {
                let given = parameters(256, Guest::null(), 0);
                let (_, allocation) = allocate(adapter, given);
                let timer: Guest<KTIMER> = Guest::from_address(given.field::<usize>(0x28).read());
                KeInitializeTimerEx(timer, TIMER_TYPE::NotificationTimer);
                KeSetTimer(timer, -10_000_000, Guest::null());
                NdisFreeSharedMemory(adapter, allocation);
            });
        },
        "freed memory contains a timer that is set; call KeCancelTimer first",
    );
    assert_reported(
        |adapter| {
            with_dma(adapter, || {
                let short = parameters(64, Guest::null(), 0);
                short.field::<u16>(2).write(0x38);
                allocate(adapter, short);
            });
        },
        "NdisAllocateSharedMemory with parameters of type 0x80 and 56 bytes",
    );
}
