// SPDX-License-Identifier: MIT OR Apache-2.0

//! Bytes that objects allocate, by their parameters. Not included are what each object of a type allocates, less than a page and of
//! a queue pair less than two, and tables of the engine, which grow by doubling, as the memory of queue pairs does by a half and up to 64
//! at once.

use crate::cq;
use crate::recv_queue::RecvQueue;
use crate::region::fast_register;
use crate::transport::requester::send_queue::SendQueue;

/// Returns the bytes of a completion queue of `depth` completions, or of giving it this depth.
#[must_use]
pub const fn completions(depth: u32) -> usize {
    cq::entry_bytes(depth)
}

/// Returns the bytes of a receive queue, shared or not, of `depth` receives with up to `sges` elements, or of giving it this
/// depth.
#[must_use]
pub const fn receives(depth: u32, sges: u32) -> usize {
    RecvQueue::bytes(depth, sges)
}

/// Returns the bytes of a send queue of `depth` requests with up to `sges` elements and `inline` bytes of inline data. A READ
/// with more elements allocates room for all requests when the first is posted.
#[must_use]
pub const fn requests(depth: u32, sges: u32, inline: u32) -> usize {
    SendQueue::bytes(depth, sges, inline)
}

/// Returns the bytes of a region for fast registration of up to `pages` pages.
#[must_use]
pub const fn fast_region(pages: u32) -> usize {
    fast_register::page_list_bytes(pages)
}
