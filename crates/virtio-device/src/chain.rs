// SPDX-License-Identifier: MIT OR Apache-2.0

//! A buffer that the driver made available: its descriptors, checked.

use crate::violation::Violation;

/// A buffer that the driver made available.
#[derive(Debug)]
pub struct Chain {
    /// Its head descriptor, or its buffer id in a packed ring.
    pub head: u16,
    /// Address and length of the device-readable parts, which come first.
    pub readable: Vec<(u64, u32)>,
    /// Address and length of the device-writable parts.
    pub writable: Vec<(u64, u32)>,
    /// Its parts were in a table of indirect descriptors.
    pub is_indirect: bool,
    /// Resets of the queue before the buffer was taken.
    pub(crate) resets: u64,
}

impl Chain {
    pub(crate) fn new(head: u16) -> Self {
        Self { head, readable: Vec::new(), writable: Vec::new(), is_indirect: false, resets: 0 }
    }

    /// Returns the sum of the writable parts' lengths in bytes.
    #[must_use]
    pub fn writable_len(&self) -> u64 {
        self.writable.iter().map(|&(_, len)| u64::from(len)).sum()
    }

    /// Adds the part of a descriptor.
    pub(crate) fn push(&mut self, address: u64, len: u32, is_writable: bool) -> Result<(), Violation> {
        let head = self.head;
        if len == 0 {
            return Err(Violation::ring(format!("a descriptor of 0 bytes in chain {head}")));
        }
        if is_writable {
            self.writable.push((address, len));
        } else if self.writable.is_empty() {
            self.readable.push((address, len));
        } else {
            return Err(Violation::ring(format!(
                "chain {head} has a readable descriptor after a writable one (virtio 2.7.4.2)"
            )));
        }
        Ok(())
    }
}
