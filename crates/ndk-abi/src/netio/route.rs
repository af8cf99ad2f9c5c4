// SPDX-License-Identifier: MIT OR Apache-2.0

//! Routes.

use core::ffi::c_void;

use super::{ADDRESS_FAMILY, IP_ADDRESS_PREFIX, MIB_NOTIFICATION_TYPE, NET_IFINDEX, NET_LUID, SOCKADDR_INET};
use crate::nt::{BOOLEAN, HANDLE, NTSTATUS};

/// Who made a route.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NL_ROUTE_PROTOCOL(pub i32);

impl NL_ROUTE_PROTOCOL {
    pub const RouteProtocolOther: Self = Self(1);
    pub const RouteProtocolLocal: Self = Self(2);
    pub const RouteProtocolNetMgmt: Self = Self(3);
    pub const RouteProtocolIcmp: Self = Self(4);
    pub const RouteProtocolEgp: Self = Self(5);
    pub const RouteProtocolGgp: Self = Self(6);
    pub const RouteProtocolHello: Self = Self(7);
    pub const RouteProtocolRip: Self = Self(8);
    pub const RouteProtocolIsIs: Self = Self(9);
    pub const RouteProtocolEsIs: Self = Self(10);
    pub const RouteProtocolCisco: Self = Self(11);
    pub const RouteProtocolBbn: Self = Self(12);
    pub const RouteProtocolOspf: Self = Self(13);
    pub const RouteProtocolBgp: Self = Self(14);
    pub const RouteProtocolIdpr: Self = Self(15);
    pub const RouteProtocolEigrp: Self = Self(16);
    pub const RouteProtocolDvmrp: Self = Self(17);
    pub const RouteProtocolRpl: Self = Self(18);
    pub const RouteProtocolDhcp: Self = Self(19);
    pub const MIB_IPPROTO_OTHER: Self = Self(1);
    pub const PROTO_IP_OTHER: Self = Self(1);
    pub const MIB_IPPROTO_LOCAL: Self = Self(2);
    pub const PROTO_IP_LOCAL: Self = Self(2);
    pub const MIB_IPPROTO_NETMGMT: Self = Self(3);
    pub const PROTO_IP_NETMGMT: Self = Self(3);
    pub const MIB_IPPROTO_ICMP: Self = Self(4);
    pub const PROTO_IP_ICMP: Self = Self(4);
    pub const MIB_IPPROTO_EGP: Self = Self(5);
    pub const PROTO_IP_EGP: Self = Self(5);
    pub const MIB_IPPROTO_GGP: Self = Self(6);
    pub const PROTO_IP_GGP: Self = Self(6);
    pub const MIB_IPPROTO_HELLO: Self = Self(7);
    pub const PROTO_IP_HELLO: Self = Self(7);
    pub const MIB_IPPROTO_RIP: Self = Self(8);
    pub const PROTO_IP_RIP: Self = Self(8);
    pub const MIB_IPPROTO_IS_IS: Self = Self(9);
    pub const PROTO_IP_IS_IS: Self = Self(9);
    pub const MIB_IPPROTO_ES_IS: Self = Self(10);
    pub const PROTO_IP_ES_IS: Self = Self(10);
    pub const MIB_IPPROTO_CISCO: Self = Self(11);
    pub const PROTO_IP_CISCO: Self = Self(11);
    pub const MIB_IPPROTO_BBN: Self = Self(12);
    pub const PROTO_IP_BBN: Self = Self(12);
    pub const MIB_IPPROTO_OSPF: Self = Self(13);
    pub const PROTO_IP_OSPF: Self = Self(13);
    pub const MIB_IPPROTO_BGP: Self = Self(14);
    pub const PROTO_IP_BGP: Self = Self(14);
    pub const MIB_IPPROTO_IDPR: Self = Self(15);
    pub const PROTO_IP_IDPR: Self = Self(15);
    pub const MIB_IPPROTO_EIGRP: Self = Self(16);
    pub const PROTO_IP_EIGRP: Self = Self(16);
    pub const MIB_IPPROTO_DVMRP: Self = Self(17);
    pub const PROTO_IP_DVMRP: Self = Self(17);
    pub const MIB_IPPROTO_RPL: Self = Self(18);
    pub const PROTO_IP_RPL: Self = Self(18);
    pub const MIB_IPPROTO_DHCP: Self = Self(19);
    pub const PROTO_IP_DHCP: Self = Self(19);
    pub const MIB_IPPROTO_NT_AUTOSTATIC: Self = Self(10002);
    pub const PROTO_IP_NT_AUTOSTATIC: Self = Self(10002);
    pub const MIB_IPPROTO_NT_STATIC: Self = Self(10006);
    pub const PROTO_IP_NT_STATIC: Self = Self(10006);
    pub const MIB_IPPROTO_NT_STATIC_NON_DOD: Self = Self(10007);
    pub const PROTO_IP_NT_STATIC_NON_DOD: Self = Self(10007);
}

