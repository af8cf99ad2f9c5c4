// SPDX-License-Identifier: MIT OR Apache-2.0

//! The miniport's configuration in the registry.

use core::ffi::c_void;

use super::{NDIS_HANDLE, NDIS_OBJECT_HEADER, NDIS_STATUS, NDIS_STRING};
use crate::nt::UNICODE_STRING;

/// Type of a registry value.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NDIS_PARAMETER_TYPE(pub i32);

impl NDIS_PARAMETER_TYPE {
    pub const NdisParameterInteger: Self = Self(0);
    pub const NdisParameterHexInteger: Self = Self(1);
    pub const NdisParameterString: Self = Self(2);
    pub const NdisParameterMultiString: Self = Self(3);
    pub const NdisParameterBinary: Self = Self(4);
}

/// Whose configuration `NdisOpenConfigurationEx` opens.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_CONFIGURATION_OBJECT {
    pub Header: NDIS_OBJECT_HEADER,
    pub NdisHandle: NDIS_HANDLE,
    pub Flags: u32,
}

/// Counted bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct BINARY_DATA {
    pub Length: u16,
    pub Buffer: *mut c_void,
}

/// A registry value under the miniport's key.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_CONFIGURATION_PARAMETER {
    pub ParameterType: NDIS_PARAMETER_TYPE,
    pub ParameterData: NDIS_CONFIGURATION_PARAMETER_ParameterData,
}

/// The value; `ParameterType` says which.
#[repr(C)]
#[derive(Clone, Copy)]
pub union NDIS_CONFIGURATION_PARAMETER_ParameterData {
    pub IntegerData: u32,
    pub StringData: NDIS_STRING,
    pub BinaryData: BINARY_DATA,
}

pub const NDIS_CONFIGURATION_OBJECT_REVISION_1: u8 = 1;
pub const NDIS_CONFIG_FLAG_FILTER_INSTANCE_CONFIGURATION: u32 = 1;
pub const NDIS_SIZEOF_CONFIGURATION_OBJECT_REVISION_1: u16 = 0x14;

#[cfg_attr(all(windows, feature = "kernel"), link(name = "ndis"))]
unsafe extern "efiapi" {
    /// IRQL: `== PASSIVE_LEVEL`.
    pub fn NdisOpenConfigurationEx(
        ConfigObject: *mut NDIS_CONFIGURATION_OBJECT,
        ConfigurationHandle: *mut *mut c_void,
    ) -> NDIS_STATUS;
    /// IRQL: `<= APC_LEVEL`.
    pub fn NdisOpenConfigurationKeyByName(
        Status: *mut NDIS_STATUS,
        ConfigurationHandle: NDIS_HANDLE,
        SubKeyName: *mut UNICODE_STRING,
        SubKeyHandle: *mut *mut c_void,
    );
    /// IRQL: `== PASSIVE_LEVEL`.
    pub fn NdisReadConfiguration(
        Status: *mut NDIS_STATUS,
        ParameterValue: *mut *mut NDIS_CONFIGURATION_PARAMETER,
        ConfigurationHandle: NDIS_HANDLE,
        Keyword: *mut UNICODE_STRING,
        ParameterType: NDIS_PARAMETER_TYPE,
    );
    /// IRQL: `== PASSIVE_LEVEL`.
    pub fn NdisReadNetworkAddress(
        Status: *mut NDIS_STATUS,
        NetworkAddress: *mut *mut c_void,
        NetworkAddressLength: *mut u32,
        ConfigurationHandle: NDIS_HANDLE,
    );
    /// IRQL: `== PASSIVE_LEVEL`.
    pub fn NdisWriteConfiguration(
        Status: *mut NDIS_STATUS,
        ConfigurationHandle: NDIS_HANDLE,
        Keyword: *mut UNICODE_STRING,
        ParameterValue: *mut NDIS_CONFIGURATION_PARAMETER,
    );
    /// IRQL: `== PASSIVE_LEVEL`.
    pub fn NdisCloseConfiguration(ConfigurationHandle: NDIS_HANDLE);
}
