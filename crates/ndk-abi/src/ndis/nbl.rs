// SPDX-License-Identifier: MIT OR Apache-2.0

//! NET_BUFFER_LISTs: frames between NDIS and the miniport.

use core::ffi::c_void;

use super::{NDIS_HANDLE, NDIS_OBJECT_HEADER, NDIS_PHYSICAL_ADDRESS, NDIS_PORT_NUMBER, NDIS_STATUS};
use crate::nt::{BOOLEAN, MDL, SCATTER_GATHER_LIST};

/// Slots of `NET_BUFFER_LIST::NetBufferListInfo`.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NDIS_NET_BUFFER_LIST_INFO(pub i32);

impl NDIS_NET_BUFFER_LIST_INFO {
    pub const TcpIpChecksumNetBufferListInfo: Self = Self(0);
    pub const TcpOffloadBytesTransferred: Self = Self(0);
    pub const IPsecOffloadV1NetBufferListInfo: Self = Self(1);
    pub const IPsecOffloadV2NetBufferListInfo: Self = Self(1);
    pub const TcpLargeSendNetBufferListInfo: Self = Self(2);
    pub const TcpReceiveNoPush: Self = Self(2);
    pub const ClassificationHandleNetBufferListInfo: Self = Self(3);
    pub const Ieee8021QNetBufferListInfo: Self = Self(4);
    pub const NetBufferListCancelId: Self = Self(5);
    pub const MediaSpecificInformation: Self = Self(6);
    pub const NetBufferListFrameType: Self = Self(7);
    pub const NetBufferListProtocolId: Self = Self(7);
    pub const NetBufferListHashValue: Self = Self(8);
    pub const NetBufferListHashInfo: Self = Self(9);
    pub const WfpNetBufferListInfo: Self = Self(10);
    pub const IPsecOffloadV2TunnelNetBufferListInfo: Self = Self(11);
    pub const IPsecOffloadV2HeaderNetBufferListInfo: Self = Self(12);
    pub const NetBufferListCorrelationId: Self = Self(13);
    pub const NetBufferListFilteringInfo: Self = Self(14);
    pub const MediaSpecificInformationEx: Self = Self(15);
    pub const NblOriginalInterfaceIfIndex: Self = Self(16);
    pub const NblReAuthWfpFlowContext: Self = Self(16);
    pub const TcpReceiveBytesTransferred: Self = Self(17);
    pub const NrtNameResolutionId: Self = Self(17);
    pub const SwitchForwardingReserved: Self = Self(18);
    pub const SwitchForwardingDetail: Self = Self(19);
    pub const VirtualSubnetInfo: Self = Self(20);
    pub const IMReserved: Self = Self(21);
    pub const TcpRecvSegCoalesceInfo: Self = Self(22);
    pub const RscTcpTimestampDelta: Self = Self(23);
    pub const TcpSendOffloadsSupplementalNetBufferListInfo: Self = Self(23);
    pub const GftOffloadInformation: Self = Self(24);
    pub const GftFlowEntryId: Self = Self(25);
    pub const NetBufferListInfoReserved3: Self = Self(26);
    /// Shares the slot with TCP (NDIS 6.84).
    pub const UdpRecvSegCoalesceOffloadInfo: Self = Self(17);
    /// NDIS 6.83.
    pub const UdpSegmentationOffloadInfo: Self = Self(22);
    pub const MaxNetBufferListInfo: Self = Self(27);
}

/// One frame, or a part of one, as a chain of MDLs. Allocated by NDIS only.
#[repr(C, align(16))]
#[derive(Clone, Copy)]
pub struct NET_BUFFER {
    pub Next: *mut NET_BUFFER,
    pub CurrentMdl: *mut MDL,
    pub CurrentMdlOffset: u32,
    pub Anonymous: NET_BUFFER_DATA_LENGTH,
    pub MdlChain: *mut MDL,
    pub DataOffset: u32,
    _pad: u32,
    pub ChecksumBias: u16,
    pub Reserved: u16,
    pub NdisPoolHandle: NDIS_HANDLE,
    pub NdisReserved: [*mut c_void; 2],
    pub ProtocolReserved: [*mut c_void; 6],
    pub MiniportReserved: [*mut c_void; 4],
    pub DataPhysicalAddress: NDIS_PHYSICAL_ADDRESS,
    pub ScatterGatherList: *mut SCATTER_GATHER_LIST,
}

