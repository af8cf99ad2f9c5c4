// SPDX-License-Identifier: MIT OR Apache-2.0

//! Basic types of NDIS: handles, statuses, object headers, media.

use core::ffi::c_void;

use crate::nt::{CM_PARTIAL_RESOURCE_LIST, DRIVER_OBJECT, LARGE_INTEGER, UNICODE_STRING};

/// Medium a miniport presents.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NDIS_MEDIUM(pub i32);

impl NDIS_MEDIUM {
    pub const NdisMedium802_3: Self = Self(0);
    pub const NdisMedium802_5: Self = Self(1);
    pub const NdisMediumFddi: Self = Self(2);
    pub const NdisMediumWan: Self = Self(3);
    pub const NdisMediumLocalTalk: Self = Self(4);
    pub const NdisMediumDix: Self = Self(5);
    pub const NdisMediumArcnetRaw: Self = Self(6);
    pub const NdisMediumArcnet878_2: Self = Self(7);
    pub const NdisMediumAtm: Self = Self(8);
    pub const NdisMediumWirelessWan: Self = Self(9);
    pub const NdisMediumIrda: Self = Self(10);
    pub const NdisMediumBpc: Self = Self(11);
    pub const NdisMediumCoWan: Self = Self(12);
    pub const NdisMedium1394: Self = Self(13);
    pub const NdisMediumInfiniBand: Self = Self(14);
    pub const NdisMediumTunnel: Self = Self(15);
    pub const NdisMediumNative802_11: Self = Self(16);
    pub const NdisMediumLoopback: Self = Self(17);
    pub const NdisMediumWiMAX: Self = Self(18);
    pub const NdisMediumIP: Self = Self(19);
    pub const NdisMediumMax: Self = Self(20);
}

/// Medium underneath.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NDIS_PHYSICAL_MEDIUM(pub i32);

impl NDIS_PHYSICAL_MEDIUM {
    pub const NdisPhysicalMediumUnspecified: Self = Self(0);
    pub const NdisPhysicalMediumWirelessLan: Self = Self(1);
    pub const NdisPhysicalMediumCableModem: Self = Self(2);
    pub const NdisPhysicalMediumPhoneLine: Self = Self(3);
    pub const NdisPhysicalMediumPowerLine: Self = Self(4);
    pub const NdisPhysicalMediumDSL: Self = Self(5);
    pub const NdisPhysicalMediumFibreChannel: Self = Self(6);
    pub const NdisPhysicalMedium1394: Self = Self(7);
    pub const NdisPhysicalMediumWirelessWan: Self = Self(8);
    pub const NdisPhysicalMediumNative802_11: Self = Self(9);
    pub const NdisPhysicalMediumBluetooth: Self = Self(10);
    pub const NdisPhysicalMediumInfiniband: Self = Self(11);
    pub const NdisPhysicalMediumWiMax: Self = Self(12);
    pub const NdisPhysicalMediumUWB: Self = Self(13);
    pub const NdisPhysicalMedium802_3: Self = Self(14);
    pub const NdisPhysicalMedium802_5: Self = Self(15);
    pub const NdisPhysicalMediumIrda: Self = Self(16);
    pub const NdisPhysicalMediumWiredWAN: Self = Self(17);
    pub const NdisPhysicalMediumWiredCoWan: Self = Self(18);
    pub const NdisPhysicalMediumOther: Self = Self(19);
    pub const NdisPhysicalMediumNative802_15_4: Self = Self(20);
    pub const NdisPhysicalMediumMax: Self = Self(21);
}

/// Bus of an adapter.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NDIS_INTERFACE_TYPE(pub i32);

impl NDIS_INTERFACE_TYPE {
    pub const NdisInterfaceInternal: Self = Self(0);
    pub const NdisInterfaceIsa: Self = Self(1);
    pub const NdisInterfaceEisa: Self = Self(2);
    pub const NdisInterfaceMca: Self = Self(3);
    pub const NdisInterfaceTurboChannel: Self = Self(4);
    pub const NdisInterfacePci: Self = Self(5);
    pub const NdisInterfacePcMcia: Self = Self(8);
    pub const NdisInterfaceCBus: Self = Self(9);
    pub const NdisInterfaceMPIBus: Self = Self(10);
    pub const NdisInterfaceMPSABus: Self = Self(11);
    pub const NdisInterfaceProcessorInternal: Self = Self(12);
    pub const NdisInterfaceInternalPowerBus: Self = Self(13);
    pub const NdisInterfacePNPISABus: Self = Self(14);
    pub const NdisInterfacePNPBus: Self = Self(15);
    pub const NdisInterfaceUSB: Self = Self(16);
    pub const NdisInterfaceIrda: Self = Self(17);
    pub const NdisInterface1394: Self = Self(18);
    pub const NdisMaximumInterfaceType: Self = Self(19);
}

