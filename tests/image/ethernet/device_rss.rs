// SPDX-License-Identifier: MIT OR Apache-2.0

//! Receive side scaling by the device: it is given table and key, and reports hashes. The simulated NDIS checks each received frame, as
//! in `rss.rs`.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use device_sim::{
    Quirks,
    virtio_net::{Features, RssLimits},
};
use lab::{
    device::{DeviceKind, QemuVariant},
    has_qemu,
    machine::Machine,
    testbed::{Options, Testbed},
};
use ndis_sim::{Keyword, NdkEvent};
use nt_sim::nt::time::sleep;
use support::{
    bed::{finish, miniport, started_with},
    copying::copy,
    faults::{await_until, event, events},
    scaling::{
        ALL_TYPES, MOMENT, SOON, TCP_TYPES, arrived, handed_over, ipv4, mixture, options, over_formats,
        parameters, polled, receive_directed, send, send_flows, settle, udp,
    },
};

/// Returns options with a device that steers by hashes, and reports them.
fn by_device(pairs: u16, processors: u32) -> Options {
    let options = options(pairs, processors);
    Options { features: options.features | Features::RSS | Features::HASH_REPORT, ..options }
}

/// The command with which the device is given table and key: class and command.
const RSS_CONFIG: [u8; 2] = [4, 1];

/// The device's types, as virtio numbers them.
const UDP: u32 = 1 << 2 | 1 << 5;

fn table_of(machine: &Machine) -> Option<Vec<u16>> {
    machine.nic().rss_table()
}

#[test]
fn device_steers_to_the_pair_of_each_processor_and_nothing_is_handed_over() {
    for reports in [Features::default(), Features::HASH_REPORT] {
        over_formats(|format| {
            let features = Features::DEFAULT | Features::MQ | Features::RSS | reports | format;
            // A processor more than there are pairs: the messages of pairs follow that of the configuration.
            let options = Options { features, ..options(4, 5) };
            let is_polled = format == Features::RING_PACKED;
            let Some(bed) = started_with(&if is_polled { polled(options) } else { options }) else { return };
            let machine = bed.machines()[1];
            let receiver = miniport(machine);
            assert_eq!(table_of(machine), None);
            for types in [ALL_TYPES, TCP_TYPES] {
                receiver.scaling().set(Some(&parameters(types, &[1, 2, 3, 4]))).unwrap();
                settle(&bed);
                assert_eq!(table_of(machine), Some(vec![0, 1, 2, 3]));
                assert_eq!(machine.nic().hash_types() & UDP, UDP, "that of RDMA");
                send(&bed, &mixture());
            }
            receiver.scaling().set(Some(&parameters(ALL_TYPES, &[4, 3, 2, 1]))).unwrap();
            settle(&bed);
            let before = handed_over(machine);
            send_flows(&bed, 40, 30);
            assert_eq!(handed_over(machine), before, "each frame is received on its processor");
            receiver.scaling().set(None).unwrap();
            settle(&bed);
            assert_eq!((table_of(machine), machine.nic().active_pairs()), (None, 4), "automatic steering");
            send_flows(&bed, 40, 30);
            finish(bed);
        });
    }
}

/// RSS without MQ: the device has no command for the number of its pairs.
#[test]
fn device_without_mq_steers_by_a_table_of_the_driver_until_ndis_has_one() {
    over_formats(|format| {
        let options = by_device(4, 5);
        let features = options.features.without(Features::MQ) | format;
        let Some(bed) = started_with(&Options { features, ..options }) else { return };
        let machine = bed.machines()[1];
        let receiver = miniport(machine);
        let all_pairs = Some((0..128).map(|entry| entry % 4).collect());
        assert_eq!(table_of(machine), all_pairs);
        copy(&bed);
        send_flows(&bed, 40, 30);
        let used = machine.nic().pair_counters().iter().filter(|pair| pair.received > 10).count();
        assert_eq!(used, 4);
        receiver.scaling().set(Some(&parameters(ALL_TYPES, &[4, 3, 2, 1]))).unwrap();
        settle(&bed);
        assert_eq!(table_of(machine), Some(vec![3, 2, 1, 0]));
        send(&bed, &mixture());
        receiver.scaling().set(None).unwrap();
        settle(&bed);
        assert_eq!(table_of(machine), all_pairs);
        send(&bed, &mixture());
        receiver.sleep().unwrap();
        receiver.wake().unwrap();
        assert_eq!(table_of(machine), all_pairs);
        send_flows(&bed, 40, 30);
        finish(bed);
    });
}

