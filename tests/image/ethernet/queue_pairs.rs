// SPDX-License-Identifier: MIT OR Apache-2.0

//! Devices with several queue pairs: which of them the driver uses, where flows are sent and received, and what is left of them
//! after a reset.

use std::{collections::BTreeSet, time::Duration};

use device_sim::{
    PciFunction as _, Quirks,
    virtio_net::{Features, PairCounters},
};
use lab::{
    device::{DeviceKind, QemuVariant},
    has_qemu,
    testbed::{Options, Testbed},
};
use ndis_sim::{Keyword, NdisHost as _, SendRequest};
use ndk_abi::ndis::NDIS_STATUS_SUCCESS;
use nt_sim::{delays::Moment, nt::time::sleep};
use support::{
    bed::{exchange, finish, miniport, started_with},
    copying::copy,
    faults::event,
    flows::{begin_copies, copy_by, join, send_flows, udp},
    queue_pairs::{
        MOMENT, SOON, busy, counters, few_slots_at_a_time, over_formats, send_first_messages, with_pairs,
    },
};

//= virtio §4
//= virtio §12
#[test]
fn ethernet_and_rdma_use_all_pairs_in_every_ring_format() {
    over_formats(|format| {
        let Some(bed) = started_with(&with_pairs(4, format)) else { return };
        let [client, server] = bed.machines();
        assert_eq!([client, server].map(|machine| machine.nic().active_pairs()), [4, 4]);
        send_flows(&bed, 40, 30);
        assert_eq!(busy(client, |pair| pair.sent), [0, 1, 2, 3]);
        assert_eq!(busy(server, |pair| pair.received), [0, 1, 2, 3]);
        let before = counters(client);
        copy_by(&bed, 16);
        // By chance a pair may get few of the connections.
        let grown = |count: fn(&PairCounters) -> u64| {
            let pairs = counters(client);
            pairs.iter().zip(&before).filter(|(now, before)| count(now) > count(before) + 100).count()
        };
        let grown = [grown(|pair| pair.sent), grown(|pair| pair.received)];
        assert!(grown.iter().all(|&pairs| pairs >= 3), "pairs used by RDMA: {grown:?}");
        finish(bed);
    });
}

/// The device returns a flow on the pair that sends it, so that the stack's processor of the flow handles both directions.
#[test]
fn frames_of_a_flow_are_sent_by_one_pair() {
    let Some(bed) = started_with(&with_pairs(4, Features::default())) else { return };
    let client = bed.machines()[0];
    let mut last = counters(client);
    for flow in 0..8 {
        let [sender, receiver] = bed.machines().map(miniport);
        exchange(&bed, &sender, &receiver, &(0..50).map(|number| udp(flow, number)).collect::<Vec<_>>());
        let now = counters(client);
        let sent: Vec<_> = now.iter().zip(&last).map(|(now, last)| now.sent - last.sent).collect();
        assert_eq!(sent.iter().filter(|&&sent| sent > 0).count(), 1, "flow {flow}: {sent:?}");
        last = now;
    }
    finish(bed);
}

/// Returns the pair that sends `count` lists: of one frame each, with the stack's hash.
fn pair_of_hash(bed: &Testbed, frame: &[u8], hash: u32, count: u64) -> usize {
    let [sender, _] = bed.machines();
    let before = counters(sender);
    let request = SendRequest { hash, ..SendRequest::default() };
    let requests = (0..count).map(|_| (frame.to_vec(), request)).collect();
    let miniport = miniport(sender);
    for id in miniport.send_requests(requests) {
        assert_eq!(miniport.send_status(id, MOMENT), Some(NDIS_STATUS_SUCCESS));
    }
    let deadline = bed.now() + MOMENT;
    let sent = loop {
        let sent: Vec<_> =
            counters(sender).iter().zip(&before).map(|(now, before)| now.sent - before.sent).collect();
        if sent.iter().sum::<u64>() == count || bed.now() > deadline {
            break sent;
        }
        let _ = bed.event().wait(SOON);
    };
    let pair = sent.iter().position(|&frames| frames == count);
    pair.unwrap_or_else(|| panic!("lists of hash {hash:#x} sent by each pair: {sent:?}"))
}

/// The stack's hash counts, not the frame: lists of several flows go by one pair, lists of one flow by several.
#[test]
fn lists_with_the_stacks_hash_are_sent_by_the_pair_of_that_hash() {
    let Some(bed) = started_with(&with_pairs(4, Features::default())) else { return };
    let mut other = udp(1, 0);
    other[12..14].copy_from_slice(&[0x88, 0xB5]);
    for hash in [0x5bd1_e995, 2, 7, 0x8000_0000, 0xffff_ffff, 0xc626_b0e9] {
        for frame in [&udp(1, 0), &udp(2, 0), &other] {
            assert_eq!(pair_of_hash(&bed, frame, hash, 20), (hash % 4) as usize, "{hash:#x}");
        }
    }
    finish(bed);
}

