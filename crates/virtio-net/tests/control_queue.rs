// SPDX-License-Identifier: MIT OR Apache-2.0

//! Commands of the control queue, and devices that refuse or do not answer them.

use std::time::Duration;

use crate::fake::{Answer, CONTROL, Driver, Fake, Quirks, TICK, over_formats};
use virtio_net::{Error, Features, InterruptCoalescing, ReceiveMode, RingFault};

const GROUPS: [[u8; 6]; 2] = [[1, 0, 0x5E, 0, 0, 1], [0x33, 0x33, 0, 0, 0, 1]];
const STATION: [u8; 6] = [2, 0, 0, 0, 0, 7];
const DIRECTED: ReceiveMode<'_> =
    ReceiveMode { promiscuous: false, all_multicast: false, station: None, multicast: &[], vlan: None };

/// Runs `test` with a device with receive filters, in each ring format, with and without indirect descriptors.
fn with_filters(answer: Answer, test: impl Fn(&Fake, Driver)) {
    over_formats(|quirks| {
        for tables in [Features::empty(), Features::INDIRECT_DESC] {
            let filters = Features::CTRL_VQ | Features::CTRL_RX | Features::CTRL_MAC_ADDR;
            let fake =
                Fake::new(Quirks { offered: quirks.offered | filters | tables, answer, ..quirks.clone() });
            let driver = fake.bring_up(1514).unwrap();
            test(&fake, driver);
            fake.assert_well_treated();
        }
    });
}

fn set(driver: &mut Driver, mode: &ReceiveMode<'_>) -> Result<bool, Error> {
    driver.nic().commands.as_mut().unwrap().set_receive_mode(mode, |waited| waited < Duration::from_secs(2))
}

fn table(unicast: &[[u8; 6]], multicast: &[[u8; 6]]) -> Vec<u8> {
    let list = |addresses: &[[u8; 6]]| {
        [&(addresses.len() as u32).to_le_bytes()[..], addresses.as_flattened()].concat()
    };
    [vec![1, 0], list(unicast), list(multicast)].concat()
}

//= virtio §12
#[test]
fn receive_mode_is_sent_as_filters_and_then_promiscuous_mode_off() {
    with_filters(Answer::Ok, |fake, mut driver| {
        // More commands than the ring has descriptors.
        for _ in 0..20 {
            assert_eq!(set(&mut driver, &ReceiveMode { multicast: &GROUPS, ..DIRECTED }), Ok(true));
            assert_eq!(fake.commands(), [table(&[], &GROUPS), vec![0, 1, 0], vec![0, 0, 0]]);
        }
        assert_eq!(set(&mut driver, &ReceiveMode { all_multicast: true, ..DIRECTED }), Ok(true));
        assert_eq!(fake.commands(), [table(&[], &[]), vec![0, 1, 1], vec![0, 0, 0]]);
        assert_eq!(set(&mut driver, &ReceiveMode { promiscuous: true, ..DIRECTED }), Ok(true));
        assert_eq!(fake.commands(), [[0, 0, 1]]);
    });
}

//= virtio §12
#[test]
fn station_address_is_set_before_it_is_filtered_for() {
    with_filters(Answer::Ok, |fake, mut driver| {
        assert_eq!(set(&mut driver, &ReceiveMode { station: Some(STATION), ..DIRECTED }), Ok(true));
        let address = [&[1, 1][..], &STATION].concat();
        assert_eq!(fake.commands(), [address, table(&[STATION], &[]), vec![0, 1, 0], vec![0, 0, 0]]);
    });
}