#[test]
fn device_without_mq_that_refuses_the_table_is_used_with_the_first_pair() {
    let options = by_device(4, 5);
    let quirks = Quirks { refuses_command: Some(RSS_CONFIG), ..Quirks::default() };
    let features = options.features.without(Features::MQ);
    let Some(bed) = started_with(&Options { features, peer_quirks: quirks, ..options }) else { return };
    let machine = bed.machines()[1];
    assert_eq!((table_of(machine), machine.nic().active_pairs()), (None, 1));
    miniport(machine).scaling().set(Some(&parameters(ALL_TYPES, &[1, 2, 3, 4]))).unwrap();
    settle(&bed);
    send(&bed, &mixture());
    copy(&bed);
    finish(bed);
}

/// The simulated NDIS checks hash and processor of each frame.
#[test]
fn driver_scales_where_the_device_does_not() {
    type Expected = fn(&Machine) -> bool;
    let steers: Expected = |machine| table_of(machine).is_some();
    let steers_not: Expected = |machine| table_of(machine).is_none();
    let none = Quirks::default();
    let limits = RssLimits::default();
    let limited = |limits| Quirks { rss_limits: Some(limits), ..none };
    let cases = [
        (Quirks { refuses_command: Some(RSS_CONFIG), ..none }, steers_not, "the table is refused"),
        (limited(RssLimits { types: 0x1b, ..limits }), steers_not, "it would steer all RDMA to one pair"),
        (limited(RssLimits { types: 0x24, ..limits }), steers, "hashes of UDP alone"),
        (limited(RssLimits { entries: 2, ..limits }), steers_not, "a smaller table"),
        (limited(RssLimits { key_len: 39, ..limits }), steers_not, "a shorter key"),
        (limited(RssLimits { key_len: 255, entries: u16::MAX, types: u32::MAX }), steers, "more than needed"),
        (Quirks { hash_report: Some((7, u16::MAX)), ..none }, steers, "a type that does not exist"),
        (Quirks { hash_report: Some((7, 8)), ..none }, steers, "a type that was not asked for"),
    ];
    for (quirks, expected, what) in cases {
        let Some(bed) = started_with(&Options { peer_quirks: quirks, ..by_device(4, 5) }) else { return };
        let machine = bed.machines()[1];
        let receiver = miniport(machine);
        receiver.scaling().set(Some(&parameters(ALL_TYPES, &[1, 2, 3, 4]))).unwrap();
        settle(&bed);
        assert!(expected(machine), "{what}");
        send(&bed, &mixture());
        send_flows(&bed, 20, 20);
        copy(&bed);
        finish(bed);
    }
}

/// Limits of another host's device are taken over with a reset, and after sleep: the driver does what the device no longer can.
#[test]
fn limits_that_differ_after_a_migration_are_taken_over() {
    let Some(bed) = started_with(&by_device(4, 5)) else { return };
    let machine = bed.machines()[1];
    let receiver = miniport(machine);
    let mtu = machine.nic().options().mtu;
    let least = RssLimits { entries: 2, ..RssLimits::default() };
    let scale = |bed: &Testbed| {
        receiver.scaling().set(Some(&parameters(ALL_TYPES, &[1, 2, 3, 4]))).unwrap();
        settle(bed);
        send(bed, &mixture());
        send_flows(bed, 20, 20);
    };
    scale(&bed);
    assert!(table_of(machine).is_some());
    for (limits, mtu, is_steering) in
        [(least, mtu, false), (RssLimits::default(), mtu + 1000, true), (least, mtu, false)]
    {
        let (logged, changes) = (events(machine).len(), receiver.ndk().events().len());
        machine.nic().migrate(mtu, limits);
        if is_steering {
            receiver.sleep().unwrap();
            receiver.wake().unwrap();
        } else {
            machine.nic().need_reset();
            await_until(&bed, "the device is reset", || events(machine).len() == logged + 2);
            assert_eq!(events(machine)[logged..], [event::NEEDS_RESET, event::RECOVERED]);
        }
        let of_rdma = || receiver.ndk().events().split_off(changes);
        await_until(&bed, "RDMA is enabled", || of_rdma() == [NdkEvent::Disable, NdkEvent::Enable]);
        scale(&bed);
        assert_eq!(table_of(machine).is_some(), is_steering, "{limits:?}");
        copy(&bed);
    }
    // NDIS would send frames that the device does not take.
    machine.nic().migrate(mtu - 1, RssLimits::default());
    machine.nic().need_reset();
    await_until(&bed, "the adapter is removed", || events(machine).last() == Some(&event::GIVEN_UP));
    assert_eq!(events(machine).iter().rev().nth(1), Some(&event::CHANGED));
    finish(bed);
}

