// SPDX-License-Identifier: MIT OR Apache-2.0

//! Configuration of a device, and of the machine that it is in.

use std::path::PathBuf;

/// The device's PCI identity.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Identity {
    /// 1af4:1041: the modern interface only.
    #[default]
    Modern,
    /// 1af4:1000 with both interfaces, as in a machine without options for the device.
    Transitional,
}

/// Where the device is plugged in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Slot {
    /// On the root bus.
    #[default]
    RootBus,
    /// Behind a root port, where it is a PCI Express device.
    RootPort,
}

/// Configuration of a device.
#[derive(Clone, Debug)]
pub struct QemuOptions {
    pub mac: [u8; 6],
    /// Largest IP packet, offered as the feature MTU; `None` does not offer it.
    pub mtu: Option<u16>,
    pub identity: Identity,
    pub slot: Slot,
    /// More properties of the device, as QEMU names them: `mrg_rxbuf=off`, `vectors=2`.
    pub properties: Vec<String>,
    /// Path of the socket that receives frames for the device. At most 107 bytes.
    pub local: PathBuf,
    /// Path of the socket that receives the device's frames, which need not exist yet. At most 107 bytes.
    pub remote: PathBuf,
}

impl QemuOptions {
    /// Returns a modern device on the root bus with QEMU's defaults, one datagram per frame from socket to socket.
    #[must_use]
    pub fn new(mac: [u8; 6], local: PathBuf, remote: PathBuf) -> Self {
        Self {
            mac,
            mtu: None,
            identity: Identity::default(),
            slot: Slot::default(),
            properties: Vec::new(),
            local,
            remote,
        }
    }
}
