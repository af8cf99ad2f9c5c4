// SPDX-License-Identifier: MIT OR Apache-2.0

//! Frames that continue in further receive buffers, and devices that lie about their number and lengths.

use crate::fake::{Driver, Fake, Quirks, over_formats};
use virtio_net::{Error, Features, HEADER_LEN, RingFault};

/// Longest frame of the tests, and the length of a receive buffer for such frames.
const LONGEST: usize = 9014;
const BUFFER: usize = 4608;

fn with_merging(test: impl Fn(&Fake, Driver)) {
    over_formats(|quirks| {
        let offered = quirks.offered | Features::MRG_RXBUF;
        let fake = Fake::new(Quirks { offered, ..quirks });
        let driver = fake.bring_up(LONGEST).unwrap();
        test(&fake, driver);
        fake.assert_well_treated();
    });
}

fn frame(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 7 + n / 256) as u8).collect()
}

/// Delivers a frame as a device does.
fn deliver(fake: &Fake, frame: &[u8]) {
    let total = HEADER_LEN + frame.len();
    let parts: Vec<_> = (0..total).step_by(BUFFER).map(|at| BUFFER.min(total - at)).collect();
    fake.deliver_in(frame, &parts, parts.len() as u16);
}

fn receive(driver: &mut Driver, budget: u32) -> Result<(Vec<Vec<u8>>, u32), Error> {
    let mut frames = Vec::new();
    let polled = driver.poll(budget, |frame, _| frames.push(frame.to_vec()))?;
    Ok((frames, polled.taken))
}

fn bad_lengths(driver: &mut Driver) -> u64 {
    driver.receive().counters().invalid
}

//= virtio §10
#[test]
fn frame_in_several_buffers_is_received_whole() {
    with_merging(|fake, mut driver| {
        // Around the end of the first buffer, and the longest one; often enough for the ring to wrap.
        for _ in 0..150 {
            let frames = [60, 4595, 4596, 4597, LONGEST, 14].map(frame);
            for frame in &frames {
                deliver(fake, frame);
            }
            let (received, taken) = receive(&mut driver, 100).unwrap();
            assert!(received == frames, "each frame arrives whole");
            assert_eq!(taken, 8);
        }
        let counters = driver.receive().counters();
        assert_eq!((counters.frames, counters.bytes), (900, 150 * (60 + 4595 + 4596 + 4597 + 9014 + 14)));
        assert_eq!(bad_lengths(&mut driver), 0);
    });
}

#[test]
fn frame_is_finished_beyond_the_budget() {
    with_merging(|fake, mut driver| {
        (0..3).for_each(|_| deliver(fake, &frame(LONGEST)));
        let (received, taken) = receive(&mut driver, 3).unwrap();
        assert_eq!((received.len(), taken), (2, 4));
        assert_eq!(receive(&mut driver, 3).unwrap().0.len(), 1);
    });
}

//= virtio §18
#[test]
fn frame_without_the_buffers_that_it_names_breaks_the_ring() {
    for (parts, count) in [(1, 0), (1, 2), (2, 3), (1, 256), (1, 257), (1, u16::MAX)] {
        with_merging(|fake, mut driver| {
            deliver(fake, &frame(60));
            fake.deliver_in(&frame(1000), &[500, 512][..parts], count);
            let mut frames = 0;
            let polled = driver.poll(100, |_, _| frames += 1);
            assert_eq!((polled, frames), (Err(Error::BrokenRing(RingFault::BadBufferCount)), 1), "{count}");
            let again = receive(&mut driver, 100);
            assert_eq!(again.err(), Some(Error::BrokenRing(RingFault::BadBufferCount)));
        });
    }
}

//= virtio §18
#[test]
fn frame_with_an_invalid_length_is_dropped_with_all_its_buffers() {
    with_merging(|fake, mut driver| {
        for parts in [
            // Too long for a frame, and for a buffer.
            &[BUFFER, BUFFER, BUFFER][..],
            &[BUFFER, BUFFER + 1],
            &[BUFFER / 2, BUFFER + 1],
            &[BUFFER + 1, 100],
            &[BUFFER, u32::MAX as usize],
            // Shorter than the headers.
            &[HEADER_LEN, 13],
        ] {
            let before = bad_lengths(&mut driver);
            fake.deliver_in(&frame(LONGEST), parts, parts.len() as u16);
            deliver(fake, &frame(LONGEST));
            let (received, taken) = receive(&mut driver, 100).unwrap();
            assert!(received == [frame(LONGEST)], "{parts:?}");
            assert_eq!(taken as usize, parts.len() + 2);
            assert_eq!(bad_lengths(&mut driver), before + 1);
        }
    });
}

#[test]
fn buffers_hold_the_longest_frame_without_the_feature_or_if_it_is_short() {
    // A block of memory for a ring and its buffers is at most 64 KiB.
    let blocks = |offered: Features, frame: usize| {
        let fake = Fake::new(Quirks { offered, ..Quirks::default() });
        let driver = fake.bring_up(frame).unwrap();
        let blocks = fake.blocks();
        drop(driver);
        blocks
    };
    let without = Quirks::default().offered;
    let with = without | Features::MRG_RXBUF;
    assert_eq!(blocks(with, 1514), blocks(without, 1514));
    // 256 buffers in blocks of 14 instead of 7.
    assert_eq!(blocks(without, LONGEST) - blocks(with, LONGEST), 37 - 19);
}
