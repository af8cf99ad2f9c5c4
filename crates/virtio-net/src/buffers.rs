// SPDX-License-Identifier: MIT OR Apache-2.0

//! Frame buffers of one queue: `count` buffers of one size, each a virtio header followed by a frame.
//!
//! With HASH_REPORT the header is longer: after the common part it contains the hash of a received frame. On transmit these bytes stay
//! zero.
//!
//! Buffers are allocated in blocks of at most [`BLOCK`] bytes, because a running system rarely has megabytes of
//! contiguous memory.
#![allow(unsafe_code, reason = "memory that the device reads and writes")]

use alloc::vec::Vec;

use fallible::vec;

use crate::error::Error;
use crate::hal::{Dma, Hal};

/// The virtio network header with VERSION_1, in bytes, on receive and transmit. (virtio §9)
pub const HEADER_LEN: usize = 12;
/// Bytes that HASH_REPORT adds to the header: value and type of a hash.
pub(crate) const HASH_LEN: usize = 8;
/// The longest header, in bytes.
pub const MAX_HEADER_LEN: usize = HEADER_LEN + HASH_LEN;

/// Alignment of each buffer in bytes: a cache line.
const ALIGNMENT: usize = 64;
/// Maximum block size in bytes; a larger buffer gets a block of its own.
const BLOCK: usize = 64 * 1024;

#[derive(Debug)]
pub(crate) struct Buffers<H: Hal> {
    blocks: Vec<Dma<H>>,
    /// Bytes from one buffer to the next.
    stride: u32,
    per_block: u32,
    /// Length of the header, in bytes: [`HEADER_LEN`] or [`MAX_HEADER_LEN`].
    header: u32,
    /// Length of header and frame, in bytes.
    len: u32,
}

impl<H: Hal> Buffers<H> {
    /// Allocates `count` buffers for frames of up to `max_frame` bytes. `has_hash`: the headers contain a hash.
    pub(crate) fn new(hal: &H, count: u16, max_frame: usize, has_hash: bool) -> Result<Self, Error> {
        let header = if has_hash { MAX_HEADER_LEN } else { HEADER_LEN };
        let len = max_frame.checked_add(header).ok_or(Error::NoMemory)?;
        let stride = len.checked_next_multiple_of(ALIGNMENT).ok_or(Error::NoMemory)?;
        let per_block = BLOCK.checked_div(stride).unwrap_or(0).max(1);
        let wanted = usize::from(count).div_ceil(per_block);
        let block_len = stride.checked_mul(per_block).ok_or(Error::NoMemory)?;
        let mut blocks = vec::with_capacity(wanted)?;
        for _ in 0..wanted {
            vec::push_within_capacity(&mut blocks, Dma::new(hal, block_len)?)?;
        }
        let fitting = |value: usize| u32::try_from(value).map_err(|_| Error::NoMemory);
        Ok(Self {
            blocks,
            stride: fitting(stride)?,
            per_block: fitting(per_block)?,
            header: fitting(header)?,
            len: fitting(len)?,
        })
    }

    /// Returns the length of the header, in bytes.
    pub(crate) fn header_len(&self) -> usize {
        self.header as usize
    }

    /// Returns the length of the longest frame, in bytes.
    pub(crate) fn frame_len(&self) -> usize {
        self.len().saturating_sub(self.header_len())
    }

    /// Returns the length of header and frame, in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns the device address of buffer `id`.
    pub(crate) fn device_address(&self, id: u16) -> Option<u64> {
        let (block, offset) = self.place(id)?;
        Some(self.blocks.get(block)?.device_address(offset))
    }

    /// Copies the first `to.len()` bytes of the frame in buffer `id` to `to`; copies nothing if the buffer is shorter. Returns the frame's
    /// header, without a hash.
    pub(crate) fn read(&self, id: u16, to: &mut [u8]) -> [u8; HEADER_LEN] {
        let mut header = [0; HEADER_LEN];
        if to.len() <= self.frame_len()
            && let Some((block, offset)) = self.place(id)
            && let Some(block) = self.blocks.get(block)
        {
            block.read_parts(offset, &mut header, self.header_len(), to);
        }
        header
    }

    /// Returns the hash in the header of buffer `id`; zeros if headers contain none.
    pub(crate) fn read_hash(&self, id: u16) -> [u8; HASH_LEN] {
        let mut hash = [0; HASH_LEN];
        if self.header_len() == MAX_HEADER_LEN
            && let Some((block, offset)) = self.place(id)
            && let Some(block) = self.blocks.get(block)
        {
            block.read(offset.saturating_add(HEADER_LEN), &mut hash);
        }
        hash
    }

    /// Copies the first `to.len()` bytes of buffer `id`, in which a frame continues, to `to`; copies nothing if the
    /// buffer is shorter.
    pub(crate) fn read_continuation(&self, id: u16, to: &mut [u8]) {
        if to.len() <= self.len()
            && let Some((block, offset)) = self.place(id)
            && let Some(block) = self.blocks.get(block)
        {
            block.read(offset, to);
        }
    }

    /// Writes the header of buffer `id`, without a hash.
    ///
    /// # Safety
    /// Buffer `id` is not outstanding: the device does not access it.
    pub(crate) unsafe fn write_header(&mut self, id: u16, header: [u8; HEADER_LEN]) {
        let Some((block, offset)) = self.place(id) else { return };
        let Some(block) = self.blocks.get_mut(block) else { return };
        // SAFETY: the caller's guarantee is that of the called function.
        let bytes = unsafe { block.bytes_mut(offset, HEADER_LEN) };
        if let Some(to) = bytes.first_chunk_mut() {
            *to = header;
        }
    }

    /// Returns the frame area of buffer `id`, for writing.
    ///
    /// # Safety
    /// Buffer `id` is not outstanding: the device does not access it.
    pub(crate) unsafe fn frame_mut(&mut self, id: u16) -> &mut [u8] {
        let (start, len) = (self.header_len(), self.frame_len());
        let Some((block, offset)) = self.place(id) else { return &mut [] };
        let Some(block) = self.blocks.get_mut(block) else { return &mut [] };
        // SAFETY: the caller's guarantee is that of the called function.
        unsafe { block.bytes_mut(offset.saturating_add(start), len) }
    }

    /// Returns the block index and the byte offset of buffer `id`.
    fn place(&self, id: u16) -> Option<(usize, usize)> {
        let id = u32::from(id);
        let block = id.checked_div(self.per_block)?;
        let offset = id.checked_rem(self.per_block)?.checked_mul(self.stride)?;
        Some((block as usize, offset as usize))
    }
}
