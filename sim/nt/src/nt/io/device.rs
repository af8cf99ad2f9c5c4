// SPDX-License-Identifier: MIT OR Apache-2.0

//! Devices, and the members of driver objects that belong to the I/O manager.

use std::{collections::BTreeMap, mem::offset_of};

use ndk_abi::nt::{
    DEVICE_OBJECT, DO_DEVICE_HAS_NAME, DO_DEVICE_INITIALIZING, DO_EXCLUSIVE, DRIVER_OBJECT, GUID,
    IO_TYPE_DEVICE, IRP, STATUS_ACCESS_DENIED, STATUS_INSUFFICIENT_RESOURCES, STATUS_INVALID_DEVICE_REQUEST,
    STATUS_INVALID_PARAMETER, STATUS_NO_SUCH_DEVICE, STATUS_SUCCESS, UNICODE_STRING,
};
use parking_lot::Mutex;

use super::{complete, irp::GuestIrp, namespace::NAMESPACE};
use crate::{
    Host,
    guest::Guest,
    image::EntryPoints,
    imports,
    memory::PAGE_SIZE,
    nt::runtime::unicode,
    services::Slot,
    thread::{Thread, current},
    verifier::{BugCheck, broken, rules},
};

pub(crate) static DEVICES: Slot<Mutex<Devices>> = Slot::new();
pub(crate) static DEFAULT_DISPATCH: Slot<EntryPoints> = Slot::new();

/// Number of elements of `MajorFunction`.
pub const MAJOR_FUNCTIONS: usize = 28;

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
    /// `IoDeleteDevice` was called while files were open, or a device was attached.
    deleted: bool,
    /// The device that is attached to this one, and the one to which this one is attached.
    above: Option<usize>,
    below: Option<usize>,
    /// Dispatch routines of this device alone, instead of its driver's.
    entries: Option<Entries>,
    /// The function that made it.
    function: &'static str,
}

/// No device is attached.
pub(super) struct NotAttached;

/// Addresses of dispatch routines, by `IRP_MJ_*`.
pub type Entries = [usize; MAJOR_FUNCTIONS];

impl Device {
    /// Returns the memory of a device that can go.
    fn garbage(&self) -> Option<(Guest<u8>, usize)> {
        (self.deleted && self.files == 0 && self.above.is_none()).then_some(self.memory)
    }
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

fn attached(device: usize) -> Guest<usize> {
    Guest::<u8>::from_address(device).field(offset_of!(DEVICE_OBJECT, AttachedDevice))
}

fn stack_size(device: usize) -> Guest<i8> {
    Guest::<u8>::from_address(device).field(offset_of!(DEVICE_OBJECT, StackSize))
}

fn alignment(device: usize) -> Guest<u32> {
    Guest::<u8>::from_address(device).field(offset_of!(DEVICE_OBJECT, AlignmentRequirement))
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
    /// Opens a file of a device.
    ///
    /// # Errors
    /// `STATUS_NO_SUCH_DEVICE` when it is being initialized, deleted or unloaded, `STATUS_ACCESS_DENIED` when it is
    /// exclusive and open.
    pub(super) fn open(&mut self, address: usize) -> Result<(), i32> {
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
        Ok(())
    }

    /// Returns the highest device of the stack of a device that still exists, and the number of stack locations of requests to it.
    pub(super) fn top(&self, address: usize) -> Option<(usize, i8)> {
        let mut top = address;
        while let Some(above) = self.devices.get(&top)?.above {
            top = above;
        }
        Some((top, stack_size(top).read()))
    }

    /// Returns the dispatch routine of a device for a kind of request.
    pub(super) fn entry(&self, address: usize, major: u8) -> Option<usize> {
        let device = self.devices.get(&address)?;
        let of_driver = || major_function(device.driver, major.min(27)).read();
        Some(device.entries.as_ref().map_or_else(of_driver, |entries| entries[usize::from(major.min(27))]))
    }

    /// Attaches a device to the stack of another; returns the device that is now below it, or `None` if it cannot be attached.
    ///
    /// # Errors
    /// The reason why the driver must not attach it.
    pub(super) fn attach(&mut self, source: usize, target: usize) -> Result<Option<usize>, &'static str> {
        match self.devices.get(&source) {
            None => return Err("which is no device"),
            Some(device) if device.below.is_some() => return Err("which is attached already"),
            Some(_) => {}
        }
        let Some((top, locations)) = self.top(target) else { return Ok(None) };
        if top == source {
            return Err("which is in this stack");
        }
        let Some(lower) = self.devices.get_mut(&top) else { return Ok(None) };
        if lower.deleted || self.unloading.contains_key(&lower.driver) {
            return Ok(None);
        }
        lower.above = Some(source);
        attached(top).write(source);
        stack_size(source).write(locations.saturating_add(1));
        alignment(source).write(alignment(top).read());
        if let Some(device) = self.devices.get_mut(&source) {
            device.below = Some(top);
        }
        Ok(Some(top))
    }

    /// Detaches what is attached to a device; returns the memory of the device if it can go.
    ///
    /// # Errors
    /// [`NotAttached`] when nothing is attached to it, or when it is none.
    pub(super) fn detach(&mut self, address: usize) -> Result<Option<(Guest<u8>, usize)>, NotAttached> {
        let device = self.devices.get_mut(&address).ok_or(NotAttached)?;
        let above = device.above.take().ok_or(NotAttached)?;
        attached(address).write(0);
        let garbage = device.garbage();
        if let Some(source) = self.devices.get_mut(&above) {
            source.below = None;
        }
        if garbage.is_some() {
            self.devices.remove(&address);
        }
        Ok(garbage)
    }

