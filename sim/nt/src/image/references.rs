// SPDX-License-Identifier: MIT OR Apache-2.0

//! Instructions that use entries of an import table: who calls an import that the simulated kernel does not have.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};

/// The instructions of one image that matter, as offsets from its base.
#[derive(Default)]
pub struct References {
    /// Each with the offset that it uses, and whether it jumps there.
    uses: Vec<(u32, u32, bool)>,
    /// Direct calls, each with its target.
    calls: Vec<(u32, u32)>,
}

impl References {
    /// Adds the instructions of `code`, which is at the offset `begin`, that use one of the sorted `slots`.
    pub fn add(&mut self, begin: u32, code: &[u8], slots: &[u32]) {
        // Offsets from the base have 32 bits.
        let of = |instruction: &Instruction| instruction.ip() as u32;
        for instruction in &mut Decoder::with_ip(64, code, begin.into(), DecoderOptions::NONE) {
            let jumps = instruction.flow_control() == FlowControl::IndirectBranch;
            if instruction.is_ip_rel_memory_operand() {
                let slot = instruction.ip_rel_memory_address() as u32;
                if slots.binary_search(&slot).is_ok() {
                    self.uses.push((of(&instruction), slot, jumps));
                }
            } else if instruction.is_call_near() {
                self.calls.push((of(&instruction), instruction.near_branch64() as u32));
            }
        }
    }

    /// Returns the offsets of the instructions that use a slot, in order. Where a function does nothing but jump there, as those of an import
    /// library, the calls of that function count.
    #[must_use]
    pub fn of(&self, slot: u32) -> Vec<u32> {
        let mut found = Vec::new();
        for &(at, _, jumps) in self.uses.iter().filter(|(_, used, _)| *used == slot) {
            let calls = self.calls.iter().filter(|(_, target)| jumps && *target == at);
            let before = found.len();
            found.extend(calls.map(|(from, _)| *from));
            if found.len() == before {
                found.push(at);
            }
        }
        found.sort_unstable();
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_an_import_and_of_the_function_that_jumps_to_it_are_found() {
        let code = [
            0xff, 0x15, 0xfa, 0x0f, 0x00, 0x00, // 1000: call [rip + ffah]: 2000
            0xe8, 0x05, 0x00, 0x00, 0x00, // 1006: call 1010
            0xe8, 0x00, 0x00, 0x00, 0x00, // 100b: call 1010
            0xff, 0x25, 0xf2, 0x0f, 0x00, 0x00, // 1010: jmp [rip + ff2h]: 2008
            0x48, 0x8b, 0x05, 0xf3, 0x0f, 0x00, 0x00, // 1016: mov rax, [rip + ff3h]: 2010
        ];
        let mut references = References::default();
        references.add(0x1000, &code, &[0x2000, 0x2008, 0x2010, 0x2018]);
        assert_eq!(references.of(0x2000), [0x1000]);
        assert_eq!(references.of(0x2008), [0x1006, 0x100b]);
        assert_eq!(references.of(0x2010), [0x1016]);
        assert_eq!(references.of(0x2018), [0; 0]);
        // Other entries were not asked for.
        let mut none = References::default();
        none.add(0x1000, &code, &[0x2018]);
        assert_eq!(none.of(0x2000), [0; 0]);
    }
}
