// SPDX-License-Identifier: MIT OR Apache-2.0

//! The physical device object of an adapter (WDK, `NdisMGetDeviceProperty`, `IoGetDeviceProperty`).

use crate::common::scripted::{in_initialize, kept, verdict};
use ndis_sim::physical_device::NdisMGetDeviceProperty;
use ndk_abi::nt::{STATUS_BUFFER_TOO_SMALL, STATUS_INVALID_DEVICE_REQUEST, STATUS_SUCCESS};
use nt_sim::{
    guest::Guest,
    nt::io::property::{IoGetDeviceProperty, Property},
};

fn physical(adapter: usize) -> usize {
    let (object, functional, next) = (kept(1_usize), kept(1_usize), kept(1_usize));
    NdisMGetDeviceProperty(adapter, object, functional, next, Guest::null(), Guest::null());
    assert_eq!((functional.read(), next.read()), (0, object.read()));
    object.read()
}

/// Returns the status of a query with a buffer of `room` bytes, and what it has returned.
fn query(device: usize, property: i32, room: u32) -> (i32, Vec<u8>, u32) {
    let (buffer, length) = (kept([0_u8; 512]), kept(7_u32));
    let device = Guest::from_address(device);
    let status = IoGetDeviceProperty(device, property, room, buffer.cast(), length);
    let mut bytes = vec![0; if status == STATUS_SUCCESS { length.read() as usize } else { 0 }];
    buffer.cast::<u8>().read_bytes(&mut bytes);
    (status, bytes, length.read())
}

fn text(device: usize, property: Property) -> String {
    let (status, bytes, _) = query(device, property as i32, 512);
    assert_eq!(status, STATUS_SUCCESS);
    let units: Vec<_> = bytes.as_chunks::<2>().0.iter().map(|&unit| u16::from_le_bytes(unit)).collect();
    String::from_utf16(&units).unwrap()
}

#[test]
fn adapter_has_a_physical_device_object_with_the_properties_of_its_bus() {
    let body = |adapter| {
        let device = physical(adapter);
        assert_eq!(physical(adapter), device, "there is one");
        assert_eq!(text(device, Property::EnumeratorName), "PCI\0");
        assert_eq!(text(device, Property::ClassGuid), "{4d36e972-e325-11ce-bfc1-08002be10318}\0");
        let ids = text(device, Property::HardwareId);
        assert!(
            ids.starts_with(r"PCI\VEN_1AF4&DEV_1041&SUBSYS_") && ids.ends_with("DEV_1041\0\0"),
            "{ids:?}"
        );
        assert_eq!(query(device, Property::Address as i32, 4), (STATUS_SUCCESS, vec![0, 0, 3, 0], 4));
    };
    assert_eq!(verdict(in_initialize(body)), "no violation");
}

#[test]
fn properties_are_refused_as_documented() {
    let body = |adapter| {
        const INVALID_PARAMETER_2: i32 = 0xc000_00f0_u32.cast_signed();
        let device = physical(adapter);
        assert_eq!(query(device, Property::EnumeratorName as i32, 7), (STATUS_BUFFER_TOO_SMALL, vec![], 8));
        assert_eq!(query(device, 99, 64), (INVALID_PARAMETER_2, vec![], 0));
        assert_eq!(query(adapter, 0, 64), (STATUS_INVALID_DEVICE_REQUEST, vec![], 0));
    };
    assert_eq!(verdict(in_initialize(body)), "no violation");
}
