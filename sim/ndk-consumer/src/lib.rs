//! A consumer of NDKPI.
//!
//! Talks to a provider through the dispatch tables of its objects and through nothing else, as the systems
//! that use NDK do: `ndk-abi` is all the two share. [`Os`] is what it asks of its host, so the same code
//! drives an image in a simulated kernel and a provider linked natively.
//!
//! Below, one type per NDK object: [`Adapter`], [`Cq`], [`Pd`], [`Memory`] (a registered region and its
//! buffer), [`FastMemory`] (one that requests register), [`Srq`], [`Qp`], [`Listener`], [`Connector`]. Whether a provider answers inline or later makes no
//! difference to them: calls return when the outcome is known. Dropping an object closes it and waits for
//! that; objects keep alive what they were made from, so everything closes in the order NDKPI wants. Unless
//! stated otherwise, calls are made at `PASSIVE_LEVEL`.
//!
//! Above, whole conversations: [`transfer`] copies a file there and back, [`bench`] counts small sends
//! and measures large writes, [`interop`] speaks the protocols of other systems' RDMA tools. All sit on
//! [`endpoint`], which keeps the books of what was posted and what came of it.

mod adapter;
mod address;
pub mod bench;
pub mod books;
mod connection;
mod cq;
pub mod endpoint;
mod error;
mod fast;
pub mod histogram;
pub mod interop;
mod memory;
pub mod native;
mod object;
pub mod os;
mod pending;
mod qp;
mod status;
pub mod transfer;

pub use adapter::Adapter;
pub use connection::{ConnectionData, Connector, Listener, ReadLimits};
pub use cq::{Completions, Cq, Waker};
pub use error::Error;
pub use fast::FastMemory;
pub use memory::{Access, Memory, Pd, RemoteMemory};
pub use os::Os;
pub use qp::{Qp, QpDepths, Srq};
pub use status::Status;
