// SPDX-License-Identifier: MIT OR Apache-2.0

//! Interrupts, message interrupts and their DPCs.

use core::ffi::c_void;

use super::{NDIS_HANDLE, NDIS_OBJECT_HEADER, NDIS_STATUS};
use crate::nt::{BOOLEAN, GROUP_AFFINITY, IO_INTERRUPT_MESSAGE_INFO, KAFFINITY};

/// Lines or messages, as `NdisMRegisterInterruptEx` found.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NDIS_INTERRUPT_TYPE(pub i32);

impl NDIS_INTERRUPT_TYPE {
    pub const NDIS_CONNECT_LINE_BASED: Self = Self(1);
    pub const NDIS_CONNECT_MESSAGE_BASED: Self = Self(2);
}

/// An operation on an entry of the MSI-X table.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NDIS_MSIX_TABLE_OPERATION(pub i32);

impl NDIS_MSIX_TABLE_OPERATION {
    pub const NdisMSIXTableConfigSetTableEntry: Self = Self(0);
    pub const NdisMSIXTableConfigMaskTableEntry: Self = Self(1);
    pub const NdisMSIXTableConfigUnmaskTableEntry: Self = Self(2);
    pub const NdisMSIXTableConfigMax: Self = Self(3);
}

/// Interrupt handlers of an adapter; NDIS fills in `InterruptType` and `MessageInfoTable`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_MINIPORT_INTERRUPT_CHARACTERISTICS {
    pub Header: NDIS_OBJECT_HEADER,
    pub InterruptHandler: Option<MINIPORT_ISR>,
    pub InterruptDpcHandler: Option<MINIPORT_INTERRUPT_DPC>,
    pub DisableInterruptHandler: Option<MINIPORT_DISABLE_INTERRUPT>,
    pub EnableInterruptHandler: Option<MINIPORT_ENABLE_INTERRUPT>,
    pub MsiSupported: BOOLEAN,
    pub MsiSyncWithAllMessages: BOOLEAN,
    pub MessageInterruptHandler: Option<MINIPORT_MESSAGE_INTERRUPT>,
    pub MessageInterruptDpcHandler: Option<MINIPORT_MESSAGE_INTERRUPT_DPC>,
    pub DisableMessageInterruptHandler: Option<MINIPORT_DISABLE_MESSAGE_INTERRUPT>,
    pub EnableMessageInterruptHandler: Option<MINIPORT_ENABLE_MESSAGE_INTERRUPT>,
    pub InterruptType: NDIS_INTERRUPT_TYPE,
    pub MessageInfoTable: *mut IO_INTERRUPT_MESSAGE_INFO,
}

/// An operation on an entry of the MSI-X table.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_MSIX_CONFIG_PARAMETERS {
    pub Header: NDIS_OBJECT_HEADER,
    pub ConfigOperation: NDIS_MSIX_TABLE_OPERATION,
    pub TableEntry: u32,
    pub MessageNumber: u32,
}

/// Limit of one interrupt DPC's indications; only bit 0 of `MoreNblsPending` is defined.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_RECEIVE_THROTTLE_PARAMETERS {
    pub MaxNblsToIndicate: u32,
    pub MoreNblsPending: u32,
}

/// A line interrupt has come.
///
/// IRQL: `== HIGH_LEVEL`.
pub type MINIPORT_ISR = unsafe extern "efiapi" fn(
    MiniportInterruptContext: NDIS_HANDLE,
    QueueDefaultInterruptDpc: *mut BOOLEAN,
    TargetProcessors: *mut u32,
) -> BOOLEAN;

/// The deferred part of a line interrupt.
///
/// IRQL: `== DISPATCH_LEVEL`.
pub type MINIPORT_INTERRUPT_DPC = unsafe extern "efiapi" fn(
    MiniportInterruptContext: NDIS_HANDLE,
    MiniportDpcContext: *mut c_void,
    ReceiveThrottleParameters: *mut c_void,
    NdisReserved2: *mut c_void,
);

/// Masks the line interrupt at the device.
///
/// IRQL: `== HIGH_LEVEL`.
pub type MINIPORT_DISABLE_INTERRUPT = unsafe extern "efiapi" fn(MiniportInterruptContext: NDIS_HANDLE);

/// Unmasks the line interrupt at the device.
///
/// IRQL: `== HIGH_LEVEL`.
pub type MINIPORT_ENABLE_INTERRUPT = unsafe extern "efiapi" fn(MiniportInterruptContext: NDIS_HANDLE);

