//! The NDK provider: NDKPI objects and dispatch tables over the RoCEv2 engine.
//!
//! One [`Provider`] serves one miniport adapter. The driver gives it a [`Host`](host::Host), frames and
//! opens; consumers get objects whose functions are in `dispatch`. From the outside in:
//!
//! | module | is |
//! | --- | --- |
//! | `dispatch` | the tables: thin functions in the consumer's calling convention |
//! | `object` | what all objects share: header, holds, close, requests that pend |
//! | `adapter`, `cq`, `pd`, `mr`, `mw`, `lam`, `srq`, `qp`, `connector`, `listener`, `shared_endpoint` | one type each |
//! | `provider`, `events`, `registry` | driving the engine, and finding the object an event is about |
//! | `loopback` | frames from the adapter to itself |
//! | `ports`, `info`, `quota`, `oid`, `status`, `address` | one table each |
//!
//! Nothing here knows NT beyond `kernel` and the numbers of `ndk-abi`; the same code runs in the driver image
//! and, with the host backend of `kernel`, natively in tests.
//!
//! IRQL <= `DISPATCH_LEVEL` unless a function says otherwise. Lock order: a connector or listener, then the
//! registry, then the engine's; no lock is held while a consumer's callback or the host's `resolve` runs.

#![cfg_attr(not(test), no_std)]
#![deny(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

extern crate alloc;

mod adapter;
mod address;
mod connector;
mod cq;
#[allow(unsafe_code, reason = "the consumer's calling convention, callbacks and memory")]
mod dispatch;
mod events;
mod fallible;
pub mod host;
mod info;
mod lam;
mod listener;
mod loopback;
mod machine;
mod mr;
mod mw;
#[allow(unsafe_code, reason = "one allocation behind many pointers: the consumer's and the holds")]
mod object;
mod oid;
mod pd;
mod ports;
mod provider;
mod qp;
mod quota;
#[allow(unsafe_code, reason = "turns the engine's numbers into holds on objects")]
mod registry;
mod shared_endpoint;
mod srq;
mod status;

pub use provider::{Config, Pending, Provider};
pub use roce::{Timing, Verdict};