/// Whether a link is up.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NET_IF_MEDIA_CONNECT_STATE(pub i32);

impl NET_IF_MEDIA_CONNECT_STATE {
    pub const MediaConnectStateUnknown: Self = Self(0);
    pub const MediaConnectStateConnected: Self = Self(1);
    pub const MediaConnectStateDisconnected: Self = Self(2);
}

/// Duplex of a link.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NET_IF_MEDIA_DUPLEX_STATE(pub i32);

impl NET_IF_MEDIA_DUPLEX_STATE {
    pub const MediaDuplexStateUnknown: Self = Self(0);
    pub const MediaDuplexStateHalf: Self = Self(1);
    pub const MediaDuplexStateFull: Self = Self(2);
}

/// How many peers a link has.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NET_IF_ACCESS_TYPE(pub i32);

impl NET_IF_ACCESS_TYPE {
    pub const NET_IF_ACCESS_LOOPBACK: Self = Self(1);
    pub const NET_IF_ACCESS_BROADCAST: Self = Self(2);
    pub const NET_IF_ACCESS_POINT_TO_POINT: Self = Self(3);
    pub const NET_IF_ACCESS_POINT_TO_MULTI_POINT: Self = Self(4);
    pub const NET_IF_ACCESS_MAXIMUM: Self = Self(5);
}

/// Which ways a link carries data.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NET_IF_DIRECTION_TYPE(pub i32);

impl NET_IF_DIRECTION_TYPE {
    pub const NET_IF_DIRECTION_SENDRECEIVE: Self = Self(0);
    pub const NET_IF_DIRECTION_SENDONLY: Self = Self(1);
    pub const NET_IF_DIRECTION_RECEIVEONLY: Self = Self(2);
    pub const NET_IF_DIRECTION_MAXIMUM: Self = Self(3);
}

/// How a link comes up.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NET_IF_CONNECTION_TYPE(pub i32);

impl NET_IF_CONNECTION_TYPE {
    pub const NET_IF_CONNECTION_DEDICATED: Self = Self(1);
    pub const NET_IF_CONNECTION_PASSIVE: Self = Self(2);
    pub const NET_IF_CONNECTION_DEMAND: Self = Self(3);
    pub const NET_IF_CONNECTION_MAXIMUM: Self = Self(4);
}

/// State of the hardware.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NDIS_HARDWARE_STATUS(pub i32);

impl NDIS_HARDWARE_STATUS {
    pub const NdisHardwareStatusReady: Self = Self(0);
    pub const NdisHardwareStatusInitializing: Self = Self(1);
    pub const NdisHardwareStatusReset: Self = Self(2);
    pub const NdisHardwareStatusClosing: Self = Self(3);
    pub const NdisHardwareStatusNotReady: Self = Self(4);
}

/// First member of NDIS structures: type, revision, and size in bytes of that revision.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_OBJECT_HEADER {
    pub Type: u8,
    pub Revision: u8,
    pub Size: u16,
}

/// An object in whose name a driver without handle allocates.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_GENERIC_OBJECT {
    pub Header: NDIS_OBJECT_HEADER,
    pub Caller: *mut c_void,
    pub CallersCaller: *mut c_void,
    pub DriverObject: *mut DRIVER_OBJECT,
}

pub const NDIS_OBJECT_TYPE_DRIVER_WRAPPER_REVISION_1: u8 = 1;
pub const NDIS_OBJECT_TYPE_PCI_DEVICE_CUSTOM_PROPERTIES_REVISION_1: u8 = 1;
pub const NDIS_OBJECT_TYPE_PCI_DEVICE_CUSTOM_PROPERTIES_REVISION_2: u8 = 2;

