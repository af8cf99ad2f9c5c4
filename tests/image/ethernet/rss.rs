// SPDX-License-Identifier: MIT OR Apache-2.0

//! Receive side scaling by the driver. The simulated NDIS checks each received frame: type and value of its hash, and that it is
//! indicated on the processor of its entry of the indirection table.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use device_sim::virtio_net::Features;
use lab::testbed::{Options, Testbed};
use ndis_sim::{Keyword, RssParameters};
use ndk_abi::ndis::*;
use nt_sim::nt::time::sleep;
use support::{
    bed::{finish, miniport, started_with},
    copying::copy,
    scaling::{
        ALL_TYPES, MOMENT, SOON, TCP_TYPES, arrived, handed_over, mixture, options, over_formats, parameters,
        polled, put, receive_directed, send, send_flows, send_flows_from, settle, udp,
    },
    tcp,
};

fn keyword(name: &'static str, value: &str) -> Vec<(&'static str, Keyword)> {
    vec![(name, Keyword::Text(value.into()))]
}

#[test]
fn capabilities_are_those_of_processors_and_keywords() {
    let capabilities = |options: &Options| {
        let bed = started_with(options)?;
        let adapter = miniport(bed.machines()[1]);
        let found = adapter.scaling().capabilities();
        let set = adapter.scaling().set(Some(&parameters(TCP_TYPES, &[0, 1]))).map_err(|error| error.status);
        match found {
            Some(capabilities) => {
                assert_eq!(set, Ok(()));
                assert_eq!((capabilities.entries, capabilities.types()), (128, ALL_TYPES));
            }
            None => assert_eq!(set, Err(NDIS_STATUS_NOT_SUPPORTED)),
        }
        finish(bed);
        Some(found.map(|capabilities| capabilities.queues))
    };
    let Some(found) = capabilities(&options(4, 8)) else { return };
    assert_eq!(found, Some(8));
    assert_eq!(capabilities(&options(1, 40)), Some(Some(16)));
    let with = |keywords| Options { keywords, ..options(4, 8) };
    assert_eq!(capabilities(&with(keyword("*NumRSSQueues", "3"))), Some(Some(3)));
    assert_eq!(capabilities(&with(keyword("*RSS", "0"))), Some(None));
    assert_eq!(capabilities(&with(keyword("*NdisPoll", "1"))), Some(Some(8)));
    assert_eq!(capabilities(&options(1, 1)), Some(None), "one processor");
}

#[test]
fn frames_have_their_hash_and_are_indicated_where_the_table_says_in_every_ring_format() {
    frames_are_received_by_table(|options| options);
}

/// NDIS polls on the processors of the table.
#[test]
fn frames_are_polled_where_the_table_says_in_every_ring_format() {
    frames_are_received_by_table(polled);
}

fn frames_are_received_by_table(edit: fn(Options) -> Options) {
    over_formats(|format| {
        for pairs in [1, 4] {
            let options =
                Options { features: Features::DEFAULT | Features::MQ | format, ..options(pairs, 4) };
            let Some(bed) = started_with(&edit(options)) else { return };
            let receiver = miniport(bed.machines()[1]);
            let table: Vec<u8> = (0..128).map(|entry| entry % 4).collect();
            for types in [ALL_TYPES, TCP_TYPES, NDIS_HASH_UDP_IPV6] {
                for table in [&table[..], &[3], &[1, 0], &[2, 2, 1, 3, 0, 0, 1, 3]] {
                    receiver.scaling().set(Some(&parameters(types, table))).unwrap();
                    settle(&bed);
                    send(&bed, &mixture());
                }
            }
            receiver.scaling().set(Some(&parameters(ALL_TYPES, &table))).unwrap();
            settle(&bed);
            send_flows(&bed, 40, 30);
            assert!(handed_over(bed.machines()[1]) > 1000);
            receiver.scaling().set(None).unwrap();
            settle(&bed);
            let before = handed_over(bed.machines()[1]);
            send_flows(&bed, 40, 30);
            assert_eq!(handed_over(bed.machines()[1]), before, "receive side scaling is disabled");
            copy(&bed);
            finish(bed);
        }
    });
}

