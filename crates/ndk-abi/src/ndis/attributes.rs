// SPDX-License-Identifier: MIT OR Apache-2.0

//! Attributes of an adapter, which a miniport sets with `NdisMSetMiniportAttributes`.

use core::ffi::c_void;

use super::{
    NDIS_HANDLE, NDIS_INTERFACE_TYPE, NDIS_MEDIA_CONNECT_STATE, NDIS_MEDIA_DUPLEX_STATE, NDIS_MEDIUM,
    NDIS_OBJECT_HEADER, NDIS_OFFLOAD, NDIS_OID, NDIS_PHYSICAL_MEDIUM, NDIS_RSS_CAPS_FLAGS, NDIS_STATUS,
    NET_IF_ACCESS_TYPE, NET_IF_CONNECTION_TYPE, NET_IF_DIRECTION_TYPE, NET_IFTYPE,
};
use crate::ndk::NDIS_NDK_CAPABILITIES;
use crate::nt::BOOLEAN;

/// A device power state, as NDIS counts them.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NDIS_DEVICE_POWER_STATE(pub i32);

impl NDIS_DEVICE_POWER_STATE {
    pub const NdisDeviceStateUnspecified: Self = Self(0);
    pub const NdisDeviceStateD0: Self = Self(1);
    pub const NdisDeviceStateD1: Self = Self(2);
    pub const NdisDeviceStateD2: Self = Self(3);
    pub const NdisDeviceStateD3: Self = Self(4);
    pub const NdisDeviceStateMaximum: Self = Self(5);
}

/// Whatever `NdisMSetMiniportAttributes` takes; `Header.Type` says which.
#[repr(C)]
#[derive(Clone, Copy)]
pub union NDIS_MINIPORT_ADAPTER_ATTRIBUTES {
    pub Header: NDIS_OBJECT_HEADER,
    pub AddDeviceRegistrationAttributes: NDIS_MINIPORT_ADD_DEVICE_REGISTRATION_ATTRIBUTES,
    pub RegistrationAttributes: NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES,
    pub GeneralAttributes: NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES,
    pub OffloadAttributes: NDIS_MINIPORT_ADAPTER_OFFLOAD_ATTRIBUTES,
    pub HardwareAssistAttributes: NDIS_MINIPORT_ADAPTER_HARDWARE_ASSIST_ATTRIBUTES,
    pub NDKAttributes: NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES,
}

/// Context of `MiniportAddDevice`, for drivers that have one.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_MINIPORT_ADD_DEVICE_REGISTRATION_ATTRIBUTES {
    pub Header: NDIS_OBJECT_HEADER,
    pub MiniportAddDeviceContext: NDIS_HANDLE,
    pub Flags: u32,
}

/// The adapter's context and its kind of bus; set first.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES {
    pub Header: NDIS_OBJECT_HEADER,
    pub MiniportAdapterContext: NDIS_HANDLE,
    pub AttributeFlags: u32,
    pub CheckForHangTimeInSeconds: u32,
    pub InterfaceType: NDIS_INTERFACE_TYPE,
}

/// Medium, sizes, addresses, supported OIDs. Speeds in bits per second, sizes in bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES {
    pub Header: NDIS_OBJECT_HEADER,
    pub Flags: u32,
    pub MediaType: NDIS_MEDIUM,
    pub PhysicalMediumType: NDIS_PHYSICAL_MEDIUM,
    pub MtuSize: u32,
    pub MaxXmitLinkSpeed: u64,
    pub XmitLinkSpeed: u64,
    pub MaxRcvLinkSpeed: u64,
    pub RcvLinkSpeed: u64,
    pub MediaConnectState: NDIS_MEDIA_CONNECT_STATE,
    pub MediaDuplexState: NDIS_MEDIA_DUPLEX_STATE,
    pub LookaheadSize: u32,
    pub PowerManagementCapabilities: *mut NDIS_PNP_CAPABILITIES,
    pub MacOptions: u32,
    pub SupportedPacketFilters: u32,
    pub MaxMulticastListSize: u32,
    pub MacAddressLength: u16,
    pub PermanentMacAddress: [u8; 32],
    pub CurrentMacAddress: [u8; 32],
    pub RecvScaleCapabilities: *mut NDIS_RECEIVE_SCALE_CAPABILITIES,
    pub AccessType: NET_IF_ACCESS_TYPE,
    pub DirectionType: NET_IF_DIRECTION_TYPE,
    pub ConnectionType: NET_IF_CONNECTION_TYPE,
    pub IfType: NET_IFTYPE,
    pub IfConnectorPresent: BOOLEAN,
    pub SupportedStatistics: u32,
    pub SupportedPauseFunctions: u32,
    pub DataBackFillSize: u32,
    pub ContextBackFillSize: u32,
    pub SupportedOidList: *mut NDIS_OID,
    pub SupportedOidListLength: u32,
    pub AutoNegotiationFlags: u32,
    pub PowerManagementCapabilitiesEx: *mut NDIS_PM_CAPABILITIES,
}