/// A work item receives the frames of a pair on any processor, after indications that take long, while the pair's message
/// interrupts its own processor again and again.
#[test]
fn frames_of_a_flow_are_indicated_in_order_by_two_processors() {
    for seed in 0..8 {
        let Some(bed) = started_with(&Options { seed, ..with_pairs(2, Features::default()) }) else { return };
        let [_, receiver] = bed.machines();
        let host = receiver.host();
        host.set_receive_limit(None);
        let indication = Moment::Enter("NdisMIndicateReceiveNetBufferLists");
        let delays = [3; 8].map(|millis| host.delays.add(indication, Duration::from_millis(millis)));
        let nic = receiver.nic().clone();
        let interrupting = host.spawn("interrupts", move || {
            for _ in 0..200 {
                (1..=2).for_each(|message| nic.interrupt(message));
                sleep(1000);
            }
        });
        send_flows(&bed, 1, 1000);
        interrupting.join().expect("the host lives");
        assert!(delays.iter().all(|delay| delay.is_reached()));
        finish(bed);
    }
}

//= virtio §15
#[test]
fn as_many_pairs_are_used_as_device_processors_and_keyword_allow() {
    let used = |options: &Options| {
        let bed = started_with(options)?;
        copy(&bed);
        send_flows(&bed, 20, 5);
        let used = bed.machines()[0].nic().active_pairs();
        finish(bed);
        Some(used)
    };
    let options = with_pairs(4, Features::default());
    let keyword = |value: &str| vec![("QueuePairs", Keyword::Text(value.into()))];
    let Some(all) = used(&options) else { return };
    assert_eq!(all, 4);
    assert_eq!(used(&Options { processors: 3, ..options.clone() }), Some(3));
    assert_eq!(used(&Options { keywords: keyword("2"), ..options.clone() }), Some(2));
    assert_eq!(used(&Options { keywords: keyword("1"), ..options.clone() }), Some(1));
    assert_eq!(used(&Options { keywords: keyword("0"), ..options.clone() }), Some(4), "not a valid value");
    assert_eq!(used(&Options { processors: 20, pairs: 40, ..options }), Some(16), "the driver's limit");
}

/// One message is that of the configuration. A single one serves everything.
//= virtio §15
#[test]
fn as_many_pairs_are_used_as_there_are_interrupt_messages_besides_one() {
    over_formats(|format| {
        for (messages, pairs) in [(9, 4), (5, 4), (4, 3), (3, 2), (2, 1), (1, 1)] {
            let options = Options { messages: Some(messages), ..with_pairs(4, format) };
            let Some(bed) = started_with(&options) else { return };
            let machines = bed.machines();
            assert!(machines.iter().all(|machine| machine.nic().vectors() == messages));
            let active = machines.map(|machine| machine.nic().active_pairs());
            assert_eq!(active, [pairs; 2], "{messages} messages");
            send_flows(&bed, 40, 10);
            let used: Vec<_> = (0..pairs).collect();
            assert_eq!(busy(machines[0], |pair| pair.sent), used, "{messages} messages");
            assert_eq!(busy(machines[1], |pair| pair.received), used, "{messages} messages");
            copy_by(&bed, 8);
            miniport(machines[0]).sleep().unwrap();
            miniport(machines[0]).wake().unwrap();
            copy(&bed);
            send_flows(&bed, 40, 10);
            assert_eq!(bed.events(), [""; 0], "{messages} messages: nothing to report");
            finish(bed);
        }
    });
}

#[test]
fn machine_with_more_processors_than_the_device_has_pairs_works() {
    let Some(bed) = started_with(&Options { processors: 60, ..with_pairs(4, Features::default()) }) else {
        return;
    };
    copy_by(&bed, 8);
    send_flows(&bed, 40, 10);
    assert_eq!(bed.machines().map(|machine| machine.nic().active_pairs()), [4, 4]);
    finish(bed);
}

//= virtio §16
#[test]
fn pairs_are_used_again_after_a_reset_and_after_a_low_power_state() {
    over_formats(|format| {
        let Some(bed) = started_with(&with_pairs(3, format)) else { return };
        let machine = bed.machines()[0];
        send_flows(&bed, 20, 20);
        machine.nic().need_reset();
        assert!(miniport(machine).ndk().await_events(2, MOMENT), "{}", bed.violations().join("\n"));
        send_flows(&bed, 20, 20);
        copy_by(&bed, 6);
        assert_eq!(machine.nic().active_pairs(), 3);
        miniport(machine).sleep().unwrap();
        miniport(machine).wake().unwrap();
        assert_eq!(machine.nic().active_pairs(), 3);
        send_flows(&bed, 20, 20);
        copy_by(&bed, 6);
        finish(bed);
    });
}

