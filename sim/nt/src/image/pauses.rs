// SPDX-License-Identifier: MIT OR Apache-2.0

//! `pause`, which code executes while it waits for another processor. With the deterministic clock one thread runs at a time, and
//! the others only when it calls the kernel: a thread that spins would wait forever. So each `pause` becomes an instruction that
//! faults, and counts as a call.

use iced_x86::{Code, Decoder, DecoderOptions};

/// Bytes of the instruction.
pub const LENGTH: u64 = 2;
/// `ud2`, of the same length.
pub const FAULT: [u8; LENGTH as usize] = [0x0f, 0x0b];

/// Returns the offsets of the instructions in `code`, which is at the offset `begin`. What follows bytes that are no instruction is no
/// code.
pub fn find(begin: u32, code: &[u8]) -> Vec<u32> {
    let decoder = Decoder::with_ip(64, code, begin.into(), DecoderOptions::NONE);
    let instructions = decoder.into_iter().take_while(|instruction| !instruction.is_invalid());
    let pauses = instructions.filter(|instruction| instruction.code() == Code::Pause);
    // Offsets from the base have 32 bits.
    pauses.map(|instruction| instruction.ip() as u32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_of_a_leaf_function_are_found_behind_padding() {
        // int3, pause, ret, and `mov eax, imm32` with the bytes of a pause.
        let code = [0xcc, 0xcc, 0xf3, 0x90, 0xc3, 0xb8, 0xf3, 0x90, 0xf3, 0x90, 0xf3, 0x90];
        assert_eq!(find(0x1000, &code), [0x1002, 0x100a]);
        assert_eq!(find(0, &[0x06, 0xf3, 0x90]), [0; 0], "no instruction of 64-bit code");
    }
}
