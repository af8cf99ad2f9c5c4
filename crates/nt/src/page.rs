// SPDX-License-Identifier: MIT OR Apache-2.0

//! The page size.

/// Bytes of a page frame: 4 KiB on both amd64 and arm64 Windows.
pub const PAGE_SIZE: usize = 4096;
