// SPDX-License-Identifier: MIT OR Apache-2.0

//! The interface between NDIS and an NDK provider (`ndisndk.h`, NDK parts of `ntddndis.h`).

use super::{NDK_ADAPTER, NDK_ADAPTER_INFO, NDK_VERSION};
use crate::ndis::{
    NDIS_HANDLE, NDIS_NIC_SWITCH_ID, NDIS_NIC_SWITCH_VPORT_ID, NDIS_OBJECT_HEADER, NDIS_OID, NDIS_STATUS,
};
use crate::netio::SOCKADDR_INET;
use crate::nt::{BOOLEAN, GUID};

/// The two handlers that make a miniport an NDK provider.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_NDK_PROVIDER_CHARACTERISTICS {
    pub Header: NDIS_OBJECT_HEADER,
    pub Flags: u32,
    pub OpenNDKAdapterHandler: Option<OPEN_NDK_ADAPTER_HANDLER>,
    pub CloseNDKAdapterHandler: Option<CLOSE_NDK_ADAPTER_HANDLER>,
}

/// The version an adapter is opened at. No header, so no revision.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_OPEN_NDK_ADAPTER_PARAMETERS {
    pub Version: NDK_VERSION,
    pub SwitchId: NDIS_NIC_SWITCH_ID,
    pub VPortId: NDIS_NIC_SWITCH_VPORT_ID,
}

/// Capabilities of an adapter, reported at initialization.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_NDK_CAPABILITIES {
    pub Header: NDIS_OBJECT_HEADER,
    pub Flags: u32,
    pub MaxQpCount: u32,
    pub MaxCqCount: u32,
    pub MaxMrCount: u32,
    pub MaxPdCount: u32,
    pub MaxInboundReadLimit: u32,
    pub MaxOutboundReadLimit: u32,
    pub MaxMwCount: u32,
    pub MaxSrqCount: u32,
    pub MissingCounterMask: u64,
    pub NdkInfo: *mut NDK_ADAPTER_INFO,
}

/// Counters of RDMA activity; a bit in `MissingCounterMask` is a counter's offset divided by 8.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_NDK_PERFORMANCE_COUNTERS {
    pub Connect: u64,
    pub Accept: u64,
    pub ConnectFailure: u64,
    pub ConnectionError: u64,
    pub ActiveConnection: u64,
    pub Reserved01: u64,
    pub Reserved02: u64,
    pub Reserved03: u64,
    pub Reserved04: u64,
    pub Reserved05: u64,
    pub Reserved06: u64,
    pub Reserved07: u64,
    pub Reserved08: u64,
    pub Reserved09: u64,
    pub Reserved10: u64,
    pub Reserved11: u64,
    pub Reserved12: u64,
    pub Reserved13: u64,
    pub Reserved14: u64,
    pub Reserved15: u64,
    pub Reserved16: u64,
    pub Reserved17: u64,
    pub Reserved18: u64,
    pub Reserved19: u64,
    pub Reserved20: u64,
    pub CQError: u64,
    pub RDMAInOctets: u64,
    pub RDMAOutOctets: u64,
    pub RDMAInFrames: u64,
    pub RDMAOutFrames: u64,
}

/// Answer to `OID_NDK_STATISTICS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_NDK_STATISTICS_INFO {
    pub Header: NDIS_OBJECT_HEADER,
    pub Flags: u32,
    pub CounterSet: NDIS_NDK_PERFORMANCE_COUNTERS,
}

/// A connection.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_NDK_CONNECTION_ENTRY {
    pub Local: SOCKADDR_INET,
    pub Remote: SOCKADDR_INET,
    pub UserModeOwner: BOOLEAN,
    pub OwnerPid: u32,
}

/// Answer to `OID_NDK_CONNECTIONS`; variable length, `Connections` is its first entry.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_NDK_CONNECTIONS {
    pub Header: NDIS_OBJECT_HEADER,
    pub Flags: u32,
    pub Count: u32,
    pub NDConnectionsMappedtoTCPConnections: BOOLEAN,
    pub Connections: [NDIS_NDK_CONNECTION_ENTRY; 1],
}

/// A listener or shared endpoint.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_NDK_LOCAL_ENDPOINT_ENTRY {
    pub Local: SOCKADDR_INET,
    pub UserModeOwner: BOOLEAN,
    pub Listener: BOOLEAN,
    pub OwnerPid: u32,
}

/// Answer to `OID_NDK_LOCAL_ENDPOINTS`; variable length, `LocalEndpoints` is its first entry.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_NDK_LOCAL_ENDPOINTS {
    pub Header: NDIS_OBJECT_HEADER,
    pub Flags: u32,
    pub Count: u32,
    pub NDLocalEndpointsMappedtoTCPLocalEndpoints: BOOLEAN,
    pub LocalEndpoints: [NDIS_NDK_LOCAL_ENDPOINT_ENTRY; 1],
}

