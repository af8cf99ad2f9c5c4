// SPDX-License-Identifier: MIT OR Apache-2.0

//! The memory that a call needs, and whether it is at hand at the caller's IRQL.
//!
//! Sizes are those of the engine and of mappings ([`object_sizes`], [`Mapping::bytes`]). Two calls cannot pend and allocate
//! what they need at any IRQL: a post of a READ with more elements than its queue pair was created for, the first time, 512 bytes for
//! each request of the queue, at most 2 MiB; and `NdkBuildLAM`, which known consumers expect to complete inline, 8 bytes a page.
//= R-CREATE-38, R-CONSUMER-4

use nt::{Mapping, irql};
use roce::object_sizes;

/// The bytes that one call allocates at `DISPATCH_LEVEL`, at most.
///
/// A larger request is left to a work item at `PASSIVE_LEVEL`, for two reasons. At `DISPATCH_LEVEL` pool has only what is free
/// at this moment, and large blocks need pages and address space that are mapped for them; a lower IRQL lets the memory manager
/// free some first. And the provider fills what it allocates: 64 KiB take about 10 us of the 100 us that a DPC may take,
/// the largest queues of [`LIMITS`](crate::base::limits::LIMITS) more than a DPC may.
pub const AT_DISPATCH_LEVEL: usize = 64 << 10;

/// The bytes that a call allocates, at most; without tables of the engine, which grow by doubling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeededMemory(usize);

impl NeededMemory {
    /// An object without queues: less than a page.
    pub const SMALL: Self = Self(4096);

    /// A queue pair without its queues: less than two pages.
    const QUEUE_PAIR: Self = Self(2 * 4096);

    /// A completion queue of `depth` completions.
    pub const fn completion_queue(depth: u32) -> Self {
        Self::SMALL.and(object_sizes::completions(depth))
    }

    /// A shared receive queue of `depth` receives with up to `sges` elements.
    pub const fn receive_queue(depth: u32, sges: u32) -> Self {
        Self::SMALL.and(object_sizes::receives(depth, sges))
    }

    /// A queue pair: depths, elements of a request, and bytes of inline data.
    pub const fn queue_pair(
        [receive_depth, initiator_depth]: [u32; 2],
        [receive_sges, initiator_sges]: [u32; 2],
        inline: u32,
    ) -> Self {
        Self::QUEUE_PAIR.and(object_sizes::receives(receive_depth, receive_sges)).and(object_sizes::requests(
            initiator_depth,
            initiator_sges,
            inline,
        ))
    }

    /// A region for fast registration of up to `pages` pages.
    pub const fn fast_region(pages: u32) -> Self {
        Self::SMALL.and(object_sizes::fast_region(pages))
    }

    /// The registration of `length` bytes of memory.
    pub const fn registration(length: usize) -> Self {
        Self::SMALL.and(Mapping::bytes(length))
    }

    const fn and(self, bytes: usize) -> Self {
        Self(self.0.saturating_add(bytes))
    }

    /// Returns whether the caller may allocate as much at its IRQL.
    pub fn is_at_hand(self) -> bool {
        self.0 <= AT_DISPATCH_LEVEL || irql::current() < irql::DISPATCH_LEVEL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the largest number for which `needed` is at hand at `DISPATCH_LEVEL`.
    fn largest(needed: impl Fn(u32) -> NeededMemory) -> u32 {
        let (mut fits, mut pends) = (0, 1 << 30);
        while pends - fits > 1 {
            let middle = u32::midpoint(fits, pends);
            *(if needed(middle).0 <= AT_DISPATCH_LEVEL { &mut fits } else { &mut pends }) = middle;
        }
        fits
    }

    /// The examples of `docs/objects/README.md`.
    #[test]
    fn the_documentation_names_the_largest_objects_that_are_created_at_dispatch_level() {
        let largest = [
            ("completions of a completion queue", largest(NeededMemory::completion_queue)),
            (
                "receives of one element of a shared receive queue",
                largest(|depth| NeededMemory::receive_queue(depth, 1)),
            ),
            (
                "requests each way of a queue pair with one element each",
                largest(|depth| NeededMemory::queue_pair([depth; 2], [1; 2], 0)),
            ),
            (
                "requests each way of a queue pair with four elements each",
                largest(|depth| NeededMemory::queue_pair([depth; 2], [4; 2], 0)),
            ),
            ("MiB of a registration", largest(|length| NeededMemory::registration((length as usize) << 20))),
        ];
        let page = include_str!("../../../../../docs/objects/README.md");
        let rows = largest.map(|(what, count)| std::format!("| {what} | {count} |\n")).concat();
        assert!(page.contains(&rows), "docs/objects/README.md has to say:\n{rows}");
    }

    #[test]
    fn much_memory_is_at_hand_below_dispatch_level_only() {
        let most = largest(NeededMemory::completion_queue);
        let (small, large) = (NeededMemory::completion_queue(most), NeededMemory::completion_queue(most + 1));
        assert!(small.is_at_hand() && large.is_at_hand());
        let lock = nt::SpinLock::new(());
        let raised = lock.lock();
        assert!(small.is_at_hand() && !large.is_at_hand());
        assert!(!NeededMemory::queue_pair([u32::MAX; 2], [u32::MAX; 2], u32::MAX).is_at_hand());
        assert!(!NeededMemory::registration(usize::MAX).is_at_hand());
        drop(raised);
        assert!(large.is_at_hand());
    }
}
