// SPDX-License-Identifier: MIT OR Apache-2.0

//! Registration and life cycle of a miniport: handlers, initialization, attributes, pause and restart.

use core::ffi::c_void;

use super::{
    NDIS_HANDLE, NDIS_OBJECT_HEADER, NDIS_OID, NDIS_OID_REQUEST, NDIS_PCI_DEVICE_CUSTOM_PROPERTIES,
    NDIS_PORT_NUMBER, NDIS_RECEIVE_SCALE_CAPABILITIES, NDIS_STATUS, NET_BUFFER_LIST, NET_DEVICE_PNP_EVENT,
    NET_IF_ACCESS_TYPE, NET_IF_CONNECTION_TYPE,
};
use crate::netio::{NET_IFINDEX, NET_LUID};
use crate::nt::{BOOLEAN, CM_PARTIAL_RESOURCE_LIST, DRIVER_OBJECT, IRP, UNICODE_STRING};

/// Why an adapter is halted.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NDIS_HALT_ACTION(pub i32);

impl NDIS_HALT_ACTION {
    pub const NdisHaltDeviceDisabled: Self = Self(0);
    pub const NdisHaltDeviceInstanceDeInitialized: Self = Self(1);
    pub const NdisHaltDevicePoweredDown: Self = Self(2);
    pub const NdisHaltDeviceSurpriseRemoved: Self = Self(3);
    pub const NdisHaltDeviceFailed: Self = Self(4);
    pub const NdisHaltDeviceInitializationFailed: Self = Self(5);
    pub const NdisHaltDeviceStopped: Self = Self(6);
}

/// Why an adapter is shut down.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NDIS_SHUTDOWN_ACTION(pub i32);

impl NDIS_SHUTDOWN_ACTION {
    pub const NdisShutdownPowerOff: Self = Self(0);
    pub const NdisShutdownBugCheck: Self = Self(1);
}

/// Handlers of a miniport driver.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_MINIPORT_DRIVER_CHARACTERISTICS {
    pub Header: NDIS_OBJECT_HEADER,
    pub MajorNdisVersion: u8,
    pub MinorNdisVersion: u8,
    pub MajorDriverVersion: u8,
    pub MinorDriverVersion: u8,
    pub Flags: u32,
    pub SetOptionsHandler: Option<SET_OPTIONS>,
    pub InitializeHandlerEx: Option<MINIPORT_INITIALIZE>,
    pub HaltHandlerEx: Option<MINIPORT_HALT>,
    pub UnloadHandler: Option<MINIPORT_UNLOAD>,
    pub PauseHandler: Option<MINIPORT_PAUSE>,
    pub RestartHandler: Option<MINIPORT_RESTART>,
    pub OidRequestHandler: Option<MINIPORT_OID_REQUEST>,
    pub SendNetBufferListsHandler: Option<MINIPORT_SEND_NET_BUFFER_LISTS>,
    pub ReturnNetBufferListsHandler: Option<MINIPORT_RETURN_NET_BUFFER_LISTS>,
    pub CancelSendHandler: Option<MINIPORT_CANCEL_SEND>,
    pub CheckForHangHandlerEx: Option<MINIPORT_CHECK_FOR_HANG>,
    pub ResetHandlerEx: Option<MINIPORT_RESET>,
    pub DevicePnPEventNotifyHandler: Option<MINIPORT_DEVICE_PNP_EVENT_NOTIFY>,
    pub ShutdownHandlerEx: Option<MINIPORT_SHUTDOWN>,
    pub CancelOidRequestHandler: Option<MINIPORT_CANCEL_OID_REQUEST>,
    pub DirectOidRequestHandler: Option<MINIPORT_DIRECT_OID_REQUEST>,
    pub CancelDirectOidRequestHandler: Option<MINIPORT_CANCEL_DIRECT_OID_REQUEST>,
    pub SynchronousOidRequestHandler: Option<MINIPORT_SYNCHRONOUS_OID_REQUEST>,
}

/// Head of the characteristics `NdisSetOptionalHandlers` takes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_DRIVER_OPTIONAL_HANDLERS {
    pub Header: NDIS_OBJECT_HEADER,
}

/// Handlers that take part in plug and play.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_MINIPORT_PNP_CHARACTERISTICS {
    pub Header: NDIS_OBJECT_HEADER,
    pub MiniportAddDeviceHandler: Option<MINIPORT_ADD_DEVICE>,
    pub MiniportRemoveDeviceHandler: Option<MINIPORT_REMOVE_DEVICE>,
    pub MiniportFilterResourceRequirementsHandler: Option<MINIPORT_PNP_IRP>,
    pub MiniportStartDeviceHandler: Option<MINIPORT_PNP_IRP>,
    pub Flags: u32,
}

