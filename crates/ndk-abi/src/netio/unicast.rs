// SPDX-License-Identifier: MIT OR Apache-2.0

//! Local unicast addresses.

use core::ffi::c_void;

use super::{ADDRESS_FAMILY, MIB_NOTIFICATION_TYPE, NET_IFINDEX, NET_LUID, SCOPE_ID, SOCKADDR_INET};
use crate::nt::{BOOLEAN, HANDLE, LARGE_INTEGER, NTSTATUS};

/// Where the prefix of an address comes from.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NL_PREFIX_ORIGIN(pub i32);

impl NL_PREFIX_ORIGIN {
    pub const IpPrefixOriginOther: Self = Self(0);
    pub const IpPrefixOriginManual: Self = Self(1);
    pub const IpPrefixOriginWellKnown: Self = Self(2);
    pub const IpPrefixOriginDhcp: Self = Self(3);
    pub const IpPrefixOriginRouterAdvertisement: Self = Self(4);
    pub const IpPrefixOriginUnchanged: Self = Self(16);
}

/// Where the rest of an address comes from.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NL_SUFFIX_ORIGIN(pub i32);

impl NL_SUFFIX_ORIGIN {
    pub const NlsoOther: Self = Self(0);
    pub const NlsoManual: Self = Self(1);
    pub const NlsoWellKnown: Self = Self(2);
    pub const NlsoDhcp: Self = Self(3);
    pub const NlsoLinkLayerAddress: Self = Self(4);
    pub const NlsoRandom: Self = Self(5);
    pub const IpSuffixOriginOther: Self = Self(0);
    pub const IpSuffixOriginManual: Self = Self(1);
    pub const IpSuffixOriginWellKnown: Self = Self(2);
    pub const IpSuffixOriginDhcp: Self = Self(3);
    pub const IpSuffixOriginLinkLayerAddress: Self = Self(4);
    pub const IpSuffixOriginRandom: Self = Self(5);
    pub const IpSuffixOriginUnchanged: Self = Self(16);
}

/// How far duplicate address detection has come; only preferred addresses are good for new connections.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NL_DAD_STATE(pub i32);

impl NL_DAD_STATE {
    pub const NldsInvalid: Self = Self(0);
    pub const NldsTentative: Self = Self(1);
    pub const NldsDuplicate: Self = Self(2);
    pub const NldsDeprecated: Self = Self(3);
    pub const NldsPreferred: Self = Self(4);
    pub const IpDadStateInvalid: Self = Self(0);
    pub const IpDadStateTentative: Self = Self(1);
    pub const IpDadStateDuplicate: Self = Self(2);
    pub const IpDadStateDeprecated: Self = Self(3);
    pub const IpDadStatePreferred: Self = Self(4);
}

/// A local address. Lifetimes in seconds.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MIB_UNICASTIPADDRESS_ROW {
    pub Address: SOCKADDR_INET,
    pub InterfaceLuid: NET_LUID,
    pub InterfaceIndex: NET_IFINDEX,
    pub PrefixOrigin: NL_PREFIX_ORIGIN,
    pub SuffixOrigin: NL_SUFFIX_ORIGIN,
    pub ValidLifetime: u32,
    pub PreferredLifetime: u32,
    pub OnLinkPrefixLength: u8,
    pub SkipAsSource: BOOLEAN,
    pub DadState: NL_DAD_STATE,
    pub ScopeId: SCOPE_ID,
    pub CreationTimeStamp: LARGE_INTEGER,
}

/// Local addresses; variable length, `Table` is the first.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MIB_UNICASTIPADDRESS_TABLE {
    pub NumEntries: u32,
    pub Table: [MIB_UNICASTIPADDRESS_ROW; 1],
}

/// A local address has changed.
pub type PUNICAST_IPADDRESS_CHANGE_CALLBACK = unsafe extern "efiapi" fn(
    CallerContext: *mut c_void,
    Row: *mut MIB_UNICASTIPADDRESS_ROW,
    NotificationType: MIB_NOTIFICATION_TYPE,
);

#[cfg_attr(all(windows, feature = "kernel"), link(name = "netio"))]
unsafe extern "efiapi" {
    /// IRQL: `<= PASSIVE_LEVEL`.
    pub fn GetUnicastIpAddressTable(
        Family: ADDRESS_FAMILY,
        Table: *mut *mut MIB_UNICASTIPADDRESS_TABLE,
    ) -> NTSTATUS;
    /// IRQL: `<= PASSIVE_LEVEL`.
    pub fn GetUnicastIpAddressEntry(Row: *mut MIB_UNICASTIPADDRESS_ROW) -> NTSTATUS;
    /// IRQL: `<= PASSIVE_LEVEL`.
    pub fn InitializeUnicastIpAddressEntry(Row: *mut MIB_UNICASTIPADDRESS_ROW);
    /// IRQL: `<= PASSIVE_LEVEL`.
    pub fn NotifyUnicastIpAddressChange(
        Family: ADDRESS_FAMILY,
        Callback: Option<PUNICAST_IPADDRESS_CHANGE_CALLBACK>,
        CallerContext: *mut c_void,
        InitialNotification: BOOLEAN,
        NotificationHandle: *mut HANDLE,
    ) -> NTSTATUS;
}
