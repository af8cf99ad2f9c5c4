// SPDX-License-Identifier: MIT OR Apache-2.0

//! Ports of an adapter.

use core::ffi::c_void;

use super::{NDIS_MEDIA_CONNECT_STATE, NDIS_OBJECT_HEADER, NDIS_PORT_NUMBER, NET_IF_DIRECTION_TYPE};

/// Kind of a port.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NDIS_PORT_TYPE(pub i32);

impl NDIS_PORT_TYPE {
    pub const NdisPortTypeUndefined: Self = Self(0);
    pub const NdisPortTypeBridge: Self = Self(1);
    pub const NdisPortTypeRasConnection: Self = Self(2);
    pub const NdisPortType8021xSupplicant: Self = Self(3);
    pub const NdisPortTypeNdisImPlatform: Self = Self(4);
    pub const NdisPortTypeMax: Self = Self(5);
}

/// Whether a port's traffic is under control.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NDIS_PORT_CONTROL_STATE(pub i32);

impl NDIS_PORT_CONTROL_STATE {
    pub const NdisPortControlStateUnknown: Self = Self(0);
    pub const NdisPortControlStateControlled: Self = Self(1);
    pub const NdisPortControlStateUncontrolled: Self = Self(2);
}

/// Whether a port is authorized.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NDIS_PORT_AUTHORIZATION_STATE(pub i32);

impl NDIS_PORT_AUTHORIZATION_STATE {
    pub const NdisPortAuthorizationUnknown: Self = Self(0);
    pub const NdisPortAuthorized: Self = Self(1);
    pub const NdisPortUnauthorized: Self = Self(2);
    pub const NdisPortReauthorizing: Self = Self(3);
}

/// Operational status of an interface (RFC 2863).
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NET_IF_OPER_STATUS(pub i32);

impl NET_IF_OPER_STATUS {
    pub const NET_IF_OPER_STATUS_UP: Self = Self(1);
    pub const NET_IF_OPER_STATUS_DOWN: Self = Self(2);
    pub const NET_IF_OPER_STATUS_TESTING: Self = Self(3);
    pub const NET_IF_OPER_STATUS_UNKNOWN: Self = Self(4);
    pub const NET_IF_OPER_STATUS_DORMANT: Self = Self(5);
    pub const NET_IF_OPER_STATUS_NOT_PRESENT: Self = Self(6);
    pub const NET_IF_OPER_STATUS_LOWER_LAYER_DOWN: Self = Self(7);
}

/// Characteristics of a port.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_PORT_CHARACTERISTICS {
    pub Header: NDIS_OBJECT_HEADER,
    pub PortNumber: NDIS_PORT_NUMBER,
    pub Flags: u32,
    pub Type: NDIS_PORT_TYPE,
    pub MediaConnectState: NDIS_MEDIA_CONNECT_STATE,
    pub XmitLinkSpeed: u64,
    pub RcvLinkSpeed: u64,
    pub Direction: NET_IF_DIRECTION_TYPE,
    pub SendControlState: NDIS_PORT_CONTROL_STATE,
    pub RcvControlState: NDIS_PORT_CONTROL_STATE,
    pub SendAuthorizationState: NDIS_PORT_AUTHORIZATION_STATE,
    pub RcvAuthorizationState: NDIS_PORT_AUTHORIZATION_STATE,
}

/// A port, in a list.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_PORT {
    pub Next: *mut NDIS_PORT,
    pub NdisReserved: *mut c_void,
    pub MiniportReserved: *mut c_void,
    pub ProtocolReserved: *mut c_void,
    pub PortCharacteristics: NDIS_PORT_CHARACTERISTICS,
}

/// State of a port.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_PORT_STATE {
    pub Header: NDIS_OBJECT_HEADER,
    pub MediaConnectState: NDIS_MEDIA_CONNECT_STATE,
    pub XmitLinkSpeed: u64,
    pub RcvLinkSpeed: u64,
    pub Direction: NET_IF_DIRECTION_TYPE,
    pub SendControlState: NDIS_PORT_CONTROL_STATE,
    pub RcvControlState: NDIS_PORT_CONTROL_STATE,
    pub SendAuthorizationState: NDIS_PORT_AUTHORIZATION_STATE,
    pub RcvAuthorizationState: NDIS_PORT_AUTHORIZATION_STATE,
    pub Flags: u32,
}

/// Operational state of an interface.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NDIS_OPER_STATE {
    pub Header: NDIS_OBJECT_HEADER,
    pub OperationalStatus: NET_IF_OPER_STATUS,
    pub OperationalStatusFlags: u32,
}

pub const NDIS_PORT_CHARACTERISTICS_REVISION_1: u8 = 1;
pub const NDIS_SIZEOF_PORT_CHARACTERISTICS_REVISION_1: u16 = 0x3c;
pub const NDIS_SIZEOF_PORT_ARRAY_REVISION_1: u16 = 0x50;
pub const NDIS_SIZEOF_PORT_AUTHENTICATION_PARAMETERS_REVISION_1: u16 = 0x14;
pub const NDIS_SIZEOF_PORT_STATE_REVISION_1: u16 = 0x30;

pub const NDIS_PORT_CHAR_USE_DEFAULT_AUTH_SETTINGS: u32 = 1;
