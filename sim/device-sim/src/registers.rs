// SPDX-License-Identifier: MIT OR Apache-2.0

//! Register accesses, and misuse of a device by its driver.

use std::{error::Error, fmt};

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
    pub(crate) fn register(text: impl Into<String>) -> Self {
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

/// Width of a register access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Width {
    Byte,
    Word,
    Dword,
    Qword,
}

impl Width {
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Byte => 1,
            Self::Word => 2,
            Self::Dword => 4,
            Self::Qword => 8,
        }
    }

    /// Returns the width of `bytes` bytes.
    #[must_use]
    pub const fn of(bytes: usize) -> Option<Self> {
        Some(match bytes {
            1 => Self::Byte,
            2 => Self::Word,
            4 => Self::Dword,
            8 => Self::Qword,
            _ => return None,
        })
    }

    /// Returns the value that a read of this width has when no device responds.
    #[must_use]
    pub const fn all_ones(self) -> u64 {
        u64::MAX >> (64 - 8 * self.bytes())
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
