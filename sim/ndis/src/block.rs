// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory of NDIS's own structures: pool blocks, so that an overrun by the image faults.

use nt_sim::{
    Host,
    guest::Guest,
    memory::pool::{Request, Tag},
};

/// Allocates a zeroed block of `size` bytes; returns `None` when resources run low.
pub(crate) fn allocate(host: &Host, size: usize, tag: Tag) -> Option<Guest<u8>> {
    if host.low_resources.fails() {
        return None;
    }
    let request = Request { size, tag, zeroed: true, cache_aligned: false };
    host.memory.pool.allocate(&host.memory.physical, &host.memory.space, request)
}

/// Frees a block.
pub(crate) fn release(host: &Host, address: Guest<u8>, tag: Tag) {
    let memory = &host.memory;
    if let Err(misuse) = memory.pool.free(&memory.physical, &memory.space, address, Some(tag)) {
        nt_sim::violation(misuse.code, misuse.text);
    }
}
