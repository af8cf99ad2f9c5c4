// SPDX-License-Identifier: MIT OR Apache-2.0

//! Task offloads: checksums and segmentation.
//!
//! The bit-fields of one ULONG in C are one member here, with the name of the first of them.

use core::ffi::c_void;

use super::NDIS_OBJECT_HEADER;

/// Computations of an adapter for the stack: possible, or in force. Header type `NDIS_OBJECT_TYPE_OFFLOAD`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_OFFLOAD {
    pub Header: NDIS_OBJECT_HEADER,
    pub Checksum: NDIS_TCP_IP_CHECKSUM_OFFLOAD,
    pub LsoV1: NDIS_TCP_LARGE_SEND_OFFLOAD_V1,
    pub IPsecV1: NDIS_IPSEC_OFFLOAD_V1,
    pub LsoV2: NDIS_TCP_LARGE_SEND_OFFLOAD_V2,
    pub Flags: u32,
    pub IPsecV2: NDIS_IPSEC_OFFLOAD_V2,
    pub Rsc: NDIS_TCP_RECV_SEG_COALESCE_OFFLOAD,
    pub EncapsulatedPacketTaskOffloadGre: NDIS_ENCAPSULATED_PACKET_TASK_OFFLOAD,
    pub EncapsulatedPacketTaskOffloadVxlan: NDIS_ENCAPSULATED_PACKET_TASK_OFFLOAD_V2,
    pub EncapsulationTypes: u8,
    pub Rfc6877Xlat: NDIS_RFC6877_464XLAT_OFFLOAD,
    pub UdpSegmentation: NDIS_UDP_SEGMENTATION_OFFLOAD,
}

/// Checksums of packets to send and of received ones.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_TCP_IP_CHECKSUM_OFFLOAD {
    pub IPv4Transmit: NDIS_IPV4_TRANSMIT_CHECKSUM,
    pub IPv4Receive: NDIS_IPV4_RECEIVE_CHECKSUM,
    pub IPv6Transmit: NDIS_IPV6_TRANSMIT_CHECKSUM,
    pub IPv6Receive: NDIS_IPV6_RECEIVE_CHECKSUM,
}

/// Two bits each, from the lowest: IP options, TCP options, checksums of TCP, UDP and IP header.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_IPV4_TRANSMIT_CHECKSUM {
    pub Encapsulation: u32,
    pub IpOptionsSupported: u32,
}

/// Checksums of received IPv4 packets, laid out as [`NDIS_IPV4_TRANSMIT_CHECKSUM`].
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_IPV4_RECEIVE_CHECKSUM {
    pub Encapsulation: u32,
    pub IpOptionsSupported: u32,
}

/// Two bits each, from the lowest: extension headers, TCP options, checksums of TCP and UDP.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_IPV6_TRANSMIT_CHECKSUM {
    pub Encapsulation: u32,
    pub IpExtensionHeadersSupported: u32,
}

/// Checksums of received IPv6 packets, laid out as [`NDIS_IPV6_TRANSMIT_CHECKSUM`].
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_IPV6_RECEIVE_CHECKSUM {
    pub Encapsulation: u32,
    pub IpExtensionHeadersSupported: u32,
}

/// Segmentation of TCP packets, version 1.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_TCP_LARGE_SEND_OFFLOAD_V1 {
    pub IPv4: NDIS_LSOV1_IPV4,
}

/// Sizes in bytes. Two bits each, from the lowest: TCP options, IP options.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_LSOV1_IPV4 {
    pub Encapsulation: u32,
    pub MaxOffLoadSize: u32,
    pub MinSegmentCount: u32,
    pub TcpOptions: u32,
}

/// Segmentation of TCP packets, version 2.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_TCP_LARGE_SEND_OFFLOAD_V2 {
    pub IPv4: NDIS_LSOV2_IPV4,
    pub IPv6: NDIS_LSOV2_IPV6,
}

/// Longest TCP payload in bytes, and the fewest segments of a packet.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_LSOV2_IPV4 {
    pub Encapsulation: u32,
    pub MaxOffLoadSize: u32,
    pub MinSegmentCount: u32,
}

/// Large sends of TCP over IPv6; the members before the bits are those of [`NDIS_LSOV2_IPV4`]. Two bits each, from the lowest:
/// extension headers, TCP options.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_LSOV2_IPV6 {
    pub Encapsulation: u32,
    pub MaxOffLoadSize: u32,
    pub MinSegmentCount: u32,
    pub IpExtensionHeadersSupported: u32,
}

