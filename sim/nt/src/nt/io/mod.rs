// SPDX-License-Identifier: MIT OR Apache-2.0

//! The I/O manager: devices, their names, and requests to them.
//!
//! | file | responsible for |
//! | --- | --- |
//! | [`namespace`] | names of devices and symbolic links |
//! | [`device`] | devices, and the members of driver objects that belong to the I/O manager |
//! | [`symlink`] | symbolic links |
//! | [`irp`] | memory of one request: IRP, stack location, buffers |
//! | [`remove_lock`] | remove locks |
//! | [`request`] | requests that drivers hold; completing them |
//! | [`cancel`] | cancelling them; the cancel spin lock |
//! | [`dispatch`] | handing a request to its driver, with the checks of what it returns |
//! | [`file`](mod@file) | open devices, as programs use them |
//! | [`wmi`] | registration for management requests |

pub mod cancel;
pub mod device;
pub mod dispatch;
pub mod file;
pub mod irp;
pub mod namespace;
pub mod remove_lock;
pub mod request;
pub mod symlink;
pub mod wmi;

pub use file::{File, IoResult, Pending};
