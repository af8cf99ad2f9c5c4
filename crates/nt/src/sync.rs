// SPDX-License-Identifier: MIT OR Apache-2.0

//! Atomics of the types that loom models: `--cfg loom` replaces them.

#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicU32, Ordering};
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU32, Ordering};