#[test]
fn device_that_refuses_to_use_several_pairs_is_used_with_the_first() {
    over_formats(|format| {
        let quirks = Quirks { refuses_class: Some(4), ..Quirks::default() };
        let Some(bed) = started_with(&Options { quirks, ..with_pairs(4, format) }) else { return };
        let [refuses, other] = bed.machines();
        assert_eq!([refuses, other].map(|machine| machine.nic().active_pairs()), [1, 4]);
        copy_by(&bed, 8);
        send_flows(&bed, 20, 30);
        assert_eq!(busy(refuses, |pair| pair.sent + pair.received), [0]);
        finish(bed);
    });
}

/// Both shards use the first pair from then on.
#[test]
fn device_that_refuses_to_use_several_pairs_after_a_reset_is_used_with_the_first() {
    over_formats(|format| {
        let Some(bed) = started_with(&with_pairs(2, format)) else { return };
        let machine = bed.machines()[0];
        send_first_messages(&bed);
        machine.nic().misbehavior().refuse_class(4);
        machine.nic().need_reset();
        assert!(miniport(machine).ndk().await_events(2, MOMENT), "{}", bed.violations().join("\n"));
        assert_eq!(machine.nic().active_pairs(), 1);
        let before = counters(machine)[1];
        send_first_messages(&bed);
        send_flows(&bed, 20, 30);
        assert_eq!(counters(machine)[1], before);
        finish(bed);
    });
}

/// All slots of the only pair in use hold Ethernet frames when a queue pair of the other shard sends its first message.
#[test]
fn each_shard_gets_slots_of_the_only_pair_in_use() {
    let quirks = Quirks { refuses_class: Some(4), ..Quirks::default() };
    let options = few_slots_at_a_time(with_pairs(2, Features::default()));
    let Some(bed) = started_with(&Options { quirks, ..options }) else { return };
    let client = miniport(bed.machines()[0]);
    let mut frame = udp(1, 0);
    frame.resize(1514, 0);
    let ids = client.send_chain(&vec![frame; 30_000], 0);
    send_first_messages(&bed);
    let last = *ids.last().unwrap();
    assert_eq!(client.send_status(last, Duration::ZERO), None, "the queue was full");
    assert_eq!(client.send_status(last, MOMENT), Some(NDIS_STATUS_SUCCESS));
    finish(bed);
}

/// Thousands of Ethernet frames wait for slots. RDMA gets its share of those that become free: a copy does not wait for the last
/// of them, and does not keep them from being sent. The threads of the copy run although frames arrive all the time, and although the device
/// interrupts for each.
#[test]
fn rdma_and_ethernet_share_a_transmit_queue_that_is_full() {
    for (pairs, few, ignores_suppression) in
        [(1, false, false), (2, false, false), (1, true, false), (1, true, true)]
    {
        let options = with_pairs(pairs, Features::default());
        let options = if few { few_slots_at_a_time(options) } else { options };
        let options = suppression_ignored(options, ignores_suppression);
        let Some(bed) = started_with(&options) else { return };
        let client = bed.machines()[0];
        let mut frame = udp(1, 0);
        frame.resize(1514, 0);
        let ids = miniport(client).send_chain(&vec![frame; 30_000], 0);
        let before = client.nic().counters().sent_frames;
        copy(&bed);
        let sent = client.nic().counters().sent_frames - before;
        let is_done = |&id: &_| miniport(client).send_status(id, Duration::ZERO).is_some();
        assert!(!is_done(ids.last().unwrap()), "{pairs} pairs: the copy waited for all Ethernet frames");
        assert!(sent > 2000, "{pairs} pairs: the copy kept Ethernet frames from being sent: {sent}");
        assert_eq!(miniport(client).send_status(*ids.last().unwrap(), MOMENT), Some(NDIS_STATUS_SUCCESS));
        finish(bed);
    }
}

/// While 16 connections write they always have packets to send, as Ethernet has frames, and the sender that is resumed first takes most of
/// the few slots that are free.
#[test]
fn rdma_of_many_connections_and_ethernet_each_get_a_share_of_the_slots() {
    for ignores_suppression in [false, true] {
        share_slots(ignores_suppression);
    }
}

/// Returns devices that interrupt for each used buffer, or not, although the driver polls.
fn suppression_ignored(options: Options, ignores_suppression: bool) -> Options {
    let quirks = Quirks { ignores_suppression, ..Quirks::default() };
    Options { quirks, peer_quirks: quirks, ..options }
}

