// SPDX-License-Identifier: MIT OR Apache-2.0

//! Ports of connection management.

use std::sync::Arc;

use roce::ListenerId;

use crate::device::Device;
use crate::error::Error;
use crate::sys;

/// Ports that are chosen for a program that names none: those of Linux.
const FIRST: u16 = 32_768;
const COUNT: u16 = 28_232;

/// Ports that are tried.
const TRIES: u32 = 64;

/// Claims a port on each device; any port if it is 0. Returns it.
///
/// # Errors
/// [`Error::AddressInUse`]: none is claimed.
pub fn claim(devices: &[Arc<Device>], port: u16) -> Result<u16, Error> {
    if port != 0 {
        return claim_on_all(devices, port).map(|()| port);
    }
    (0..TRIES).map(|_| random()).find(|&port| claim_on_all(devices, port).is_ok()).ok_or(Error::AddressInUse)
}

/// Returns a port for the active side of a connection, which need not be claimed.
pub fn random() -> u16 {
    let [low, high, ..] = sys::random_seed();
    FIRST + u16::from_le_bytes([low, high]) % COUNT
}

fn claim_on_all(devices: &[Arc<Device>], port: u16) -> Result<(), Error> {
    for (at, device) in devices.iter().enumerate() {
        if let Err(error) = device.adapter().link.neighbors().claim(port) {
            release(&devices[..at], port);
            return Err(error);
        }
    }
    Ok(())
}

/// Releases a port on each device.
pub fn release(devices: &[Arc<Device>], port: u16) {
    for device in devices {
        device.adapter().link.neighbors().release(port);
    }
}

/// Removes listeners.
pub fn unlisten(listeners: &[(Arc<Device>, ListenerId)]) {
    for (device, listener) in listeners {
        // It is there: only this removes it.
        let _ = device.engine().connections().unlisten(*listener);
    }
}
