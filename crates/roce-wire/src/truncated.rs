// SPDX-License-Identifier: MIT OR Apache-2.0

//! The one error of reading a header.

use core::fmt;

/// The input is shorter than the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncated;

impl fmt::Display for Truncated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the input is shorter than the header")
    }
}

impl core::error::Error for Truncated {}
