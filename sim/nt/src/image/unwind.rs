// SPDX-License-Identifier: MIT OR Apache-2.0

//! Walks the image's frames by its exception directory (x64 exception handling: `UNWIND_INFO`).

use super::{
    functions::RuntimeFunction,
    load::Image,
    registers::{RSP, Registers, StackBounds},
};

/// Unwinds one frame: returns the registers of the caller. `call` says that `ip` is a return address; then the
/// call before it selects the function. Returns `None` when the frame cannot be unwound.
pub fn step(image: &Image, stack: &StackBounds, registers: &Registers, call: bool) -> Option<Registers> {
    let mut next = *registers;
    let offset = u32::try_from(registers.ip.wrapping_sub(image.base())).ok()?;
    let looked_up = if call { offset.checked_sub(1)? } else { offset };
    if let Some(function) = image.functions().find(looked_up) {
        unwind(image, stack, &mut next, offset, function)?;
    }
    next.ip = stack.read(next.general[RSP])?;
    next.general[RSP] += 8;
    Some(next)
}

fn unwind(
    image: &Image,
    stack: &StackBounds,
    registers: &mut Registers,
    offset: u32,
    function: RuntimeFunction,
) -> Option<()> {
    const CHAINED: u8 = 4;
    let mut function = function;
    // A chain has one link in practice; the limit protects against damaged tables.
    for _ in 0..8 {
        let info = Info::read(image, function.unwind)?;
        info.apply(
            stack,
            registers,
            offset.wrapping_sub(function.begin),
            offset >= function.begin && offset < function.end,
        )?;
        if info.flags & CHAINED == 0 {
            return Some(());
        }
        let chained = function.unwind as usize + 4 + info.codes.len().next_multiple_of(2) * 2;
        function = RuntimeFunction::parse(image.bytes(chained, 12)?);
    }
    None
}

/// `UNWIND_INFO`.
struct Info<'a> {
    flags: u8,
    prologue: u8,
    frame_register: usize,
    frame_offset: usize,
    codes: Codes<'a>,
}

struct Codes<'a>(&'a [u8]);

impl Codes<'_> {
    fn len(&self) -> usize {
        self.0.len() / 2
    }

    /// Returns offset in the prologue, operation, and operation info.
    fn code(&self, index: usize) -> Option<(u8, u8, usize)> {
        let bytes = self.0.get(index * 2..index * 2 + 2)?;
        Some((bytes[0], bytes[1] & 15, usize::from(bytes[1] >> 4)))
    }

    fn operand16(&self, index: usize) -> Option<usize> {
        let bytes = self.0.get(index * 2..index * 2 + 2)?;
        Some(usize::from(u16::from_le_bytes([bytes[0], bytes[1]])))
    }

    fn operand32(&self, index: usize) -> Option<usize> {
        Some(self.operand16(index)? | self.operand16(index + 1)? << 16)
    }
}

impl<'a> Info<'a> {
    fn read(image: &'a Image, at: u32) -> Option<Self> {
        let header = image.bytes(at as usize, 4)?;
        let codes = image.bytes(at as usize + 4, usize::from(header[2]) * 2)?;
        Some(Self {
            flags: header[0] >> 3,
            prologue: header[1],
            frame_register: usize::from(header[3] & 15),
            frame_offset: usize::from(header[3] >> 4) * 16,
            codes: Codes(codes),
        })
    }

    /// Undoes the part of the prologue that has run.
    fn apply(&self, stack: &StackBounds, registers: &mut Registers, ran: u32, inside: bool) -> Option<()> {
        const PUSH_NONVOL: u8 = 0;
        const ALLOC_LARGE: u8 = 1;
        const ALLOC_SMALL: u8 = 2;
        const SET_FPREG: u8 = 3;
        const SAVE_NONVOL: u8 = 4;
        const SAVE_NONVOL_FAR: u8 = 5;
        const EPILOG: u8 = 6;
        const SAVE_XMM128: u8 = 8;
        const SAVE_XMM128_FAR: u8 = 9;
        // Only the primary entry has a prologue that can be interrupted.
        let in_prologue = inside && ran < u32::from(self.prologue);
        let base = if self.frame_register != 0 && !in_prologue {
            registers.general[self.frame_register].wrapping_sub(self.frame_offset)
        } else {
            registers.general[RSP]
        };
        let mut index = 0;
        while index < self.codes.len() {
            let (at, operation, info) = self.codes.code(index)?;
            let skip = in_prologue && u32::from(at) > ran;
            let slots = match (operation, info) {
                (ALLOC_LARGE, 0) | (SAVE_NONVOL | SAVE_XMM128, _) => 2,
                (ALLOC_LARGE | SAVE_NONVOL_FAR | SAVE_XMM128_FAR, _) => 3,
                _ => 1,
            };
            if !skip {
                match operation {
                    PUSH_NONVOL => {
                        registers.general[info] = stack.read(registers.general[RSP])?;
                        registers.general[RSP] += 8;
                    }
                    ALLOC_LARGE if info == 0 => {
                        registers.general[RSP] += self.codes.operand16(index + 1)? * 8;
                    }
                    ALLOC_LARGE => registers.general[RSP] += self.codes.operand32(index + 1)?,
                    ALLOC_SMALL => registers.general[RSP] += info * 8 + 8,
                    SET_FPREG => registers.general[RSP] = base,
                    SAVE_NONVOL => {
                        registers.general[info] = stack.read(base + self.codes.operand16(index + 1)? * 8)?;
                    }
                    SAVE_NONVOL_FAR => {
                        registers.general[info] = stack.read(base + self.codes.operand32(index + 1)?)?;
                    }
                    // Version 2 lists where epilogues are; calls are not in one.
                    EPILOG | SAVE_XMM128 | SAVE_XMM128_FAR => {}
                    // A machine frame, or an unknown operation.
                    _ => return None,
                }
            }
            index += slots;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Unwinds a function that has run its prologue of 19 bytes from a stack pointer of 0x1000.
    fn unwound(codes: &[u8]) -> Option<usize> {
        let info = Info { flags: 0, prologue: 19, frame_register: 0, frame_offset: 0, codes: Codes(codes) };
        let mut registers = Registers::at(0, 0x1000, 0);
        let stack = StackBounds { low: 0, high: 0 };
        info.apply(&stack, &mut registers, 30, true)?;
        Some(registers.general[RSP])
    }

    #[test]
    fn epilogues_that_version_2_lists_leave_the_frame_alone() {
        // 40 bytes allocated at offset 19, without and with two epilogues.
        assert_eq!(unwound(&[0x13, 0x42]), Some(0x1028));
        assert_eq!(unwound(&[0x01, 0x06, 0x02, 0x06, 0x13, 0x42]), Some(0x1028));
    }

    #[test]
    fn unknown_operation_ends_the_walk() {
        assert_eq!(unwound(&[0x01, 0x0b, 0x13, 0x42]), None);
    }
}