/// IDs that change take a command each: those to add first.
//= virtio §12
#[test]
fn vlans_are_added_before_the_device_filters_and_others_deleted_afterwards() {
    over_formats(|quirks| {
        let offered = quirks.offered | Features::CTRL_VQ | Features::CTRL_RX | Features::CTRL_VLAN;
        let fake = Fake::new(Quirks { offered, ..quirks });
        let mut driver = fake.bring_up(1514).unwrap();
        let mut commands = |vlan, promiscuous| {
            assert_eq!(set(&mut driver, &ReceiveMode { vlan, promiscuous, ..DIRECTED }), Ok(true));
            let mut commands = fake.commands();
            let others = commands.iter().position(|command| command[0] != 2).unwrap();
            commands.truncate(others);
            commands
        };
        assert_eq!(commands(Some(5), false), [[2, 0, 5, 0]]);
        assert_eq!(commands(Some(5), false), [[0; 0]; 0]);
        assert_eq!(commands(Some(0x123), false), [[2, 0, 0x23, 1], [2, 1, 5, 0]]);
        assert_eq!(commands(None, true), [[0; 0]; 0], "promiscuous: no filter applies");
        let all = commands(None, false);
        let ids: Vec<_> = all.iter().map(|command| u16::from_le_bytes([command[2], command[3]])).collect();
        assert!(all.iter().all(|command| command[..2] == [2, 0]));
        assert_eq!(ids, (0..4095).filter(|&id| id != 0x123).collect::<Vec<_>>());
        let one = commands(Some(5), false);
        assert!(one.len() == 4094 && one.iter().all(|command| command[..2] == [2, 1]));
        assert!(!one.contains(&vec![2, 1, 5, 0]));
        drop(driver);
        fake.assert_well_treated();
    });
}

/// The device may filter by any part of the IDs then.
//= virtio §12
#[test]
fn vlans_are_all_added_again_after_the_device_has_refused_to_delete_one() {
    over_formats(|quirks| {
        let offered = quirks.offered | Features::CTRL_VQ | Features::CTRL_RX | Features::CTRL_VLAN;
        let fake = Fake::new(Quirks { offered, ..quirks });
        let mut driver = fake.bring_up(1514).unwrap();
        assert_eq!(set(&mut driver, &DIRECTED), Ok(true));
        fake.commands();
        fake.change(|quirks| quirks.answer = Answer::Refused(&[2, 1, 10, 0]));
        assert_eq!(set(&mut driver, &ReceiveMode { vlan: Some(5), ..DIRECTED }), Ok(false));
        let deleted = |id: u8| vec![2, 1, id, 0];
        let expected = [0, 1, 2, 3, 4, 6, 7, 8, 9, 10].map(deleted);
        assert_eq!(fake.commands(), [&expected[..], &[vec![0, 0, 1]]].concat());
        assert_eq!(set(&mut driver, &DIRECTED), Ok(true));
        let added = fake.commands().into_iter().filter(|command| command[..2] == [2, 0]);
        let ids: Vec<_> = added.map(|command| u16::from_le_bytes([command[2], command[3]])).collect();
        assert_eq!(ids, (0..4095).collect::<Vec<_>>());
        drop(driver);
        fake.assert_well_treated();
    });
}

/// A command for each of 4095 VLANs, each of which takes a tick of the clock, would take a minute.
//= virtio §12
#[test]
fn device_that_answers_slowly_delivers_every_frame_instead_of_those_of_all_vlans() {
    over_formats(|quirks| {
        let offered = quirks.offered | Features::CTRL_VQ | Features::CTRL_RX | Features::CTRL_VLAN;
        // Of answers that take one tick of the clock one comes at the limit itself, of those that take three none does.
        for (answer_time, added) in [(10, 65), (40, 22)] {
            let answer_time = Duration::from_millis(answer_time);
            let fake = Fake::new(Quirks { offered, answer_time, ..quirks.clone() });
            let mut driver = fake.bring_up(1514).unwrap();
            assert_eq!(set(&mut driver, &ReceiveMode { vlan: Some(5), ..DIRECTED }), Ok(true));
            fake.commands();
            let before = fake.elapsed();
            assert_eq!(set(&mut driver, &ReceiveMode { vlan: None, ..DIRECTED }), Ok(false));
            let took = fake.elapsed().saturating_sub(before).as_millis();
            assert!((1000..1200).contains(&took), "{took} ms");
            let commands = fake.commands();
            assert_eq!(commands.iter().filter(|command| command.starts_with(&[2, 0])).count(), added);
            assert_eq!(commands.last(), Some(&vec![0, 0, 1]), "promiscuous mode");
            drop(driver);
            fake.assert_well_treated();
        }
    });
}