#[test]
fn hashes_without_steering_are_used() {
    let by_hash = |quirks| {
        let options = options(4, 5);
        let features = options.features | Features::HASH_REPORT;
        Options { features, peer_quirks: quirks, ..options }
    };
    let Some(bed) = started_with(&by_hash(Quirks::default())) else { return };
    let machine = bed.machines()[1];
    let receiver = miniport(machine);
    receiver.scaling().set(Some(&parameters(TCP_TYPES, &[1, 2, 3, 4]))).unwrap();
    settle(&bed);
    assert_eq!((table_of(machine), machine.nic().hash_types()), (None, 0x1b));
    send(&bed, &mixture());
    receiver.scaling().set(None).unwrap();
    assert_eq!(machine.nic().hash_types(), 0);
    settle(&bed);
    send(&bed, &mixture());
    finish(bed);
    let Some(bed) = started_with(&by_hash(seven_for_udp())) else { return };
    assert_reported_hash_is_used(&bed);
}

#[test]
fn reported_hash_is_used_where_its_type_is_the_expected_one() {
    let Some(bed) = started_with(&Options { peer_quirks: seven_for_udp(), ..by_device(4, 5) }) else {
        return;
    };
    assert_reported_hash_is_used(&bed);
}

/// The device says that the hash of each frame is 7, of UDP over IPv4.
fn seven_for_udp() -> Quirks {
    Quirks { hash_report: Some((7, 3)), ..Quirks::default() }
}

/// A device that lies about a hash gets what it asks for: that list has its hash, no other has. Shown by a value that the simulated
/// NDIS refuses.
fn assert_reported_hash_is_used(bed: &Testbed) {
    let [sender, receiver] = bed.machines().map(miniport);
    receive_directed(&receiver);
    receiver.scaling().set(Some(&parameters(ALL_TYPES, &[1, 2, 3, 4]))).unwrap();
    settle(bed);
    let _ = sender.send_chain(&[ipv4(6, 1, 0)], 0);
    let _ = arrived(bed, 1);
    assert_eq!(bed.violations(), [""; 0], "TCP, whose hash is computed");
    let _ = sender.send_chain(&[udp(1, 0)], 0);
    let deadline = bed.now() + MOMENT;
    while bed.violations().is_empty() && bed.now() < deadline {
        let _ = bed.event().wait(SOON);
    }
    assert!(bed.violations().concat().contains("0x00000007"), "{}", bed.violations().join("\n"));
}

