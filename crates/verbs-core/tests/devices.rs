// SPDX-License-Identifier: MIT OR Apache-2.0

//! Devices of a host, and processes that share an address.

use std::io::Read as _;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;

use verbs_core::Error;
use verbs_core::device::Device;
use verbs_core::environment::Settings;
use verbs_core::host::Host;

use crate::rig::address;

#[test]
fn a_device_is_opened_once_and_closed_with_its_last_user() {
    let address = address();
    let host = Host::new(Settings { addresses: vec![address], ..Settings::default() }).unwrap();
    assert_eq!(host.addresses(), [address]);
    let (first, second) = (host.open(address).unwrap(), host.open(address).unwrap());
    assert!(std::sync::Arc::ptr_eq(&first, &second));
    assert_eq!(host.open([127, 88, 0, 1].into()).err(), Some(Error::NoDevice));
    assert_eq!(host.route_to(address), Ok(address));
    assert_eq!(host.route_to([127, 88, 0, 1].into()), Err(Error::NoDevice));
    drop((first, second));
    host.open(address).unwrap();
}

/// A child has copies of its parent's devices, without their threads: neither its end nor the close of a device waits for these or prints
/// their statistics.
#[test]
fn the_end_of_a_child_leaves_the_devices_of_its_parent() {
    let address = address();
    let settings = Settings { addresses: vec![address], statistics: true, ..Settings::default() };
    let host = Host::new(settings).unwrap();
    let device = host.open(address).unwrap();
    let (mut printed, stderr) = std::io::pipe().unwrap();
    // SAFETY: the child takes no lock that another thread has, and ends before it returns.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: the call takes two descriptors, and the child has both of them open.
        unsafe { libc::dup2(stderr.as_raw_fd(), libc::STDERR_FILENO) };
        host.leave();
        let has_left = device.has_left();
        drop(device);
        // SAFETY: the call takes a number.
        unsafe { libc::_exit(7 + i32::from(has_left)) };
    }
    drop(stderr);
    let mut text = String::new();
    printed.read_to_string(&mut text).unwrap();
    let mut status = 0;
    // SAFETY: `child` is a child of this process, and `status` outlives the call.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    // Not the status of a thread that panics.
    assert_eq!((text.as_str(), status), ("", 7 << 8));
}

#[test]
fn an_address_of_another_host_has_no_device() {
    let error = Device::open([192, 0, 2, 1].into(), &Settings::default(), None).err();
    assert_eq!(error, Some(Error::System(libc::EADDRNOTAVAIL)));
    for foreign in ["192.0.2.1", "2001:db8::1"] {
        let settings = Settings { addresses: vec![foreign.parse().unwrap()], ..Settings::default() };
        let error = Host::new(settings).err().unwrap();
        assert_eq!((&*error.name, error.value.as_str()), ("VIORDMA_ADDR", foreign));
    }
}

#[test]
fn an_address_has_room_for_as_many_processes_as_there_are_slots() {
    let address = address();
    let open = || Device::open(address, &Settings::default(), None);
    let all: Vec<_> = (0..64).map(|_| open().unwrap()).collect();
    assert_eq!(open().err(), Some(Error::AddressInUse));
    drop(all);
    open().unwrap();
}

#[test]
fn a_capture_that_cannot_be_created_is_reported_with_its_variable() {
    let settings = Settings { pcap: Some(PathBuf::from("/nonexistent/file")), ..Settings::default() };
    let error = Host::new(settings).err().unwrap();
    assert_eq!((&*error.name, error.value.as_str()), ("VIORDMA_PCAP", "/nonexistent/file"));
}

#[test]
fn an_interface_without_devices_is_reported_with_its_variable() {
    let error = |interface: &str, addresses: &[&str]| {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        let settings = Settings { interface: Some(interface.to_owned()), addresses, ..Settings::default() };
        Host::new(settings).err().map(|error| (error.name.into_owned(), error.value))
    };
    let invalid = |name: &str, value: &str| Some((name.to_owned(), value.to_owned()));
    assert_eq!(error("none", &[]), invalid("VIORDMA_INTERFACE", "none"));
    assert_eq!(error("lo", &["127.0.0.1", "192.0.2.77"]), invalid("VIORDMA_ADDR", "192.0.2.77"));
    // Without Ethernet frames, or without the capability.
    assert_eq!(error("lo", &[]), invalid("VIORDMA_INTERFACE", "lo"));
}