#[test]
fn without_the_feature_no_filter_is_sent() {
    let offered = Quirks::default().offered | Features::CTRL_VQ;
    let fake = Fake::new(Quirks { offered, ..Quirks::default() });
    let mut driver = fake.bring_up(1514).unwrap();
    assert_eq!(set(&mut driver, &ReceiveMode { station: Some(STATION), ..DIRECTED }), Ok(false));
    assert_eq!(fake.notified(CONTROL), 0);
    let fake = Fake::new(Quirks::default());
    assert!(fake.bring_up(1514).unwrap().nic().commands.is_none(), "a device without control queue");
    // Filters depend on the control queue.
    let offered = Quirks::default().offered | Features::CTRL_RX | Features::CTRL_MAC_ADDR;
    let fake = Fake::new(Quirks { offered, ..Quirks::default() });
    let mut driver = fake.bring_up(1514).unwrap();
    assert!(driver.nic().commands.is_none());
    assert_eq!(fake.accepted(), Quirks::default().offered);
}

#[test]
fn device_that_refuses_a_filter_delivers_every_frame() {
    let station = ReceiveMode { station: Some(STATION), ..DIRECTED };
    for (refused, sent) in [(&[1, 1][..], 1), (&[1, 0], 2), (&[0, 1], 3), (&[0, 0, 0], 4)] {
        with_filters(Answer::Refused(refused), |fake, mut driver| {
            assert_eq!(set(&mut driver, &station), Ok(false), "{refused:?}");
            let commands = fake.commands();
            assert_eq!((commands.len(), commands.last().unwrap()), (sent + 1, &vec![0, 0, 1]));
        });
    }
    // A device that does not filter yet need not be asked to stop.
    with_filters(Answer::Refused(&[0]), |_, mut driver| {
        assert_eq!(set(&mut driver, &DIRECTED), Ok(false));
    });
    with_filters(Answer::RefusedAfter(3), |_, mut driver| {
        assert_eq!(set(&mut driver, &DIRECTED), Ok(true));
        assert_eq!(set(&mut driver, &DIRECTED), Err(Error::CommandRefused));
    });
}

#[test]
fn command_that_is_returned_without_an_answer_counts_as_refused() {
    with_filters(Answer::Unwritten, |fake, mut driver| {
        assert_eq!(set(&mut driver, &DIRECTED), Ok(false));
        assert_eq!(fake.commands(), [table(&[], &[]), vec![0, 0, 1]]);
    });
}

/// Each command of a device model on the same machine, which answers in some ten microseconds, would take a tick of the clock.
#[test]
fn answer_that_comes_soon_is_not_slept_for() {
    over_formats(|quirks| {
        let offered = quirks.offered | Features::CTRL_VQ | Features::CTRL_RX | Features::CTRL_MAC_ADDR;
        let fake = Fake::new(Quirks { offered, answer_time: Duration::from_micros(100), ..quirks });
        let mut driver = fake.bring_up(1514).unwrap();
        assert_eq!(set(&mut driver, &DIRECTED), Ok(true));
        assert_eq!(fake.commands().len(), 3);
        assert!((300..400).contains(&fake.elapsed().as_micros()), "{:?}", fake.elapsed());
        drop(driver);
        fake.assert_well_treated();
    });
}

/// Between the short waits and the limit, the thread sleeps.
#[test]
fn answer_that_comes_late_is_slept_for() {
    over_formats(|quirks| {
        let offered = quirks.offered | Features::CTRL_VQ | Features::CTRL_RX;
        let fake = Fake::new(Quirks { offered, answer_time: Duration::from_millis(100), ..quirks });
        let mut driver = fake.bring_up(1514).unwrap();
        assert_eq!(set(&mut driver, &DIRECTED), Ok(true));
        assert!((300..400).contains(&fake.elapsed().as_millis()), "{:?}", fake.elapsed());
        assert_eq!(fake.elapsed().as_nanos() % u128::from(TICK), 0, "the thread woke with a tick");
        drop(driver);
        fake.assert_well_treated();
    });
}

