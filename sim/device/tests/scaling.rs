// SPDX-License-Identifier: MIT OR Apache-2.0

//! Receive side scaling and hash reports of the virtio-net device.

use std::{sync::Arc, time::Duration};

use crate::bench::{Bench, Driver, Machine};
use device_sim::{
    NicOptions, Quirks,
    link::{Wire, WireOptions},
    toeplitz,
    virtio_net::{Features, RssLimits},
};
use virtio_net::{HASH_KEY_LEN, HashTypes, Hashing, Steering};

const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
/// Pairs of each device.
const PAIRS: u16 = 3;
const KEY: [u8; HASH_KEY_LEN] = [0x6D; HASH_KEY_LEN];
const BOTH: Features = Features(Features::RSS.0 | Features::HASH_REPORT.0);

/// A wire between two NICs with these features.
fn hosts(features: Features, quirks: Quirks) -> ([Bench; 2], [Driver; 2]) {
    let machine = Arc::new(Machine::default());
    let wire = Wire::new(WireOptions::immediate());
    let benches = [0, 1].map(|end| {
        let options = NicOptions::with_pairs(MACS[end], PAIRS);
        let features = options.features | features;
        let bench = Bench::on(&machine, NicOptions { features, quirks, ..options });
        bench.nic.connect(wire.port(end));
        bench
    });
    let drivers = [0, 1].map(|end: usize| benches[end].bring_up_with(PAIRS).unwrap());
    (benches, drivers)
}

/// A UDP packet of the flow with this source port.
fn udp(port: u16) -> Vec<u8> {
    let mut frame = [&MACS[1][..], &MACS[0], &[0x08, 0x00, 0x45, 0, 0, 46]].concat();
    frame.resize(60, 0);
    frame[23] = 17;
    frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    frame[34..36].copy_from_slice(&port.to_be_bytes());
    frame
}

fn arp() -> Vec<u8> {
    let mut frame = udp(0);
    frame[12..14].copy_from_slice(&[8, 6]);
    frame
}

fn hash(frame: &[u8]) -> u32 {
    toeplitz::hash(frame, 0x3f, &KEY).unwrap().1
}

fn steer(driver: &mut Driver, table: &[u16], unclassified: u16) -> Result<bool, virtio_net::Error> {
    let table: Vec<_> = table.iter().map(|pair| pair.to_le_bytes()).collect();
    let steering = Steering { table: &table, unclassified, pairs: PAIRS };
    driver.commands().set_steering(&Hashing { types: HashTypes::all(), key: &KEY }, &steering, |waited| {
        waited < Duration::from_secs(2)
    })
}

#[test]
fn frames_are_received_where_the_table_says_until_pairs_are_set() {
    for format in [Features::default(), Features::RING_PACKED] {
        let (benches, [mut sender, mut receiver]) = hosts(Features::RSS | format, Quirks::default());
        // Automatic steering has learned that the flow belongs to the first pair.
        receiver.set_pairs(PAIRS).unwrap();
        for table in [&[0, 1, 2, 1][..], &[2], &[1, 0]] {
            assert_eq!(steer(&mut receiver, table, 2), Ok(true));
            assert_eq!(benches[1].nic.rss_table().as_deref(), Some(table));
            assert_eq!(benches[1].nic.active_pairs(), usize::from(PAIRS));
            for port in 0..50 {
                sender.send_by(0, &udp(port));
                benches[0].machine.settle();
                let pair = usize::from(table[hash(&udp(port)) as usize % table.len()]);
                assert_eq!(receiver.received_by(pair).unwrap(), [udp(port)]);
            }
            sender.send_by(0, &arp());
            benches[0].machine.settle();
            assert_eq!(receiver.received_by(2).unwrap(), [arp()], "not classified");
        }
        assert_eq!(receiver.set_pairs(2), Ok(true));
        assert_eq!((benches[1].nic.rss_table(), benches[1].nic.active_pairs()), (None, 2));
        assert_eq!(benches[1].machine.misuse(), [""; 0]);
    }
}

/// A frame's hash as the second host's device reports it.
fn reported(benches: &[Bench; 2], drivers: &mut [Driver; 2], frame: &[u8]) -> Option<(HashTypes, u32)> {
    let [sender, receiver] = drivers;
    sender.send_by(0, frame);
    benches[0].machine.settle();
    let mut reported = None;
    for pair in 0..usize::from(PAIRS) {
        receiver.poll(pair, 10, |_, info| reported = Some(info.hash)).unwrap();
    }
    reported.expect("the frame arrived")
}

