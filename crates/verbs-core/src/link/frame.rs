// SPDX-License-Identifier: MIT OR Apache-2.0

//! Buffers of frames, and slots of processes that share an address.

use roce_wire::{Qpn, UDP_PORT};

/// Bits of a slot number.
pub const SLOT_BITS: u8 = 6;

/// Bytes of the longest frame, with room to spare.
pub const FRAME: usize = 4096 + 256;

/// A buffer for one frame.
pub type FrameBuffer = [u8; FRAME];

/// Returns the slot in a queue pair number.
pub fn slot_of(qpn: Qpn) -> u8 {
    (qpn.value() >> (24 - u32::from(SLOT_BITS))) as u8
}

/// Returns the UDP port of a slot.
pub fn port_of(slot: u8) -> u16 {
    UDP_PORT + u16::from(slot)
}
