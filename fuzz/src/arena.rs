// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory for the engine: zones, separated by guard bytes.

use std::cell::UnsafeCell;
use std::ptr::NonNull;

use roce::Backing;

/// Length of a zone in bytes.
pub const ZONE: usize = 2048;
/// Guard bytes before and after each zone.
const GUARD: usize = 128;
const ZONES: usize = 6;

/// A zone, by the purpose of its registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Zone {
    /// The peer may read and write it.
    Shared,
    /// The peer may read it.
    Readable,
    /// Destination of receives and READs of this side.
    Sink,
    /// Source of the sends of this side.
    Source,
    /// Registered in another protection domain, with remote read and write access.
    Foreign,
    /// Without rights of peers but through a window or a fast registration.
    Windowed,
}

impl Zone {
    pub const ALL: [Self; ZONES] =
        [Self::Shared, Self::Readable, Self::Sink, Self::Source, Self::Foreign, Self::Windowed];

    fn start(self) -> usize {
        GUARD + self as usize * (ZONE + GUARD)
    }
}

/// The memory of all zones.
pub struct Arena {
    bytes: Box<[UnsafeCell<u8>]>,
    /// Ranges that the engine may write, as offsets from and to.
    writable: Vec<(usize, usize)>,
}

/// Returns the initial value of the byte at `at`.
fn pattern(at: usize) -> u8 {
    (at.wrapping_mul(0x9E37_79B1) >> 11) as u8
}

impl Arena {
    pub fn new() -> Self {
        let len = GUARD + ZONES * (ZONE + GUARD);
        Self { bytes: (0..len).map(|at| UnsafeCell::new(pattern(at))).collect(), writable: Vec::new() }
    }

    /// Returns the backing of a zone, in two segments. The arena must outlive the engine.
    pub fn backing(&self, zone: Zone) -> Backing {
        let mut backing = Backing::new();
        // Not a power of two, so that packets cross the boundary.
        let first = 700;
        for (at, len) in [(zone.start(), first), (zone.start() + first, ZONE - first)] {
            let cells = &self.bytes[at..at + len];
            let base = NonNull::new(UnsafeCell::raw_get(cells.as_ptr())).expect("not null");
            // SAFETY: the cells are writable through their pointer while the arena exists, and it outlives the engine;
            // `read` creates no reference that lives while the engine runs.
            unsafe { backing.push(base, len) }.expect("two segments fit");
        }
        backing
    }

    /// Allows the engine to write `[from, from + len)` of a zone.
    pub fn allow(&mut self, zone: Zone, from: usize, len: usize) {
        self.writable.push((zone.start() + from, zone.start() + from + len));
    }

    fn read(&self, at: usize) -> u8 {
        // SAFETY: the engine runs on this thread only, and is not being called now.
        unsafe { *self.bytes[at].get() }
    }

    /// Returns the bytes of a zone.
    pub fn zone(&self, zone: Zone) -> Vec<u8> {
        (zone.start()..zone.start() + ZONE).map(|at| self.read(at)).collect()
    }

    /// Panics if a byte was written that the engine must not write.
    pub fn check(&self) {
        let mut writable = self.writable.clone();
        writable.sort_unstable();
        let mut free_from = 0;
        for (from, to) in writable.into_iter().chain([(self.bytes.len(), self.bytes.len())]) {
            for at in free_from..from {
                assert_eq!(self.read(at), pattern(at), "byte {at} was written ({})", describe(at));
            }
            free_from = free_from.max(to);
        }
    }
}

fn describe(at: usize) -> String {
    let zone = Zone::ALL.into_iter().find(|zone| (zone.start()..zone.start() + ZONE).contains(&at));
    zone.map_or("a guard".into(), |zone| format!("{zone:?} at {}", at - zone.start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(arena: &Arena, at: usize) {
        // SAFETY: no other code accesses the arena.
        unsafe { *arena.bytes[at].get() = !pattern(at) };
    }

    #[test]
    fn write_outside_of_allowed_ranges_is_detected() {
        let mut arena = Arena::new();
        arena.allow(Zone::Sink, 10, 5);
        write(&arena, Zone::Sink.start() + 14);
        arena.check();
        for at in [0, Zone::Sink.start() + 15, Zone::Foreign.start() + ZONE] {
            let arena = Arena { writable: arena.writable.clone(), ..Arena::new() };
            write(&arena, at);
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| arena.check())).is_err());
        }
    }
}
