// SPDX-License-Identifier: MIT OR Apache-2.0

//! The devices of a process.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::HashMap;
use std::net::UdpSocket;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Instant;

use parking_lot::Mutex;

use crate::adapter::LEAVE_LIMIT;
use crate::addresses;
use crate::device::Device;
use crate::environment::{ADDR, INTERFACE, InvalidVariable, PCAP, Settings};
use crate::error::Error;
use crate::link::{self, Capture};
use crate::sys;

/// How often the end of the process looks whether the connections are ended.
const LEAVE_INTERVAL: Duration = Duration::from_micros(100);

/// The devices of a process, by address. Each is opened once, and closed with its last user, unless it is kept.
#[derive(Debug)]
pub struct Host {
    settings: Settings,
    capture: Option<Arc<Capture>>,
    addresses: Vec<IpAddr>,
    open: Mutex<HashMap<IpAddr, Weak<Device>>>,
    kept: Mutex<HashMap<IpAddr, Arc<Device>>>,
}

impl Host {
    /// Finds the devices, and creates the capture.
    ///
    /// # Errors
    /// The variable with the name of the capture, if the file cannot be created; that with the interface, or the addresses, if it cannot have
    /// such devices.
    pub fn new(settings: Settings) -> Result<Arc<Self>, InvalidVariable> {
        match &settings.interface {
            Some(interface) => check_interface(interface, &settings.addresses)?,
            None => settings.addresses.iter().try_for_each(check_address)?,
        }
        let addresses = addresses::of_devices(&settings);
        let created = settings.pcap.as_deref().map(Capture::create).transpose();
        let capture = created.map_err(|_| {
            let file = settings.pcap.as_deref().unwrap_or(Path::new("")).display();
            InvalidVariable::new(PCAP, file.to_string(), "the file cannot be created")
        })?;
        let capture = capture.map(Arc::new);
        Ok(Arc::new(Self { settings, capture, addresses, open: Mutex::default(), kept: Mutex::default() }))
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
        let device = Device::open(address, &self.settings, self.capture.as_ref())?;
        open.insert(address, Arc::downgrade(&device));
        Ok(device)
    }

    /// Opens the device of an address, and keeps it open as long as the host exists.
    ///
    /// A program that listens on all addresses often does so again, while its peer is about to connect, and a device takes many milliseconds
    /// to open.
    ///
    /// # Errors
    /// Those of [`Host::open`].
    pub fn keep(&self, address: IpAddr) -> Result<Arc<Device>, Error> {
        let device = self.open(address)?;
        self.kept.lock().insert(address, Arc::clone(&device));
        Ok(device)
    }

    /// Ends the connections of devices that this process has opened, waits for that a moment, and prints their statistics if the settings
    /// ask for them. For the end of a process that leaves them open.
    ///
    /// A signal handler may call it that has interrupted a thread with a lock: until it prints, it waits for none and allocates no memory.
    pub fn leave(&self) {
        // A thread that opens a device may have the lock, or have had it when this process was made by fork.
        let Some(open) = self.open.try_lock() else { return };
        let devices = || open.values().filter_map(Weak::upgrade).filter(|device| device.is_of_this_process());
        devices().for_each(|device| device.leave());
        let limit = Instant::now() + LEAVE_LIMIT;
        while devices().any(|device| !device.has_left()) && Instant::now() < limit {
            thread::sleep(LEAVE_INTERVAL);
        }
        devices().for_each(|device| device.report());
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

/// Checks that this host has an address.
fn check_address(address: &IpAddr) -> Result<(), InvalidVariable> {
    let error = UdpSocket::bind((*address, 0)).err().and_then(|error| error.raw_os_error());
    // Others are not about the address: the process may have no descriptor left.
    if matches!(error, Some(libc::EADDRNOTAVAIL | libc::EAFNOSUPPORT | libc::EINVAL)) {
        return Err(InvalidVariable::new(ADDR, address.to_string(), "not an address of this host"));
    }
    Ok(())
}

/// Checks that there can be devices of `addresses` on an interface; of all of its addresses if the list is empty.
fn check_interface(interface: &str, addresses: &[IpAddr]) -> Result<(), InvalidVariable> {
    let invalid = |reason| InvalidVariable::new(INTERFACE, interface.to_owned(), reason);
    let index = sys::interface_index(interface).ok_or(invalid("there is no such interface"))?;
    let known = addresses::of_interface(interface);
    if let Some(unknown) = addresses.iter().find(|&address| !known.contains(address)) {
        let reason = "not an address of the interface that VIORDMA_INTERFACE names";
        return Err(InvalidVariable::new(ADDR, unknown.to_string(), reason));
    }
    let &address = known.first().ok_or(invalid("the interface has no address"))?;
    link::check(index, address).map_err(|error| {
        invalid(match error {
            Error::System(libc::EPERM) => "a packet socket needs the capability CAP_NET_RAW",
            Error::System(libc::EPROTONOSUPPORT) => "not an Ethernet interface",
            _ => "a packet socket cannot be opened",
        })
    })
}