/// Parameters of the initialization of an adapter.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_MINIPORT_INIT_PARAMETERS {
    pub Header: NDIS_OBJECT_HEADER,
    pub Flags: u32,
    pub AllocatedResources: *mut CM_PARTIAL_RESOURCE_LIST,
    pub IMDeviceInstanceContext: NDIS_HANDLE,
    pub MiniportAddDeviceContext: NDIS_HANDLE,
    pub IfIndex: NET_IFINDEX,
    pub NetLuid: NET_LUID,
    pub DefaultPortAuthStates: *mut c_void,
    pub PciDeviceCustomProperties: *mut NDIS_PCI_DEVICE_CUSTOM_PROPERTIES,
}

/// One attribute the drivers below agree on, in a list.
#[repr(C, align(16))]
#[derive(Clone, Copy)]
pub struct NDIS_RESTART_ATTRIBUTES {
    pub Next: *mut NDIS_RESTART_ATTRIBUTES,
    pub Oid: NDIS_OID,
    pub DataLength: u32,
    pub Data: [u8; 1],
}

/// General attributes at restart.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_RESTART_GENERAL_ATTRIBUTES {
    pub Header: NDIS_OBJECT_HEADER,
    pub MtuSize: u32,
    pub MaxXmitLinkSpeed: u64,
    pub MaxRcvLinkSpeed: u64,
    pub LookaheadSize: u32,
    pub MacOptions: u32,
    pub SupportedPacketFilters: u32,
    pub MaxMulticastListSize: u32,
    pub RecvScaleCapabilities: *mut NDIS_RECEIVE_SCALE_CAPABILITIES,
    pub AccessType: NET_IF_ACCESS_TYPE,
    pub Flags: u32,
    pub ConnectionType: NET_IF_CONNECTION_TYPE,
    pub SupportedStatistics: u32,
    pub DataBackFillSize: u32,
    pub ContextBackFillSize: u32,
    pub SupportedOidList: *mut NDIS_OID,
    pub SupportedOidListLength: u32,
    pub MaxLookaheadSizeAccessed: u32,
}

/// Parameters of the restart of an adapter.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_MINIPORT_RESTART_PARAMETERS {
    pub Header: NDIS_OBJECT_HEADER,
    pub RestartAttributes: *mut NDIS_RESTART_ATTRIBUTES,
    pub Flags: u32,
}

/// Why an adapter is paused.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_MINIPORT_PAUSE_PARAMETERS {
    pub Header: NDIS_OBJECT_HEADER,
    pub Flags: u32,
    pub PauseReason: u32,
}

/// The moment to register optional handlers.
///
/// IRQL: `== PASSIVE_LEVEL`.
pub type SET_OPTIONS =
    unsafe extern "efiapi" fn(NdisDriverHandle: NDIS_HANDLE, DriverContext: NDIS_HANDLE) -> NDIS_STATUS;

/// Brings an adapter up, paused.
///
/// IRQL: `== PASSIVE_LEVEL`.
pub type MINIPORT_INITIALIZE = unsafe extern "efiapi" fn(
    NdisMiniportHandle: NDIS_HANDLE,
    MiniportDriverContext: NDIS_HANDLE,
    MiniportInitParameters: *mut NDIS_MINIPORT_INIT_PARAMETERS,
) -> NDIS_STATUS;

/// Takes an adapter down; nothing of it remains.
///
/// IRQL: `== PASSIVE_LEVEL`.
pub type MINIPORT_HALT =
    unsafe extern "efiapi" fn(MiniportAdapterContext: NDIS_HANDLE, HaltAction: NDIS_HALT_ACTION);

/// The driver leaves memory.
///
/// IRQL: `== PASSIVE_LEVEL`.
pub type MINIPORT_UNLOAD = unsafe extern "efiapi" fn(DriverObject: *mut DRIVER_OBJECT);

/// Stops sending and receiving; may pend until the last frame is back.
///
/// IRQL: `== PASSIVE_LEVEL`.
pub type MINIPORT_PAUSE = unsafe extern "efiapi" fn(
    MiniportAdapterContext: NDIS_HANDLE,
    PauseParameters: *mut NDIS_MINIPORT_PAUSE_PARAMETERS,
) -> NDIS_STATUS;