/// Windows Server adds processors while it runs. The driver has a lane for each processor of its start only, and states as many queues: frames
/// for the others are indicated on those.
#[test]
fn processors_that_are_added_after_the_start_may_be_in_the_table() {
    for edit in [std::convert::identity, polled] {
        let Some(image) = lab::image() else { return };
        let mut bed = Testbed::new(&image, &edit(options(2, 4))).expect("the image can be loaded");
        for machine in bed.machines() {
            machine.host().cpus.set_active(2);
        }
        bed.start().expect("the driver starts");
        let receiver = miniport(bed.machines()[1]);
        assert_eq!(receiver.scaling().capabilities().map(|capabilities| capabilities.queues), Some(2));
        receiver.scaling().set(Some(&parameters(ALL_TYPES, &[0, 1]))).unwrap();
        settle(&bed);
        send_flows(&bed, 40, 3);
        for machine in bed.machines() {
            machine.host().cpus.set_active(4);
        }
        receiver.scaling().set(Some(&parameters(ALL_TYPES, &[3, 2, 1, 0]))).unwrap();
        settle(&bed);
        send_flows(&bed, 40, 3);
        send(&bed, &mixture());
        copy(&bed);
        finish(bed);
    }
}

#[test]
fn tcp_works_with_receive_side_scaling() {
    let Some(bed) = started_with(&options(2, 4)) else { return };
    for machine in bed.machines() {
        miniport(machine).scaling().set(Some(&parameters(TCP_TYPES, &[3, 2, 1, 0]))).unwrap();
    }
    settle(&bed);
    tcp::exchange(&bed, tcp::ipv4(), 1 << 18);
    tcp::exchange(&bed, tcp::ipv6(), 1 << 18);
    finish(bed);
}

/// Frames are received as before: the simulated NDIS checks them.
#[test]
fn malformed_request_gets_its_status_and_changes_nothing() {
    type Edit = fn(&mut Vec<u8>);
    let (length, invalid) = (NDIS_STATUS_INVALID_LENGTH, NDIS_STATUS_INVALID_PARAMETER);
    let requests: [(Edit, NDIS_STATUS, &str); 17] = [
        (Vec::clear, length, "no bytes"),
        (|of| of.truncate(39), length, "shorter than the structure"),
        (|of| of.truncate(99), length, "without the end of its key"),
        (|of| of[0] = 0x80, invalid, "another type"),
        (|of| of[1] = 1, invalid, "an old revision"),
        (|of| put(of, 2, &39_u16.to_le_bytes()), invalid, "a short structure"),
        (|of| put(of, 8, &(2 | ALL_TYPES).to_le_bytes()), invalid, "another function"),
        (|of| put(of, 8, &1_u32.to_le_bytes()), invalid, "no type"),
        (|of| put(of, 8, &(0x801_u32).to_le_bytes()), invalid, "a type that is not among the capabilities"),
        (|of| put(of, 12, &0_u16.to_le_bytes()), invalid, "no table"),
        (|of| put(of, 12, &15_u16.to_le_bytes()), invalid, "a part of an entry"),
        (|of| put(of, 12, &12_u16.to_le_bytes()), invalid, "three entries"),
        (|of| put(of, 16, &u32::MAX.to_le_bytes()), length, "a table behind the end"),
        (|of| of[46] = 9, invalid, "a processor that does not exist"),
        (|of| of[44] = 1, invalid, "a group that does not exist"),
        (|of| put(of, 20, &39_u16.to_le_bytes()), invalid, "a short key"),
        (|of| put(of, 24, &u32::MAX.to_le_bytes()), length, "a key behind the end"),
    ];
    let Some(bed) = started_with(&options(2, 4)) else { return };
    let receiver = miniport(bed.machines()[1]);
    for first in [None, Some(parameters(ALL_TYPES, &[3, 1]))] {
        receiver.scaling().set(first.as_ref()).unwrap();
        settle(&bed);
        for (edit, status, what) in &requests {
            let mut request = parameters(TCP_TYPES, &[0, 1, 2, 0]).encode(0);
            edit(&mut request);
            let outcome =
                receiver.set(OID_GEN_RECEIVE_SCALE_PARAMETERS, &request).map_err(|error| error.status);
            assert_eq!(outcome, Err(*status), "{what}");
        }
        let large = parameters(TCP_TYPES, &[1; 256]);
        assert_eq!(
            receiver.scaling().set(Some(&large)).map_err(|error| error.status),
            Err(invalid),
            "256 entries"
        );
        assert_eq!(receiver.scaling().parameters(), first);
        send(&bed, &mixture());
    }
    finish(bed);
}

