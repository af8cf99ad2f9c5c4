// SPDX-License-Identifier: MIT OR Apache-2.0

//! The driver on devices with every combination of ring format and event suppression: RDMA, Ethernet, a full ring, a reset,
//! and a device that breaks its ring.

use std::time::Duration;

use device_sim::{
    Quirks,
    virtio_net::{Features, UsedQuirk},
};
use lab::{
    device::{DeviceKind, QemuVariant},
    has_qemu,
    testbed::{Options, Testbed},
};
use support::{
    bed::{exchange, finish, miniport, started_with},
    copying::copy,
    faults::{assert_recovered, event},
};

const SOON: Duration = Duration::from_millis(100);
const MOMENT: Duration = Duration::from_secs(20);
/// Slots of the transmit queue.
const RING: usize = 256;

/// Starts both hosts with each ring format, with and without event indices.
fn over_formats(quirks: Quirks, test: impl Fn(Testbed)) {
    over_formats_without(Features::default(), quirks, test);
}

/// As above, with a device that does not offer some features.
fn over_formats_without(withheld: Features, quirks: Quirks, test: impl Fn(Testbed)) {
    for format in [Features::default(), Features::RING_PACKED] {
        for without in [Features::default(), Features::EVENT_IDX] {
            let features = Features::DEFAULT.without(without).without(withheld) | format;
            let Some(bed) = started_with(&Options { quirks, features, ..Options::default() }) else { return };
            test(bed);
        }
    }
}

fn frames(count: usize) -> Vec<Vec<u8>> {
    let header = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xB5];
    (0..count).map(|n| [&header[..], &(n as u64).to_le_bytes().repeat(10)].concat()).collect()
}

/// Sends more frames than the ring has slots. All of them arrive, in order.
fn overfill(bed: &Testbed) {
    let [sender, receiver] = bed.machines().map(miniport);
    exchange(bed, &sender, &receiver, &frames(3 * RING));
}

//= virtio §5
//= virtio §6
#[test]
fn rdma_and_ethernet_work_with_every_ring_format() {
    over_formats(Quirks::default(), |bed| {
        copy(&bed);
        overfill(&bed);
        copy(&bed);
        finish(bed);
    });
}

//= virtio §6
#[test]
fn rdma_and_ethernet_work_with_packed_rings_of_qemu() {
    if !has_qemu() {
        return;
    }
    for events in ["event_idx=on", "event_idx=off"] {
        let properties = vec!["packed=on".into(), events.into()];
        let device = DeviceKind::Qemu(QemuVariant { properties, ..QemuVariant::default() });
        let options = Options { device, real_time: true, path_mtu: 1024, ..Options::default() };
        let Some(bed) = started_with(&options) else { return };
        copy(&bed);
        overfill(&bed);
        finish(bed);
    }
}

//= virtio §16
#[test]
fn device_of_every_ring_format_works_again_after_a_reset() {
    over_formats(Quirks::default(), |bed| {
        overfill(&bed);
        let machine = bed.machines()[0];
        machine.nic().need_reset();
        assert!(miniport(machine).ndk().await_events(2, MOMENT), "{}", bed.violations().join("\n"));
        overfill(&bed);
        copy(&bed);
        finish(bed);
    });
}

/// One that cannot reset queues. Others reset the queue alone: `corrupt_rings`.
//= virtio §18
#[test]
fn device_that_breaks_a_ring_of_any_format_is_reset() {
    for quirk in [UsedQuirk::IdOutOfRange, UsedQuirk::IndexJump] {
        let quirks = Quirks { used: Some((20, quirk)), ..Quirks::default() };
        let cannot_reset_queues = Features::RING_RESET;
        over_formats_without(cannot_reset_queues, quirks, |bed| {
            let machine = bed.machines()[0];
            let miniport = miniport(machine);
            let _ = miniport.send_chain(&frames(2 * RING), 0);
            // A device whose packed ring is broken uses no more buffers. If the driver waits for many of them, the next send
            // looks at the ring.
            let _ = bed.event().wait(SOON);
            let _ = miniport.send_chain(&frames(1), 0);
            assert!(miniport.ndk().await_events(2, MOMENT), "{}", bed.violations().join("\n"));
            assert_recovered(machine, event::BROKEN_RING, 1);
            finish(bed);
        });
    }
}