/// Task offloads: in force by default, and possible.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_MINIPORT_ADAPTER_OFFLOAD_ATTRIBUTES {
    pub Header: NDIS_OBJECT_HEADER,
    pub DefaultOffloadConfiguration: *mut NDIS_OFFLOAD,
    pub HardwareOffloadCapabilities: *mut NDIS_OFFLOAD,
    pub DefaultTcpConnectionOffloadConfiguration: *mut c_void,
    pub TcpConnectionOffloadHardwareCapabilities: *mut c_void,
}

/// Header-data split, receive filters, NIC switch, SR-IOV.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_MINIPORT_ADAPTER_HARDWARE_ASSIST_ATTRIBUTES {
    pub Header: NDIS_OBJECT_HEADER,
    pub HDSplitAttributes: *mut c_void,
    pub HardwareReceiveFilterCapabilities: *mut c_void,
    pub CurrentReceiveFilterCapabilities: *mut c_void,
    pub HardwareNicSwitchCapabilities: *mut c_void,
    pub CurrentNicSwitchCapabilities: *mut c_void,
    pub HardwareSriovCapabilities: *mut c_void,
    pub CurrentSriovCapabilities: *mut c_void,
    pub HardwareQosCapabilities: *mut c_void,
    pub CurrentQosCapabilities: *mut c_void,
    pub HardwareGftOffloadCapabilities: *mut c_void,
    pub CurrentGftOffloadCapabilities: *mut c_void,
}

/// NDK: whether it is enabled now, and what the adapter can do.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES {
    pub Header: NDIS_OBJECT_HEADER,
    pub Enabled: BOOLEAN,
    pub NdkCapabilities: *mut NDIS_NDK_CAPABILITIES,
}

/// Wake-up abilities, in the form of NDIS 6.0.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_PNP_CAPABILITIES {
    pub Flags: u32,
    pub WakeUpCapabilities: NDIS_PM_WAKE_UP_CAPABILITIES,
}

/// Deepest power states from which an adapter can wake the system.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_PM_WAKE_UP_CAPABILITIES {
    pub MinMagicPacketWakeUp: NDIS_DEVICE_POWER_STATE,
    pub MinPatternWakeUp: NDIS_DEVICE_POWER_STATE,
    pub MinLinkChangeWakeUp: NDIS_DEVICE_POWER_STATE,
}

/// Power management abilities.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_PM_CAPABILITIES {
    pub Header: NDIS_OBJECT_HEADER,
    pub Flags: u32,
    pub SupportedWoLPacketPatterns: u32,
    pub NumTotalWoLPatterns: u32,
    pub MaxWoLPatternSize: u32,
    pub MaxWoLPatternOffset: u32,
    pub MaxWoLPacketSaveBuffer: u32,
    pub SupportedProtocolOffloads: u32,
    pub NumArpOffloadIPv4Addresses: u32,
    pub NumNSOffloadIPv6Addresses: u32,
    pub MinMagicPacketWakeUp: NDIS_DEVICE_POWER_STATE,
    pub MinPatternWakeUp: NDIS_DEVICE_POWER_STATE,
    pub MinLinkChangeWakeUp: NDIS_DEVICE_POWER_STATE,
    pub SupportedWakeUpEvents: u32,
    pub MediaSpecificWakeUpEvents: u32,
}

/// Power management settings.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_PM_PARAMETERS {
    pub Header: NDIS_OBJECT_HEADER,
    pub EnabledWoLPacketPatterns: u32,
    pub EnabledProtocolOffloads: u32,
    pub WakeUpFlags: u32,
    pub MediaSpecificWakeUpEvents: u32,
}

/// Receive side scaling abilities.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_RECEIVE_SCALE_CAPABILITIES {
    pub Header: NDIS_OBJECT_HEADER,
    pub CapabilitiesFlags: NDIS_RSS_CAPS_FLAGS,
    pub NumberOfInterruptMessages: u32,
    pub NumberOfReceiveQueues: u32,
    pub NumberOfIndirectionTableEntries: u16,
}