/// Length of a frame in bytes, in either width.
#[repr(C)]
#[derive(Clone, Copy)]
pub union NET_BUFFER_DATA_LENGTH {
    pub DataLength: u32,
    pub stDataLength: usize,
}

/// A list of frames that travel together. Allocated by NDIS only, which may append members: never embed or copy it.
#[repr(C, align(16))]
pub struct NET_BUFFER_LIST {
    pub Next: *mut NET_BUFFER_LIST,
    pub FirstNetBuffer: *mut NET_BUFFER,
    pub Context: *mut NET_BUFFER_LIST_CONTEXT,
    pub ParentNetBufferList: *mut NET_BUFFER_LIST,
    pub NdisPoolHandle: NDIS_HANDLE,
    _align: u64,
    pub NdisReserved: [*mut c_void; 2],
    pub ProtocolReserved: [*mut c_void; 4],
    pub MiniportReserved: [*mut c_void; 2],
    pub Scratch: *mut c_void,
    pub SourceHandle: NDIS_HANDLE,
    pub NblFlags: u32,
    pub ChildRefCount: i32,
    pub Flags: u32,
    pub Status: NDIS_STATUS,
    pub NetBufferListInfo: [*mut c_void; 27],
}

/// Room for drivers in front of a `NET_BUFFER_LIST`.
#[repr(C, align(16))]
#[derive(Clone, Copy)]
pub struct NET_BUFFER_LIST_CONTEXT {
    pub Next: *mut NET_BUFFER_LIST_CONTEXT,
    pub Size: u16,
    pub Offset: u16,
    _pad: u32,
    pub ContextData: [u8; 0],
}

/// Parameters of a pool of `NET_BUFFER_LIST`s.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NET_BUFFER_LIST_POOL_PARAMETERS {
    pub Header: NDIS_OBJECT_HEADER,
    pub ProtocolId: u8,
    pub fAllocateNetBuffer: BOOLEAN,
    pub ContextSize: u16,
    pub PoolTag: u32,
    pub DataSize: u32,
}

/// Parameters of a pool of `NET_BUFFER`s.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NET_BUFFER_POOL_PARAMETERS {
    pub Header: NDIS_OBJECT_HEADER,
    pub PoolTag: u32,
    pub DataSize: u32,
}

/// A per-packet information slot; its bit-fields lie in the low 32 bits of `Value`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_TCP_IP_CHECKSUM_NET_BUFFER_LIST_INFO {
    pub Value: *mut c_void,
}

/// The bit-fields, as `abi-x64.toml` states them.
impl NDIS_TCP_IP_CHECKSUM_NET_BUFFER_LIST_INFO {
    /// `Transmit.IsIPv4`
    pub const TRANSMIT_IS_IPV4: u32 = 1 << 0;
    /// `Transmit.IsIPv6`
    pub const TRANSMIT_IS_IPV6: u32 = 1 << 1;
    /// `Transmit.TcpChecksum`
    pub const TRANSMIT_TCP_CHECKSUM: u32 = 1 << 2;
    /// `Transmit.UdpChecksum`
    pub const TRANSMIT_UDP_CHECKSUM: u32 = 1 << 3;
    /// `Transmit.IpHeaderChecksum`
    pub const TRANSMIT_IP_HEADER_CHECKSUM: u32 = 1 << 4;
    /// `Transmit.TcpHeaderOffset`, in bytes
    pub const TRANSMIT_TCP_HEADER_OFFSET: u32 = 0x3FF << Self::TRANSMIT_TCP_HEADER_OFFSET_SHIFT;
    pub const TRANSMIT_TCP_HEADER_OFFSET_SHIFT: u32 = 16;
    /// `Receive.TcpChecksumFailed`
    pub const RECEIVE_TCP_FAILED: u32 = 1 << 0;
    /// `Receive.UdpChecksumFailed`
    pub const RECEIVE_UDP_FAILED: u32 = 1 << 1;
    /// `Receive.IpChecksumFailed`
    pub const RECEIVE_IP_FAILED: u32 = 1 << 2;
    /// `Receive.TcpChecksumSucceeded`
    pub const RECEIVE_TCP_SUCCEEDED: u32 = 1 << 3;
    /// `Receive.UdpChecksumSucceeded`
    pub const RECEIVE_UDP_SUCCEEDED: u32 = 1 << 4;
    /// `Receive.IpChecksumSucceeded`
    pub const RECEIVE_IP_SUCCEEDED: u32 = 1 << 5;
    /// `Receive.TcpChecksumValueInvalid`: a coalesced frame was verified, and its TCP checksum not computed anew.
    pub const RECEIVE_TCP_VALUE_INVALID: u32 = 1 << 7;
    /// `Receive.IpChecksumValueInvalid`: likewise, the checksum of its IPv4 header.
    pub const RECEIVE_IP_VALUE_INVALID: u32 = 1 << 8;
}

