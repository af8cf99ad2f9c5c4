//! A gate: whoever is inside may use what it guards; whoever closes it waits until they have left.
//!
//! The same promise as that of [`crate::object_table`], for things that come and go while their number in the
//! table stays: after [`Gate::close`] nobody is inside, and nobody comes in.
//!
//! Waiting is spinning, at `DISPATCH_LEVEL` too, and on the processor of whoever is inside it would never end.
//! So whoever enters is at `DISPATCH_LEVEL` until it leaves, works on one packet (one request), and waits for
//! nothing inside but for the instant of a lock; trying a closed gate counts as entering. The engine enters
//! with the lock of a queue pair held, which raises to that level. Calls of consumers at `PASSIVE_LEVEL`
//! (getters, creating, destroying) do not enter: see [`super::slot::BindingSlot::told`] and
//! [`super::slot::BindingSlot::end`].

#[cfg(test)]
use crate::testing::visit;
use core::sync::atomic::{AtomicU64, Ordering};

const OPEN: u64 = 1 << 63;
/// How often it was opened stands between the open bit and the number of those inside.
const OPENING: u64 = 1 << 32;
const USERS: u64 = OPENING - 1;

/// Whether it is open, for the how manieth time, and how many are inside.
#[derive(Debug)]
pub(super) struct Gate(AtomicU64);

/// The right to use what the gate guards.
pub(super) struct Inside<'a> {
    gate: &'a Gate,
    opening: Opening,
}

/// One time of being open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Opening(u64);

impl Gate {
    pub(super) const fn closed() -> Self {
        Self(AtomicU64::new(0))
    }

    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.0.load(Ordering::Acquire) & OPEN != 0
    }

    /// Goes in; `None` when it is closed. IRQL == `DISPATCH_LEVEL`, until [`Inside`] is dropped.
    #[inline]
    pub(super) fn enter(&self) -> Option<Inside<'_>> {
        #[cfg(test)]
        visit();
        let state = self.0.fetch_add(1, Ordering::Acquire);
        let inside = Inside { gate: self, opening: Opening(state & !USERS) };
        // Who finds it closed leaves at once.
        if state & OPEN != 0 { Some(inside) } else { None }
    }

    /// Publishes what was written while it was closed. Nobody else opens it meanwhile.
    pub(super) fn open(&self) {
        let upper = self.0.load(Ordering::Relaxed) & !USERS;
        let opened = (upper & !OPEN).wrapping_add(OPENING) & !OPEN | OPEN;
        // Others count themselves in and out of the lower half meanwhile.
        self.0.fetch_xor(upper ^ opened, Ordering::Release);
    }

    /// Ends that time of being open, and waits until nobody is inside. `false` when it had ended before;
    /// of several at a time, one is told `true`. Not to be called from inside. IRQL <= `DISPATCH_LEVEL`.
    pub(super) fn close(&self, opening: Opening) -> bool {
        let closed = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| {
            (state & !USERS == opening.0).then_some(state & !OPEN)
        });
        if closed.is_ok() {
            self.wait();
        }
        closed.is_ok()
    }

    /// Closes it without waiting, when nobody can be inside; `false` when it was closed before. Any IRQL.
    pub(super) fn shut(&self) -> bool {
        self.0.fetch_and(!OPEN, Ordering::AcqRel) & OPEN != 0
    }

    /// Waits until nobody is inside, of a closed gate that nobody else opens or of one that was opened
    /// after that. Not to be called from inside. IRQL <= `DISPATCH_LEVEL`.
    pub(super) fn wait(&self) {
        // Who finds it closed counts as being inside for an instant.
        loop {
            let state = self.0.load(Ordering::Acquire);
            if state & USERS == 0 || state & OPEN != 0 {
                return;
            }
            core::hint::spin_loop();
        }
    }
}

impl Inside<'_> {
    pub(super) fn opening(&self) -> Opening {
        self.opening
    }
}

impl Drop for Inside<'_> {
    #[inline]
    fn drop(&mut self) {
        self.gate.0.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    fn opening(gate: &Gate) -> Opening {
        gate.enter().unwrap().opening()
    }

    #[test]
    fn a_closed_gate_lets_nobody_in() {
        let gate = Gate::closed();
        assert!(gate.enter().is_none());
        gate.open();
        let first = opening(&gate);
        assert!(gate.close(first));
        assert!(!gate.close(first));
        assert!(gate.enter().is_none());
        gate.open();
        assert!(!gate.close(first), "that was another time");
        assert!(gate.close(opening(&gate)));
        assert!(!gate.shut());
        gate.open();
        assert!(gate.shut());
        assert!(gate.enter().is_none());
    }

    #[test]
    fn openings_are_counted_round() {
        let gate = Gate::closed();
        gate.0.store(!OPEN & !USERS, Ordering::Relaxed);
        gate.open();
        assert!(gate.is_open());
        assert!(gate.close(opening(&gate)));
        assert!(!gate.is_open());
    }

    #[test]
    fn nobody_is_inside_after_it_was_closed() {
        for _ in 0..if cfg!(miri) { 20 } else { 2000 } {
            let gate = Gate::closed();
            let gone = AtomicBool::new(false);
            gate.open();
            let opening = opening(&gate);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while let Some(_inside) = gate.enter() {
                        assert!(!gone.load(Ordering::SeqCst), "inside after it was closed");
                    }
                });
                assert!(gate.close(opening));
                gone.store(true, Ordering::SeqCst);
            });
        }
    }
}
