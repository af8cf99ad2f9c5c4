// SPDX-License-Identifier: MIT OR Apache-2.0

//! Devices that a miniport driver registers for programs (WDK, `NdisRegisterDeviceEx`, `NDIS_DEVICE_OBJECT_ATTRIBUTES`).

use std::{mem::offset_of, ptr::null};

use crate::common::scripted::{
    self, Script, assert_reported, header, in_initialize, kept, simulation, verdict_while_running,
};
use ndis_sim::device;
use ndk_abi::{
    ndis::{NDIS_DEVICE_OBJECT_ATTRIBUTES, NDIS_OBJECT_TYPE_DEVICE_OBJECT_ATTRIBUTES, NDIS_STATUS_SUCCESS},
    nt::{
        DEVICE_OBJECT, IRP, IRP_MJ_CLEANUP, IRP_MJ_CLOSE, IRP_MJ_CREATE, IRP_MJ_DEVICE_CONTROL, IRP_MJ_PNP,
        STATUS_INVALID_DEVICE_REQUEST, STATUS_NO_SUCH_DEVICE, STATUS_OBJECT_NAME_COLLISION,
        STATUS_OBJECT_NAME_NOT_FOUND, STATUS_SUCCESS, UNICODE_STRING,
    },
};
use nt_sim::{
    current,
    guest::Guest,
    nt::io::{complete::IofCompleteRequest, irp::GuestIrp},
};

const LINK: &str = r"\DosDevices\Control";

fn name(text: &str) -> *mut UNICODE_STRING {
    let units: Vec<u16> = text.encode_utf16().collect();
    let units = units.leak();
    let length = (units.len() * 2) as u16;
    kept(UNICODE_STRING { Length: length, MaximumLength: length, Buffer: units.as_mut_ptr() }).as_ptr()
}

/// Completes a request with the byte of its device's extension as its information.
unsafe extern "efiapi" fn answer(device: *mut DEVICE_OBJECT, irp: *mut IRP) -> i32 {
    let extension = device::NdisGetDeviceReservedExtension(Guest::new(device));
    let value = Guest::<u8>::from_address(extension).read();
    GuestIrp(Guest::new(irp)).set_status(STATUS_SUCCESS, value.into());
    IofCompleteRequest(Guest::new(irp), 0);
    STATUS_SUCCESS
}

/// Registers a device after `edit` has changed its attributes; returns the status, the device and the handle.
fn register_with(
    driver: usize,
    edit: impl FnOnce(&mut NDIS_DEVICE_OBJECT_ATTRIBUTES),
) -> (i32, usize, usize) {
    let mut routines = [None; 28];
    for major in [IRP_MJ_CREATE, IRP_MJ_CLEANUP, IRP_MJ_CLOSE, IRP_MJ_DEVICE_CONTROL] {
        routines[usize::from(major)] = Some(answer as ndk_abi::nt::DRIVER_DISPATCH);
    }
    let mut attributes = NDIS_DEVICE_OBJECT_ATTRIBUTES {
        Header: header(NDIS_OBJECT_TYPE_DEVICE_OBJECT_ATTRIBUTES, 1, 56),
        DeviceName: name(r"\Device\Control"),
        SymbolicName: name(LINK),
        MajorFunctions: routines.as_mut_ptr(),
        ExtensionSize: 8,
        DefaultSDDLString: null(),
        DeviceClassGuid: null(),
    };
    edit(&mut attributes);
    let (object, handle) = (kept(7_usize), kept(0_usize));
    let status = device::NdisRegisterDeviceEx(driver, Guest::new(&raw mut attributes), object, handle);
    (status, object.read(), handle.read())
}

fn register(driver: usize) -> (usize, usize) {
    let (status, object, handle) = register_with(driver, |_| ());
    assert_eq!(status, NDIS_STATUS_SUCCESS);
    (object, handle)
}

static HANDLES: parking_lot::Mutex<Vec<usize>> = parking_lot::Mutex::new(Vec::new());

