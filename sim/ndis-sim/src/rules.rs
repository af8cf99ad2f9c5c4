// SPDX-License-Identifier: MIT OR Apache-2.0

//! Reporting violations of NDIS rules.

use nt_sim::{BugCheck, violation};

/// Reports a violation of an NDIS rule.
#[cold]
pub(crate) fn broken(text: impl Into<String>) -> ! {
    violation(BugCheck::BUGCODE_NDIS_DRIVER, text)
}

/// Reports `text` as a violation unless `kept`.
#[inline]
pub(crate) fn require(kept: bool, text: impl FnOnce() -> String) {
    if !kept {
        broken(text());
    }
}
