// SPDX-License-Identifier: MIT OR Apache-2.0

//! Devices, and the members of driver objects that belong to the I/O manager.

use std::{collections::BTreeMap, mem::offset_of};

use ndk_abi::nt::{
    DEVICE_OBJECT, DO_DEVICE_HAS_NAME, DO_DEVICE_INITIALIZING, DO_EXCLUSIVE, DRIVER_OBJECT, GUID,
    IO_TYPE_DEVICE, IRP, STATUS_ACCESS_DENIED, STATUS_INSUFFICIENT_RESOURCES, STATUS_INVALID_DEVICE_REQUEST,
    STATUS_INVALID_PARAMETER, STATUS_NO_SUCH_DEVICE, STATUS_SUCCESS, UNICODE_STRING,
};
use parking_lot::Mutex;

use super::{irp::GuestIrp, namespace::NAMESPACE, request};
use crate::{
    Host,
    guest::Guest,
    image::EntryPoints,
    imports,
    memory::PAGE_SIZE,
    nt::runtime::unicode,
    services::Slot,
    thread::current,
    verifier::{BugCheck, violation},
};

pub(crate) static DEVICES: Slot<Mutex<Devices>> = Slot::new();
pub(crate) static DEFAULT_DISPATCH: Slot<EntryPoints> = Slot::new();

const DEVICE: &str = "IoCreateDevice";

/// Number of elements of `MajorFunction`.
const MAJOR_FUNCTIONS: usize = 28;

/// A function that runs when the last file of a driver's devices is closed.
type Deferred = Box<dyn FnOnce() + Send>;

/// The devices of a host.
#[derive(Default)]
pub struct Devices {
    /// By the address of the `DEVICE_OBJECT`.
    devices: BTreeMap<usize, Device>,
    /// Drivers, by the address of their object, that unload when no file is open.
    unloading: BTreeMap<usize, Deferred>,
}

struct Device {
    driver: usize,
    /// First page and number of pages.
    memory: (Guest<u8>, usize),
    /// Open files.
    files: usize,
    /// `IoDeleteDevice` was called while files were open.
    deleted: bool,
}

fn flags(device: usize) -> Guest<u32> {
    Guest::<u8>::from_address(device).field(offset_of!(DEVICE_OBJECT, Flags))
}

fn next(device: usize) -> Guest<usize> {
    Guest::<u8>::from_address(device).field(offset_of!(DEVICE_OBJECT, NextDevice))
}

fn reference_count(device: usize) -> Guest<i32> {
    Guest::<u8>::from_address(device).field(offset_of!(DEVICE_OBJECT, ReferenceCount))
}

fn first_device(driver: usize) -> Guest<usize> {
    Guest::<u8>::from_address(driver).field(offset_of!(DRIVER_OBJECT, DeviceObject))
}

/// Returns a member of `MajorFunction`.
pub(super) fn major_function(driver: usize, major: u8) -> Guest<usize> {
    let table: Guest<usize> =
        Guest::<u8>::from_address(driver).field(offset_of!(DRIVER_OBJECT, MajorFunction));
    table.add(usize::from(major))
}

impl Devices {
    /// Opens a file of a device; returns the driver that has it.
    ///
    /// # Errors
    /// `STATUS_NO_SUCH_DEVICE` when it is being initialized, deleted or unloaded, `STATUS_ACCESS_DENIED` when it is
    /// exclusive and open.
    pub(super) fn open(&mut self, address: usize) -> Result<usize, i32> {
        let device = self.devices.get_mut(&address).ok_or(STATUS_NO_SUCH_DEVICE)?;
        let flags = flags(address).read();
        if device.deleted
            || flags & DO_DEVICE_INITIALIZING != 0
            || self.unloading.contains_key(&device.driver)
        {
            return Err(STATUS_NO_SUCH_DEVICE);
        }
        if flags & DO_EXCLUSIVE != 0 && device.files != 0 {
            return Err(STATUS_ACCESS_DENIED);
        }
        device.files += 1;
        reference_count(address).write(i32::try_from(device.files).unwrap_or(i32::MAX));
        Ok(device.driver)
    }

    /// Returns the driver of a device that still exists.
    pub(super) fn driver(&self, address: usize) -> Option<usize> {
        self.devices.get(&address).map(|device| device.driver)
    }

