// SPDX-License-Identifier: MIT OR Apache-2.0

//! Offsets of the fields of records.

/// Bit 0: the host.
pub(super) const HOST: usize = 1;
/// The kind of a change or a request, or the fate of a frame.
pub(super) const KIND: usize = 2;
pub(super) const LENGTH: usize = 3;
pub(super) const OFFSET: usize = 5;
pub(super) const KEY: usize = 7;
pub(super) const FLAGS: usize = 8;
pub(super) const VALUE: usize = 9;
