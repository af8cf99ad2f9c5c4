// SPDX-License-Identifier: MIT OR Apache-2.0

//! Handlers of a miniport that NDIS calls now and then: sends with their source, checks for a miniport that hangs, and resets.

use std::{
    mem::offset_of,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use crate::common::scripted::{
    Script, host, in_initialize, kept, register, simulation, verdict_while_running,
};
use ndis_sim::{AdapterState, Miniport, data_path, dma, hang, interrupt, oid};
use ndk_abi::ndis::{
    NDIS_HANDLE, NDIS_MINIPORT_DRIVER_CHARACTERISTICS, NDIS_MINIPORT_INTERRUPT_CHARACTERISTICS,
    NDIS_OID_REQUEST, NDIS_SG_DMA_DESCRIPTION, NDIS_STATUS, NDIS_STATUS_FAILURE,
    NDIS_STATUS_INVALID_PARAMETER, NDIS_STATUS_PENDING, NDIS_STATUS_SUCCESS, NET_BUFFER_LIST,
    OID_GEN_CURRENT_PACKET_FILTER,
};
use nt_sim::{Irql, current, guest::Guest, nt::time};

const SOURCE: usize = offset_of!(NET_BUFFER_LIST, SourceHandle);

fn complete(handle: usize, lists: *mut NET_BUFFER_LIST) {
    data_path::NdisMSendNetBufferListsComplete(handle, Guest::new(lists), 0);
}

/// "The source handle identifies the driver that allocated the NET_BUFFER_LIST" (windows-driver-docs: network/net-buffer-list-structure):
/// a miniport takes a list with its own handle for one of its own.
#[test]
fn sent_list_has_the_handle_of_the_binding_as_its_source() {
    let send = |handle, lists: *mut NET_BUFFER_LIST| {
        let source = Guest::new(lists).field::<usize>(SOURCE).read();
        assert!(source != 0 && source != handle, "{source:#x}");
        complete(handle, lists);
    };
    let script = Script { send: Some(send), ..Script::default() };
    let body = |miniport: &Miniport| {
        assert_eq!(miniport.send(&[0; 60], Duration::from_secs(1)), Some(NDIS_STATUS_SUCCESS));
    };
    assert_eq!(verdict_while_running(script, body), "no violation");
}

#[test]
fn changed_source_of_a_sent_list_is_reported() {
    let send = |handle, lists: *mut NET_BUFFER_LIST| {
        Guest::new(lists).field::<usize>(SOURCE).write(handle);
        complete(handle, lists);
    };
    let script = Script { send: Some(send), ..Script::default() };
    let verdict =
        verdict_while_running(script, |miniport| _ = miniport.send(&[0; 60], Duration::from_secs(1)));
    assert!(verdict.contains("the miniport changed the SourceHandle of a sent NET_BUFFER_LIST"), "{verdict}");
}

/// Calls of the handlers below, and the answers.
static CHECKS: AtomicUsize = AtomicUsize::new(0);
static HANGS: AtomicU32 = AtomicU32::new(0);
static RESETS: AtomicUsize = AtomicUsize::new(0);
static LOSES_ADDRESSING: AtomicU32 = AtomicU32::new(0);
static FILTERS: Mutex<Vec<u32>> = Mutex::new(Vec::new());
/// The tests share what is static.
static TEST: Mutex<()> = Mutex::new(());

unsafe extern "efiapi" fn is_hung(_: NDIS_HANDLE) -> u8 {
    assert_eq!(current().irql(), Irql::PASSIVE_LEVEL);
    CHECKS.fetch_add(1, SeqCst);
    // Once.
    HANGS.swap(0, SeqCst) as u8
}

unsafe extern "efiapi" fn reset(_: NDIS_HANDLE, addressing_lost: *mut u8) -> NDIS_STATUS {
    RESETS.fetch_add(1, SeqCst);
    // SAFETY: NDIS passes a pointer to a variable of its own, which lives until this handler returns.
    unsafe { addressing_lost.write(LOSES_ADDRESSING.load(SeqCst) as u8) };
    NDIS_STATUS_SUCCESS
}

/// The adapter of [`pending_reset`].
static ADAPTER: AtomicUsize = AtomicUsize::new(0);

unsafe extern "efiapi" fn pending_reset(_: NDIS_HANDLE, _: *mut u8) -> NDIS_STATUS {
    RESETS.fetch_add(1, SeqCst);
    let on = current().host().clone();
    let host = on.clone();
    on.at(on.world().now() + 50_000_000, move || {
        host.queue_dpc(nt_sim::cpu::CpuId(0), || complete_reset(NDIS_STATUS_SUCCESS));
    });
    NDIS_STATUS_PENDING
}

fn complete_reset(status: NDIS_STATUS) {
    hang::NdisMResetComplete(ADAPTER.load(SeqCst), status, LOSES_ADDRESSING.load(SeqCst) as u8);
}

fn at_dispatch(status: NDIS_STATUS) {
    let me = current();
    let before = me.raise(Irql::DISPATCH_LEVEL);
    complete_reset(status);
    me.lower(before);
}

/// Completes a reset twice before it returns.
unsafe extern "efiapi" fn twice_completed_reset(_: NDIS_HANDLE, _: *mut u8) -> NDIS_STATUS {
    at_dispatch(NDIS_STATUS_SUCCESS);
    at_dispatch(NDIS_STATUS_SUCCESS);
    NDIS_STATUS_PENDING
}

/// Whether the miniport refuses OIDs.
static REFUSES: AtomicU32 = AtomicU32::new(0);

fn answer_filter(_: usize, request: *mut NDIS_OID_REQUEST) -> NDIS_STATUS {
    if REFUSES.load(SeqCst) != 0 {
        return NDIS_STATUS_FAILURE;
    }
    // SAFETY: NDIS's request; the test sends sets only.
    let set = unsafe { Guest::new(request).read().DATA.SET_INFORMATION };
    if set.Oid == OID_GEN_CURRENT_PACKET_FILTER {
        FILTERS.lock().unwrap().push(Guest::new(set.InformationBuffer.cast::<u32>()).read());
    }
    NDIS_STATUS_SUCCESS
}

/// Runs a miniport with handlers that `edit` adds, and `body` with it; returns what the verifier says.
fn run(edit: fn(&mut NDIS_MINIPORT_DRIVER_CHARACTERISTICS), body: fn(&Miniport)) -> String {
    for counter in [&CHECKS, &RESETS] {
        counter.store(0, SeqCst);
    }
    for answer in [&HANGS, &LOSES_ADDRESSING, &REFUSES] {
        answer.store(0, SeqCst);
    }
    FILTERS.lock().unwrap_or_else(PoisonError::into_inner).clear();
    let mut sim = simulation();
    let host = host(&mut sim);
    let initialize = |handle| ADAPTER.store(handle, SeqCst);
    let script = Script { initialize: Some(initialize), answer: Some(answer_filter), ..Script::default() };
    assert_eq!(register(&host, script, edit), Some(NDIS_STATUS_SUCCESS));
    let miniport = Miniport::start(&host).unwrap();
    let running = miniport.clone();
    if host.spawn("caller", move || body(&running)).join().is_ok() && !host.is_dead() {
        miniport.halt().unwrap();
    }
    sim.verdict().to_string()
}

fn with_reset(characteristics: &mut NDIS_MINIPORT_DRIVER_CHARACTERISTICS) {
    characteristics.CheckForHangHandlerEx = Some(is_hung);
    characteristics.ResetHandlerEx = Some(reset);
}

fn with_pending_reset(characteristics: &mut NDIS_MINIPORT_DRIVER_CHARACTERISTICS) {
    characteristics.CheckForHangHandlerEx = Some(is_hung);
    characteristics.ResetHandlerEx = Some(pending_reset);
}

fn sleep(milliseconds: u64) {
    nt_sim::nt::time::sleep(milliseconds * 1_000_000);
}

/// "The default interval is two seconds", and NDIS calls MiniportResetEx if the result is TRUE (windows-driver-docs-ddi:
/// ndis/nc-ndis-miniport_check_for_hang).
#[test]
fn running_miniport_is_asked_every_two_seconds_and_reset_if_it_hangs() {
    let _test = TEST.lock().unwrap_or_else(PoisonError::into_inner);
    let verdict = run(with_reset, |miniport| {
        sleep(1_900);
        assert_eq!(CHECKS.load(SeqCst), 0);
        sleep(4_200);
        assert_eq!((CHECKS.load(SeqCst), RESETS.load(SeqCst)), (3, 0));
        HANGS.store(1, SeqCst);
        sleep(2_000);
        assert_eq!((CHECKS.load(SeqCst), RESETS.load(SeqCst), miniport.resets()), (4, 1, 1));
        miniport.pause().unwrap();
        sleep(5_000);
        assert_eq!(CHECKS.load(SeqCst), 4, "a paused miniport is not asked");
        miniport.restart().unwrap();
        // While a check of the series before is due.
        miniport.pause().unwrap();
        miniport.restart().unwrap();
        sleep(4_100);
        assert_eq!(CHECKS.load(SeqCst), 6, "one series of checks after a restart");
    });
    assert_eq!(verdict, "no violation");
}

#[test]
fn filters_are_set_again_after_a_reset_that_lost_them() {
    let _test = TEST.lock().unwrap_or_else(PoisonError::into_inner);
    for edit in [with_reset, with_pending_reset] {
        let verdict = run(edit, |miniport| {
            miniport.set(OID_GEN_CURRENT_PACKET_FILTER, &[5, 0, 0, 0]).unwrap();
            assert_eq!(miniport.reset(), Ok(NDIS_STATUS_SUCCESS));
            assert_eq!(*FILTERS.lock().unwrap(), [5], "nothing was lost");
            LOSES_ADDRESSING.store(1, SeqCst);
            let before = current().world().now();
            assert_eq!(miniport.reset(), Ok(NDIS_STATUS_SUCCESS));
            assert_eq!(*FILTERS.lock().unwrap(), [5, 5]);
            let took = current().world().now() - before;
            assert!(took < 1_000_000_000, "{took}");
            assert_eq!((RESETS.load(SeqCst), miniport.resets()), (2, 2));
        });
        assert_eq!(verdict, "no violation");
    }
}

#[test]
fn wrong_completion_of_a_reset_is_reported() {
    let _test = TEST.lock().unwrap_or_else(PoisonError::into_inner);
    let verdict = run(with_reset, |_| at_dispatch(NDIS_STATUS_SUCCESS));
    assert!(verdict.contains("NdisMResetComplete was called, but no reset is in progress"), "{verdict}");
    let verdict = run(with_reset, |_| at_dispatch(NDIS_STATUS_PENDING));
    assert!(verdict.contains("NdisMResetComplete with NDIS_STATUS_PENDING"), "{verdict}");
}

#[test]
fn reset_that_is_completed_twice_or_whose_filters_are_refused_is_reported() {
    let _test = TEST.lock().unwrap_or_else(PoisonError::into_inner);
    let twice = |of: &mut NDIS_MINIPORT_DRIVER_CHARACTERISTICS| {
        with_reset(of);
        of.ResetHandlerEx = Some(twice_completed_reset);
    };
    let verdict = run(twice, |miniport| _ = miniport.reset());
    assert!(verdict.contains("NdisMResetComplete was called twice"), "{verdict}");
    let verdict = run(with_reset, |miniport| {
        miniport.set(OID_GEN_CURRENT_PACKET_FILTER, &[5, 0, 0, 0]).unwrap();
        LOSES_ADDRESSING.store(1, SeqCst);
        REFUSES.store(1, SeqCst);
        let _ = miniport.reset();
    });
    assert!(verdict.contains("failed when NDIS set it again after a reset"), "{verdict}");
}

/// A request that did not pend, completed as well; and one that pends, but another is completed.
#[test]
fn completion_of_an_oid_request_that_does_not_pend_is_reported() {
    let did_not_pend = |handle, request| {
        oid::NdisMOidRequestComplete(handle, Guest::new(request), NDIS_STATUS_SUCCESS);
        NDIS_STATUS_FAILURE
    };
    let verdict = verdict_while_running(Script { answer: Some(did_not_pend), ..Script::default() }, |_| {});
    assert!(
        verdict.contains("was completed, and MiniportOidRequest returned 0xc0000001 for it"),
        "{verdict}"
    );
    let another = |handle, request: *mut NDIS_OID_REQUEST| {
        let other = request.wrapping_byte_add(8);
        oid::NdisMOidRequestComplete(handle, Guest::new(other), NDIS_STATUS_SUCCESS);
        NDIS_STATUS_PENDING
    };
    let verdict = verdict_while_running(Script { answer: Some(another), ..Script::default() }, |_| {});
    assert!(verdict.contains("the OID request") && verdict.contains(" pends"), "{verdict}");
}

/// NDIS passes a request to a miniport once the one before is completed, also where that pends.
#[test]
fn oid_requests_of_several_protocol_drivers_are_passed_one_after_the_other() {
    static PENDING: AtomicU32 = AtomicU32::new(0);
    static MOST: AtomicU32 = AtomicU32::new(0);
    static DONE: AtomicU32 = AtomicU32::new(0);
    let later = |handle: usize, request: *mut NDIS_OID_REQUEST| {
        MOST.fetch_max(PENDING.fetch_add(1, SeqCst) + 1, SeqCst);
        let request = request.addr();
        drop(current().host().spawn("completion", move || {
            time::sleep(1_000_000);
            PENDING.fetch_sub(1, SeqCst);
            oid::NdisMOidRequestComplete(handle, Guest::from_address(request), NDIS_STATUS_SUCCESS);
        }));
        NDIS_STATUS_PENDING
    };
    let script = Script { answer: Some(later), ..Script::default() };
    let verdict = verdict_while_running(script, |miniport| {
        for _ in 0..5 {
            let this = miniport.clone();
            drop(miniport.host().spawn("protocol", move || {
                this.set(OID_GEN_CURRENT_PACKET_FILTER, &[5, 0, 0, 0]).unwrap();
                DONE.fetch_add(1, SeqCst);
            }));
        }
        time::sleep(20_000_000);
    });
    assert_eq!(verdict, "no violation");
    assert_eq!((MOST.load(SeqCst), DONE.load(SeqCst)), (1, 5));
}

/// The flags of a miniport without hardware are those of Microsoft's virtual miniports, such as
/// `NDIS_MINIPORT_ATTRIBUTES_NO_PAUSE_ON_SUSPEND` alone. (WDK, `NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES`)
#[test]
fn virtual_miniport_runs_and_gets_neither_an_interrupt_nor_dma() {
    let initialize = |handle| {
        let characteristics = kept(NDIS_MINIPORT_INTERRUPT_CHARACTERISTICS::zeroed());
        let status = interrupt::NdisMRegisterInterruptEx(handle, 0, characteristics, kept(0));
        assert_eq!(status, NDIS_STATUS_INVALID_PARAMETER);
        let description = kept(NDIS_SG_DMA_DESCRIPTION::zeroed());
        let status = dma::NdisMRegisterScatterGatherDma(handle, description, kept(0));
        assert_eq!(status, NDIS_STATUS_INVALID_PARAMETER);
    };
    let script = Script { is_virtual: true, ..in_initialize(initialize) };
    let running = |miniport: &Miniport| assert_eq!(miniport.adapter().state(), AdapterState::Running);
    assert_eq!(verdict_while_running(script, running), "no violation");
}
