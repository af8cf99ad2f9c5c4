// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory descriptor lists (MDLs): walks a caller's chain, and finds or makes system addresses of its pages.
//!
//! The caller's chain is read during one call and not used after it: [`Mapping`] copies the page frame numbers. Its
//! virtual address is an index and is never dereferenced: it may be unmapped, belong to another process, or be invalid. The
//! system address of nonpaged pool is another matter: it is where the memory is.
//= R-MR-7, R-LAM-20

use crate::page::PAGE_SIZE;
use crate::sys;
use alloc::alloc::{alloc, dealloc};
use core::alloc::Layout;
use core::error::Error;
use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;
use ndk_abi::nt::{MDL, MDL_IO_SPACE, MDL_PAGES_LOCKED, MDL_PARTIAL, MDL_SOURCE_IS_NONPAGED_POOL};

/// Flags of MDLs with valid page frame numbers: one of them is set.
const RESIDENT: i16 = MDL_PAGES_LOCKED | MDL_SOURCE_IS_NONPAGED_POOL | MDL_PARTIAL;

/// Whether the MDL describes resident memory. Device registers, for example, cannot be mapped as memory.
fn is_resident(flags: i16) -> bool {
    flags & RESIDENT != 0 && flags & MDL_IO_SPACE == 0
}

/// Zero-length MDLs that are skipped before the chain is refused as invalid.
const MAX_EMPTY: usize = 64;

/// Why a chain was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MdlError {
    /// The length is zero or exceeds the chain, the chain has a gap, or its pages are not locked.
    Invalid,
    /// Pool or system address space is exhausted.
    NoResources,
}

impl fmt::Display for MdlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Invalid => "the MDL chain is invalid or too short",
            Self::NoResources => "out of pool or system address space",
        })
    }
}

impl Error for MdlError {}

/// A caller's MDL chain, borrowed for the duration of one call.
#[derive(Clone, Copy)]
pub struct MdlChain<'a> {
    first: NonNull<MDL>,
    call: PhantomData<&'a MDL>,
}

/// The pages that a range of a chain touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Virtual address of the first byte: an index, never dereferenced.
    pub base: u64,
    /// Bytes, not 0.
    pub length: usize,
    /// Pages spanned, not 0.
    pub pages: usize,
}

impl Span {
    /// Returns the offset of the first byte in the first page.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.base as usize % PAGE_SIZE
    }

    fn new(base: u64, length: usize) -> Option<Self> {
        let offset = base as usize % PAGE_SIZE;
        base.checked_add(length as u64)?;
        Some(Self { base, length, pages: offset.checked_add(length)?.div_ceil(PAGE_SIZE) })
    }
}

/// One MDL of a chain, read once.
struct Member {
    base: u64,
    bytes: usize,
    pages: *const u64,
    /// The system address of the first byte, if it is in nonpaged pool.
    pool: Option<NonNull<u8>>,
}

