// SPDX-License-Identifier: MIT OR Apache-2.0

//! The common parts of the consumer drivers.
//!
//! | module | responsible for |
//! | --- | --- |
//! | [`driver`] | the entry point of a driver, its allocator and its panic handler |
//! | [`device`] | the device object, and the driver's state behind it |
//! | [`request`] | a request of the I/O manager, with checked access to its buffers |
//! | [`wsk`] | registration with Winsock Kernel, through which adapters are opened |
//! | [`name`], [`status`] | constant names of objects; NTSTATUS as an error |

#![no_std]
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    unsafe_op_in_unsafe_fn
)]

extern crate alloc;

pub mod device;
mod entry;
pub mod name;
pub mod request;
pub mod status;
pub mod wsk;
