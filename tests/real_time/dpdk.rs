// SPDX-License-Identifier: MIT OR Apache-2.0

//! The driver on rings that DPDK's vhost library processes, behind QEMU's virtio-net-pci: a second device that was written by
//! others. DPDK polls the rings, asks for no notifications while it does, and completes frames in batches.

use std::collections::BTreeMap;

use device_sim::virtio_net::Features;
use qemu_device::{DpdkSwitch, Identity};
use support::{
    bed::finish,
    dpdk::{started, started_with_pairs, transfer},
    flows::{copy_by, send_flows},
    tcp,
};

#[test]
fn frames_and_rdma_pass_through_dpdks_rings_in_every_format() {
    let formats: [&[&str]; 6] = [
        &[],
        &["event_idx=off"],
        &["mrg_rxbuf=off"],
        &["indirect_desc=off"],
        &["packed=on"],
        &["packed=on", "event_idx=off"],
    ];
    for properties in formats {
        let Some((bed, switch)) = started(properties, Identity::Modern) else { return };
        let is_packed = |features: &u64| Features(*features).contains(Features::RING_PACKED);
        let negotiated = switch.negotiated().expect("DPDK reports the features");
        assert_eq!(negotiated.len(), 2, "of each device once: {negotiated:x?}");
        assert!(negotiated.iter().all(|features| is_packed(features) == properties.contains(&"packed=on")));
        assert_eq!(bed.events(), [""; 0], "{properties:?}: nothing to report");
        transfer(&bed);
        finish(bed);
    }
}

/// Frames that each pair has forwarded, in both directions.
fn forwarded(switch: &DpdkSwitch) -> BTreeMap<(usize, u16), u64> {
    let streams = switch.end().expect("testpmd reports what it has forwarded");
    streams.into_iter().map(|stream| ((stream.from, stream.pair), stream.delivered)).collect()
}

/// DPDK delivers on a pair what the pair with the same number of the other device sends.
#[test]
fn ethernet_and_rdma_use_each_pair_of_dpdks_rings_in_every_format() {
    let formats: [(u16, &[&str]); 4] =
        [(4, &[]), (2, &["mrg_rxbuf=off"]), (4, &["packed=on"]), (2, &["packed=on", "event_idx=off"])];
    for (pairs, properties) in formats {
        let all: Vec<_> = (0..pairs).collect();
        let busy = |streams: &BTreeMap<(usize, u16), u64>, from, least| -> Vec<u16> {
            let of = streams.iter().filter(|((other, _), delivered)| *other == from && **delivered >= least);
            of.map(|((_, pair), _)| *pair).collect()
        };
        let Some((bed, switch)) = started_with_pairs(pairs, properties, Identity::Modern) else { return };
        // In bursts that fit the backend's queue.
        for _ in 0..5 {
            send_flows(&bed, 32, 2);
        }
        finish(bed);
        let streams = forwarded(&switch);
        assert_eq!(busy(&streams, 0, 10), all, "{properties:?}: {streams:?}");

        let Some((bed, switch)) = started_with_pairs(pairs, properties, Identity::Modern) else { return };
        copy_by(&bed, 16);
        assert_eq!(bed.events(), [""; 0], "{properties:?}: nothing to report");
        finish(bed);
        let streams = forwarded(&switch);
        for from in [0, 1] {
            // By chance a pair may get few of the connections.
            let busy = busy(&streams, from, 100);
            assert!(busy.len() >= all.len().min(3), "{properties:?}: {streams:?}");
        }
    }
}

/// The receiving stack verifies each checksum: DPDK does not report that it did.
#[test]
fn tcp_leaves_its_checksums_to_dpdk() {
    for addresses in [tcp::ipv4(), tcp::ipv6()] {
        let Some((bed, _switch)) = started(&[], Identity::Modern) else { return };
        for counters in tcp::exchange(&bed, addresses, 200_000) {
            assert!(counters.checksums > 0, "{counters:?}");
            assert_eq!((counters.verified, counters.invalid), (0, 0), "{counters:?}");
        }
        finish(bed);
    }
}

#[test]
fn dpdks_rings_stop_and_start_again() {
    let Some((mut bed, _switch)) = started(&[], Identity::Transitional) else { return };
    for _ in 0..2 {
        let miniport = bed.machines()[0].miniport().expect("it has started");
        miniport.sleep().expect("it sleeps");
        miniport.wake().expect("it wakes");
        let machine = bed.machine_mut(0);
        machine.halt_adapter().expect("the adapter halts");
        machine.start_adapter().expect("the adapter starts again");
        transfer(&bed);
    }
    finish(bed);
}
