// SPDX-License-Identifier: MIT OR Apache-2.0

//! A device that is used again after a reset: with the same queues, or not at all.

use crate::fake::{Driver, Fake, Quirks, over_formats};
use virtio_net::{Error, Features, RingFault};

/// Resets the device and brings it back with the queues it had.
fn reset(driver: &mut Driver) -> Result<(), Error> {
    driver.receive().stop();
    driver.transmit().stop();
    driver.restart()
}

fn send(driver: &mut Driver, byte: u8) -> bool {
    let queue = driver.transmit();
    let Some(slot) = queue.slot() else { return false };
    slot[..60].fill(byte);
    queue.commit(60);
    queue.kick();
    true
}

fn receive(driver: &mut Driver) -> Result<usize, Error> {
    let mut frames = 0;
    driver.poll(1000, |_, _| frames += 1)?;
    Ok(frames)
}

//= virtio §16
#[test]
fn queues_work_again_after_a_reset_without_new_memory() {
    over_formats(|quirks| {
        let fake = Fake::new(quirks.clone());
        let mut driver = fake.bring_up(1514).unwrap();
        let blocks = fake.blocks();
        fake.change(|quirks| quirks.allocations = 0);
        for round in 0..3 {
            // Frames in both directions are left behind.
            while send(&mut driver, 0xEE) {}
            while fake.deliver(&[0xEE; 60]) {}
            reset(&mut driver).unwrap();
            assert_eq!(fake.transmitted(), Vec::<Vec<u8>>::new(), "what was not sent is dropped");
            assert_eq!(receive(&mut driver), Ok(0), "what was not received is dropped");
            for byte in 0..=255 {
                assert!(send(&mut driver, byte), "slot {byte} of round {round}");
            }
            assert_eq!(
                fake.transmitted().iter().map(|frame| frame[0]).collect::<Vec<_>>(),
                (0..=255).collect::<Vec<_>>()
            );
            let mut delivered = 0;
            while fake.deliver(&[7; 60]) {
                delivered += 1;
            }
            assert_eq!((delivered, receive(&mut driver)), (256, Ok(256)));
        }
        assert_eq!(fake.blocks(), blocks);
        drop(driver);
        fake.assert_well_treated();
    });
}

//= virtio §16
#[test]
fn ring_that_the_device_broke_is_whole_after_a_reset() {
    over_formats(|quirks| {
        let fake = Fake::new(quirks.clone());
        let mut driver = fake.bring_up(1514).unwrap();
        fake.forge_used(crate::fake::RECEIVE, 5000, 60, 1);
        assert_eq!(receive(&mut driver), Err(Error::BrokenRing(RingFault::BadId)));
        reset(&mut driver).unwrap();
        assert!(fake.deliver(&[7; 60]));
        assert_eq!(receive(&mut driver), Ok(1));
    });
}

//= virtio §16
#[test]
fn stopped_queues_access_neither_device_nor_rings() {
    over_formats(|quirks| {
        let fake = Fake::new(quirks.clone());
        let mut driver = fake.bring_up(1514).unwrap();
        assert!(fake.deliver(&[7; 60]));
        let queue = driver.transmit();
        queue.slot().unwrap()[..60].fill(1);
        queue.commit(60);
        let before = [fake.notified(crate::fake::RECEIVE), fake.notified(crate::fake::TRANSMIT)];
        driver.receive().stop();
        driver.transmit().stop();
        driver.transmit().kick();
        assert_eq!(receive(&mut driver), Ok(0));
        assert!(!driver.receive().request_interrupt(), "no frame is pending");
        assert!(driver.transmit().slot().is_none());
        assert!(!driver.transmit().request_interrupt());
        assert_eq!([fake.notified(crate::fake::RECEIVE), fake.notified(crate::fake::TRANSMIT)], before);
    });
}

