// SPDX-License-Identifier: MIT OR Apache-2.0

//! Logical address mappings (LAM): pages that the privileged token gives access to.
//!
//! Logical addresses are the engine's own, since a software provider has no IOMMU. A mapping is a contiguous
//! range of them, so that one element may span its pages. All adapters of a miniport adapter share the addresses; each
//! adapter releases its own mappings. The consumer's buffer gets one entry per page and, in `AdapterContext`, the number
//! of the mapping, which no other mapping of the driver has: a second release, or one through another adapter, finds no
//! mapping rather than a wrong one.
//= R-QP-42

use crate::base::state::memory;
use crate::base::state::provider_state::Engine;
use crate::base::status::{self, NtResult};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};
use ndk_abi::nt::{STATUS_BUFFER_TOO_SMALL, STATUS_INSUFFICIENT_RESOURCES};
use nt::{Mapping, MdlChain, PAGE_SIZE, Span, SpinLock};

/// The number of mappings built so far, modulo its range: distinguishes the mappings that have the same slot.
static BUILT: AtomicU32 = AtomicU32::new(0);

/// The mappings of one adapter.
pub struct LogicalMappings(SpinLock<Slots>);

struct Slots {
    slots: Vec<Slot>,
    /// Index of the first free slot, or the number of slots.
    free: usize,
}

enum Slot {
    Used(Mapped),
    /// With the index of the next free slot.
    Free(usize),
}

struct Mapped {
    number: usize,
    /// Logical address of the first page.
    base: u64,
    /// Keeps the pages mapped; dropped after the range is unmapped.
    mapping: Mapping,
}

/// A mapping as reported to the consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Built {
    /// The value of `AdapterContext`; not 0.
    pub number: usize,
    /// Logical address of the first page. The other pages follow without gaps.
    pub first_page: u64,
    pub pages: u32,
    /// Offset of the first byte in the first page.
    //= R-LAM-11
    pub offset: u32,
}

/// Returns the size in bytes of a mapping's description: the head and one address per page.
//= R-LAM-7
pub fn description_size(span: &Span) -> NtResult<u32> {
    let size = span.pages.checked_mul(8).and_then(|entries| entries.checked_add(16));
    size.and_then(|size| u32::try_from(size).ok()).ok_or(STATUS_INSUFFICIENT_RESOURCES)
}

/// Returns the description size of a mapping of the first `length` bytes of the chain.
///
/// # Errors
/// `STATUS_BUFFER_TOO_SMALL` with the size if it exceeds `room` bytes; another status without a size.
//= R-LAM-1, R-LAM-2, R-LAM-3, R-LAM-4, R-LAM-5, R-LAM-6
pub fn needed(chain: MdlChain<'_>, length: usize, room: u32) -> Result<u32, (i32, Option<u32>)> {
    let span = chain.span(length).map_err(|error| (status::mdl(error), None))?;
    let needed = description_size(&span).map_err(|status| (status, None))?;
    if room < needed { Err((STATUS_BUFFER_TOO_SMALL, Some(needed))) } else { Ok(needed) }
}

impl LogicalMappings {
    pub const fn new() -> Self {
        Self(SpinLock::new(Slots { slots: Vec::new(), free: 0 }))
    }

    /// `NdkBuildLAM`: maps the first `length` bytes of the chain.
    //= R-LAM-10, R-LAM-17, R-LAM-18, R-LAM-19, R-LAM-24
    pub fn build(&self, engine: &Engine, chain: MdlChain<'_>, length: usize) -> NtResult<Built> {
        let mapping = Mapping::new(chain, length).map_err(status::mdl)?;
        let span = mapping.span();
        let pages = u32::try_from(span.pages).map_err(|_| STATUS_INSUFFICIENT_RESOURCES)?;
        let base = memory::map_logical(engine, &mapping).map_err(status::create)?;
        let mut slots = self.0.lock();
        match slots.insert(Mapped { number: 0, base, mapping }) {
            Ok(number) => Ok(Built { number, first_page: base, pages, offset: span.offset() as u32 }),
            Err(mapped) => {
                drop(slots);
                engine.memory().unmap_logical(mapped.base);
                Err(STATUS_INSUFFICIENT_RESOURCES)
            }
        }
    }

    /// `NdkReleaseLAM`: undoes a mapping. Unknown numbers are ignored.
    //= R-LAM-21, R-LAM-22
    //= R-LAM-23, R-CONSUMER-16
    pub fn release(&self, engine: &Engine, number: usize) {
        let removed = self.0.lock().remove(number);
        if let Some(mapped) = removed {
            engine.memory().unmap_logical(mapped.base);
            drop(mapped.mapping);
        }
    }

    /// Returns the logical addresses of a mapping, or `None` if there is none of this number.
    #[cfg(feature = "strict")]
    pub fn range(&self, number: usize) -> Option<core::ops::Range<u64>> {
        match self.0.lock().slots.get(index(number))? {
            Slot::Used(mapped) if mapped.number == number => {
                let span = mapped.mapping.span();
                let start = mapped.base.saturating_add(span.offset() as u64);
                Some(start..start.saturating_add(span.length as u64))
            }
            _ => None,
        }
    }

    /// Undoes every remaining mapping.
    pub fn release_all(&self, engine: &Engine) {
        let mut slots = self.0.lock();
        for slot in slots.slots.drain(..) {
            if let Slot::Used(mapped) = slot {
                engine.memory().unmap_logical(mapped.base);
            }
        }
        slots.free = 0;
    }
}

impl Slots {
    /// Stores a mapping and returns the number that it gives it.
    fn insert(&mut self, mut mapped: Mapped) -> Result<usize, Mapped> {
        let index = self.free;
        mapped.number = number(index);
        let number = mapped.number;
        if let Some(slot) = self.slots.get_mut(index) {
            if let Slot::Free(next) = *slot {
                self.free = next;
                *slot = Slot::Used(mapped);
                return Ok(number);
            }
            return Err(mapped);
        }
        if let Err(Slot::Used(mapped)) = fallible::vec::push_or_return(&mut self.slots, Slot::Used(mapped)) {
            return Err(mapped);
        }
        self.free = self.slots.len();
        Ok(number)
    }

    fn remove(&mut self, number: usize) -> Option<Mapped> {
        let index = index(number);
        let slot = self.slots.get_mut(index)?;
        if !matches!(slot, Slot::Used(mapped) if mapped.number == number) {
            return None;
        }
        let freed = core::mem::replace(slot, Slot::Free(self.free));
        self.free = index;
        match freed {
            Slot::Used(mapped) => Some(mapped),
            Slot::Free(_) => None,
        }
    }
}

/// Returns a new number for a mapping in the slot `index`: the index plus 1 in the lower half.
fn number(index: usize) -> usize {
    let built = BUILT.fetch_add(1, Ordering::Relaxed) as usize;
    built << 32 | index.wrapping_add(1) & 0xffff_ffff
}

/// Returns the slot of a mapping with this number.
fn index(number: usize) -> usize {
    (number & 0xffff_ffff).wrapping_sub(1)
}

const _: () = assert!(PAGE_SIZE == 4096 && usize::BITS == 64);