    /// Forgets a file; returns what is to be done when it was the last one.
    fn close(&mut self, address: usize) -> (Option<(Guest<u8>, usize)>, Option<Deferred>) {
        let Some(device) = self.devices.get_mut(&address) else { return (None, None) };
        device.files = device.files.saturating_sub(1);
        reference_count(address).write(i32::try_from(device.files).unwrap_or(i32::MAX));
        let driver = device.driver;
        let memory = device.garbage();
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
            end_initialization(address);
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
    {
        let mut devices = host.state(&DEVICES).lock();
        let lower = devices.devices.values().filter(|device| device.driver == driver.address());
        for below in lower.filter_map(|device| device.below).collect::<Vec<_>>() {
            let _ = devices.detach(below);
        }
        devices.devices.retain(|&address, device| {
            let mine = device.driver == driver.address();
            if mine {
                gone.push((address, device.memory));
            }
            !mine
        });
    }
    for (address, (pages, count)) in gone {
        host.state(&NAMESPACE).lock().remove_device(address);
        host.memory.free(pages, count);
    }
}

/// A device that is to be made.
pub struct NewDevice {
    pub driver: Guest<DRIVER_OBJECT>,
    /// Length of the extension in bytes.
    pub extension: u32,
    /// May be null.
    pub name: Guest<UNICODE_STRING>,
    /// `FILE_DEVICE_*`.
    pub kind: u32,
    pub characteristics: u32,
    pub is_exclusive: bool,
    /// Dispatch routines of this device alone, instead of its driver's; requests for which there is none (0) fail.
    pub entries: Option<Entries>,
    /// The function that makes it, for reports.
    pub function: &'static str,
}

/// Makes a device; writes its address.
#[must_use]
pub fn create(new: &NewDevice, result: Guest<usize>) -> i32 {
    let &NewDevice { driver, extension, name, kind, characteristics, is_exclusive, entries, function } = new;
    let me = current();
    let host = me.host();
    let invalid = host.state(&DEFAULT_DISPATCH).address("IopInvalidDeviceRequest");
    let entries = entries.map(|entries| entries.map(|routine| if routine == 0 { invalid } else { routine }));
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
        | if is_exclusive { DO_EXCLUSIVE } else { 0 };
    object.Characteristics = characteristics;
    object.DeviceType = kind;
    object.StackSize = 1;
    if extension != 0 {
        object.DeviceExtension = Guest::from_address(address + size_of::<DEVICE_OBJECT>()).as_ptr();
    }
    Guest::from_address(address).write(object);
    first_device(driver.address()).write(address);
    let device = Device {
        driver: driver.address(),
        memory: (memory, pages),
        files: 0,
        deleted: false,
        above: None,
        below: None,
        entries,
        function,
    };
    host.state(&DEVICES).lock().devices.insert(address, device);
    host.objects.add(function, address);
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

/// Lets programs open a device.
pub fn end_initialization(device: usize) {
    flags(device).write(flags(device).read() & !DO_DEVICE_INITIALIZING);
}

/// Deletes a device for `function`: at once, or when its last file is closed and no device is attached.
pub fn delete(me: &Thread, address: usize, function: &str) {
    let host = me.host();
    let deleted = {
        let mut devices = host.state(&DEVICES).lock();
        match devices.devices.get_mut(&address) {
            Some(Device { below: Some(_), .. }) if me.verifies() => {
                Err("is attached to a device; call IoDetachDevice first")
            }
            Some(device) if !device.deleted => {
                device.deleted = true;
                let (driver, memory, made_by) = (device.driver, device.garbage(), device.function);
                unlink(driver, address);
                if memory.is_some() {
                    devices.devices.remove(&address);
                }
                Ok((memory, made_by))
            }
            _ => Err("is no device or is deleted already"),
        }
    };
    let (memory, made_by) = deleted.unwrap_or_else(|reason| {
        broken(
            rules::DEVICE_LIFE,
            BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
            format!("{function} of {address:#x}, which {reason}"),
        )
    });
    host.state(&NAMESPACE).lock().remove_device(address);
    let _ = host.objects.remove(made_by, address);
    if let Some((pages, count)) = memory {
        host.memory.free(pages, count);
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
        let (is_exclusive, entries, function) = (exclusive != 0, None, "IoCreateDevice");
        let new = NewDevice { driver, extension, name, kind, characteristics, is_exclusive, entries, function };
        create(&new, device)
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
        let (is_exclusive, entries, function) = (exclusive != 0, None, "IoCreateDevice");
        let new = NewDevice { driver, extension, name, kind, characteristics, is_exclusive, entries, function };
        create(&new, device)
    }

    /// Deletes a device: at once, or when its last file is closed.
    [<= APC_LEVEL]
    fn IoDeleteDevice(device: Guest<DEVICE_OBJECT>) {
        delete(&current(), device.address(), "IoDeleteDevice");
    }
}

imports! { DEFAULTS: "ntoskrnl.exe" =>
    /// The default entry of `MajorFunction`: fails the request.
    [<= DISPATCH_LEVEL]
    fn IopInvalidDeviceRequest(device: Guest<DEVICE_OBJECT>, irp: Guest<IRP>) -> i32 {
        let _ = device;
        GuestIrp(irp).set_status(STATUS_INVALID_DEVICE_REQUEST, 0);
        complete::complete(irp);
        STATUS_INVALID_DEVICE_REQUEST
    }
}
