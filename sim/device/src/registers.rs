// SPDX-License-Identifier: MIT OR Apache-2.0

//! Register accesses, and misuse of a device by its driver.

use std::{error::Error, fmt};

use trapped_access::Width;
use virtio_device::Violation;

/// A violation of the device's rules by its driver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Misuse {
    pub kind: MisuseKind,
    pub text: String,
}

/// Kind of a [`Misuse`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MisuseKind {
    /// A register accessed at the wrong time, with the wrong width or value.
    Register,
    /// A ring or a descriptor that breaks the rules.
    Ring,
    /// DMA to memory that was not mapped for the device.
    Dma,
}

impl Misuse {
    /// Returns a misuse of a register.
    pub fn register(text: impl Into<String>) -> Self {
        Self { kind: MisuseKind::Register, text: text.into() }
    }

    pub(crate) fn ring(text: impl Into<String>) -> Self {
        Self { kind: MisuseKind::Ring, text: text.into() }
    }

    pub(crate) fn dma(text: impl Into<String>) -> Self {
        Self { kind: MisuseKind::Dma, text: text.into() }
    }
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for Misuse {}

impl From<Violation> for Misuse {
    fn from(violation: Violation) -> Self {
        match violation {
            Violation::Ring(text) => Self::ring(text),
            Violation::Unmapped(text) => Self::dma(text),
        }
    }
}

/// Registers behind a memory BAR.
pub trait Registers: Send + Sync {
    /// Reads `width` bytes at `offset` of `bar`.
    ///
    /// # Errors
    /// [`Misuse`] when the access is not allowed; the value read is all ones then.
    fn read(&self, bar: u8, offset: u64, width: Width) -> Result<u64, Misuse>;

    /// Writes `width` bytes at `offset` of `bar`.
    ///
    /// # Errors
    /// [`Misuse`] when the access is not allowed; it has no effect then.
    fn write(&self, bar: u8, offset: u64, width: Width, value: u64) -> Result<(), Misuse>;
}