/// A message interrupt has come; returns whether it was the adapter's.
///
/// IRQL: `== HIGH_LEVEL`.
pub type MINIPORT_MESSAGE_INTERRUPT = unsafe extern "efiapi" fn(
    MiniportInterruptContext: NDIS_HANDLE,
    MessageId: u32,
    QueueDefaultInterruptDpc: *mut BOOLEAN,
    TargetProcessors: *mut u32,
) -> BOOLEAN;

/// The deferred part of a message interrupt.
///
/// IRQL: `== DISPATCH_LEVEL`.
pub type MINIPORT_MESSAGE_INTERRUPT_DPC = unsafe extern "efiapi" fn(
    MiniportInterruptContext: NDIS_HANDLE,
    MessageId: u32,
    MiniportDpcContext: *mut c_void,
    ReceiveThrottleParameters: *mut c_void,
    NdisReserved2: *mut c_void,
);

/// Masks one message at the device.
///
/// IRQL: `== HIGH_LEVEL`.
pub type MINIPORT_DISABLE_MESSAGE_INTERRUPT =
    unsafe extern "efiapi" fn(MiniportInterruptContext: NDIS_HANDLE, MessageId: u32);

/// Unmasks one message at the device.
///
/// IRQL: `== HIGH_LEVEL`.
pub type MINIPORT_ENABLE_MESSAGE_INTERRUPT =
    unsafe extern "efiapi" fn(MiniportInterruptContext: NDIS_HANDLE, MessageId: u32);

/// Runs with the interrupt held off.
///
/// IRQL: `== HIGH_LEVEL`.
pub type MINIPORT_SYNCHRONIZE_INTERRUPT =
    unsafe extern "efiapi" fn(SynchronizeContext: NDIS_HANDLE) -> BOOLEAN;

pub const NDIS_MINIPORT_INTERRUPT_REVISION_1: u8 = 1;
pub const NDIS_SIZEOF_MINIPORT_INTERRUPT_CHARACTERISTICS_REVISION_1: u16 = 0x60;
pub const NDIS_MSIX_CONFIG_PARAMETERS_REVISION_1: u8 = 1;
pub const NDIS_SIZEOF_MSIX_CONFIG_PARAMETERS_REVISION_1: u16 = 0x10;

#[cfg_attr(all(windows, feature = "kernel"), link(name = "ndis"))]
unsafe extern "efiapi" {
    /// IRQL: `== PASSIVE_LEVEL`.
    pub fn NdisMRegisterInterruptEx(
        MiniportAdapterHandle: NDIS_HANDLE,
        MiniportInterruptContext: NDIS_HANDLE,
        MiniportInterruptCharacteristics: *mut NDIS_MINIPORT_INTERRUPT_CHARACTERISTICS,
        NdisInterruptHandle: *mut *mut c_void,
    ) -> NDIS_STATUS;
    /// IRQL: `== PASSIVE_LEVEL`.
    pub fn NdisMDeregisterInterruptEx(NdisInterruptHandle: NDIS_HANDLE);
    /// IRQL: `<= DIRQL`.
    pub fn NdisMSynchronizeWithInterruptEx(
        NdisInterruptHandle: NDIS_HANDLE,
        MessageId: u32,
        SynchronizeFunction: Option<MINIPORT_SYNCHRONIZE_INTERRUPT>,
        SynchronizeContext: *mut c_void,
    ) -> BOOLEAN;
    /// IRQL: `<= HIGH_LEVEL`.
    pub fn NdisMConfigMSIXTableEntry(
        NdisMiniportHandle: NDIS_HANDLE,
        MSIXConfigParameters: *mut NDIS_MSIX_CONFIG_PARAMETERS,
    ) -> NDIS_STATUS;
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn NdisMQueueDpc(
        NdisInterruptHandle: NDIS_HANDLE,
        MessageId: u32,
        TargetProcessors: u32,
        MiniportDpcContext: *mut c_void,
    ) -> u32;
    /// IRQL: `<= HIGH_LEVEL`.
    pub fn NdisMQueueDpcEx(
        NdisInterruptHandle: NDIS_HANDLE,
        MessageId: u32,
        TargetProcessors: *mut GROUP_AFFINITY,
        MiniportDpcContext: *mut c_void,
    ) -> KAFFINITY;
}