pub const NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES_REVISION_1: u8 = 1;
pub const NDIS_SIZEOF_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES_REVISION_1: u16 = 0xd8;
pub const NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES_REVISION_2: u8 = 2;
pub const NDIS_SIZEOF_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES_REVISION_2: u16 = 0xe0;
pub const NDIS_MINIPORT_ADAPTER_HARDWARE_ASSIST_ATTRIBUTES_REVISION_1: u8 = 1;
pub const NDIS_SIZEOF_MINIPORT_ADAPTER_HARDWARE_ASSIST_ATTRIBUTES_REVISION_1: u16 = 0x10;
pub const NDIS_MINIPORT_ADAPTER_HARDWARE_ASSIST_ATTRIBUTES_REVISION_2: u8 = 2;
pub const NDIS_SIZEOF_MINIPORT_ADAPTER_HARDWARE_ASSIST_ATTRIBUTES_REVISION_2: u16 = 0x30;
pub const NDIS_MINIPORT_ADAPTER_HARDWARE_ASSIST_ATTRIBUTES_REVISION_3: u8 = 3;
pub const NDIS_SIZEOF_MINIPORT_ADAPTER_HARDWARE_ASSIST_ATTRIBUTES_REVISION_3: u16 = 0x50;
pub const NDIS_MINIPORT_ADAPTER_HARDWARE_ASSIST_ATTRIBUTES_REVISION_4: u8 = 4;
pub const NDIS_SIZEOF_MINIPORT_ADAPTER_HARDWARE_ASSIST_ATTRIBUTES_REVISION_4: u16 = 0x60;
pub const NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES_REVISION_1: u8 = 1;
pub const NDIS_SIZEOF_MINIPORT_ADAPTER_NDK_ATTRIBUTES_REVISION_1: u16 = 0x10;
pub const NDIS_MINIPORT_ADAPTER_OFFLOAD_ATTRIBUTES_REVISION_1: u8 = 1;
pub const NDIS_SIZEOF_MINIPORT_ADAPTER_OFFLOAD_ATTRIBUTES_REVISION_1: u16 = 0x28;
pub const NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES_REVISION_1: u8 = 1;
pub const NDIS_SIZEOF_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES_REVISION_1: u16 = 0x1c;
pub const NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES_REVISION_2: u8 = 2;
pub const NDIS_SIZEOF_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES_REVISION_2: u16 = 0x1c;
pub const NDIS_MINIPORT_ADD_DEVICE_REGISTRATION_ATTRIBUTES_REVISION_1: u8 = 1;
pub const NDIS_SIZEOF_MINIPORT_ADD_DEVICE_REGISTRATION_ATTRIBUTES_REVISION_1: u16 = 0x14;
pub const NDIS_PM_CAPABILITIES_REVISION_1: u8 = 1;
pub const NDIS_SIZEOF_NDIS_PM_CAPABILITIES_REVISION_1: u16 = 0x34;
pub const NDIS_PM_CAPABILITIES_REVISION_2: u8 = 2;
pub const NDIS_SIZEOF_NDIS_PM_CAPABILITIES_REVISION_2: u16 = 0x3c;
pub const NDIS_PM_PARAMETERS_REVISION_1: u8 = 1;
pub const NDIS_SIZEOF_NDIS_PM_PARAMETERS_REVISION_1: u16 = 0x10;
pub const NDIS_PM_PARAMETERS_REVISION_2: u8 = 2;
pub const NDIS_SIZEOF_NDIS_PM_PARAMETERS_REVISION_2: u16 = 0x14;
pub const NDIS_RECEIVE_SCALE_CAPABILITIES_REVISION_1: u8 = 1;
pub const NDIS_SIZEOF_RECEIVE_SCALE_CAPABILITIES_REVISION_1: u16 = 0x10;
pub const NDIS_RECEIVE_SCALE_CAPABILITIES_REVISION_2: u8 = 2;
pub const NDIS_SIZEOF_RECEIVE_SCALE_CAPABILITIES_REVISION_2: u16 = 0x12;
pub const NDIS_RECEIVE_SCALE_CAPABILITIES_REVISION_3: u8 = 3;
pub const NDIS_SIZEOF_RECEIVE_SCALE_CAPABILITIES_REVISION_3: u16 = 0x12;

pub const NDIS_MINIPORT_ATTRIBUTES_HARDWARE_DEVICE: u32 = 1;
pub const NDIS_MINIPORT_ATTRIBUTES_NDIS_WDM: u32 = 2;
pub const NDIS_MINIPORT_ATTRIBUTES_SURPRISE_REMOVE_OK: u32 = 4;
pub const NDIS_MINIPORT_ATTRIBUTES_NOT_CO_NDIS: u32 = 8;
pub const NDIS_MINIPORT_ATTRIBUTES_DO_NOT_BIND_TO_ALL_CO: u32 = 0x10;
pub const NDIS_MINIPORT_ATTRIBUTES_NO_HALT_ON_SUSPEND: u32 = 0x20;
pub const NDIS_MINIPORT_ATTRIBUTES_BUS_MASTER: u32 = 0x40;
pub const NDIS_MINIPORT_ATTRIBUTES_CONTROLS_DEFAULT_PORT: u32 = 0x80;
pub const NDIS_MINIPORT_ATTRIBUTES_NO_PAUSE_ON_SUSPEND: u32 = 0x100;
pub const NDIS_MINIPORT_ATTRIBUTES_NO_OID_INTERCEPT_ON_NONDEFAULT_PORTS: u32 = 0x200;
pub const NDIS_MINIPORT_ATTRIBUTES_REGISTER_BUGCHECK_CALLBACK: u32 = 0x400;

