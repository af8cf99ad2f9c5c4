// SPDX-License-Identifier: MIT OR Apache-2.0

//! The pool, and the special pool of the verifier.
//!
//! With the verifier on, every block is at the end of its own pages, followed by a page without access: an
//! overrun faults at the instruction that causes it. The rest of the block's pages contains a pattern that is
//! checked when the block is freed. A freed block is unmapped at once, so that a use after free faults; its
//! pages are poisoned and quarantined, so that a later write by a device is detected. With the verifier off,
//! blocks are packed in the direct map, and only leaks are checked.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;

use super::{
    paged::Paged,
    physical::{PAGE_SIZE, Pfn, Physical},
    space::{Protection, Space},
};
use crate::{
    guest::Guest,
    image::frame::{Capture, DEPTH, Walk},
    verifier::codes::BugCheck,
};

/// Pattern around a block, inside its pages.
const SLACK: u8 = 0x6b;
/// Pattern of a new block that is not zeroed.
pub(crate) const FRESH: u8 = 0xcd;
/// Pattern of the pages of a freed block.
const POISON: u8 = 0xdf;
/// Maximum number of freed blocks in quarantine.
const QUARANTINE_BLOCKS: usize = 4096;
/// Maximum number of pages in quarantine.
const QUARANTINE_PAGES: usize = 8192;
/// Maximum number of mappings of special pool, of the 65,530 that Linux allows a process: other hosts need some, too.
const SPECIAL_MAPPINGS: usize = 16_000;
/// Pages of the largest block whose pages follow from its address. Those of larger ones follow from the seed.
const SMALL: usize = 4;
/// Runs of contiguous pages in a block of special pool. Each takes a mapping.
const RUNS: usize = 16;

/// Alignment of small blocks.
const ALIGNMENT: usize = 16;

/// A pool tag: four characters, first in the lowest byte.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub u32);

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0.to_le_bytes() {
            write!(f, "{}", if byte.is_ascii_graphic() || byte == b' ' { char::from(byte) } else { '.' })?;
        }
        Ok(())
    }
}

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{self}'")
    }
}

/// Parameters of an allocation.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub size: usize,
    pub tag: Tag,
    pub zeroed: bool,
    pub cache_aligned: bool,
}

/// A block in use.
#[derive(Clone, Debug)]
pub struct Block {
    pub size: usize,
    pub tag: Tag,
    /// Position in the order of allocations.
    pub sequence: u64,
    /// Stack of the allocation; without special pool its innermost frame only.
    pub stack: Walk,
    /// Whether the block was freed, but is held back.
    held: bool,
    place: Place,
}

impl Block {
    fn check_tag(&self, tag: Option<Tag>) -> Result<(), Misuse> {
        match tag {
            Some(tag) if tag != self.tag => {
                let text = format!("a block of tag '{}' was freed with tag '{tag}'", self.tag);
                Err(Misuse { code: BugCheck::BAD_POOL_CALLER, text })
            }
            _ => Ok(()),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Place {
    /// First address, pages without the guard page.
    Special { start: usize, pages: usize },
    /// Whole pages of the direct map.
    Pages { first: Pfn, pages: usize },
    /// A cell of a size class.
    Cell { class: usize },
}

struct Freed {
    address: usize,
    block: Block,
    /// The physical pages of a block of special pool.
    pages: Vec<Pfn>,
}

/// A violation of the pool's rules.
#[derive(Debug)]
pub struct Misuse {
    pub code: BugCheck,
    pub text: String,
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.text)
    }
}

impl std::error::Error for Misuse {}

/// The pool of one host.
pub struct Pool {
    special: bool,
    capture: Capture,
    paged: Arc<Paged>,
    allocations: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    blocks: BTreeMap<usize, Block>,
    /// Mappings of the blocks in special pool.
    mappings: usize,
    quarantine: VecDeque<Freed>,
    quarantine_pages: usize,
    /// Free cells by class.
    cells: [Vec<usize>; CLASSES],
}

/// Sizes of cells: 32 bytes to a page, doubling.
const CLASSES: usize = 8;
const SMALLEST_CELL: usize = 32;

impl Pool {
    pub fn new(special: bool, capture: Capture, paged: Arc<Paged>) -> Self {
        Self { special, capture, paged, allocations: AtomicU64::new(0), state: Mutex::default() }
    }

