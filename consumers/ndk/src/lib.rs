// SPDX-License-Identifier: MIT OR Apache-2.0

//! An NDKPI consumer, to test and demonstrate a provider.
//!
//! It uses a provider through the dispatch tables of its objects only, like the NDK consumers of Windows: the two share
//! `ndk-abi` and nothing else. The trait [`Os`] abstracts the system, so that the same code drives an image in the simulated
//! kernel and a natively linked provider.
//!
//! There is one type per NDK object: [`Adapter`], [`Cq`], [`Pd`], [`Memory`] (a registered region and its buffer),
//! [`FastMemory`] (registered by requests), [`Window`], [`Srq`], [`Qp`], [`Listener`], [`Connector`]. Calls return when the operation is
//! complete, whether the provider completes it inline or returns `STATUS_PENDING`. Dropping an object closes it and waits
//! for the close. Objects hold references to the objects they were created from, which gives the order of closes that
//! NDKPI requires. Unless stated otherwise, calls are made at `PASSIVE_LEVEL`.
//!
//! [`rdma_write`] shows them: two functions that end with one RDMA WRITE. On top of [`endpoint`], which posts requests and counts their completions, there are complete sessions: [`transfer`]
//! copies a file to the peer and back, [`mod@bench`] measures small sends and large writes, [`protocols`] implements the
//! protocols of Linux RDMA tools.
//!
//! Without the feature `std`, which is on by default, it is code for a driver: there is no native system, and no file to
//! copy from.
#![allow(unsafe_code, reason = "calls a provider through its tables of functions")]
#![no_std]

extern crate alloc;
#[cfg(any(test, feature = "std"))]
extern crate std;

mod adapter;
mod address;
pub mod bench;
mod connection;
mod cq;
pub mod endpoint;
mod error;
mod fast_memory;
pub mod latency;
mod memory;
#[cfg(feature = "std")]
pub mod native;
mod object;
pub mod os;
mod pending;
pub mod protocols;
mod qp;
pub mod rdma_write;
pub mod stats;
mod status;
pub mod transfer;
mod window;

pub use adapter::Adapter;
pub use connection::{ConnectionData, Connector, Listener, ReadLimits};
pub use cq::{Completions, Cq, Handler, Moderation, Waker};
pub use error::{Cause, Error};
pub use fast_memory::FastMemory;
pub use memory::{Access, Memory, Pd, RemoteMemory};
pub use os::{Os, Threads};
pub use qp::{Qp, QpDepths, Srq};
pub use status::Status;
pub use window::Window;
