// SPDX-License-Identifier: MIT OR Apache-2.0

//! The reset of one queue of a running device. (virtio RING_RESET)

use std::{ops::ControlFlow, time::Duration};

use crate::fake::{self, Driver, Fake, Quirks, over_formats};
use virtio_net::{Error, Features, HashTypes, MAX_HEADER_LEN, PairQueue, QueueReset};

const PAIRS: u16 = 2;
/// The numbers of the transmit queues of both pairs.
const TRANSMIT: [usize; 2] = [1, 3];
/// Those of the receive queues.
const RECEIVE: [usize; 2] = [0, 2];

/// Runs `test` with a device of two pairs that can reset queues, in each ring format.
fn with_pairs(reset: fake::QueueReset, test: impl Fn(&Fake, Driver)) {
    over_formats(|quirks| {
        let offered = quirks.offered | Features::CTRL_VQ | Features::MQ | Features::RING_RESET;
        let fake =
            Fake::new(Quirks { offered, pairs: PAIRS, vectors: 5, config_vectors: 5, reset, ..quirks });
        let driver = fake.bring_up_with(1514, PAIRS, 5).unwrap();
        test(&fake, driver);
        fake.assert_well_treated();
    });
}

fn send(driver: &mut Driver, pair: usize, byte: u8) -> bool {
    let queue = &mut driver.nic().pairs[pair].transmit;
    let Some(slot) = queue.slot() else { return false };
    slot[..60].fill(byte);
    queue.commit(60);
    queue.kick();
    true
}

/// Stops the transmit queue of a pair, resets it and programs it again once the reset has ended.
fn reset(driver: &mut Driver, pair: u16) -> Result<QueueReset, Error> {
    let Driver { nic: Some(nic), control } = driver else { panic!("a driver has queues") };
    let [_, vector] = nic.vectors.of_pair(pair);
    let queue = &mut nic.pairs[usize::from(pair)].transmit;
    queue.stop();
    let reset = control.reset_queue(PairQueue::Transmit(pair))?;
    if reset == QueueReset::Ended {
        queue.reprogram(control, vector)?;
    }
    Ok(reset)
}

fn first_bytes(fake: &Fake, pair: usize) -> Vec<u8> {
    fake.transmit_of(TRANSMIT[pair], usize::MAX).iter().map(|(_, frame)| frame[0]).collect()
}

//= virtio §16
#[test]
fn queue_that_is_reset_drops_its_frames_and_works_again_and_the_other_goes_on() {
    with_pairs(fake::QueueReset::After(Duration::from_millis(3)), |fake, mut driver| {
        let blocks = fake.blocks();
        let vectors = fake.vectors();
        fake.change(|quirks| quirks.allocations = 0);
        for pair in [1, 0, 1] {
            let other = usize::from(1 - pair);
            while send(&mut driver, pair.into(), 0xEE) {}
            assert!(send(&mut driver, other, 7));
            assert_eq!(reset(&mut driver, pair), Ok(QueueReset::Ended));
            assert_eq!(fake.queue_resets(), [TRANSMIT[usize::from(pair)]]);
            assert_eq!(first_bytes(fake, pair.into()), [0; 0], "what was not sent is dropped");
            for byte in 0..=255 {
                assert!(send(&mut driver, pair.into(), byte), "slot {byte}");
            }
            assert_eq!(first_bytes(fake, pair.into()), (0..=255).collect::<Vec<_>>());
            assert_eq!(first_bytes(fake, other), [7]);
            assert_eq!(fake.vectors(), vectors);
        }
        assert_eq!(fake.blocks(), blocks);
    });
}

//= virtio §16
#[test]
fn queue_is_not_programmed_before_its_reset_has_ended() {
    for never in [fake::QueueReset::Never, fake::QueueReset::Enabled] {
        with_pairs(never, |fake, mut driver| {
            let before = fake.elapsed();
            assert_eq!(reset(&mut driver, 1), Ok(QueueReset::Lasts { is_new: true }), "{never:?}");
            let waited = fake.elapsed().saturating_sub(before);
            assert!((1000..1100).contains(&waited.as_millis()), "{waited:?}");
            for _ in 0..3 {
                let before = fake.elapsed();
                assert_eq!(reset(&mut driver, 1), Ok(QueueReset::Lasts { is_new: false }), "{never:?}");
                let waited = fake.elapsed().saturating_sub(before);
                assert!((20..50).contains(&waited.as_millis()), "{waited:?}");
                assert!(!send(&mut driver, 1, 1), "the queue stays stopped");
                assert!(send(&mut driver, 0, 1));
            }
            assert_eq!(fake.queue_resets(), [TRANSMIT[1]], "asked for once");
            fake.end_queue_reset();
            assert_eq!(reset(&mut driver, 1), Ok(QueueReset::Ended));
            assert!(send(&mut driver, 1, 1));
            // The next one begins anew, also after a reset of the device.
            fake.change(|quirks| quirks.reset = never);
            assert_eq!(reset(&mut driver, 1), Ok(QueueReset::Lasts { is_new: true }));
            assert_eq!(fake.queue_resets(), [TRANSMIT[1]]);
            driver.restart().unwrap();
            assert_eq!(reset(&mut driver, 1), Ok(QueueReset::Lasts { is_new: true }));
            assert_eq!(fake.queue_resets(), [TRANSMIT[1]]);
        });
    }
    with_pairs(fake::QueueReset::Never, |fake, mut driver| {
        fake.change(|quirks| quirks.removed = true);
        assert_eq!(reset(&mut driver, 1), Err(Error::Removed));
        fake.change(|quirks| quirks.removed = false);
    });
}

