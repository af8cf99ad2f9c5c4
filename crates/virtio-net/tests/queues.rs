// SPDX-License-Identifier: MIT OR Apache-2.0

//! Frames through both queues, and devices with inconsistent used rings.

use std::ops::ControlFlow;

use crate::fake::{Fake, Quirks, RECEIVE, TRANSMIT, over_formats};
use proptest::prelude::*;
use virtio_net::{Error, Features, MIN_FRAME, RingFault};

fn send(driver: &mut crate::fake::Driver, frame: &[u8]) -> bool {
    let queue = driver.transmit();
    let Some(slot) = queue.slot() else { return false };
    slot[..frame.len()].copy_from_slice(frame);
    queue.commit(frame.len());
    true
}

fn receive(driver: &mut crate::fake::Driver, budget: u32) -> Result<Vec<Vec<u8>>, Error> {
    let mut frames = Vec::new();
    driver.poll(budget, |frame, _| frames.push(frame.to_vec())).map(|_| frames)
}

#[test]
fn a_frame_is_sent_as_written() {
    over_formats(|quirks| {
        let fake = Fake::new(quirks);
        let mut driver = fake.bring_up(9014).unwrap();
        let frame: Vec<u8> = (0..9014_u32).map(|n| n as u8).collect();
        assert!(send(&mut driver, &frame));
        assert_eq!(fake.transmitted(), Vec::<Vec<u8>>::new(), "not before the kick");
        driver.transmit().kick();
        assert_eq!(fake.transmitted(), [frame]);
    });
}

//= virtio §10
#[test]
fn a_short_frame_is_padded_with_zeros() {
    over_formats(|quirks| {
        let fake = Fake::new(quirks);
        let mut driver = fake.bring_up(1514).unwrap();
        // Slots are reused: fill them with bytes that must not leak into the padding.
        for _ in 0..256 {
            assert!(send(&mut driver, &[0xAA; 1514]));
        }
        driver.transmit().kick();
        fake.transmitted();
        assert!(send(&mut driver, &[1; 20]));
        driver.transmit().kick();
        let mut expected = vec![1; 20];
        expected.resize(MIN_FRAME, 0);
        assert_eq!(fake.transmitted(), [expected]);
    });
}

#[test]
fn a_batch_is_sent_with_one_notification() {
    over_formats(|quirks| {
        let fake = Fake::new(quirks);
        let mut driver = fake.bring_up(1514).unwrap();
        for _ in 0..100 {
            assert!(send(&mut driver, &[0; 100]));
        }
        driver.transmit().kick();
        driver.transmit().kick();
        assert_eq!(fake.notified(TRANSMIT), 1);
    });
}

#[test]
fn notifications_and_suppressed_ones_are_counted() {
    over_formats(|quirks| {
        let fake = Fake::new(quirks);
        let mut driver = fake.bring_up(1514).unwrap();
        let mut kick = |frames: usize| {
            for _ in 0..frames {
                assert!(send(&mut driver, &[0; 100]));
            }
            driver.transmit().kick();
            let counters = driver.transmit().counters();
            (counters.notifications, counters.suppressed)
        };
        assert_eq!(kick(3), (1, 0));
        // The device is at work: it wants no notifications until it has found no more frames.
        assert_eq!(fake.transmit(1).len(), 1);
        assert_eq!(kick(2), (1, 1));
        assert_eq!(kick(0), (1, 1), "nothing to tell");
        assert_eq!(fake.transmitted().len(), 4);
        assert_eq!(kick(1), (2, 1));
        assert_eq!(fake.notified(TRANSMIT), 2);
    });
}

