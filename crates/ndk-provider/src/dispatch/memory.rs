//! Consumers' memory, given to the engine.

use crate::provider::Engine;
use nt::Mapping;
use roce::{Access, Arc, Backing, CreateError, Pd, Region};

/// Registers what is mapped. The mapping is kept until the engine has deregistered the region.
pub fn register(
    engine: &Engine,
    pd: Pd,
    mapping: &Mapping,
    access: Access,
) -> Result<Arc<Region>, CreateError> {
    let span = mapping.span();
    let backing = backing(mapping)?;
    // SAFETY: as `backing` says, until the region is deregistered.
    unsafe { engine.register(pd, span.base, span.length as u64, access, backing) }
}

/// Gives what is mapped logical addresses, and tells that of its first page. The mapping is kept until the
/// engine has unmapped them.
pub fn map_logical(engine: &Engine, mapping: &Mapping) -> Result<u64, CreateError> {
    let backing = backing(mapping)?;
    // SAFETY: as `backing` says, until the addresses are unmapped.
    unsafe { engine.map_logical(mapping.span().offset() as u64, backing) }
}

fn backing(mapping: &Mapping) -> Result<Backing, CreateError> {
    // SAFETY: system addresses, mapped for the processor to read and write at any IRQL; the consumer keeps
    // the pages locked, and the provider the mapping, as long as the engine knows of them; no Rust reference
    // to a consumer's pages exists.
    unsafe { Backing::contiguous(mapping.base(), mapping.span().length) }
}
