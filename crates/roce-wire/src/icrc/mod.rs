// SPDX-License-Identifier: MIT OR Apache-2.0

//! The invariant CRC (ICRC) of RoCEv2 (IBTA Vol 1 Annex A17), alone or while copying.
//!
//! The CRC is the CRC-32 of Ethernet. It is computed at memory speed, over data in pieces, and optionally copies each
//! piece in the same pass. `header` adds the rules of RoCEv2: the implied first bytes and the variant fields.
//!
//! There are two implementations with equal results. [`Crc::clmul`] folds with the carry-less multiplication of x64 and arm64;
//! [`Crc::detect`] chooses it if the processor has it. [`Crc::table`] runs everywhere. Only XMM and NEON registers are
//! used, which an interrupt handler of 64-bit Windows may use without saving them.
//!
//! Every byte of a source is read exactly once, and the value read is both stored and summed. If the source changes
//! meanwhile, the data may be torn, but its CRC is right.

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod clmul;
mod crc;
mod header;
mod masks;
mod table;
#[cfg(test)]
mod tests;

pub use crc::{Crc, CrcState, ICRC_LEN, Running};
pub(crate) use header::{Prefix, of_packet, of_v4};
pub(crate) use masks::LEAD;
