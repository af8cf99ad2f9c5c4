// SPDX-License-Identifier: MIT OR Apache-2.0

//! Notification and interrupt suppression, with the memory barriers it needs.
//!
//! The functions named `packed_` are those of the packed ring. The code is independent of the ring, so that loom can check the two races in
//! isolation: a notification lost between the driver's publication of a buffer and the device going idle, and an interrupt lost between the
//! driver's last poll and its request for an interrupt.
//= virtio §7
//= virtio §8

use core::sync::atomic::Ordering::{self, Acquire, Relaxed, Release};
use core::sync::atomic::{self, AtomicU16, AtomicU32};

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

/// A little-endian word that driver and device share, and the full barrier that goes with it.
pub(crate) trait RingWord<T> {
    fn load(&self, order: Ordering) -> T;
    fn store(&self, value: T, order: Ordering);
    /// Orders earlier stores before later loads.
    fn full_barrier();
}

impl RingWord<u16> for AtomicU16 {
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

impl RingWord<u32> for AtomicU32 {
    fn load(&self, order: Ordering) -> u32 {
        u32::from_le(AtomicU32::load(self, order))
    }

    fn store(&self, value: u32, order: Ordering) {
        AtomicU32::store(self, value.to_le(), order);
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
pub(crate) fn publish<W: RingWord<u16>>(
    suppression: Suppression,
    index: &W,
    device_flags: &W,
    avail_event: &W,
    old: u16,
    new: u16,
) -> bool {
    index.store(new, Release);
    // The device reads the index again after it has written its event: at least one side sees the other's store.
    W::full_barrier();
    match suppression {
        Suppression::Flags => device_flags.load(Relaxed) & NO_NOTIFY == 0,
        Suppression::EventIndex => passed(avail_event.load(Relaxed), old, new),
    }
}

/// Suppresses interrupts. `taken` is the index of the next used element.
pub(crate) fn suppress<W: RingWord<u16>>(suppression: Suppression, flags: &W, used_event: &W, taken: u16) {
    match suppression {
        Suppression::Flags => flags.store(NO_INTERRUPT, Relaxed),
        // An index already passed: it matches again only after 65535 more completions.
        Suppression::EventIndex => used_event.store(taken.wrapping_sub(1), Relaxed),
    }
}

/// Requests an interrupt at the `after`-th completion (at least 1) from `taken` on. Returns `true` if the device has
/// already completed that many.
pub(crate) fn request<W: RingWord<u16>>(
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
    // The device reads the event after it has written the index: at least one side sees the other's store.
    W::full_barrier();
    used_index.load(Acquire).wrapping_sub(taken) >= after
}

/// Event suppression structures of the packed ring, as one word: `desc` in the low half, `flags` in the high half.
mod packed_event {
    /// `flags`: every event, no event, the event at the position in `desc` (EVENT_IDX only).
    pub(super) const ENABLE: u32 = 0;
    pub(super) const DISABLE: u32 = 1 << FLAGS;
    pub(super) const AT_POSITION: u32 = 2 << FLAGS;
    const FLAGS: u32 = 16;
    pub(super) const FLAGS_MASK: u32 = 3 << FLAGS;
    /// Bit of `desc`: the wrap counter.
    pub(super) const WRAP: u16 = 1 << 15;
}

/// A position in a packed ring: the slot, and the wrap counter, which starts at `true`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) slot: u16,
    pub(crate) wrap: bool,
}

impl Position {
    /// The position of both sides in a new ring.
    pub(crate) const START: Self = Self { slot: 0, wrap: true };

    /// Returns the position `steps` (at most `size`) slots further in a ring of `size` slots.
    pub(crate) const fn advanced(self, steps: u16, size: u16) -> Self {
        let left = size.wrapping_sub(self.slot);
        if steps < left {
            Self { slot: self.slot.wrapping_add(steps), wrap: self.wrap }
        } else {
            Self { slot: steps.wrapping_sub(left), wrap: !self.wrap }
        }
    }

    const fn event(self) -> u32 {
        (if self.wrap { self.slot | packed_event::WRAP } else { self.slot }) as u32
    }
}

/// Publishes the first descriptor of a batch by its `flags`: the other descriptors of the batch are written. Returns `true`
/// if the device must be notified: unless it disabled notifications.
///
/// The position in the device's event structure (EVENT_IDX) is not compared. When QEMU's device resumes transmission after its backend was
/// busy, it keeps a position that it has passed, and then waits for a notification. A position that is more than a lap behind cannot be
/// distinguished from one ahead.
pub(crate) fn packed_publish<W: RingWord<u16>, E: RingWord<u32>>(
    flags: &W,
    value: u16,
    device_event: &E,
) -> bool {
    flags.store(value, Release);
    // The device reads the flags again after it has written its event: at least one side sees the other's store.
    W::full_barrier();
    device_event.load(Relaxed) & packed_event::FLAGS_MASK != packed_event::DISABLE
}

/// Suppresses the interrupts of a packed ring.
pub(crate) fn packed_suppress<E: RingWord<u32>>(driver_event: &E) {
    driver_event.store(packed_event::DISABLE, Relaxed);
}

/// Requests an interrupt when the descriptor at `last` is used; without event indices at every completion. The caller must then check for
/// used descriptors again.
pub(crate) fn packed_request<E: RingWord<u32>>(suppression: Suppression, driver_event: &E, last: Position) {
    let event = match suppression {
        Suppression::Flags => packed_event::ENABLE,
        Suppression::EventIndex => last.event() | packed_event::AT_POSITION,
    };
    driver_event.store(event, Relaxed);
    // The device reads the event after it has written the descriptor: at least one side sees the other's store.
    E::full_barrier();
}

#[cfg(test)]
mod tests {
    use loom::sync::Arc;
    use loom::sync::atomic::{self, AtomicU16, AtomicU32};
    use loom::thread;
    use proptest::prelude::*;

