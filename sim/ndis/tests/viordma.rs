// SPDX-License-Identifier: MIT OR Apache-2.0

//! The driver's image under the verifier, from loading to unloading.

use std::{net::IpAddr, path::Path, sync::Arc, time::Duration};

use crate::common::image::{image, load, simulation, unload};
use device_sim::{
    Nic, NicOptions, Quirks,
    link::{Capture, Lost, Wire, WireOptions},
    pci::BrokenCapabilities,
    virtio_net::{Features, UsedQuirk},
};
use ndis_sim::{AdapterState, IpHost as _, LogEntry, Miniport, NdisHost as _, NdkEvent, StartError, bus};
use ndk_abi::{ndis::OID_GEN_CURRENT_PACKET_FILTER, ndk::OID_NDK_SET_STATE};
use nt_sim::{Host, Sim, host::HostOptions};

const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

fn new_host(sim: &mut Sim, index: usize, quirks: Quirks) -> (Arc<Host>, Arc<Nic>) {
    host_with(sim, index, NicOptions { quirks, ..NicOptions::new(MACS[index]) })
}

fn host_with(sim: &mut Sim, index: usize, options: NicOptions) -> (Arc<Host>, Arc<Nic>) {
    let host = sim.add_host(HostOptions::new(["left", "right"][index]));
    let nic = host.plug(options);
    host.add_address(IpAddr::from([10, 0, 0, 1 + index as u8]), 24);
    (host, nic)
}

/// Starts an adapter; panics with the verdict if that fails.
fn start(sim: &Sim, host: &Arc<Host>) -> Miniport {
    Miniport::start(host)
        .unwrap_or_else(|error| panic!("{error}: {:x?}\n{}", host.event_log(), sim.verdict()))
}

fn assert_clean(sim: &Sim) {
    assert!(sim.verdict().is_clean(), "{}", sim.verdict());
}

#[test]
fn driver_loads_runs_and_unloads_without_a_leak() {
    let Some(path) = image() else { return };
    let mut sim = simulation(1);
    let (host, _) = new_host(&mut sim, 0, Quirks::default());
    load(&host, &path);
    let miniport = start(&sim, &host);
    assert!(miniport.attributes().ndk.is_some_and(|(enabled, ..)| enabled));
    let opened = miniport.ndk().open(1, 2).expect("RDMA is on");
    miniport.ndk().close(opened).expect("the host lives");
    miniport.pause().expect("the host lives");
    miniport.restart().expect("it restarts");
    miniport.halt().unwrap_or_else(|lost| panic!("{lost}\n{}", sim.verdict()));
    unload(&host);
    assert_clean(&sim);
    assert!(host.event_log().iter().all(LogEntry::is_information), "nothing to report");
}

/// Two hosts with started drivers, joined by a wire.
fn pair(sim: &mut Sim, path: &Path) -> ([Miniport; 2], Arc<Wire>) {
    pair_with(sim, path, Quirks::default())
}

/// Makes a [`pair`] of which the right one's device has quirks.
fn pair_with(sim: &mut Sim, path: &Path, quirks: Quirks) -> ([Miniport; 2], Arc<Wire>) {
    pair_of(sim, path, [NicOptions::new(MACS[0]), NicOptions { quirks, ..NicOptions::new(MACS[1]) }])
}

/// Makes a [`pair`] with these devices.
fn pair_of(sim: &mut Sim, path: &Path, [left, right]: [NicOptions; 2]) -> ([Miniport; 2], Arc<Wire>) {
    let hosts = [(0, left), (1, right)].map(|(index, options)| host_with(sim, index, options));
    let wire = Wire::new(WireOptions::ten_gigabit());
    bus::join_nics(&wire, &hosts[0].1, &hosts[1].1);
    let miniports = hosts.map(|(host, _)| {
        load(&host, path);
        start(sim, &host)
    });
    (miniports, wire)
}

