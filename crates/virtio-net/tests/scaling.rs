// SPDX-License-Identifier: MIT OR Apache-2.0

//! Receive side scaling and hash reports of the device: limits, commands, and the header with a hash.

use std::time::Duration;

use crate::fake::{Answer, Driver, Fake, Quirks, over_formats};
use virtio_net::{
    Error, Features, FrameInfo, HASH_KEY_LEN, HEADER_LEN, HashTypes, Hashing, MAX_HEADER_LEN, RssLimits,
    Steering,
};

const KEY: [u8; HASH_KEY_LEN] = [0x5A; HASH_KEY_LEN];
const HASHING: Hashing<'_> = Hashing { types: HashTypes::all(), key: &KEY };
const BOTH: Features = Features::RSS.union(Features::HASH_REPORT);

fn with(features: Features, quirks: &Quirks) -> Quirks {
    let offered = quirks.offered | Features::CTRL_VQ | Features::MQ | features;
    Quirks { offered, pairs: 4, vectors: 16, config_vectors: 16, ..quirks.clone() }
}

fn steer(driver: &mut Driver, table: &[u16]) -> Result<bool, Error> {
    let table: Vec<_> = table.iter().map(|pair| pair.to_le_bytes()).collect();
    let steering = Steering { table: &table, unclassified: 1, pairs: 4 };
    driver
        .nic()
        .commands
        .as_mut()
        .unwrap()
        .set_steering(&HASHING, &steering, |waited| waited < Duration::from_secs(2))
}

fn report(driver: &mut Driver, hashing: Option<&Hashing<'_>>) -> Result<bool, Error> {
    driver.nic().commands.as_mut().unwrap().set_hashing(hashing, |waited| waited < Duration::from_secs(2))
}

//= virtio §14
#[test]
fn limits_are_read_if_a_feature_is_accepted() {
    let limits = |features| {
        let fake = Fake::new(with(features, &Quirks::default()));
        let driver = fake.bring_up(1514).unwrap();
        (fake.accepted() & BOTH, driver.control.net_config().unwrap().rss)
    };
    // The device has types that this driver does not support.
    let expected = RssLimits { key_len: 40, entries: 128, types: HashTypes::all() };
    assert_eq!(limits(BOTH), (BOTH, Some(expected)));
    assert_eq!(limits(Features::RSS), (Features::RSS, Some(expected)));
    let reports = Some(RssLimits { entries: 0, ..expected });
    assert_eq!(limits(Features::HASH_REPORT), (Features::HASH_REPORT, reports));
    assert_eq!(limits(Features::empty()), (Features::empty(), None));
}

/// RSS without MQ: there is no command for the number of pairs.
//= virtio §13
#[test]
fn pairs_are_used_by_a_table_where_the_device_has_no_command_for_them() {
    over_formats(|quirks| {
        let mut quirks = with(Features::RSS, &quirks);
        quirks.offered.remove(Features::MQ);
        let limits = |key_len, entries| Some(RssLimits { key_len, entries, types: HashTypes::all() });
        let fake = Fake::new(quirks);
        let mut driver = fake.bring_up_with(1514, 3, 16).unwrap();
        assert_eq!(driver.nic().pairs.len(), 3);
        let mut set_pairs = |limits| {
            driver
                .nic()
                .commands
                .as_mut()
                .unwrap()
                .set_pairs(3, limits, |waited| waited < Duration::from_secs(2))
                .unwrap()
        };
        for (entries, used) in [(u16::MAX, 128), (5, 4), (1, 1)] {
            assert!(set_pairs(limits(40, entries)));
            let [command] = &fake.commands()[..] else { panic!("one command") };
            assert_eq!(command[..10], [4, 1, 0x3F, 0, 0, 0, used - 1, 0, 0, 0]);
            let pairs: Vec<_> = (0..used).flat_map(|entry| [entry % 3, 0]).collect();
            assert_eq!(command[10..][..pairs.len()], pairs);
            assert_eq!(command[10 + pairs.len()..][..3], [3, 0, 40]);
        }
        assert!(!set_pairs(limits(39, 128)) && !set_pairs(limits(40, 0)) && !set_pairs(None));
        assert_eq!(fake.commands(), [[0; 0]; 0]);
        drop(driver);
        fake.assert_well_treated();
    });
}

