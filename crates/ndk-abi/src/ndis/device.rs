// SPDX-License-Identifier: MIT OR Apache-2.0

//! Devices that a driver registers for programs.

use super::NDIS_OBJECT_HEADER;
use crate::nt::{DRIVER_DISPATCH, GUID, UNICODE_STRING};

/// A device without hardware, for programs. `ExtensionSize` in bytes; `DeviceClassGuid` is reserved.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_DEVICE_OBJECT_ATTRIBUTES {
    pub Header: NDIS_OBJECT_HEADER,
    pub DeviceName: *mut UNICODE_STRING,
    pub SymbolicName: *mut UNICODE_STRING,
    /// By `IRP_MJ_*`.
    pub MajorFunctions: *mut Option<DRIVER_DISPATCH>,
    pub ExtensionSize: u32,
    pub DefaultSDDLString: *const UNICODE_STRING,
    pub DeviceClassGuid: *const GUID,
}

pub const NDIS_DEVICE_OBJECT_ATTRIBUTES_REVISION_1: u8 = 1;
pub const NDIS_SIZEOF_DEVICE_OBJECT_ATTRIBUTES_REVISION_1: u16 = 0x38;