#[test]
fn parts_that_a_request_leaves_unchanged_are_kept() {
    let Some(bed) = started_with(&options(2, 4)) else { return };
    let receiver = miniport(bed.machines()[1]);
    let unchanged = NDIS_RSS_PARAM_FLAG_HASH_INFO_UNCHANGED
        | NDIS_RSS_PARAM_FLAG_HASH_KEY_UNCHANGED
        | NDIS_RSS_PARAM_FLAG_ITABLE_UNCHANGED
        | NDIS_RSS_PARAM_FLAG_DEFAULT_PROCESSOR_UNCHANGED;
    let first = parameters(ALL_TYPES, &[0, 1, 2, 3]);
    let other = RssParameters { types: TCP_TYPES, key: [1; 40], table: vec![2; 8], default_processor: 3 };
    // At first there is nothing to be kept.
    let mut flags = vec![unchanged, unchanged, NDIS_RSS_PARAM_FLAG_HASH_KEY_UNCHANGED];
    flags.extend([NDIS_RSS_PARAM_FLAG_ITABLE_UNCHANGED, NDIS_RSS_PARAM_FLAG_HASH_INFO_UNCHANGED, 0]);
    for (number, flags) in flags.into_iter().enumerate() {
        let request = if number % 2 == 0 { &first } else { &other };
        receiver.set(OID_GEN_RECEIVE_SCALE_PARAMETERS, &request.encode(flags)).unwrap();
        settle(&bed);
        send(&bed, &mixture());
    }
    assert_eq!(receiver.scaling().parameters(), Some(other));
    finish(bed);
}

/// NetKVM's users met a table that was null during a change.
#[test]
fn table_changes_and_is_missing_under_traffic_without_a_lost_frame() {
    over_formats(|format| {
        let options = Options { features: Features::DEFAULT | Features::MQ | format, ..options(4, 4) };
        let is_polled = format == Features::RING_PACKED;
        let Some(bed) = started_with(&if is_polled { polled(options) } else { options }) else { return };
        let [sender, receiver] = bed.machines().map(miniport);
        receive_directed(&receiver);
        let is_done = Arc::new(AtomicBool::new(false));
        let (on, done) = (receiver.clone(), is_done.clone());
        let changing = receiver.host().spawn("changes", move || {
            let mut changes = 0_u32;
            while !done.load(Relaxed) {
                let entries = 1_usize << (changes % 8);
                let table: Vec<u8> = (0..entries).map(|entry| ((entry as u32 + changes) % 4) as u8).collect();
                let rss = parameters(if changes.is_multiple_of(3) { TCP_TYPES } else { ALL_TYPES }, &table);
                on.scaling().set(Some(&rss)).unwrap();
                let missing = parameters(ALL_TYPES, &[0]).encode(0);
                let missing = [&missing[..12], &[0; 8], &missing[20..]].concat();
                on.set(OID_GEN_RECEIVE_SCALE_PARAMETERS, &missing).unwrap_err();
                if changes.is_multiple_of(5) {
                    on.scaling().set(None).unwrap();
                }
                changes += 1;
                sleep(15_000_000);
            }
            changes
        });
        for _ in 0..40 {
            let frames: Vec<_> = (0..200).map(|number| udp(number as u16 % 20, number)).collect();
            let _ = sender.send_chain(&frames, 0);
            let _ = arrived(&bed, frames.len());
            let _ = bed.event().wait(Duration::from_millis(5));
        }
        is_done.store(true, Relaxed);
        assert!(changing.join().unwrap() > 5);
        finish(bed);
    });
}

