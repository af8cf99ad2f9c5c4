// SPDX-License-Identifier: MIT OR Apache-2.0

//! The current and the next binding of a fast-registered region or a window.
//!
//! The parameters of a registration (or bind) are staged when it is posted, beside those in force, and take effect
//! when the send queue reaches the request. A [`Ticket`] connects the request with what it staged.

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use super::access_rights::{Access, AccessError, KeyError, KeyRange};
use super::gate::{Gate, Inside};
use super::key_state::{Event, State};

/// Connects a posted registration or bind with its staged parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u32);

impl Ticket {
    /// For an invalidation, which has no parameters.
    pub(crate) const NONE: Self = Self(0);
    /// The parameters are being written.
    const WRITING: u32 = u32::MAX;
}

/// The current binding, the staged one, and the gate that guards the current one.
#[derive(Debug)]
pub(super) struct BindingSlot<T> {
    gate: Gate,
    /// Ticket of the staged request; 0 for none.
    staged: AtomicU32,
    last_ticket: AtomicU32,
    /// One is the current binding, or the last one; the other is for staging.
    places: [T; 2],
    /// Whether the second one is current. Changes only while the gate is closed and empty.
    second: AtomicBool,
    /// A copy of the current or last range. Written before the gate opens.
    snapshot: SharedRange,
}

/// A binding that a slot can hold.
pub(super) trait Place {
    fn range(&self) -> &SharedRange;
}

/// The current binding, for the work on one packet.
pub(super) struct InForce<'a, T> {
    what: &'a T,
    inside: Inside<'a>,
}

impl<T> core::ops::Deref for InForce<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.what
    }
}

impl<T: Place> BindingSlot<T> {
    /// Creates a slot without binding. A thread that waits for users of a binding calls `relax` meanwhile.
    pub(super) const fn new(places: [T; 2], relax: fn()) -> Self {
        Self {
            gate: Gate::closed(relax),
            staged: AtomicU32::new(0),
            last_ticket: AtomicU32::new(0),
            places,
            second: AtomicBool::new(false),
            snapshot: SharedRange::new(),
        }
    }

    pub(super) fn state(&self) -> State {
        if self.gate.is_open() { State::Valid } else { State::Free }
    }

    /// Returns a copy of the current or last range, without entering the gate. While a registration executes,
    /// fields may be old or new. Any IRQL.
    #[inline]
    pub(super) fn snapshot(&self) -> KeyRange {
        self.snapshot.get()
    }

    /// Returns the current binding, if the key is valid. IRQL and more: see [`super::gate`].
    #[inline]
    pub(super) fn enter(&self) -> Option<InForce<'_, T>> {
        let inside = self.gate.enter()?;
        Some(InForce { what: self.place(false), inside })
    }

    /// Stages parameters, written by `write`. Returns `None` when others are staged already.
    pub(super) fn stage(&self, write: impl FnOnce(&T)) -> Option<Ticket> {
        let free = self.staged.compare_exchange(0, Ticket::WRITING, Ordering::Acquire, Ordering::Relaxed);
        if free.is_err() {
            return None;
        }
        // No thread reads this place: it has not been current since the last registration, which waited until
        // the gate was empty.
        write(self.place(true));
        let mut ticket = 0;
        while matches!(ticket, 0 | Ticket::WRITING) {
            ticket = self.last_ticket.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        }
        self.staged.store(ticket, Ordering::Release);
        Some(Ticket(ticket))
    }

    /// Drops the staged parameters of `ticket`.
    pub(super) fn cancel(&self, ticket: Ticket) {
        if ticket != Ticket::NONE {
            let _ = self.staged.compare_exchange(ticket.0, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Returns the staged parameters of `ticket`.
    pub(super) fn staged(&self, ticket: Ticket) -> Option<&T> {
        let is_staged = ticket != Ticket::NONE && self.staged.load(Ordering::Acquire) == ticket.0;
        is_staged.then(|| self.place(true))
    }

    /// Makes the staged parameters of `ticket` current, if `usable` agrees.
    pub(super) fn register(&self, ticket: Ticket, usable: impl FnOnce(&T) -> bool) -> Result<(), KeyError> {
        if self.staged(ticket).is_none() {
            return Err(KeyError);
        }
        // From here on only this request can open the gate.
        let done = self.state().on(Event::Register).is_ok() && {
            self.gate.wait();
            usable(self.place(true))
        };
        if done {
            self.snapshot.set(&self.place(true).range().get());
            self.second.fetch_xor(true, Ordering::Relaxed);
            self.gate.open();
        }
        self.staged.store(0, Ordering::Release);
        done.then_some(()).ok_or(KeyError)
    }

    /// Invalidates the current binding, if `right` agrees. When this returns, it is no longer used.
    pub(super) fn invalidate(&self, event: Event, right: impl FnOnce(&T) -> bool) -> Result<(), KeyError> {
        self.state().on(event).map_err(|_| KeyError)?;
        let in_force = self.enter().ok_or(KeyError)?;
        let (agreed, opening) = (right(&in_force), in_force.inside.opening());
        drop(in_force);
        // Of two concurrent calls one fails.
        (agreed && self.gate.close(opening)).then_some(()).ok_or(KeyError)
    }

    /// Ends the binding for good, after the key was removed from the table: no packet and no request uses it. Returns
    /// the binding that was current, to one of several callers. Does not wait.
    pub(super) fn end(&self) -> Option<&T> {
        self.gate.shut().then(|| self.place(false))
    }

    /// Returns the current or last binding, or with `notes` the place for staging.
    #[inline]
    fn place(&self, notes: bool) -> &T {
        let [first, second] = &self.places;
        if self.second.load(Ordering::Relaxed) == notes { first } else { second }
    }
}

/// A [`KeyRange`] that can be read while it is written.
#[derive(Debug, Default)]
pub(super) struct SharedRange {
    key: AtomicU32,
    base: AtomicU64,
    length: AtomicU64,
    access: AtomicU8,
}

impl SharedRange {
    const fn new() -> Self {
        Self {
            key: AtomicU32::new(0),
            base: AtomicU64::new(0),
            length: AtomicU64::new(0),
            access: AtomicU8::new(0),
        }
    }

    pub(super) fn set(&self, range: &KeyRange) {
        self.key.store(range.key, Ordering::Relaxed);
        self.base.store(range.base, Ordering::Relaxed);
        self.length.store(range.length, Ordering::Relaxed);
        self.access.store(range.access.bits(), Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn get(&self) -> KeyRange {
        KeyRange {
            key: self.key.load(Ordering::Relaxed),
            base: self.base.load(Ordering::Relaxed),
            length: self.length.load(Ordering::Relaxed),
            access: Access::from_bits_truncate(self.access.load(Ordering::Relaxed)),
        }
    }

    /// See [`KeyRange::offset`].
    #[inline]
    pub(super) fn offset(&self, key: u32, address: u64, len: u64, right: Access) -> Result<u64, AccessError> {
        self.get().offset(key, address, len, right)
    }
}
