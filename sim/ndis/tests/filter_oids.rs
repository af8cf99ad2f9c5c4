// SPDX-License-Identifier: MIT OR Apache-2.0

//! OID requests on their way through filter modules (WDK, "Filter Module OID Requests", `FILTER_OID_REQUEST`, `NdisFOidRequest`).
#![allow(unsafe_code, reason = "implements handlers of a miniport")]

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicI32, AtomicUsize, Ordering::SeqCst},
};

use crate::common::{
    filter::{FilterScript, Request, register, register_all, register_with},
    scripted::{Script, header, host, kept, register as register_miniport, run, simulation},
};
use ndis_sim::{
    Miniport, NdisHost as _,
    direct_oid::NdisMDirectOidRequestComplete,
    filter_oid::{
        NdisAllocateCloneOidRequest, NdisFCancelDirectOidRequest, NdisFCancelOidRequest, NdisFOidRequest,
        NdisFOidRequestComplete, NdisFreeCloneOidRequest,
    },
    oid::NdisMOidRequestComplete,
    upper_drivers::NdisFDeregisterFilterDriver,
};
use ndk_abi::ndis::{
    NDIS_HANDLE, NDIS_OBJECT_TYPE_OID_REQUEST, NDIS_OID_REQUEST, NDIS_OID_REQUEST_QUERY, NDIS_REQUEST_TYPE,
    NDIS_SIZEOF_OID_REQUEST_REVISION_1, NDIS_STATUS, NDIS_STATUS_FAILURE, NDIS_STATUS_INVALID_PARAMETER,
    NDIS_STATUS_NOT_SUPPORTED, NDIS_STATUS_PENDING, NDIS_STATUS_SUCCESS,
};
use nt_sim::{Host, Irql, Sim, guest::Guest, nt::time};

/// The OID that the miniport answers at once, the one that pends for 5 ms, and the one that it does not know.
const QUICK: u32 = 0xff00_0001;
const SLOW: u32 = 0xff00_0002;
const UNKNOWN: u32 = 0xff00_0003;

/// Number of requests that the miniport has got, of those that it has, and the most of these at a time.
static ASKED: AtomicUsize = AtomicUsize::new(0);
static HAS: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);
/// Kept by scripts: the ID of a cancellation, and the result of a request of the module.
static KEPT: AtomicUsize = AtomicUsize::new(0);
static OWN: AtomicI32 = AtomicI32::new(0);
/// The tests share what is static.
static TEST: Mutex<()> = Mutex::new(());

fn of(request: Request) -> NDIS_OID_REQUEST_QUERY {
    // SAFETY: query and set have the same layout.
    unsafe { request.read().DATA.QUERY_INFORMATION }
}

/// Writes an answer of two bytes.
fn answer(request: Request) -> NDIS_STATUS {
    let mut whole = request.read();
    let mut query = of(request);
    if query.InformationBufferLength < 2 {
        return NDIS_STATUS_FAILURE;
    }
    Guest::<u8>::new(query.InformationBuffer.cast()).write_bytes(&[4, 2]);
    query.BytesWritten = 2;
    whole.DATA.QUERY_INFORMATION = query;
    request.write(whole);
    NDIS_STATUS_SUCCESS
}

/// Handles a request as the miniport does; `complete` completes one that pends.
fn handle_request(
    adapter: usize,
    request: *mut NDIS_OID_REQUEST,
    complete: fn(usize, Request, NDIS_STATUS),
) -> NDIS_STATUS {
    let request: Request = Guest::new(request);
    ASKED.fetch_add(1, SeqCst);
    match of(request).Oid {
        QUICK => answer(request),
        SLOW => {
            MOST.fetch_max(HAS.fetch_add(1, SeqCst) + 1, SeqCst);
            let address = request.address();
            drop(nt_sim::current().host().clone().spawn("miniport", move || {
                time::sleep(5_000_000);
                let request = Guest::from_address(address);
                HAS.fetch_sub(1, SeqCst);
                complete(adapter, request, answer(request));
            }));
            NDIS_STATUS_PENDING
        }
        _ => NDIS_STATUS_NOT_SUPPORTED,
    }
}

