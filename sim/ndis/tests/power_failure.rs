// SPDX-License-Identifier: MIT OR Apache-2.0

//! Hosts that die: of a cut of their power, or of a violation. Nothing of them appears on a link afterwards.

use std::sync::Arc;

use crate::common::scripted::simulation;
use device_sim::{
    NicOptions,
    link::{Wire, WireOptions},
};
use ndis_sim::NdisHost as _;
use nt_sim::{BugCheck, Host, Sim, host::HostOptions, violation};

/// Two hosts at the ends of a wire.
fn joined(sim: &mut Sim) -> ([Arc<Host>; 2], Arc<Wire>) {
    let wire =
        Wire::new(WireOptions { latency: std::time::Duration::from_millis(1), ..WireOptions::immediate() });
    let hosts = [0, 1].map(|end| {
        let host = sim.add_host(HostOptions::new("host"));
        host.plug(NicOptions::new([2, 0, 0, 0, 0, end as u8])).connect(wire.port(end));
        host
    });
    (hosts, wire)
}

#[test]
fn frames_of_a_host_without_power_are_cut() {
    let mut sim = simulation();
    let ([first, second], wire) = joined(&mut sim);
    wire.port(0).transmit(0, vec![0; 60]);
    assert_eq!(wire.counters(0).cut, 0);
    first.kill();
    assert!(first.is_dead() && !second.is_dead());
    assert_eq!(wire.counters(0).cut, 1, "the frame that was on its way");
    wire.port(0).transmit(0, vec![0; 60]);
    assert_eq!(wire.counters(0).cut, 2);
}

#[test]
fn nic_of_a_host_that_has_died_gets_no_frames() {
    let mut sim = simulation();
    let ([first, _], wire) = joined(&mut sim);
    assert!(wire.port(1).peer().is_some());
    let _ =
        first.spawn("driver", || violation(BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION, "a test")).join();
    assert!(first.is_dead());
    assert!(wire.port(1).peer().is_none());
}
