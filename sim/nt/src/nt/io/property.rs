// SPDX-License-Identifier: MIT OR Apache-2.0

//! Physical device objects, which a bus makes, and their properties.

use std::collections::BTreeMap;

use ndk_abi::nt::{
    DEVICE_OBJECT, DRIVER_OBJECT, STATUS_BUFFER_TOO_SMALL, STATUS_INVALID_DEVICE_REQUEST, STATUS_SUCCESS,
};
use parking_lot::Mutex;

use super::device::{self, MAJOR_FUNCTIONS, NewDevice};
use crate::{guest::Guest, host::Host, imports, services::Slot, thread::current};

pub(crate) static PHYSICAL_DEVICES: Slot<PhysicalDevices> = Slot::new();

const STATUS_INVALID_PARAMETER_2: i32 = 0xc000_00f0_u32.cast_signed();
const FILE_DEVICE_UNKNOWN: u32 = 0x22;

/// A value of `DEVICE_REGISTRY_PROPERTY`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(i32)]
pub enum Property {
    DeviceDescription = 0,
    HardwareId = 1,
    ClassName = 5,
    ClassGuid = 6,
    DriverKeyName = 7,
    Manufacturer = 8,
    FriendlyName = 9,
    LocationInformation = 10,
    PhysicalDeviceObjectName = 11,
    BusTypeGuid = 12,
    LegacyBusType = 13,
    BusNumber = 14,
    EnumeratorName = 15,
    Address = 16,
    UiNumber = 17,
    InstallState = 18,
    RemovalPolicy = 19,
}

/// The properties of a device, as `IoGetDeviceProperty` returns them.
pub type Properties = BTreeMap<i32, Vec<u8>>;

/// The physical device objects of a host, by their addresses.
#[derive(Default)]
pub struct PhysicalDevices(Mutex<BTreeMap<usize, Properties>>);

/// Makes the physical device object of a device with these properties, of a bus driver that handles no requests. Returns its address; `None`
/// without memory.
#[must_use]
pub fn add_physical_device(host: &Host, properties: Properties) -> Option<usize> {
    const FUNCTION: &str = "the bus";
    let driver: Guest<DRIVER_OBJECT> = host.memory.allocate(1)?.cast();
    let result: Guest<usize> = driver.add(1).cast();
    let new = NewDevice {
        driver,
        extension: 0,
        name: Guest::null(),
        kind: FILE_DEVICE_UNKNOWN,
        characteristics: 0,
        is_exclusive: false,
        entries: Some([0; MAJOR_FUNCTIONS]),
        function: FUNCTION,
    };
    if device::create(&new, result) != STATUS_SUCCESS {
        host.memory.free(driver.cast(), 1);
        return None;
    }
    let object = result.read();
    device::end_initialization(object);
    // It is the bus's, not that of the driver that runs.
    let _ = host.objects.remove(FUNCTION, object);
    host.state(&PHYSICAL_DEVICES).0.lock().insert(object, properties);
    Some(object)
}

fn query(object: usize, property: i32, length: usize) -> Result<(Vec<u8>, bool), i32> {
    let me = current();
    let devices = me.host().state(&PHYSICAL_DEVICES).0.lock();
    let properties = devices.get(&object).ok_or(STATUS_INVALID_DEVICE_REQUEST)?;
    let value = properties.get(&property).ok_or(STATUS_INVALID_PARAMETER_2)?;
    Ok((value.clone(), value.len() <= length))
}

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Returns a property of a device, given by its physical device object.
    [<= PASSIVE_LEVEL]
    fn IoGetDeviceProperty(
        device: Guest<DEVICE_OBJECT>,
        property: i32,
        length: u32,
        buffer: Guest<u8>,
        result: Guest<u32>,
    ) -> i32 {
        match query(device.address(), property, length as usize) {
            Ok((value, fits)) => {
                result.write(u32::try_from(value.len()).unwrap_or(u32::MAX));
                if !fits {
                    return STATUS_BUFFER_TOO_SMALL;
                }
                buffer.write_bytes(&value);
                STATUS_SUCCESS
            }
            Err(status) => {
                result.write(0);
                status
            }
        }
    }
}
