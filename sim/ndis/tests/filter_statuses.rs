// SPDX-License-Identifier: MIT OR Apache-2.0

//! Statuses on their way through filter modules (WDK, `FILTER_STATUS`, `NdisFIndicateStatus`).

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use crate::common::{
    filter::{FilterScript, register_all, set_attributes},
    scripted::{Script, header, host, kept, register as register_miniport, simulation},
};
use ndis_sim::{
    Miniport, StatusIndication,
    filter_status::{NdisFIndicateStatus, statuses},
    ndk::NdisMIndicateStatusEx,
};
use ndk_abi::ndis::{
    NDIS_OBJECT_TYPE_STATUS_INDICATION, NDIS_SIZEOF_STATUS_INDICATION_REVISION_1, NDIS_STATUS,
    NDIS_STATUS_FAILURE, NDIS_STATUS_INDICATION, NDIS_STATUS_SUCCESS,
};
use nt_sim::{Host, Sim, guest::Guest};

/// Statuses without a meaning for NDIS.
const FIRST: NDIS_STATUS = 0x4004_0001;
const SECOND: NDIS_STATUS = 0x4004_0002;

fn indication(source: usize, code: NDIS_STATUS, buffer: &[u8]) -> Guest<NDIS_STATUS_INDICATION> {
    let mut of = NDIS_STATUS_INDICATION::zeroed();
    of.Header = header(NDIS_OBJECT_TYPE_STATUS_INDICATION, 1, NDIS_SIZEOF_STATUS_INDICATION_REVISION_1);
    of.SourceHandle = std::ptr::without_provenance_mut(source);
    of.StatusCode = code;
    of.StatusBufferSize = buffer.len() as u32;
    of.StatusBuffer = Box::leak(buffer.to_vec().into_boxed_slice()).as_mut_ptr().cast();
    kept(of)
}

/// Starts an adapter below these filters, the lowest first.
fn started(filters: &[(&'static str, FilterScript)]) -> (Sim, Arc<Host>, Option<Miniport>) {
    let mut sim = simulation();
    let host = host(&mut sim);
    register_all(&host, filters);
    assert_eq!(register_miniport(&host, Script::default(), |_| {}), Some(NDIS_STATUS_SUCCESS));
    let miniport = Miniport::start(&host).ok();
    (sim, host, miniport)
}

/// Has the miniport indicate a status of two bytes; returns what it has indicated, and what has arrived above.
fn indicated(filters: &[(&'static str, FilterScript)], while_paused: bool) -> [Vec<StatusIndication>; 2] {
    let (sim, host, miniport) = started(filters);
    let miniport = miniport.expect("it starts");
    if while_paused {
        miniport.pause().expect("it pauses");
    }
    let handle = miniport.adapter().handle;
    let call = move || NdisMIndicateStatusEx(handle, indication(handle, FIRST, &[1, 2]));
    host.spawn("miniport", call).join().expect("the host lives");
    let seen = [miniport.indications(), statuses(miniport.adapter())];
    let _ = miniport.halt();
    assert_eq!(sim.verdict().to_string(), "no violation");
    seen
}

fn status(code: NDIS_STATUS, buffer: &[u8]) -> StatusIndication {
    StatusIndication { code, buffer: buffer.to_vec() }
}

#[test]
fn status_reaches_the_protocol_drivers_through_modules_in_any_state() {
    let passing = ("passing", FilterScript::default());
    for filters in [&[][..], &[passing][..], &[passing, ("another", FilterScript::default())][..]] {
        for while_paused in [false, true] {
            let expected = vec![status(FIRST, &[1, 2])];
            assert_eq!(indicated(filters, while_paused), [expected.clone(), expected]);
        }
    }
}

/// NDIS itself gets the status of the miniport.
#[test]
fn module_keeps_a_status_replaces_it_or_adds_its_own() {
    let keeping = FilterScript { status: Some(|_, _| {}), ..FilterScript::default() };
    assert_eq!(indicated(&[("keeping", keeping)], false), [vec![status(FIRST, &[1, 2])], vec![]]);
    let replacing = FilterScript {
        status: Some(|handle, given| {
            NdisFIndicateStatus(handle, indication(handle, SECOND, &[3]));
            NdisFIndicateStatus(handle, given);
        }),
        ..FilterScript::default()
    };
    // The module above gets both.
    let [_, above] = indicated(&[("replacing", replacing), ("passing", FilterScript::default())], false);
    assert_eq!(above, [status(SECOND, &[3]), status(FIRST, &[1, 2])]);
}

#[test]
fn module_indicates_a_status_while_it_is_attached() {
    let attaching = FilterScript {
        attach: Some(|handle| {
            assert_eq!(set_attributes(handle, 1), NDIS_STATUS_SUCCESS);
            NdisFIndicateStatus(handle, indication(handle, FIRST, &[]));
            NDIS_STATUS_FAILURE
        }),
        ..FilterScript::default()
    };
    let (sim, _, miniport) = started(&[("attaching", attaching)]);
    assert_eq!(statuses(miniport.expect("it starts").adapter()), [status(FIRST, &[])]);
    assert_eq!(sim.verdict().to_string(), "no violation");
}

#[test]
fn status_of_a_module_without_attributes_or_without_a_header_is_reported() {
    let early = FilterScript {
        attach: Some(|handle| {
            NdisFIndicateStatus(handle, indication(handle, FIRST, &[]));
            NDIS_STATUS_FAILURE
        }),
        ..FilterScript::default()
    };
    let report = started(&[("early", early)]).0.verdict().to_string();
    assert!(report.contains("NdisFIndicateStatus was called before NdisFSetAttributes"), "{report}");
    let short = FilterScript {
        restart: Some(|handle| {
            let of = indication(handle, FIRST, &[]);
            of.cast::<u8>().write(0);
            NdisFIndicateStatus(handle, of);
            NDIS_STATUS_SUCCESS
        }),
        ..FilterScript::default()
    };
    let report = started(&[("short", short)]).0.verdict().to_string();
    assert!(report.contains("NdisFIndicateStatus with an indication of type 0x0"), "{report}");
}

#[test]
fn module_is_detached_when_no_status_is_inside_it() {
    static HAS_RETURNED: AtomicBool = AtomicBool::new(false);
    let slow = FilterScript {
        status: Some(|_, _| {
            nt_sim::nt::time::sleep(5_000_000);
            HAS_RETURNED.store(true, SeqCst);
        }),
        detach: Some(|_| assert!(HAS_RETURNED.load(SeqCst))),
        ..FilterScript::default()
    };
    let (sim, host, miniport) = started(&[("slow", slow)]);
    let miniport = miniport.expect("it starts");
    miniport.pause().expect("it pauses");
    let handle = miniport.adapter().handle;
    let call = move || NdisMIndicateStatusEx(handle, indication(handle, FIRST, &[]));
    let indicating = host.spawn("miniport", call);
    host.spawn("rest", || nt_sim::nt::time::sleep(1_000_000)).join().expect("the host lives");
    assert!(!HAS_RETURNED.load(SeqCst));
    miniport.halt().expect("it halts");
    indicating.join().expect("the host lives");
    assert_eq!(sim.verdict().to_string(), "no violation");
}