/// IPsec offload, which this crate does not describe.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_IPSEC_OFFLOAD_V1 {
    _opaque: [u32; 7],
}

/// IPsec offload, which this crate does not describe.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_IPSEC_OFFLOAD_V2 {
    _opaque: [u32; 8],
}

/// Receive segment coalescing.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_TCP_RECV_SEG_COALESCE_OFFLOAD {
    pub IPv4: NDIS_RSC_IPV4,
    pub IPv6: NDIS_RSC_IPV6,
}

/// Receive segment coalescing of IPv4.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_RSC_IPV4 {
    pub Enabled: u8,
}

/// Receive segment coalescing of IPv6.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_RSC_IPV6 {
    pub Enabled: u8,
}

/// Offloads of encapsulated packets, which this crate does not describe.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_ENCAPSULATED_PACKET_TASK_OFFLOAD {
    _opaque: [u32; 2],
}

/// Offloads of encapsulated packets, which this crate does not describe.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_ENCAPSULATED_PACKET_TASK_OFFLOAD_V2 {
    _opaque: [u32; 5],
}

/// 464XLAT offload, which this crate does not describe.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_RFC6877_464XLAT_OFFLOAD {
    _opaque: [u32; 2],
}

/// Segmentation of UDP packets (NDIS 6.83).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_UDP_SEGMENTATION_OFFLOAD {
    pub IPv4: NDIS_USO_IPV4,
    pub IPv6: NDIS_USO_IPV6,
}

/// Longest UDP payload in bytes; `MinSegmentCount` and [`SUB_MSS_FINAL_SEGMENT_SUPPORTED`](Self::SUB_MSS_FINAL_SEGMENT_SUPPORTED).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_USO_IPV4 {
    pub Encapsulation: u32,
    pub MaxOffLoadSize: u32,
    pub MinSegmentCount: u32,
}

impl NDIS_USO_IPV4 {
    /// `MinSegmentCount`, a bit-field
    pub const MIN_SEGMENT_COUNT: u32 = 0x3F;
    /// `SubMssFinalSegmentSupported`: the last segment may be shorter than the others.
    pub const SUB_MSS_FINAL_SEGMENT_SUPPORTED: u32 = 1 << 6;
}

/// Segmentation of UDP over IPv6; the members before the bits are those of [`NDIS_USO_IPV4`]. Two bits: extension headers.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_USO_IPV6 {
    pub Encapsulation: u32,
    pub MaxOffLoadSize: u32,
    pub MinSegmentCount: u32,
    pub IpExtensionHeadersSupported: u32,
}

/// `OID_OFFLOAD_ENCAPSULATION`: whether the stack uses offloads, and with which encapsulation.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_OFFLOAD_ENCAPSULATION {
    pub Header: NDIS_OBJECT_HEADER,
    pub IPv4: NDIS_OFFLOAD_ENCAPSULATION_IPV4,
    pub IPv6: NDIS_OFFLOAD_ENCAPSULATION_IPV6,
}

/// `Enabled` is an `NDIS_OFFLOAD_SET_*`, the type one `NDIS_ENCAPSULATION_*`, the size in bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_OFFLOAD_ENCAPSULATION_IPV4 {
    pub Enabled: u32,
    pub EncapsulationType: u32,
    pub HeaderSize: u32,
}

/// Encapsulation over IPv6, laid out as [`NDIS_OFFLOAD_ENCAPSULATION_IPV4`].
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_OFFLOAD_ENCAPSULATION_IPV6 {
    pub Enabled: u32,
    pub EncapsulationType: u32,
    pub HeaderSize: u32,
}

/// A per-packet information slot; its bit-fields lie in the low 32 bits of `Value`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_TCP_LARGE_SEND_OFFLOAD_NET_BUFFER_LIST_INFO {
    pub Value: *mut c_void,
}

/// The bit-fields, as `abi-x64.toml` states them.
impl NDIS_TCP_LARGE_SEND_OFFLOAD_NET_BUFFER_LIST_INFO {
    /// `LsoV2Transmit.MSS`, in bytes
    pub const V2_MSS: u32 = 0xF_FFFF;
    /// `LsoV2Transmit.TcpHeaderOffset`, in bytes
    pub const V2_TCP_HEADER_OFFSET: u32 = 0x3FF << Self::V2_TCP_HEADER_OFFSET_SHIFT;
    pub const V2_TCP_HEADER_OFFSET_SHIFT: u32 = 20;
    /// `Transmit.Type`: version 2
    pub const TYPE_V2: u32 = 1 << 30;
    /// `LsoV2Transmit.IPVersion`: IPv6
    pub const V2_IPV6: u32 = 1 << 31;
}

