// SPDX-License-Identifier: MIT OR Apache-2.0

//! Devices that a driver registers for programs: without hardware, with a name for programs and dispatch routines of their own.

use std::{mem::offset_of, sync::Arc};

use ndk_abi::{
    ndis::{
        NDIS_DEVICE_OBJECT_ATTRIBUTES, NDIS_DEVICE_OBJECT_ATTRIBUTES_REVISION_1,
        NDIS_OBJECT_TYPE_DEVICE_OBJECT_ATTRIBUTES, NDIS_SIZEOF_DEVICE_OBJECT_ATTRIBUTES_REVISION_1,
        NDIS_STATUS, NDIS_STATUS_SUCCESS,
    },
    nt::{DEVICE_OBJECT, FILE_DEVICE_UNKNOWN, IRP_MJ_PNP, IRP_MJ_POWER, UNICODE_STRING},
};
use nt_sim::{
    current,
    guest::Guest,
    imports,
    nt::{
        io::{
            device::{self, MAJOR_FUNCTIONS, NewDevice},
            symlink,
        },
        runtime::unicode,
    },
};

use crate::{
    driver::Driver,
    handle::{self, HANDLES},
    rules::{self, broken, require},
};

const REGISTER: &str = "NdisRegisterDeviceEx";

/// Length in bytes of NDIS's part of a device extension. Here it has the value [`MARK`] and the length of the driver's part.
const RESERVED: usize = 16;
const MARK: u64 = u64::from_le_bytes(*b"NDISdevi");

/// A registered device.
struct Device {
    object: usize,
    /// The name for programs.
    link: Option<String>,
    /// Address of the extension, as NDIS has set it.
    extension: usize,
}

fn text(string: *const UNICODE_STRING) -> Option<String> {
    let string: Guest<UNICODE_STRING> = Guest::new(string.cast_mut());
    (!string.is_null()).then(|| String::from_utf16_lossy(&unicode(string)))
}

fn extension(device: Guest<DEVICE_OBJECT>) -> usize {
    device.field::<usize>(offset_of!(DEVICE_OBJECT, DeviceExtension)).read()
}

/// Returns the dispatch routines of a device; requests without one fail.
fn entries(attributes: &NDIS_DEVICE_OBJECT_ATTRIBUTES) -> [usize; MAJOR_FUNCTIONS] {
    let routines: Guest<usize> = Guest::new(attributes.MajorFunctions.cast());
    require(!routines.is_null(), rules::PARAMETER, || format!("{REGISTER} without MajorFunctions"));
    let entries = std::array::from_fn(|major| routines.add(major).read());
    for (name, major) in [("IRP_MJ_PNP", IRP_MJ_PNP), ("IRP_MJ_POWER", IRP_MJ_POWER)] {
        require(entries[usize::from(major)] == 0, rules::DEVICE, || {
            format!("{REGISTER} with a routine for {name}, which such a device does not get")
        });
    }
    entries
}

fn register(
    driver: &Driver,
    attributes: &NDIS_DEVICE_OBJECT_ATTRIBUTES,
    object: Guest<usize>,
) -> Result<Device, NDIS_STATUS> {
    let me = current();
    let header = attributes.Header;
    let is_known = header.Type == NDIS_OBJECT_TYPE_DEVICE_OBJECT_ATTRIBUTES
        && header.Revision >= NDIS_DEVICE_OBJECT_ATTRIBUTES_REVISION_1
        && header.Size >= NDIS_SIZEOF_DEVICE_OBJECT_ATTRIBUTES_REVISION_1;
    require(is_known, rules::HEADER, || {
        format!(
            "the attributes of a device have type {:#x}, revision {} and size {}",
            header.Type, header.Revision, header.Size
        )
    });
    require(attributes.DeviceClassGuid.is_null(), rules::DEVICE, || {
        format!("{REGISTER}: DeviceClassGuid is reserved")
    });
    let Some(name) = text(attributes.DeviceName) else {
        broken(rules::PARAMETER, format!("{REGISTER} without DeviceName"))
    };
    let new = NewDevice {
        driver: driver.object,
        extension: attributes.ExtensionSize.saturating_add(RESERVED as u32),
        name: Guest::new(attributes.DeviceName),
        kind: FILE_DEVICE_UNKNOWN,
        characteristics: 0,
        is_exclusive: false,
        entries: Some(entries(attributes)),
        function: REGISTER,
    };
    let status = device::create(&new, object);
    if status != NDIS_STATUS_SUCCESS {
        return Err(status);
    }
    let address = object.read();
    let link = text(attributes.SymbolicName);
    if let Some(link) = &link
        && let Err(status) = symlink::create(me.host(), link, &name)
    {
        object.write(0);
        device::delete(&me, address, REGISTER);
        return Err(status);
    }
    let extension = extension(Guest::from_address(address));
    Guest::<u64>::from_address(extension).write(MARK);
    Guest::<u32>::from_address(extension + 8).write(attributes.ExtensionSize);
    device::end_initialization(address);
    Ok(Device { object: address, link, extension })
}

imports! { IMPORTS: "ndis.sys" =>
    /// Makes a device for programs, with a symbolic link.
    [== PASSIVE_LEVEL]
    fn NdisRegisterDeviceEx(
        driver: usize,
        attributes: Guest<NDIS_DEVICE_OBJECT_ATTRIBUTES>,
        object: Guest<usize>,
        device_handle: Guest<usize>,
    ) -> NDIS_STATUS {
        let driver = handle::object::<Driver>("miniport driver handle", driver);
        object.write(0);
        match register(&driver, &attributes.read(), object) {
            Ok(device) => {
                device_handle.write(current().host().state(&HANDLES).insert(Arc::new(device)));
                NDIS_STATUS_SUCCESS
            }
            Err(status) => status,
        }
    }

    /// Removes a device of [`NdisRegisterDeviceEx`] with its symbolic link.
    [== PASSIVE_LEVEL]
    fn NdisDeregisterDeviceEx(device_handle: usize) {
        let device = handle::take::<Device>("handle of a registered device", device_handle);
        let me = current();
        require(extension(Guest::from_address(device.object)) == device.extension, rules::DEVICE, || {
            "the driver changed DeviceExtension of a device of NdisRegisterDeviceEx".into()
        });
        if let Some(link) = &device.link {
            let _ = symlink::remove(me.host(), link);
        }
        device::delete(&me, device.object, "NdisDeregisterDeviceEx");
    }

    /// Returns the driver's part of a device extension, or null if there is none.
    [any]
    fn NdisGetDeviceReservedExtension(device: Guest<DEVICE_OBJECT>) -> usize {
        let extension = extension(device);
        let is_mine = extension != 0 && Guest::<u64>::from_address(extension).read() == MARK;
        let is_there = is_mine && Guest::<u32>::from_address(extension + 8).read() != 0;
        if is_there { extension + RESERVED } else { 0 }
    }
}
