// SPDX-License-Identifier: MIT OR Apache-2.0

//! Registered clients of Winsock Kernel, what they captured and opened.

use std::{collections::BTreeMap, sync::Arc};

use ndk_abi::wsk::WSK_REGISTRATION;
use nt_sim::{Host, current, guest::Guest, services::Slot};
use parking_lot::Mutex;

use crate::{
    adapter::Adapter,
    ndk::NdkAdapter,
    network_rules::{self, broken},
};

/// The clients of a host.
pub(super) static CLIENTS: Slot<Clients> = Slot::new();

/// Objects that a client holds.
const REGISTERED: &str = "WskRegister";
const CAPTURED: &str = "WskCaptureProviderNPI";
const OPENED: &str = "WskOpenNdkAdapter";

/// The mark that a registration contains while it is registered.
const MARK: u64 = u64::from_le_bytes(*b"WskRegis");

/// The clients of a host, by the address of their registration.
#[derive(Default)]
pub(super) struct Clients(Mutex<BTreeMap<usize, Client>>);

struct Client {
    /// Identifies the client in calls of the provider.
    handle: usize,
    /// The version it requested.
    version: u16,
    /// Captures of the provider that it has not released.
    captures: u32,
    /// No further capture succeeds.
    deregistering: bool,
    /// NDK adapters that it has open.
    open: Vec<(NdkAdapter, Arc<Adapter>)>,
}

/// Why the provider cannot be captured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CaptureError {
    NotReady,
    Version,
}

impl Clients {
    /// Registers a client.
    pub fn register(&self, host: &Host, registration: Guest<WSK_REGISTRATION>, version: u16) {
        let address = registration.address();
        if self.0.lock().contains_key(&address) {
            broken(
                network_rules::REGISTERED,
                format!("WskRegister: the registration at {address:#x} is registered already"),
            );
        }
        let handle = host.new_handle();
        registration.write(WSK_REGISTRATION {
            ReservedRegistrationState: MARK,
            ReservedRegistrationContext: std::ptr::without_provenance_mut(handle),
            ReservedRegistrationLock: 0,
        });
        let client = Client { handle, version, captures: 0, deregistering: false, open: Vec::new() };
        self.0.lock().insert(address, client);
        host.objects.add(REGISTERED, address);
    }

    /// Ends a registration, except for the wait for captures.
    pub fn begin_deregister(&self, registration: Guest<WSK_REGISTRATION>) {
        let again = self
            .with("WskDeregister", registration, |client| std::mem::replace(&mut client.deregistering, true));
        if again {
            broken(network_rules::REGISTERED, "WskDeregister was called twice for a registration");
        }
    }

    /// Returns the number of captures that were not released.
    pub fn captures(&self, registration: Guest<WSK_REGISTRATION>) -> u32 {
        self.with("WskDeregister", registration, |client| client.captures)
    }

    /// Forgets a client, which has no capture.
    pub fn remove(&self, host: &Host, registration: Guest<WSK_REGISTRATION>) {
        self.0.lock().remove(&registration.address());
        let _ = host.objects.remove(REGISTERED, registration.address());
    }

    /// Captures the provider, which supports the versions from `lowest` to `highest`. Returns the client's handle.
    pub fn capture(
        &self,
        host: &Host,
        registration: Guest<WSK_REGISTRATION>,
        (lowest, highest): (u16, u16),
    ) -> Result<usize, CaptureError> {
        let (handle, first) = self.with("WskCaptureProviderNPI", registration, |client| {
            if client.deregistering {
                return Err(CaptureError::NotReady);
            }
            if client.version < lowest || client.version > highest {
                return Err(CaptureError::Version);
            }
            client.captures += 1;
            Ok((client.handle, client.captures == 1))
        })?;
        if first {
            host.objects.add(CAPTURED, handle);
        }
        Ok(handle)
    }

    /// Releases a capture.
    pub fn release(&self, host: &Host, registration: Guest<WSK_REGISTRATION>) {
        const CALL: &str = "WskReleaseProviderNPI";
        let (handle, captures, open) = self.with(CALL, registration, |client| {
            let captures = client.captures;
            client.captures = captures.saturating_sub(1);
            (client.handle, captures, client.open.len())
        });
        if captures == 0 {
            broken(network_rules::CAPTURED, format!("{CALL} without a WskCaptureProviderNPI that succeeded"));
        }
        if captures == 1 {
            if open != 0 {
                broken(
                    network_rules::ADAPTERS_CLOSED,
                    format!("{CALL} with {open} NDK adapters open; close them first"),
                );
            }
            let _ = host.objects.remove(CAPTURED, handle);
        }
    }

    /// Records an NDK adapter that a client opened.
    pub fn opened(&self, host: &Host, handle: usize, opened: NdkAdapter, on: Arc<Adapter>) {
        let mut clients = self.0.lock();
        if let Some(client) = clients.values_mut().find(|client| client.handle == handle) {
            client.open.push((opened, on));
        }
        drop(clients);
        host.objects.add(OPENED, opened.0.address());
    }

    /// Removes an NDK adapter from those that a client has open; returns the adapter it was opened on.
    pub fn closing(&self, host: &Host, handle: usize, opened: NdkAdapter) -> Option<Arc<Adapter>> {
        let on = {
            let mut clients = self.0.lock();
            let client = clients.values_mut().find(|client| client.handle == handle)?;
            let index = client.open.iter().position(|(known, _)| *known == opened)?;
            client.open.remove(index).1
        };
        let _ = host.objects.remove(OPENED, opened.0.address());
        Some(on)
    }

    fn is_captured(&self, handle: usize) -> bool {
        self.0.lock().values().any(|client| client.handle == handle && client.captures != 0)
    }

    /// Calls `body` with the client of a registration.
    fn with<T>(
        &self,
        call: &str,
        registration: Guest<WSK_REGISTRATION>,
        body: impl FnOnce(&mut Client) -> T,
    ) -> T {
        let contents = registration.read();
        let mark = (contents.ReservedRegistrationState, contents.ReservedRegistrationContext.addr());
        let (result, expected) = {
            let mut clients = self.0.lock();
            match clients.get_mut(&registration.address()) {
                Some(client) => (Some(body(client)), (MARK, client.handle)),
                None => (None, mark),
            }
        };
        if mark != expected {
            broken(
                network_rules::REGISTERED,
                format!("{call}: the registration at {registration:?} was overwritten while registered"),
            );
        }
        result.unwrap_or_else(|| {
            broken(network_rules::REGISTERED, format!("{call}: {registration:?} is not a registration"))
        })
    }
}

/// Checks the client of a call of the provider.
pub(super) fn require_client(call: &str, handle: usize) {
    if !current().host().state(&CLIENTS).is_captured(handle) {
        broken(
            network_rules::CAPTURED,
            format!("{call}: {handle:#x} is not a client that has captured the provider"),
        );
    }
}
