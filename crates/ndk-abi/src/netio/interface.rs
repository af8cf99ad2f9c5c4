// SPDX-License-Identifier: MIT OR Apache-2.0

//! Interfaces and their identifiers.

use core::ffi::c_void;

use super::ADDRESS_FAMILY;
use crate::nt::{BOOLEAN, GUID, HANDLE, NTSTATUS};

/// Whether routers are looked for.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NL_ROUTER_DISCOVERY_BEHAVIOR(pub i32);

impl NL_ROUTER_DISCOVERY_BEHAVIOR {
    pub const RouterDiscoveryDisabled: Self = Self(0);
    pub const RouterDiscoveryEnabled: Self = Self(1);
    pub const RouterDiscoveryDhcp: Self = Self(2);
    pub const RouterDiscoveryUnchanged: Self = Self(-1);
}

/// When link-local addresses are used.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NL_LINK_LOCAL_ADDRESS_BEHAVIOR(pub i32);

impl NL_LINK_LOCAL_ADDRESS_BEHAVIOR {
    pub const LinkLocalAlwaysOff: Self = Self(0);
    pub const LinkLocalDelayed: Self = Self(1);
    pub const LinkLocalAlwaysOn: Self = Self(2);
    pub const LinkLocalUnchanged: Self = Self(-1);
}

/// An event of a row.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MIB_NOTIFICATION_TYPE(pub i32);

impl MIB_NOTIFICATION_TYPE {
    pub const MibParameterNotification: Self = Self(0);
    pub const MibAddInstance: Self = Self(1);
    pub const MibDeleteInstance: Self = Self(2);
    pub const MibInitialNotification: Self = Self(3);
}

/// Locally unique identifier of a network interface.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NET_LUID {
    pub Value: u64,
}

/// Offload abilities of an interface, one bit each.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NL_INTERFACE_OFFLOAD_ROD {
    _opaque: [u8; 1],
}

/// An interface as IP sees it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MIB_IPINTERFACE_ROW {
    pub Family: ADDRESS_FAMILY,
    pub InterfaceLuid: NET_LUID,
    pub InterfaceIndex: NET_IFINDEX,
    pub MaxReassemblySize: u32,
    pub InterfaceIdentifier: u64,
    pub MinRouterAdvertisementInterval: u32,
    pub MaxRouterAdvertisementInterval: u32,
    pub AdvertisingEnabled: BOOLEAN,
    pub ForwardingEnabled: BOOLEAN,
    pub WeakHostSend: BOOLEAN,
    pub WeakHostReceive: BOOLEAN,
    pub UseAutomaticMetric: BOOLEAN,
    pub UseNeighborUnreachabilityDetection: BOOLEAN,
    pub ManagedAddressConfigurationSupported: BOOLEAN,
    pub OtherStatefulConfigurationSupported: BOOLEAN,
    pub AdvertiseDefaultRoute: BOOLEAN,
    pub RouterDiscoveryBehavior: NL_ROUTER_DISCOVERY_BEHAVIOR,
    pub DadTransmits: u32,
    pub BaseReachableTime: u32,
    pub RetransmitTime: u32,
    pub PathMtuDiscoveryTimeout: u32,
    pub LinkLocalAddressBehavior: NL_LINK_LOCAL_ADDRESS_BEHAVIOR,
    pub LinkLocalAddressTimeout: u32,
    pub ZoneIndices: [u32; 16],
    pub SitePrefixLength: u32,
    pub Metric: u32,
    pub NlMtu: u32,
    pub Connected: BOOLEAN,
    pub SupportsWakeUpPatterns: BOOLEAN,
    pub SupportsNeighborDiscovery: BOOLEAN,
    pub SupportsRouterDiscovery: BOOLEAN,
    pub ReachableTime: u32,
    pub TransmitOffload: NL_INTERFACE_OFFLOAD_ROD,
    pub ReceiveOffload: NL_INTERFACE_OFFLOAD_ROD,
    pub DisableDefaultRoutes: BOOLEAN,
}

/// An interface has changed.
pub type PIPINTERFACE_CHANGE_CALLBACK = unsafe extern "efiapi" fn(
    CallerContext: *mut c_void,
    Row: *mut MIB_IPINTERFACE_ROW,
    NotificationType: MIB_NOTIFICATION_TYPE,
);

#[cfg_attr(all(windows, feature = "kernel"), link(name = "netio"))]
unsafe extern "efiapi" {
    /// IRQL: `<= PASSIVE_LEVEL`.
    pub fn ConvertInterfaceGuidToLuid(InterfaceGuid: *const GUID, InterfaceLuid: *mut NET_LUID) -> NTSTATUS;
    /// IRQL: `<= PASSIVE_LEVEL`.
    pub fn ConvertInterfaceLuidToGuid(InterfaceLuid: *const NET_LUID, InterfaceGuid: *mut GUID) -> NTSTATUS;
    /// IRQL: `<= PASSIVE_LEVEL`.
    pub fn ConvertInterfaceIndexToLuid(InterfaceIndex: NET_IFINDEX, InterfaceLuid: *mut NET_LUID)
    -> NTSTATUS;
    /// IRQL: `<= PASSIVE_LEVEL`.
    pub fn ConvertInterfaceLuidToIndex(
        InterfaceLuid: *const NET_LUID,
        InterfaceIndex: *mut NET_IFINDEX,
    ) -> NTSTATUS;
    /// `Length` in characters, the terminating zero included.
    ///
    /// IRQL: `<= PASSIVE_LEVEL`.
    pub fn ConvertInterfaceLuidToAlias(
        InterfaceLuid: *const NET_LUID,
        InterfaceAlias: *mut u16,
        Length: usize,
    ) -> NTSTATUS;
    /// IRQL: `<= PASSIVE_LEVEL`.
    pub fn GetIpInterfaceEntry(Row: *mut MIB_IPINTERFACE_ROW) -> NTSTATUS;
    /// IRQL: `<= PASSIVE_LEVEL`.
    pub fn InitializeIpInterfaceEntry(Row: *mut MIB_IPINTERFACE_ROW);
    /// IRQL: `<= PASSIVE_LEVEL`.
    pub fn NotifyIpInterfaceChange(
        Family: ADDRESS_FAMILY,
        Callback: Option<PIPINTERFACE_CHANGE_CALLBACK>,
        CallerContext: *mut c_void,
        InitialNotification: BOOLEAN,
        NotificationHandle: *mut HANDLE,
    ) -> NTSTATUS;
    /// IRQL: `<= PASSIVE_LEVEL`.
    pub fn CancelMibChangeNotify2(NotificationHandle: HANDLE) -> NTSTATUS;
    /// IRQL: `< DISPATCH_LEVEL`.
    pub fn FreeMibTable(Memory: *mut c_void);
}
/// Index of an interface; 0 means none.
pub type NET_IFINDEX = u32;
/// Maximum length of an interface's name or description, in characters without the terminating zero.
pub const NDIS_IF_MAX_STRING_SIZE: u32 = 256;
