// SPDX-License-Identifier: MIT OR Apache-2.0

//! Several queue pairs: their queues, vectors and command.

use std::ops::ControlFlow;

use crate::fake::{Answer, Driver, Fake, Quirks, over_formats};
use virtio_net::{Error, Features, ReceiveCounters, TransmitCounters};

/// Pairs of the device.
const PAIRS: u16 = 4;

fn with_pairs(quirks: &Quirks) -> Quirks {
    let offered = quirks.offered | Features::CTRL_VQ | Features::MQ;
    Quirks { offered, pairs: PAIRS, vectors: 16, config_vectors: 16, ..quirks.clone() }
}

fn set_pairs(driver: &mut Driver, pairs: u16) -> Result<bool, Error> {
    driver.nic().commands.as_mut().unwrap().set_pairs(pairs, None, |_| true)
}

/// Sends a frame by each pair, and receives one by each.
fn assert_pairs_work(fake: &Fake, driver: &mut Driver) {
    for (number, pair) in driver.nic().pairs.iter_mut().enumerate() {
        let byte = number as u8 + 1;
        let [receive, transmit] = [2 * number, 2 * number + 1];
        let notified = fake.notified(transmit);
        pair.transmit.slot().unwrap()[..60].fill(byte);
        pair.transmit.commit(60);
        pair.transmit.kick();
        assert_eq!(fake.notified(transmit), notified + 1);
        let sent: Vec<_> =
            fake.transmit_of(transmit, usize::MAX).into_iter().map(|(_, frame)| frame).collect();
        assert_eq!(sent, [[byte; 60]]);
        assert!(fake.deliver_to(receive, &[byte; 60]));
        let mut received = Vec::new();
        let sink = |frame: &mut [u8], _| {
            received.push(frame.to_vec());
            ControlFlow::Continue(())
        };
        pair.receive.poll(10, sink).unwrap();
        assert_eq!(received, [[byte; 60]]);
    }
}

//= virtio §4
//= virtio §12
#[test]
fn each_pair_has_its_own_queues_and_the_control_queue_is_behind_all_that_the_device_has() {
    over_formats(|quirks| {
        for used in 1..=PAIRS {
            let fake = Fake::new(with_pairs(&quirks));
            let mut driver = fake.bring_up_with(1514, used, 16).unwrap();
            assert_eq!(driver.nic().pairs.len(), usize::from(used));
            assert_eq!(set_pairs(&mut driver, used), Ok(true));
            assert_eq!(fake.commands(), [[4, 0, used as u8, 0]]);
            assert_eq!(fake.notified(2 * usize::from(PAIRS)), 1);
            assert_pairs_work(&fake, &mut driver);
            drop(driver);
            fake.assert_well_treated();
        }
    });
}

#[test]
fn no_more_pairs_are_used_than_the_device_has() {
    let pairs = |quirks: Quirks| Fake::new(quirks).bring_up_with(1514, 9, 16).unwrap().nic().pairs.len();
    assert_eq!(pairs(with_pairs(&Quirks::default())), 4);
    assert_eq!(pairs(Quirks::default()), 1, "a device without MQ");
    let without_commands = Quirks { offered: Quirks::default().offered | Features::MQ, ..Quirks::default() };
    assert_eq!(pairs(without_commands), 1, "MQ needs a control queue");
}

//= virtio §15
#[test]
fn each_pair_has_a_vector_and_there_are_fewer_pairs_if_vectors_are() {
    // Messages, pairs wanted; vectors of the configuration and of each queue.
    let cases: [(u32, u16, &[u16]); 9] = [
        (16, 4, &[0, 1, 1, 2, 2, 3, 3, 4, 4]),
        (5, 4, &[0, 1, 1, 2, 2, 3, 3, 4, 4]),
        (4, 4, &[0, 1, 1, 2, 2, 3, 3]),
        (3, 4, &[0, 1, 1, 2, 2]),
        (2, 4, &[0, 1, 1]),
        (1, 4, &[0, 0, 0]),
        (16, 2, &[0, 1, 1, 2, 2]),
        (16, 1, &[0, 1, 2]),
        (2, 1, &[0, 1, 1]),
    ];
    for (messages, wanted, expected) in cases {
        let fake = Fake::new(with_pairs(&Quirks::default()));
        let mut driver = fake.bring_up_with(1514, wanted, messages).unwrap();
        assert_eq!(fake.vectors(), expected, "{messages} messages, {wanted} pairs");
        assert_eq!(driver.nic().pairs.len(), expected.len() / 2);
    }
}

