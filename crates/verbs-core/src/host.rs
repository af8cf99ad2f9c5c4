// SPDX-License-Identifier: MIT OR Apache-2.0

//! The devices of a process.

use core::net::{IpAddr, SocketAddr};
use std::collections::HashMap;
use std::net::UdpSocket;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::addresses;
use crate::device::Device;
use crate::environment::Settings;
use crate::error::Error;

/// The devices of a process, by address. Each is opened once, and closed with its last user.
#[derive(Debug)]
pub struct Host {
    settings: Settings,
    addresses: Vec<IpAddr>,
    open: Mutex<HashMap<IpAddr, Weak<Device>>>,
}

impl Host {
    /// Finds the devices.
    #[must_use]
    pub fn new(settings: Settings) -> Arc<Self> {
        let addresses = addresses::of_devices(&settings);
        Arc::new(Self { settings, addresses, open: Mutex::default() })
    }

    /// Returns the addresses of the devices.
    #[must_use]
    pub fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// Opens the device of an address, or returns it if it is open.
    ///
    /// # Errors
    /// [`Error::NoDevice`] if no device has the address; those of [`Device::open`].
    pub fn open(&self, address: IpAddr) -> Result<Arc<Device>, Error> {
        if !self.addresses.contains(&address) {
            return Err(Error::NoDevice);
        }
        let mut open = self.open.lock();
        if let Some(device) = open.get(&address).and_then(Weak::upgrade) {
            return Ok(device);
        }
        let device = Device::open(address, &self.settings)?;
        open.insert(address, Arc::downgrade(&device));
        Ok(device)
    }

    /// Returns the address of the device by which `destination` is reached.
    ///
    /// # Errors
    /// [`Error::NoDevice`] if there is no route, or the address that it has here is not one of a device.
    pub fn route_to(&self, destination: IpAddr) -> Result<IpAddr, Error> {
        if self.addresses.contains(&destination) {
            return Ok(destination);
        }
        let any: SocketAddr = if destination.is_ipv4() { ([0; 4], 0).into() } else { ([0; 16], 0).into() };
        // No datagram is sent: the kernel looks the route up.
        let local = UdpSocket::bind(any)
            .and_then(|socket| {
                socket.connect((destination, roce_wire::UDP_PORT))?;
                socket.local_addr()
            })
            .map_err(|_| Error::NoDevice)?;
        self.addresses.contains(&local.ip()).then(|| local.ip()).ok_or(Error::NoDevice)
    }
}