fn end(sim: &Sim, miniports: &[Miniport]) {
    for miniport in miniports {
        miniport.halt().unwrap_or_else(|lost| panic!("{lost}\n{}", sim.verdict()));
        unload(miniport.host());
    }
    assert_clean(sim);
}

/// Sends frames from left to right and waits for them.
fn exchange(sim: &Sim, [left, right]: &[Miniport; 2], count: u8) {
    // As a protocol driver does: sets the packet filter to directed, multicast and broadcast.
    for miniport in [left, right] {
        miniport.set(OID_GEN_CURRENT_PACKET_FILTER, &0xb_u32.to_le_bytes()).expect("the filter is set");
    }
    let frame = |number: u8| [&MACS[1][..], &MACS[0], &[0x08, 0x06], &[number; 100]].concat();
    for number in 0..count {
        assert_eq!(left.send(&frame(number), Duration::from_secs(1)), Some(0), "frame {number}");
    }
    let pause = sim.event();
    let mut received = Vec::new();
    while received.len() < usize::from(count) && !pause.wait(Duration::from_millis(1)) {
        received.extend(right.received());
        assert!(sim.now() < 10_000_000_000, "{} frames arrived\n{}", received.len(), sim.verdict());
    }
    assert_eq!(received, (0..count).map(frame).collect::<Vec<_>>());
}

#[test]
fn ethernet_frames_pass_between_two_hosts() {
    let Some(path) = image() else { return };
    let mut sim = simulation(2);
    let (miniports, wire) = pair(&mut sim, &path);
    exchange(&sim, &miniports, 100);
    assert_eq!(wire.counters(0).delivered, 100);
    end(&sim, &miniports);
}

#[test]
fn burst_is_received_in_order_within_the_indication_limit() {
    let Some(path) = image() else { return };
    let mut sim = simulation(8);
    let (miniports, wire) = pair(&mut sim, &path);
    exchange(&sim, &miniports, 1);
    let frame = |number: u32| {
        let header = [&MACS[1][..], &MACS[0], &[0x08, 0x06]].concat();
        [header, number.to_le_bytes().repeat(30)].concat()
    };
    // More frames than receive buffers, all at once.
    for number in 0..1000 {
        wire.port(0).transmit(sim.now(), frame(number));
    }
    let pause = sim.event();
    let mut received = Vec::new();
    while received.len() < 1000 && !pause.wait(Duration::from_millis(1)) {
        received.extend(miniports[1].received());
        assert!(sim.now() < 10_000_000_000, "{} frames arrived\n{}", received.len(), sim.verdict());
    }
    assert!(received.into_iter().eq((0..1000).map(frame)));
    end(&sim, &miniports);
}

#[test]
fn ethernet_frames_pass_in_real_time() {
    let Some(path) = image() else { return };
    let mut sim = ndis_sim::builder().build();
    let (miniports, _) = pair(&mut sim, &path);
    exchange(&sim, &miniports, 200);
    end(&sim, &miniports);
}

#[test]
fn run_repeats_with_the_same_seed() {
    let Some(path) = image() else { return };
    let run = |seed| {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let file = directory.path().join("capture.pcapng");
        let mut sim = simulation(seed);
        let (miniports, wire) = pair(&mut sim, &path);
        let capture =
            Capture::create(&file, &["left", "right"], Lost::Marked).expect("a file can be written");
        wire.capture(capture.clone());
        exchange(&sim, &miniports, 50);
        end(&sim, &miniports);
        capture.finish().expect("the capture is complete");
        std::fs::read(&file).expect("the capture is there")
    };
    let first = run(11);
    assert_eq!(first, run(11));
    assert_ne!(first, run(12));
}

