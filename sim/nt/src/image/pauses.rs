// SPDX-License-Identifier: MIT OR Apache-2.0

//! `pause`, which code executes while it waits for another processor. With the deterministic clock one thread runs at a time, and
//! the others only when it calls the kernel: a thread that spins would wait forever. So each `pause` becomes an instruction that
//! faults, and counts as a call.

use iced_x86::{Code, Decoder, DecoderOptions};

use super::functions::RuntimeFunction;

/// Bytes of the instruction.
pub const LENGTH: u64 = 2;
/// `ud2`, of the same length.
pub const FAULT: [u8; LENGTH as usize] = [0x0f, 0x0b];

/// Returns the offsets of the instructions in a function, whose code is passed.
pub fn find(function: RuntimeFunction, code: &[u8]) -> Vec<u32> {
    let decoder = Decoder::with_ip(64, code, function.begin.into(), DecoderOptions::NONE);
    let pauses = decoder.into_iter().filter(|instruction| instruction.code() == Code::Pause);
    // Offsets from the base have 32 bits.
    pauses.map(|instruction| instruction.ip() as u32).collect()
}
