// SPDX-License-Identifier: MIT OR Apache-2.0

//! The memory that a call needs, and whether it is at hand at the caller's IRQL.

use nt::irql;

/// The bytes that one call allocates at `DISPATCH_LEVEL`, at most.
///
/// A larger request is left to a work item at `PASSIVE_LEVEL`, for two reasons. At `DISPATCH_LEVEL` pool has only what is free
/// at this moment, and large blocks need pages and address space that are mapped for them; a lower IRQL lets the memory manager
/// free some first. And the provider fills what it allocates: 64 KiB take about 10 us of the 100 us that a DPC may take,
/// the largest queues of [`LIMITS`](super::limits::LIMITS) more than a DPC may.
pub const AT_DISPATCH_LEVEL: usize = 64 << 10;

/// The bytes that a call allocates, at most; without tables of the engine, which grow by doubling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeededMemory(usize);

impl NeededMemory {
    /// An object without queues: less than a page.
    pub const SMALL: Self = Self(4096);

    /// An object with `entries` of `bytes` each.
    pub const fn queue(entries: u32, bytes: usize) -> Self {
        Self(Self::SMALL.0.saturating_add((entries as usize).saturating_mul(bytes)))
    }

    /// Both.
    pub const fn and(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Returns whether the caller may allocate as much at its IRQL.
    pub fn is_at_hand(self) -> bool {
        self.0 <= AT_DISPATCH_LEVEL || irql::current() < irql::DISPATCH_LEVEL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn much_memory_is_at_hand_below_dispatch_level_only() {
        let (small, large) = (NeededMemory::queue(960, 64), NeededMemory::queue(961, 64));
        assert!(small.is_at_hand() && large.is_at_hand());
        let lock = nt::SpinLock::new(());
        let raised = lock.lock();
        assert!(small.is_at_hand() && !large.is_at_hand());
        assert!(!NeededMemory::queue(u32::MAX, usize::MAX).is_at_hand());
        assert!(!small.and(NeededMemory::SMALL).is_at_hand());
        drop(raised);
        assert!(large.is_at_hand());
    }
}