#[test]
fn unusable_device_fails_initialization_with_an_event_and_without_a_leak() {
    let Some(path) = image() else { return };
    let broken = |capabilities| Quirks { capabilities: Some(capabilities), ..Quirks::default() };
    let cases = [
        Quirks { no_version_1: true, ..Quirks::default() },
        Quirks { rejects_features: true, ..Quirks::default() },
        Quirks { never_resets: true, ..Quirks::default() },
        Quirks { refuses_vectors_from: Some(0), ..Quirks::default() },
        broken(BrokenCapabilities::Loop),
        broken(BrokenCapabilities::NoSuchBar),
        broken(BrokenCapabilities::BeyondBar),
        broken(BrokenCapabilities::Truncated),
        broken(BrokenCapabilities::NoCommon),
        broken(BrokenCapabilities::NoList),
    ];
    let mut codes = Vec::new();
    for quirks in cases {
        let mut sim = simulation(3);
        let (host, _) = new_host(&mut sim, 0, quirks);
        load(&host, &path);
        let failed = Miniport::start(&host).err();
        assert!(
            matches!(failed, Some(StartError::Initialize(_))),
            "{quirks:?}: {failed:?}\n{}",
            sim.verdict()
        );
        unload(&host);
        assert_clean(&sim);
        let log = host.event_log();
        // A reset is waited for: an event after one second and each minute, five minutes long, then that of the failed start.
        let events = if quirks.never_resets { 7 } else { 1 };
        assert_eq!(log.len(), events, "{quirks:?}: {log:x?}");
        assert!(log.iter().all(|entry| entry.code == log[0].code), "{quirks:?}: {log:x?}");
        codes.push(log[0].code);
    }
    codes.dedup();
    assert!(codes.len() >= 5, "events name different reasons: {codes:x?}");
}

#[test]
fn failed_allocation_during_start_fails_it_without_a_leak() {
    let Some(path) = image() else { return };
    let asked = {
        let mut sim = simulation(4);
        let (host, _) = new_host(&mut sim, 0, Quirks::default());
        load(&host, &path);
        let before = host.low_resources.asked();
        let miniport = start(&sim, &host);
        let asked = host.low_resources.asked() - before;
        end(&sim, &[miniport]);
        asked
    };
    // Each of the first allocations, then a sample.
    for nth in (0..asked).filter(|nth| *nth < 48 || nth % 101 == 0) {
        let mut sim = simulation(4);
        let (host, _) = new_host(&mut sim, 0, Quirks::default());
        load(&host, &path);
        host.low_resources.fail_nth(nth);
        match Miniport::start(&host) {
            Ok(miniport) => miniport.halt().unwrap_or_else(|lost| panic!("{nth}: {lost}\n{}", sim.verdict())),
            Err(StartError::Lost(lost)) => panic!("allocation {nth}: {lost}\n{}", sim.verdict()),
            Err(_) => {}
        }
        unload(&host);
        assert!(sim.verdict().is_clean(), "allocation {nth}: {}", sim.verdict());
    }
}

/// Sends 40 frames each way, of which some may be lost, and some sends may fail.
fn send_some(miniports: &[Miniport; 2]) {
    for number in 0..40 {
        for (miniport, [to, from]) in miniports.iter().zip([[1, 0], [0, 1]]) {
            let _ = miniport.send(&numbered(to, from, number), Duration::from_millis(1));
        }
    }
}

fn numbered(to: usize, from: usize, number: u8) -> Vec<u8> {
    [&MACS[to][..], &MACS[from], &[0x08, 0x06], &[number; 100]].concat()
}

/// Event numbers of the driver's event table.
const BROKEN_RING: u32 = 21;
const GIVEN_UP: u32 = 26;
const RECOVERED: u32 = 41;

fn event_codes(miniport: &Miniport) -> Vec<u32> {
    let log = miniport.host().event_log();
    log.iter().filter(|entry| !entry.is_information()).map(|entry| entry.code & 0xffff).collect()
}