impl MdlChain<'_> {
    /// Returns `None` for a null pointer.
    ///
    /// # Safety
    /// `first` is null or a chain of MDLs that does not change for `'a`.
    #[must_use]
    pub unsafe fn new(first: *mut MDL) -> Option<Self> {
        NonNull::new(first).map(|first| Self { first, call: PhantomData })
    }

    /// Returns the pages of the first `length` bytes of the chain, whose virtual addresses must be contiguous and whose
    /// pages must be locked.
    ///
    /// # Errors
    /// [`MdlError::Invalid`] if they are not, or if `length` is zero or exceeds the chain.
    pub fn span(&self, length: usize) -> Result<Span, MdlError> {
        //= R-MR-1, R-MR-2, R-MR-3, R-LAM-1, R-LAM-2, R-LAM-3
        let mut base = None;
        let mut covered = 0;
        self.walk(length, |member, _| {
            base.get_or_insert(member.base);
            covered += member.bytes;
            Ok(())
        })?;
        match base {
            Some(base) if covered >= length && length != 0 => {
                Span::new(base, length).ok_or(MdlError::Invalid)
            }
            _ => Err(MdlError::Invalid),
        }
    }

    /// Calls `page` with the index and frame number of every page of `span`, once each, in order.
    fn frames(&self, span: &Span, mut page: impl FnMut(usize, u64)) -> Result<(), MdlError> {
        let first_page = span.base / PAGE_SIZE as u64;
        let mut known: Option<(usize, u64)> = None;
        self.walk(span.length, |member, wanted| {
            let offset = member.base as usize % PAGE_SIZE;
            let pages = (offset + wanted).div_ceil(PAGE_SIZE);
            let start = (member.base / PAGE_SIZE as u64 - first_page) as usize;
            for index in 0..pages {
                // SAFETY: a list has a frame number behind its header for each page it spans, and `index`
                // stays below the pages that `wanted <= bytes` spans.
                let frame = unsafe { member.pages.add(index) };
                // SAFETY: as above; frame numbers are 8-aligned, they follow a 48-byte header.
                let frame = unsafe { frame.read() };
                match known {
                    //= R-LAM-12
                    // This page was the last one of the previous MDL: the frame must be the same.
                    Some((at, before)) if at == start + index => {
                        if before != frame {
                            return Err(MdlError::Invalid);
                        }
                    }
                    _ => page(start + index, frame),
                }
                known = Some((start + index, frame));
            }
            Ok(())
        })
    }

    /// Returns the system address of the first `length` bytes, if they are nonpaged pool at contiguous addresses.
    fn pool_address(self, length: usize) -> Result<Option<NonNull<u8>>, MdlError> {
        let mut first = None;
        let mut next: Option<usize> = None;
        let mut contiguous = true;
        self.walk(length, |member, wanted| {
            let address = member.pool.map(|address| address.addr().get());
            contiguous &= address.is_some() && (next.is_none() || next == address);
            if first.is_none() {
                first = member.pool;
            }
            next = address.and_then(|address| address.checked_add(wanted));
            Ok(())
        })?;
        Ok(first.filter(|_| contiguous))
    }

    /// Calls `each` for every non-empty MDL, with its number of bytes within `length`, until `length` is covered or the
    /// chain ends.
    fn walk(
        &self,
        length: usize,
        mut each: impl FnMut(&Member, usize) -> Result<(), MdlError>,
    ) -> Result<(), MdlError> {
        let (mut next, mut left, mut empty) = (Some(self.first), length, 0);
        let mut expected = None;
        while let Some(mdl) = next.filter(|_| left != 0) {
            // SAFETY: `new` was promised a chain that stays valid for `'a`; `mdl` is a member of it.
            let header = unsafe { mdl.as_ref() };
            next = NonNull::new(header.Next);
            if header.ByteCount == 0 {
                empty += 1;
                if empty > MAX_EMPTY {
                    return Err(MdlError::Invalid);
                }
                continue;
            }
            let member = Member {
                base: (header.StartVa as u64).wrapping_add(u64::from(header.ByteOffset)),
                bytes: header.ByteCount as usize,
                // SAFETY: the frame numbers follow the header in the same allocation.
                pages: unsafe { mdl.as_ptr().add(1) }.cast::<u64>(),
                pool: NonNull::new(header.MappedSystemVa.cast())
                    .filter(|_| header.MdlFlags & MDL_SOURCE_IS_NONPAGED_POOL != 0),
            };
            let contiguous = expected.is_none_or(|expected| expected == member.base);
            let page_aligned = (header.StartVa as usize).is_multiple_of(PAGE_SIZE)
                && (header.ByteOffset as usize) < PAGE_SIZE;
            if !contiguous || !page_aligned || !is_resident(header.MdlFlags) {
                return Err(MdlError::Invalid);
            }
            expected = Some(member.base.checked_add(member.bytes as u64).ok_or(MdlError::Invalid)?);
            let wanted = member.bytes.min(left);
            each(&member, wanted)?;
            left -= wanted;
        }
        Ok(())
    }
}