/// A per-packet information slot; two numbers of 16 bits lie in the low 32 bits of `Value`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_RSC_NBL_INFO {
    pub Value: *mut c_void,
}

/// The numbers, as `abi-x64.toml` states them.
impl NDIS_RSC_NBL_INFO {
    /// `Info.CoalescedSegCount`
    pub const COALESCED_SEG_COUNT: u32 = 0xFFFF;
    /// `Info.DupAckCount`
    pub const DUP_ACK_COUNT: u32 = 0xFFFF << 16;
}

/// A per-packet information slot; its bit-fields lie in the low 32 bits of `Value`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_NET_BUFFER_LIST_8021Q_INFO {
    pub Value: *mut c_void,
}

/// Allocates an MDL when a frame's data start is moved back.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NET_BUFFER_ALLOCATE_MDL_HANDLER = unsafe extern "efiapi" fn(BufferSize: *mut u32) -> *mut MDL;

/// Frees an MDL when a frame's data start is moved ahead.
///
/// IRQL: `<= DISPATCH_LEVEL`.
pub type NET_BUFFER_FREE_MDL_HANDLER = unsafe extern "efiapi" fn(Mdl: *mut MDL);

pub const NET_BUFFER_LIST_POOL_PARAMETERS_REVISION_1: u8 = 1;
pub const NDIS_SIZEOF_NET_BUFFER_LIST_POOL_PARAMETERS_REVISION_1: u16 = 0x10;
pub const NET_BUFFER_POOL_PARAMETERS_REVISION_1: u8 = 1;
pub const NDIS_SIZEOF_NET_BUFFER_POOL_PARAMETERS_REVISION_1: u16 = 0xc;

pub const NDIS_NBL_FLAGS_SEND_READ_ONLY: u32 = 1;
pub const NDIS_NBL_FLAGS_RECV_READ_ONLY: u32 = 2;
pub const NDIS_NBL_FLAGS_HD_SPLIT: u32 = 0x100;
pub const NDIS_NBL_FLAGS_IS_IPV4: u32 = 0x200;
pub const NDIS_NBL_FLAGS_IS_IPV6: u32 = 0x400;
pub const NDIS_NBL_FLAGS_IS_TCP: u32 = 0x800;
pub const NDIS_NBL_FLAGS_IS_UDP: u32 = 0x1000;
pub const NDIS_NBL_FLAGS_SPLIT_AT_UPPER_LAYER_PROTOCOL_HEADER: u32 = 0x2000;
pub const NDIS_NBL_FLAGS_SPLIT_AT_UPPER_LAYER_PROTOCOL_PAYLOAD: u32 = 0x4000;
pub const NDIS_NBL_FLAGS_IS_LOOPBACK_PACKET: u32 = 0x8000;

pub const NDIS_RECEIVE_FLAGS_DISPATCH_LEVEL: u32 = 1;
pub const NDIS_RECEIVE_FLAGS_RESOURCES: u32 = 2;
pub const NDIS_RECEIVE_FLAGS_SINGLE_ETHER_TYPE: u32 = 0x100;
pub const NDIS_RECEIVE_FLAGS_SINGLE_VLAN: u32 = 0x200;
pub const NDIS_RECEIVE_FLAGS_PERFECT_FILTERED: u32 = 0x400;
pub const NDIS_RECEIVE_FLAGS_SINGLE_QUEUE: u32 = 0x800;
pub const NDIS_RECEIVE_FLAGS_SHARED_MEMORY_INFO_VALID: u32 = 0x1000;
pub const NDIS_RECEIVE_FLAGS_MORE_NBLS: u32 = 0x2000;
pub const NDIS_RECEIVE_FLAGS_SWITCH_DESTINATION_GROUP: u32 = 0x4000;
pub const NDIS_RECEIVE_FLAGS_SWITCH_SINGLE_SOURCE: u32 = 0x8000;

pub const NDIS_SEND_COMPLETE_FLAGS_DISPATCH_LEVEL: u32 = 1;
pub const NDIS_SEND_COMPLETE_FLAGS_SINGLE_QUEUE: u32 = 2;
pub const NDIS_SEND_COMPLETE_FLAGS_SWITCH_SINGLE_SOURCE: u32 = 4;