/// An adapter without receive side scaling has no use for hashes, and no table for the device.
#[test]
fn hashes_and_steering_are_not_accepted_without_receive_side_scaling() {
    for (scaling, is_used) in [("1", true), ("0", false)] {
        for (without, pairs) in [(Features::default(), 4), (Features::MQ, if is_used { 4 } else { 1 })] {
            let options = by_device(4, 5);
            let features = options.features.without(without);
            let keywords = vec![("*RSS", Keyword::Text(scaling.into()))];
            let Some(bed) = started_with(&Options { features, keywords, ..options }) else { return };
            let nic = bed.machines()[1].nic();
            for feature in [Features::RSS, Features::HASH_REPORT] {
                assert_eq!(nic.accepted().contains(feature), is_used, "*RSS {scaling}: {feature:?}");
            }
            assert_eq!(nic.active_pairs(), pairs, "*RSS {scaling}, {without:?}");
            assert_eq!(nic.sent_commands(RSS_CONFIG) > 0, is_used && without == Features::MQ);
            send_flows(&bed, 40, 30);
            let used = nic.pair_counters().iter().filter(|pair| pair.received > 0).count();
            assert_eq!(used, pairs, "*RSS {scaling}, {without:?}");
            copy(&bed);
            finish(bed);
        }
    }
}

/// QEMU, which steers in software, keeps a frame for a pair with too few buffers until the receive queue of another pair is notified, and
/// receives nothing else by the same queue of its back end.
#[test]
fn frames_that_wait_for_the_notification_of_another_pair_arrive() {
    let quirks = Quirks { holds_for_another_queue: true, ..Quirks::default() };
    over_formats(|format| {
        let keywords = vec![("*ReceiveBuffers", Keyword::Text("32".into()))];
        let options = by_device(4, 5);
        let features = options.features | format;
        let Some(bed) = started_with(&Options { features, keywords, quirks, peer_quirks: quirks, ..options })
        else {
            return;
        };
        let receiver = miniport(bed.machines()[1]);
        receiver.scaling().set(Some(&parameters(ALL_TYPES, &[1, 2, 3, 4]))).unwrap();
        settle(&bed);
        // All of a flow are for one pair, which has buffers for a part of them.
        send_flows(&bed, 1, 400);
        send_flows(&bed, 40, 20);
        finish(bed);
    });
}

#[test]
fn device_that_does_not_answer_is_used_without() {
    let quirks = Quirks { leaves_command: Some(RSS_CONFIG), ..Quirks::default() };
    let Some(bed) = started_with(&Options { peer_quirks: quirks, ..by_device(4, 5) }) else { return };
    let machine = bed.machines()[1];
    let receiver = miniport(machine);
    for table in [&[1, 2, 3, 4], &[4, 3, 2, 1]] {
        receiver.scaling().set(Some(&parameters(ALL_TYPES, table))).unwrap();
        let _ = bed.event().wait(Duration::from_secs(3));
        assert!(machine.nic().is_running());
        assert_eq!(machine.nic().sent_commands(RSS_CONFIG), 1);
        let events: Vec<_> = machine.event_log().iter().map(|entry| entry.code & 0xffff).collect();
        assert_eq!(events, [event::COMMAND_LATE]);
        send(&bed, &mixture());
        send_flows(&bed, 20, 20);
    }
    copy(&bed);
    finish(bed);
}

/// While the device has not answered, it goes on with the key before. Its hashes would name processors of the new table.
#[test]
fn hashes_that_the_device_reports_are_not_used_once_the_key_changes() {
    let Some(bed) = started_with(&by_device(4, 5)) else { return };
    let machine = bed.machines()[1];
    let [sender, receiver] = bed.machines().map(miniport);
    receive_directed(&receiver);
    receiver.scaling().set(Some(&parameters(ALL_TYPES, &[1, 2, 3, 4]))).unwrap();
    settle(&bed);
    send_flows(&bed, 20, 20);
    assert_eq!(table_of(machine), Some(vec![0, 1, 2, 3]));
    machine.nic().pause_commands(Duration::from_secs(20));
    let changing = {
        let receiver = receiver.clone();
        machine.host().spawn("change", move || {
            let mut rss = parameters(ALL_TYPES, &[4, 3, 2, 1]);
            rss.key[0] ^= 0xff;
            receiver.scaling().set(Some(&rss)).unwrap();
        })
    };
    for number in 0..10 {
        let _ = bed.event().wait(SOON);
        let frames: Vec<_> = (0..20).map(|flow| udp(flow, number)).collect();
        let _ = sender.send_chain(&frames, 0);
        let _ = arrived(&bed, frames.len());
    }
    assert_eq!(table_of(machine), Some(vec![0, 1, 2, 3]), "the device does not answer for 20 seconds");
    changing.join().unwrap();
    let _ = bed.event().wait(Duration::from_secs(20));
    assert_eq!(table_of(machine), Some(vec![3, 2, 1, 0]));
    send_flows(&bed, 20, 20);
    finish(bed);
}

