// SPDX-License-Identifier: MIT OR Apache-2.0

//! Notification and interrupt suppression, with the memory barriers it needs. (virtio §7, §8)
//!
//! Independent of the ring, so that loom can check the two races in isolation: a notification lost between the driver's
//! publication of a buffer and the device going idle, and an interrupt lost between the driver's last poll and its
//! request for an interrupt.

use core::sync::atomic::Ordering::{self, Acquire, Relaxed, Release};
use core::sync::atomic::{self, AtomicU16};

/// Available ring `flags`: the driver wants no interrupts. Advisory, only without EVENT_IDX.
const NO_INTERRUPT: u16 = 1;
/// Used ring `flags`: the device wants no notifications. Advisory, only without EVENT_IDX.
const NO_NOTIFY: u16 = 1;

/// How driver and device suppress interrupts and notifications.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Suppression {
    /// By the `flags` words.
    Flags,
    /// By `used_event` and `avail_event` (EVENT_IDX).
    EventIndex,
}

/// A 16-bit little-endian word of a ring, and the full barrier that goes with it.
pub(crate) trait RingWord {
    fn load(&self, order: Ordering) -> u16;
    fn store(&self, value: u16, order: Ordering);
    /// Orders earlier stores before later loads.
    fn full_barrier();
}

impl RingWord for AtomicU16 {
    fn load(&self, order: Ordering) -> u16 {
        u16::from_le(AtomicU16::load(self, order))
    }

    fn store(&self, value: u16, order: Ordering) {
        AtomicU16::store(self, value.to_le(), order);
    }

    fn full_barrier() {
        atomic::fence(Ordering::SeqCst);
    }
}

/// Whether moving an index from `old` to `new` passed `event`, all modulo 65536: `vring_need_event`. `old` is the index
/// at the previous decision, so that the window covers the whole batch.
pub(crate) const fn passed(event: u16, old: u16, new: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}

/// Publishes the available index `new`. Returns `true` if the device must be notified.
pub(crate) fn publish<W: RingWord>(
    suppression: Suppression,
    index: &W,
    device_flags: &W,
    avail_event: &W,
    old: u16,
    new: u16,
) -> bool {
    index.store(new, Release);
    // The device reads the index again after it wrote its event: one side sees the other's store.
    W::full_barrier();
    match suppression {
        Suppression::Flags => device_flags.load(Relaxed) & NO_NOTIFY == 0,
        Suppression::EventIndex => passed(avail_event.load(Relaxed), old, new),
    }
}

/// Suppresses interrupts. `taken` is the index of the next used element.
pub(crate) fn suppress<W: RingWord>(suppression: Suppression, flags: &W, used_event: &W, taken: u16) {
    match suppression {
        Suppression::Flags => flags.store(NO_INTERRUPT, Relaxed),
        // An index already passed: it matches again only after 65535 more completions.
        Suppression::EventIndex => used_event.store(taken.wrapping_sub(1), Relaxed),
    }
}

/// Requests an interrupt at the `after`-th completion (at least 1) from `taken` on. Returns `true` if the device has
/// already completed that many.
pub(crate) fn request<W: RingWord>(
    suppression: Suppression,
    flags: &W,
    used_event: &W,
    used_index: &W,
    taken: u16,
    after: u16,
) -> bool {
    let after = after.max(1);
    let after = match suppression {
        Suppression::Flags => {
            flags.store(0, Relaxed);
            // Without event indices every completion interrupts.
            1
        }
        Suppression::EventIndex => {
            used_event.store(taken.wrapping_add(after).wrapping_sub(1), Relaxed);
            after
        }
    };
    // The device reads the event after it wrote the index: one side sees the other's store.
    W::full_barrier();
    used_index.load(Acquire).wrapping_sub(taken) >= after
}

#[cfg(test)]
mod tests {
    use loom::sync::Arc;
    use loom::sync::atomic::{self, AtomicU16};
    use loom::thread;
    use proptest::prelude::*;

    use super::*;

    impl RingWord for AtomicU16 {
        fn load(&self, order: Ordering) -> u16 {
            AtomicU16::load(self, order)
        }

        fn store(&self, value: u16, order: Ordering) {
            AtomicU16::store(self, value, order);
        }

        fn full_barrier() {
            atomic::fence(Ordering::SeqCst);
        }
    }

    proptest! {
        /// The formula agrees with stepping through the indices one by one.
        #[test]
        fn an_event_is_passed_when_the_index_steps_over_it(event: u16, old: u16, steps in 0_u16..=32768) {
            let new = old.wrapping_add(steps);
            let walked = (0..steps).any(|step| old.wrapping_add(step) == event);
            prop_assert_eq!(passed(event, old, new), walked);
        }
    }

    struct Shared {
        index: AtomicU16,
        event: AtomicU16,
        flags: AtomicU16,
    }

    fn shared() -> Arc<Shared> {
        Arc::new(Shared { index: AtomicU16::new(0), event: AtomicU16::new(0), flags: AtomicU16::new(0) })
    }

    /// The driver publishes a buffer while the device goes idle: either the driver notifies, or the device's last
    /// read of the index finds the buffer.
    //= virtio §7
    #[test]
    fn a_buffer_published_while_the_device_goes_idle_is_not_lost() {
        loom::model(|| {
            let ring = shared();
            // The device was busy: its event index is already passed.
            ring.event.store(u16::MAX, Relaxed);
            let device = thread::spawn({
                let ring = Arc::clone(&ring);
                move || {
                    ring.event.store(0, Relaxed);
                    atomic::fence(Ordering::SeqCst);
                    ring.index.load(Acquire) != 0
                }
            });
            let notify = publish(Suppression::EventIndex, &ring.index, &ring.flags, &ring.event, 0, 1);
            let found = device.join().unwrap();
            assert!(notify || found, "the buffer is not noticed by either side");
        });
    }

    /// The device completes a buffer while the driver requests an interrupt: either the device interrupts, or the
    /// driver's last read of the index finds the completion.
    //= virtio §7
    #[test]
    fn a_completion_while_the_driver_goes_idle_is_not_lost() {
        loom::model(|| {
            let ring = shared();
            ring.event.store(u16::MAX, Relaxed);
            let device = thread::spawn({
                let ring = Arc::clone(&ring);
                move || {
                    ring.index.store(1, Release);
                    atomic::fence(Ordering::SeqCst);
                    passed(ring.event.load(Relaxed), 0, 1)
                }
            });
            let found = request(Suppression::EventIndex, &ring.flags, &ring.event, &ring.index, 0, 1);
            let interrupts = device.join().unwrap();
            assert!(interrupts || found, "the completion is not noticed by either side");
        });
    }
}