/// NetKVM's users met processors beyond its queues.
#[test]
fn machine_with_more_processors_than_the_device_has_queues_uses_all_of_them() {
    for pairs in [1, 4] {
        let options = Options { keywords: keyword("*NumRSSQueues", "64"), ..options(pairs, 60) };
        let Some(bed) = started_with(&options) else { return };
        let receiver = miniport(bed.machines()[1]);
        assert_eq!(receiver.scaling().capabilities().unwrap().queues, 60);
        let table: Vec<u8> = (0..128_u32).map(|entry| (entry * 7 % 60) as u8).collect();
        receiver.scaling().set(Some(&parameters(ALL_TYPES, &table))).unwrap();
        settle(&bed);
        send_flows(&bed, 120, 10);
        copy(&bed);
        finish(bed);
    }
}

/// Frames that each queue pair of the first host has sent, and each of the second has received.
fn frames_of_pairs(bed: &Testbed) -> [Vec<u64>; 2] {
    let [sender, receiver] = bed.machines().map(|machine| machine.nic().pair_counters());
    [sender.iter().map(|pair| pair.sent).collect(), receiver.iter().map(|pair| pair.received).collect()]
}

/// Returns the frames that `transfer` adds to [`frames_of_pairs`].
fn added_by(bed: &Testbed, transfer: impl FnOnce()) -> [Vec<u64>; 2] {
    let [sent_before, received_before] = frames_of_pairs(bed);
    transfer();
    let [sent, received] = frames_of_pairs(bed);
    let added =
        |now: Vec<u64>, before: &[u64]| now.iter().zip(before).map(|(now, then)| now - then).collect();
    [added(sent, &sent_before), added(received, &received_before)]
}

/// For each number below `pairs`, a source port whose flow is sent and received by the queue pairs of this number.
fn port_of_each_pair(bed: &Testbed, pairs: usize) -> Vec<u16> {
    let mut ports = vec![None; pairs];
    for port in 1000..10_000 {
        let [sent, received] = added_by(bed, || send_flows_from(bed, &[port], 1));
        let pair = sent.iter().position(|&frames| frames == 1).expect("a pair has sent the frame");
        if received[pair] == 1 {
            let _ = ports[pair].get_or_insert(port);
        }
        if let Some(all) = ports.iter().copied().collect() {
            return all;
        }
    }
    panic!("no flow for some of the pairs: {ports:?}")
}

/// NetKVM's users met queues that hindered each other with one flow each.
#[test]
fn one_flow_on_each_of_many_queues_arrives() {
    const PAIRS: usize = 16;
    const FRAMES: u32 = 200;
    let Some(bed) = started_with(&options(PAIRS as u16, PAIRS as u32)) else { return };
    let receiver = miniport(bed.machines()[1]);
    let table: Vec<u8> = (0..128).map(|entry| entry % PAIRS as u8).collect();
    receiver.scaling().set(Some(&parameters(ALL_TYPES, &table))).unwrap();
    settle(&bed);
    let ports = port_of_each_pair(&bed, PAIRS);
    let added = added_by(&bed, || send_flows_from(&bed, &ports, FRAMES));
    assert_eq!(added, [vec![u64::from(FRAMES); PAIRS], vec![u64::from(FRAMES); PAIRS]]);
    finish(bed);
}