    /// Forgets a file; returns what is to be done when it was the last one.
    fn close(&mut self, address: usize) -> (Option<(Guest<u8>, usize)>, Option<Deferred>) {
        let Some(device) = self.devices.get_mut(&address) else { return (None, None) };
        device.files = device.files.saturating_sub(1);
        reference_count(address).write(i32::try_from(device.files).unwrap_or(i32::MAX));
        let driver = device.driver;
        let memory = (device.deleted && device.files == 0).then_some(device.memory);
        if memory.is_some() {
            self.devices.remove(&address);
        }
        let unload = if self.has_files(driver) { None } else { self.unloading.remove(&driver) };
        (memory, unload)
    }

    fn has_files(&self, driver: usize) -> bool {
        self.devices.values().any(|device| device.driver == driver && device.files != 0)
    }
}

/// Closes a file of a device: deletes the device or unloads the driver if that waited for it.
pub(super) fn close(host: &Host, address: usize) {
    let (memory, unload) = host.state(&DEVICES).lock().close(address);
    if let Some((pages, count)) = memory {
        host.memory.free(pages, count);
    }
    if let Some(unload) = unload {
        unload();
    }
}

/// Fills in the members of a driver object that the I/O manager sets before `DriverEntry`.
pub(crate) fn prepare_driver(host: &Host, driver: Guest<DRIVER_OBJECT>) {
    let invalid = host.state(&DEFAULT_DISPATCH).address("IopInvalidDeviceRequest");
    for major in 0..MAJOR_FUNCTIONS {
        major_function(driver.address(), u8::try_from(major).unwrap_or(0)).write(invalid);
    }
}

/// Does what the I/O manager does after a `DriverEntry` that succeeded: entries of `MajorFunction` that were cleared
/// are set again, and the driver's devices can be opened.
pub(crate) fn driver_started(host: &Host, driver: Guest<DRIVER_OBJECT>) {
    let invalid = host.state(&DEFAULT_DISPATCH).address("IopInvalidDeviceRequest");
    for major in 0..MAJOR_FUNCTIONS {
        let entry = major_function(driver.address(), u8::try_from(major).unwrap_or(0));
        if entry.read() == 0 {
            entry.write(invalid);
        }
    }
    for (&address, device) in &host.state(&DEVICES).lock().devices {
        if device.driver == driver.address() {
            flags(address).write(flags(address).read() & !DO_DEVICE_INITIALIZING);
        }
    }
}

/// Puts the unloading of a driver off until its last open file is closed; returns `false`, and does nothing, when it
/// has none. Its devices can no longer be opened.
pub(crate) fn put_off_unload(
    host: &Host,
    driver: Guest<DRIVER_OBJECT>,
    unload: impl FnOnce() + Send + 'static,
) -> bool {
    let mut devices = host.state(&DEVICES).lock();
    let open = devices.has_files(driver.address());
    if open {
        devices.unloading.insert(driver.address(), Box::new(unload));
    }
    open
}

/// Removes what a driver that has ended left behind.
pub(crate) fn driver_ended(host: &Host, driver: Guest<DRIVER_OBJECT>) {
    let mut gone = Vec::new();
    host.state(&DEVICES).lock().devices.retain(|&address, device| {
        let mine = device.driver == driver.address();
        if mine {
            gone.push((address, device.memory));
        }
        !mine
    });
    for (address, (pages, count)) in gone {
        host.state(&NAMESPACE).lock().remove_device(address);
        host.memory.free(pages, count);
    }
}

