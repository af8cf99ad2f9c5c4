//! From the engine's contexts back to objects.
//!
//! The engine knows an object by a number. An event of the engine may be on its way on one processor while
//! the object is closed on another, so the number is no pointer but a ticket: a place in a table and the
//! place's generation. A look-up takes a hold, or finds that the object is gone.
//!
//! The table also remembers which objects have callbacks to make at a better moment than the one in which
//! they fell due (a consumer's own call): [`Registry::defer`] and [`Registry::deferred`].

use crate::connector::Connector;
use crate::cq::Cq;
use crate::fallible;
use crate::listener::Listener;
use crate::object::{Object, Ref};
use crate::srq::Srq;
use crate::status::Answer;
use alloc::vec::Vec;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicUsize, Ordering};
use ndk_abi::nt::STATUS_INSUFFICIENT_RESOURCES;
use nt::SpinLock;
use roce::Arc;

/// An object the engine has a number for.
#[derive(Clone, Copy)]
enum Known {
    Cq(NonNull<Object<Cq>>),
    Srq(NonNull<Object<Srq>>),
    Listener(NonNull<Object<Listener>>),
    Connector(NonNull<Object<Connector>>),
}

// SAFETY: an address; what it leads to is `Send + Sync`, and is looked at under the table's rules alone.
unsafe impl Send for Known {}

/// The numbers given out.
pub struct Registry {
    table: SpinLock<Table>,
    /// Entries of [`Table::deferred`], for a look without the lock.
    waiting: AtomicUsize,
}

struct Table {
    places: Vec<Place>,
    /// Index of the first free place.
    free: Option<u32>,
    /// Indices of places with callbacks to make; never more than there are places.
    deferred: Vec<u32>,
}

struct Place {
    /// Never 0, so that no number is 0: that is the engine's for a connection nobody has claimed yet.
    generation: u32,
    known: Option<Known>,
    /// The next free place, while this one is free.
    next_free: Option<u32>,
    deferred: bool,
}

/// A number of the engine's for one object, valid as long as this lives.
pub struct Ticket {
    registry: Arc<Registry>,
    number: u64,
}

/// Types that the engine knows by number.
pub trait Registered: crate::object::Body {
    /// The object's own ticket.
    fn ticket(&self) -> &Ticket;
    #[doc(hidden)]
    fn entry(object: NonNull<Object<Self>>) -> Entry;
    #[doc(hidden)]
    fn of(entry: Entry) -> Option<NonNull<Object<Self>>>;
}

/// An entry of the table, for [`Registered`] alone.
#[derive(Clone, Copy)]
pub struct Entry(Known);

macro_rules! registered {
    ($($Type:ident)*) => { $(
        impl Registered for $Type {
            fn ticket(&self) -> &Ticket {
                &self.ticket
            }

            fn entry(object: NonNull<Object<Self>>) -> Entry {
                Entry(Known::$Type(object))
            }

            fn of(entry: Entry) -> Option<NonNull<Object<Self>>> {
                match entry.0 {
                    Known::$Type(object) => Some(object),
                    _ => None,
                }
            }
        }
    )* };
}
registered!(Cq Srq Listener Connector);

impl Registry {
    pub const fn new() -> Self {
        let table = Table { places: Vec::new(), free: None, deferred: Vec::new() };
        Self { table: SpinLock::new(table), waiting: AtomicUsize::new(0) }
    }

    /// A number for an object about to be made.
    pub fn ticket(registry: &Arc<Self>) -> Answer<Ticket> {
        let mut table = registry.table.lock();
        let index = table.take().ok_or(STATUS_INSUFFICIENT_RESOURCES)?;
        let generation = table.places.get(index as usize).map_or(0, |place| place.generation);
        drop(table);
        let number = u64::from(generation) << 32 | u64::from(index);
        Ok(Ticket { registry: Arc::clone(registry), number })
    }

    /// The object behind a number, with a hold on it, if it is one of this type and still held.
    pub fn find<T: Registered>(&self, number: u64) -> Option<Ref<T>> {
        let table = self.table.lock();
        let place = table.places.get(number as u32 as usize)?;
        if u64::from(place.generation) != number >> 32 {
            return None;
        }
        let object = T::of(Entry(place.known?))?;
        // SAFETY: an object leaves the table, under this lock, before it is freed.
        unsafe { Ref::try_hold(object) }
    }

