// SPDX-License-Identifier: MIT OR Apache-2.0

//! The attributes of an adapter that NDIS gets at initialization: registration, general and offload attributes. `PASSIVE_LEVEL`.

use core::ptr::null_mut;

use fallible::Slot;
use ndk_abi::ndis::{
    IF_TYPE_ETHERNET_CSMACD, NDIS_HANDLE, NDIS_INTERFACE_TYPE, NDIS_MAC_OPTION_COPY_LOOKAHEAD_DATA,
    NDIS_MAC_OPTION_NO_LOOPBACK, NDIS_MAC_OPTION_TRANSFERS_NOT_PEND, NDIS_MEDIUM,
    NDIS_MINIPORT_ADAPTER_ATTRIBUTES, NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES,
    NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES_REVISION_2, NDIS_MINIPORT_ADAPTER_OFFLOAD_ATTRIBUTES,
    NDIS_MINIPORT_ADAPTER_OFFLOAD_ATTRIBUTES_REVISION_1, NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES,
    NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES_REVISION_1, NDIS_MINIPORT_ATTRIBUTES_BUS_MASTER,
    NDIS_MINIPORT_ATTRIBUTES_HARDWARE_DEVICE, NDIS_MINIPORT_ATTRIBUTES_SURPRISE_REMOVE_OK,
    NDIS_OBJECT_HEADER, NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES,
    NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_OFFLOAD_ATTRIBUTES,
    NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES, NDIS_PHYSICAL_MEDIUM,
    NDIS_SIZEOF_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES_REVISION_2,
    NDIS_SIZEOF_MINIPORT_ADAPTER_OFFLOAD_ATTRIBUTES_REVISION_1,
    NDIS_SIZEOF_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES_REVISION_1, NDIS_STATUS_SUCCESS, NET_IF_ACCESS_TYPE,
    NET_IF_CONNECTION_TYPE, NET_IF_DIRECTION_TYPE, NdisMSetMiniportAttributes,
};
use virtio_net::NetConfig;

use super::adapter::Adapter;
use super::link::{self, Link};
use super::mac_address::StationAddresses;
use super::offload_state::OffloadState;
use super::receive_filter::{self, MAX_MULTICAST};
use super::rss::Rss;
use super::vlan::Vlan;
use super::{oid_table, power, wire_statistics};
use crate::config::ETHERNET_HEADER;
use crate::events::{Failure, Request};

/// Registers the miniport adapter context and the registration attributes. Not inlined: its stack frame, together with the caller's,
/// is too large for a kernel stack.
#[inline(never)]
pub fn set_registration_attributes(handle: NDIS_HANDLE, slot: &Slot<Adapter>) -> Result<(), Failure> {
    let attributes = NDIS_MINIPORT_ADAPTER_ATTRIBUTES {
        RegistrationAttributes: NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES {
            Header: NDIS_OBJECT_HEADER {
                Type: NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES,
                Revision: NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES_REVISION_1,
                Size: NDIS_SIZEOF_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES_REVISION_1,
            },
            MiniportAdapterContext: slot.as_ptr().cast(),
            AttributeFlags: NDIS_MINIPORT_ATTRIBUTES_HARDWARE_DEVICE
                | NDIS_MINIPORT_ATTRIBUTES_BUS_MASTER
                | NDIS_MINIPORT_ATTRIBUTES_SURPRISE_REMOVE_OK,
            CheckForHangTimeInSeconds: 0,
            InterfaceType: NDIS_INTERFACE_TYPE::NdisInterfacePci,
        },
    };
    set_attributes(handle, attributes, Request::RegistrationAttributes)
}

