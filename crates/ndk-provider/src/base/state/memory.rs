// SPDX-License-Identifier: MIT OR Apache-2.0

//! Registers the consumer's memory with the engine.

use super::provider_state::Engine;
use fallible::Arc;
use nt::Mapping;
use roce::{Access, Backing, CreateError, Pd, Region};

/// Registers mapped memory. The caller keeps the mapping until the region is deregistered.
///
/// # Errors
/// The engine's error.
pub fn register(
    engine: &Engine,
    pd: Pd,
    mapping: &Mapping,
    access: Access,
) -> Result<Arc<Region>, CreateError> {
    let span = mapping.span();
    let backing = backing(mapping)?;
    // SAFETY: see `backing`; the caller keeps the mapping until the region is deregistered.
    unsafe { engine.memory().register(pd, span.base, span.length as u64, access, backing) }
}

/// Assigns logical addresses to mapped memory and returns that of its first page. The caller keeps the mapping
/// until the engine has unmapped them.
///
/// # Errors
/// The engine's error.
pub fn map_logical(engine: &Engine, mapping: &Mapping) -> Result<u64, CreateError> {
    let backing = backing(mapping)?;
    // SAFETY: see `backing`; the caller keeps the mapping until the addresses are unmapped.
    unsafe { engine.memory().map_logical(mapping.span().offset() as u64, backing) }
}

fn backing(mapping: &Mapping) -> Result<Backing, CreateError> {
    // SAFETY: system addresses, mapped readable and writable at any IRQL. The consumer keeps the pages locked
    // and the provider keeps the mapping as long as the engine uses them. No Rust reference to a consumer's
    // pages exists.
    unsafe { Backing::contiguous(mapping.base(), mapping.span().length) }
}