/// Starts sending and receiving.
///
/// IRQL: `== PASSIVE_LEVEL`.
pub type MINIPORT_RESTART = unsafe extern "efiapi" fn(
    MiniportAdapterContext: NDIS_HANDLE,
    RestartParameters: *mut NDIS_MINIPORT_RESTART_PARAMETERS,
) -> NDIS_STATUS;

/// Queries or sets an OID; may pend.
///
/// IRQL: `== PASSIVE_LEVEL`.
pub type MINIPORT_OID_REQUEST = unsafe extern "efiapi" fn(
    MiniportAdapterContext: NDIS_HANDLE,
    OidRequest: *mut NDIS_OID_REQUEST,
) -> NDIS_STATUS;

/// Sends frames; they come back with `NdisMSendNetBufferListsComplete`.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type MINIPORT_SEND_NET_BUFFER_LISTS = unsafe extern "efiapi" fn(
    MiniportAdapterContext: NDIS_HANDLE,
    NetBufferList: *mut NET_BUFFER_LIST,
    PortNumber: NDIS_PORT_NUMBER,
    SendFlags: u32,
);

/// Gives received frames back.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type MINIPORT_RETURN_NET_BUFFER_LISTS = unsafe extern "efiapi" fn(
    MiniportAdapterContext: NDIS_HANDLE,
    NetBufferLists: *mut NET_BUFFER_LIST,
    ReturnFlags: u32,
);

/// Asks for frames with a cancel ID to be completed early.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type MINIPORT_CANCEL_SEND =
    unsafe extern "efiapi" fn(MiniportAdapterContext: NDIS_HANDLE, CancelId: *mut c_void);

/// Asks every few seconds whether the adapter needs a reset.
///
/// IRQL: `== PASSIVE_LEVEL`.
pub type MINIPORT_CHECK_FOR_HANG = unsafe extern "efiapi" fn(MiniportAdapterContext: NDIS_HANDLE) -> BOOLEAN;

/// Resets the adapter; may pend.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type MINIPORT_RESET = unsafe extern "efiapi" fn(
    MiniportAdapterContext: NDIS_HANDLE,
    AddressingReset: *mut BOOLEAN,
) -> NDIS_STATUS;

/// Tells of surprise removal or a change of power profile.
///
/// IRQL: `== PASSIVE_LEVEL`.
pub type MINIPORT_DEVICE_PNP_EVENT_NOTIFY = unsafe extern "efiapi" fn(
    MiniportAdapterContext: NDIS_HANDLE,
    NetDevicePnPEvent: *mut NET_DEVICE_PNP_EVENT,
);

/// Quiets the device because the system goes down; may come at any IRQL.
///
/// IRQL: `== PASSIVE_LEVEL (conditional)`.
pub type MINIPORT_SHUTDOWN =
    unsafe extern "efiapi" fn(MiniportAdapterContext: NDIS_HANDLE, ShutdownAction: NDIS_SHUTDOWN_ACTION);

/// Asks for a pending OID request to be completed early.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type MINIPORT_CANCEL_OID_REQUEST =
    unsafe extern "efiapi" fn(MiniportAdapterContext: NDIS_HANDLE, RequestId: *mut c_void);

/// An OID request that is not serialized with others.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type MINIPORT_DIRECT_OID_REQUEST = unsafe extern "efiapi" fn(
    MiniportAdapterContext: NDIS_HANDLE,
    OidRequest: *mut NDIS_OID_REQUEST,
) -> NDIS_STATUS;

/// Asks for a pending direct OID request to be completed early.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type MINIPORT_CANCEL_DIRECT_OID_REQUEST =
    unsafe extern "efiapi" fn(MiniportAdapterContext: NDIS_HANDLE, RequestId: *mut c_void);

/// An OID request that never pends (NDIS 6.80).
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type MINIPORT_SYNCHRONOUS_OID_REQUEST = unsafe extern "efiapi" fn(
    MiniportAdapterContext: NDIS_HANDLE,
    OidRequest: *mut NDIS_OID_REQUEST,
) -> NDIS_STATUS;

/// A device has been found, before its resources are assigned.
///
/// IRQL: `== PASSIVE_LEVEL`.
pub type MINIPORT_ADD_DEVICE = unsafe extern "efiapi" fn(
    NdisMiniportHandle: NDIS_HANDLE,
    MiniportDriverContext: NDIS_HANDLE,
) -> NDIS_STATUS;

/// Undoes `MINIPORT_ADD_DEVICE`.
///
/// IRQL: `== PASSIVE_LEVEL`.
pub type MINIPORT_REMOVE_DEVICE = unsafe extern "efiapi" fn(MiniportAddDeviceContext: NDIS_HANDLE);

