// SPDX-License-Identifier: MIT OR Apache-2.0

//! Event tracing for Windows.

use core::ffi::c_void;

use super::{BOOLEAN, GUID, NTSTATUS, REGHANDLE};

/// A property that `EtwSetInformation` sets.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EVENT_INFO_CLASS(pub i32);

impl EVENT_INFO_CLASS {
    pub const EventProviderBinaryTrackInfo: Self = Self(0);
    pub const EventProviderSetReserved1: Self = Self(1);
    pub const EventProviderSetTraits: Self = Self(2);
    pub const EventProviderUseDescriptorType: Self = Self(3);
    pub const MaxEventInfo: Self = Self(4);
}

/// Identity of an event.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct EVENT_DESCRIPTOR {
    pub Id: u16,
    pub Version: u8,
    pub Channel: u8,
    pub Level: u8,
    pub Opcode: u8,
    pub Task: u16,
    pub Keyword: u64,
}

/// One datum of an ETW event.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct EVENT_DATA_DESCRIPTOR {
    pub Ptr: u64,
    pub Size: u32,
    pub Reserved: u32,
}

/// A filter a session asks a provider for.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct EVENT_FILTER_DESCRIPTOR {
    pub Ptr: u64,
    pub Size: u32,
    pub Type: u32,
}

/// A session has enabled or disabled the provider.
///
/// IRQL: `<= PASSIVE_LEVEL`.
pub type ETWENABLECALLBACK = unsafe extern "efiapi" fn(
    SourceId: *const GUID,
    ControlCode: u32,
    Level: u8,
    MatchAnyKeyword: u64,
    MatchAllKeyword: u64,
    FilterData: *mut EVENT_FILTER_DESCRIPTOR,
    CallbackContext: *mut c_void,
);

#[cfg_attr(all(windows, feature = "kernel"), link(name = "ntoskrnl"))]
unsafe extern "efiapi" {
    /// IRQL: `<= PASSIVE_LEVEL`.
    pub fn EtwRegister(
        ProviderId: *const GUID,
        EnableCallback: Option<ETWENABLECALLBACK>,
        CallbackContext: *mut c_void,
        RegHandle: *mut REGHANDLE,
    ) -> NTSTATUS;
    /// IRQL: `<= PASSIVE_LEVEL`.
    pub fn EtwUnregister(RegHandle: REGHANDLE) -> NTSTATUS;
    /// IRQL: `<= HIGH_LEVEL`.
    pub fn EtwWrite(
        RegHandle: REGHANDLE,
        EventDescriptor: *const EVENT_DESCRIPTOR,
        ActivityId: *const GUID,
        UserDataCount: u32,
        UserData: *mut EVENT_DATA_DESCRIPTOR,
    ) -> NTSTATUS;
    /// IRQL: `<= HIGH_LEVEL`.
    pub fn EtwWriteTransfer(
        RegHandle: REGHANDLE,
        EventDescriptor: *const EVENT_DESCRIPTOR,
        ActivityId: *const GUID,
        RelatedActivityId: *const GUID,
        UserDataCount: u32,
        UserData: *mut EVENT_DATA_DESCRIPTOR,
    ) -> NTSTATUS;
    /// IRQL: `<= HIGH_LEVEL`.
    pub fn EtwEventEnabled(RegHandle: REGHANDLE, EventDescriptor: *const EVENT_DESCRIPTOR) -> BOOLEAN;
    /// IRQL: `<= HIGH_LEVEL`.
    pub fn EtwProviderEnabled(RegHandle: REGHANDLE, Level: u8, Keyword: u64) -> BOOLEAN;
    /// IRQL: `<= PASSIVE_LEVEL`.
    pub fn EtwSetInformation(
        RegHandle: REGHANDLE,
        InformationClass: EVENT_INFO_CLASS,
        EventInformation: *mut c_void,
        InformationLength: u32,
    ) -> NTSTATUS;
}
