// SPDX-License-Identifier: MIT OR Apache-2.0

//! The physical device object of an adapter, with the properties that the PCI bus and the adapter's INF give it.

use ndk_abi::nt::GUID;
use nt_sim::{
    Host, current,
    guest::Guest,
    imports,
    nt::io::property::{Properties, Property, add_physical_device},
};

use crate::{
    adapter::adapter,
    interface::{Interface, interfaces},
};

/// GUID_BUS_TYPE_PCI of wdmguid.h.
const PCI: GUID = GUID::from_u128(0xc8eb_dfb0_b510_11d0_80e5_00a0_c925_42e3);
/// PCIBus of INTERFACE_TYPE.
const PCI_BUS: u32 = 5;
/// InstallStateInstalled of DEVICE_INSTALL_STATE.
const INSTALLED: u32 = 0;
/// RemovalPolicyExpectOrderlyRemoval of DEVICE_REMOVAL_POLICY.
const ORDERLY: u32 = 2;
/// The number of a slot that the bus driver does not know.
const NO_NUMBER: u32 = u32::MAX;
/// The class of network adapters.
const CLASS: &str = "{4d36e972-e325-11ce-bfc1-08002be10318}";
/// The slot of the first NIC on its bus.
const FIRST_SLOT: usize = 3;

fn text(value: &str) -> Vec<u8> {
    value.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect()
}

fn guid(of: GUID) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(of.Data1.to_le_bytes());
    bytes.extend(of.Data2.to_le_bytes());
    bytes.extend(of.Data3.to_le_bytes());
    bytes.extend(of.Data4);
    bytes
}

/// Returns the hardware IDs of a PCI function, the most specific one first.
fn hardware_ids(interface: &Interface) -> Vec<u8> {
    let mut header = [0; 0x30];
    interface.nic.read_config(0, &mut header);
    let word = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    let function = format!(r"PCI\VEN_{:04X}&DEV_{:04X}", word(0), word(2));
    let subsystem = format!("{function}&SUBSYS_{:04X}{:04X}", word(0x2e), word(0x2c));
    let revision = header[8];
    let ids = [
        format!("{subsystem}&REV_{revision:02X}"),
        subsystem,
        format!("{function}&REV_{revision:02X}"),
        function,
    ];
    let mut list: Vec<u8> = ids.iter().flat_map(|id| text(id)).collect();
    list.extend([0, 0]);
    list
}

fn properties(host: &Host, interface: &Interface) -> Properties {
    let index =
        interfaces(host).iter().position(|other| std::ptr::eq(&raw const **other, interface)).unwrap_or(0);
    let slot = FIRST_SLOT + index;
    let number = |value: u32| value.to_le_bytes().to_vec();
    let values = [
        (Property::DeviceDescription, text("Network adapter")),
        (Property::HardwareId, hardware_ids(interface)),
        (Property::ClassName, text("Net")),
        (Property::ClassGuid, text(CLASS)),
        (Property::DriverKeyName, text(&format!(r"{CLASS}\{index:04}"))),
        (Property::Manufacturer, text("viordma")),
        (Property::LocationInformation, text(&format!("PCI bus 0, device {slot}, function 0"))),
        (Property::PhysicalDeviceObjectName, text(&format!(r"\Device\NTPNP_PCI{slot:04}"))),
        (Property::BusTypeGuid, guid(PCI)),
        (Property::LegacyBusType, number(PCI_BUS)),
        (Property::BusNumber, number(0)),
        (Property::EnumeratorName, text("PCI")),
        (Property::Address, number((slot as u32) << 16)),
        (Property::UiNumber, number(NO_NUMBER)),
        (Property::InstallState, number(INSTALLED)),
        (Property::RemovalPolicy, number(ORDERLY)),
    ];
    values.into_iter().map(|(property, value)| (property as i32, value)).collect()
}

/// Returns the physical device object of an interface's adapter; 0 without memory.
fn object(host: &Host, interface: &Interface) -> usize {
    let mut physical = interface.physical_device.lock();
    if *physical == 0 {
        *physical = add_physical_device(host, properties(host, interface)).unwrap_or(0);
    }
    *physical
}

imports! { IMPORTS: "ndis.sys" =>
    /// Returns the physical device object, which is also the next one below NDIS's own. That of NDIS is null: drivers that use NDIS for bus access
    /// do not need it.
    [== PASSIVE_LEVEL]
    fn NdisMGetDeviceProperty(
        handle: usize,
        physical: Guest<usize>,
        functional: Guest<usize>,
        next: Guest<usize>,
        _resources: Guest<usize>,
        _translated: Guest<usize>,
    ) {
        let device = object(current().host(), &adapter(handle).interface);
        for (result, object) in [(physical, device), (functional, 0), (next, device)] {
            if !result.is_null() {
                result.write(object);
            }
        }
    }
}