    /// Remembers that the object has callbacks to make. Its number is in the list at most once.
    pub fn defer(&self, ticket: &Ticket) {
        let mut table = self.table.lock();
        let index = ticket.number as u32;
        if let Some(place) = table.places.get_mut(index as usize)
            && !core::mem::replace(&mut place.deferred, true)
        {
            // Room was made when the place was: this does not fail.
            let _ = fallible::push(&mut table.deferred, index);
            self.waiting.store(table.deferred.len(), Ordering::Release);
        }
    }

    /// Takes the next connector that has callbacks to make out of the list.
    pub fn deferred(&self) -> Option<Ref<Connector>> {
        if !self.has_deferred() {
            return None;
        }
        let mut table = self.table.lock();
        loop {
            let index = table.deferred.pop()?;
            self.waiting.store(table.deferred.len(), Ordering::Release);
            let place = table.places.get_mut(index as usize)?;
            place.deferred = false;
            let object = place.known.and_then(|known| Connector::of(Entry(known)));
            // SAFETY: as in `find`.
            if let Some(connector) = object.and_then(|object| unsafe { Ref::try_hold(object) }) {
                return Some(connector);
            }
        }
    }

    /// Whether somebody has callbacks to make.
    pub fn has_deferred(&self) -> bool {
        self.waiting.load(Ordering::Acquire) != 0
    }

    /// Shows every connector to `each`, one after the other, with a hold and without the lock.
    pub fn connectors(&self, mut each: impl FnMut(&Connector)) {
        let mut index = 0;
        loop {
            let found = {
                let table = self.table.lock();
                let Some(place) = table.places.get(index) else { return };
                let object = place.known.and_then(|known| Connector::of(Entry(known)));
                // SAFETY: as in `find`.
                object.and_then(|object| unsafe { Ref::try_hold(object) })
            };
            if let Some(connector) = found {
                each(&connector);
            }
            index += 1;
        }
    }
}

impl Table {
    fn take(&mut self) -> Option<u32> {
        if let Some(index) = self.free {
            let place = self.places.get_mut(index as usize)?;
            self.free = place.next_free.take();
            return Some(index);
        }
        let index = u32::try_from(self.places.len()).ok()?;
        let wanted = self.places.len().checked_add(1)?.checked_sub(self.deferred.len())?;
        self.deferred.try_reserve(wanted).ok()?;
        let place = Place { generation: 1, known: None, next_free: None, deferred: false };
        fallible::push(&mut self.places, place).ok()?;
        Some(index)
    }
}

impl Ticket {
    /// What the engine is given as context.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// From now on the number leads to `object`, whose own ticket this is.
    pub fn enter<T: Registered>(object: &Ref<T>) {
        let ticket = object.ticket();
        let mut table = ticket.registry.table.lock();
        if let Some(place) = table.places.get_mut(ticket.number as u32 as usize) {
            place.known = Some(T::entry(object.as_ptr()).0);
        }
    }

    /// The number leads nowhere any more. Before the object is freed.
    pub fn leave(&self) {
        let mut table = self.registry.table.lock();
        if let Some(place) = table.places.get_mut(self.number as u32 as usize) {
            place.known = None;
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut table = self.registry.table.lock();
        let index = self.number as u32;
        let free = table.free;
        if let Some(place) = table.places.get_mut(index as usize) {
            place.known = None;
            place.generation = place.generation.wrapping_add(1).max(1);
            place.next_free = free;
            table.free = Some(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An event of a connection that nobody has claimed yet comes with 0: it is not for the first object.
    #[test]
    fn no_object_has_the_number_of_an_unclaimed_connection() {
        let registry = Arc::try_new(Registry::new()).ok().unwrap();
        let first = Registry::ticket(&registry).ok().unwrap();
        assert_ne!(first.number(), 0);
        drop(first);
        registry.table.lock().places[0].generation = u32::MAX;
        drop(Registry::ticket(&registry).ok().unwrap());
        assert_ne!(Registry::ticket(&registry).ok().unwrap().number(), 0);
    }
}