#[test]
fn device_steers_again_after_a_reset_and_a_low_power_state() {
    over_formats(|format| {
        let options = by_device(4, 5);
        let Some(bed) = started_with(&Options { features: options.features | format, ..options }) else {
            return;
        };
        let machine = bed.machines()[1];
        let receiver = miniport(machine);
        receiver.scaling().set(Some(&parameters(ALL_TYPES, &[4, 3, 2, 1]))).unwrap();
        receiver.sleep().unwrap();
        assert_eq!(table_of(machine), None);
        // A change while the device does not run is made by its start.
        receiver.wake().unwrap();
        assert_eq!(table_of(machine), Some(vec![3, 2, 1, 0]));
        send_flows(&bed, 20, 20);
        machine.nic().need_reset();
        assert!(receiver.ndk().await_events(2, MOMENT), "{}", bed.violations().join("\n"));
        let _ = bed.event().wait(SOON);
        assert_eq!(table_of(machine), Some(vec![3, 2, 1, 0]));
        send_flows(&bed, 20, 20);
        finish(bed);
    });
}

/// Steering moves RDMA connections from pair to pair, on both hosts.
#[test]
fn rdma_goes_on_while_the_device_steers_otherwise() {
    over_formats(|format| {
        let options = by_device(4, 5);
        let Some(bed) = started_with(&Options { features: options.features | format, ..options }) else {
            return;
        };
        let is_done = Arc::new(AtomicBool::new(false));
        let changing: Vec<_> = bed
            .machines()
            .map(|machine| {
                let (receiver, done) = (miniport(machine), is_done.clone());
                machine.host().spawn("changes", move || {
                    let mut changes = 0_u8;
                    while !done.load(Relaxed) {
                        let table: Vec<u8> = (0..8).map(|entry| 1 + (entry + changes) % 4).collect();
                        let mut rss =
                            parameters(if changes.is_multiple_of(2) { TCP_TYPES } else { ALL_TYPES }, &table);
                        rss.key[0] = changes / 4;
                        receiver.scaling().set((changes % 7 != 6).then_some(&rss)).unwrap();
                        changes = changes.wrapping_add(1);
                        sleep(200_000);
                    }
                    changes
                })
            })
            .into_iter()
            .collect();
        for _ in 0..4 {
            copy(&bed);
        }
        is_done.store(true, Relaxed);
        for changing in changing {
            assert!(changing.join().unwrap() > 5);
        }
        let used = bed.machines()[1].nic().pair_counters().iter().filter(|pair| pair.received > 10).count();
        assert_eq!(used, 4, "the connections' packets arrived by every pair");
        finish(bed);
    });
}

/// A device that others have written: it takes table and key, and computes hashes in software. With the backend of the tests it has one
/// pair.
#[test]
fn frames_have_their_hash_on_qemus_device() {
    for properties in [&["rss=on"][..], &["rss=on", "mq=on"], &["rss=on", "mq=on", "hash=on", "packed=on"]] {
        if !has_qemu() {
            return;
        }
        let properties = properties.iter().map(|&property| property.to_owned()).collect();
        let device = DeviceKind::Qemu(QemuVariant { properties, ..QemuVariant::default() });
        let options =
            Options { device, real_time: true, path_mtu: 1024, processors: 2, ..Options::default() };
        let Some(bed) = started_with(&options) else { return };
        let receiver = miniport(bed.machines()[1]);
        copy(&bed);
        receiver.scaling().set(Some(&parameters(ALL_TYPES, &[0, 1]))).unwrap();
        settle(&bed);
        send(&bed, &mixture());
        copy(&bed);
        receiver.scaling().set(None).unwrap();
        settle(&bed);
        send(&bed, &mixture());
        assert_eq!(bed.events(), [""; 0], "nothing to report");
        finish(bed);
    }
}