#[test]
fn command_without_an_answer_is_waited_for_as_long_as_the_caller_wants_and_none_follows_it_until_a_reset() {
    with_filters(Answer::Never, |fake, mut driver| {
        assert_eq!(set(&mut driver, &DIRECTED), Err(Error::OutOfOrder));
        let elapsed = fake.elapsed();
        assert!((2000..2020).contains(&elapsed.as_millis()), "{elapsed:?}");
        assert_eq!(set(&mut driver, &DIRECTED), Err(Error::OutOfOrder));
        assert_eq!((fake.elapsed(), fake.commands().len()), (elapsed, 1), "at once");

        fake.change(|quirks| quirks.answer = Answer::Ok);
        driver.receive().stop();
        driver.transmit().stop();
        driver.nic().commands.as_mut().unwrap().stop();
        assert_eq!(set(&mut driver, &DIRECTED), Err(Error::OutOfOrder), "stopped");
        driver.restart().unwrap();
        assert_eq!(set(&mut driver, &DIRECTED), Ok(true));
    });
}

#[test]
fn wait_for_an_answer_ends_with_the_device() {
    with_filters(Answer::Never, |_, mut driver| {
        let mut left = 3;
        let alive = |_| {
            left -= 1;
            left > 0
        };
        let commands = driver.nic().commands.as_mut().unwrap();
        assert_eq!(commands.set_receive_mode(&DIRECTED, alive), Err(Error::OutOfOrder));
    });
}

#[test]
fn device_that_does_not_run_gets_no_command() {
    with_filters(Answer::Ok, |fake, mut driver| {
        let refused = driver.nic().commands.as_mut().unwrap().set_receive_mode(&DIRECTED, |_| false);
        assert_eq!((refused, fake.notified(CONTROL)), (Err(Error::OutOfOrder), 0));
    });
}

#[test]
fn stopped_control_queue_sends_no_command() {
    with_filters(Answer::Ok, |fake, mut driver| {
        driver.nic().commands.as_mut().unwrap().stop();
        assert_eq!((set(&mut driver, &DIRECTED), fake.notified(CONTROL)), (Err(Error::OutOfOrder), 0));
    });
}

/// A device that was reset has no VLANs in its filter.
//= virtio §16
#[test]
fn vlans_are_added_again_after_a_reset() {
    over_formats(|quirks| {
        let offered = quirks.offered | Features::CTRL_VQ | Features::CTRL_RX | Features::CTRL_VLAN;
        let fake = Fake::new(Quirks { offered, ..quirks });
        let mut driver = fake.bring_up(1514).unwrap();
        for _ in 0..2 {
            assert_eq!(set(&mut driver, &ReceiveMode { vlan: Some(5), ..DIRECTED }), Ok(true));
            assert_eq!(fake.commands()[0], [2, 0, 5, 0]);
            driver.restart().unwrap();
        }
        drop(driver);
        fake.assert_well_treated();
    });
}

#[test]
fn answer_to_a_command_that_was_not_sent_breaks_the_ring() {
    with_filters(Answer::BadId, |_, mut driver| {
        assert_eq!(set(&mut driver, &DIRECTED), Err(Error::BrokenRing(RingFault::BadId)));
    });
}

#[test]
fn control_queue_without_room_for_a_command_is_refused() {
    for (size, error) in [(0, Error::NoQueue(2)), (1, Error::BadQueueSize(1))] {
        // Nor is a table longer than the queue.
        for tables in [Features::empty(), Features::INDIRECT_DESC] {
            over_formats(|quirks| {
                let offered = quirks.offered | Features::CTRL_VQ | tables;
                let fake = Fake::new(Quirks { offered, control_size: size, ..quirks });
                assert_eq!(fake.bring_up(1514).err(), Some(error));
                fake.assert_well_treated();
            });
        }
    }
}