/// `NDK_ADAPTER_INFO` in the form WMI wants.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDK_WMI_ADAPTER_INFO {
    pub Version: NDK_VERSION,
    pub VendorId: u32,
    pub DeviceId: u32,
    pub MaxRegistrationSize: u64,
    pub MaxWindowSize: u64,
    pub FRMRPageCount: u32,
    pub MaxInitiatorRequestSge: u32,
    pub MaxReceiveRequestSge: u32,
    pub MaxReadRequestSge: u32,
    pub MaxTransferLength: u32,
    pub MaxInlineDataSize: u32,
    pub MaxInboundReadLimit: u32,
    pub MaxOutboundReadLimit: u32,
    pub MaxReceiveQueueDepth: u32,
    pub MaxInitiatorQueueDepth: u32,
    pub MaxSrqDepth: u32,
    pub MaxCqDepth: u32,
    pub LargeRequestThreshold: u32,
    pub MaxCallerData: u32,
    pub MaxCalleeData: u32,
    pub AdapterFlags: u32,
}

/// `NDIS_NDK_CAPABILITIES` in the form WMI wants.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_WMI_NDK_CAPABILITIES {
    pub MaxQpCount: u32,
    pub MaxCqCount: u32,
    pub MaxMrCount: u32,
    pub MaxPdCount: u32,
    pub MaxInboundReadLimit: u32,
    pub MaxOutboundReadLimit: u32,
    pub MaxMwCount: u32,
    pub MaxSrqCount: u32,
    pub MissingCounterMask: u64,
    pub NdkInfo: NDK_WMI_ADAPTER_INFO,
}

/// Opens the adapter for a consumer. Never pends.
///
/// IRQL: `== PASSIVE_LEVEL`.
pub type OPEN_NDK_ADAPTER_HANDLER = unsafe extern "efiapi" fn(
    MiniportAdapterContext: NDIS_HANDLE,
    Parameters: *mut NDIS_OPEN_NDK_ADAPTER_PARAMETERS,
    ppNdkAdapter: *mut *mut NDK_ADAPTER,
) -> NDIS_STATUS;

/// Closes an opened adapter; returns when every object below it is closed.
///
/// IRQL: `== PASSIVE_LEVEL`.
pub type CLOSE_NDK_ADAPTER_HANDLER =
    unsafe extern "efiapi" fn(MiniportAdapterContext: NDIS_HANDLE, pNdkAdapter: *mut NDK_ADAPTER);

pub const NDIS_NDK_CAPABILITIES_REVISION_1: u8 = 1;
pub const NDIS_SIZEOF_NDK_CAPABILITIES_REVISION_1: u16 = 0x38;
pub const NDIS_NDK_CONNECTIONS_REVISION_1: u8 = 1;
pub const NDIS_NDK_LOCAL_ENDPOINTS_REVISION_1: u8 = 1;
pub const NDIS_NDK_PROVIDER_CHARACTERISTICS_REVISION_1: u8 = 1;
pub const NDIS_SIZEOF_NDK_PROVIDER_CHARACTERISTICS_REVISION_1: u16 = 0x18;
pub const NDIS_NDK_STATISTICS_INFO_REVISION_1: u8 = 1;
pub const NDIS_SIZEOF_NDK_STATISTICS_INFO_REVISION_1: u16 = 0xf8;

/// WMI class of `NDIS_WMI_NDK_CAPABILITIES`.
pub const GUID_NDIS_NDK_CAPABILITIES: GUID = GUID::from_u128(0x7969ba4d_dd80_4bc7_b3e6_68043997e519);
/// WMI class of the state that `OID_NDK_SET_STATE` sets.
pub const GUID_NDIS_NDK_STATE: GUID = GUID::from_u128(0x530c69c9_2f51_49de_a1af_088d54ffa474);

pub const OID_NDK_SET_STATE: NDIS_OID = 0xFC040201;
pub const OID_NDK_STATISTICS: NDIS_OID = 0xFC040202;
pub const OID_NDK_CONNECTIONS: NDIS_OID = 0xFC040203;
pub const OID_NDK_LOCAL_ENDPOINTS: NDIS_OID = 0xFC040204;

pub const NETWORK_DIRECT_GLOBAL_FLAGS_ALLOW_REMOTE_IP_SUBNET: u32 = 1;
pub const NDIS_OBJECT_TYPE_NDK_PROVIDER_CHARACTERISTICS: u8 = 0xb2;