    /// Returns the number of blocks allocated so far.
    #[must_use]
    pub fn allocations(&self) -> u64 {
        self.allocations.load(Relaxed)
    }

    /// Allocates a block; returns `None` when memory is exhausted.
    pub fn allocate(&self, physical: &Physical, space: &Space, request: Request) -> Option<Guest<u8>> {
        let stack = (self.capture)(if self.special { DEPTH } else { 1 });
        let sequence = self.allocations.fetch_add(1, Relaxed);
        let mut state = self.state.lock();
        let special = self.special && state.mappings < SPECIAL_MAPPINGS;
        let (address, place) = if special {
            let block = special_block(physical, space, request)?;
            state.mappings += mappings(request.size.div_ceil(PAGE_SIZE).max(1));
            block
        } else {
            state.dense_block(physical, request.size)?
        };
        address.fill(if request.zeroed { 0 } else { FRESH }, request.size);
        state.blocks.insert(
            address.address(),
            Block { size: request.size, tag: request.tag, sequence, stack, held: false, place },
        );
        Some(address)
    }

    /// Makes a block of special pool pageable. Other blocks share their pages.
    pub fn make_pageable(&self, address: Guest<u8>) {
        let place = self.state.lock().blocks.get(&address.address()).map(|block| (block.place, name(block)));
        if let Some((Place::Special { start, pages }, name)) = place {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            self.paged.add(start..start + pages * PAGE_SIZE, protection, format!("paged pool, {name}"));
        }
    }

    /// Frees a block. `tag`, if given, must be its tag.
    ///
    /// # Errors
    /// [`Misuse`] when there is no such block, the tag differs, or the memory around it was written to.
    pub fn free(
        &self,
        physical: &Physical,
        space: &Space,
        address: Guest<u8>,
        tag: Option<Tag>,
    ) -> Result<(), Misuse> {
        let mut state = self.state.lock();
        let Some(block) = state.blocks.get(&address.address()) else {
            return Err(state.unknown(address.address()));
        };
        if block.held {
            return Err(freed_twice(block));
        }
        block.check_tag(tag)?;
        if let Place::Special { start, .. } = block.place {
            self.paged.remove(start);
        }
        if let Place::Special { start, pages } = block.place
            && let Some(at) = changed(start, address.address(), SLACK)
                .or_else(|| changed(address.address() + block.size, start + pages * PAGE_SIZE, SLACK))
        {
            return Err(Misuse {
                code: BugCheck::BAD_POOL_HEADER,
                text: outside(block, address.address(), at),
            });
        }
        let Some(block) = state.blocks.remove(&address.address()) else { return Ok(()) };
        match block.place {
            Place::Special { start, pages } => {
                Guest::<u8>::from_address(start).fill(POISON, pages * PAGE_SIZE);
                let frames: Vec<_> =
                    (0..pages).filter_map(|page| space.pfn(start + page * PAGE_SIZE)).collect();
                space.unmap(start, pages);
                state.mappings -= mappings(pages);
                state.quarantine_pages += pages;
                state.quarantine.push_back(Freed { address: address.address(), block, pages: frames });
                state.release(physical, space, QUARANTINE_BLOCKS, QUARANTINE_PAGES)
            }
            Place::Pages { first, pages } => {
                physical.free(first, pages);
                Ok(())
            }
            Place::Cell { class } => {
                state.cells[class].push(address.address());
                Ok(())
            }
        }
    }

    /// Checks that the block at an address has the tag, if one is given. An address without a block passes.
    ///
    /// # Errors
    /// [`Misuse`] when it has another.
    pub fn check_tag(&self, address: usize, tag: Option<Tag>) -> Result<(), Misuse> {
        self.state.lock().blocks.get(&address).map_or(Ok(()), |block| block.check_tag(tag))
    }

    /// Frees a block, but keeps it with its contents until [`Pool::release_held`].
    ///
    /// # Errors
    /// [`Misuse`] when there is no such block, or it was freed before.
    pub fn hold(&self, address: Guest<u8>) -> Result<(), Misuse> {
        let mut state = self.state.lock();
        match state.blocks.get_mut(&address.address()) {
            Some(block) if block.held => Err(freed_twice(block)),
            Some(block) => {
                block.held = true;
                Ok(())
            }
            None => Err(state.unknown(address.address())),
        }
    }

