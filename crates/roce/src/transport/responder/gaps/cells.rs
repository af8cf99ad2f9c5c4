// SPDX-License-Identifier: MIT OR Apache-2.0

//! The division of the [stash](super::stash)'s memory into cells, by the length of the frames.
//!
//! A block has the size of the longest frame. It is one cell, or divided into two or eight for shorter frames, as far as they do not
//! become too short, until all of them are free again. A cell is identified by the number of its first unit, an eighth of a block.

use alloc::vec::Vec;

use fallible::{AllocError, vec};

/// Units of a block.
pub(super) const UNITS: u32 = 8;

/// Bytes of the shortest cell, at least: each takes some for its description.
const SHORTEST: usize = 512;

/// The end of a list.
const NONE: u32 = u32::MAX;

/// The blocks, and which of their cells are free.
#[derive(Debug)]
pub(super) struct Cells {
    blocks: Vec<Block>,
    /// The first block without a cell in use.
    free: u32,
    /// The first block with some cells in use and some free, of two cells and of eight.
    partial: [u32; 2],
    /// Units that are in no cell in use.
    free_units: u32,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    /// The neighbors in the list that the block is in: of free blocks (`next` only) or of partly used ones.
    next: u32,
    previous: u32,
    /// A bit for each unit with which a cell in use begins.
    used: u8,
    /// Units of each cell.
    units: u8,
}

impl Block {
    /// Returns a bit for each unit with which a cell begins.
    const fn cells(self) -> u8 {
        match self.units {
            1 => 0xFF,
            4 => 0x11,
            _ => 0x01,
        }
    }

    /// Returns the index of the list of partly used blocks like this one.
    const fn list(self) -> usize {
        (self.units == 1) as usize
    }
}

impl Cells {
    /// Creates the cells of `blocks` blocks.
    pub(super) fn try_new(blocks: u32) -> Result<Self, AllocError> {
        let block = Block { next: NONE, previous: NONE, used: 0, units: 0 };
        let mut cells = Self {
            blocks: vec::filled(blocks as usize, block)?,
            free: NONE,
            partial: [NONE; 2],
            free_units: blocks.saturating_mul(UNITS),
        };
        for at in (0..blocks).rev() {
            cells.free_block(at);
        }
        Ok(cells)
    }

    /// Returns the units of a cell for a frame of `len` bytes, if a block has `size` bytes; `None` if it is longer than that.
    pub(super) const fn units_for(len: usize, size: usize) -> Option<u32> {
        if len > size {
            None
        } else if len <= size / 8 && size / 8 >= SHORTEST {
            Some(1)
        } else if len <= size / 2 && size / 2 >= SHORTEST {
            Some(4)
        } else {
            Some(UNITS)
        }
    }

    /// Returns how many cells a block of `size` bytes has at most.
    pub(super) const fn most_of(size: usize) -> usize {
        match Self::units_for(0, size) {
            Some(1) => 8,
            Some(4) => 2,
            _ => 1,
        }
    }

    /// Returns the units that are in no cell in use.
    pub(super) const fn free_units(&self) -> u32 {
        self.free_units
    }

    /// Returns the units of a cell in use.
    pub(super) fn units(&self, cell: u32) -> u32 {
        self.blocks.get((cell / UNITS) as usize).map_or(0, |block| block.units.into())
    }

    /// Takes a cell of `units` units, a number of [`Cells::units_for`]. Returns its number.
    pub(super) fn acquire(&mut self, units: u32) -> Option<u32> {
        let wanted = Block { next: NONE, previous: NONE, used: 0, units: units as u8 };
        let partial = self.partial.get(wanted.list()).copied().filter(|&at| units < UNITS && at != NONE);
        let at = partial.unwrap_or(self.free);
        let mut block = *self.blocks.get(at as usize)?;
        if partial.is_none() {
            self.free = block.next;
            block = wanted;
        }
        let unit = (block.cells() & !block.used).trailing_zeros();
        block.used |= 1u8.checked_shl(unit)?;
        let is_full = block.used == block.cells();
        self.set(at, block);
        match (partial.is_some(), is_full) {
            (true, true) => self.unlink(at),
            (false, false) => self.link(at),
            _ => {}
        }
        self.free_units = self.free_units.saturating_sub(units);
        Some(at.wrapping_mul(UNITS) | unit)
    }

