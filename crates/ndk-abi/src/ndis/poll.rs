// SPDX-License-Identifier: MIT OR Apache-2.0

//! Poll objects: NDIS calls the miniport for received lists and for completed sends, and limits the number of each.
//! From NDIS 6.85.

use core::ffi::c_void;

use super::{NDIS_HANDLE, NDIS_OBJECT_HEADER, NDIS_STATUS, NET_BUFFER_LIST};
use crate::nt::{BOOLEAN, PROCESSOR_NUMBER};

/// A poll object.
pub type NDIS_POLL_HANDLE = *mut c_void;

/// The handlers of a poll object. Header type `NDIS_OBJECT_TYPE_DEFAULT`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_POLL_CHARACTERISTICS {
    pub Header: NDIS_OBJECT_HEADER,
    pub SetPollNotificationHandler: Option<NDIS_SET_POLL_NOTIFICATION>,
    pub PollHandler: Option<NDIS_POLL>,
}

/// The sends that one call of `NdisPoll` completes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_POLL_TRANSMIT_DATA {
    pub MaxNblsToComplete: u32,
    pub Reserved1: [u32; 3],
    pub CompletedNblChain: *mut NET_BUFFER_LIST,
    pub NumberOfCompletedNbls: u32,
    pub NumberOfRemainingNbls: u32,
    pub SendCompleteFlags: u32,
    pub Reserved2: u32,
    pub Reserved3: [*mut c_void; 4],
}

/// The received lists that one call of `NdisPoll` indicates.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_POLL_RECEIVE_DATA {
    pub MaxNblsToIndicate: u32,
    pub Reserved1: [u32; 3],
    pub IndicatedNblChain: *mut NET_BUFFER_LIST,
    pub NumberOfIndicatedNbls: u32,
    pub NumberOfRemainingNbls: u32,
    pub Flags: u32,
    pub Reserved2: u32,
    pub Reserved3: [*mut c_void; 4],
}

/// Limits and results of one call of `NdisPoll`. Header type `NDIS_OBJECT_TYPE_DEFAULT`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_POLL_DATA {
    pub Header: NDIS_OBJECT_HEADER,
    pub Transmit: NDIS_POLL_TRANSMIT_DATA,
    pub Receive: NDIS_POLL_RECEIVE_DATA,
}

/// Whether the interrupt of a poll object is to be enabled. Header type `NDIS_OBJECT_TYPE_DEFAULT`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_POLL_NOTIFICATION {
    pub Header: NDIS_OBJECT_HEADER,
    pub Enabled: BOOLEAN,
}

/// Passes received lists and completed sends to NDIS.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDIS_POLL = unsafe extern "efiapi" fn(Context: *mut c_void, PollData: *mut NDIS_POLL_DATA);

/// Enables or disables the interrupt of a poll object.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NDIS_SET_POLL_NOTIFICATION =
    unsafe extern "efiapi" fn(Context: *mut c_void, Notification: *mut NDIS_POLL_NOTIFICATION);

pub const NDIS_POLL_CHARACTERISTICS_REVISION_1: u8 = 1;
pub const NDIS_SIZEOF_NDIS_POLL_CHARACTERISTICS_REVISION_1: u16 = 0x18;
pub const NDIS_POLL_DATA_REVISION_1: u8 = 1;
pub const NDIS_SIZEOF_NDIS_POLL_DATA_REVISION_1: u16 = 0x98;
pub const NDIS_POLL_NOTIFICATION_REVISION_1: u8 = 1;
pub const NDIS_SIZEOF_NDIS_POLL_NOTIFICATION_REVISION_1: u16 = 5;

/// As a limit: none. As a number of lists: NDIS counts them. As a number of remaining lists: unknown, at least one.
pub const NDIS_ANY_NUMBER_OF_NBLS: u32 = 0xFFFFFFFF;

#[cfg_attr(all(windows, feature = "kernel"), link(name = "ndis"))]
unsafe extern "efiapi" {
    /// IRQL: `== PASSIVE_LEVEL`.
    pub fn NdisRegisterPoll(
        NdisHandle: NDIS_HANDLE,
        Context: *mut c_void,
        Characteristics: *const NDIS_POLL_CHARACTERISTICS,
        PollHandle: *mut NDIS_POLL_HANDLE,
    ) -> NDIS_STATUS;
    /// IRQL: `== PASSIVE_LEVEL`.
    pub fn NdisDeregisterPoll(PollHandle: NDIS_POLL_HANDLE);
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn NdisSetPollAffinity(PollHandle: NDIS_POLL_HANDLE, PollAffinity: *const PROCESSOR_NUMBER);
    /// IRQL: `<= HIGH_LEVEL`.
    pub fn NdisRequestPoll(PollHandle: NDIS_POLL_HANDLE, Reserved: *mut c_void);
}