pub const NDIS_OBJECT_TYPE_DEFAULT: u8 = 0x80;
pub const NDIS_OBJECT_TYPE_MINIPORT_INIT_PARAMETERS: u8 = 0x81;
pub const NDIS_OBJECT_TYPE_SG_DMA_DESCRIPTION: u8 = 0x83;
pub const NDIS_OBJECT_TYPE_MINIPORT_INTERRUPT: u8 = 0x84;
pub const NDIS_OBJECT_TYPE_DEVICE_OBJECT_ATTRIBUTES: u8 = 0x85;
pub const NDIS_OBJECT_TYPE_BIND_PARAMETERS: u8 = 0x86;
pub const NDIS_OBJECT_TYPE_OPEN_PARAMETERS: u8 = 0x87;
pub const NDIS_OBJECT_TYPE_RSS_CAPABILITIES: u8 = 0x88;
pub const NDIS_OBJECT_TYPE_RSS_PARAMETERS: u8 = 0x89;
pub const NDIS_OBJECT_TYPE_MINIPORT_DRIVER_CHARACTERISTICS: u8 = 0x8a;
pub const NDIS_OBJECT_TYPE_FILTER_DRIVER_CHARACTERISTICS: u8 = 0x8b;
pub const NDIS_OBJECT_TYPE_FILTER_PARTIAL_CHARACTERISTICS: u8 = 0x8c;
pub const NDIS_OBJECT_TYPE_FILTER_ATTRIBUTES: u8 = 0x8d;
pub const NDIS_OBJECT_TYPE_CLIENT_CHIMNEY_OFFLOAD_GENERIC_CHARACTERISTICS: u8 = 0x8e;
pub const NDIS_OBJECT_TYPE_PROVIDER_CHIMNEY_OFFLOAD_GENERIC_CHARACTERISTICS: u8 = 0x8f;
pub const NDIS_OBJECT_TYPE_CO_PROTOCOL_CHARACTERISTICS: u8 = 0x90;
pub const NDIS_OBJECT_TYPE_CO_MINIPORT_CHARACTERISTICS: u8 = 0x91;
pub const NDIS_OBJECT_TYPE_MINIPORT_PNP_CHARACTERISTICS: u8 = 0x92;
pub const NDIS_OBJECT_TYPE_CLIENT_CHIMNEY_OFFLOAD_CHARACTERISTICS: u8 = 0x93;
pub const NDIS_OBJECT_TYPE_PROVIDER_CHIMNEY_OFFLOAD_CHARACTERISTICS: u8 = 0x94;
pub const NDIS_OBJECT_TYPE_PROTOCOL_DRIVER_CHARACTERISTICS: u8 = 0x95;
pub const NDIS_OBJECT_TYPE_OID_REQUEST: u8 = 0x96;
pub const NDIS_OBJECT_TYPE_REQUEST_EX: u8 = 0x96;
pub const NDIS_OBJECT_TYPE_TIMER_CHARACTERISTICS: u8 = 0x97;
pub const NDIS_OBJECT_TYPE_STATUS_INDICATION: u8 = 0x98;
pub const NDIS_OBJECT_TYPE_FILTER_ATTACH_PARAMETERS: u8 = 0x99;
pub const NDIS_OBJECT_TYPE_FILTER_PAUSE_PARAMETERS: u8 = 0x9a;
pub const NDIS_OBJECT_TYPE_FILTER_RESTART_PARAMETERS: u8 = 0x9b;
pub const NDIS_OBJECT_TYPE_PORT_CHARACTERISTICS: u8 = 0x9c;
pub const NDIS_OBJECT_TYPE_PORT_STATE: u8 = 0x9d;
pub const NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES: u8 = 0x9e;
pub const NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES: u8 = 0x9f;
pub const NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_OFFLOAD_ATTRIBUTES: u8 = 0xa0;
pub const NDIS_OBJECT_TYPE_RESTART_GENERAL_ATTRIBUTES: u8 = 0xa2;
pub const NDIS_OBJECT_TYPE_PROTOCOL_RESTART_PARAMETERS: u8 = 0xa3;
pub const NDIS_OBJECT_TYPE_MINIPORT_ADD_DEVICE_REGISTRATION_ATTRIBUTES: u8 = 0xa4;
pub const NDIS_OBJECT_TYPE_CO_CALL_MANAGER_OPTIONAL_HANDLERS: u8 = 0xa5;
pub const NDIS_OBJECT_TYPE_CO_CLIENT_OPTIONAL_HANDLERS: u8 = 0xa6;
pub const NDIS_OBJECT_TYPE_OFFLOAD: u8 = 0xa7;
pub const NDIS_OBJECT_TYPE_OFFLOAD_ENCAPSULATION: u8 = 0xa8;
pub const NDIS_OBJECT_TYPE_CONFIGURATION_OBJECT: u8 = 0xa9;
pub const NDIS_OBJECT_TYPE_DRIVER_WRAPPER_OBJECT: u8 = 0xaa;
pub const NDIS_OBJECT_TYPE_HD_SPLIT_ATTRIBUTES: u8 = 0xab;
pub const NDIS_OBJECT_TYPE_NSI_NETWORK_RW_STRUCT: u8 = 0xac;
pub const NDIS_OBJECT_TYPE_NSI_COMPARTMENT_RW_STRUCT: u8 = 0xad;
pub const NDIS_OBJECT_TYPE_NSI_INTERFACE_PERSIST_RW_STRUCT: u8 = 0xae;
pub const NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_HARDWARE_ASSIST_ATTRIBUTES: u8 = 0xaf;
pub const NDIS_OBJECT_TYPE_SHARED_MEMORY_PROVIDER_CHARACTERISTICS: u8 = 0xb0;
pub const NDIS_OBJECT_TYPE_RSS_PROCESSOR_INFO: u8 = 0xb1;
pub const NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_NDK_ATTRIBUTES: u8 = 0xb3;
pub const NDIS_OBJECT_TYPE_MINIPORT_SS_CHARACTERISTICS: u8 = 0xb4;
pub const NDIS_OBJECT_TYPE_QOS_CAPABILITIES: u8 = 0xb5;
pub const NDIS_OBJECT_TYPE_QOS_PARAMETERS: u8 = 0xb6;
pub const NDIS_OBJECT_TYPE_QOS_CLASSIFICATION_ELEMENT: u8 = 0xb7;
pub const NDIS_OBJECT_TYPE_SWITCH_OPTIONAL_HANDLERS: u8 = 0xb8;
pub const NDIS_OBJECT_TYPE_PD_TRANSMIT_QUEUE: u8 = 0xbe;
pub const NDIS_OBJECT_TYPE_PD_RECEIVE_QUEUE: u8 = 0xbf;
pub const NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_PACKET_DIRECT_ATTRIBUTES: u8 = 0xc5;
pub const NDIS_OBJECT_TYPE_MINIPORT_DEVICE_POWER_NOTIFICATION: u8 = 0xc6;
pub const NDIS_OBJECT_TYPE_RSS_PARAMETERS_V2: u8 = 0xc8;
pub const NDIS_OBJECT_TYPE_RSS_SET_INDIRECTION_ENTRIES: u8 = 0xc9;