pub const NDIS_SEND_FLAGS_DISPATCH_LEVEL: u32 = 1;
pub const NDIS_SEND_FLAGS_CHECK_FOR_LOOPBACK: u32 = 2;
pub const NDIS_SEND_FLAGS_SINGLE_QUEUE: u32 = 4;
pub const NDIS_SEND_FLAGS_SWITCH_DESTINATION_GROUP: u32 = 0x10;
pub const NDIS_SEND_FLAGS_SWITCH_SINGLE_SOURCE: u32 = 0x20;

pub const NDIS_RETURN_FLAGS_DISPATCH_LEVEL: u32 = 1;
pub const NDIS_RETURN_FLAGS_SINGLE_QUEUE: u32 = 2;
pub const NDIS_RETURN_FLAGS_SWITCH_SINGLE_SOURCE: u32 = 4;

pub const NDIS_DEFAULT_PORT_NUMBER: u32 = 0;

#[cfg_attr(all(windows, feature = "kernel"), link(name = "ndis"))]
unsafe extern "efiapi" {
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn NdisAllocateNetBufferListPool(
        NdisHandle: NDIS_HANDLE,
        Parameters: *mut NET_BUFFER_LIST_POOL_PARAMETERS,
    ) -> NDIS_HANDLE;
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn NdisFreeNetBufferListPool(PoolHandle: NDIS_HANDLE);
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn NdisAllocateNetBufferList(
        PoolHandle: NDIS_HANDLE,
        ContextSize: u16,
        ContextBackFill: u16,
    ) -> *mut NET_BUFFER_LIST;
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn NdisAllocateNetBufferAndNetBufferList(
        PoolHandle: NDIS_HANDLE,
        ContextSize: u16,
        ContextBackFill: u16,
        MdlChain: *mut MDL,
        DataOffset: u32,
        DataLength: usize,
    ) -> *mut NET_BUFFER_LIST;
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn NdisFreeNetBufferList(NetBufferList: *mut NET_BUFFER_LIST);
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn NdisAllocateNetBufferPool(
        NdisHandle: NDIS_HANDLE,
        Parameters: *mut NET_BUFFER_POOL_PARAMETERS,
    ) -> NDIS_HANDLE;
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn NdisFreeNetBufferPool(PoolHandle: NDIS_HANDLE);
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn NdisAllocateNetBuffer(
        PoolHandle: NDIS_HANDLE,
        MdlChain: *mut MDL,
        DataOffset: u32,
        DataLength: usize,
    ) -> *mut NET_BUFFER;
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn NdisFreeNetBuffer(NetBuffer: *mut NET_BUFFER);
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn NdisGetDataBuffer(
        NetBuffer: *mut NET_BUFFER,
        BytesNeeded: u32,
        Storage: *mut c_void,
        AlignMultiple: u32,
        AlignOffset: u32,
    ) -> *mut c_void;
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn NdisAdvanceNetBufferDataStart(
        NetBuffer: *mut NET_BUFFER,
        DataOffsetDelta: u32,
        FreeMdl: BOOLEAN,
        FreeMdlHandler: Option<NET_BUFFER_FREE_MDL_HANDLER>,
    );
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn NdisRetreatNetBufferDataStart(
        NetBuffer: *mut NET_BUFFER,
        DataOffsetDelta: u32,
        DataBackFill: u32,
        AllocateMdlHandler: Option<NET_BUFFER_ALLOCATE_MDL_HANDLER>,
    ) -> NDIS_STATUS;
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn NdisAllocateMdl(NdisHandle: NDIS_HANDLE, VirtualAddress: *mut c_void, Length: u32) -> *mut MDL;
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn NdisFreeMdl(Mdl: *mut MDL);
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn NdisMIndicateReceiveNetBufferLists(
        MiniportAdapterHandle: NDIS_HANDLE,
        NetBufferList: *mut NET_BUFFER_LIST,
        PortNumber: NDIS_PORT_NUMBER,
        NumberOfNetBufferLists: u32,
        ReceiveFlags: u32,
    );
    /// IRQL: `<= DISPATCH_LEVEL`.
    pub fn NdisMSendNetBufferListsComplete(
        MiniportAdapterHandle: NDIS_HANDLE,
        NetBufferList: *mut NET_BUFFER_LIST,
        SendCompleteFlags: u32,
    );
}