//= virtio §15
#[test]
fn device_that_refuses_vectors_is_used_with_fewer_pairs() {
    for (accepted, pairs) in [(5, 4), (4, 3), (3, 2), (2, 1), (1, 1)] {
        let fake = Fake::new(Quirks { vectors: accepted, ..with_pairs(&Quirks::default()) });
        let mut driver = fake.bring_up_with(1514, PAIRS, 16).unwrap();
        assert_eq!(driver.nic().pairs.len(), pairs, "{accepted} vectors");
        assert_eq!(set_pairs(&mut driver, pairs as u16), Ok(true));
        assert_pairs_work(&fake, &mut driver);
    }
}

#[test]
fn device_may_refuse_to_use_more_pairs_and_one_without_them_is_not_asked() {
    over_formats(|quirks| {
        let fake = Fake::new(Quirks { answer: Answer::Refused(&[4]), ..with_pairs(&quirks) });
        let mut driver = fake.bring_up_with(1514, PAIRS, 16).unwrap();
        assert_eq!(set_pairs(&mut driver, PAIRS), Ok(false));
        assert_eq!(fake.commands().len(), 1);

        let fake = Fake::new(Quirks { offered: quirks.offered | Features::CTRL_VQ, ..quirks });
        let mut driver = fake.bring_up(1514).unwrap();
        assert_eq!((set_pairs(&mut driver, 1), set_pairs(&mut driver, 2)), (Ok(true), Ok(false)));
        assert_eq!(fake.commands().len(), 0);
    });
}

//= virtio §16
#[test]
fn pairs_work_again_after_a_reset_and_a_device_that_has_others_is_refused() {
    over_formats(|quirks| {
        let fake = Fake::new(with_pairs(&quirks));
        let mut driver = fake.bring_up_with(1514, 3, 16).unwrap();
        let blocks = fake.blocks();
        for _ in 0..2 {
            assert_pairs_work(&fake, &mut driver);
            for number in 0..3 {
                assert!(fake.deliver_to(2 * number, &[7; 60]), "left behind");
            }
            driver.restart().unwrap();
            assert_eq!(fake.vectors(), [0, 1, 1, 2, 2, 3, 3]);
            assert_eq!(set_pairs(&mut driver, 3), Ok(true));
        }
        assert_eq!(fake.blocks(), blocks);
        fake.change(|quirks| quirks.vectors = 3);
        assert_eq!(driver.restart(), Err(Error::Changed));
        fake.change(|quirks| (quirks.vectors, quirks.pairs) = (16, PAIRS - 1));
        assert_eq!(driver.restart(), Err(Error::Changed));
    });
}

//= virtio §4
#[test]
fn device_that_states_no_pairs_or_more_than_there_are_queue_indices_has_one() {
    for stated in [0, 0x8000, u16::MAX] {
        let quirks = Quirks { pairs: 1, stated_pairs: Some(stated), ..with_pairs(&Quirks::default()) };
        let fake = Fake::new(quirks);
        let mut driver = fake.bring_up_with(1514, 2, 16).unwrap();
        assert_eq!(driver.nic().pairs.len(), 1, "{stated} pairs");
        drop(driver);
        fake.assert_well_treated();
    }
}

