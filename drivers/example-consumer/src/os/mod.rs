// SPDX-License-Identifier: MIT OR Apache-2.0

//! Services of the kernel beyond the crate `nt`.

mod buffer;
mod once;
mod tally;
mod work;

pub use buffer::Buffer;
pub use once::Once;
pub use tally::Tally;
pub use work::WorkItem;
