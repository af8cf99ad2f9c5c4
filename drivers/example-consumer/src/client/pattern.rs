// SPDX-License-Identifier: MIT OR Apache-2.0

//! Generated data, and checksums.

use driver_support::status::Result;

use crate::os::Buffer;

/// Bytes that are generated or read at once: on the stack.
const CHUNK: usize = 256;

/// CRC-32 of one byte at each value (polynomial 0xEDB88320, as in Ethernet and zip).
#[allow(clippy::indexing_slicing, reason = "evaluated at compile time")]
const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 0 { crc >> 1 } else { (crc >> 1) ^ 0xedb8_8320 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// Fills the buffer with data that depends on `seed`.
pub fn fill(buffer: &Buffer, seed: u32) -> Result {
    let mut state = seed | 1;
    let mut offset = 0;
    while offset < buffer.len() {
        let mut chunk = [0; CHUNK];
        for word in chunk.as_chunks_mut::<4>().0 {
            // Marsaglia's xorshift.
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            *word = state.to_le_bytes();
        }
        let length = CHUNK.min(buffer.len() - offset);
        buffer.store(offset, chunk.get(..length).unwrap_or_default())?;
        offset += length;
    }
    Ok(())
}

/// Returns the CRC-32 of the buffer.
pub fn crc(buffer: &Buffer) -> Result<u32> {
    let mut crc = u32::MAX;
    let mut offset = 0;
    while offset < buffer.len() {
        let mut chunk = [0; CHUNK];
        let length = CHUNK.min(buffer.len() - offset);
        let bytes = chunk.get_mut(..length).unwrap_or_default();
        buffer.load(offset, bytes)?;
        for &byte in &*bytes {
            let index = (crc ^ u32::from(byte)) & 0xff;
            crc = TABLE.get(index as usize).copied().unwrap_or(0) ^ (crc >> 8);
        }
        offset += length;
    }
    Ok(!crc)
}
