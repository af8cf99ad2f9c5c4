// SPDX-License-Identifier: MIT OR Apache-2.0

//! Heap types whose allocation can fail: `Arc`, `Box`, `Vec`, a first-in, first-out queue, and contiguous memory for values of an `Arc`.
//!
//! `alloc` aborts when memory runs out, which is a bug check in a kernel. Every function here that allocates
//! returns a [`Result`]; the functions that only use memory reserved earlier say so. Where a caller keeps
//! the value for a second try, the function hands it back in the error.
//!
//! The checks are written so that the compiler can prove `alloc`'s aborting paths unreachable and leave
//! them out of the image. Callable at any IRQL at which the global allocator is: <= `DISPATCH_LEVEL` for
//! nonpaged pool.
#![cfg_attr(not(test), no_std)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

extern crate alloc;

mod arc;
mod boxed;
mod bytes;
mod chunk;
mod error;
mod fifo;
mod free_slots;
mod limits;
mod ref_count;
mod slab;
pub mod vec;
mod word;

pub use arc::Arc;
pub use boxed::{AliasableBox, Slot, try_box, try_box_or_return};
pub use bytes::AliasableBytes;
pub use error::AllocError;
pub use fifo::Fifo;
pub use ref_count::RefCount;
pub use slab::{RequestLargePages, Reserved, Slab};
pub use word::Word;