#[test]
fn a_full_queue_refuses_frames_and_requests_an_interrupt() {
    over_formats(|quirks| {
        let fake = Fake::new(quirks);
        let mut driver = fake.bring_up(1514).unwrap();
        for _ in 0..256 {
            assert!(send(&mut driver, &[0; 100]));
        }
        driver.transmit().kick();
        assert_eq!((driver.transmit().size(), driver.transmit().counters().full), (256, 0));
        assert!(!send(&mut driver, &[0; 100]));
        assert_eq!(driver.transmit().counters().full, 1);
        assert!(!driver.transmit().request_interrupt());
        // The first decision after a start always interrupts.
        fake.wants_interrupt(TRANSMIT);
        assert_eq!(fake.transmit(10).len(), 10);
        assert!(!driver.transmit().request_interrupt(), "most are not sent");
        assert_eq!(fake.transmit(181).len(), 181);
        assert!(!fake.wants_interrupt(TRANSMIT));
        assert_eq!(fake.transmit(1).len(), 1);
        assert!(fake.wants_interrupt(TRANSMIT), "192 of 256 were sent");
        assert!(send(&mut driver, &[0; 100]), "slots are free again");
        assert_eq!(driver.transmit().completed(), 192);
        assert_eq!(fake.transmit(10).len(), 10);
        assert_eq!((driver.transmit().reap(), driver.transmit().completed()), (Ok(10), 202));
    });
}

#[test]
fn a_queue_with_free_slots_requests_no_interrupt() {
    over_formats(|quirks| {
        let device = Fake::new(quirks);
        let mut driver = device.bring_up(1514).unwrap();
        assert!(driver.transmit().request_interrupt(), "all slots are free: none will become free");
        assert!(send(&mut driver, &[7; 100]));
        assert!(driver.transmit().request_interrupt(), "most slots are free");
    });
}

#[test]
fn a_late_interrupt_request_reports_completed_frames() {
    over_formats(|quirks| {
        let fake = Fake::new(quirks);
        let mut driver = fake.bring_up(1514).unwrap();
        while send(&mut driver, &[0; 100]) {}
        driver.transmit().kick();
        assert_eq!(fake.transmitted().len(), 256);
        assert!(driver.transmit().request_interrupt(), "all are back: no interrupt will follow");
    });
}

#[test]
fn received_buffers_are_made_available_again() {
    over_formats(|quirks| {
        let fake = Fake::new(quirks);
        let mut driver = fake.bring_up(1514).unwrap();
        for round in 0..2000_u32 {
            let frame: Vec<u8> = round.to_le_bytes().repeat(16);
            assert!(fake.deliver(&frame), "round {round}");
            assert_eq!(receive(&mut driver, 8).unwrap(), [frame]);
        }
        assert_eq!(driver.receive().counters().frames, 2000);
        assert_eq!(driver.receive().counters().notifications, u64::from(fake.notified(RECEIVE)));
        assert_eq!(driver.receive().size(), 256);
    });
}

/// Checked values do not change: lengths, checksums, and the payload that is copied afterwards.
#[test]
fn a_device_that_overwrites_a_returned_buffer_does_not_change_the_frame() {
    over_formats(|quirks| {
        let fake = Fake::new(quirks);
        let mut driver = fake.bring_up(9014).unwrap();
        for len in [14, 60, 1514, 9014_u32] {
            let sent: Vec<u8> = (0..len).map(|n| n as u8).collect();
            assert!(fake.deliver(&sent));
            let mut frames = 0;
            let polled = driver.poll(8, |frame, _| {
                assert_eq!(frame, sent);
                fake.overwrite_delivered(0xEE);
                assert_eq!(frame, sent);
                frames += 1;
            });
            assert_eq!((polled.map(|polled| polled.taken), frames), (Ok(1), 1));
        }
    });
}

#[test]
fn a_device_without_buffers_is_notified_of_new_ones() {
    over_formats(|quirks| {
        let fake = Fake::new(quirks);
        let mut driver = fake.bring_up(1514).unwrap();
        while fake.deliver(&[7; 64]) {}
        let before = fake.notified(RECEIVE);
        assert_eq!(receive(&mut driver, 1000).unwrap().len(), 256);
        assert_eq!(fake.notified(RECEIVE), before + 1);
        assert!(fake.deliver(&[8; 64]));
    });
}