#[test]
fn programs_use_a_device_of_a_miniport_driver() {
    let options = |driver| {
        let (object, handle) = register(driver);
        let extension = device::NdisGetDeviceReservedExtension(Guest::from_address(object));
        Guest::<u8>::from_address(extension).write(42);
        HANDLES.lock().push(handle);
        assert!(current().host().objects.contains("NdisRegisterDeviceEx", object), "a leak is reported");
        // The name is in use, and nothing is left of a registration that fails.
        let (status, object, _) = register_with(driver, |_| ());
        assert_eq!((status, object), (STATUS_OBJECT_NAME_COLLISION, 0));
        let (status, object, _) =
            register_with(driver, |attributes| attributes.DeviceName = name(r"\Device\Other"));
        assert_eq!((status, object), (STATUS_OBJECT_NAME_COLLISION, 0));
    };
    let initialize = |_| {
        let host = current().host().clone();
        let file = host.open_device(LINK).expect("it opens while the driver runs");
        assert_eq!(file.ioctl(0x22_0000, b"", 64).information, 42);
        let handle = HANDLES.lock().pop().expect("it is registered");
        device::NdisDeregisterDeviceEx(handle);
        assert!(!host.objects.list().iter().any(|object| object.kind.contains("Device")), "nothing is left");
        assert_eq!(host.open_device(LINK).err(), Some(STATUS_OBJECT_NAME_NOT_FOUND));
        file.close();
    };
    let script = Script { options: Some(options), initialize: Some(initialize), ..Script::default() };
    assert_eq!(verdict_while_running(script, |_| ()), "no violation");
}

#[test]
fn requests_without_a_routine_fail() {
    let options = |driver| {
        let (_, handle) = {
            let (status, object, handle) = register_with(driver, |attributes| {
                let routines: Guest<usize> = Guest::new(attributes.MajorFunctions.cast());
                routines.add(usize::from(IRP_MJ_CREATE)).write(0);
                attributes.SymbolicName = std::ptr::null_mut();
            });
            assert_eq!(status, NDIS_STATUS_SUCCESS);
            (object, handle)
        };
        let host = current().host().clone();
        assert_eq!(host.open_device(r"\Device\Control").err(), Some(STATUS_INVALID_DEVICE_REQUEST));
        assert_ne!(host.open_device(LINK).err(), Some(STATUS_NO_SUCH_DEVICE));
        device::NdisDeregisterDeviceEx(handle);
    };
    let script = Script { options: Some(options), ..Script::default() };
    assert_eq!(verdict_while_running(script, |_| ()), "no violation");
}

/// The report of what a driver does in `MiniportSetOptions`.
#[track_caller]
fn violates(options: fn(usize), text: &str) {
    let mut sim = simulation();
    let host = scripted::host(&mut sim);
    let script = Script { options: Some(options), ..Script::default() };
    assert_eq!(scripted::register(&host, script, |_| {}), None);
    let verdict = sim.verdict().to_string();
    assert!(verdict.contains(text), "expected '{text}', got: {verdict}");
}

#[test]
fn misuse_of_registered_devices_is_reported() {
    violates(
        |driver| {
            register_with(driver, |attributes| {
                let routines: Guest<usize> = Guest::new(attributes.MajorFunctions.cast());
                routines.add(usize::from(IRP_MJ_PNP)).write(answer as *const () as usize);
            });
        },
        "NdisRegisterDeviceEx with a routine for IRP_MJ_PNP, which such a device does not get",
    );
    violates(
        |driver| {
            register_with(driver, |attributes| attributes.MajorFunctions = std::ptr::null_mut());
        },
        "NdisRegisterDeviceEx without MajorFunctions",
    );
    violates(
        |driver| {
            register_with(driver, |attributes| attributes.DeviceName = std::ptr::null_mut());
        },
        "NdisRegisterDeviceEx without DeviceName",
    );
    violates(
        |driver| {
            register_with(driver, |attributes| attributes.Header.Size = 55);
        },
        "the attributes of a device have type 0x85, revision 1 and size 55",
    );
    violates(
        |driver| {
            register_with(driver, |attributes| attributes.DeviceClassGuid = kept([0_u8; 16]).cast().as_ptr());
        },
        "NdisRegisterDeviceEx: DeviceClassGuid is reserved",
    );
    violates(
        |driver| {
            let (object, handle) = register(driver);
            let extension: Guest<usize> =
                Guest::<u8>::from_address(object).field(offset_of!(DEVICE_OBJECT, DeviceExtension));
            extension.write(extension.read() + 16);
            device::NdisDeregisterDeviceEx(handle);
        },
        "the driver changed DeviceExtension of a device of NdisRegisterDeviceEx",
    );
    violates(
        |driver| {
            let (_, handle) = register(driver);
            device::NdisDeregisterDeviceEx(handle);
            device::NdisDeregisterDeviceEx(handle);
        },
        "is not a handle of a registered device",
    );
    assert_reported(in_initialize(|adapter| _ = register(adapter)), "is not a miniport driver handle");
}