/// Reports the adapter's general attributes to NDIS. Not inlined: its stack frame, together with the caller's,
/// is too large for a kernel stack.
#[inline(never)]
pub fn set_general_attributes(
    handle: NDIS_HANDLE,
    device: &NetConfig,
    addresses: StationAddresses,
    max_frame: u32,
    vlan: &Vlan,
    (rss, messages): (&Rss, u32),
) -> Result<(), Failure> {
    let mbits = device.speed.unwrap_or(0);
    let (speed, link) = (link::speed(mbits), Link::new(device.link_up, mbits, device.duplex));
    let mut oids = oid_table::supported();
    let mut power = power::capabilities();
    let mut scaling = rss.capabilities(messages);
    // SAFETY: integers and pointers only: all zeroes is a value, and means "not supported" wherever it is left.
    let mut general: NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES = unsafe { core::mem::zeroed() };
    general.Header = NDIS_OBJECT_HEADER {
        Type: NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES,
        Revision: NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES_REVISION_2,
        Size: NDIS_SIZEOF_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES_REVISION_2,
    };
    general.MediaType = NDIS_MEDIUM::NdisMedium802_3;
    general.PhysicalMediumType = NDIS_PHYSICAL_MEDIUM::NdisPhysicalMedium802_3;
    general.MtuSize = max_frame.saturating_sub(ETHERNET_HEADER);
    general.LookaheadSize = max_frame;
    general.MaxXmitLinkSpeed = speed;
    general.MaxRcvLinkSpeed = speed;
    general.XmitLinkSpeed = link.speed;
    general.RcvLinkSpeed = link.speed;
    general.MediaConnectState = link.connected;
    general.MediaDuplexState = link.duplex;
    general.MacOptions = NDIS_MAC_OPTION_COPY_LOOKAHEAD_DATA
        | NDIS_MAC_OPTION_TRANSFERS_NOT_PEND
        | NDIS_MAC_OPTION_NO_LOOPBACK
        | vlan.mac_options();
    general.SupportedPacketFilters = receive_filter::SUPPORTED;
    general.MaxMulticastListSize = MAX_MULTICAST as u32;
    general.MacAddressLength = 6;
    set_address(&mut general.PermanentMacAddress, addresses.permanent);
    set_address(&mut general.CurrentMacAddress, addresses.current);
    general.RecvScaleCapabilities =
        scaling.as_mut().map_or(null_mut(), |capabilities| &raw mut *capabilities);
    general.AccessType = NET_IF_ACCESS_TYPE::NET_IF_ACCESS_BROADCAST;
    general.DirectionType = NET_IF_DIRECTION_TYPE::NET_IF_DIRECTION_SENDRECEIVE;
    general.ConnectionType = NET_IF_CONNECTION_TYPE::NET_IF_CONNECTION_DEDICATED;
    general.IfType = IF_TYPE_ETHERNET_CSMACD as u16;
    general.IfConnectorPresent = 1;
    general.PowerManagementCapabilitiesEx = &raw mut power;
    general.SupportedStatistics = wire_statistics::SUPPORTED;
    general.SupportedOidList = oids.as_mut_ptr();
    general.SupportedOidListLength = size_of_val(&oids) as u32;
    let attributes = NDIS_MINIPORT_ADAPTER_ATTRIBUTES { GeneralAttributes: general };
    set_attributes(handle, attributes, Request::GeneralAttributes)
}

/// Reports the task offloads that the adapter supports, and the offloads in force. Not inlined: its stack frame, together with the caller's,
/// is too large for a kernel stack.
#[inline(never)]
pub fn set_offload_attributes(handle: NDIS_HANDLE, offloads: &OffloadState) -> Result<(), Failure> {
    let (mut possible, mut current) = (offloads.describe_possible(), offloads.describe_current());
    let attributes = NDIS_MINIPORT_ADAPTER_ATTRIBUTES {
        OffloadAttributes: NDIS_MINIPORT_ADAPTER_OFFLOAD_ATTRIBUTES {
            Header: NDIS_OBJECT_HEADER {
                Type: NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_OFFLOAD_ATTRIBUTES,
                Revision: NDIS_MINIPORT_ADAPTER_OFFLOAD_ATTRIBUTES_REVISION_1,
                Size: NDIS_SIZEOF_MINIPORT_ADAPTER_OFFLOAD_ATTRIBUTES_REVISION_1,
            },
            DefaultOffloadConfiguration: &raw mut current,
            HardwareOffloadCapabilities: &raw mut possible,
            DefaultTcpConnectionOffloadConfiguration: null_mut(),
            TcpConnectionOffloadHardwareCapabilities: null_mut(),
        },
    };
    set_attributes(handle, attributes, Request::OffloadAttributes)
}

fn set_address(field: &mut [u8; 32], address: [u8; 6]) {
    for (to, from) in field.iter_mut().zip(address) {
        *to = from;
    }
}

fn set_attributes(
    handle: NDIS_HANDLE,
    mut attributes: NDIS_MINIPORT_ADAPTER_ATTRIBUTES,
    request: Request,
) -> Result<(), Failure> {
    // SAFETY: the attributes are complete, what they point to outlives the call, and NDIS copies both.
    let status = unsafe { NdisMSetMiniportAttributes(handle, &raw mut attributes) };
    if status == NDIS_STATUS_SUCCESS { Ok(()) } else { Err(Failure::Ndis(request, status)) }
}
