// SPDX-License-Identifier: MIT OR Apache-2.0

//! Misbehavior of the device that begins while its driver runs.

use std::sync::Arc;

use crate::bench::{Bench, Driver, Machine};
use device_sim::{
    NicOptions,
    link::{Wire, WireOptions},
    virtio_net::{Features, Role, UsedQuirk},
};
use virtio_net::Error;

const LEFT: [u8; 6] = [2, 0, 0, 0, 0, 1];
const RIGHT: [u8; 6] = [2, 0, 0, 0, 0, 2];
const FORMATS: [Features; 2] = [Features::DEFAULT, Features(Features::DEFAULT.0 | Features::RING_PACKED.0)];
const ENTRIES: [UsedQuirk; 5] = [
    UsedQuirk::IdOutOfRange,
    UsedQuirk::IdTwice,
    UsedQuirk::LengthTooLarge,
    UsedQuirk::LengthTooSmall,
    UsedQuirk::IndexJump,
];

fn hosts(features: Features) -> ([Bench; 2], [Driver; 2]) {
    let machine = Arc::new(Machine::default());
    let wire = Wire::new(WireOptions::immediate());
    let benches =
        [LEFT, RIGHT].map(|mac| Bench::on(&machine, NicOptions { features, ..NicOptions::new(mac) }));
    benches.iter().enumerate().for_each(|(end, bench)| bench.nic.connect(wire.port(end)));
    let drivers = benches.each_ref().map(|bench| bench.bring_up().expect("the driver starts"));
    (benches, drivers)
}

fn frame(number: u32) -> Vec<u8> {
    [[RIGHT.as_slice(), &LEFT, &[0x88, 0xb5]].concat(), number.to_le_bytes().repeat(40)].concat()
}

/// Sends a number of frames, and returns those that arrive.
fn exchange(
    [left, _]: &[Bench; 2],
    [near, far]: &mut [Driver; 2],
    count: u32,
) -> Result<Vec<Vec<u8>>, Error> {
    for number in 0..count {
        assert!(near.send(&frame(number)));
    }
    near.kick();
    left.machine.settle();
    far.received()
}

fn all(count: u32) -> Vec<Vec<u8>> {
    (0..count).map(frame).collect()
}

#[test]
fn next_entry_of_a_queue_is_corrupt_and_none_after_a_reset() {
    for (features, entry) in FORMATS.into_iter().flat_map(|features| ENTRIES.map(|entry| (features, entry))) {
        let (benches, mut drivers) = hosts(features);
        assert_eq!(exchange(&benches, &mut drivers, 3), Ok(all(3)));
        benches[1].nic.misbehavior().corrupt(Role::Receive(0), entry);
        assert_ne!(exchange(&benches, &mut drivers, 3), Ok(all(3)), "{entry:?}");
        drop(drivers);
        let mut drivers = benches.each_ref().map(|bench| bench.bring_up().expect("the driver starts"));
        assert_eq!(exchange(&benches, &mut drivers, 3), Ok(all(3)), "{entry:?}");
        assert_eq!(benches[0].machine.misuse(), [""; 0]);
    }
}

#[test]
fn misbehavior_ends_on_request() {
    for features in FORMATS {
        let (benches, mut drivers) = hosts(features);
        let nic = &benches[1].nic;
        nic.misbehavior().corrupt(Role::Receive(0), UsedQuirk::IdOutOfRange);
        nic.misbehavior().misstate_buffers(0, 5);
        nic.misbehavior().leave_commands();
        nic.behave();
        assert_eq!(exchange(&benches, &mut drivers, 3), Ok(all(3)));
        assert_eq!(nic.misbehavior().left_commands(), 0);
    }
}

#[test]
fn header_states_another_number_of_buffers_once() {
    for features in FORMATS {
        let (benches, mut drivers) = hosts(features);
        benches[1].nic.misbehavior().misstate_buffers(0, 2);
        let arrived = exchange(&benches, &mut drivers, 4).unwrap();
        assert_ne!(arrived.first(), Some(&frame(0)));
        assert_eq!(arrived.last(), Some(&frame(3)));
    }
}

#[test]
fn withdrawn_features_are_offered_until_the_reset_and_again_by_another_device() {
    let (benches, mut drivers) = hosts(Features::DEFAULT);
    let nic = &benches[1].nic;
    nic.misbehavior().withdraw(Features::CTRL_VQ);
    assert_eq!(exchange(&benches, &mut drivers, 1), Ok(all(1)));
    let control = &mut drivers[1].control;
    control.reset().unwrap();
    assert_eq!(control.renegotiate(), Err(Error::Changed));
    nic.insert();
    let control = &mut drivers[1].control;
    control.reset().unwrap();
    assert_eq!(control.renegotiate(), Ok(()));
    assert_eq!(benches[0].machine.misuse(), [""; 0]);
}
