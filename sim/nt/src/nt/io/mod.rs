// SPDX-License-Identifier: MIT OR Apache-2.0

//! The I/O manager: devices, their names, and requests to them.
//!
//! | file | responsible for |
//! | --- | --- |
//! | [`namespace`] | names of devices and symbolic links |
//! | [`device`] | devices, and the members of driver objects that belong to the I/O manager |
//! | [`symlink`] | symbolic links |
//! | [`attach`] | stacks of devices |
//! | [`irp`] | memory of one request: IRP, stack locations, buffers |
//! | [`allocated`] | IRPs that drivers allocate |
//! | [`built`] | IRPs that the I/O manager builds for drivers |
//! | [`property`] | physical device objects and their properties |
//! | [`remove_lock`] | remove locks |
//! | [`request`] | requests, and the calls of dispatch routines with them |
//! | [`complete`] | completing them; completion routines |
//! | [`cancel_lock`] | the cancel spin lock |
//! | [`csq`] | cancel-safe queues |
//! | [`cancel`] | cancelling requests |
//! | [`dispatch`] | handing a request to a driver, with the checks of what it returns |
//! | [`file`](mod@file) | open devices, as programs use them |
//! | [`wmi`] | registration for management requests |

pub mod allocated;
pub mod attach;
pub mod built;
pub mod cancel;
pub mod cancel_lock;
pub mod complete;
pub mod csq;
pub mod device;
pub mod dispatch;
pub mod file;
pub mod irp;
pub mod namespace;
pub mod property;
pub mod remove_lock;
pub mod request;
pub mod symlink;
pub mod wmi;

pub use file::{File, IoResult, Pending};
