// SPDX-License-Identifier: MIT OR Apache-2.0

//! The progress thread of a device: it serves peers while the application makes no calls.

use std::sync::Arc;
use std::thread::JoinHandle;

use crate::adapter::Adapter;
use crate::error::Error;
use crate::sys;

/// Starts the thread. It ends after [`Adapter::stop`].
///
/// # Errors
/// [`Error::System`], [`Error::OutOfMemory`].
pub fn start(adapter: Arc<Adapter>) -> Result<JoinHandle<()>, Error> {
    let thread = std::thread::Builder::new().name("viordma".to_owned());
    let started = thread.spawn(move || {
        sys::block_signals();
        while !adapter.is_stopped() {
            adapter.take_passed();
            adapter.end_connections();
            if adapter.is_unattended() {
                if adapter.drive() > 0 {
                    // There may be more.
                    continue;
                }
            } else {
                adapter.follow_up();
            }
            adapter.sleep();
        }
    });
    started.map_err(|_| Error::OutOfMemory)
}
