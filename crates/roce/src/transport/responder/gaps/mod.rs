// SPDX-License-Identifier: MIT OR Apache-2.0

//! Request packets after a gap: placed into memory or stored in the stash when they arrive, and executed once the gap is filled.

mod arrivals;
mod cells;
mod filled;
pub(crate) mod hints;
pub(crate) mod named;
pub(crate) mod standstill;
pub(crate) mod stash;
