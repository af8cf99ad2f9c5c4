// SPDX-License-Identifier: MIT OR Apache-2.0

//! Limits of a device, which the query calls return.

/// Queue pairs of a process. Their numbers begin with its slot.
pub const QUEUE_PAIRS: u32 = 1 << 12;
/// Requests of a send or receive queue.
pub const REQUESTS: u32 = 1 << 14;
/// Scatter/gather elements of a request.
pub const ELEMENTS: u32 = 32;
/// Bytes of inline data of a request.
pub const INLINE: u32 = 512;
/// Bytes of inline data that every queue pair offers.
pub const MIN_INLINE: u32 = 64;
/// Entries of a completion queue.
pub const COMPLETIONS: u32 = 1 << 20;
/// Completion queues, shared receive queues, address handles and protection domains: bounded by memory only.
pub const OBJECTS: u32 = 1 << 16;
/// Memory regions and windows.
pub const REGIONS: u32 = 1 << 17;
/// READs and atomic operations of a queue pair in either direction.
pub const READS: u8 = 16;
/// Bytes of a message.
pub const MESSAGE: u32 = 1 << 30;
