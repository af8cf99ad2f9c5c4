// SPDX-License-Identifier: MIT OR Apache-2.0

//! An open file of the device: it can have one connection to a server.

use alloc::boxed::Box;

use driver_support::status::{Result, no_memory};
use fallible::{Arc, try_box};
use ndk_abi::nt::{STATUS_CANCELLED, STATUS_CONNECTION_ACTIVE, STATUS_CONNECTION_INVALID};
use nt::SpinLock;

use crate::client::Client;

/// A request for a file of the device.
pub type Request = driver_support::request::Request<File>;

/// The driver's context of an open file.
pub struct File {
    state: SpinLock<State>,
}

struct State {
    client: Option<Arc<Client>>,
    /// All handles are closed: no connection is made.
    is_closed: bool,
}

impl File {
    pub fn new() -> Result<Box<Self>> {
        try_box(Self { state: SpinLock::new(State { client: None, is_closed: false }) }).map_err(no_memory)
    }

    /// Gives the file its connection. If it has one, or is closed, the new one is closed. `PASSIVE_LEVEL`.
    pub fn connect(&self, client: Arc<Client>) -> Result {
        let mut state = self.state.lock();
        let status = match &state.client {
            _ if state.is_closed => STATUS_CANCELLED,
            Some(_) => STATUS_CONNECTION_ACTIVE,
            None => {
                state.client = Some(client);
                return Ok(());
            }
        };
        drop(state);
        // Closed without the lock.
        drop(client);
        Err(status)
    }

    /// Returns the file's connection.
    pub fn client(&self) -> Result<Arc<Client>> {
        self.state.lock().client.clone().ok_or(STATUS_CONNECTION_INVALID)
    }

    /// Takes the file's connection. It is closed when it is dropped, and no transfer uses it any longer.
    pub fn take_client(&self) -> Result<Arc<Client>> {
        self.state.lock().client.take().ok_or(STATUS_CONNECTION_INVALID)
    }

    /// Ends the file's connection: a transfer in progress fails. `PASSIVE_LEVEL`.
    pub fn close(&self) {
        let client = {
            let mut state = self.state.lock();
            state.is_closed = true;
            state.client.take()
        };
        if let Some(client) = client
            && Arc::count(&client) != 1
        {
            client.abort();
        }
    }
}
