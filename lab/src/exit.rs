// SPDX-License-Identifier: MIT OR Apache-2.0

//! Exit codes of `cargo xtask`'s commands.
//!
//! | code | meaning |
//! | --- | --- |
//! | 0 | success |
//! | 1 | a check failed, or an operation that should have worked did not |
//! | 2 | an input or an option cannot be used; no file was written |
//! | 3 | `demo`: the copy did not complete, for example because the peer was cut off |

use std::fmt;

/// Exit code for an input or option that cannot be used. clap ends with the same.
pub const UNUSABLE_INPUT: u8 = 2;
/// Exit code of a demo whose copy did not complete.
pub const INCOMPLETE: u8 = 3;

/// An error with an exit code of its own. Any other error ends the program with exit code 1.
#[derive(Debug)]
pub struct Exit {
    pub code: u8,
    pub message: String,
}

impl Exit {
    /// An error for an input or option that cannot be used: exit code 2.
    pub fn usage(message: impl Into<String>) -> anyhow::Error {
        Self { code: UNUSABLE_INPUT, message: message.into() }.into()
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Exit {}

/// Returns the exit code for `error`.
#[must_use]
pub fn exit_code(error: &anyhow::Error) -> u8 {
    error.downcast_ref::<Exit>().map_or(1, |exit| exit.code)
}