/// Whether the adapter runs, and RDMA can be used.
fn works(miniport: &Miniport) -> bool {
    let opened = miniport.ndk().open(2, 0);
    let is_open = opened.is_ok();
    if let Ok(opened) = opened {
        miniport.ndk().close(opened).expect("the host lives");
    }
    assert_eq!(is_open, miniport.state() == AdapterState::Running);
    is_open
}

/// Runs two hosts with frames both ways; the device of the right one returns every fifth buffer wrongly.
fn with_wrong_buffers(quirk: UsedQuirk, features: Features, check: impl FnOnce(&[Miniport; 2])) {
    let Some(path) = image() else { return };
    let mut sim = simulation(7);
    let quirks = Quirks { used: Some((5, quirk)), ..Quirks::default() };
    let options = NicOptions { features, ..NicOptions::new(MACS[0]) };
    let wrong = NicOptions { features, quirks, ..NicOptions::new(MACS[1]) };
    let (miniports, _) = pair_of(&mut sim, &path, [options, wrong]);
    for miniport in &miniports {
        miniport.set(OID_GEN_CURRENT_PACKET_FILTER, &0xb_u32.to_le_bytes()).expect("the filter is set");
    }
    for _ in 0..4 {
        send_some(&miniports);
        let _ = sim.event().wait(Duration::from_millis(200));
    }
    check(&miniports);
    assert!(sim.verdict().is_clean(), "{quirk:?}: {}", sim.verdict());
    assert_eq!(event_codes(&miniports[0]), [0; 0], "{quirk:?}: the other host is not affected");
    assert!(works(&miniports[0]));
    end(&sim, &miniports);
}

const FORMATS: [Features; 2] = [Features::DEFAULT, Features(Features::DEFAULT.0 | Features::RING_PACKED.0)];

/// One that cannot reset queues. It is reset each time; it is given up the fourth time within a minute.
#[test]
fn device_that_returns_buffers_it_does_not_have_is_reset_and_given_up_in_every_ring_format() {
    for features in FORMATS {
        for quirk in [UsedQuirk::IdOutOfRange, UsedQuirk::IndexJump, UsedQuirk::IdTwice] {
            with_wrong_buffers(quirk, features.without(Features::RING_RESET), |[_, right]| {
                let codes = event_codes(right);
                let is = |code| codes.iter().filter(|other| **other == code).count();
                assert_eq!((codes.first(), codes.last()), (Some(&BROKEN_RING), Some(&GIVEN_UP)), "{codes:?}");
                assert_eq!((is(RECOVERED), is(GIVEN_UP)), (3, 1), "{quirk:?}: {codes:?}");
                assert_eq!(is(BROKEN_RING), codes.len() - 4, "{quirk:?}: nothing else: {codes:?}");
                assert_eq!(right.state(), AdapterState::Halted);
                // RDMA is enabled again only where the next wrong buffer does not come before. That is the first one where its ID is out of
                // range. Otherwise the time of the first frames decides, which differs between ring formats: the DPC waits for a frame
                // that it expects, and no thread runs meanwhile.
                let (once, twice) =
                    (&[NdkEvent::Disable][..], &[NdkEvent::Disable, NdkEvent::Enable, NdkEvent::Disable][..]);
                let expected: &[_] = match quirk {
                    UsedQuirk::IdTwice | UsedQuirk::IndexJump => &[once, twice],
                    _ => &[once],
                };
                let events = right.ndk().events();
                assert!(expected.contains(&&events[..]), "{quirk:?}: {events:?}");
                assert!(!works(right));
            });
        }
    }
}

/// The frame alone is lost: what the driver reads of it is in its buffer.
#[test]
fn frames_whose_length_the_device_states_wrongly_are_dropped_in_every_ring_format() {
    for features in FORMATS {
        for quirk in [UsedQuirk::LengthTooLarge, UsedQuirk::LengthTooSmall] {
            with_wrong_buffers(quirk, features, |[_, right]| {
                assert_eq!((event_codes(right), right.ndk().events()), (vec![], vec![]), "{quirk:?}");
                assert!(works(right));
                let received = right.received();
                assert_eq!(received.len(), 128, "{quirk:?}: four of five");
                let sent: Vec<_> = (0..40).map(|number| numbered(1, 0, number)).collect();
                assert!(received.iter().all(|frame| sent.contains(frame)), "{quirk:?}: whole frames");
            });
        }
    }
}