pub const IF_TYPE_OTHER: u32 = 1;
pub const IF_TYPE_ETHERNET_CSMACD: u32 = 6;
pub const IF_TYPE_SOFTWARE_LOOPBACK: u32 = 0x18;

pub const NDIS_RUNTIME_VERSION_60: u32 = 0x60000;
pub const NDIS_RUNTIME_VERSION_61: u32 = 0x60001;
pub const NDIS_RUNTIME_VERSION_620: u32 = 0x60014;
pub const NDIS_RUNTIME_VERSION_630: u32 = 0x6001e;
pub const NDIS_RUNTIME_VERSION_640: u32 = 0x60028;
pub const NDIS_RUNTIME_VERSION_650: u32 = 0x60032;
pub const NDIS_RUNTIME_VERSION_651: u32 = 0x60033;
pub const NDIS_RUNTIME_VERSION_660: u32 = 0x6003c;
pub const NDIS_RUNTIME_VERSION_670: u32 = 0x60046;
pub const NDIS_RUNTIME_VERSION_680: u32 = 0x60050;

pub const ETHERNET_LENGTH_OF_ADDRESS: u32 = 6;

/// A handle of NDIS, or a context handed through it.
pub type NDIS_HANDLE = *mut c_void;
/// Status of an NDIS call.
pub type NDIS_STATUS = i32;
/// An object identifier.
pub type NDIS_OID = u32;
/// A port of an adapter; 0 is the default port.
pub type NDIS_PORT_NUMBER = u32;
/// An address on the memory bus, or a logical address of a device.
pub type NDIS_PHYSICAL_ADDRESS = LARGE_INTEGER;
/// A counted UTF-16 string.
pub type NDIS_STRING = UNICODE_STRING;
/// Assigned resources.
pub type NDIS_RESOURCE_LIST = CM_PARTIAL_RESOURCE_LIST;
/// A NIC switch; 0 is the default switch.
pub type NDIS_NIC_SWITCH_ID = u32;
/// A virtual port of a NIC switch; 0 is the default one.
pub type NDIS_NIC_SWITCH_VPORT_ID = u32;
/// A receive queue; 0 is the default one.
pub type NDIS_RECEIVE_QUEUE_ID = u32;
/// `NDIS_RSS_CAPS_*`.
pub type NDIS_RSS_CAPS_FLAGS = u32;
/// Whether a link is up.
pub type NDIS_MEDIA_CONNECT_STATE = NET_IF_MEDIA_CONNECT_STATE;
/// Duplex of a link.
pub type NDIS_MEDIA_DUPLEX_STATE = NET_IF_MEDIA_DUPLEX_STATE;
/// IANA interface type.
pub type NET_IFTYPE = u16;