    /// Returns the blocks of [`Pool::hold`] that are `selected`, for the caller to free.
    pub fn release_held(&self, selected: impl Fn(&Block) -> bool) -> Vec<Guest<u8>> {
        let mut state = self.state.lock();
        let selected = state.blocks.iter_mut().filter(|(_, block)| block.held && selected(block));
        selected
            .map(|(&address, block)| {
                block.held = false;
                Guest::from_address(address)
            })
            .collect()
    }

    /// Returns the first block in use, in the order of allocation, that has this size, and this tag if one is given.
    #[must_use]
    pub fn find(&self, size: usize, tag: Option<Tag>) -> Option<Guest<u8>> {
        let state = self.state.lock();
        let alike =
            state.blocks.iter().filter(|(_, block)| block.size == size && block.check_tag(tag).is_ok());
        let first = alike.filter(|(_, block)| !block.held).min_by_key(|(_, block)| block.sequence);
        first.map(|(&address, _)| Guest::from_address(address))
    }

    /// Returns the size of a block in use.
    #[must_use]
    pub fn size_of(&self, address: usize) -> Option<usize> {
        self.state.lock().blocks.get(&address).map(|block| block.size)
    }

    /// Returns the addresses of the blocks in use, in their order.
    #[must_use]
    pub fn ranges(&self) -> Vec<Range<usize>> {
        self.state.lock().blocks.iter().map(|(&start, block)| start..start + block.size).collect()
    }

    /// Returns the blocks in use, in the order of allocation.
    #[must_use]
    pub fn blocks(&self) -> Vec<Block> {
        let mut blocks: Vec<_> = self.state.lock().blocks.values().cloned().collect();
        blocks.sort_by_key(|block| block.sequence);
        blocks
    }

    /// Releases all blocks in quarantine after checking that they were not written to.
    ///
    /// # Errors
    /// [`Misuse`] when something wrote to a freed block.
    pub fn check_freed(&self, physical: &Physical, space: &Space) -> Result<(), Misuse> {
        self.state.lock().release(physical, space, 0, 0)
    }