#[test]
fn device_failure_during_traffic_affects_its_host_only() {
    let Some(path) = image() else { return };
    let failures = [
        Quirks { needs_reset_after: Some(10), ..Quirks::default() },
        Quirks { removed_after: Some(10), ..Quirks::default() },
    ];
    for quirks in failures {
        let mut sim = simulation(7);
        let (miniports, _) = pair_with(&mut sim, &path, quirks);
        send_some(&miniports);
        assert!(sim.verdict().is_clean(), "{quirks:?}: {}", sim.verdict());
        assert_eq!(event_codes(&miniports[0]), [0; 0], "{quirks:?}");
        assert!(works(&miniports[0]));
        end(&sim, &miniports);
    }
}

//= R-OIDNDK-5
//= R-OIDNDK-8
//= R-OIDNDK-11, R-OIDNDK-12
//= R-IRQL-9
#[test]
fn rdma_is_disabled_after_its_adapters_are_closed_and_enabled_again() {
    let Some(path) = image() else { return };
    let mut sim = simulation(5);
    let (host, _) = new_host(&mut sim, 0, Quirks::default());
    load(&host, &path);
    let miniport = start(&sim, &host);
    let opened = miniport.ndk().open(2, 0).expect("RDMA is on");
    miniport.set(OID_NDK_SET_STATE, &[0]).expect("RDMA can be switched off");
    assert!(miniport.ndk().await_events(1, Duration::from_secs(1)));
    assert_eq!(miniport.ndk().events(), [NdkEvent::Disable]);
    assert!(miniport.ndk().open(2, 0).is_err(), "RDMA is off");
    miniport.ndk().close(opened).expect("the host lives");
    miniport.set(OID_NDK_SET_STATE, &[1]).expect("RDMA can be switched on");
    assert!(miniport.ndk().await_events(2, Duration::from_secs(1)));
    assert_eq!(miniport.ndk().events(), [NdkEvent::Disable, NdkEvent::Enable]);
    let opened = miniport.ndk().open(2, 0).expect("RDMA is on");
    miniport.ndk().close(opened).expect("the host lives");
    end(&sim, &[miniport]);
}

#[test]
fn device_may_be_removed_by_surprise() {
    let Some(path) = image() else { return };
    let mut sim = simulation(6);
    let (host, _) = new_host(&mut sim, 0, Quirks::default());
    load(&host, &path);
    let miniport = start(&sim, &host);
    miniport.surprise_remove().unwrap_or_else(|lost| panic!("{lost}\n{}", sim.verdict()));
    unload(&host);
    assert_clean(&sim);
}

//= R-PNP-4
//= R-PNP-5
//= R-OIDNDK-15
#[test]
fn surprise_removal_waits_for_rdma_consumers() {
    let Some(path) = image() else { return };
    let mut sim = simulation(9);
    let (host, _) = new_host(&mut sim, 0, Quirks::default());
    load(&host, &path);
    let miniport = start(&sim, &host);
    let opened = miniport.ndk().open(1, 0).expect("RDMA is on");
    let removed = miniport.clone();
    let removal = host.spawn("PnP", move || removed.surprise_remove());
    assert!(miniport.ndk().await_events(1, Duration::from_secs(10)), "consumers are notified");
    assert_eq!(miniport.ndk().events(), [NdkEvent::Disable]);
    assert!(!removal.is_finished(), "the halt waits");
    miniport.ndk().close(opened).expect("the host lives");
    removal.join().expect("the host lives").expect("the removal ends");
    unload(&host);
    assert_clean(&sim);
}
