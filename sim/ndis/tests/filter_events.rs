// SPDX-License-Identifier: MIT OR Apache-2.0

//! PnP events on their way through filter modules (WDK, `FILTER_DEVICE_PNP_EVENT_NOTIFY`, `FILTER_NET_PNP_EVENT`).
#![allow(unsafe_code, reason = "implements a handler of a miniport")]

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use crate::common::{
    filter::{FilterScript, register_all},
    scripted::{Script, host, kept, register as register_miniport, simulation},
};
use ndis_sim::{Miniport, filter_pnp::NdisFNetPnPEvent, ndk::NdisMNetPnPEvent};
use ndk_abi::ndis::{
    NDIS_DEVICE_PNP_EVENT, NDIS_HANDLE, NDIS_STATUS, NDIS_STATUS_SUCCESS, NET_DEVICE_PNP_EVENT,
    NET_PNP_EVENT_CODE, NET_PNP_EVENT_NOTIFICATION,
};

/// Number of events that the miniport has got, and that modules have kept.
static NOTIFIED: AtomicUsize = AtomicUsize::new(0);
static KEPT: AtomicUsize = AtomicUsize::new(0);
/// The tests share what is static.
static TEST: Mutex<()> = Mutex::new(());

unsafe extern "efiapi" fn notify(_: NDIS_HANDLE, _: *mut NET_DEVICE_PNP_EVENT) {
    NOTIFIED.fetch_add(1, SeqCst);
}

/// Runs `body` while a miniport runs below these filters; expects no violation.
fn with_filters(filters: &[(&'static str, FilterScript)], body: impl FnOnce(&Miniport)) {
    let mut sim = simulation();
    let host = host(&mut sim);
    register_all(&host, filters);
    let edit = |of: &mut ndk_abi::ndis::NDIS_MINIPORT_DRIVER_CHARACTERISTICS| {
        of.DevicePnPEventNotifyHandler = Some(notify);
    };
    assert_eq!(register_miniport(&host, Script::default(), edit), Some(NDIS_STATUS_SUCCESS));
    let miniport = Miniport::start(&host).expect("it starts");
    NOTIFIED.store(0, SeqCst);
    KEPT.store(0, SeqCst);
    body(&miniport);
    let _ = miniport.halt();
    assert_eq!(sim.verdict().to_string(), "no violation");
}

const PASSING: (&str, FilterScript) = ("passing", FilterScript::NONE);

#[test]
fn event_of_the_device_reaches_the_miniport_if_modules_pass_it_on() {
    let _one = TEST.lock().unwrap_or_else(PoisonError::into_inner);
    let keeping = FilterScript {
        device_event: Some(|_, event| {
            assert_eq!(event.read().DevicePnPEvent, NDIS_DEVICE_PNP_EVENT::NdisDevicePnPEventSurpriseRemoved);
            KEPT.fetch_add(1, SeqCst);
        }),
        ..FilterScript::NONE
    };
    for (filters, expected) in [
        (&[][..], [1, 0]),
        (&[PASSING][..], [1, 0]),
        (&[PASSING, ("another", FilterScript::NONE)][..], [1, 0]),
        (&[("keeping", keeping), PASSING][..], [0, 1]),
    ] {
        with_filters(filters, |miniport| {
            miniport.surprise_remove().expect("the host lives");
            assert_eq!([NOTIFIED.load(SeqCst), KEPT.load(SeqCst)], expected);
        });
    }
}

fn disable(miniport: &Miniport) -> NDIS_STATUS {
    let handle = miniport.adapter().handle;
    let call = move || {
        let mut notification = NET_PNP_EVENT_NOTIFICATION::zeroed();
        notification.NetPnPEvent.NetEvent = NET_PNP_EVENT_CODE::NetEventNDKDisable;
        NdisMNetPnPEvent(handle, kept(notification))
    };
    miniport.host().spawn("miniport", call).join().expect("the host lives")
}

#[test]
fn event_of_the_network_reaches_the_protocol_drivers_if_modules_pass_it_on() {
    let _one = TEST.lock().unwrap_or_else(PoisonError::into_inner);
    let seeing = FilterScript {
        net_event: Some(|handle, event| {
            KEPT.fetch_add(1, SeqCst);
            NdisFNetPnPEvent(handle, event)
        }),
        ..FilterScript::NONE
    };
    let keeping = FilterScript { net_event: Some(|_, _| NDIS_STATUS_SUCCESS), ..FilterScript::NONE };
    for (filters, above, seen) in [
        (&[][..], 1, 0),
        (&[PASSING, ("seeing", seeing)][..], 1, 1),
        (&[("keeping", keeping), ("seeing", seeing)][..], 0, 0),
    ] {
        with_filters(filters, |miniport| {
            assert_eq!(disable(miniport), NDIS_STATUS_SUCCESS);
            assert_eq!((miniport.ndk().events().len(), KEPT.load(SeqCst)), (above, seen));
        });
    }
}