    /// Explains an address that faulted, if it belongs to the pool.
    #[must_use]
    pub fn explain(&self, address: usize) -> Option<(BugCheck, String)> {
        // A fault can occur while the lock is held: no explanation then.
        let state = self.state.try_lock()?;
        for (&start, block) in state.blocks.range(..=address).rev().take(1) {
            if let Place::Special { start: first, pages } = block.place
                && (start + block.size..first + (pages + 1) * PAGE_SIZE).contains(&address)
            {
                let text =
                    format!("{} bytes beyond the end of {}", address - (start + block.size), name(block));
                return Some((BugCheck::DRIVER_PAGE_FAULT_BEYOND_END_OF_ALLOCATION, text));
            }
        }
        let freed = state.quarantine.iter().rev().find(|freed| {
            let Place::Special { start, pages } = freed.block.place else { return false };
            (start..start + (pages + 1) * PAGE_SIZE).contains(&address)
        })?;
        let text = format!(
            "offset {} of {}, which was freed",
            address.wrapping_sub(freed.address).cast_signed(),
            name(&freed.block)
        );
        Some((BugCheck::DRIVER_PAGE_FAULT_IN_FREED_SPECIAL_POOL, text))
    }
}

fn freed_twice(block: &Block) -> Misuse {
    Misuse { code: BugCheck::BAD_POOL_CALLER, text: format!("{} was freed twice", name(block)) }
}

fn name(block: &Block) -> String {
    format!("block {} of {} bytes, tag '{}'", block.sequence, block.size, block.tag)
}

fn outside(block: &Block, address: usize, at: usize) -> String {
    if at < address {
        format!("memory {} bytes before {} was written to", address - at, name(block))
    } else {
        format!("memory {} bytes beyond the end of {} was written to", at - address - block.size, name(block))
    }
}

/// Returns the first address in a range that does not contain the pattern.
fn changed(start: usize, end: usize, pattern: u8) -> Option<usize> {
    let expected = [pattern; PAGE_SIZE];
    let chunk = (start..end).step_by(PAGE_SIZE).find(|&chunk| {
        let length = PAGE_SIZE.min(end - chunk);
        !Guest::<u8>::from_address(chunk).holds(&expected[..length])
    })?;
    (chunk..end).find(|&address| Guest::<u8>::from_address(address).read() != pattern)
}

/// Returns the number of mappings that a block of special pool takes, guard page included.
fn mappings(pages: usize) -> usize {
    pages.min(RUNS) + 1
}

/// Allocates a block before a page without access. Its pages are not physically contiguous. The caller fills the block.
fn special_block(physical: &Physical, space: &Space, request: Request) -> Option<(Guest<u8>, Place)> {
    let pages = request.size.div_ceil(PAGE_SIZE).max(1);
    // Small blocks get the pages that may still be mapped at their addresses.
    let small = (pages <= SMALL).then(|| space.reserve_small(pages + 1)).flatten();
    let same = small.and_then(|start| physical.take_for(space.page(start), pages));
    let frames = same.or_else(|| physical.take_scattered(pages, RUNS, u64::MAX));
    let start = small.or_else(|| space.reserve(pages + 1));
    let is_mapped = start
        .zip(frames.as_ref())
        .is_some_and(|(start, frames)| space.map(physical, start, frames, Protection::ReadWrite));
    let (true, Some(start)) = (is_mapped, start) else {
        if let Some(start) = start {
            space.release(start, pages + 1);
        }
        physical.free_pages(&frames.unwrap_or_default());
        return None;
    };
    let offset = if request.size >= PAGE_SIZE {
        0
    } else {
        let alignment = if request.cache_aligned { 64 } else { ALIGNMENT };
        PAGE_SIZE - request.size.next_multiple_of(alignment)
    };
    Guest::<u8>::from_address(start).fill(SLACK, offset);
    let end = offset + request.size;
    Guest::<u8>::from_address(start + end).fill(SLACK, pages * PAGE_SIZE - end);
    Some((Guest::from_address(start + offset), Place::Special { start, pages }))
}

impl State {
    fn dense_block(&mut self, physical: &Physical, size: usize) -> Option<(Guest<u8>, Place)> {
        if size > PAGE_SIZE {
            let pages = size.div_ceil(PAGE_SIZE);
            let first = physical.allocate(pages, 1, u64::MAX)?;
            return Some((physical.direct(first.address()), Place::Pages { first, pages }));
        }
        let cell = size.next_power_of_two().max(SMALLEST_CELL);
        let class = (cell / SMALLEST_CELL).trailing_zeros() as usize;
        if self.cells[class].is_empty() {
            let page = physical.direct(physical.allocate(1, 1, u64::MAX)?.address()).address();
            self.cells[class].extend((page..page + PAGE_SIZE).step_by(cell).rev());
        }
        let address = self.cells[class].pop()?;
        Some((Guest::from_address(address), Place::Cell { class }))
    }

    /// Explains why an address is not a block.
    fn unknown(&self, address: usize) -> Misuse {
        if let Some(freed) = self.quarantine.iter().rev().find(|freed| freed.address == address) {
            return freed_twice(&freed.block);
        }
        let inside =
            self.blocks.range(..address).next_back().filter(|(start, block)| address < *start + block.size);
        let text = match inside {
            Some((start, block)) => {
                format!("the freed address is {} bytes into {}", address - start, name(block))
            }
            None => format!("{address:#x} was freed, which is not a pool block"),
        };
        Misuse { code: BugCheck::BAD_POOL_CALLER, text }
    }

    /// Releases the oldest blocks in quarantine until `blocks` and `pages_kept` are not exceeded.
    fn release(
        &mut self,
        physical: &Physical,
        space: &Space,
        blocks: usize,
        pages_kept: usize,
    ) -> Result<(), Misuse> {
        while self.quarantine.len() > blocks || self.quarantine_pages > pages_kept {
            let Some(Freed { block, pages: frames, .. }) = self.quarantine.pop_front() else { break };
            let Place::Special { start, pages } = block.place else { continue };
            self.quarantine_pages -= pages;
            let touched = frames.iter().enumerate().find_map(|(index, frame)| {
                let memory = physical.direct(frame.address()).address();
                let at = changed(memory, memory + PAGE_SIZE, POISON)?;
                Some(index * PAGE_SIZE + at - memory)
            });
            space.release(start, pages + 1);
            physical.free_pages(&frames);
            if let Some(offset) = touched {
                let text = format!(
                    "memory of {} was written to at page offset {offset:#x} after it was freed, by a device or through another mapping",
                    name(&block),
                );
                return Err(Misuse { code: BugCheck::DRIVER_VERIFIER_DMA_VIOLATION, text });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
