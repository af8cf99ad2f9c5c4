// SPDX-License-Identifier: MIT OR Apache-2.0

//! Devices that no longer take frames to send: the transmit queue is reset, or the device. (virtio RING_RESET)

use std::time::Duration;

use crate::bed::miniport;
use device_sim::virtio_net::Features;
use lab::{
    machine::Machine,
    testbed::{Options, Testbed},
};
use ndis_sim::SendId;

pub const MOMENT: Duration = Duration::from_secs(60);

/// Event numbers of the driver's event table.
pub const TRANSMIT_STALLED: u32 = 30;
pub const QUEUE_RESET_LATE: u32 = 32;
pub const RECOVERED: u32 = 41;
pub const QUEUE_RESET: u32 = 42;

/// Both ring formats, and two pairs.
pub fn variants() -> [Options; 3] {
    let of = |features, pairs| Options { features, pairs, path_mtu: 1024, ..Options::default() };
    [
        of(Features::DEFAULT, 1),
        of(Features::DEFAULT | Features::RING_PACKED, 1),
        of(Features::DEFAULT | Features::MQ, 2),
    ]
}

/// The event numbers that a host's driver has logged.
pub fn events(machine: &Machine) -> Vec<u32> {
    machine.event_log().iter().map(|entry| entry.code & 0xffff).collect()
}

/// Lets time pass until the first host's driver has logged this number of events. Returns the time that has passed.
pub fn await_events(bed: &Testbed, count: usize) -> Duration {
    let start = bed.now();
    while events(bed.machines()[0]).len() < count {
        assert!(
            bed.now() < start + MOMENT,
            "{:?}\n{}",
            events(bed.machines()[0]),
            bed.violations().join("\n")
        );
        let _ = bed.event().wait(Duration::from_millis(10));
    }
    bed.now().saturating_sub(start)
}

/// More frames than the transmit queues have slots.
pub fn send_many(bed: &Testbed) -> Vec<SendId> {
    let mut frame = [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5][..], &[0; 46]].concat();
    frame.resize(1000, 0);
    miniport(bed.machines()[0]).send_chain(&vec![frame; 300], 0)
}

pub fn statuses(bed: &Testbed, sends: Vec<SendId>) -> Vec<i32> {
    let miniport = miniport(bed.machines()[0]);
    sends.into_iter().map(|id| miniport.send_status(id, MOMENT).expect("the send completes")).collect()
}