//= virtio §13
#[test]
fn table_and_key_are_sent_as_one_command() {
    over_formats(|quirks| {
        let fake = Fake::new(with(Features::RSS, &quirks));
        let mut driver = fake.bring_up_with(1514, 4, 16).unwrap();
        assert_eq!(steer(&mut driver, &[0, 1, 2, 3]), Ok(true));
        let start = [4, 1, 0x3F, 0, 0, 0, 3, 0, 1, 0, 0, 0, 1, 0, 2, 0, 3, 0, 4, 0, 40];
        assert_eq!(fake.commands(), [[&start[..], &KEY].concat()]);
        assert_eq!(steer(&mut driver, &[2; 128]), Ok(true));
        assert_eq!(fake.commands()[0].len(), 2 + 8 + 256 + 3 + 40);
        assert_eq!(steer(&mut driver, &[]), Ok(false), "no table");
        assert_eq!(steer(&mut driver, &[0; 512]), Err(Error::CommandRefused), "longer than a command");
        assert_eq!(report(&mut driver, Some(&HASHING)), Ok(false), "without the feature");
        assert_eq!(fake.commands(), [[0; 0]; 0]);
        drop(driver);
        fake.assert_well_treated();
    });
}

//= virtio §13
#[test]
fn hashes_without_a_table_are_enabled_and_disabled() {
    let fake = Fake::new(with(Features::HASH_REPORT, &Quirks::default()));
    let mut driver = fake.bring_up_with(1514, 4, 16).unwrap();
    assert_eq!(report(&mut driver, Some(&HASHING)), Ok(true));
    let start = [4, 2, 0x3F, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 40];
    assert_eq!(fake.commands(), [[&start[..], &KEY].concat()]);
    assert_eq!(report(&mut driver, None), Ok(true));
    assert_eq!(fake.commands(), [[&[4, 2][..], &[0; 13]].concat()]);
    assert_eq!(steer(&mut driver, &[0]), Ok(false), "without the feature");
}

#[test]
fn device_may_refuse_a_table_and_need_not_answer() {
    over_formats(|quirks| {
        let fake = Fake::new(Quirks { answer: Answer::Refused(&[4, 1]), ..with(BOTH, &quirks) });
        let mut driver = fake.bring_up_with(1514, 4, 16).unwrap();
        assert_eq!(steer(&mut driver, &[0, 1]), Ok(false));
        assert_eq!(report(&mut driver, Some(&HASHING)), Ok(true));
        fake.change(|quirks| quirks.answer = Answer::Never);
        assert_eq!(steer(&mut driver, &[0, 1]), Err(Error::OutOfOrder));
    });
}

/// Receives a frame with this hash and type in its header. Returns what the queue passes on.
fn receive(fake: &Fake, driver: &mut Driver, value: u32, kind: u16) -> Vec<(Vec<u8>, FrameInfo)> {
    deliver(fake, value, kind);
    poll(driver)
}

fn deliver(fake: &Fake, value: u32, kind: u16) {
    let mut header = [0; MAX_HEADER_LEN];
    header[10] = 1;
    header[12..16].copy_from_slice(&value.to_le_bytes());
    header[16..18].copy_from_slice(&kind.to_le_bytes());
    fake.deliver_with(header, &[7; 60], &[MAX_HEADER_LEN + 60]);
}

fn poll(driver: &mut Driver) -> Vec<(Vec<u8>, FrameInfo)> {
    let mut received = Vec::new();
    driver.poll(100, |frame, info| received.push((frame.to_vec(), info))).unwrap();
    received
}