/// A per-packet information slot; its bit-fields lie in the low 32 bits of `Value`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_UDP_SEGMENTATION_OFFLOAD_NET_BUFFER_LIST_INFO {
    pub Value: *mut c_void,
}

/// The bit-fields, as `abi-extra.toml` states them.
impl NDIS_UDP_SEGMENTATION_OFFLOAD_NET_BUFFER_LIST_INFO {
    /// `Transmit.MSS`, in bytes
    pub const MSS: u32 = 0xF_FFFF;
    /// `Transmit.UdpHeaderOffset`, in bytes
    pub const UDP_HEADER_OFFSET: u32 = 0x3FF << Self::UDP_HEADER_OFFSET_SHIFT;
    pub const UDP_HEADER_OFFSET_SHIFT: u32 = 20;
    /// `Transmit.IPVersion`: IPv6
    pub const IPV6: u32 = 1 << 31;
}

pub const NDIS_OFFLOAD_REVISION_6: u8 = 6;
pub const NDIS_SIZEOF_NDIS_OFFLOAD_REVISION_1: u16 = 0x70;
pub const NDIS_SIZEOF_NDIS_OFFLOAD_REVISION_2: u16 = 0x90;
pub const NDIS_SIZEOF_NDIS_OFFLOAD_REVISION_3: u16 = 0x9c;
pub const NDIS_SIZEOF_NDIS_OFFLOAD_REVISION_4: u16 = 0xb1;
pub const NDIS_SIZEOF_NDIS_OFFLOAD_REVISION_5: u16 = 0xbc;
pub const NDIS_SIZEOF_NDIS_OFFLOAD_REVISION_6: u16 = 0xd8;
pub const NDIS_OFFLOAD_PARAMETERS_REVISION_1: u8 = 1;
pub const NDIS_SIZEOF_OFFLOAD_PARAMETERS_REVISION_1: u16 = 0x14;
pub const NDIS_OFFLOAD_PARAMETERS_REVISION_3: u8 = 3;
pub const NDIS_OFFLOAD_PARAMETERS_REVISION_5: u8 = 5;
pub const NDIS_OFFLOAD_ENCAPSULATION_REVISION_1: u8 = 1;
pub const NDIS_SIZEOF_OFFLOAD_ENCAPSULATION_REVISION_1: u16 = 0x1c;

pub const NDIS_OFFLOAD_NOT_SUPPORTED: u32 = 0;
pub const NDIS_OFFLOAD_SUPPORTED: u32 = 1;
pub const NDIS_OFFLOAD_SET_NO_CHANGE: u32 = 0;
pub const NDIS_OFFLOAD_SET_ON: u32 = 1;
pub const NDIS_OFFLOAD_SET_OFF: u32 = 2;
pub const NDIS_OFFLOAD_PARAMETERS_NO_CHANGE: u8 = 0;
pub const NDIS_OFFLOAD_PARAMETERS_TX_RX_DISABLED: u8 = 1;
pub const NDIS_OFFLOAD_PARAMETERS_TX_ENABLED_RX_DISABLED: u8 = 2;
pub const NDIS_OFFLOAD_PARAMETERS_RX_ENABLED_TX_DISABLED: u8 = 3;
pub const NDIS_OFFLOAD_PARAMETERS_TX_RX_ENABLED: u8 = 4;
pub const NDIS_OFFLOAD_PARAMETERS_LSOV2_DISABLED: u8 = 1;
pub const NDIS_OFFLOAD_PARAMETERS_LSOV2_ENABLED: u8 = 2;
pub const NDIS_OFFLOAD_PARAMETERS_RSC_DISABLED: u8 = 1;
pub const NDIS_OFFLOAD_PARAMETERS_RSC_ENABLED: u8 = 2;
pub const NDIS_OFFLOAD_PARAMETERS_USO_DISABLED: u8 = 1;
pub const NDIS_OFFLOAD_PARAMETERS_USO_ENABLED: u8 = 2;

pub const NDIS_ENCAPSULATION_NOT_SUPPORTED: u32 = 0;
pub const NDIS_ENCAPSULATION_NULL: u32 = 1;
pub const NDIS_ENCAPSULATION_IEEE_802_3: u32 = 2;
