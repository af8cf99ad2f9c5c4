// SPDX-License-Identifier: MIT OR Apache-2.0

//! A gate: run-down protection for what it guards.
//!
//! Users enter and leave; closing waits until the gate is empty. After [`Gate::close`] no user is inside and none
//! can enter. The same contract as that of [`crate::object_table`], for bindings that come and go while their key
//! stays in the table (compare `ExAcquireRundownProtection` of Windows).
//!
//! Waiting spins, also at `DISPATCH_LEVEL`; a user preempted on the waiting CPU would block it forever. So a user is at
//! `DISPATCH_LEVEL` from entering to leaving, works on one packet or request, and waits for spin locks only. Trying
//! to enter a closed gate counts as entering. The engine enters with the lock of a queue pair or of a transmit
//! queue held, which raises to that level. Calls at `PASSIVE_LEVEL` (getters, create, destroy) do not enter: see
//! [`super::binding_slot::BindingSlot::snapshot`] and [`super::binding_slot::BindingSlot::end`].

#[cfg(test)]
use crate::testing::visit;
use core::sync::atomic::{AtomicU64, Ordering};

const OPEN: u64 = 1 << 63;
/// The number of openings is between the open bit and the number of users.
const OPENING: u64 = 1 << 32;
const USERS: u64 = OPENING - 1;

/// The open bit, the number of openings, and the number of users inside.
#[derive(Debug)]
pub(super) struct Gate {
    state: AtomicU64,
    relax: fn(),
}

/// The right to use what the gate guards.
pub(super) struct Inside<'a> {
    gate: &'a Gate,
    opening: Opening,
}

/// Identifies one opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Opening(u64);

impl Gate {
    /// Creates a closed gate. A thread that waits until it is empty calls `relax` meanwhile.
    pub(super) const fn closed(relax: fn()) -> Self {
        Self { state: AtomicU64::new(0), relax }
    }

    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.state.load(Ordering::Acquire) & OPEN != 0
    }

    /// Enters; `None` when the gate is closed. IRQL == `DISPATCH_LEVEL`, until [`Inside`] is dropped.
    #[inline]
    pub(super) fn enter(&self) -> Option<Inside<'_>> {
        #[cfg(test)]
        visit();
        let state = self.state.fetch_add(1, Ordering::Acquire);
        let inside = Inside { gate: self, opening: Opening(state & !USERS) };
        // `inside` leaves at once if the gate is closed.
        if state & OPEN != 0 { Some(inside) } else { None }
    }

    /// Opens the gate and publishes what was written while it was closed. Not to be called concurrently.
    pub(super) fn open(&self) {
        let upper = self.state.load(Ordering::Relaxed) & !USERS;
        let opened = (upper & !OPEN).wrapping_add(OPENING) & !OPEN | OPEN;
        // Users change the lower half meanwhile.
        self.state.fetch_xor(upper ^ opened, Ordering::Release);
    }

    /// Closes the gate if `opening` is current, and waits until it is empty. Returns `false` if that opening has ended;
    /// `true` to one of several callers. Not to be called from inside. IRQL <= `DISPATCH_LEVEL`.
    pub(super) fn close(&self, opening: Opening) -> bool {
        let closed = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| {
            (state & !USERS == opening.0).then_some(state & !OPEN)
        });
        if closed.is_ok() {
            self.wait();
        }
        closed.is_ok()
    }

    /// Closes the gate without waiting, when no user can be inside. Returns whether it was open. Any IRQL.
    pub(super) fn shut(&self) -> bool {
        self.state.fetch_and(!OPEN, Ordering::AcqRel) & OPEN != 0
    }

    /// Waits until the gate is empty, or opened again. It was closed before. Not to be called from inside.
    /// IRQL <= `DISPATCH_LEVEL`.
    pub(super) fn wait(&self) {
        // A user that finds it closed counts as inside for an instant.
        loop {
            let state = self.state.load(Ordering::Acquire);
            if state & USERS == 0 || state & OPEN != 0 {
                return;
            }
            (self.relax)();
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
        self.gate.state.fetch_sub(1, Ordering::Release);
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
    fn a_closed_gate_cannot_be_entered() {
        let gate = Gate::closed(core::hint::spin_loop);
        assert!(gate.enter().is_none());
        gate.open();
        let first = opening(&gate);
        assert!(gate.close(first));
        assert!(!gate.close(first));
        assert!(gate.enter().is_none());
        gate.open();
        assert!(!gate.close(first), "another opening");
        assert!(gate.close(opening(&gate)));
        assert!(!gate.shut());
        gate.open();
        assert!(gate.shut());
        assert!(gate.enter().is_none());
    }

    #[test]
    fn an_opening_that_has_ended_cannot_be_closed() {
        let gate = Gate::closed(core::hint::spin_loop);
        let mut ended = Vec::new();
        for _ in 0..5 {
            gate.open();
            assert!(ended.iter().all(|&ended| !gate.close(ended)), "{ended:?}");
            ended.push(opening(&gate));
            assert!(gate.close(ended[ended.len() - 1]));
        }
    }

    #[test]
    fn the_count_of_openings_wraps() {
        let gate = Gate::closed(core::hint::spin_loop);
        gate.state.store(!OPEN & !USERS, Ordering::Relaxed);
        gate.open();
        assert!(gate.is_open());
        assert!(gate.close(opening(&gate)));
        assert!(!gate.is_open());
    }

    #[test]
    fn closing_relaxes_while_it_waits() {
        static RELAXED: AtomicBool = AtomicBool::new(false);
        fn relax() {
            RELAXED.store(true, Ordering::SeqCst);
            std::thread::yield_now();
        }
        let gate = Gate::closed(relax);
        gate.open();
        let (inside, opening) = (gate.enter().unwrap(), opening(&gate));
        std::thread::scope(|scope| {
            let closed = scope.spawn(|| gate.close(opening));
            while !RELAXED.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            drop(inside);
            assert!(closed.join().unwrap());
        });
    }

    #[test]
    fn no_user_is_inside_after_close() {
        for _ in 0..if cfg!(miri) { 20 } else { 2000 } {
            let gate = Gate::closed(core::hint::spin_loop);
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