//= virtio §9
#[test]
fn hash_of_a_known_type_is_passed_on_once_it_is_of_use() {
    over_formats(|quirks| {
        for merged in [Features::empty(), Features::MRG_RXBUF] {
            let fake = Fake::new(with(Features::HASH_REPORT | merged, &quirks));
            let mut driver = fake.bring_up(1514).unwrap();
            let expect = |hash| [(vec![7; 60], FrameInfo { hash, ..Default::default() })];
            assert_eq!(receive(&fake, &mut driver, 5, 1), expect(None), "not asked for");
            driver.receive().report_hashes(true);
            assert_eq!(
                receive(&fake, &mut driver, 5, 1),
                expect(None),
                "it may have been in the ring before"
            );
            let types = [
                HashTypes::IPV4,
                HashTypes::TCP_IPV4,
                HashTypes::UDP_IPV4,
                HashTypes::IPV6,
                HashTypes::TCP_IPV6,
                HashTypes::UDP_IPV6,
            ];
            for (number, kind) in (1..).zip(types) {
                let hash = 0xFEDC_BA00 | u32::from(number);
                assert_eq!(receive(&fake, &mut driver, hash, number), expect(Some((kind, hash))));
            }
            for unknown in [0, 7, 9, 32, 33, 0x100, u16::MAX] {
                assert_eq!(receive(&fake, &mut driver, 5, unknown), expect(None), "{unknown}");
            }
            driver.receive().report_hashes(false);
            assert_eq!(receive(&fake, &mut driver, 5, 1), expect(None));
            drop(driver);
            fake.assert_well_treated();
        }
    });
}

/// The parameters of hashes change while frames are in the ring: as many as it has buffers.
#[test]
fn hashes_of_frames_that_may_be_older_than_the_parameters_are_not_passed_on() {
    over_formats(|quirks| {
        let fake = Fake::new(Quirks { queue_sizes: [8, 8], ..with(Features::HASH_REPORT, &quirks) });
        let mut driver = fake.bring_up(1514).unwrap();
        (0..5).for_each(|_| deliver(&fake, 1, 1));
        driver.receive().report_hashes(true);
        (0..3).for_each(|_| deliver(&fake, 2, 1));
        // Buffers become available again, so that the ring is never empty.
        let mut hashes = Vec::new();
        driver.poll(6, |_, info| hashes.push(info.hash)).unwrap();
        (0..6).for_each(|_| deliver(&fake, 2, 1));
        driver.poll(8, |_, info| hashes.push(info.hash)).unwrap();
        let expected = [None; 8].into_iter().chain([Some((HashTypes::IPV4, 2)); 6]);
        assert_eq!(hashes, expected.collect::<Vec<_>>());
    });
}

/// A device that steers by a table reports hashes as soon as it has one: by a key that its user does not know.
#[test]
fn hashes_are_not_passed_on_after_a_reset_until_they_are_of_use_again() {
    over_formats(|quirks| {
        let fake = Fake::new(with(Features::HASH_REPORT, &quirks));
        let mut driver = fake.bring_up(1514).unwrap();
        let hash = |value| {
            let hash = Some((HashTypes::IPV4, value));
            [(vec![7; 60], FrameInfo { hash, ..Default::default() })]
        };
        driver.receive().report_hashes(true);
        poll(&mut driver);
        assert_eq!(receive(&fake, &mut driver, 5, 1), hash(5));
        driver.receive().stop();
        driver.restart().unwrap();
        poll(&mut driver);
        assert_eq!(receive(&fake, &mut driver, 6, 1)[0].1.hash, None);
        driver.receive().report_hashes(true);
        poll(&mut driver);
        assert_eq!(receive(&fake, &mut driver, 7, 1), hash(7));
    });
}

//= virtio §9
#[test]
fn frames_are_sent_and_received_behind_the_longer_header() {
    over_formats(|quirks| {
        let fake = Fake::new(with(Features::HASH_REPORT, &quirks));
        let mut driver = fake.bring_up(1514).unwrap();
        let transmit = driver.transmit();
        transmit.slot().unwrap()[..1514].fill(9);
        transmit.commit(1514);
        transmit.kick();
        let sent = fake.transmit_with_headers(usize::MAX);
        let [(header, rest)] = &sent[..] else { panic!("{} frames", sent.len()) };
        assert_eq!((header, &rest[..8]), (&[0; HEADER_LEN], &[0; 8][..]), "the header is zero");
        assert_eq!(rest[8..], [9; 1514]);
        // A header without a place for the hash is too short for a frame.
        fake.deliver_with([0; MAX_HEADER_LEN], &[], &[MAX_HEADER_LEN - 1]);
        assert_eq!(poll(&mut driver), []);
        assert_eq!(driver.receive().counters().invalid, 1);
        let mut header = [0; MAX_HEADER_LEN];
        header[10] = 1;
        fake.deliver_with(header, &[3; 1514], &[MAX_HEADER_LEN + 1514]);
        assert_eq!(poll(&mut driver)[0].0, [3; 1514]);
    });
}
