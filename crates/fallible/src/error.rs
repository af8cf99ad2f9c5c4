// SPDX-License-Identifier: MIT OR Apache-2.0

use alloc::collections::TryReserveError;
use core::fmt;

/// An allocation failed. In the driver, this becomes `STATUS_INSUFFICIENT_RESOURCES`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocError;

impl From<TryReserveError> for AllocError {
    fn from(_: TryReserveError) -> Self {
        Self
    }
}

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("out of memory")
    }
}

impl core::error::Error for AllocError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_is_missing() {
        assert_eq!(AllocError.to_string(), "out of memory");
    }
}
