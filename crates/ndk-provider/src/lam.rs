//! Logical address mappings: pages that the privileged token reaches.
//!
//! The addresses are the engine's own (there is no IOMMU behind a provider in software): a mapping is a
//! contiguous range of them, so that one element may span its pages (R-QP-42). The consumer's buffer
//! holds one entry per page and, in `AdapterContext`, the number under which the adapter remembers what to
//! undo; so a release after the adapter's memory was reused finds nothing rather than something else.
//= R-QP-42

use crate::adapter::Adapter;
use crate::dispatch;
use crate::fallible;
use crate::object::Ref;
use crate::provider::Engine;
use crate::status::{self, Answer};
use alloc::vec::Vec;
use ndk_abi::nt::{STATUS_BUFFER_TOO_SMALL, STATUS_INSUFFICIENT_RESOURCES};
use nt::{Mapping, MdlChain, PAGE_SIZE, Span};

/// The mappings of one adapter.
pub struct Mappings {
    places: Vec<Place>,
    /// Index of the first free place, or one past the last.
    free: usize,
}

enum Place {
    Used(Mapped),
    /// With the index of the next free place.
    Free(usize),
}

struct Mapped {
    base: u64,
    /// Keeps the pages; goes after the range.
    mapping: Mapping,
}

/// A mapping as the consumer is shown it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Built {
    /// For `AdapterContext`; not 0.
    pub number: usize,
    /// Logical address of the first page. The rest follows without gaps.
    pub first_page: u64,
    pub pages: u32,
    /// Offset of the first byte in the first page.
    //= R-LAM-11
    pub offset: u32,
}

/// Bytes of a mapping's description: the head, and one address for each page.
//= R-LAM-7
pub fn description_size(span: &Span) -> Answer<u32> {
    let size = span.pages.checked_mul(8).and_then(|entries| entries.checked_add(16));
    size.and_then(|size| u32::try_from(size).ok()).ok_or(STATUS_INSUFFICIENT_RESOURCES)
}

/// What the first `length` bytes of the chain need; `STATUS_BUFFER_TOO_SMALL` with that when `room` is less.
//= R-LAM-1, R-LAM-2, R-LAM-3, R-LAM-4, R-LAM-5, R-LAM-6
pub fn needed(chain: MdlChain<'_>, length: usize, room: u32) -> Result<u32, (i32, Option<u32>)> {
    let span = chain.span(length).map_err(|error| (status::mdl(error), None))?;
    let needed = description_size(&span).map_err(|status| (status, None))?;
    if room < needed { Err((STATUS_BUFFER_TOO_SMALL, Some(needed))) } else { Ok(needed) }
}

/// Maps the first `length` bytes of the chain.
//= R-LAM-10, R-LAM-17, R-LAM-18, R-LAM-19, R-LAM-24
pub fn build(adapter: &Ref<Adapter>, chain: MdlChain<'_>, length: usize) -> Answer<Built> {
    let engine = &adapter.core().engine;
    let mapping = Mapping::new(chain, length).map_err(status::mdl)?;
    let span = mapping.span();
    let pages = u32::try_from(span.pages).map_err(|_| STATUS_INSUFFICIENT_RESOURCES)?;
    let base = dispatch::memory::map_logical(engine, &mapping).map_err(status::create)?;
    let mut mappings = adapter.mappings.lock();
    match mappings.insert(Mapped { base, mapping }) {
        Ok(index) => {
            // The index is below the length of a vector, one more is no overflow.
            let number = index.wrapping_add(1);
            Ok(Built { number, first_page: base, pages, offset: span.offset() as u32 })
        }
        Err(mapped) => {
            drop(mappings);
            engine.unmap_logical(mapped.base);
            Err(STATUS_INSUFFICIENT_RESOURCES)
        }
    }
}

/// Undoes a mapping. Unknown numbers are ignored.
//= R-LAM-21, R-LAM-22
pub fn release(adapter: &Adapter, number: usize) {
    let Some(index) = number.checked_sub(1) else { return };
    let removed = adapter.mappings.lock().remove(index);
    if let Some(mapped) = removed {
        adapter.core().engine.unmap_logical(mapped.base);
        drop(mapped.mapping);
    }
}

impl Mappings {
    pub const fn new() -> Self {
        Self { places: Vec::new(), free: 0 }
    }

    /// Undoes every mapping that is left.
    pub fn release_all(&mut self, engine: &Engine) {
        for place in self.places.drain(..) {
            if let Place::Used(mapped) = place {
                engine.unmap_logical(mapped.base);
            }
        }
        self.free = 0;
    }

    fn insert(&mut self, mapped: Mapped) -> Result<usize, Mapped> {
        let index = self.free;
        if let Some(place) = self.places.get_mut(index) {
            if let Place::Free(next) = *place {
                self.free = next;
                *place = Place::Used(mapped);
                return Ok(index);
            }
            return Err(mapped);
        }
        if let Err(Place::Used(mapped)) = fallible::push(&mut self.places, Place::Used(mapped)) {
            return Err(mapped);
        }
        self.free = self.places.len();
        Ok(index)
    }

    fn remove(&mut self, index: usize) -> Option<Mapped> {
        let place = self.places.get_mut(index)?;
        if matches!(place, Place::Free(_)) {
            return None;
        }
        let freed = core::mem::replace(place, Place::Free(self.free));
        self.free = index;
        match freed {
            Place::Used(mapped) => Some(mapped),
            Place::Free(_) => None,
        }
    }
}

const _: () = assert!(PAGE_SIZE == 4096);
