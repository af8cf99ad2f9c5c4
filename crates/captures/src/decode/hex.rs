// SPDX-License-Identifier: MIT OR Apache-2.0

//! Hexadecimal text.

use std::fmt::Write as _;

/// Returns two digits for each byte.
pub fn encode(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
