// SPDX-License-Identifier: MIT OR Apache-2.0

//! The devices that others ship: each carries RDMA and Ethernet, before and after a reset, a low-power state and a migration, or is
//! refused with an event that says why.

use std::time::Duration;

use device_sim::virtio_net::Features;
use lab::{
    profiles::{Profile, profiles},
    testbed::Testbed,
};
use support::{
    bed::{exchange, finish, miniport, started_with},
    copying::copy,
    failed_starts::events_with,
    faults::{await_until, event, events},
};

/// Events that say that the device is late.
const LATE: [u32; 2] = [event::COMMAND_LATE, event::RESET_LATE];

/// Frames of several lengths from the first host to the second one and back.
fn exchange_both_ways(bed: &Testbed) {
    let [first, second] = bed.machines().map(miniport);
    for (from, to, number) in [(&first, &second, 2), (&second, &first, 1)] {
        let frames = [60, 590, 1514].map(|len| {
            let mut frame = vec![2, 0, 0, 0, 0, number, 2, 0, 0, 0, 0, 3 - number, 0x88, 0xB5];
            frame.resize(len, number);
            frame
        });
        exchange(bed, from, to, &frames);
    }
}

fn run(profile: &Profile) {
    let Some(bed) = started_with(&profile.options()) else { return };
    let machine = bed.machines()[0];
    let miniport = miniport(machine);
    exchange_both_ways(&bed);
    copy(&bed);
    machine.nic().need_reset();
    await_until(&bed, "the device is reset", || events(machine).contains(&event::RECOVERED));
    exchange_both_ways(&bed);
    assert!(miniport.ndk().await_events(2, Duration::from_secs(10)), "RDMA is enabled again");
    miniport.sleep().unwrap();
    miniport.wake().unwrap();
    exchange_both_ways(&bed);
    assert!(miniport.ndk().await_events(4, Duration::from_secs(10)), "RDMA is enabled again");
    if profile.features.contains(Features::GUEST_ANNOUNCE) {
        // The end of a migration.
        machine.nic().announce();
        await_until(&bed, "the announcement is acknowledged", || !machine.nic().is_announcement_asked());
    }
    copy(&bed);
    let line = [event::LINE_INTERRUPT];
    let at_start = if profile.messages == Some(0) { &line[..] } else { &[] };
    let expected = [at_start, &[event::NEEDS_RESET, event::RECOVERED]].concat();
    let others: Vec<_> = events(machine).into_iter().filter(|number| !LATE.contains(number)).collect();
    assert_eq!(others, expected);
    finish(bed);
}

#[test]
fn devices_of_others_carry_rdma_and_ethernet_through_resets_and_low_power_states() {
    for profile in profiles().iter().filter(|profile| profile.refusal.is_none()) {
        println!("{}: {}", profile.name, profile.source);
        run(profile);
    }
}

#[test]
fn devices_of_others_that_cannot_be_used_are_refused_with_the_reason() {
    for profile in profiles() {
        let Some(refusal) = profile.refusal else { continue };
        let Some(events) = events_with(&profile.options()) else { return };
        assert_eq!(events, [refusal], "{}: {}", profile.name, profile.source);
    }
}
