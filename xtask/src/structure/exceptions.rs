// SPDX-License-Identifier: MIT OR Apache-2.0

//! Findings that the check of the structure lets pass: each entry fails once it is no longer needed.

/// The most methods that a type may have.
pub const MAX_METHODS: usize = 40;

/// A type with more than [`MAX_METHODS`].
pub struct LargeType {
    pub package: &'static str,
    pub name: &'static str,
    /// How many it may have.
    pub methods: usize,
    pub reason: &'static str,
}

/// The types that may have more.
pub const LARGE_TYPES: &[LargeType] = &[];

/// Calls of methods in one file by another that close a circle today: caller, called. Temporary: a split `impl` becomes types that
/// do not call each other.
pub const CALLS: &[(&str, &str)] = &[];