/// How a route came to be.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NL_ROUTE_ORIGIN(pub i32);

impl NL_ROUTE_ORIGIN {
    pub const NlroManual: Self = Self(0);
    pub const NlroWellKnown: Self = Self(1);
    pub const NlroDHCP: Self = Self(2);
    pub const NlroRouterAdvertisement: Self = Self(3);
    pub const Nlro6to4: Self = Self(4);
}

/// A route.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MIB_IPFORWARD_ROW2 {
    pub InterfaceLuid: NET_LUID,
    pub InterfaceIndex: NET_IFINDEX,
    pub DestinationPrefix: IP_ADDRESS_PREFIX,
    pub NextHop: SOCKADDR_INET,
    pub SitePrefixLength: u8,
    pub ValidLifetime: u32,
    pub PreferredLifetime: u32,
    pub Metric: u32,
    pub Protocol: NL_ROUTE_PROTOCOL,
    pub Loopback: BOOLEAN,
    pub AutoconfigureAddress: BOOLEAN,
    pub Publish: BOOLEAN,
    pub Immortal: BOOLEAN,
    pub Age: u32,
    pub Origin: NL_ROUTE_ORIGIN,
}

/// Routes; variable length, `Table` is the first.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MIB_IPFORWARD_TABLE2 {
    pub NumEntries: u32,
    pub Table: [MIB_IPFORWARD_ROW2; 1],
}

/// A route has changed.
pub type PIPFORWARD_CHANGE_CALLBACK = unsafe extern "efiapi" fn(
    CallerContext: *mut c_void,
    Row: *mut MIB_IPFORWARD_ROW2,
    NotificationType: MIB_NOTIFICATION_TYPE,
);

#[cfg_attr(all(windows, feature = "kernel"), link(name = "netio"))]
unsafe extern "efiapi" {
    /// IRQL: `<= PASSIVE_LEVEL`.
    pub fn GetBestRoute2(
        InterfaceLuid: *mut NET_LUID,
        InterfaceIndex: NET_IFINDEX,
        SourceAddress: *const SOCKADDR_INET,
        DestinationAddress: *const SOCKADDR_INET,
        AddressSortOptions: u32,
        BestRoute: *mut MIB_IPFORWARD_ROW2,
        BestSourceAddress: *mut SOCKADDR_INET,
    ) -> NTSTATUS;
    /// IRQL: `<= PASSIVE_LEVEL`.
    pub fn GetIpForwardTable2(Family: ADDRESS_FAMILY, Table: *mut *mut MIB_IPFORWARD_TABLE2) -> NTSTATUS;
    /// IRQL: `<= PASSIVE_LEVEL`.
    pub fn NotifyRouteChange2(
        AddressFamily: ADDRESS_FAMILY,
        Callback: Option<PIPFORWARD_CHANGE_CALLBACK>,
        CallerContext: *mut c_void,
        InitialNotification: BOOLEAN,
        NotificationHandle: *mut HANDLE,
    ) -> NTSTATUS;
}
