// SPDX-License-Identifier: MIT OR Apache-2.0

//! A buffer that the driver made available: its descriptors, checked.

use crate::registers::Misuse;

/// A buffer that the driver made available.
pub struct Chain {
    /// Its head descriptor, or its buffer id in a packed ring.
    pub head: u16,
    /// Device-readable parts, then device-writable ones.
    pub readable: Vec<(u64, u32)>,
    pub writable: Vec<(u64, u32)>,
    /// Of the queue, when the buffer was taken.
    pub(super) resets: u64,
}

impl Chain {
    pub(super) fn new(head: u16) -> Self {
        Self { head, readable: Vec::new(), writable: Vec::new(), resets: 0 }
    }

    pub fn writable_len(&self) -> u64 {
        self.writable.iter().map(|&(_, len)| u64::from(len)).sum()
    }

    /// Adds the part of a descriptor.
    pub(super) fn push(&mut self, address: u64, len: u32, is_writable: bool) -> Result<(), Misuse> {
        let head = self.head;
        if len == 0 {
            return Err(Misuse::ring(format!("a descriptor of 0 bytes in chain {head}")));
        }
        if is_writable {
            self.writable.push((address, len));
        } else if self.writable.is_empty() {
            self.readable.push((address, len));
        } else {
            return Err(Misuse::ring(format!(
                "chain {head} has a readable descriptor after a writable one (virtio 2.7.4.2)"
            )));
        }
        Ok(())
    }
}
