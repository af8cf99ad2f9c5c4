// SPDX-License-Identifier: MIT OR Apache-2.0

//! Driver and device on two threads: frames arrive unchanged, and each side wakes the other. Miri reports an access to a buffer or a descriptor
//! as a data race unless the rings order it after the other side's access. In Miri a load may also return what a store has just replaced.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use crate::fake::{Fake, Quirks, RECEIVE, TRANSMIT, over_formats};
use virtio_net::Features;

const FRAMES: u32 = if cfg!(miri) { 12 } else { 200 };
/// How often a waiting thread looks before it lets others run: natively often, so that both sides act at the same time.
const LOOKS: u32 = if cfg!(miri) { 1 } else { 1000 };

fn frame(number: u32) -> Vec<u8> {
    number.to_le_bytes().repeat(16)
}

fn wait(event: &str, mut has_occurred: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !(0..LOOKS).any(|_| has_occurred()) {
        assert!(Instant::now() < deadline, "waits forever for {event}");
        thread::yield_now();
    }
}

/// The device: sends each frame back. When it has no more, it waits for a notification.
fn send_back(fake: &Fake, interrupts: &AtomicU32) {
    let (mut count, mut handled) = (0, 0);
    while count < FRAMES {
        wait("a notification", || fake.notified(TRANSMIT) != handled);
        handled = fake.notified(TRANSMIT);
        while let Some(frame) = fake.transmit(1).pop() {
            wait("a buffer", || fake.deliver(&frame));
            if fake.wants_interrupt(RECEIVE) {
                // Relaxed: the interrupt orders nothing, so that only the ring does.
                interrupts.fetch_add(1, Relaxed);
            }
            count += 1;
        }
    }
}

/// The driver sends a few frames at a time, and waits for an interrupt when a poll finds no frame. Each side goes idle while the other one may
/// pass frames to it.
//= virtio §7
#[test]
fn driver_and_device_wake_each_other_and_pass_frames_unchanged() {
    over_formats(|quirks| {
        for event_idx in [false, true] {
            let mut quirks = Quirks { queue_sizes: [8, 4], ..quirks.clone() };
            quirks.offered.set(Features::EVENT_IDX, event_idx);
            let fake = Fake::new(quirks);
            let mut driver = fake.bring_up(64).unwrap();
            let interrupts = AtomicU32::new(0);
            thread::scope(|threads| {
                threads.spawn(|| send_back(&fake, &interrupts));
                let (mut sent, mut received) = (0, 0);
                while received < FRAMES {
                    if sent == received {
                        for _ in 0..(1 + sent % 3).min(FRAMES - sent) {
                            driver.transmit().slot().unwrap().copy_from_slice(&frame(sent));
                            driver.transmit().commit(64);
                            sent += 1;
                        }
                        driver.transmit().kick();
                    }
                    let polled = driver.poll(8, |bytes, _| {
                        assert_eq!(bytes, frame(received));
                        received += 1;
                    });
                    let handled = interrupts.load(Relaxed);
                    if polled.unwrap().taken == 0 && !driver.receive().request_interrupt() {
                        wait("an interrupt", || interrupts.load(Relaxed) != handled);
                        driver.receive().suppress_interrupts();
                    }
                }
            });
            drop(driver);
            fake.assert_well_treated();
        }
    });
}