#[test]
fn hashes_are_reported_with_and_without_a_table() {
    for features in [Features::HASH_REPORT, BOTH, BOTH | Features::RING_PACKED] {
        let (benches, mut drivers) = hosts(features, Quirks::default());
        for pair in 0..usize::from(PAIRS) {
            drivers[1].receive(pair).report_hashes(true);
            assert!(drivers[1].poll(pair, 1, |_, _| {}).is_ok_and(|polled| polled.taken == 0));
        }
        assert_eq!(reported(&benches, &mut drivers, &udp(7)), None, "not asked for");
        if features.contains(Features::RSS) {
            assert_eq!(steer(&mut drivers[1], &[0, 1, 2, 1], 0), Ok(true));
        } else {
            let hashing = Hashing { types: HashTypes::all(), key: &KEY };
            assert_eq!(
                drivers[1].commands().set_hashing(Some(&hashing), |waited| waited < Duration::from_secs(2)),
                Ok(true)
            );
        }
        assert_eq!(benches[1].nic.hash_types(), 0x3f);
        for port in 0..20 {
            let expected = Some((HashTypes::UDP_IPV4, hash(&udp(port))));
            assert_eq!(reported(&benches, &mut drivers, &udp(port)), expected);
        }
        assert_eq!(reported(&benches, &mut drivers, &arp()), None);
        assert_eq!(benches[1].machine.misuse(), [""; 0]);
    }
}

/// Has a driver send a command that breaks a rule. Returns what the device reports.
fn misuse<T>(features: Features, send: impl Fn(&mut Driver) -> T) -> String {
    let (benches, [_, mut driver]) = hosts(features, Quirks::default());
    let _ = send(&mut driver);
    let misuse = benches[1].machine.misuse();
    assert_eq!(misuse.len(), 1, "{misuse:?}");
    misuse[0].clone()
}

#[test]
fn commands_that_break_a_rule_are_misuse() {
    let table = |table: &'static [u16]| misuse(BOTH, move |driver| steer(driver, table, 0));
    assert!(table(&[0, 1, 2]).starts_with("an indirection table of 3 entries"));
    assert!(table(&[0; 160]).contains("at most 128"));
    assert!(table(&[0, PAIRS]).starts_with("the indirection table has queue 3"));
    assert!(misuse(BOTH, |driver| steer(driver, &[0], 9)).starts_with("the indirection table has queue 9"));
    let pairs = misuse(BOTH, |driver| {
        let steering = Steering { table: &[[0; 2]], unclassified: 0, pairs: PAIRS + 1 };
        let hashing = Hashing { types: HashTypes::all(), key: &KEY };
        let _ = driver.commands().set_steering(&hashing, &steering, |waited| waited < Duration::from_secs(2));
    });
    assert!(pairs.starts_with("4 transmit queues are used of 3"), "{pairs}");
}

#[test]
fn types_and_keys_beyond_the_limits_are_misuse() {
    let limited = |limits| {
        let (benches, [_, mut driver]) =
            hosts(BOTH, Quirks { rss_limits: Some(limits), ..Quirks::default() });
        let _ = steer(&mut driver, &[0, 1], 0);
        benches[1].machine.misuse().concat()
    };
    assert_eq!(limited(RssLimits::default()), "");
    assert!(
        limited(RssLimits { types: 0x1f, ..RssLimits::default() }).starts_with("hash types 0x3f are set")
    );
    assert!(limited(RssLimits { key_len: 39, ..RssLimits::default() }).contains("at most 39"));
    assert!(limited(RssLimits { entries: 1, ..RssLimits::default() }).contains("at most 1"));
}

#[test]
fn device_refuses_a_command_or_leaves_it_unanswered() {
    let answer = |quirks| {
        let (_benches, [_, mut driver]) = hosts(BOTH, quirks);
        let paired = driver.set_pairs(PAIRS);
        (paired, steer(&mut driver, &[0, 1], 0))
    };
    let refused = Quirks { refuses_command: Some([4, 1]), ..Quirks::default() };
    assert_eq!(answer(refused), (Ok(true), Ok(false)));
    let left = Quirks { leaves_command: Some([4, 1]), ..Quirks::default() };
    assert_eq!(answer(left), (Ok(true), Err(virtio_net::Error::OutOfOrder)));
}
