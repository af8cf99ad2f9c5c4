// SPDX-License-Identifier: MIT OR Apache-2.0

//! Reporting violations of NDIS rules.

use nt_sim::{BugCheck, violation};

use crate::sources;

/// An address that no memory has: the result of a call that fails, which a driver must not use.
pub(crate) const POISON: usize = 0xdead_dead_dead_dead;

/// Reports a violation of an NDIS rule, and where the rule is stated.
#[cold]
pub(crate) fn broken(text: impl Into<String>) -> ! {
    let text = text.into();
    let source = sources::of_report(&text);
    violation(BugCheck::BUGCODE_NDIS_DRIVER, format!("{text} ({source})"))
}

/// Reports `text` as a violation unless `kept`.
#[inline]
pub(crate) fn require(kept: bool, text: impl FnOnce() -> String) {
    if !kept {
        broken(text());
    }
}
