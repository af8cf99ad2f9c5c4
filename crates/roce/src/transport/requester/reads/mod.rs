// SPDX-License-Identifier: MIT OR Apache-2.0

//! READs of this side: their responses, in order or not, and what of them is requested again.

pub(crate) mod gaps;
mod responses;
pub(crate) mod sinks;