/// Pages of a caller's chain at contiguous system addresses. IRQL <= `DISPATCH_LEVEL`.
///
/// Nonpaged pool has system addresses already, which last as long as the memory itself. Other pages are mapped through an MDL of
/// the driver, unmapped and freed when dropped. That costs page table entries and, on release, a flush of the translation buffers
/// of all processors. An address to which the caller has mapped its MDL (`MDL_MAPPED_TO_SYSTEM_VA`) is not used: the caller may
/// unmap it as soon as its call has completed.
pub struct Mapping {
    /// `None` if the pages had system addresses.
    own: Option<OwnMdl>,
    base: NonNull<u8>,
    span: Span,
}

/// An MDL of the driver.
struct OwnMdl {
    mdl: NonNull<MDL>,
    layout: Layout,
}

// SAFETY: a mapping in system space is the same for every thread and process; nothing else is shared.
unsafe impl Send for Mapping {}
// SAFETY: as above; `&Mapping` only gives out the address.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Returns the bytes that mapping `length` bytes of a chain allocates, at most: none if it is nonpaged pool.
    #[must_use]
    pub const fn bytes(length: usize) -> usize {
        // A page more than the length has, since the first byte may be anywhere in its page.
        let pages = (length / PAGE_SIZE).saturating_add(2);
        size_of::<MDL>().saturating_add(pages.saturating_mul(size_of::<u64>()))
    }

    /// Maps the first `length` bytes of `chain` for the processor to read and write.
    ///
    /// # Errors
    /// [`MdlError`]: as [`MdlChain::span`], or pool or system address space is exhausted.
    #[allow(clippy::cast_ptr_alignment)] // the layout's alignment is the header's
    #[allow(clippy::cast_possible_wrap)] // see `Size`
    pub fn new(chain: MdlChain<'_>, length: usize) -> Result<Self, MdlError> {
        let span = chain.span(length)?;
        if let Some(base) = chain.pool_address(length)? {
            return Ok(Self { own: None, base, span });
        }
        let byte_count = u32::try_from(length).map_err(|_| MdlError::NoResources)?;
        let (layout, _) = Layout::array::<u64>(span.pages)
            .and_then(|frames| Layout::new::<MDL>().extend(frames))
            .map_err(|_| MdlError::NoResources)?;
        // SAFETY: the layout is not empty, it holds at least the header.
        let mdl = NonNull::new(unsafe { alloc(layout) }.cast::<MDL>()).ok_or(MdlError::NoResources)?;
        let header = MDL {
            Next: core::ptr::null_mut(),
            // A 16-bit field that the kernel lets wrap for long lists, as MmInitializeMdl does.
            Size: layout.size() as i16,
            MdlFlags: MDL_PAGES_LOCKED,
            Process: core::ptr::null_mut(),
            MappedSystemVa: core::ptr::null_mut(),
            StartVa: (span.base as usize - span.offset()) as *mut _,
            ByteCount: byte_count,
            ByteOffset: span.offset() as u32,
        };
        // SAFETY: `mdl` is fresh memory with the layout of a header and `span.pages` frame numbers.
        unsafe { mdl.write(header) };
        // SAFETY: the frame numbers follow the header in the same allocation.
        let frames = unsafe { mdl.add(1) }.cast::<u64>();
        let copied = chain.frames(&span, |index, frame| {
            debug_assert!(index < span.pages);
            // SAFETY: `frames` visits each page of the span once, so `index < span.pages`, which were
            // allocated behind the header.
            let slot = unsafe { frames.add(index) };
            // SAFETY: the slot is one of the entries behind the header, which were allocated for frame numbers and are not shared yet.
            unsafe { slot.write(frame) };
        });
        let base = copied.and_then(|()| {
            // SAFETY: `mdl` is a complete list of locked pages, and is unmapped before it is freed.
            unsafe { sys::map(mdl) }.ok_or(MdlError::NoResources)
        });
        match base {
            Ok(base) => Ok(Self { own: Some(OwnMdl { mdl, layout }), base, span }),
            Err(error) => {
                // SAFETY: allocated above with this layout, not mapped.
                unsafe { dealloc(mdl.as_ptr().cast(), layout) };
                Err(error)
            }
        }
    }

    /// Returns the system address of the first byte; valid for `span().length` bytes, as long as the owner of the pages
    /// keeps them locked.
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns the mapped range, in the caller's addresses.
    #[must_use]
    pub fn span(&self) -> Span {
        self.span
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let Some(OwnMdl { mdl, layout }) = self.own else { return };
        // SAFETY: mapped by `new` at this address, and unmapped once.
        unsafe { sys::unmap(self.base, mdl) };
        // SAFETY: allocated by `new` with this layout; no reference to it is left.
        unsafe { dealloc(mdl.as_ptr().cast(), layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages of the process and MDLs over them; a page's frame number is its address divided by the page size, as in
    /// the hosted implementation.
    struct Pages(Vec<[u8; PAGE_SIZE]>, usize);

    impl Pages {
        fn new(pages: usize) -> Self {
            let mut memory = vec![[0; PAGE_SIZE]; pages + 1];
            let address = memory.as_mut_ptr().expose_provenance();
            Self(memory, address.next_multiple_of(PAGE_SIZE))
        }

        /// Returns an MDL of `bytes` bytes at the fictitious virtual address `base`, whose first page is `page`.
        fn list(&self, base: u64, bytes: u32, page: usize, next: Option<&List>) -> List {
            let mut words = vec![0u64; 6 + self.0.len()];
            for (index, word) in words.iter_mut().skip(6).enumerate() {
                *word = (self.1 / PAGE_SIZE + page + index) as u64;
            }
            let mdl = words.as_mut_ptr().cast::<MDL>();
            let header = MDL {
                Next: next.map_or(core::ptr::null_mut(), |next| next.0.as_ptr().cast_mut().cast()),
                Size: 48,
                MdlFlags: MDL_PAGES_LOCKED,
                Process: core::ptr::null_mut(),
                MappedSystemVa: core::ptr::null_mut(),
                StartVa: (base & !0xfff) as *mut _,
                ByteCount: bytes,
                ByteOffset: (base & 0xfff) as u32,
            };
            // SAFETY: six words are a header's 48 bytes.
            unsafe { mdl.write(header) };
            List(words)
        }
    }

    struct List(Vec<u64>);

    impl List {
        fn chain(&self) -> MdlChain<'_> {
            // SAFETY: the MDLs of a test outlive it.
            unsafe { MdlChain::new(self.0.as_ptr().cast_mut().cast()) }.unwrap()
        }
    }

    const BASE: u64 = 0xffff_1234_5678_9e10;

    //= R-MR-2, R-MR-3, R-LAM-2, R-LAM-3
    #[test]
    fn span_is_neither_empty_nor_longer_than_the_chain() {
        let pages = Pages::new(2);
        let list = pages.list(BASE, 600, 0, None);
        assert_eq!(list.chain().span(0), Err(MdlError::Invalid));
        assert_eq!(list.chain().span(601), Err(MdlError::Invalid));
        assert_eq!(list.chain().span(600), Ok(Span { base: BASE, length: 600, pages: 2 }));
        assert_eq!(list.chain().span(1).unwrap().pages, 1);
    }

    //= R-MR-1, R-LAM-1
    #[test]
    fn gap_in_the_virtual_addresses_is_refused() {
        let pages = Pages::new(3);
        let second = pages.list(BASE + 601, 100, 0, None);
        let first = pages.list(BASE, 600, 0, Some(&second));
        assert_eq!(first.chain().span(600).map(|span| span.length), Ok(600));
        assert_eq!(first.chain().span(601), Err(MdlError::Invalid));
    }

    #[test]
    fn pages_that_are_not_locked_memory_are_refused() {
        assert!(is_resident(MDL_PAGES_LOCKED) && is_resident(MDL_SOURCE_IS_NONPAGED_POOL));
        assert!(!is_resident(0) && !is_resident(MDL_PAGES_LOCKED | MDL_IO_SPACE));
    }

    //= R-LAM-12
    #[test]
    fn page_shared_by_two_mdls_is_mapped_once() {
        let pages = Pages::new(2);
        let second = pages.list(BASE + 100, 1000, 0, None);
        let first = pages.list(BASE, 100, 0, Some(&second));
        let mapping = Mapping::new(first.chain(), 1100).unwrap();
        assert_eq!(mapping.span().pages, 2);
        assert_eq!(mapping.base().as_ptr().addr(), pages.1 + 0xe10);
    }

    #[test]
    fn mdls_that_disagree_about_a_shared_page_are_refused() {
        let pages = Pages::new(2);
        let second = pages.list(BASE + 100, 100, 1, None);
        let first = pages.list(BASE, 100, 0, Some(&second));
        assert_eq!(Mapping::new(first.chain(), 200).err(), Some(MdlError::Invalid));
    }

    /// Nonpaged pool is used where it is; pages that the caller has mapped are not, since it may unmap them.
    #[test]
    fn only_nonpaged_pool_is_used_without_a_mapping() {
        let pages = Pages::new(3);
        let at = |list: &mut List, flags: i16, address: usize| {
            let mdl = list.0.as_mut_ptr().cast::<MDL>();
            // SAFETY: a header of the test's own.
            let header = unsafe { &mut *mdl };
            header.MdlFlags = flags;
            header.MappedSystemVa = core::ptr::with_exposed_provenance_mut(address);
        };
        let pool = pages.1 + 0xe10;
        let own = |list: &List, length| Mapping::new(list.chain(), length).unwrap();
        let mut second = pages.list(BASE + 600, 100, 1, None);
        at(&mut second, MDL_SOURCE_IS_NONPAGED_POOL, pool + 600);
        let mut first = pages.list(BASE, 600, 0, Some(&second));
        at(&mut first, MDL_SOURCE_IS_NONPAGED_POOL, pool);
        for length in [1, 600, 601, 700] {
            let mapping = own(&first, length);
            assert!(mapping.own.is_none() && mapping.base().addr().get() == pool, "{length}");
        }
        at(&mut second, MDL_SOURCE_IS_NONPAGED_POOL, pool + 4096);
        assert!(own(&first, 700).own.is_some(), "not contiguous");
        assert!(own(&first, 600).own.is_none(), "the second MDL is not part of it");
        at(&mut second, MDL_PAGES_LOCKED, pool + 600);
        assert!(own(&first, 700).own.is_some(), "not pool");
        at(&mut first, MDL_PAGES_LOCKED | ndk_abi::nt::MDL_MAPPED_TO_SYSTEM_VA, pool);
        assert!(own(&first, 600).own.is_some(), "mapped by the caller");
        at(&mut first, MDL_SOURCE_IS_NONPAGED_POOL, 0);
        assert!(own(&first, 600).own.is_some(), "without an address");
    }

    //= R-MR-7, R-MR-8, R-LAM-19, R-LAM-20
    #[test]
    fn mapping_outlives_the_mdl_it_was_made_from() {
        let mut pages = Pages::new(2);
        let list = pages.list(BASE, 600, 0, None);
        let mapping = Mapping::new(list.chain(), 600).unwrap();
        drop(list);
        // SAFETY: the mapping is 600 bytes long.
        let end = unsafe { mapping.base().add(599) };
        // SAFETY: as above, and no other reference to the byte exists.
        unsafe { end.write(7) };
        let skip = pages.1 - pages.0.as_mut_ptr().addr();
        assert_eq!(pages.0.as_flattened()[skip + 0xe10 + 599], 7);
    }
}