fn create(
    driver: Guest<DRIVER_OBJECT>,
    extension: u32,
    name: Guest<UNICODE_STRING>,
    kind: u32,
    characteristics: u32,
    exclusive: bool,
    result: Guest<usize>,
) -> i32 {
    let me = current();
    let host = me.host();
    result.write(0);
    if host.low_resources.fails() {
        return STATUS_INSUFFICIENT_RESOURCES;
    }
    // The extension ends at a page without access.
    let size = size_of::<DEVICE_OBJECT>() + (extension as usize).next_multiple_of(16);
    let pages = size.div_ceil(PAGE_SIZE);
    let Some(memory) = host.memory.allocate(pages) else { return STATUS_INSUFFICIENT_RESOURCES };
    let address = memory.address() + pages * PAGE_SIZE - size;
    let name = (!name.is_null()).then(|| String::from_utf16_lossy(&unicode(name)));
    if let Some(name) = &name
        && let Err(status) = host.state(&NAMESPACE).lock().insert_device(name, address)
    {
        host.memory.free(memory, pages);
        return status;
    }
    let mut object = DEVICE_OBJECT::zeroed();
    object.Type = IO_TYPE_DEVICE;
    object.Size = u16::try_from(size_of::<DEVICE_OBJECT>() + extension as usize).unwrap_or(u16::MAX);
    object.DriverObject = driver.as_ptr();
    object.NextDevice = Guest::<DEVICE_OBJECT>::from_address(first_device(driver.address()).read()).as_ptr();
    object.Flags = DO_DEVICE_INITIALIZING
        | if name.is_some() { DO_DEVICE_HAS_NAME } else { 0 }
        | if exclusive { DO_EXCLUSIVE } else { 0 };
    object.Characteristics = characteristics;
    object.DeviceType = kind;
    object.StackSize = 1;
    if extension != 0 {
        object.DeviceExtension = Guest::from_address(address + size_of::<DEVICE_OBJECT>()).as_ptr();
    }
    Guest::from_address(address).write(object);
    first_device(driver.address()).write(address);
    let device = Device { driver: driver.address(), memory: (memory, pages), files: 0, deleted: false };
    host.state(&DEVICES).lock().devices.insert(address, device);
    host.objects.add(DEVICE, address);
    result.write(address);
    STATUS_SUCCESS
}

/// Removes a device from its driver's list.
fn unlink(driver: usize, device: usize) {
    let mut link = first_device(driver);
    while link.read() != 0 {
        if link.read() == device {
            link.write(next(device).read());
            return;
        }
        link = next(link.read());
    }
}

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Makes a device, with a name or without one.
    [<= APC_LEVEL]
    fn IoCreateDevice(
        driver: Guest<DRIVER_OBJECT>,
        extension: u32,
        name: Guest<UNICODE_STRING>,
        kind: u32,
        characteristics: u32,
        exclusive: u8,
        device: Guest<usize>,
    ) -> i32 {
        create(driver, extension, name, kind, characteristics, exclusive != 0, device)
    }

    /// Makes a device with a security descriptor, given as text. Programs have all rights here.
    [<= APC_LEVEL]
    fn IoCreateDeviceSecure(
        driver: Guest<DRIVER_OBJECT>,
        extension: u32,
        name: Guest<UNICODE_STRING>,
        kind: u32,
        characteristics: u32,
        exclusive: u8,
        descriptor: Guest<UNICODE_STRING>,
        class: Guest<GUID>,
        device: Guest<usize>,
    ) -> i32 {
        let _ = class;
        if descriptor.is_null() || !String::from_utf16_lossy(&unicode(descriptor)).starts_with("D:") {
            return STATUS_INVALID_PARAMETER;
        }
        create(driver, extension, name, kind, characteristics, exclusive != 0, device)
    }

    /// Deletes a device: at once, or when its last file is closed.
    [<= APC_LEVEL]
    fn IoDeleteDevice(device: Guest<DEVICE_OBJECT>) {
        let me = current();
        let host = me.host();
        let address = device.address();
        let memory = {
            let mut devices = host.state(&DEVICES).lock();
            match devices.devices.get_mut(&address) {
                Some(device) if !device.deleted => {
                    device.deleted = true;
                    let (driver, memory) = (device.driver, (device.files == 0).then_some(device.memory));
                    unlink(driver, address);
                    if memory.is_some() {
                        devices.devices.remove(&address);
                    }
                    Some(memory)
                }
                _ => None,
            }
        };
        let Some(memory) = memory else {
            violation(
                BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
                format!("IoDeleteDevice of {address:#x}, which is no device or is deleted already"),
            );
        };
        host.state(&NAMESPACE).lock().remove_device(address);
        let _ = host.objects.remove(DEVICE, address);
        if let Some((pages, count)) = memory {
            host.memory.free(pages, count);
        }
    }
}

imports! { DEFAULTS: "ntoskrnl.exe" =>
    /// The default entry of `MajorFunction`: fails the request.
    [<= DISPATCH_LEVEL]
    fn IopInvalidDeviceRequest(device: Guest<DEVICE_OBJECT>, irp: Guest<IRP>) -> i32 {
        let _ = device;
        GuestIrp(irp).set_status(STATUS_INVALID_DEVICE_REQUEST, 0);
        request::complete(irp);
        STATUS_INVALID_DEVICE_REQUEST
    }
}
