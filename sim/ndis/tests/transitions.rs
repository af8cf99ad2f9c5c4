// SPDX-License-Identifier: MIT OR Apache-2.0

//! Pauses and restarts that pend, and the attributes that NDIS keeps of an adapter. (WDK: `MiniportPause`, `MiniportRestart`,
//! `NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES`)

use std::{
    sync::atomic::{AtomicI32, AtomicUsize, Ordering::SeqCst},
    time::Duration,
};

use crate::common::scripted::{
    Script, assert_reported, general_with, header, host, in_initialize, kept, register, simulation,
};
use ndis_sim::{AdapterState, Miniport, adapter};
use ndk_abi::ndis::{
    NDIS_HANDLE, NDIS_MINIPORT_DRIVER_CHARACTERISTICS, NDIS_MINIPORT_RESTART_PARAMETERS,
    NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_HARDWARE_ASSIST_ATTRIBUTES, NDIS_STATUS, NDIS_STATUS_FAILURE,
    NDIS_STATUS_NOT_SUPPORTED, NDIS_STATUS_PENDING, NDIS_STATUS_SUCCESS,
};
use nt_sim::current;

/// The time that a pended pause or restart takes.
const TIME: Duration = Duration::from_millis(20);

/// The handle of the adapter that restarts, and the status of that.
static RESTARTING: AtomicUsize = AtomicUsize::new(0);
static STATUS: AtomicI32 = AtomicI32::new(NDIS_STATUS_SUCCESS);

/// Calls `body` after [`TIME`], on another thread of the host.
fn later(body: impl FnOnce() + Send + 'static) {
    current().host().spawn("worker", move || {
        nt_sim::nt::time::sleep(TIME.as_nanos() as u64);
        body();
    });
}

unsafe extern "efiapi" fn pended_restart(
    _: NDIS_HANDLE,
    _: *mut NDIS_MINIPORT_RESTART_PARAMETERS,
) -> NDIS_STATUS {
    later(|| adapter::NdisMRestartComplete(RESTARTING.load(SeqCst), STATUS.load(SeqCst)));
    NDIS_STATUS_PENDING
}

#[test]
fn pause_and_restart_end_when_they_are_completed() {
    let initialize = |handle| RESTARTING.store(handle, SeqCst);
    let pause = |handle| {
        later(move || adapter::NdisMPauseComplete(handle));
        NDIS_STATUS_PENDING
    };
    let script = Script { initialize: Some(initialize), pause: Some(pause), ..Script::default() };
    let mut sim = simulation();
    let host = host(&mut sim);
    let edit = |of: &mut NDIS_MINIPORT_DRIVER_CHARACTERISTICS| of.RestartHandler = Some(pended_restart);
    assert_eq!(register(&host, script, edit), Some(NDIS_STATUS_SUCCESS));
    let miniport = Miniport::start(&host).expect("it starts");
    let took = |body: &dyn Fn()| {
        let begin = host.world().now();
        body();
        Duration::from_nanos(host.world().now() - begin)
    };
    let around = TIME..2 * TIME;
    for _ in 0..2 {
        assert!(around.contains(&took(&|| miniport.pause().expect("the host lives"))));
        assert_eq!(miniport.state(), AdapterState::Paused);
        assert!(around.contains(&took(&|| _ = miniport.restart())));
        assert_eq!(miniport.state(), AdapterState::Running);
    }
    miniport.pause().expect("the host lives");
    STATUS.store(NDIS_STATUS_FAILURE, SeqCst);
    assert!(miniport.restart().is_err());
    assert_eq!(miniport.state(), AdapterState::Paused);
    miniport.halt().expect("the host lives");
    assert_eq!(sim.verdict().to_string(), "no violation");
}

#[test]
fn restart_that_is_completed_twice_is_reported() {
    let twice = |handle| {
        adapter::NdisMRestartComplete(handle, NDIS_STATUS_PENDING);
        adapter::NdisMRestartComplete(handle, NDIS_STATUS_SUCCESS);
    };
    let script = Script { restart: Some(twice), ..Script::default() };
    assert_reported(script, "NdisMRestartComplete was called twice, or nothing is pending");
}

#[test]
fn attributes_are_those_that_the_driver_has_set() {
    let initialize = |handle| {
        general_with(handle, |attributes| attributes.CurrentMacAddress[..6].copy_from_slice(b"viordm"));
        let set = |kind| {
            let attributes = kept([0_u64; 8]);
            attributes.cast().write(header(kind, 1, 8));
            adapter::NdisMSetMiniportAttributes(handle, attributes.cast())
        };
        assert_eq!(set(NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_HARDWARE_ASSIST_ATTRIBUTES), NDIS_STATUS_SUCCESS);
        assert_eq!(set(0xff), NDIS_STATUS_NOT_SUPPORTED);
    };
    let mut sim = simulation();
    let host = host(&mut sim);
    assert_eq!(register(&host, in_initialize(initialize), |_| {}), Some(NDIS_STATUS_SUCCESS));
    let miniport = Miniport::start(&host).expect("it starts");
    assert_eq!(miniport.attributes().station(), Some(*b"viordm"));
    assert_eq!(miniport.supported_oids(), [0x0001_0101]);
    miniport.halt().expect("the host lives");
    assert_eq!(sim.verdict().to_string(), "no violation");
}
