// SPDX-License-Identifier: MIT OR Apache-2.0

//! Violations of the rings' rules by the driver.

use core::error::Error;
use core::fmt;

/// A violation of the rings' rules by the driver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Violation {
    /// A ring or a descriptor breaks a rule.
    Ring(String),
    /// A descriptor refers to memory that is not mapped for the device.
    Unmapped(String),
}

impl Violation {
    pub(crate) fn ring(text: impl Into<String>) -> Self {
        Self::Ring(text.into())
    }

    /// Returns the violation of a driver that names memory outside the device's mappings; `what` is the part of the ring.
    #[must_use]
    pub fn unmapped(what: &str, address: u64, len: u64) -> Self {
        Self::Unmapped(format!("{what} at {address:#x}, {len} bytes: not mapped for the device"))
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ring(text) | Self::Unmapped(text) => f.write_str(text),
        }
    }
}

impl Error for Violation {}
