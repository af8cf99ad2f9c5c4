// SPDX-License-Identifier: MIT OR Apache-2.0

//! Uses of its device by a scripted miniport.
#![allow(unsafe_code, reason = "calls and implements functions of NDIS as drivers do")]

use device_sim::pci;
use ndis_sim::bus;
use ndk_abi::{
    ndis::{
        NDIS_OBJECT_TYPE_DEFAULT, NDIS_PM_CAPABILITIES, NDIS_PM_CAPABILITIES_REVISION_2,
        NDIS_SIZEOF_NDIS_PM_CAPABILITIES_REVISION_2,
    },
    nt::LARGE_INTEGER,
};

use super::scripted::{general_with, header, kept};

/// Maps the registers of the adapter's device. Returns their address.
pub fn registers(handle: usize) -> usize {
    let mapped = kept(0_usize);
    let start = LARGE_INTEGER { QuadPart: pci::VIRTIO_BAR_AT.cast_signed() };
    bus::NdisMMapIoSpace(mapped, handle, start, pci::VIRTIO_BAR_LEN as u32);
    mapped.read()
}

/// Ends what [`registers`] mapped.
pub fn unmap(handle: usize, mapped: usize) {
    bus::NdisMUnmapIoSpace(handle, mapped, pci::VIRTIO_BAR_LEN as u32);
}

/// Brings the device up as far as `DRIVER_OK`, without queues.
pub fn run_device(handle: usize) {
    start_device(handle, |_| {});
}

/// Runs the device, as [`run_device`] does, with the rings of the first queue at the device address `rings`.
pub fn run_device_with_queue(handle: usize, rings: u64) {
    start_device(handle, |mapped| {
        let write = |at: usize, value: u16| {
            // SAFETY: a window of registers: the access is trapped.
            unsafe { std::ptr::with_exposed_provenance_mut::<u16>(mapped + at).write_volatile(value) };
        };
        write(0x16, 0);
        write(0x18, 4);
        for (at, offset) in [(0x20, 0), (0x28, 1024), (0x30, 2048)] {
            let address = rings + offset;
            for (at, half) in [(at, address as u32), (at + 4, (address >> 32) as u32)] {
                // SAFETY: an address in a window of registers, each access to which is trapped.
                unsafe { std::ptr::with_exposed_provenance_mut::<u32>(mapped + at).write_volatile(half) };
            }
        }
        write(0x1c, 1);
    });
}

/// Runs the device, as [`run_device`] does, with an MSI-X vector for changes of the configuration.
pub fn run_device_with_config_vector(handle: usize, vector: u16) {
    start_device(handle, |mapped| {
        // SAFETY: a window of registers: the access is trapped.
        unsafe { std::ptr::with_exposed_provenance_mut::<u16>(mapped + 0x10).write_volatile(vector) };
    });
}

/// Brings the device up; `configure` is called with the address of its registers before `DRIVER_OK`.
fn start_device(handle: usize, configure: impl FnOnce(usize)) {
    let mapped = registers(handle);
    let status = |value: u8| {
        // SAFETY: a window of registers: the access is trapped.
        unsafe { std::ptr::with_exposed_provenance_mut::<u8>(mapped + 0x14).write_volatile(value) };
    };
    status(1);
    status(3);
    // VERSION_1 and ACCESS_PLATFORM.
    for (at, value) in [(0x08, 1_u32), (0x0c, 3)] {
        // SAFETY: an address in a window of registers, each access to which is trapped.
        unsafe { std::ptr::with_exposed_provenance_mut::<u32>(mapped + at).write_volatile(value) };
    }
    status(11);
    configure(mapped);
    let command = kept(6_u16);
    bus::NdisMSetBusData(handle, 0, 4, command.cast(), 2);
    status(15);
    unmap(handle, mapped);
}

/// Resets the device.
pub fn reset_device(handle: usize) {
    let mapped = registers(handle);
    // SAFETY: a window of registers: the access is trapped.
    unsafe { std::ptr::with_exposed_provenance_mut::<u8>(mapped + 0x14).write_volatile(0) };
    unmap(handle, mapped);
}

/// Returns power management capabilities whose header claims `size` bytes.
pub fn power_capabilities(size: u16) -> *mut NDIS_PM_CAPABILITIES {
    let mut capabilities = NDIS_PM_CAPABILITIES::zeroed();
    capabilities.Header = header(NDIS_OBJECT_TYPE_DEFAULT, NDIS_PM_CAPABILITIES_REVISION_2, size);
    kept(capabilities).as_ptr()
}

/// Sets general attributes with power management.
pub fn set_power_capable(handle: usize) {
    general_with(handle, |attributes| {
        attributes.PowerManagementCapabilitiesEx =
            power_capabilities(NDIS_SIZEOF_NDIS_PM_CAPABILITIES_REVISION_2);
    });
}