    /// Frees a cell in use. Returns its units.
    pub(super) fn release(&mut self, cell: u32) -> u32 {
        let at = cell / UNITS;
        let Some(mut block) = self.blocks.get(at as usize).copied() else { return 0 };
        let units = u32::from(block.units);
        let was_full = block.used == block.cells();
        block.used &= !(1 << (cell % UNITS));
        self.set(at, block);
        match (block.used, was_full) {
            (0, true) => self.free_block(at),
            (0, false) => {
                self.unlink(at);
                self.free_block(at);
            }
            (_, true) => self.link(at),
            (_, false) => {}
        }
        self.free_units = self.free_units.saturating_add(units);
        units
    }

    fn set(&mut self, at: u32, block: Block) {
        if let Some(place) = self.blocks.get_mut(at as usize) {
            *place = block;
        }
    }

    fn free_block(&mut self, at: u32) {
        let next = core::mem::replace(&mut self.free, at);
        self.set(at, Block { next, previous: NONE, used: 0, units: 0 });
    }

    /// Adds a block to the list of partly used ones like it.
    fn link(&mut self, at: u32) {
        let Some(block) = self.blocks.get(at as usize).copied() else { return };
        let Some(first) = self.partial.get_mut(block.list()) else { return };
        let next = core::mem::replace(first, at);
        self.set(at, Block { next, previous: NONE, ..block });
        if let Some(next) = self.blocks.get_mut(next as usize) {
            next.previous = at;
        }
    }

    /// Removes a block from its list of partly used ones.
    fn unlink(&mut self, at: u32) {
        let Some(block) = self.blocks.get(at as usize).copied() else { return };
        if let Some(next) = self.blocks.get_mut(block.next as usize) {
            next.previous = block.previous;
        }
        if let Some(previous) = self.blocks.get_mut(block.previous as usize) {
            previous.next = block.next;
        } else if let Some(first) = self.partial.get_mut(block.list()) {
            *first = block.next;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Takes cells until none is left, and returns their number.
    fn exhaust(cells: &mut Cells, units: u32) -> Vec<u32> {
        core::iter::from_fn(|| cells.acquire(units)).collect()
    }

    #[test]
    fn a_cell_is_at_least_as_long_as_its_frame() {
        for size in [4224, 2176, 1152, 640] {
            for len in 0..=size {
                let units = Cells::units_for(len, size).unwrap();
                assert!(len <= units as usize * size / 8, "{len} in {units}");
                assert!(units as usize * Cells::most_of(size) >= 8, "{units} of {size}");
            }
            assert_eq!(Cells::units_for(size + 1, size), None);
        }
        assert_eq!([528, 529, 2112, 2113].map(|len| Cells::units_for(len, 4224)), [1, 4, 4, 8].map(Some));
        assert_eq!([0, 576, 577].map(|len| Cells::units_for(len, 1152)), [4, 4, 8].map(Some));
        assert_eq!(Cells::units_for(0, 640), Some(8));
    }

    #[test]
    fn blocks_are_divided_and_whole_again() {
        let mut cells = Cells::try_new(5).unwrap();
        for units in [8, 1, 4, 1, 8, 4] {
            let taken = exhaust(&mut cells, units);
            assert_eq!(taken.len() as u32, 5 * UNITS / units);
            assert_eq!(cells.free_units(), 0);
            for cell in taken {
                assert_eq!(cells.release(cell), units);
            }
            assert_eq!(cells.free_units(), 5 * UNITS);
        }
    }

    proptest! {
        #[test]
        fn cells_in_use_do_not_overlap(steps in proptest::collection::vec((0usize..4, 0usize..64), 0..300)) {
            let mut cells = Cells::try_new(4).unwrap();
            let mut used = BTreeMap::new();
            for (step, which) in steps {
                let units = [1, 4, 8].get(step).copied();
                if let Some(units) = units {
                    if let Some(cell) = cells.acquire(units) {
                        prop_assert!(cell % units == 0 && cell + units <= 4 * UNITS);
                        prop_assert_eq!(used.insert(cell, units), None);
                    }
                } else if let Some((&cell, &units)) = used.iter().nth(which % used.len().max(1)) {
                    used.remove(&cell);
                    prop_assert_eq!(cells.release(cell), units);
                }
                let mut end = 0;
                for (&cell, &units) in &used {
                    prop_assert!(cell >= end);
                    end = cell + units;
                }
                prop_assert_eq!(cells.free_units(), 4 * UNITS - used.values().sum::<u32>());
            }
        }
    }
}
