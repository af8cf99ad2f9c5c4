// SPDX-License-Identifier: MIT OR Apache-2.0

//! [`Device`]: the driver's state, and the end of its server.

use core::sync::atomic::AtomicU64;

use driver_support::device::DeviceObject;
use driver_support::wsk::Wsk;
use fallible::Arc;
use nt::SpinLock;

use super::file::Request;
use super::link::Link;
use super::waiting::Waiting;
use crate::server::Server;

/// All of the driver's state. The device extension points to it.
pub struct Device {
    // Declared in the order in which unloading needs them dropped: no more opens, then the rest.
    pub(super) _link: Link,
    pub(super) object: DeviceObject,
    /// The running server.
    pub(super) server: SpinLock<Option<Running>>,
    /// Requests that wait for the end of the server.
    pub(super) waiting: Waiting,
    /// Servers so far.
    pub(super) servers: AtomicU64,
    pub(super) wsk: Arc<Wsk>,
}

/// A server, and the open file that started it: it ends with that file at the latest.
pub(super) struct Running {
    pub(super) server: Server,
    pub(super) owner: usize,
    pub(super) number: u64,
}

impl Device {
    /// The last handle of an open file is closed: ends all that the file has started. `PASSIVE_LEVEL`.
    pub(super) fn clean_up(&self, request: &Request) {
        let Some(file) = request.file_context() else { return };
        self.waiting.cancel_of(request.file());
        file.close();
        let is_owner = |running: &mut Running| running.owner == request.file();
        let owned = self.server.lock().take_if(is_owner);
        self.stopped(owned);
    }

    /// Ends a server that is taken from the device, and the requests that wait for its end. `PASSIVE_LEVEL`.
    pub(super) fn stopped(&self, running: Option<Running>) {
        if let Some(running) = running {
            drop(running.server);
            self.waiting.server_ended(running.number);
        }
    }
}
