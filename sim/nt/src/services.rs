// SPDX-License-Identifier: MIT OR Apache-2.0

//! State that subsystems keep on each host.
//!
//! A subsystem declares a [`Slot`] per kind of state, fills it when a host is created, and reaches it
//! through the host afterwards:
//!
//! ```ignore
//! static TIMERS: Slot<Timers> = Slot::new();
//!
//! services.add(&TIMERS, Timers::default()); // when the host is created
//! host.state(&TIMERS).find(&range)          // ever after
//! ```
//!
//! A slot has the same index on every host, so that access takes one array lookup and no lock.

use std::{
    any::{Any, type_name},
    marker::PhantomData,
    ptr::NonNull,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

/// Names one kind of state. Each slot is a `static`.
pub struct Slot<T> {
    /// Index plus one; 0 before the slot is used for the first time.
    number: AtomicUsize,
    state: PhantomData<fn() -> T>,
}

impl<T: Any + Send + Sync> Slot<T> {
    #[must_use]
    #[allow(clippy::new_without_default, reason = "a slot is a static")]
    pub const fn new() -> Self {
        Self { number: AtomicUsize::new(0), state: PhantomData }
    }

    #[inline]
    fn index(&self) -> usize {
        match self.number.load(Relaxed) {
            0 => self.assign(),
            number => number - 1,
        }
    }

    #[cold]
    fn assign(&self) -> usize {
        static LAST: AtomicUsize = AtomicUsize::new(0);
        let number = LAST.fetch_add(1, Relaxed) + 1;
        // Another thread may have been faster; then its number counts and ours stays unused.
        match self.number.compare_exchange(0, number, Relaxed, Relaxed) {
            Ok(_) => number - 1,
            Err(other) => other - 1,
        }
    }
}

/// The state that all subsystems keep on one host.
#[derive(Default)]
pub struct Services {
    /// By the index of the slot. The state of a `Slot<T>` is a `T` from a box.
    states: Vec<Option<NonNull<dyn Any + Send + Sync>>>,
}

// SAFETY: owns its states, which are `Send`.
unsafe impl Send for Services {}
// SAFETY: shared references to it give shared references to its states, which are `Sync`.
unsafe impl Sync for Services {}

impl Drop for Services {
    fn drop(&mut self) {
        for state in self.states.drain(..).flatten() {
            // SAFETY: from a box in `add`, and dropped once.
            drop(unsafe { Box::from_raw(state.as_ptr()) });
        }
    }
}

impl Services {
    /// Fills a slot.
    ///
    /// # Panics
    /// When it is filled already.
    pub fn add<T: Any + Send + Sync>(&mut self, slot: &'static Slot<T>, state: T) {
        let index = slot.index();
        if self.states.len() <= index {
            self.states.resize_with(index + 1, || None);
        }
        assert!(self.states[index].is_none(), "two states of type {}", type_name::<T>());
        let state: Box<dyn Any + Send + Sync> = Box::new(state);
        self.states[index] = NonNull::new(Box::into_raw(state));
    }

    /// Returns the state in a slot.
    ///
    /// # Panics
    /// When the slot was not filled: its subsystem is not part of the simulation.
    #[inline]
    #[must_use]
    pub fn get<T: Any + Send + Sync>(&self, slot: &'static Slot<T>) -> &T {
        let Some(&Some(state)) = self.states.get(slot.index()) else { missing::<T>() };
        // SAFETY: `add` stored a `T` for this slot, whose index no other slot has; it lives as long as `self`.
        unsafe { state.cast::<T>().as_ref() }
    }

    /// Returns a service as [`Services::get`] does, for a subsystem that extends another while a host is created.
    ///
    /// # Panics
    /// As [`Services::get`].
    pub fn get_mut<T: Any + Send + Sync>(&mut self, slot: &'static Slot<T>) -> &mut T {
        let Some(&Some(state)) = self.states.get(slot.index()) else { missing::<T>() };
        // SAFETY: as in `get`; `self` is borrowed mutably.
        unsafe { state.cast::<T>().as_mut() }
    }
}

#[cold]
fn missing<T>() -> ! {
    panic!("no state of type {}: its subsystem is not part of this simulation", type_name::<T>())
}

#[cfg(test)]
mod tests {
    use super::{Services, Slot};

    static FIRST: Slot<u32> = Slot::new();
    static SECOND: Slot<u32> = Slot::new();

    #[test]
    fn slots_of_one_type_hold_separate_states() {
        let mut services = Services::default();
        services.add(&SECOND, 2);
        services.add(&FIRST, 1);
        *services.get_mut(&FIRST) += 10;
        assert_eq!((*services.get(&FIRST), *services.get(&SECOND)), (11, 2));
    }

    #[test]
    #[should_panic(expected = "not part of this simulation")]
    fn state_of_an_absent_subsystem_is_an_error() {
        let _ = Services::default().get(&FIRST);
    }
}