/// A command has two parts. A table takes one descriptor, also in the longest command and around the ring.
//= virtio §6
#[test]
fn control_queue_of_two_descriptors_is_enough_for_a_device_with_tables() {
    over_formats(|quirks| {
        let offered = quirks.offered | Features::CTRL_VQ | Features::CTRL_RX | Features::INDIRECT_DESC;
        let fake = Fake::new(Quirks { offered, control_size: 2, ..quirks });
        let mut driver = fake.bring_up(1514).unwrap();
        let groups = [GROUPS[0]; 64];
        for _ in 0..5 {
            assert_eq!(set(&mut driver, &ReceiveMode { multicast: &groups, ..DIRECTED }), Ok(true));
            assert_eq!(fake.commands(), [table(&[], &groups), vec![0, 1, 0], vec![0, 0, 0]]);
        }
        driver.restart().unwrap();
        assert_eq!(set(&mut driver, &DIRECTED), Ok(true));
        assert_eq!(fake.commands(), [table(&[], &[]), vec![0, 1, 0], vec![0, 0, 0]]);
        drop(driver);
        fake.assert_well_treated();
    });
}

/// After a reset the device delivers every frame, so that filters which it refuses are not needed.
//= virtio §16
#[test]
fn device_that_refuses_filters_after_a_reset_is_used_without() {
    with_filters(Answer::Ok, |fake, mut driver| {
        assert_eq!(set(&mut driver, &DIRECTED), Ok(true));
        fake.change(|quirks| quirks.answer = Answer::Refused(&[0]));
        assert_eq!(set(&mut driver, &DIRECTED), Err(Error::CommandRefused), "it filters already");
        driver.restart().unwrap();
        assert_eq!(set(&mut driver, &DIRECTED), Ok(false));
    });
}

//= virtio §16
#[test]
fn device_whose_control_queue_is_smaller_after_a_reset_is_refused() {
    with_filters(Answer::Ok, |fake, mut driver| {
        assert_eq!(driver.restart(), Ok(()));
        fake.change(|quirks| quirks.control_size = 4);
        assert_eq!(driver.restart(), Err(Error::Changed));
    });
}

/// The control queue follows the pairs. What is left of the queue must not access one of another number.
//= virtio §16
#[test]
fn control_queue_that_has_another_number_after_a_reset_sends_no_command() {
    over_formats(|quirks| {
        let offered = quirks.offered | Features::CTRL_VQ | Features::CTRL_RX | Features::MQ;
        let fake = Fake::new(Quirks { offered, pairs: 2, ..quirks });
        let mut driver = fake.bring_up_with(1514, 2, 5).unwrap();
        fake.change(|quirks| quirks.pairs = 3);
        driver.control.renegotiate().unwrap();
        let Driver { nic: Some(nic), control } = &mut driver else { panic!("a driver has queues") };
        let commands = nic.commands.as_mut().unwrap();
        assert_eq!(commands.reprogram(control), Err(Error::Changed));
        let before = fake.elapsed();
        assert_eq!(set(&mut driver, &DIRECTED), Err(Error::OutOfOrder));
        assert_eq!(fake.elapsed(), before, "no answer was waited for");
    });
}

/// VIRTIO_NET_CTRL_ANNOUNCE_ACK.
//= virtio §12
#[test]
fn announcement_is_acknowledged_by_one_command_and_a_refusal_is_reported() {
    const ACKNOWLEDGE: [u8; 2] = [3, 0];
    let acknowledge = |driver: &mut Driver, is_alive: bool| {
        driver
            .nic()
            .commands
            .as_mut()
            .unwrap()
            .acknowledge_announcement(|waited| is_alive && waited < Duration::from_secs(2))
    };
    for (answer, expected) in [
        (Answer::Ok, Ok(true)),
        (Answer::Refused(&ACKNOWLEDGE), Ok(false)),
        (Answer::Unwritten, Ok(false)),
        (Answer::Never, Err(Error::OutOfOrder)),
        (Answer::BadId, Err(Error::BrokenRing(RingFault::BadId))),
    ] {
        with_filters(answer, |fake, mut driver| {
            assert_eq!(acknowledge(&mut driver, true), expected, "{answer:?}");
            assert_eq!(fake.commands(), [ACKNOWLEDGE.to_vec()]);
        });
    }
    with_filters(Answer::Ok, |fake, mut driver| {
        for _ in 0..3 {
            assert_eq!(acknowledge(&mut driver, true), Ok(true));
        }
        assert_eq!(fake.commands().len(), 3);
    });
}

