// SPDX-License-Identifier: MIT OR Apache-2.0

//! The NDK provider: NDKPI objects and dispatch tables over the RoCEv2 engine.
//!
//! One [`Provider`] serves one miniport adapter. The driver implements [`Environment`](environment::Environment),
//! passes received frames and opens adapters; consumers get objects whose functions are in `dispatch`. Each layer
//! uses only the layers below it:
//!
//! | module | contents |
//! | --- | --- |
//! | `provider` | the driver's interface: open and close, received frames, the DPC and the timer, OIDs |
//! | `dispatch` | the consumer's interface: one file per object with the functions of its dispatch table |
//! | `objects` | one module per object type |
//! | `base` | object lifetime, callbacks, the state that objects share, tables |
//!
//! The crate uses the kernel only through `nt` and the constants of `ndk-abi`. The same code runs in the driver
//! image and, with `nt`'s host backend, natively in tests.
//!
//! IRQL <= `DISPATCH_LEVEL` unless a function says otherwise. Lock order: a connector or listener, then the
//! registry, then the engine. No lock is held during a consumer's callback or the environment's `resolve`.

#![cfg_attr(not(test), no_std)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

extern crate alloc;

mod base;
#[allow(unsafe_code, reason = "the consumer's calling convention and memory")]
mod dispatch;
mod objects;
mod provider;

pub use base::environment;
pub use base::limits::VENDOR_ID;
pub use base::state::config::{Config, CreateCompletion};
pub use base::strict::StrictSettings;
#[cfg(feature = "strict")]
pub use base::strict::{CallbackDelay, FailCreate, Mistake, MistakeReport};
pub use provider::{Provider, ReceiveBatch};
pub use roce::{Timing, Verdict};