/// A start or filter-resources request passes by.
///
/// IRQL: `== PASSIVE_LEVEL`.
pub type MINIPORT_PNP_IRP =
    unsafe extern "efiapi" fn(MiniportAddDeviceContext: NDIS_HANDLE, Irp: *mut IRP) -> NDIS_STATUS;

pub const NDIS_MINIPORT_DRIVER_CHARACTERISTICS_REVISION_1: u8 = 1;
pub const NDIS_SIZEOF_MINIPORT_DRIVER_CHARACTERISTICS_REVISION_1: u16 = 0x88;
pub const NDIS_MINIPORT_DRIVER_CHARACTERISTICS_REVISION_2: u8 = 2;
pub const NDIS_SIZEOF_MINIPORT_DRIVER_CHARACTERISTICS_REVISION_2: u16 = 0x98;
pub const NDIS_MINIPORT_DRIVER_CHARACTERISTICS_REVISION_3: u8 = 3;
pub const NDIS_SIZEOF_MINIPORT_DRIVER_CHARACTERISTICS_REVISION_3: u16 = 0xa0;
pub const NDIS_MINIPORT_INIT_PARAMETERS_REVISION_1: u8 = 1;
pub const NDIS_MINIPORT_PAUSE_PARAMETERS_REVISION_1: u8 = 1;
pub const NDIS_SIZEOF_MINIPORT_PAUSE_PARAMETERS_REVISION_1: u16 = 0xc;
pub const NDIS_MINIPORT_PNP_CHARACTERISTICS_REVISION_1: u8 = 1;
pub const NDIS_SIZEOF_MINIPORT_PNP_CHARACTERISTICS_REVISION_1: u16 = 0x2c;
pub const NDIS_MINIPORT_RESTART_PARAMETERS_REVISION_1: u8 = 1;
pub const NDIS_SIZEOF_MINIPORT_RESTART_PARAMETERS_REVISION_1: u16 = 0x14;
pub const NDIS_SIZEOF_MINIPORT_INIT_PARAMETER_REVISION_1: u16 = 0x40;
pub const NDIS_SIZEOF_DRIVER_WRAPPER_HANDLE_REVISION_1: u16 = 0x10;

#[cfg_attr(all(windows, feature = "kernel"), link(name = "ndis"))]
unsafe extern "efiapi" {
    /// IRQL: `== PASSIVE_LEVEL`.
    pub fn NdisMRegisterMiniportDriver(
        DriverObject: *mut DRIVER_OBJECT,
        RegistryPath: *mut UNICODE_STRING,
        MiniportDriverContext: NDIS_HANDLE,
        MiniportDriverCharacteristics: *mut NDIS_MINIPORT_DRIVER_CHARACTERISTICS,
        NdisMiniportDriverHandle: *mut *mut c_void,
    ) -> NDIS_STATUS;
    /// IRQL: `== PASSIVE_LEVEL`.
    pub fn NdisMDeregisterMiniportDriver(NdisMiniportDriverHandle: NDIS_HANDLE);
    /// IRQL: `== PASSIVE_LEVEL`.
    pub fn NdisSetOptionalHandlers(
        NdisHandle: NDIS_HANDLE,
        OptionalHandlers: *mut NDIS_DRIVER_OPTIONAL_HANDLERS,
    ) -> NDIS_STATUS;
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn NdisMPauseComplete(MiniportAdapterHandle: NDIS_HANDLE);
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn NdisMRestartComplete(MiniportAdapterHandle: NDIS_HANDLE, Status: NDIS_STATUS);
    /// IRQL: `== DISPATCH_LEVEL`.
    pub fn NdisMResetComplete(
        MiniportAdapterHandle: NDIS_HANDLE,
        Status: NDIS_STATUS,
        AddressingReset: BOOLEAN,
    );
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn NdisMRemoveMiniport(MiniportHandle: NDIS_HANDLE) -> NDIS_STATUS;
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn NdisGetVersion() -> u32;
    /// IRQL: `== PASSIVE_LEVEL`.
    pub fn NdisMQueryAdapterInstanceName(
        pAdapterInstanceName: *mut UNICODE_STRING,
        MiniportHandle: NDIS_HANDLE,
    ) -> NDIS_STATUS;
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn NdisWriteErrorLogEntry(
        NdisAdapterHandle: NDIS_HANDLE,
        ErrorCode: u32,
        NumberOfErrorValues: u32,
        ...
    );
}