/// Has the device coalesce the interrupts of the pairs that are `true`. Returns the answer, and the commands.
fn coalesced(fake: &Fake, driver: &mut Driver, pairs: [bool; 3]) -> (Result<bool, Error>, Vec<Vec<u8>>) {
    let coalescing = InterruptCoalescing { max_packets: 0x1234, max_usecs: 0x5678 };
    let commands = driver.nic().commands.as_mut().unwrap();
    let answer = commands.coalesce_receive_interrupts(coalescing, pairs.into_iter(), |_| true);
    (answer, fake.commands())
}

/// Parameters of the test, or those of a device after its reset.
fn parameters(command: &[u8], are_set: bool) -> Vec<u8> {
    let parameters = if are_set { [0x34, 0x12, 0, 0, 0x78, 0x56, 0, 0] } else { [0; 8] };
    [command, &parameters].concat()
}

//= virtio §12
#[test]
fn interrupts_are_coalesced_by_a_command_for_each_queue_that_changes() {
    over_formats(|quirks| {
        let both = Features::CTRL_VQ | Features::INTERRUPT_COALESCING;
        let fake = Fake::new(Quirks { offered: quirks.offered | both, ..quirks });
        let mut driver = fake.bring_up(1514).unwrap();
        let of = |queue, are_set| parameters(&[6, 2, queue, 0, 0, 0], are_set);
        assert_eq!(coalesced(&fake, &mut driver, [false; 3]), (Ok(true), vec![]), "as after a reset");
        let set = coalesced(&fake, &mut driver, [true, false, true]);
        assert_eq!(set, (Ok(true), vec![of(0, true), of(4, true)]));
        let set = coalesced(&fake, &mut driver, [true, true, false]);
        assert_eq!(set, (Ok(true), vec![of(2, true), of(4, false)]));
        let set = coalesced(&fake, &mut driver, [true, true, false]);
        assert_eq!(set, (Ok(true), vec![]), "nothing changes");
        for pair in [1, 2, 64, u16::MAX] {
            driver.nic().commands.as_mut().unwrap().receive_queue_was_reset(pair);
        }
        let set = coalesced(&fake, &mut driver, [true, true, false]);
        assert_eq!(set, (Ok(true), vec![of(2, true)]), "a queue that was reset has lost it");
        driver.restart().unwrap();
        assert_eq!(coalesced(&fake, &mut driver, [true, false, false]), (Ok(true), vec![of(0, true)]));
        fake.change(|quirks| quirks.answer = Answer::Refused(&[6]));
        for _ in 0..2 {
            let set = coalesced(&fake, &mut driver, [false; 3]);
            assert_eq!(set, (Ok(false), vec![of(0, false)]), "the device goes on as before");
        }
    });
}

//= virtio §12
#[test]
fn interrupts_of_all_receive_queues_are_coalesced_by_one_command() {
    for (feature, has_command) in [(Features::NOTF_COAL, true), (Features::empty(), false)] {
        let quirks = Quirks::default();
        let fake = Fake::new(Quirks { offered: quirks.offered | Features::CTRL_VQ | feature, ..quirks });
        let mut driver = fake.bring_up(1514).unwrap();
        let mut check = |pairs, sent: Option<bool>| {
            // The parameters are those of all queues: a reset of one changes nothing.
            driver.nic().commands.as_mut().unwrap().receive_queue_was_reset(1);
            let sent = sent.filter(|_| has_command).map(|are_set| parameters(&[6, 1], are_set));
            let expected = (Ok(has_command), sent.into_iter().collect());
            assert_eq!(coalesced(&fake, &mut driver, pairs), expected);
        };
        check([false; 3], None);
        check([false, true, false], Some(true));
        check([true, true, false], None);
        check([false; 3], Some(false));
    }
}