    use super::*;

    impl RingWord<u16> for AtomicU16 {
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

    impl RingWord<u32> for AtomicU32 {
        fn load(&self, order: Ordering) -> u32 {
            AtomicU32::load(self, order)
        }

        fn store(&self, value: u32, order: Ordering) {
            AtomicU32::store(self, value, order);
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

        /// Steps through the slots of a packed ring, whose size need not be a power of two.
        #[test]
        fn a_position_of_a_packed_ring_changes_its_wrap_counter_with_each_lap(
            size in 1_u16..=300,
            start in 0_u16..300,
            wrap: bool,
            steps in 0_u16..=300,
        ) {
            let (start, steps) = (start % size, steps % (size + 1));
            let walked = usize::from(start) + usize::from(steps);
            let at = Position { slot: start, wrap }.advanced(steps, size);
            prop_assert_eq!(usize::from(at.slot), walked % usize::from(size));
            prop_assert_eq!(at.wrap, wrap ^ (walked >= usize::from(size)));
        }
    }

    /// Also with a position that the device has passed, or that is ahead.
    #[test]
    fn the_device_of_a_packed_ring_is_notified_unless_it_disabled_that() {
        let notifies = |event: u32| {
            let flags = core::sync::atomic::AtomicU16::new(0);
            let event = core::sync::atomic::AtomicU32::new(event);
            let notify = packed_publish(&flags, 0x80, &event);
            assert_eq!(flags.load(Relaxed), 0x80);
            notify
        };
        let positions = [0, 5, 0x8000, 0x8005].map(|desc| desc | packed_event::AT_POSITION);
        assert!(positions.into_iter().all(notifies));
        assert!(notifies(packed_event::ENABLE));
        assert!(!notifies(packed_event::DISABLE) && !notifies(packed_event::DISABLE | 5));
        assert!(notifies(packed_event::FLAGS_MASK), "a reserved value disables nothing");
    }

    struct Ring {
        /// Data that the index publishes: a descriptor, for example.
        payload: AtomicU16,
        index: AtomicU16,
        event: AtomicU16,
        flags: AtomicU16,
    }

    fn shared() -> Arc<Ring> {
        let word = || AtomicU16::new(0);
        Arc::new(Ring { payload: word(), index: word(), event: word(), flags: word() })
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
                    let found = ring.index.load(Acquire) != 0;
                    assert!(
                        !found || ring.payload.load(Relaxed) == 7,
                        "the buffer is written before it is found"
                    );
                    found
                }
            });
            ring.payload.store(7, Relaxed);
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

    /// The two races above, of a packed ring. Flags 0x80: available in the first lap; 0x8080: used.
    //= virtio §7
    #[test]
    fn a_packed_descriptor_published_while_the_device_goes_idle_is_not_lost() {
        loom::model(|| {
            let ring =
                Arc::new((AtomicU16::new(0), AtomicU32::new(packed_event::DISABLE), AtomicU16::new(0)));
            let device = thread::spawn({
                let ring = Arc::clone(&ring);
                move || {
                    ring.1.store(Position::START.event() | packed_event::AT_POSITION, Relaxed);
                    atomic::fence(Ordering::SeqCst);
                    let found = ring.0.load(Acquire) != 0;
                    assert!(!found || ring.2.load(Relaxed) == 7, "the buffer is written before it is found");
                    found
                }
            });
            ring.2.store(7, Relaxed);
            let notify = packed_publish(&ring.0, 0x80, &ring.1);
            let found = device.join().unwrap();
            assert!(notify || found, "the buffer is not noticed by either side");
        });
    }

    //= virtio §7
    #[test]
    fn a_packed_completion_while_the_driver_goes_idle_is_not_lost() {
        loom::model(|| {
            let ring = Arc::new((AtomicU16::new(0x80), AtomicU32::new(packed_event::DISABLE)));
            let device = thread::spawn({
                let ring = Arc::clone(&ring);
                move || {
                    ring.0.store(0x8080, Release);
                    atomic::fence(Ordering::SeqCst);
                    ring.1.load(Relaxed) == Position::START.event() | packed_event::AT_POSITION
                }
            });
            packed_request(Suppression::EventIndex, &ring.1, Position::START);
            let found = ring.0.load(Acquire) == 0x8080;
            let interrupts = device.join().unwrap();
            assert!(interrupts || found, "the completion is not noticed by either side");
        });
    }
}
