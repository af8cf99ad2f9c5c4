// SPDX-License-Identifier: MIT OR Apache-2.0

/// Largest alignment that the driver image's global allocator supports, in bytes: that of pool memory.
pub const MAX_ALIGNMENT: usize = 16;
