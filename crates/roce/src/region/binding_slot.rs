//! The current and the next binding of a fast-registered region or a window.
//!
//! The parameters of a registration (or bind) are staged when it is posted, beside those in force, and take effect
//! when the send queue reaches the request. A [`Ticket`] connects the request with what it staged.

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use super::access_rights::{Access, AccessError, KeyError, KeyRange};
use super::gate::{Gate, Inside};
use super::key_state::{Event, State};

/// Ties a posted registration to what was noted of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u32);

impl Ticket {
    /// Of an invalidation, for which nothing is noted.
    pub(crate) const NONE: Self = Self(0);
    /// Of nobody: the note is being written.
    const WRITING: u32 = u32::MAX;
}

/// What is in force, what is noted, and the gate before it.
#[derive(Debug)]
pub(super) struct BindingSlot<T> {
    gate: Gate,
    /// Ticket of the request whose turn is to come; 0 for none.
    staged: AtomicU32,
    last_ticket: AtomicU32,
    /// Two places: one is in force, or was; the other is for notes.
    places: [T; 2],
    /// Whether the second place is in force. Changes only while the gate is closed and nobody inside.
    second: AtomicBool,
    /// A copy of the range that is in force, or was last. Written by whoever is about to open the gate.
    snapshot: SharedRange,
}

/// What a place of a slot has.
pub(super) trait Place {
    fn range(&self) -> &SharedRange;
}

/// What is in force, for the work on one packet.
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
    pub(super) const fn new(places: [T; 2]) -> Self {
        Self {
            gate: Gate::closed(),
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

    /// The range that is in force, or was last, for those who only ask: they do not enter, so that nobody
    /// waits for them. Each field by itself is of a registration that had its turn; while another one has its
    /// turn, fields may be of either. Any IRQL.
    #[inline]
    pub(super) fn snapshot(&self) -> KeyRange {
        self.snapshot.get()
    }

    /// What is in force, if anything is. IRQL and more: see [`super::gate`].
    #[inline]
    pub(super) fn enter(&self) -> Option<InForce<'_, T>> {
        let inside = self.gate.enter()?;
        Some(InForce { what: self.place(false), inside })
    }

    /// Lets `write` note what is asked for; `None` when another note waits for its turn.
    pub(super) fn stage(&self, write: impl FnOnce(&T)) -> Option<Ticket> {
        let free = self.staged.compare_exchange(0, Ticket::WRITING, Ordering::Acquire, Ordering::Relaxed);
        if free.is_err() {
            return None;
        }
        // Nobody reads this place: it has not been in force since the last registration, which waited for
        // those who were inside.
        write(self.place(true));
        let mut ticket = 0;
        while matches!(ticket, 0 | Ticket::WRITING) {
            ticket = self.last_ticket.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        }
        self.staged.store(ticket, Ordering::Release);
        Some(Ticket(ticket))
    }

    /// The request of `ticket` will not have its turn.
    pub(super) fn cancel(&self, ticket: Ticket) {
        if ticket != Ticket::NONE {
            let _ = self.staged.compare_exchange(ticket.0, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// The turn of the request of `ticket` has come. `usable` has the last word on what was noted.
    pub(super) fn register(&self, ticket: Ticket, usable: impl FnOnce(&T) -> bool) -> Result<(), KeyError> {
        if ticket == Ticket::NONE || self.staged.load(Ordering::Acquire) != ticket.0 {
            return Err(KeyError);
        }
        // From here on it is this request's own: nobody else opens the gate.
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

    /// Turns it off, if `right` agrees to what is in force. When this returns, nobody uses it any more.
    pub(super) fn invalidate(&self, event: Event, right: impl FnOnce(&T) -> bool) -> Result<(), KeyError> {
        self.state().on(event).map_err(|_| KeyError)?;
        let in_force = self.enter().ok_or(KeyError)?;
        let (agreed, opening) = (right(&in_force), in_force.inside.opening());
        drop(in_force);
        // Of two at a time, the second one comes too late.
        (agreed && self.gate.close(opening)).then_some(()).ok_or(KeyError)
    }

    /// Turns it off for good, when nobody else can find it any more, so that nobody is inside and no request
    /// has its turn. What was in force, if anything; of several callers, one is told. Waits for nobody.
    pub(super) fn end(&self) -> Option<&T> {
        self.gate.shut().then(|| self.place(false))
    }

    /// What is in force or was last, or the place for notes.
    #[inline]
    fn place(&self, notes: bool) -> &T {
        let [first, second] = &self.places;
        if self.second.load(Ordering::Relaxed) == notes { first } else { second }
    }
}

/// A [`KeyRange`] that can be written while others look at it.
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