#[test]
fn a_poll_stops_at_its_budget() {
    over_formats(|quirks| {
        let fake = Fake::new(quirks);
        let mut driver = fake.bring_up(1514).unwrap();
        for _ in 0..10 {
            assert!(fake.deliver(&[7; 64]));
        }
        let polled = driver.poll(4, |_, _| {}).unwrap();
        assert_eq!((polled.taken, polled.more), (4, true));
        let polled = driver.poll(100, |_, _| {}).unwrap();
        assert_eq!((polled.taken, polled.more), (6, false));
    });
}

#[test]
fn a_poll_stops_where_its_sink_breaks_and_the_buffers_serve_again() {
    over_formats(|quirks| {
        let fake = Fake::new(quirks);
        let mut driver = fake.bring_up(1514).unwrap();
        for turn in 0..100 {
            for number in 0..4 {
                assert!(fake.deliver(&[number; 64]), "{turn}");
            }
            let mut frames = Vec::new();
            let polled = driver.receive().poll(100, |frame, _| {
                frames.push(frame[0]);
                if frames.len() == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            assert_eq!(polled.map(|polled| (polled.taken, polled.more)), Ok((3, true)));
            let polled = driver.poll(100, |frame, _| frames.push(frame[0]));
            assert_eq!(polled.map(|polled| (polled.taken, polled.more)), Ok((1, false)));
            assert_eq!(frames, [0, 1, 2, 3]);
        }
    });
}

//= virtio §7
#[test]
fn interrupts_occur_only_when_requested() {
    over_formats(|quirks| {
        let fake = Fake::new(quirks);
        let mut driver = fake.bring_up(1514).unwrap();
        let frame = [7; 64];
        fake.deliver(&frame);
        // The first decision after a start always interrupts.
        fake.wants_interrupt(RECEIVE);
        receive(&mut driver, 10).unwrap();
        driver.receive().suppress_interrupts();
        fake.deliver(&frame);
        assert!(!fake.wants_interrupt(RECEIVE));
        assert!(driver.receive().request_interrupt(), "a frame has already arrived");
        receive(&mut driver, 10).unwrap();
        assert!(!driver.receive().request_interrupt());
        fake.deliver(&frame);
        assert!(fake.wants_interrupt(RECEIVE));
        receive(&mut driver, 10).unwrap();
        assert!(!driver.receive().request_interrupt());
        driver.receive().suppress_interrupts();
        fake.deliver(&frame);
        assert!(!fake.wants_interrupt(RECEIVE), "a request was withdrawn");
    });
}

#[test]
fn a_transmit_queue_is_idle_when_all_frames_were_sent() {
    over_formats(|quirks| {
        let fake = Fake::new(quirks);
        let mut driver = fake.bring_up(1514).unwrap();
        assert!(driver.transmit().is_idle());
        assert!(send(&mut driver, &[0; 100]));
        driver.transmit().kick();
        assert!(!driver.transmit().is_idle());
        fake.transmitted();
        assert_eq!(driver.transmit().reap(), Ok(1));
        assert!(driver.transmit().is_idle());
    });
}

/// The device may never return what it has of the queue: a watchdog of stalled queues waits for its reset.
#[test]
fn a_transmit_queue_that_was_stopped_is_not_idle() {
    over_formats(|quirks| {
        let fake = Fake::new(quirks);
        let mut driver = fake.bring_up(1514).unwrap();
        driver.transmit().stop();
        assert!(!driver.transmit().is_idle());
    });
}

#[test]
fn without_event_indices_the_flags_suppress_interrupts() {
    over_formats(|quirks| {
        let offered = quirks.offered - Features::EVENT_IDX;
        let fake = Fake::new(Quirks { offered, ..quirks });
        let mut driver = fake.bring_up(1514).unwrap();
        assert!(send(&mut driver, &[0; 100]));
        driver.transmit().kick();
        assert_eq!((fake.notified(TRANSMIT), fake.transmitted().len()), (1, 1));
        assert!(fake.deliver(&[7; 64]));
        assert_eq!(receive(&mut driver, 10).unwrap().len(), 1);
        assert!(!driver.receive().request_interrupt());
        fake.deliver(&[7; 64]);
        assert!(driver.receive().request_interrupt());
        assert_eq!(receive(&mut driver, 10).unwrap().len(), 1);
        assert!(!driver.receive().request_interrupt());
        assert!(!fake.has_no_interrupt_flag(RECEIVE));
        driver.receive().suppress_interrupts();
        assert!(fake.has_no_interrupt_flag(RECEIVE));
    });
}

#[test]
fn invalid_lengths_are_dropped_and_counted() {
    over_formats(|quirks| {
        let fake = Fake::new(quirks);
        let mut driver = fake.bring_up(1514).unwrap();
        for (id, len) in [(0, 0), (1, 12), (2, 25), (3, 1527), (4, u32::MAX)] {
            fake.forge_used(RECEIVE, id, len, 1);
        }
        assert_eq!(receive(&mut driver, 10).unwrap(), Vec::<Vec<u8>>::new());
        assert_eq!(driver.receive().counters().invalid, 5);
    });
}

//= virtio §18
#[test]
fn an_id_outside_the_ring_stops_the_queue() {
    over_formats(|quirks| {
        let fake = Fake::new(quirks);
        let mut driver = fake.bring_up(1514).unwrap();
        fake.forge_used(RECEIVE, 256, 100, 1);
        let broken = Err(Error::BrokenRing(RingFault::BadId));
        assert_eq!(receive(&mut driver, 10), broken);
        assert_eq!(receive(&mut driver, 10), broken);
    });
}

//= virtio §18
#[test]
fn a_buffer_returned_twice_stops_the_queue() {
    over_formats(|quirks| {
        let fake = Fake::new(quirks);
        let mut driver = fake.bring_up(1514).unwrap();
        assert!(send(&mut driver, &[0; 100]));
        assert!(send(&mut driver, &[0; 100]));
        driver.transmit().kick();
        fake.forge_used(TRANSMIT, 0, 0, 1);
        fake.forge_used(TRANSMIT, 0, 0, 1);
        assert_eq!(driver.transmit().reap(), Err(Error::BrokenRing(RingFault::BadId)));
    });
}

/// An interrupt requested while the queue was full is suppressed again once its slots are freed.
//= virtio §7
#[test]
fn interrupts_of_the_transmit_queue_are_suppressed_again_when_slots_are_freed() {
    over_formats(|mut quirks| {
        quirks.offered.remove(Features::EVENT_IDX);
        let fake = Fake::new(quirks);
        let mut driver = fake.bring_up(1514).unwrap();
        for _ in 0..3 {
            while send(&mut driver, &[1; 60]) {}
            driver.transmit().kick();
            assert!(fake.has_no_interrupt_flag(TRANSMIT));
            assert!(!driver.transmit().request_interrupt());
            assert!(!fake.has_no_interrupt_flag(TRANSMIT));
            assert_eq!(fake.transmitted().len(), 256);
            assert_eq!(driver.transmit().reap(), Ok(256));
            assert!(fake.has_no_interrupt_flag(TRANSMIT));
        }
    });
}

/// Indices of a split ring have 16 bits.
//= virtio §7
#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn queues_work_after_their_indices_have_passed_65535() {
    over_formats(|quirks| {
        let fake = Fake::new(quirks);
        let mut driver = fake.bring_up(1514).unwrap();
        for round in 0..66_000_u32 / 200 {
            let frame = [round.to_le_bytes()[0]; 60];
            for _ in 0..200 {
                assert!(send(&mut driver, &frame), "round {round}");
            }
            driver.transmit().kick();
            assert_eq!(fake.transmitted().len(), 200, "round {round}");
            // The index by which interrupts were suppressed at first matches once.
            assert!(!fake.wants_interrupt(TRANSMIT) || round == 65_535 / 200, "round {round}");
            assert_eq!(driver.transmit().reap(), Ok(200), "round {round}");
            assert!(!driver.receive().request_interrupt());
            for _ in 0..200 {
                assert!(fake.deliver(&frame), "round {round}");
            }
            assert!(fake.wants_interrupt(RECEIVE), "round {round}");
            driver.receive().suppress_interrupts();
            assert_eq!(receive(&mut driver, 1000).unwrap(), vec![frame.to_vec(); 200], "round {round}");
            assert!(fake.deliver(&[2; 60]));
            assert!(!fake.wants_interrupt(RECEIVE), "round {round}");
            assert_eq!(receive(&mut driver, 1000).unwrap().len(), 1);
        }
    });
}

/// The driver has added the buffer again, but not yet made it available.
//= virtio §18
#[test]
fn a_received_buffer_returned_twice_stops_the_queue() {
    over_formats(|quirks| {
        let fake = Fake::new(quirks);
        let mut driver = fake.bring_up(1514).unwrap();
        for _ in 0..3 {
            assert!(fake.deliver(&[4; 60]));
            assert_eq!(receive(&mut driver, 10), Ok(vec![vec![4; 60]]), "a buffer is used again and again");
        }
        fake.forge_used(RECEIVE, 7, 100, 1);
        fake.forge_used(RECEIVE, 7, 100, 1);
        let mut frames = 0;
        let polled = driver.poll(10, |_, _| frames += 1);
        assert_eq!((polled, frames), (Err(Error::BrokenRing(RingFault::BadId)), 1));
    });
}

//= virtio §18
#[test]
fn a_used_index_that_jumps_stops_the_queue() {
    over_formats(|quirks| {
        // A packed ring has no index.
        let is_packed = quirks.offered.contains(Features::RING_PACKED);
        let fake = Fake::new(quirks);
        let mut driver = fake.bring_up(1514).unwrap();
        if !is_packed {
            fake.forge_used(RECEIVE, 0, 100, 257);
            assert_eq!(receive(&mut driver, 10), Err(Error::BrokenRing(RingFault::IndexJump)));
        }
        fake.forge_used(TRANSMIT, 0, 100, 1);
        assert_eq!(
            driver.transmit().reap(),
            Err(Error::BrokenRing(RingFault::IndexJump)),
            "nothing was sent"
        );
    });
}

/// The index is read once for all elements before it.
//= virtio §18
#[test]
fn frames_that_were_returned_before_the_used_index_jumped_are_received() {
    let fake = Fake::new(Quirks::default());
    let mut driver = fake.bring_up(1514).unwrap();
    for id in 0..3 {
        fake.forge_used(RECEIVE, id, 100, 1);
    }
    assert_eq!(driver.poll(1, |_, _| ()).map(|polled| polled.taken), Ok(1));
    fake.forge_used(RECEIVE, 3, 100, 257);
    let mut frames = 0;
    let polled = driver.poll(10, |_, _| frames += 1);
    assert_eq!((polled, frames), (Err(Error::BrokenRing(RingFault::IndexJump)), 2));
}

/// Also of buffers that are written to the ring, but not published.
//= virtio §18
#[test]
fn a_buffer_returned_before_it_was_made_available_stops_the_queue() {
    over_formats(|quirks| {
        let fake = Fake::new(quirks);
        let mut driver = fake.bring_up(1514).unwrap();
        assert!(send(&mut driver, &[0; 100]));
        fake.forge_used(TRANSMIT, 0, 0, 1);
        assert_eq!(driver.transmit().reap(), Err(Error::BrokenRing(RingFault::IndexJump)));
    });
}

#[test]
fn a_stopped_transmit_queue_reports_its_fault_and_requests_no_interrupt() {
    over_formats(|quirks| {
        let is_packed = quirks.offered.contains(Features::RING_PACKED);
        let (id, steps, fault) =
            if is_packed { (2, 1, RingFault::BadId) } else { (0, 100, RingFault::IndexJump) };
        let fake = Fake::new(Quirks { queue_sizes: [2, 2], ..quirks });
        let mut driver = fake.bring_up(1514).unwrap();
        assert_eq!(driver.transmit().fault(), None);
        assert!(send(&mut driver, &[0; 100]));
        assert!(send(&mut driver, &[0; 100]));
        driver.transmit().kick();
        fake.forge_used(TRANSMIT, id, 0, steps);
        assert!(!send(&mut driver, &[0; 100]), "no slot is freed");
        assert_eq!(driver.transmit().fault(), Some(Error::BrokenRing(fault)));
        assert!(!driver.transmit().request_interrupt(), "the index that jumped is not a completion");
    });
}

#[test]
fn a_commit_longer_than_its_slot_is_dropped() {
    over_formats(|quirks| {
        let fake = Fake::new(quirks);
        let mut driver = fake.bring_up(1514).unwrap();
        let queue = driver.transmit();
        assert_eq!(queue.slot().unwrap().len(), 1514);
        queue.commit(1515);
        queue.commit(0);
        queue.kick();
        assert_eq!(queue.counters().bad_length, 2);
        assert!(fake.transmitted().is_empty());
    });
}

#[derive(Clone, Debug)]
enum Step {
    Send(usize),
    Kick,
    DeviceSends,
    Deliver(usize),
    Poll(u32),
}

/// Frames are shorter. Miri takes milliseconds for each byte.
const LONGEST: usize = if cfg!(miri) { 100 } else { 1514 };

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (1..LONGEST).prop_map(Step::Send),
        Just(Step::Kick),
        Just(Step::DeviceSends),
        (14..LONGEST).prop_map(Step::Deliver),
        (1_u32..40).prop_map(Step::Poll),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 64 }))]

    /// Small rings wrap many times; for any order of steps every frame arrives once, in order and intact.
    #[test]
    fn every_frame_arrives_once_and_in_order(
        steps in proptest::collection::vec(step(), 1..if cfg!(miri) { 60 } else { 600 }),
        sizes in prop::sample::select(vec![[2_u16, 4], [8, 2], [16, 16]]),
        odd in any::<bool>(),
        packed in any::<bool>(),
        event_idx in any::<bool>(),
    ) {
        // A packed ring may have any size.
        let sizes = if packed && odd { sizes.map(|size| size - 1) } else { sizes };
        let mut quirks = Quirks { queue_sizes: sizes, ..Quirks::default() };
        quirks.offered.set(Features::EVENT_IDX, event_idx);
        quirks.offered.set(Features::RING_PACKED, packed);
        let fake = Fake::new(quirks);
        let mut driver = fake.bring_up(1514).unwrap();
        let (mut sent, mut seen, mut delivered, mut received) = (vec![], vec![], vec![], vec![]);
        let frame = |seed: usize, len: usize| (0..len).map(|n| (n * 7 + seed) as u8).collect::<Vec<u8>>();
        for (seed, step) in steps.iter().enumerate() {
            match *step {
                Step::Send(len) => {
                    let mut frame = frame(seed, len);
                    if send(&mut driver, &frame) {
                        frame.resize(len.max(MIN_FRAME), 0);
                        sent.push(frame);
                    }
                }
                Step::Kick => driver.transmit().kick(),
                Step::DeviceSends => seen.extend(fake.transmitted()),
                Step::Deliver(len) => {
                    let frame = frame(seed, len);
                    if fake.deliver(&frame) {
                        delivered.push(frame);
                    }
                }
                Step::Poll(budget) => received.extend(receive(&mut driver, budget).unwrap()),
            }
        }
        driver.transmit().kick();
        seen.extend(fake.transmitted());
        received.extend(receive(&mut driver, 1000).unwrap());
        prop_assert_eq!(seen, sent);
        prop_assert_eq!(received, delivered);
        drop(driver);
        fake.assert_well_treated();
    }
}