fn share_slots(ignores_suppression: bool) {
    const CONNECTING: u64 = 500;
    const WRITING: u64 = 2500;
    let options = few_slots_at_a_time(with_pairs(1, Features::default()));
    let options = suppression_ignored(options, ignores_suppression);
    let Some(bed) = started_with(&options) else { return };
    let client = bed.machines()[0];
    let mut frame = udp(1, 0);
    frame.resize(1514, 0);
    let ids = miniport(client).send_chain(&vec![frame; 10_000], 0);
    let before = bed.wire().counters(0).sent;
    let copies = begin_copies(&bed, 16, 1 << 20);
    let mut ethernet = 0;
    // Ethernet frames sent until so many of RDMA are.
    let mut until = |rdma: u64| {
        let deadline = bed.now() + MOMENT;
        while bed.wire().counters(0).sent - before < rdma + ethernet as u64 && bed.now() < deadline {
            let _ = bed.event().wait(Duration::from_micros(50));
            let is_done = |&&id: &&_| miniport(client).send_status(id, Duration::ZERO).is_some();
            ethernet += ids[ethernet..].iter().take_while(is_done).count();
        }
        ethernet
    };
    let first = until(CONNECTING);
    let share = until(WRITING) - first;
    assert!((1000..4000).contains(&share), "Ethernet frames beside 2000 of RDMA: {share}");
    join(&bed, copies);
    assert_eq!(miniport(client).send_status(*ids.last().unwrap(), MOMENT), Some(NDIS_STATUS_SUCCESS));
    finish(bed);
}

/// QEMU offers MQ with the one pair of a backend that has no more; the control queue is behind it.
#[test]
fn qemus_device_with_mq_works() {
    if !has_qemu() {
        return;
    }
    let variant = QemuVariant { properties: vec!["mq=on".into()], ..QemuVariant::default() };
    let device = DeviceKind::Qemu(variant);
    let Some(bed) = started_with(&Options { device, real_time: true, path_mtu: 1024, ..Options::default() })
    else {
        return;
    };
    copy(&bed);
    let [sender, receiver] = bed.machines().map(miniport);
    exchange(&bed, &sender, &receiver, &(0..500).map(|number| udp(7, number)).collect::<Vec<_>>());
    finish(bed);
}

/// With one allocation of a start refused, the driver starts with the pairs that it gets, with smaller queues if it is one of the first pair's,
/// or not at all; what follows is not its fault.
#[test]
fn pairs_for_which_there_is_memory_are_used() {
    let Some(mut bed) = started_with(&with_pairs(3, Features::default())) else { return };
    let host = bed.machines()[0].host().clone();
    let (mut used, mut reduced) = (BTreeSet::new(), 0);
    let mut restart = |bed: &mut Testbed, victim: u64| {
        bed.machine_mut(0).halt_adapter().expect("the adapter halts");
        let (asked, logged) = (host.low_resources.asked(), host.event_log().len());
        host.low_resources.fail_nth(victim);
        let outcome = bed.machine_mut(0).start_adapter();
        let asked = host.low_resources.asked() - asked;
        host.low_resources.fail_nth(u64::MAX / 2);
        assert!(!host.is_dead(), "allocation {victim} failed:\n{}", bed.violations().join("\n"));
        let log = host.event_log();
        let fewer = log[logged..].iter().find(|entry| entry.code & 0xffff == event::FEWER_PAIRS);
        if let Some(entry) = fewer.filter(|_| outcome.is_ok()) {
            let [pairs, 3] = entry.data[..] else { panic!("{:?}", entry.data) };
            if used.insert(pairs) {
                send_flows(bed, 12, 5);
                copy(bed);
                let sends = busy(bed.machines()[0], |pair| pair.sent);
                assert!(sends.iter().all(|&pair| pair < pairs as usize), "{sends:?} of {pairs} pairs send");
            }
        }
        if let Some(entry) = log[logged..].iter().find(|entry| entry.code & 0xffff == event::FEWER_BUFFERS) {
            assert_eq!(entry.data, [128, 128]);
            reduced += u32::from(outcome.is_ok());
        }
        (outcome.is_ok(), used.len(), asked)
    };
    let (_, _, all) = restart(&mut bed, u64::MAX / 2);
    let found = (0..all).find(|&victim| restart(&mut bed, victim).1 == 2);
    assert!(found.is_some(), "one and two pairs are used");
    // Most allocations are those of received lists.
    assert!(restart(&mut bed, all * 3 / 4).0, "there are lists enough for one pair");
    assert!(reduced > 0, "smaller queues are used");
    copy(&bed);
    finish(bed);
}
