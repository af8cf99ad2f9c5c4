// SPDX-License-Identifier: MIT OR Apache-2.0

//! SMB Direct ([MS-SMBD]) as an NDKPI consumer.
//!
//! A [`Session`] binds a [`smb_direct::Connection`] to a queue pair: receives are posted as the connection wants them, messages
//! are sent by Send or Send with Invalidate, and large data are transferred by RDMA Read and Write with the memory that a
//! peer describes. The side that offers memory registers it for one request (fast registration).
//!
//! Above it, `gateway` lets implementations of SMB that know nothing of RDMA use it, and [`copy()`] and [`serve()`] copy a file to the peer and back with the SMB2 commands of [`smb2`].
//! [`copy_over()`] and [`serve_over()`] do the same over a [`MessageStream`], without RDMA.
//!
//! [`control`] has the IOCTLs of the driver that runs both sides of a copy.
//!
//! Like `ndk-consumer`, this crate drives an image in the simulated kernel as well as a natively linked provider, and is part of
//! a driver without the feature `std`: then there are no gateways, and no store in a file.

#![no_std]

extern crate alloc;
#[cfg(any(test, feature = "std"))]
extern crate std;

pub mod control;
mod copy;
mod endings;
#[cfg(feature = "std")]
mod file_store;
#[cfg(feature = "std")]
pub mod gateway;
mod request_memory;
mod serve;
mod session;
pub mod smb2;
mod store;
mod transfer;
mod transport;

pub use copy::{copy, copy_over, measure, measure_over};
pub use endings::{Ending, Endings, Side};
#[cfg(feature = "std")]
pub use file_store::FileStore;
pub use serve::{serve, serve_over};
pub use session::{Event, PORTS, Session};
pub use store::{MemoryStore, NoStore, Store};
pub use transfer::Options;
pub use transport::MessageStream;
