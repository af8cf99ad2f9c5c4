// SPDX-License-Identifier: MIT OR Apache-2.0

//! Neighbors: link-layer addresses of IP addresses.

use super::{ADDRESS_FAMILY, NET_IFINDEX, NET_LUID, SOCKADDR_INET};
use crate::nt::NTSTATUS;

/// How sure the system is of a neighbor.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NL_NEIGHBOR_STATE(pub i32);

impl NL_NEIGHBOR_STATE {
    pub const NlnsUnreachable: Self = Self(0);
    pub const NlnsIncomplete: Self = Self(1);
    pub const NlnsProbe: Self = Self(2);
    pub const NlnsDelay: Self = Self(3);
    pub const NlnsStale: Self = Self(4);
    pub const NlnsReachable: Self = Self(5);
    pub const NlnsPermanent: Self = Self(6);
    pub const NlnsMaximum: Self = Self(7);
}

/// A neighbor: the link-layer address of an IP address on an interface. `Flags`: bit 0 router, bit 1 unreachable.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MIB_IPNET_ROW2 {
    pub Address: SOCKADDR_INET,
    pub InterfaceIndex: NET_IFINDEX,
    pub InterfaceLuid: NET_LUID,
    pub PhysicalAddress: [u8; 32],
    pub PhysicalAddressLength: u32,
    pub State: NL_NEIGHBOR_STATE,
    pub Flags: u8,
    pub ReachabilityTime: MIB_IPNET_ROW2_ReachabilityTime,
}

/// Milliseconds since the neighbor was last found reachable, or unreachable.
#[repr(C)]
#[derive(Clone, Copy)]
pub union MIB_IPNET_ROW2_ReachabilityTime {
    pub LastReachable: u32,
    pub LastUnreachable: u32,
}

/// Neighbors; variable length, `Table` is the first.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MIB_IPNET_TABLE2 {
    pub NumEntries: u32,
    pub Table: [MIB_IPNET_ROW2; 1],
}

#[cfg_attr(all(windows, feature = "kernel"), link(name = "netio"))]
unsafe extern "efiapi" {
    /// IRQL: `<= PASSIVE_LEVEL`.
    pub fn GetIpNetEntry2(Row: *mut MIB_IPNET_ROW2) -> NTSTATUS;
    /// IRQL: `<= PASSIVE_LEVEL`.
    pub fn ResolveIpNetEntry2(Row: *mut MIB_IPNET_ROW2, SourceAddress: *const SOCKADDR_INET) -> NTSTATUS;
    /// IRQL: `<= PASSIVE_LEVEL`.
    pub fn GetIpNetTable2(Family: ADDRESS_FAMILY, Table: *mut *mut MIB_IPNET_TABLE2) -> NTSTATUS;
    /// IRQL: `<= PASSIVE_LEVEL`.
    pub fn FlushIpNetTable2(Family: ADDRESS_FAMILY, InterfaceIndex: NET_IFINDEX) -> NTSTATUS;
}
