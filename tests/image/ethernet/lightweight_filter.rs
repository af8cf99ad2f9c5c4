// SPDX-License-Identifier: MIT OR Apache-2.0

//! A lightweight filter above the adapter, as every Windows has some: one that is transparent, delays, clones or reorders
//! NET_BUFFER_LISTs in both directions. (WDK: "NDIS Filter Drivers")

use std::time::Duration;

use device_sim::virtio_net::Features;
use lab::{
    filter::{Behavior, Filter},
    testbed::{Options, Testbed},
};
use ndis_sim::AdapterState;
use ndk_abi::ndis::{NDIS_STATUS_PAUSED, NDIS_STATUS_SUCCESS};
use support::{
    bed::{exchange as exchange_frames, finish, miniport, started_with},
    copying::copy,
    scaling::{MOMENT, SOON, arrived, options, receive_directed, udp},
    tcp::{exchange, ipv4, ipv6},
};

const BEHAVIORS: [Behavior; 4] = [
    Behavior::Transparent,
    Behavior::Delays(Duration::from_micros(30)),
    Behavior::Clones,
    Behavior::Reorders,
];

/// Starts both hosts, and registers a filter on each: before the adapter starts on the first, while it runs on the second.
fn started(options: &Options, behavior: Behavior) -> Option<(Testbed, [Filter; 2])> {
    let image = lab::image()?;
    let mut bed = Testbed::new(&image, options).expect("the image can be loaded");
    let first = Filter::register(bed.machines()[0].host(), behavior);
    bed.start().expect("both drivers start");
    let second = Filter::register(bed.machines()[1].host(), behavior);
    let deadline = bed.now() + MOMENT;
    while second.modules() != [1, 0] || miniport(bed.machines()[1]).state() != AdapterState::Running {
        assert!(bed.now() < deadline, "{:?}", bed.violations());
        let _ = bed.event().wait(Duration::from_millis(1));
    }
    Some((bed, [first, second]))
}

#[test]
fn frames_and_tcp_with_its_offloads_pass_the_filter_beside_rdma() {
    for behavior in BEHAVIORS {
        for (format, pairs) in [(Features::default(), 1), (Features::RING_PACKED, 4)] {
            let options = options(pairs, 4);
            let features = options.features | format;
            let options = Options { features, path_mtu: 1024, ..options };
            let Some((bed, filters)) = started(&options, behavior) else { return };
            for addresses in [ipv4(), ipv6()] {
                for counters in exchange(&bed, addresses, 1 << 19) {
                    assert!(counters.large_sends > 0 && counters.invalid == 0, "{behavior:?}: {counters:?}");
                }
            }
            copy(&bed);
            for filter in &filters {
                assert!(
                    filter.passed().iter().all(|&lists| lists > 20),
                    "{behavior:?}: {:?}",
                    filter.passed()
                );
            }
            finish(bed);
            assert_eq!(filters.map(|filter| filter.modules()), [[1, 1]; 2]);
        }
    }
}

/// None is lost, and their order is that of the driver above where the filter keeps it.
#[test]
fn chains_of_frames_are_complete_behind_the_filter() {
    for behavior in BEHAVIORS {
        let Some((bed, _)) = started(&options(1, 2), behavior) else { return };
        let [sender, receiver] = bed.machines().map(miniport);
        let frames: Vec<_> = (0..100).map(|number| udp(1000, number)).collect();
        if behavior == Behavior::Reorders {
            receive_directed(&receiver);
            for id in sender.send_chain(&frames, 0) {
                assert_eq!(sender.send_status(id, MOMENT), Some(NDIS_STATUS_SUCCESS));
            }
            let mut got = arrived(&bed, frames.len());
            assert_ne!(got, frames, "another order");
            got.sort();
            let mut sorted = frames.clone();
            sorted.sort();
            assert!(got == sorted, "each frame once");
        } else {
            exchange_frames(&bed, &sender, &receiver, &frames);
        }
        finish(bed);
    }
}

/// The filter completes what it has, and gets its clones back, before the miniport is asked to pause.
#[test]
fn transitions_of_the_adapter_pass_the_filter_while_frames_are_in_flight() {
    for behavior in BEHAVIORS {
        let Some((bed, filters)) = started(&options(2, 4), behavior) else { return };
        let [sender, receiver] = bed.machines().map(miniport);
        receive_directed(&receiver);
        for round in 0..4 {
            let frames: Vec<_> = (0..100).map(|number| udp(1000 + number as u16 % 7, number)).collect();
            let sent = sender.send_chain(&frames, 0);
            let _ = bed.event().wait(Duration::from_micros(10 * round));
            for adapter in [&sender, &receiver] {
                match round {
                    0 | 1 => {
                        adapter.pause().unwrap();
                        adapter.restart().unwrap();
                    }
                    _ => {
                        adapter.sleep().unwrap();
                        adapter.wake().unwrap();
                    }
                }
            }
            for id in sent {
                let status = sender.send_status(id, MOMENT);
                let is_right = [NDIS_STATUS_SUCCESS, NDIS_STATUS_PAUSED].map(Some).contains(&status);
                assert!(is_right, "{behavior:?}: {status:?}");
            }
            let _ = bed.event().wait(SOON);
        }
        // Detached while frames pass.
        let sent = sender.send_chain(&[udp(1000, 0), udp(1000, 1), udp(1001, 2)], 0);
        filters[0].deregister(bed.machines()[0].host());
        for id in sent {
            assert!(sender.send_status(id, MOMENT).is_some());
        }
        let _ = bed.event().wait(SOON);
        exchange_frames(&bed, &sender, &receiver, &[udp(1000, 3)]);
        finish(bed);
    }
}

/// The device is pulled out while the filter has lists in both directions.
#[test]
fn device_that_is_removed_below_the_filter_leaves_nothing() {
    for behavior in BEHAVIORS {
        let Some((mut bed, filters)) = started(&options(1, 2), behavior) else { return };
        let [sender, receiver] = bed.machines().map(miniport);
        receive_directed(&receiver);
        let frames: Vec<_> = (0..100).map(|number| udp(1000, number)).collect();
        let _ = sender.send_chain(&frames, 0);
        bed.machine_mut(1).surprise_remove_adapter().expect("the host lives");
        bed.machine_mut(0).surprise_remove_adapter().expect("the host lives");
        finish(bed);
        assert_eq!(filters.map(|filter| filter.modules()), [[1, 1]; 2]);
    }
}

#[test]
fn adapter_runs_on_after_its_filter_is_deregistered_and_registered_again() {
    let Some(bed) = started_with(&options(1, 2)) else { return };
    let [sender, receiver] = bed.machines().map(miniport);
    for round in 0..3 {
        let filter = Filter::register(bed.machines()[0].host(), Behavior::Clones);
        let _ = bed.event().wait(SOON);
        exchange_frames(&bed, &sender, &receiver, &[udp(1000, round)]);
        assert!(filter.passed()[0] > 0);
        filter.deregister(bed.machines()[0].host());
        exchange_frames(&bed, &sender, &receiver, &[udp(1000, round + 10)]);
    }
    finish(bed);
}