pub const NDIS_MAC_OPTION_COPY_LOOKAHEAD_DATA: u32 = 1;
pub const NDIS_MAC_OPTION_RECEIVE_SERIALIZED: u32 = 2;
pub const NDIS_MAC_OPTION_TRANSFERS_NOT_PEND: u32 = 4;
pub const NDIS_MAC_OPTION_NO_LOOPBACK: u32 = 8;
pub const NDIS_MAC_OPTION_FULL_DUPLEX: u32 = 0x10;
pub const NDIS_MAC_OPTION_EOTX_INDICATION: u32 = 0x20;
pub const NDIS_MAC_OPTION_8021P_PRIORITY: u32 = 0x40;
pub const NDIS_MAC_OPTION_SUPPORTS_MAC_ADDRESS_OVERWRITE: u32 = 0x80;
pub const NDIS_MAC_OPTION_RECEIVE_AT_DPC: u32 = 0x100;
pub const NDIS_MAC_OPTION_8021Q_VLAN: u32 = 0x200;
pub const NDIS_MAC_OPTION_RESERVED: u32 = 0x80000000;

pub const NDIS_STATISTICS_BROADCAST_BYTES_XMIT_SUPPORTED: u32 = 0x200;
pub const NDIS_STATISTICS_BROADCAST_FRAMES_XMIT_SUPPORTED: u32 = 0x400;
pub const NDIS_STATISTICS_BROADCAST_BYTES_RCV_SUPPORTED: u32 = 0x8000;
pub const NDIS_STATISTICS_BROADCAST_FRAMES_RCV_SUPPORTED: u32 = 0x10000;

pub const NDIS_STATISTICS_BYTES_RCV_SUPPORTED: u32 = 0x80000;
pub const NDIS_STATISTICS_BYTES_XMIT_SUPPORTED: u32 = 0x100000;

pub const NDIS_STATISTICS_DIRECTED_BYTES_XMIT_SUPPORTED: u32 = 0x20;
pub const NDIS_STATISTICS_DIRECTED_FRAMES_XMIT_SUPPORTED: u32 = 0x40;
pub const NDIS_STATISTICS_DIRECTED_BYTES_RCV_SUPPORTED: u32 = 0x800;
pub const NDIS_STATISTICS_DIRECTED_FRAMES_RCV_SUPPORTED: u32 = 0x1000;

pub const NDIS_STATISTICS_MULTICAST_BYTES_XMIT_SUPPORTED: u32 = 0x80;
pub const NDIS_STATISTICS_MULTICAST_FRAMES_XMIT_SUPPORTED: u32 = 0x100;
pub const NDIS_STATISTICS_MULTICAST_BYTES_RCV_SUPPORTED: u32 = 0x2000;
pub const NDIS_STATISTICS_MULTICAST_FRAMES_RCV_SUPPORTED: u32 = 0x4000;

pub const NDIS_STATISTICS_RCV_OK_SUPPORTED: u32 = 2;
pub const NDIS_STATISTICS_RCV_ERROR_SUPPORTED: u32 = 8;
pub const NDIS_STATISTICS_RCV_NO_BUFFER_SUPPORTED: u32 = 0x10;
pub const NDIS_STATISTICS_RCV_CRC_ERROR_SUPPORTED: u32 = 0x20000;
pub const NDIS_STATISTICS_RCV_DISCARDS_SUPPORTED: u32 = 0x200000;

pub const NDIS_STATISTICS_XMIT_OK_SUPPORTED: u32 = 1;
pub const NDIS_STATISTICS_XMIT_ERROR_SUPPORTED: u32 = 4;
pub const NDIS_STATISTICS_XMIT_DISCARDS_SUPPORTED: u32 = 0x8000000;

pub const NDIS_STATISTICS_GEN_STATISTICS_SUPPORTED: u32 = 0x400000;
pub const NDIS_STATISTICS_TRANSMIT_QUEUE_LENGTH_SUPPORTED: u32 = 0x40000;

#[cfg_attr(all(windows, feature = "kernel"), link(name = "ndis"))]
unsafe extern "efiapi" {
    /// IRQL: `== PASSIVE_LEVEL`.
    pub fn NdisMSetMiniportAttributes(
        NdisMiniportHandle: NDIS_HANDLE,
        MiniportAttributes: *mut NDIS_MINIPORT_ADAPTER_ATTRIBUTES,
    ) -> NDIS_STATUS;
}