//= virtio §16
#[test]
fn queues_of_a_device_that_does_not_offer_it_or_does_not_run_are_not_reset() {
    over_formats(|quirks| {
        let fake = Fake::new(quirks);
        let mut driver = fake.bring_up(1514).unwrap();
        assert_eq!(reset(&mut driver, 0), Err(Error::OutOfOrder));
        assert_eq!(fake.queue_resets(), [0; 0]);
    });
    with_pairs(fake::QueueReset::After(Duration::ZERO), |fake, mut driver| {
        driver.control.reset().unwrap();
        assert_eq!(driver.control.reset_queue(PairQueue::Transmit(1)), Err(Error::OutOfOrder));
        assert_eq!(fake.queue_resets(), [0; 0]);
    });
}

/// Stops the receive queue of a pair, resets it and programs it again.
fn reset_receive(driver: &mut Driver, pair: u16) -> Result<(), Error> {
    let Driver { nic: Some(nic), control } = driver else { panic!("a driver has queues") };
    let [vector, _] = nic.vectors.of_pair(pair);
    let queue = &mut nic.pairs[usize::from(pair)].receive;
    queue.stop();
    assert_eq!(control.reset_queue(PairQueue::Receive(pair))?, QueueReset::Ended);
    queue.restart(control, vector)
}

/// Polls the receive queue of a pair. Returns the first bytes of its frames.
fn received(driver: &mut Driver, pair: usize) -> Result<Vec<u8>, Error> {
    let mut first = Vec::new();
    let all = driver.nic().pairs[pair].receive.poll(u32::MAX, |frame, _| {
        first.push(frame[0]);
        ControlFlow::Continue(())
    });
    all.map(|_| first)
}

//= virtio §16
#[test]
fn receive_queue_with_a_corrupt_ring_works_again_after_its_reset_and_the_other_goes_on() {
    with_pairs(fake::QueueReset::After(Duration::from_millis(3)), |fake, mut driver| {
        let (blocks, vectors) = (fake.blocks(), fake.vectors());
        fake.change(|quirks| quirks.allocations = 0);
        for pair in [1_u16, 0, 1] {
            let (queue, other) = (RECEIVE[usize::from(pair)], RECEIVE[usize::from(1 - pair)]);
            assert!(fake.deliver_to(queue, &[0xEE; 60]) && fake.deliver_to(other, &[7; 60]));
            fake.forge_used(queue, 0x7777, 60, 1);
            assert!(received(&mut driver, pair.into()).is_err(), "the ring is corrupt");
            assert!(received(&mut driver, pair.into()).is_err(), "and stays so");
            assert_eq!(reset_receive(&mut driver, pair), Ok(()));
            assert_eq!(fake.queue_resets(), [queue]);
            assert_eq!(received(&mut driver, pair.into()), Ok(vec![]), "what it contained is lost");
            // Each of its buffers is the device's again.
            let bytes: Vec<u8> = (0..=255).collect();
            assert!(bytes.iter().all(|&byte| fake.deliver_to(queue, &[byte; 60])));
            assert!(!fake.deliver_to(queue, &[0; 60]), "there are 256");
            assert!(fake.wants_interrupt(queue));
            assert_eq!(received(&mut driver, pair.into()), Ok(bytes));
            assert_eq!(received(&mut driver, usize::from(1 - pair)), Ok(vec![7]));
            assert_eq!(fake.vectors(), vectors);
        }
        assert_eq!(fake.blocks(), blocks);
    });
}

/// The device keeps the parameters of hashes, and the driver those of the queue.
//= virtio §16
#[test]
fn hashes_are_passed_on_after_the_reset_of_a_receive_queue_as_before() {
    over_formats(|quirks| {
        let offered = quirks.offered | Features::CTRL_VQ | Features::HASH_REPORT | Features::RING_RESET;
        let fake = Fake::new(Quirks { offered, reset: fake::QueueReset::After(Duration::ZERO), ..quirks });
        let mut driver = fake.bring_up(1514).unwrap();
        for is_reported in [true, false] {
            driver.receive().report_hashes(is_reported);
            assert_eq!(reset_receive(&mut driver, 0), Ok(()));
            let mut header = [0; MAX_HEADER_LEN];
            (header[10], header[12], header[16]) = (1, 5, 1);
            fake.deliver_with(header, &[7; 60], &[MAX_HEADER_LEN + 60]);
            let mut hashes = Vec::new();
            driver.poll(100, |_, info| hashes.push(info.hash)).unwrap();
            assert_eq!(hashes, [is_reported.then_some((HashTypes::IPV4, 5))]);
        }
    });
}

/// A transmit queue with a corrupt ring is reported until it is stopped for its reset.
//= virtio §18
#[test]
fn transmit_queue_that_is_stopped_has_no_fault() {
    with_pairs(fake::QueueReset::After(Duration::ZERO), |fake, mut driver| {
        assert!(send(&mut driver, 1, 1));
        fake.forge_used(TRANSMIT[1], 0x7777, 0, 1);
        assert!(driver.nic().pairs[1].transmit.reap().is_err());
        assert!(matches!(driver.nic().pairs[1].transmit.fault(), Some(Error::BrokenRing(_))));
        driver.nic().pairs[1].transmit.stop();
        assert_eq!(driver.nic().pairs[1].transmit.fault(), None);
        assert_eq!(reset(&mut driver, 1), Ok(QueueReset::Ended));
        assert_eq!(driver.nic().pairs[1].transmit.fault(), None);
        assert!(send(&mut driver, 1, 2));
        assert_eq!(first_bytes(fake, 1), [2]);
    });
}
