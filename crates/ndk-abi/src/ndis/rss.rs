// SPDX-License-Identifier: MIT OR Apache-2.0

//! Receive side scaling: parameters, and the hashes of received packets.

use super::{NDIS_OBJECT_HEADER, NDIS_RSS_CAPS_FLAGS};
use crate::nt::PROCESSOR_NUMBER;

/// `OID_GEN_RECEIVE_SCALE_PARAMETERS`: the table of processors and the key follow, at the given offsets in bytes.
/// Header type `NDIS_OBJECT_TYPE_RSS_PARAMETERS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_RECEIVE_SCALE_PARAMETERS {
    pub Header: NDIS_OBJECT_HEADER,
    pub Flags: u16,
    pub BaseCpuNumber: u16,
    pub HashInformation: u32,
    pub IndirectionTableSize: u16,
    pub IndirectionTableOffset: u32,
    pub HashSecretKeySize: u16,
    pub HashSecretKeyOffset: u32,
    pub ProcessorMasksOffset: u32,
    pub NumberOfProcessorMasks: u32,
    pub ProcessorMasksEntrySize: u32,
    pub DefaultProcessorNumber: PROCESSOR_NUMBER,
}

pub const NDIS_RECEIVE_SCALE_PARAMETERS_REVISION_1: u8 = 1;
pub const NDIS_SIZEOF_RECEIVE_SCALE_PARAMETERS_REVISION_1: u16 = 0x1c;
pub const NDIS_RECEIVE_SCALE_PARAMETERS_REVISION_2: u8 = 2;
pub const NDIS_SIZEOF_RECEIVE_SCALE_PARAMETERS_REVISION_2: u16 = 0x28;
pub const NDIS_RECEIVE_SCALE_PARAMETERS_REVISION_3: u8 = 3;
pub const NDIS_SIZEOF_RECEIVE_SCALE_PARAMETERS_REVISION_3: u16 = 0x2c;

/// Flags of [`NDIS_RECEIVE_SCALE_PARAMETERS`].
pub const NDIS_RSS_PARAM_FLAG_BASE_CPU_UNCHANGED: u16 = 1;
pub const NDIS_RSS_PARAM_FLAG_HASH_INFO_UNCHANGED: u16 = 2;
pub const NDIS_RSS_PARAM_FLAG_ITABLE_UNCHANGED: u16 = 4;
pub const NDIS_RSS_PARAM_FLAG_HASH_KEY_UNCHANGED: u16 = 8;
pub const NDIS_RSS_PARAM_FLAG_DISABLE_RSS: u16 = 0x10;
pub const NDIS_RSS_PARAM_FLAG_DEFAULT_PROCESSOR_UNCHANGED: u16 = 0x20;

/// Largest key and table in bytes, from revision 2 of the parameters.
pub const NDIS_RSS_HASH_SECRET_KEY_MAX_SIZE_REVISION_2: u16 = 0x28;
pub const NDIS_RSS_INDIRECTION_TABLE_MAX_SIZE_REVISION_2: u16 = 0x200;

/// `OID_GEN_RECEIVE_HASH`: the key follows, at the given offset in bytes. Header type `NDIS_OBJECT_TYPE_DEFAULT`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_RECEIVE_HASH_PARAMETERS {
    pub Header: NDIS_OBJECT_HEADER,
    pub Flags: u32,
    pub HashInformation: u32,
    pub HashSecretKeySize: u16,
    pub HashSecretKeyOffset: u32,
}

pub const NDIS_RECEIVE_HASH_PARAMETERS_REVISION_1: u8 = 1;
pub const NDIS_SIZEOF_RECEIVE_HASH_PARAMETERS_REVISION_1: u16 = 0x14;

/// Flags of [`NDIS_RECEIVE_HASH_PARAMETERS`].
pub const NDIS_RECEIVE_HASH_FLAG_ENABLE_HASH: u32 = 1;
pub const NDIS_RECEIVE_HASH_FLAG_HASH_INFO_UNCHANGED: u32 = 2;
pub const NDIS_RECEIVE_HASH_FLAG_HASH_KEY_UNCHANGED: u32 = 4;

/// The hash function, in the lowest byte of hash information and of capabilities.
pub const NdisHashFunctionToeplitz: u32 = 1;

/// Parts of hash information: the function, and the types.
pub const NDIS_HASH_FUNCTION_MASK: u32 = 0xff;
pub const NDIS_HASH_TYPE_MASK: u32 = 0xffff00;

pub const NDIS_HASH_IPV4: u32 = 0x100;
pub const NDIS_HASH_TCP_IPV4: u32 = 0x200;
pub const NDIS_HASH_IPV6: u32 = 0x400;
pub const NDIS_HASH_IPV6_EX: u32 = 0x800;
pub const NDIS_HASH_TCP_IPV6: u32 = 0x1000;
pub const NDIS_HASH_TCP_IPV6_EX: u32 = 0x2000;
pub const NDIS_HASH_UDP_IPV4: u32 = 0x4000;
pub const NDIS_HASH_UDP_IPV6: u32 = 0x8000;
pub const NDIS_HASH_UDP_IPV6_EX: u32 = 0x10000;

/// `CapabilitiesFlags` of `NDIS_RECEIVE_SCALE_CAPABILITIES`, with the hash function.
pub const NDIS_RSS_CAPS_HASH_TYPE_TCP_IPV4: NDIS_RSS_CAPS_FLAGS = 0x100;
pub const NDIS_RSS_CAPS_HASH_TYPE_TCP_IPV6: NDIS_RSS_CAPS_FLAGS = 0x200;
pub const NDIS_RSS_CAPS_HASH_TYPE_TCP_IPV6_EX: NDIS_RSS_CAPS_FLAGS = 0x400;
pub const NDIS_RSS_CAPS_HASH_TYPE_UDP_IPV4: NDIS_RSS_CAPS_FLAGS = 0x800;
pub const NDIS_RSS_CAPS_HASH_TYPE_UDP_IPV6: NDIS_RSS_CAPS_FLAGS = 0x1000;
pub const NDIS_RSS_CAPS_HASH_TYPE_UDP_IPV6_EX: NDIS_RSS_CAPS_FLAGS = 0x2000;
pub const NDIS_RSS_CAPS_MESSAGE_SIGNALED_INTERRUPTS: NDIS_RSS_CAPS_FLAGS = 0x1000000;
pub const NDIS_RSS_CAPS_CLASSIFICATION_AT_ISR: NDIS_RSS_CAPS_FLAGS = 0x2000000;
pub const NDIS_RSS_CAPS_CLASSIFICATION_AT_DPC: NDIS_RSS_CAPS_FLAGS = 0x4000000;
pub const NDIS_RSS_CAPS_USING_MSI_X: NDIS_RSS_CAPS_FLAGS = 0x8000000;
pub const NDIS_RSS_CAPS_RSS_AVAILABLE_ON_PORTS: NDIS_RSS_CAPS_FLAGS = 0x10000000;
pub const NDIS_RSS_CAPS_SUPPORTS_MSI_X: NDIS_RSS_CAPS_FLAGS = 0x20000000;
pub const NDIS_RSS_CAPS_SUPPORTS_INDEPENDENT_ENTRY_MOVE: NDIS_RSS_CAPS_FLAGS = 0x40000000;
