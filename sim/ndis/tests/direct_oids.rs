// SPDX-License-Identifier: MIT OR Apache-2.0

//! Direct OID requests are not serialized: "NDIS does not serialize direct OID requests with other requests" (WDK, "Miniport Adapter Direct
//! OID Requests").
#![allow(unsafe_code, reason = "implements a handler of a miniport")]

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use crate::common::scripted::{Script, host, register, run, simulation};
use ndis_sim::{Miniport, direct_oid::NdisMDirectOidRequestComplete};
use ndk_abi::ndis::{
    NDIS_HANDLE, NDIS_OID_REQUEST, NDIS_STATUS, NDIS_STATUS_FAILURE, NDIS_STATUS_PENDING,
    NDIS_STATUS_SUCCESS, OID_GEN_CURRENT_PACKET_FILTER,
};
use nt_sim::{guest::Guest, nt::time};

/// The handler keeps requests of this OID until the test completes them.
const KEPT: u32 = 0xff00_0001;
/// The handler completes those of this OID, and returns a status as well.
const COMPLETED: u32 = 0xff00_0002;
const PLAIN: u32 = 0xff00_0003;
/// It claims to have written more to those of this OID than their buffer has.
const LONG: u32 = 0xff00_0004;

/// The adapter's handle, and the request that the handler keeps.
static ADAPTER: AtomicUsize = AtomicUsize::new(0);
static REQUEST: AtomicUsize = AtomicUsize::new(0);
/// One test at a time uses them.
static TEST: Mutex<()> = Mutex::new(());

unsafe extern "efiapi" fn direct(_: NDIS_HANDLE, request: *mut NDIS_OID_REQUEST) -> NDIS_STATUS {
    // SAFETY: query and set begin with the OID.
    match unsafe { Guest::new(request).read().DATA.QUERY_INFORMATION.Oid } {
        KEPT => {
            REQUEST.store(request.addr(), SeqCst);
            NDIS_STATUS_PENDING
        }
        COMPLETED => {
            complete(request.addr(), NDIS_STATUS_SUCCESS);
            NDIS_STATUS_SUCCESS
        }
        LONG => {
            let request = Guest::new(request);
            let mut whole = request.read();
            whole.DATA.QUERY_INFORMATION.BytesWritten = 9;
            request.write(whole);
            NDIS_STATUS_SUCCESS
        }
        _ => NDIS_STATUS_SUCCESS,
    }
}

fn complete(request: usize, status: NDIS_STATUS) {
    NdisMDirectOidRequestComplete(ADAPTER.load(SeqCst), Guest::from_address(request), status);
}

/// Runs a miniport with the handler; returns what the verifier says.
fn verdict(body: fn(&Miniport)) -> String {
    let _test = TEST.lock().unwrap_or_else(PoisonError::into_inner);
    let mut sim = simulation();
    let host = host(&mut sim);
    let script = Script { answer: Some(|_, _| NDIS_STATUS_SUCCESS), ..Script::default() };
    assert_eq!(
        register(&host, script, |of| of.DirectOidRequestHandler = Some(direct)),
        Some(NDIS_STATUS_SUCCESS)
    );
    let miniport = Miniport::start(&host).expect("it starts");
    ADAPTER.store(miniport.adapter().handle, SeqCst);
    let this = miniport.clone();
    run(&host, "test", move || body(&this));
    if !host.is_dead() {
        let _ = miniport.halt();
    }
    sim.verdict().to_string()
}

/// Sends the request that is kept, on a thread of its own.
fn keep_one(miniport: &Miniport) {
    let this = miniport.clone();
    REQUEST.store(0, SeqCst);
    drop(miniport.host().spawn("protocol", move || {
        let refused = this.query_direct(KEPT, 8).unwrap_err();
        assert_eq!(refused.status, NDIS_STATUS_FAILURE);
    }));
    while REQUEST.load(SeqCst) == 0 {
        time::sleep(1_000_000);
    }
}

#[test]
fn other_requests_are_passed_while_a_direct_one_pends() {
    let report = verdict(|miniport| {
        keep_one(miniport);
        assert_eq!(miniport.query_direct(PLAIN, 0), Ok(Vec::new()));
        assert_eq!(miniport.set(OID_GEN_CURRENT_PACKET_FILTER, &[5, 0, 0, 0]), Ok(()));
        complete(REQUEST.load(SeqCst), NDIS_STATUS_FAILURE);
    });
    assert_eq!(report, "no violation");
}

#[test]
fn adapter_is_halted_when_no_direct_request_pends() {
    let report = verdict(|miniport| {
        keep_one(miniport);
        drop(miniport.host().spawn("completion", || {
            time::sleep(100_000_000);
            complete(REQUEST.swap(0, SeqCst), NDIS_STATUS_FAILURE);
        }));
    });
    assert_eq!((report.as_str(), REQUEST.load(SeqCst)), ("no violation", 0));
}

#[test]
fn wrong_completions_of_direct_requests_are_reported() {
    type Offence = (fn(&Miniport), &'static str);
    let offences: [Offence; 4] = [
        (
            |miniport| _ = miniport.query_direct(LONG, 8),
            "OID 0xff000004: BytesWritten is 9, but the buffer has 8 bytes",
        ),
        (
            |miniport| _ = miniport.query_direct(COMPLETED, 0),
            "was completed, and MiniportDirectOidRequest returned 0x00000000 for it",
        ),
        (
            |miniport| {
                keep_one(miniport);
                complete(REQUEST.load(SeqCst), NDIS_STATUS_FAILURE);
                complete(REQUEST.load(SeqCst), NDIS_STATUS_FAILURE);
            },
            "a direct OID request was completed twice, or does not pend",
        ),
        (
            |miniport| {
                keep_one(miniport);
                complete(REQUEST.load(SeqCst), NDIS_STATUS_PENDING);
            },
            "a direct OID request was completed with NDIS_STATUS_PENDING",
        ),
    ];
    for (body, expected) in offences {
        let report = verdict(body);
        assert!(report.contains(expected), "expected '{expected}', got: {report}");
    }
}