static ADAPTER: AtomicUsize = AtomicUsize::new(0);

unsafe extern "efiapi" fn direct(_: NDIS_HANDLE, request: *mut NDIS_OID_REQUEST) -> NDIS_STATUS {
    handle_request(ADAPTER.load(SeqCst), request, |adapter, request, status| {
        NdisMDirectOidRequestComplete(adapter, request, status);
    })
}

unsafe extern "efiapi" fn cancel(_: NDIS_HANDLE, id: *mut std::ffi::c_void) {
    KEPT.store(id.addr(), SeqCst);
}

fn started(filters: &[(&'static str, FilterScript)]) -> (Sim, Arc<Host>, Option<Miniport>) {
    let mut sim = simulation();
    let host = host(&mut sim);
    register_all(&host, filters);
    let script = Script {
        answer: Some(|adapter, request| {
            handle_request(adapter, request, |adapter, request, status| {
                NdisMOidRequestComplete(adapter, request, status);
            })
        }),
        ..Script::default()
    };
    let edit = |of: &mut ndk_abi::ndis::NDIS_MINIPORT_DRIVER_CHARACTERISTICS| {
        of.DirectOidRequestHandler = Some(direct);
        of.CancelOidRequestHandler = Some(cancel);
        of.CancelDirectOidRequestHandler = Some(cancel);
    };
    assert_eq!(register_miniport(&host, script, edit), Some(NDIS_STATUS_SUCCESS));
    for counter in [&ASKED, &HAS, &MOST, &KEPT] {
        counter.store(0, SeqCst);
    }
    OWN.store(0, SeqCst);
    let miniport = Miniport::start(&host).ok();
    if let Some(miniport) = &miniport {
        ADAPTER.store(miniport.adapter().handle, SeqCst);
    }
    (sim, host, miniport)
}

/// Runs `body` while the miniport runs below filters, on a thread of the host; returns the report of the verifier.
fn verdict(filters: &[(&'static str, FilterScript)], body: fn(&Miniport)) -> String {
    let _one = TEST.lock().unwrap_or_else(PoisonError::into_inner);
    let (sim, host, miniport) = started(filters);
    if let Some(miniport) = miniport {
        let this = miniport.clone();
        run(&host, "protocol", move || body(&this));
        if !host.is_dead() {
            let _ = miniport.halt();
        }
    }
    sim.verdict().to_string()
}

const PASSING: (&str, FilterScript) = ("passing", FilterScript::NONE);
const ANOTHER: (&str, FilterScript) = ("another", FilterScript::NONE);

/// Each module forwards clones; NDIS passes them on at once and later, by turns.
#[test]
fn requests_reach_the_miniport_through_modules_and_return() {
    for filters in [&[][..], &[PASSING][..], &[PASSING, ANOTHER][..]] {
        let report = verdict(filters, |miniport| {
            for oid in [QUICK, QUICK, SLOW, SLOW, UNKNOWN, UNKNOWN] {
                for answer in [miniport.query(oid, 8), miniport.query_direct(oid, 8)] {
                    match oid {
                        UNKNOWN => assert_eq!(answer.unwrap_err().status, NDIS_STATUS_NOT_SUPPORTED),
                        _ => assert_eq!(answer, Ok(vec![4, 2])),
                    }
                }
            }
            assert_eq!(miniport.set(QUICK, &[0; 8]), Ok(()));
            assert_eq!(ASKED.load(SeqCst), 13);
        });
        assert_eq!(report, "no violation");
    }
}

#[test]
fn module_answers_a_request_itself_at_once_or_later() {
    let answering = FilterScript { oid: Some(|_, request| answer(request)), ..FilterScript::NONE };
    let pending = FilterScript {
        oid: Some(|handle, request| {
            let address = request.address();
            drop(nt_sim::current().host().clone().spawn("filter", move || {
                time::sleep(5_000_000);
                NdisFOidRequestComplete(
                    handle,
                    Guest::from_address(address),
                    answer(Guest::from_address(address)),
                );
            }));
            NDIS_STATUS_PENDING
        }),
        ..FilterScript::NONE
    };
    for filters in [&[PASSING, ("answering", answering)][..], &[("pending", pending), PASSING][..]] {
        let report = verdict(filters, |miniport| {
            assert_eq!(miniport.query(UNKNOWN, 8), Ok(vec![4, 2]));
            assert_eq!(ASKED.load(SeqCst), 0);
        });
        assert_eq!(report, "no violation");
    }
}

/// A query of the module's own.
fn own_request(oid: u32) -> Request {
    let request: Request = kept([0_u64; size_of::<NDIS_OID_REQUEST>().div_ceil(8)]).cast();
    let mut whole = request.read();
    whole.Header = header(NDIS_OBJECT_TYPE_OID_REQUEST, 1, NDIS_SIZEOF_OID_REQUEST_REVISION_1);
    whole.RequestType = NDIS_REQUEST_TYPE::NdisRequestQueryInformation;
    whole.DATA.QUERY_INFORMATION = NDIS_OID_REQUEST_QUERY {
        Oid: oid,
        InformationBuffer: kept([0_u8; 8]).cast().as_ptr(),
        InformationBufferLength: 8,
        BytesWritten: 0,
        BytesNeeded: 0,
    };
    request.write(whole);
    request
}

/// A filter that makes a request of its own in its restart, then another.
const ASKING: FilterScript = FilterScript {
    restart: Some(|handle| {
        let first = own_request(QUICK);
        assert_eq!(NdisFOidRequest(handle, first), NDIS_STATUS_SUCCESS);
        assert_eq!(of(first).BytesWritten, 2);
        assert_eq!(NdisFOidRequest(handle, own_request(SLOW)), NDIS_STATUS_PENDING);
        let short = own_request(QUICK);
        short.cast::<u8>().write(0);
        assert_eq!(NdisFOidRequest(handle, short), NDIS_STATUS_INVALID_PARAMETER);
        let small = own_request(QUICK);
        let mut whole = small.read();
        whole.Header.Size -= 1;
        small.write(whole);
        assert_eq!(NdisFOidRequest(handle, small), NDIS_STATUS_INVALID_PARAMETER);
        NdisFCancelOidRequest(handle, 77);
        NDIS_STATUS_SUCCESS
    }),
    own_oid: Some(|_, request, status| OWN.store(status + of(request).BytesWritten.cast_signed(), SeqCst)),
    ..FilterScript::NONE
};

/// The miniport gets one at a time, also while that of a module pends.
#[test]
fn module_makes_requests_of_its_own_beside_those_of_protocol_drivers() {
    let report = verdict(&[("asking", ASKING), PASSING], |miniport| {
        assert_eq!(KEPT.load(SeqCst), 77, "the cancellation reaches the miniport");
        assert_eq!(miniport.query(SLOW, 8), Ok(vec![4, 2]));
        assert_eq!((OWN.load(SeqCst), MOST.load(SeqCst)), (NDIS_STATUS_SUCCESS + 2, 1));
    });
    assert_eq!(report, "no violation");
}

#[test]
fn module_is_detached_after_its_requests() {
    let detaching = FilterScript { detach: Some(|_| assert_eq!(OWN.load(SeqCst), 2)), ..ASKING };
    assert_eq!(verdict(&[("detaching", detaching)], |_| {}), "no violation");
}

#[track_caller]
fn assert_reported(script: FilterScript, expected: &str) {
    let report = verdict(&[("breaking", script)], |miniport| {
        let _ = miniport.query(QUICK, 8);
    });
    assert!(report.contains(expected), "{report}");
}

#[test]
fn misuse_of_requests_by_modules_is_reported() {
    let oid = |oid| FilterScript { oid: Some(oid), ..FilterScript::NONE };
    assert_reported(
        oid(|handle, request| NdisFOidRequest(handle, request)),
        "that the module has got, not of a clone (source: WDK, FILTER_OID_REQUEST, NdisAllocateCloneOidRequest)",
    );
    assert_reported(
        oid(|handle, request| {
            NdisFOidRequestComplete(handle, request, NDIS_STATUS_SUCCESS);
            NDIS_STATUS_SUCCESS
        }),
        "an OID request was completed, and FilterOidRequest returned 0x00000000 for it",
    );
    assert_reported(
        oid(|handle, request| {
            NdisFOidRequestComplete(handle, request, NDIS_STATUS_SUCCESS);
            NdisFOidRequestComplete(handle, request, NDIS_STATUS_SUCCESS);
            NDIS_STATUS_PENDING
        }),
        "which the module does not have",
    );
    assert_reported(
        oid(|handle, request| {
            NdisFOidRequestComplete(handle, request, NDIS_STATUS_PENDING);
            NDIS_STATUS_PENDING
        }),
        "NdisFOidRequestComplete with NDIS_STATUS_PENDING",
    );
    assert_reported(
        FilterScript {
            attach: Some(|handle| NdisFOidRequest(handle, own_request(QUICK))),
            ..FilterScript::NONE
        },
        "NdisFOidRequest was called in state Attaching",
    );
}

#[test]
fn clone_that_is_not_freed_or_freed_twice_is_reported() {
    assert_reported(
        FilterScript {
            oid: Some(|handle, _| {
                let result = kept(0_usize);
                NdisAllocateCloneOidRequest(handle, own_request(QUICK), 1, result);
                NDIS_STATUS_FAILURE
            }),
            ..FilterScript::NONE
        },
        "FilterDetach returned without releasing: NdisAllocateCloneOidRequest",
    );
    assert_reported(
        FilterScript {
            oid: Some(|handle, _| {
                let result = kept(0_usize);
                NdisAllocateCloneOidRequest(handle, own_request(QUICK), 1, result);
                NdisFreeCloneOidRequest(handle, Guest::from_address(result.read()));
                NdisFreeCloneOidRequest(handle, Guest::from_address(result.read()));
                NDIS_STATUS_FAILURE
            }),
            ..FilterScript::NONE
        },
        "which is no clone of this driver's",
    );
}

/// A request at `DISPATCH_LEVEL` is passed on later.
#[test]
fn module_makes_a_request_at_dispatch_level() {
    let asking = FilterScript {
        restart: Some(|handle| {
            let me = nt_sim::current();
            let old = me.raise(Irql::DISPATCH_LEVEL);
            assert_eq!(NdisFOidRequest(handle, own_request(QUICK)), NDIS_STATUS_PENDING);
            me.lower(old);
            NDIS_STATUS_SUCCESS
        }),
        detach: Some(|_| assert_eq!(OWN.load(SeqCst), 2)),
        ..ASKING
    };
    assert_eq!(verdict(&[("asking", asking)], |_| {}), "no violation");
}

#[test]
fn cancellations_pass_other_modules_and_reach_the_miniport() {
    let canceling = FilterScript {
        restart: Some(|handle| {
            NdisFCancelOidRequest(handle, 77);
            assert_eq!(KEPT.swap(0, SeqCst), 77);
            NdisFCancelDirectOidRequest(handle, 78);
            assert_eq!(KEPT.swap(0, SeqCst), 78);
            NDIS_STATUS_SUCCESS
        }),
        ..FilterScript::NONE
    };
    for filters in [&[("canceling", canceling)][..], &[PASSING, ANOTHER, ("canceling", canceling)][..]] {
        assert_eq!(verdict(filters, |_| {}), "no violation");
    }
}

#[test]
fn cancellation_of_a_module_reaches_the_one_below_it() {
    let keeping =
        FilterScript { cancel_oid: Some(|_, id| _ = KEPT.fetch_add(id, SeqCst)), ..FilterScript::NONE };
    let canceling = FilterScript {
        restart: Some(|handle| {
            NdisFCancelOidRequest(handle, 77);
            assert_eq!(KEPT.swap(1000, SeqCst), 1077);
            NdisFCancelDirectOidRequest(handle, 78);
            assert_eq!(KEPT.load(SeqCst), 1078);
            NDIS_STATUS_SUCCESS
        }),
        parameters: Some(|_| KEPT.store(1000, SeqCst)),
        ..FilterScript::NONE
    };
    for filters in [
        &[("keeping", keeping), ("canceling", canceling)][..],
        &[PASSING, ("keeping", keeping), ("canceling", canceling)][..],
    ] {
        assert_eq!(verdict(filters, |_| {}), "no violation");
    }
}

/// NDIS does not let a module wait for a request of others: its own is passed on later. The module in the middle has no handler for requests.
#[test]
fn request_of_a_module_pends_while_the_module_that_gets_it_has_another_one() {
    static HANDLE: AtomicUsize = AtomicUsize::new(0);
    let _one = TEST.lock().unwrap_or_else(PoisonError::into_inner);
    let asking = FilterScript {
        restart: Some(|handle| {
            HANDLE.store(handle, SeqCst);
            // Each second one is passed on later: that of the protocol driver, not the one after it.
            assert_eq!(NdisFOidRequest(handle, own_request(QUICK)), NDIS_STATUS_SUCCESS);
            NDIS_STATUS_SUCCESS
        }),
        ..ASKING
    };
    let (sim, host, miniport) = started(&[PASSING]);
    let miniport = miniport.expect("it starts");
    for (service, script, handlers) in [("without", FilterScript::NONE, 9), ("asking", asking, usize::MAX)] {
        host.bind_filter(service);
        register_with(&host, service, script, handlers);
    }
    let protocol = miniport.clone();
    let protocol = host.spawn("protocol", move || protocol.query(SLOW, 8));
    run(&host, "filter", || {
        time::sleep(1_000_000);
        assert_eq!(HAS.load(SeqCst), 1);
        assert_eq!(NdisFOidRequest(HANDLE.load(SeqCst), own_request(QUICK)), NDIS_STATUS_PENDING);
    });
    assert_eq!(protocol.join().expect("the host lives"), Ok(vec![4, 2]));
    run(&host, "rest", || time::sleep(1_000_000));
    assert_eq!(OWN.load(SeqCst), 2);
    let _ = miniport.halt();
    assert_eq!(sim.verdict().to_string(), "no violation");
}

#[test]
fn module_of_a_driver_that_leaves_is_detached_after_the_requests_of_others() {
    let _one = TEST.lock().unwrap_or_else(PoisonError::into_inner);
    let leaving = FilterScript { detach: Some(|_| assert_eq!(HAS.load(SeqCst), 0)), ..FilterScript::NONE };
    let (sim, host, miniport) = started(&[]);
    let miniport = miniport.expect("it starts");
    host.bind_filter("leaving");
    let driver = register(&host, "leaving", leaving);
    let asking = miniport.clone();
    let asking = host.spawn("protocol", move || asking.query(SLOW, 8));
    run(&host, "rest", || time::sleep(1_000_000));
    assert_eq!(HAS.load(SeqCst), 1);
    run(&host, "system", move || NdisFDeregisterFilterDriver(driver));
    assert_eq!(asking.join().expect("the host lives"), Ok(vec![4, 2]));
    let _ = miniport.halt();
    assert_eq!(sim.verdict().to_string(), "no violation");
}
