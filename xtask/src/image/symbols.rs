// SPDX-License-Identifier: MIT OR Apache-2.0

//! The functions of an image: their ranges from the image's unwind tables, their names from its debug information.

use std::{collections::BTreeMap, fs::File, ops::Range, path::Path};

use anyhow::{Context as _, Result};
use pdb2::{FallibleIterator as _, SymbolData};

/// Function names by relative virtual address.
#[derive(Default)]
pub struct Symbols(BTreeMap<u32, String>);

impl Symbols {
    pub fn load(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
        let mut pdb = pdb2::PDB::open(file).with_context(|| format!("{} is not a PDB", path.display()))?;
        let addresses = pdb.address_map()?;
        let mut names = BTreeMap::new();
        let globals = pdb.global_symbols()?;
        let mut symbols = globals.iter();
        while let Some(symbol) = symbols.next()? {
            if let Ok(SymbolData::Public(public)) = symbol.parse()
                && let Some(address) = public.offset.to_rva(&addresses)
            {
                names.insert(address.0, public.name.to_string().into_owned());
            }
        }
        // Procedures have readable names, which replace the mangled public ones.
        let debug = pdb.debug_information()?;
        let mut modules = debug.modules()?;
        while let Some(module) = modules.next()? {
            let Some(info) = pdb.module_info(&module)? else { continue };
            let mut symbols = info.symbols()?;
            while let Some(symbol) = symbols.next()? {
                if let Ok(SymbolData::Procedure(procedure)) = symbol.parse()
                    && let Some(address) = procedure.offset.to_rva(&addresses)
                {
                    names.insert(address.0, procedure.name.to_string().into_owned());
                }
            }
        }
        Ok(Self(names))
    }

    #[cfg(test)]
    pub fn of(names: &[(u32, &str)]) -> Self {
        Self(names.iter().map(|&(address, name)| (address, name.to_owned())).collect())
    }

    /// The name of the function that contains `address`.
    pub fn name(&self, address: u32) -> &str {
        self.0.range(..=address).next_back().map_or("?", |(_, name)| name)
    }

    /// The address of the function that contains `address`; that itself if none does.
    pub fn start(&self, address: u32) -> u32 {
        self.0.range(..=address).next_back().map_or(address, |(&start, _)| start)
    }

    /// Every function, in the order of addresses.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &str)> {
        self.0.iter().map(|(&address, name)| (address, name.as_str()))
    }
}

/// One entry of `.pdata`: a function, or a part of one with an entry of its own.
pub struct Function {
    pub range: Range<u32>,
    /// Bytes of stack that the prologue allocates, without the return address. `None` for a part that is chained to
    /// another entry, whose prologue applies.
    pub frame: Option<u32>,
}

/// Reads `RUNTIME_FUNCTION` entries and the unwind information each of them names.
///
/// `read` gives the image's bytes from a relative virtual address to the end of its section.
pub fn functions<'data>(table: &[u8], read: impl Fn(u32) -> Option<&'data [u8]>) -> Result<Vec<Function>> {
    let mut functions = Vec::new();
    for entry in table.chunks_exact(12) {
        let word = |at: usize| entry.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes);
        let (Some(begin), Some(end), Some(unwind)) = (word(0), word(4), word(8)) else { continue };
        if begin == 0 {
            continue; // alignment behind the last entry
        }
        let info =
            read(unwind).with_context(|| format!("unwind information of {begin:#x} is outside the image"))?;
        let frame = if is_chained(info) {
            None
        } else {
            Some(frame(info).with_context(|| format!("unwind information of {begin:#x} is malformed"))?)
        };
        functions.push(Function { range: begin..end, frame });
    }
    functions.sort_by_key(|function| function.range.start);
    Ok(functions)
}

/// Whether an `UNWIND_INFO` refers to that of another entry.
fn is_chained(info: &[u8]) -> bool {
    const UNW_FLAG_CHAININFO: u8 = 4;
    info.first().is_some_and(|version_and_flags| version_and_flags >> 3 & UNW_FLAG_CHAININFO != 0)
}

/// The frame that an `UNWIND_INFO` describes; `None` when it is malformed.
fn frame(info: &[u8]) -> Option<u32> {
    let &count = info.get(2)?;
    let codes = info.get(4..4 + usize::from(count) * 2)?;
    let mut slots = codes.chunks_exact(2).map(|slot| [slot[0], slot[1]]);
    let mut frame = 0u32;
    while let Some([_, code]) = slots.next() {
        let (operation, info) = (code & 0xf, u32::from(code >> 4));
        match operation {
            0 => frame += 8, // UWOP_PUSH_NONVOL
            1 if info == 0 => frame += u32::from(u16::from_le_bytes(slots.next()?)) * 8, // UWOP_ALLOC_LARGE
            1 => {
                let (low, high) = (slots.next()?, slots.next()?);
                frame += u32::from_le_bytes([low[0], low[1], high[0], high[1]]);
            }
            2 => frame += info * 8 + 8,                    // UWOP_ALLOC_SMALL
            3 => {}                                        // UWOP_SET_FPREG
            4 | 8 => drop(slots.next()?),                  // UWOP_SAVE_NONVOL, UWOP_SAVE_XMM128
            5 | 9 => drop((slots.next()?, slots.next()?)), // the same, far
            10 => frame += 40,                             // UWOP_PUSH_MACHFRAME
            _ => return None,
        }
    }
    Some(frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_add_up_pushes_and_allocations() {
        // push rbp; push rsi; sub rsp, 40 - listed in reverse order of execution
        let info = [0x01, 0x06, 0x03, 0x00, 0x06, 0x42, 0x02, 0x60, 0x01, 0x50];
        assert_eq!(frame(&info), Some(8 + 8 + 40));
    }

    #[test]
    fn large_allocations_take_one_or_two_more_slots() {
        let scaled = [0x01, 0x07, 0x02, 0x00, 0x07, 0x01, 0x00, 0x02];
        assert_eq!(frame(&scaled), Some(0x200 * 8));
        let unscaled = [0x01, 0x07, 0x03, 0x00, 0x07, 0x11, 0x00, 0x00, 0x10, 0x00];
        assert_eq!(frame(&unscaled), Some(0x10_0000));
    }

    #[test]
    fn unwind_information_cut_short_is_malformed() {
        assert_eq!(frame(&[0x01, 0x07, 0x02, 0x00, 0x07, 0x01]), None);
    }
}
