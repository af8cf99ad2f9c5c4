// SPDX-License-Identifier: MIT OR Apache-2.0

//! The memory of a connection's messages.

use driver_support::status::Result;
use fallible::Arc;
use ndk_abi::ndk::{NDK_SGE, NDK_SGE_Anonymous};
use ndk_abi::nt::{LARGE_INTEGER, STATUS_INTERNAL_ERROR};
use nt::PAGE_SIZE;

use super::limits::SLOT;
use super::message::Message;
use crate::ndk::{Adapter, Lam};
use crate::os::Buffer;

/// Slots of one message each, in nonpaged memory that the device reaches by logical addresses.
pub struct Messages {
    // Declared before the buffer: the mapping is released before the memory is freed.
    lam: Lam,
    buffer: Buffer,
    token: u32,
}

impl Messages {
    /// Allocates `slots` slots; requests name them under `token`, the privileged one. `PASSIVE_LEVEL`.
    pub fn new(adapter: &Arc<Adapter>, token: u32, slots: usize) -> Result<Self> {
        // Whole pages are page-aligned, so that no slot crosses a page boundary.
        let size = (slots * SLOT).next_multiple_of(PAGE_SIZE);
        let buffer = Buffer::new(size)?;
        // SAFETY: the buffer is nonpaged, and declared after the mapping.
        let lam = unsafe { Lam::new(adapter, buffer.mdl(), size) }?;
        Ok(Self { lam, buffer, token })
    }

    /// Returns the entry of a slot, for a request.
    pub fn entry(&self, slot: usize) -> Result<NDK_SGE> {
        let nothing = NDK_SGE_Anonymous { LogicalAddress: LARGE_INTEGER { QuadPart: 0 } };
        let mut entry = [NDK_SGE { Anonymous: nothing, Length: 0, MemoryRegionToken: 0 }];
        match self.lam.entries(self.token, slot * SLOT, Message::SIZE, &mut entry)? {
            (1, Message::SIZE) => Ok(entry[0]),
            _ => Err(STATUS_INTERNAL_ERROR),
        }
    }

    /// Writes a message to a slot that no request uses.
    pub fn store(&self, slot: usize, message: Message) -> Result {
        self.buffer.store(slot * SLOT, &message.to_bytes())
    }

    /// Reads the message of `length` bytes that a receive has placed in a slot.
    pub fn load(&self, slot: usize, length: usize) -> Result<Message> {
        let mut bytes = [0; SLOT];
        let bytes = bytes.get_mut(..length).ok_or(STATUS_INTERNAL_ERROR)?;
        self.buffer.load(slot * SLOT, bytes)?;
        Message::parse(bytes)
    }
}
