// SPDX-License-Identifier: MIT OR Apache-2.0

//! Configuration of a device, and of the machine that it is in.

use std::{path::PathBuf, sync::Arc};

use crate::tap::{Tap, TapNetwork};

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

/// Backend of the device, which processes its queues and takes its frames.
#[derive(Clone, Debug)]
pub enum Backend {
    /// QEMU: one datagram per frame from socket to socket. Paths have at most 107 bytes; `remote` need not exist yet.
    Datagrams { local: PathBuf, remote: PathBuf },
    /// A vhost-user backend that listens on this socket and has so many queue pairs, at least 1. With several, the device offers
    /// MQ.
    VhostUser { socket: PathBuf, pairs: u16 },
    /// QEMU, and Linux behind a tap interface. The only one of QEMU's with offloads, and with several queue pairs.
    Tap { network: Arc<TapNetwork>, tap: Tap },
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
    pub backend: Backend,
}

impl QemuOptions {
    /// Returns a modern device on the root bus with QEMU's defaults.
    #[must_use]
    pub fn new(mac: [u8; 6], backend: Backend) -> Self {
        Self {
            mac,
            mtu: None,
            identity: Identity::default(),
            slot: Slot::default(),
            properties: Vec::new(),
            backend,
        }
    }
}
