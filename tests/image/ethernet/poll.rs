// SPDX-License-Identifier: MIT OR Apache-2.0

//! The driver with poll objects (`*NdisPoll`): NDIS decides when frames are received, at `DISPATCH_LEVEL` and `PASSIVE_LEVEL`.

use std::time::Duration;

use device_sim::virtio_net::Features;
use lab::{
    machine::Machine,
    testbed::{Options, Testbed},
};
use ndis_sim::{Keyword, NdisHost as _};
use ndk_abi::ndis::NDIS_STATUS_SUCCESS;
use support::{
    bed::{exchange, finish, miniport, started_with},
    copying::{copy, try_copy},
    scaling::{self, over_formats, polled, send_flows},
};

const MOMENT: Duration = Duration::from_secs(20);

fn polling(features: Features) -> Options {
    let keywords = vec![("*NdisPoll", Keyword::Text("1".into()))];
    Options { keywords, features, ..Options::default() }
}

fn frames(count: u16) -> Vec<Vec<u8>> {
    let header = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xB5];
    let frame = |number: u16| [&header[..], &number.to_be_bytes(), &[7; 984]].concat();
    (0..count).map(frame).collect()
}

/// Sends frames from the second host to the first one, in chains of 100.
fn send(bed: &Testbed, count: u16) {
    let [receiver, sender] = bed.machines().map(miniport);
    for chain in frames(count).chunks(100) {
        exchange(bed, &sender, &receiver, chain);
    }
}

fn polls(machine: &Machine) -> u64 {
    miniport(machine).polls()
}

/// Frames for NDIS and for RDMA: with a limit of 4 lists, most calls are those that NDIS makes at `PASSIVE_LEVEL`.
#[test]
fn frames_are_received_by_poll_in_every_ring_format() {
    for format in [Features::default(), Features::RING_PACKED] {
        for without in [Features::default(), Features::EVENT_IDX] {
            let options = polling(Features::DEFAULT.without(without) | format);
            let Some(bed) = started_with(&options) else { return };
            let [receiver, _] = bed.machines();
            receiver.host().set_receive_limit(Some(4));
            send(&bed, 300);
            assert!(polls(receiver) >= 75, "{} calls, of 4 lists at most", polls(receiver));
            copy(&bed);
            receiver.host().set_receive_limit(None);
            send(&bed, 300);
            copy(&bed);
            finish(bed);
        }
    }
}

/// An object for each processor, which is that of a pair's message, and without receive side scaling one for each pair.
#[test]
fn each_pair_of_queues_is_polled_by_its_object() {
    for scaling in ["1", "0"] {
        over_formats(|format| {
            let mut options = polled(scaling::options(4, 4));
            options.features = options.features | format;
            options.keywords.push(("*RSS", Keyword::Text(scaling.into())));
            let Some(bed) = started_with(&options) else { return };
            let receiver = bed.machines()[1];
            let is_scaled = miniport(receiver).scaling().capabilities().is_some();
            assert_eq!(is_scaled, scaling == "1");
            send_flows(&bed, 40, 30);
            let mut delivered: Vec<_> =
                receiver.nic().pair_counters().iter().map(|pair| pair.received).collect();
            assert!(delivered.iter().all(|&frames| frames >= 30), "by the device: {delivered:?}");
            assert_eq!(delivered.iter().sum::<u64>(), 1200);
            if is_scaled {
                // The message of the configuration interrupts the first processor, those of the pairs the next ones.
                delivered.rotate_right(1);
            }
            assert_eq!(miniport(receiver).polled_lists(), delivered);
            copy(&bed);
            finish(bed);
        });
    }
}

#[test]
fn driver_receives_in_its_dpc_without_the_keyword() {
    let Some(bed) = started_with(&Options::default()) else { return };
    send(&bed, 100);
    copy(&bed);
    assert_eq!(bed.machines().map(polls), [0; 2]);
    finish(bed);
}

/// With one of the allocations of a start refused, the driver starts without poll objects.
#[test]
fn driver_receives_in_its_dpc_if_it_gets_no_poll_object() {
    let Some(mut bed) = started_with(&polling(Features::DEFAULT)) else { return };
    let host = bed.machines()[0].host().clone();
    let mut start_without = |victim| {
        bed.machine_mut(0).halt_adapter().expect("the adapter halts");
        let before = host.low_resources.asked();
        host.low_resources.fail_nth(victim);
        let outcome = bed.machine_mut(0).start_adapter();
        let asked = host.low_resources.asked() - before;
        host.low_resources.fail_nth(u64::MAX / 2);
        assert!(!host.is_dead(), "allocation {victim} failed:\n{}", bed.violations().join("\n"));
        if outcome.is_ok() {
            send(&bed, 20);
        }
        (outcome.is_ok() && polls(bed.machines()[0]) == 0, asked)
    };
    // They are made early in a start.
    let (_, allocations) = start_without(u64::MAX / 2);
    let fallbacks = (0..allocations).filter(|&victim| start_without(victim).0).take(2).count();
    assert_eq!(
        fallbacks, 2,
        "starts without poll objects: without memory for the context, and for the object"
    );
    copy(&bed);
    finish(bed);
}

#[test]
fn traffic_goes_on_after_a_pause_and_a_low_power_state() {
    let Some(bed) = started_with(&polling(Features::DEFAULT)) else { return };
    let [receiver, sender] = bed.machines().map(miniport);
    for _ in 0..3 {
        // Frames are on their way when the pause begins.
        let ids = sender.send_chain(&frames(50), 0);
        receiver.pause().unwrap();
        copy(&bed);
        receiver.restart().unwrap();
        for id in ids {
            assert_eq!(sender.send_status(id, MOMENT), Some(NDIS_STATUS_SUCCESS));
        }
        send(&bed, 100);
        let ids = sender.send_chain(&frames(50), 0);
        receiver.sleep().unwrap_or_else(|error| panic!("{error}\n{}", bed.violations().join("\n")));
        receiver.wake().unwrap_or_else(|error| panic!("{error}\n{}", bed.violations().join("\n")));
        for id in ids {
            assert_eq!(sender.send_status(id, MOMENT), Some(NDIS_STATUS_SUCCESS));
        }
        send(&bed, 100);
    }
    finish(bed);
}

/// The copy ends with an error; nothing of the polled adapter is left.
#[test]
fn adapter_whose_device_is_taken_away_under_traffic_is_halted() {
    for after in [10_000, 300_000] {
        let Some(mut bed) = started_with(&polling(Features::DEFAULT)) else { return };
        let receiver = miniport(bed.machines()[0]);
        let removed = receiver.clone();
        let ends = try_copy(&bed, 1 << 20, move |progress| {
            if progress.done >= after {
                removed.adapter().nic.remove();
            }
        });
        assert!(ends.iter().any(Result::is_err));
        bed.machine_mut(0).surprise_remove_adapter().unwrap();
        finish(bed);
    }
}