/// RDMA is served by the pair where its packets arrive, whatever the table says. Neither waits for the end of the other.
#[test]
fn rdma_and_ethernet_go_on_while_all_frames_are_for_one_processor() {
    for processor in [0, 1, 3] {
        let Some(bed) = started_with(&options(2, 4)) else { return };
        let [sender, receiver] = bed.machines().map(miniport);
        receive_directed(&receiver);
        receiver.scaling().set(Some(&parameters(ALL_TYPES, &[processor]))).unwrap();
        settle(&bed);
        let is_done = Arc::new(AtomicBool::new(false));
        let done = is_done.clone();
        let flood = sender.host().clone().spawn("flood", move || {
            let mut sent = 0;
            while !done.load(Relaxed) {
                let frames: Vec<_> = (0..32).map(|number| udp(number as u16 % 8, number)).collect();
                for id in sender.send_chain(&frames, 0) {
                    assert_eq!(sender.send_status(id, MOMENT), Some(NDIS_STATUS_SUCCESS));
                }
                sent += frames.len();
            }
            sent
        });
        copy(&bed);
        is_done.store(true, Relaxed);
        let sent = flood.join().unwrap();
        assert!(sent > 1000, "the copy kept Ethernet frames from being sent: {sent}");
        assert!(!receiver.received().is_empty());
        finish(bed);
    }
}

#[test]
fn parameters_stay_in_force_across_a_pause_a_reset_and_a_low_power_state() {
    over_formats(|format| {
        let options = Options { features: Features::DEFAULT | Features::MQ | format, ..options(3, 4) };
        let is_polled = format == Features::RING_PACKED;
        let Some(bed) = started_with(&if is_polled { polled(options) } else { options }) else { return };
        let machine = bed.machines()[1];
        let [sender, receiver] = bed.machines().map(miniport);
        receiver.scaling().set(Some(&parameters(ALL_TYPES, &[0, 1, 2, 3]))).unwrap();
        settle(&bed);
        send_flows(&bed, 20, 20);
        for _ in 0..3 {
            let chain: Vec<_> = (0..300).map(|number| udp(number as u16 % 20, number)).collect();
            let _ = sender.send_chain(&chain, 0);
            receiver.pause().unwrap();
            receiver.restart().unwrap();
            let _ = sender.send_chain(&chain, 0);
            receiver.sleep().unwrap();
            receiver.wake().unwrap();
            let _ = bed.event().wait(SOON);
            send_flows(&bed, 20, 20);
        }
        machine.nic().need_reset();
        assert!(receiver.ndk().await_events(2, MOMENT), "{}", bed.violations().join("\n"));
        let _ = bed.event().wait(SOON);
        send_flows(&bed, 20, 20);
        finish(bed);
    });
}

/// Windows with groups of four processors: those of the last group are among the table, the default processor, the poll objects. The
/// device's interrupts are in group 0.
#[test]
fn processors_of_every_group_indicate_frames() {
    for edit in [|options| options, polled as fn(Options) -> Options] {
        let options = Options { group_size: 4, ..options(4, 10) };
        let Some(bed) = started_with(&edit(options)) else { return };
        let receiver = miniport(bed.machines()[1]);
        let everywhere: Vec<u8> = (0..128).map(|entry| entry % 10).collect();
        for (table, default_processor) in [(&everywhere[..], 9), (&[9], 4), (&[5, 3, 8, 7], 0)] {
            let rss = RssParameters { default_processor, ..parameters(ALL_TYPES, table) };
            receiver.scaling().set(Some(&rss)).unwrap();
            assert_eq!(receiver.scaling().parameters(), Some(rss));
            settle(&bed);
            send(&bed, &mixture());
            send_flows(&bed, 40, 10);
        }
        // The groups have 4, 4 and 2 processors.
        for (group, number) in [(0, 4), (2, 2), (3, 0)] {
            let mut request = parameters(ALL_TYPES, &[0, 1, 2, 0]).encode(0);
            put(&mut request, 44, &[group, 0, number]);
            let outcome = receiver.set(OID_GEN_RECEIVE_SCALE_PARAMETERS, &request);
            assert_eq!(outcome.map_err(|error| error.status), Err(NDIS_STATUS_INVALID_PARAMETER));
        }
        copy(&bed);
        finish(bed);
    }
}