#[test]
fn pairs_for_which_there_is_memory_are_used() {
    over_formats(|quirks| {
        let needed = [1, 2, 3].map(|pairs| {
            let fake = Fake::new(with_pairs(&quirks));
            let _driver = fake.bring_up_with(1514, pairs, 16).unwrap();
            // Without the ring of the queues that are not used.
            fake.blocks() - 1
        });
        for allocations in 0..needed[2] {
            let fake = Fake::new(Quirks { allocations, ..with_pairs(&quirks) });
            let found = needed.iter().filter(|needed| allocations >= **needed).count();
            match fake.bring_up_with(1514, 3, 16) {
                Ok(mut driver) => {
                    assert!(!driver.nic().is_reduced);
                    assert_eq!(driver.nic().pairs.len(), found, "{allocations} allocations");
                    assert_eq!(usize::from(driver.nic().missing), 3 - found);
                    assert_eq!(usize::from(driver.nic().vectors.pairs), found);
                    assert_eq!(set_pairs(&mut driver, found as u16), Ok(true));
                    assert_pairs_work(&fake, &mut driver);
                }
                Err(error) => {
                    assert_eq!((error, found), (Error::NoMemory, 0), "{allocations} allocations");
                    assert_eq!(fake.status(), 0, "the device is reset");
                }
            }
            fake.assert_well_treated();
        }
    });
}

/// The queues of the pair are halved, down to few buffers.
#[test]
fn queues_are_halved_until_there_is_memory_for_them() {
    over_formats(|quirks| {
        let needed = [256, 128, 64].map(|size| {
            let fake = Fake::new(Quirks { queue_sizes: [size; 2], ..quirks.clone() });
            let _driver = fake.bring_up_with(1514, 1, 3).unwrap();
            fake.bytes()
        });
        let [whole, half, least] = needed;
        for (memory, expected) in [
            (whole, Some(256)),
            (whole - 1, Some(128)),
            (half, Some(128)),
            (half - 1, Some(64)),
            (least, Some(64)),
            (least - 1, None),
        ] {
            let fake = Fake::new(Quirks { memory, ..quirks.clone() });
            let brought_up = fake.bring_up_with(1514, 1, 3);
            let found = brought_up.as_ref().ok().and_then(|driver| driver.nic.as_ref()).map(|nic| {
                assert_eq!(nic.is_reduced, expected != Some(256));
                [nic.pairs[0].receive.size(), nic.pairs[0].transmit.size()]
            });
            assert_eq!(found, expected.map(|size| [size; 2]), "{memory} of {needed:?}");
            if let Ok(mut driver) = brought_up {
                assert_pairs_work(&fake, &mut driver);
            }
            fake.assert_well_treated();
        }
    });
}

/// QEMU's device has at most 511 pairs.
//= virtio §4
#[test]
fn queues_of_all_pairs_are_enabled_however_many_there_are_and_take_the_memory_of_one() {
    over_formats(|quirks| {
        let blocks = [3, 65, 511].map(|pairs| {
            let fake = Fake::new(Quirks { pairs, ..with_pairs(&quirks) });
            let mut driver = fake.bring_up_with(1514, 2, 16).unwrap();
            assert_eq!(fake.enabled(), 2 * usize::from(pairs) + 1);
            driver.restart().unwrap();
            assert_eq!(fake.enabled(), 2 * usize::from(pairs) + 1, "after a reset");
            assert_eq!(set_pairs(&mut driver, 2), Ok(true));
            assert_pairs_work(&fake, &mut driver);
            let blocks = fake.blocks();
            drop(driver);
            fake.assert_well_treated();
            blocks
        });
        assert_eq!(blocks, [blocks[0]; 3]);
    });
}

/// As the adapter's statistics are.
#[test]
fn counters_of_pairs_add_up() {
    let receive = |n| ReceiveCounters { frames: n, bytes: 10 * n, invalid: 100 * n, notifications: 1000 * n };
    assert_eq!([1, 2, 4].map(receive).into_iter().sum::<ReceiveCounters>(), receive(7));
    let transmit = |n| TransmitCounters {
        frames: n,
        bytes: 10 * n,
        bad_length: 100 * n,
        notifications: 1000 * n,
        suppressed: 10_000 * n,
        full: 100_000 * n,
    };
    assert_eq!([1, 2, 4].map(transmit).into_iter().sum::<TransmitCounters>(), transmit(7));
}
