// SPDX-License-Identifier: MIT OR Apache-2.0

//! Checks of registration, of receive DPCs and of freed memory: each is reported to a miniport driver that commits the offence.

use std::{
    ffi::c_void,
    mem::{offset_of, transmute},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use crate::common::{
    lists::list,
    scripted::{
        Script, assert_all_reported, characteristics, host, interrupt_with, kept, set_provider, simulation,
        verdict_while_running,
    },
};
use ndis_sim::{Miniport, NdisHost as _, data_path, interrupt, nbl, registration, runtime};
use ndk_abi::{
    ndis::{
        MINIPORT_MESSAGE_INTERRUPT_DPC, NDIS_HANDLE, NDIS_MINIPORT_INTERRUPT_CHARACTERISTICS,
        NDIS_RECEIVE_THROTTLE_PARAMETERS, NDIS_STATUS_SUCCESS, NET_BUFFER_LIST,
    },
    nt::{DRIVER_OBJECT, DRIVER_UNLOAD, GROUP_AFFINITY},
};
use nt_sim::{current, guest::Guest};

/// The handle of the driver that registered last.
static DRIVER: AtomicUsize = AtomicUsize::new(0);

/// `DriverUnload` in a `DRIVER_OBJECT`.
const UNLOAD: usize = 0x68;

/// Runs `body` on a thread of a host, with a driver object; returns what the verifier says.
fn verdict(body: fn(Guest<DRIVER_OBJECT>)) -> String {
    let mut sim = simulation();
    let host = host(&mut sim);
    let _ = host.spawn("system", move || body(kept(DRIVER_OBJECT::zeroed()))).join();
    sim.verdict().to_string()
}

#[track_caller]
fn assert_reported(body: fn(Guest<DRIVER_OBJECT>), expected: &str) {
    let verdict = verdict(body);
    assert!(verdict.contains(expected), "expected '{expected}', got: {verdict}");
}

unsafe extern "efiapi" fn deregister(_: *mut DRIVER_OBJECT) {
    registration::NdisMDeregisterMiniportDriver(DRIVER.load(SeqCst));
}

unsafe extern "efiapi" fn leave(_: *mut DRIVER_OBJECT) {}

/// Registers a miniport driver, and stores its handle in [`DRIVER`].
fn register(object: Guest<DRIVER_OBJECT>, unload: DRIVER_UNLOAD) {
    let mut characteristics = characteristics();
    characteristics.UnloadHandler = Some(unload);
    let (script, handle) = (kept(Script::default()), kept(0_usize));
    let status = registration::NdisMRegisterMiniportDriver(
        object,
        Guest::null(),
        script.address(),
        kept(characteristics),
        handle,
    );
    assert_eq!(status, NDIS_STATUS_SUCCESS);
    DRIVER.store(handle.read(), SeqCst);
}

/// Calls the unload routine of the driver object, as the I/O manager does.
fn unload(object: Guest<DRIVER_OBJECT>) {
    let routine = object.field::<usize>(UNLOAD).read();
    // SAFETY: NDIS stored its own routine there.
    let routine: DRIVER_UNLOAD = unsafe { transmute(routine) };
    // SAFETY: the object that was registered.
    unsafe { routine(object.as_ptr()) };
}

/// One test, because the drivers share [`DRIVER`].
#[test]
fn wrong_order_of_registration_is_reported() {
    let correct = |object| {
        register(object, deregister);
        unload(object);
    };
    assert_eq!(verdict(correct), "no violation");
    let twice = |object| {
        register(object, deregister);
        register(object, deregister);
    };
    assert_reported(twice, "NdisMRegisterMiniportDriver was called twice");
    let late = |object| {
        register(object, deregister);
        set_provider(DRIVER.load(SeqCst), |_| {});
    };
    assert_reported(late, "NdisSetOptionalHandlers was called outside of MiniportSetOptions");
    let kept = |object| {
        register(object, leave);
        unload(object);
    };
    assert_reported(kept, "MiniportDriverUnload returned without NdisMDeregisterMiniportDriver");
}

/// Indicates as many lists as NDIS allows, and one more: `AT_ONCE`, or one at a time.
unsafe extern "efiapi" fn indicate_too_many<const AT_ONCE: bool>(
    _: NDIS_HANDLE,
    _: u32,
    adapter: *mut c_void,
    throttle: *mut c_void,
    _: *mut c_void,
) {
    // NDIS_RECEIVE_THROTTLE_PARAMETERS begins with MaxNblsToIndicate.
    // SAFETY: NDIS's parameters of this DPC.
    let limit = unsafe { throttle.cast::<u32>().read() };
    let handle = adapter.addr();
    let mut first = Guest::<NET_BUFFER_LIST>::null();
    for _ in 0..=limit {
        let list = list(handle);
        if AT_ONCE {
            list.field::<*mut NET_BUFFER_LIST>(offset_of!(NET_BUFFER_LIST, Next)).write(first.as_ptr());
            first = list;
        } else {
            data_path::NdisMIndicateReceiveNetBufferLists(handle, list, 0, 1, 0);
        }
    }
    if AT_ONCE {
        data_path::NdisMIndicateReceiveNetBufferLists(handle, first, 0, limit + 1, 0);
    }
}

/// Leaves frames to NDIS, which calls again only if it has set a limit.
unsafe extern "efiapi" fn leave_more(
    _: NDIS_HANDLE,
    _: u32,
    _: *mut c_void,
    throttle: *mut c_void,
    _: *mut c_void,
) {
    let throttle = throttle.cast::<NDIS_RECEIVE_THROTTLE_PARAMETERS>();
    CALLS.fetch_add(1, SeqCst);
    // SAFETY: NDIS's parameters of this DPC.
    unsafe { (*throttle).MoreNblsPending = u32::from(CALLS.load(SeqCst) < 3) };
}

/// Calls of [`leave_more`].
static CALLS: AtomicUsize = AtomicUsize::new(0);

/// Queues the DPC `handler` of a miniport, and returns what the verifier says.
fn verdict_of_dpc(handler: MINIPORT_MESSAGE_INTERRUPT_DPC, limit: Option<u32>) -> String {
    static TEST: Mutex<()> = Mutex::new(());
    static HANDLER: Mutex<Option<MINIPORT_MESSAGE_INTERRUPT_DPC>> = Mutex::new(None);
    static LIMIT: Mutex<Option<u32>> = Mutex::new(None);
    static INTERRUPT: AtomicUsize = AtomicUsize::new(0);
    let _test = TEST.lock().unwrap_or_else(PoisonError::into_inner);
    *HANDLER.lock().unwrap() = Some(handler);
    *LIMIT.lock().unwrap() = limit;
    let connect = |handle| {
        let edit = |handlers: &mut NDIS_MINIPORT_INTERRUPT_CHARACTERISTICS| {
            handlers.MessageInterruptDpcHandler = *HANDLER.lock().unwrap();
        };
        INTERRUPT.store(interrupt_with(handle, edit), SeqCst);
    };
    let queue = |miniport: &Miniport| {
        current().host().set_receive_limit(*LIMIT.lock().unwrap());
        let targets = kept(GROUP_AFFINITY { Mask: 1, Group: 0, Reserved: [0; 3] });
        interrupt::NdisMQueueDpcEx(INTERRUPT.load(SeqCst), 1, targets, miniport.adapter().handle);
        nt_sim::nt::time::sleep(1_000_000);
    };
    let disconnect = |_| interrupt::NdisMDeregisterInterruptEx(INTERRUPT.load(SeqCst));
    let script = Script { initialize: Some(connect), halt: Some(disconnect), ..Script::default() };
    verdict_while_running(script, queue)
}

#[test]
fn receive_dpc_that_indicates_more_than_it_may_is_reported() {
    let expected = "a receive DPC indicated more lists than MaxNblsToIndicate allows";
    for limit in [64, 3] {
        for handler in [indicate_too_many::<true>, indicate_too_many::<false>] {
            let verdict = verdict_of_dpc(handler, Some(limit));
            assert!(verdict.contains(expected), "expected '{expected}', got: {verdict}");
        }
    }
}

/// The limit is that of the DPC, not of what its thread does afterwards.
#[test]
fn indication_after_a_receive_dpc_has_no_limit() {
    unsafe extern "efiapi" fn indicate_later(
        _: NDIS_HANDLE,
        _: u32,
        adapter: *mut c_void,
        _: *mut c_void,
        _: *mut c_void,
    ) {
        let (handle, me) = (adapter.addr(), current());
        me.host().queue_dpc(me.cpu(), move || {
            LATER.fetch_add(1, SeqCst);
            let list = list(handle);
            data_path::NdisMIndicateReceiveNetBufferLists(handle, list, 0, 1, 1);
        });
    }
    static LATER: AtomicUsize = AtomicUsize::new(0);
    let verdict = verdict_of_dpc(indicate_later, Some(0));
    assert_eq!(LATER.load(SeqCst), 1);
    assert!(!verdict.contains("MaxNblsToIndicate"), "{verdict}");
}

#[test]
fn receive_dpc_that_leaves_frames_is_called_again_only_if_there_is_a_limit() {
    let verdict = verdict_of_dpc(leave_more, Some(64));
    assert_eq!(CALLS.swap(0, SeqCst), 3);
    assert!(!verdict.contains("a receive DPC without a limit returned with MoreNblsPending, for which NDIS does not call it again"), "{verdict}");
    let verdict = verdict_of_dpc(leave_more, None);
    let expected =
        "a receive DPC without a limit returned with MoreNblsPending, for which NDIS does not call it again";
    assert!(verdict.contains(expected), "expected '{expected}', got: {verdict}");
    assert_eq!(CALLS.swap(0, SeqCst), 1);
}

#[test]
fn freeing_what_is_no_block_of_pool_is_reported() {
    assert_all_reported(&[
        (|_| runtime::NdisFreeMemory(kept([0_u8; 8]).cast(), 0, 0), "was freed, which is not a pool block"),
        (|_| nbl::NdisFreeMdl(Guest::from_address(1)), "0x1 was freed, which is not a pool block"),
    ]);
}