/// Nothing of the time before is left in a ring: neither a frame that was committed and not made available, nor that the device had
/// disabled notifications, nor that the driver had suppressed interrupts.
//= virtio §16
#[test]
fn rings_are_as_new_after_a_reset() {
    over_formats(|quirks| {
        for events in [Features::EVENT_IDX, Features::empty()] {
            let offered = (quirks.offered - Features::EVENT_IDX) | events;
            let is_flag = quirks.offered.contains(Features::RING_PACKED) || events.is_empty();
            let fake = Fake::new(Quirks { offered, ..quirks.clone() });
            let mut driver = fake.bring_up(1514).unwrap();
            for byte in 0..4 {
                assert!(fake.has_no_interrupt_flag(crate::fake::TRANSMIT) || !is_flag, "suppressed");
                assert!(send(&mut driver, byte));
                assert!(send(&mut driver, byte));
                // It takes one, and leaves notifications disabled.
                assert_eq!(fake.transmit(1).len(), 1);
                let queue = driver.transmit();
                queue.slot().unwrap()[..60].fill(0xEE);
                queue.commit(60);
                let before = fake.notified(crate::fake::TRANSMIT);
                reset(&mut driver).unwrap();
                assert!(fake.has_no_interrupt_flag(crate::fake::TRANSMIT) || !is_flag, "suppressed again");
                assert!(send(&mut driver, byte));
                assert_eq!(fake.notified(crate::fake::TRANSMIT), before + 1);
                assert_eq!(fake.transmitted(), [[byte; 60]]);
                // The frames behind it, too, up to the place of the one that was not made available.
                for next in 1..4 {
                    assert!(send(&mut driver, next));
                    assert_eq!(fake.transmitted(), [[next; 60]]);
                }
                assert_eq!(driver.transmit().reap(), Ok(4));
            }
        }
    });
}

//= virtio §16
#[test]
fn device_that_offers_less_after_a_reset_is_refused() {
    over_formats(|quirks| {
        let changes: [fn(&mut Quirks); 4] = [
            |quirks| quirks.offered -= Features::MTU,
            |quirks| quirks.queue_sizes = [256, 128],
            |quirks| quirks.queue_sizes = [128, 256],
            |quirks| quirks.vectors = 2,
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let fake = Fake::new(quirks.clone());
            let mut driver = fake.bring_up(1514).unwrap();
            fake.change(change);
            assert_eq!(reset(&mut driver), Err(Error::Changed), "change {number}");
            assert!(driver.transmit().slot().is_none(), "the queues stay stopped");
            assert_eq!(fake.status() & 4, 0, "the device was not started");
        }
    });
}

/// Also one that was not stopped before.
//= virtio §16
#[test]
fn queue_that_is_smaller_after_a_reset_is_stopped() {
    over_formats(|quirks| {
        for sizes in [[128, 256], [256, 128]] {
            let fake = Fake::new(quirks.clone());
            let mut driver = fake.bring_up(1514).unwrap();
            assert!(driver.receive().notify_register().is_some());
            fake.change(|quirks| quirks.queue_sizes = sizes);
            assert_eq!(driver.restart(), Err(Error::Changed));
            if sizes[0] == 128 {
                assert!(driver.receive().notify_register().is_none());
            } else {
                assert!(driver.transmit().slot().is_none());
            }
        }
    });
}

/// Additional features are not accepted: the queues were made for those accepted before.
//= virtio §16
#[test]
fn device_that_offers_more_after_a_reset_is_used_as_before() {
    over_formats(|quirks| {
        let fake = Fake::new(quirks.clone());
        let mut driver = fake.bring_up(1514).unwrap();
        fake.change(|quirks| quirks.offered |= Features::MRG_RXBUF | Features::CSUM);
        assert_eq!(reset(&mut driver), Ok(()));
        assert_eq!((fake.accepted(), driver.control.features()), (quirks.offered, quirks.offered));
        assert!(fake.deliver(&[5; 60]));
        assert_eq!(receive(&mut driver), Ok(1));
    });
}

#[test]
fn device_that_does_not_come_back_is_reported() {
    over_formats(|quirks| {
        let fake = Fake::new(quirks.clone());
        let mut driver = fake.bring_up(1514).unwrap();
        fake.change(|quirks| quirks.never_resets = true);
        assert_eq!(reset(&mut driver), Err(Error::ResetTimeout));
        assert!(!fake.has_dma());
        fake.change(|quirks| quirks.never_resets = false);
        assert_eq!(reset(&mut driver), Ok(()));
        assert!(fake.has_dma());
        fake.change(|quirks| quirks.removed = true);
        assert_eq!(reset(&mut driver), Err(Error::Removed));
        assert!(!fake.has_dma(), "registers that read all ones say nothing about memory");
        assert_eq!(reset(&mut driver), Err(Error::Removed));
    });
}
