// SPDX-License-Identifier: MIT OR Apache-2.0

//! Plug and play: device events, net PnP events.

use core::ffi::c_void;

use super::{
    NDIS_HANDLE, NDIS_NIC_SWITCH_ID, NDIS_NIC_SWITCH_VPORT_ID, NDIS_OBJECT_HEADER, NDIS_PORT_NUMBER,
    NDIS_STATUS,
};

/// An event of a device.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NDIS_DEVICE_PNP_EVENT(pub i32);

impl NDIS_DEVICE_PNP_EVENT {
    pub const NdisDevicePnPEventQueryRemoved: Self = Self(0);
    pub const NdisDevicePnPEventRemoved: Self = Self(1);
    pub const NdisDevicePnPEventSurpriseRemoved: Self = Self(2);
    pub const NdisDevicePnPEventQueryStopped: Self = Self(3);
    pub const NdisDevicePnPEventStopped: Self = Self(4);
    pub const NdisDevicePnPEventPowerProfileChanged: Self = Self(5);
    pub const NdisDevicePnPEventFilterListChanged: Self = Self(6);
    pub const NdisDevicePnPEventMaximum: Self = Self(7);
}

/// An event of an adapter.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NET_PNP_EVENT_CODE(pub i32);

impl NET_PNP_EVENT_CODE {
    pub const NetEventSetPower: Self = Self(0);
    pub const NetEventQueryPower: Self = Self(1);
    pub const NetEventQueryRemoveDevice: Self = Self(2);
    pub const NetEventCancelRemoveDevice: Self = Self(3);
    pub const NetEventReconfigure: Self = Self(4);
    pub const NetEventBindList: Self = Self(5);
    pub const NetEventBindsComplete: Self = Self(6);
    pub const NetEventPnPCapabilities: Self = Self(7);
    pub const NetEventPause: Self = Self(8);
    pub const NetEventRestart: Self = Self(9);
    pub const NetEventPortActivation: Self = Self(10);
    pub const NetEventPortDeactivation: Self = Self(11);
    pub const NetEventIMReEnableDevice: Self = Self(12);
    pub const NetEventNDKEnable: Self = Self(13);
    pub const NetEventNDKDisable: Self = Self(14);
    pub const NetEventFilterPreDetach: Self = Self(15);
    pub const NetEventBindFailed: Self = Self(16);
    pub const NetEventSwitchActivate: Self = Self(17);
    pub const NetEventAllowBindsAbove: Self = Self(18);
    pub const NetEventInhibitBindsAbove: Self = Self(19);
    pub const NetEventAllowStart: Self = Self(20);
    pub const NetEventRequirePause: Self = Self(21);
    pub const NetEventUploadGftFlowEntries: Self = Self(22);
    pub const NetEventMaximum: Self = Self(23);
}

/// A device event, for `MINIPORT_DEVICE_PNP_EVENT_NOTIFY`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NET_DEVICE_PNP_EVENT {
    pub Header: NDIS_OBJECT_HEADER,
    pub PortNumber: NDIS_PORT_NUMBER,
    pub DevicePnPEvent: NDIS_DEVICE_PNP_EVENT,
    pub InformationBuffer: *mut c_void,
    pub InformationBufferLength: u32,
    pub NdisReserved: [u8; 16],
}

/// An adapter event.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NET_PNP_EVENT {
    pub NetEvent: NET_PNP_EVENT_CODE,
    pub Buffer: *mut c_void,
    pub BufferLength: u32,
    pub NdisReserved: [usize; 4],
    pub TransportReserved: [usize; 4],
    pub TdiReserved: [usize; 4],
    pub TdiClientReserved: [usize; 4],
}

/// An adapter event, as `NdisMNetPnPEvent` takes it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NET_PNP_EVENT_NOTIFICATION {
    pub Header: NDIS_OBJECT_HEADER,
    pub PortNumber: NDIS_PORT_NUMBER,
    pub NetPnPEvent: NET_PNP_EVENT,
    pub Flags: u32,
    pub SwitchId: NDIS_NIC_SWITCH_ID,
    pub VPortId: NDIS_NIC_SWITCH_VPORT_ID,
}

pub const NET_PNP_EVENT_NOTIFICATION_REVISION_1: u8 = 1;
pub const NDIS_SIZEOF_NET_PNP_EVENT_NOTIFICATION_REVISION_1: u16 = 0xa4;
pub const NET_PNP_EVENT_NOTIFICATION_REVISION_2: u8 = 2;
pub const NDIS_SIZEOF_NET_PNP_EVENT_NOTIFICATION_REVISION_2: u16 = 0xac;

#[cfg_attr(all(windows, feature = "kernel"), link(name = "ndis"))]
unsafe extern "efiapi" {
    /// IRQL: `== PASSIVE_LEVEL`.
    pub fn NdisMNetPnPEvent(
        MiniportAdapterHandle: NDIS_HANDLE,
        NetPnPEventNotification: *mut NET_PNP_EVENT_NOTIFICATION,
    ) -> NDIS_STATUS;
}
