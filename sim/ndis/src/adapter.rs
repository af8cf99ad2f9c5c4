// SPDX-License-Identifier: MIT OR Apache-2.0

//! One adapter: its states, and the attributes the miniport set. (windows-packaging §8.1, §8.2)

use std::{
    fmt,
    sync::{Arc, atomic::AtomicU64},
};

use ndk_abi::{
    ndis::{
        NDIS_GUID, NDIS_MINIPORT_ADAPTER_ATTRIBUTES, NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES,
        NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES, NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES_REVISION_1,
        NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES, NDIS_OBJECT_HEADER, NDIS_OBJECT_TYPE_DEFAULT,
        NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES,
        NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_HARDWARE_ASSIST_ATTRIBUTES,
        NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_NDK_ATTRIBUTES,
        NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_OFFLOAD_ATTRIBUTES,
        NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES, NDIS_OID, NDIS_PM_CAPABILITIES_REVISION_1,
        NDIS_PM_CAPABILITIES_REVISION_2, NDIS_SIZEOF_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES_REVISION_2,
        NDIS_SIZEOF_MINIPORT_ADAPTER_NDK_ATTRIBUTES_REVISION_1,
        NDIS_SIZEOF_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES_REVISION_1,
        NDIS_SIZEOF_NDIS_PM_CAPABILITIES_REVISION_1, NDIS_SIZEOF_NDIS_PM_CAPABILITIES_REVISION_2,
        NDIS_STATUS, NDIS_STATUS_NOT_SUPPORTED, NDIS_STATUS_PENDING, NDIS_STATUS_SUCCESS,
    },
    ndk::{
        NDIS_NDK_CAPABILITIES, NDIS_NDK_CAPABILITIES_REVISION_1, NDIS_SIZEOF_NDK_CAPABILITIES_REVISION_1,
        NDK_ADAPTER_INFO,
    },
};
use parking_lot::Mutex;

use device_sim::PciFunction;
use nt_sim::{Event, Host, Tolerance, current, guest::Guest, imports, services::Slot, thread::ThreadId};

use crate::{
    coalescing,
    driver::Driver,
    filter_module::FilterModule,
    handle,
    hang_state::Hang,
    in_flight::InFlight,
    interface::Interface,
    link::Link,
    ndk_state::NdkState,
    offload::{AdapterOffloads, Offloads},
    pending_oids::{PendingOids, Turn},
    removal_request::RemovalRequest,
    rss::{Rss, RssCapabilities},
    rules::{self, broken, require},
};

/// The adapters of a host, in the order they were started.
pub(crate) static ADAPTERS: Slot<Mutex<Vec<Arc<Adapter>>>> = Slot::new();

/// Returns the adapters of a host, in the order they were started.
pub(crate) fn adapters(host: &Host) -> Vec<Arc<Adapter>> {
    host.state(&ADAPTERS).lock().clone()
}

/// States of an adapter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AdapterState {
    Halted,
    Initializing,
    Paused,
    Restarting,
    Running,
    Pausing,
}

impl fmt::Display for AdapterState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Halted => "Halted",
            Self::Initializing => "Initializing",
            Self::Paused => "Paused",
            Self::Restarting => "Restarting",
            Self::Running => "Running",
            Self::Pausing => "Pausing",
        };
        f.write_str(name)
    }
}

/// The attributes that a miniport set for an adapter.
#[derive(Clone, Copy, Default)]
pub struct Attributes {
    pub registration: Option<NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES>,
    pub general: Option<NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES>,
    /// Whether RDMA is enabled, the NDK capabilities, and the limits of an adapter.
    pub ndk: Option<(bool, NDIS_NDK_CAPABILITIES, NDK_ADAPTER_INFO)>,
    /// Where the miniport keeps the NDK capabilities and the limits that they point to, and the bytes of both.
    kept: Option<(Guest<CapabilityBytes>, CapabilityBytes, Guest<InfoBytes>, InfoBytes)>,
}

type CapabilityBytes = [u8; size_of::<NDIS_NDK_CAPABILITIES>()];
type InfoBytes = [u8; size_of::<NDK_ADAPTER_INFO>()];

// SAFETY: copies of structures; the pointers in them are not dereferenced.
unsafe impl Send for Attributes {}

/// One adapter of the driver.
pub struct Adapter {
    pub handle: usize,
    /// The handle of the binding of the protocol drivers to the adapter: the source of what they send.
    pub(crate) binding: usize,
    pub driver: Arc<Driver>,
    pub nic: Arc<dyn PciFunction>,
    pub interface: Arc<Interface>,
    /// Index of the network interface.
    pub if_index: u32,
    pub(crate) state: Mutex<AdapterState>,
    pub(crate) attributes: Mutex<Attributes>,
    /// The OIDs that the miniport says it supports.
    pub(crate) oids: Mutex<Vec<NDIS_OID>>,
    /// Set when a pended pause or restart is completed.
    pub(crate) transition: Event,
    pub(crate) transition_status: Mutex<NDIS_STATUS>,
    /// The thread that is inside MiniportOidRequest.
    pub(crate) in_oid: Mutex<Option<ThreadId>>,
    /// The custom GUIDs that the miniport has.
    pub(crate) guids: Mutex<Vec<NDIS_GUID>>,
    /// The right to send an OID request from above all filter modules, and to the miniport.
    pub(crate) stack_oid: Turn,
    pub(crate) miniport_oid: Turn,
    /// Address of the request in progress, until it is completed.
    pub(crate) oid_request: Mutex<usize>,
    pub(crate) oid_done: Event,
    pub(crate) oid_status: Mutex<NDIS_STATUS>,
    pub(crate) direct_oids: PendingOids,
    /// Taken by a PnP or power transition.
    pub(crate) pnp: Turn,
    /// The removal that the miniport asks for.
    pub removal: RemovalRequest,
    pub(crate) ndk: NdkState,
    pub(crate) data_path: InFlight,
    /// The filter modules above the miniport, the lowest one first. Changed while the adapter is paused.
    pub(crate) filters: Mutex<Vec<Arc<FilterModule>>>,
    pub(crate) offloads: Mutex<AdapterOffloads>,
    pub(crate) rss: Mutex<Rss>,
    /// Number of calls of NdisPoll.
    pub(crate) polls: AtomicU64,
    /// Number of lists that each of its poll objects has indicated, in the order of their registration.
    pub(crate) polled: Mutex<Vec<Arc<AtomicU64>>>,
    pub(crate) hang: Hang,
    /// Statuses that the miniport indicated by NdisMIndicateStatusEx.
    pub(crate) indications: Mutex<Vec<StatusIndication>>,
    /// Statuses that have reached the protocol drivers.
    pub(crate) statuses: Mutex<Vec<StatusIndication>>,
}

/// A status that the miniport indicated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StatusIndication {
    pub code: NDIS_STATUS,
    /// The contents of the status buffer.
    pub buffer: Vec<u8>,
}

impl Attributes {
    /// Returns the station address that the driver has stated.
    #[must_use]
    pub fn station(&self) -> Option<[u8; 6]> {
        self.general.and_then(|general| general.CurrentMacAddress.first_chunk().copied())
    }

    /// Returns whether the registration attributes have these flags.
    pub(crate) fn has_flags(&self, flags: u32) -> bool {
        self.registration.is_some_and(|registration| registration.AttributeFlags & flags == flags)
    }
}

impl Adapter {
    pub(crate) fn new(
        host: &Host,
        handle: usize,
        binding: usize,
        driver: Arc<Driver>,
        interface: Arc<Interface>,
    ) -> Self {
        Self {
            handle,
            binding,
            driver,
            nic: interface.nic.clone(),
            if_index: interface.index(),
            interface,
            state: Mutex::new(AdapterState::Initializing),
            attributes: Mutex::default(),
            oids: Mutex::default(),
            transition: host.event(),
            transition_status: Mutex::new(NDIS_STATUS_PENDING),
            in_oid: Mutex::new(None),
            guids: Mutex::default(),
            stack_oid: Turn::default(),
            miniport_oid: Turn::default(),
            oid_request: Mutex::new(0),
            oid_done: host.event(),
            oid_status: Mutex::new(NDIS_STATUS_PENDING),
            direct_oids: PendingOids::default(),
            pnp: Turn::default(),
            removal: RemovalRequest::default(),
            ndk: NdkState::new(host),
            data_path: InFlight::new(host),
            filters: Mutex::default(),
            offloads: Mutex::default(),
            rss: Mutex::default(),
            polls: AtomicU64::new(0),
            polled: Mutex::default(),
            hang: Hang::new(host),
            indications: Mutex::default(),
            statuses: Mutex::default(),
        }
    }

    #[must_use]
    pub fn state(&self) -> AdapterState {
        *self.state.lock()
    }

    #[must_use]
    pub fn attributes(&self) -> Attributes {
        *self.attributes.lock()
    }

    /// Returns the miniport's context for the adapter.
    #[must_use]
    pub fn context(&self) -> usize {
        let attributes = self.attributes.lock();
        attributes.registration.map_or(0, |attributes| attributes.MiniportAdapterContext.addr())
    }

    /// Returns the filter modules above the miniport, the lowest one first.
    pub(crate) fn filters(&self) -> Vec<Arc<FilterModule>> {
        self.filters.lock().clone()
    }

    /// Returns the service names of the filter drivers with a module above the miniport, the lowest one first.
    #[must_use]
    pub fn filter_services(&self) -> Vec<String> {
        self.filters().iter().map(|module| module.driver.service.clone()).collect()
    }

    pub(crate) fn require_state(&self, what: &str, allowed: &[AdapterState]) {
        let state = self.state();
        require(allowed.contains(&state), rules::STATES, || format!("{what} was called in state {state}"));
    }

    fn set_registration(&self, from: Guest<NDIS_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES>) -> NDIS_STATUS {
        let attributes = from.read();
        require(
            attributes.Header.Size >= NDIS_SIZEOF_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES_REVISION_1,
            rules::HEADER,
            || {
                format!(
                    "NdisMSetMiniportAttributes: registration attributes of {} bytes are shorter than revision 1",
                    attributes.Header.Size
                )
            },
        );
        if self.attributes().registration.is_some() {
            self.driver.undocumented(
                current().host(),
                Tolerance::AttributesTwice,
                "NdisMSetMiniportAttributes: the registration attributes were set twice",
            );
        }
        require(!attributes.MiniportAdapterContext.is_null(), rules::CONTEXT, || {
            "NdisMSetMiniportAttributes: MiniportAdapterContext is null".into()
        });
        self.attributes.lock().registration = Some(attributes);
        NDIS_STATUS_SUCCESS
    }

    fn set_general(&self, from: Guest<NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES>) -> NDIS_STATUS {
        let attributes = from.read();
        require(
            attributes.Header.Size >= NDIS_SIZEOF_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES_REVISION_2,
            rules::HEADER,
            || {
                format!(
                    "NdisMSetMiniportAttributes: general attributes of {} bytes; NDIS 6.20 and later require revision 2",
                    attributes.Header.Size
                )
            },
        );
        let complete = attributes.MtuSize != 0
            && attributes.MacAddressLength == 6
            && attributes.MaxXmitLinkSpeed != 0
            && attributes.MaxRcvLinkSpeed != 0
            && attributes.SupportedPacketFilters != 0;
        require(complete, rules::GENERAL, || {
            "NdisMSetMiniportAttributes: the general attributes lack MTU, MAC address, link speed or packet filters".into()
        });
        Link::of_attributes(&attributes).check(&self.driver);
        let oids = attributes.SupportedOidListLength;
        require(
            oids > 0 && oids.is_multiple_of(4) && !attributes.SupportedOidList.is_null(),
            rules::OIDS,
            || {
                format!(
                    "NdisMSetMiniportAttributes: SupportedOidListLength is {oids}, or SupportedOidList is null"
                )
            },
        );
        if !attributes.PowerManagementCapabilitiesEx.is_null() {
            self.check_power(Guest::new(attributes.PowerManagementCapabilitiesEx).cast());
        }
        if !attributes.RecvScaleCapabilities.is_null() {
            let capabilities = RssCapabilities::read(
                attributes.RecvScaleCapabilities,
                self.driver.characteristics.MinorNdisVersion,
            );
            self.rss.lock().capabilities = Some(capabilities);
        }
        let list = Guest::new(attributes.SupportedOidList);
        *self.oids.lock() = (0..oids as usize / 4).map(|index| list.add(index).read()).collect();
        self.attributes.lock().general = Some(attributes);
        NDIS_STATUS_SUCCESS
    }

    /// Checks the revision of the power management capabilities, which depends on the version that the driver registered.
    fn check_power(&self, capabilities: Guest<NDIS_OBJECT_HEADER>) {
        let power = capabilities.read();
        let is_later = self.driver.characteristics.MinorNdisVersion >= 30;
        let (revision, size) = if is_later {
            (NDIS_PM_CAPABILITIES_REVISION_2, NDIS_SIZEOF_NDIS_PM_CAPABILITIES_REVISION_2)
        } else {
            (NDIS_PM_CAPABILITIES_REVISION_1, NDIS_SIZEOF_NDIS_PM_CAPABILITIES_REVISION_1)
        };
        let given = (power.Type, power.Revision, power.Size);
        let first = (
            NDIS_OBJECT_TYPE_DEFAULT,
            NDIS_PM_CAPABILITIES_REVISION_1,
            NDIS_SIZEOF_NDIS_PM_CAPABILITIES_REVISION_1,
        );
        if is_later && given == first {
            // The WDK's page says which version has added what, and not that a driver has to use it.
            self.driver.undocumented(
                current().host(),
                Tolerance::PowerRevision,
                "a driver of NDIS 6.30 or later has revision 1 of NDIS_PM_CAPABILITIES",
            );
            return;
        }
        let is_right = given == (NDIS_OBJECT_TYPE_DEFAULT, revision, size);
        require(is_right, rules::HEADER, || {
            format!(
                "NDIS_PM_CAPABILITIES of revision {} and {} bytes; NDIS 6.30 has revision 2, NDIS 6.20 revision 1",
                power.Revision, power.Size
            )
        });
    }

    //= R-OPEN-4
    //= R-OPEN-5
    //= R-OPEN-7
    fn set_ndk(&self, from: Guest<NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES>) -> NDIS_STATUS {
        let attributes = from.read();
        require(
            attributes.Header.Revision == NDIS_MINIPORT_ADAPTER_NDK_ATTRIBUTES_REVISION_1
                && attributes.Header.Size == NDIS_SIZEOF_MINIPORT_ADAPTER_NDK_ATTRIBUTES_REVISION_1,
            rules::HEADER,
            || format!("NDK attributes of {} bytes", attributes.Header.Size),
        );
        require(!attributes.NdkCapabilities.is_null(), rules::NDK_ATTRIBUTES, || {
            "NDK attributes without capabilities".into()
        });
        let capabilities = Guest::new(attributes.NdkCapabilities).read();
        let header = capabilities.Header;
        require(
            header.Type == NDIS_OBJECT_TYPE_DEFAULT
                && header.Revision == NDIS_NDK_CAPABILITIES_REVISION_1
                && header.Size == NDIS_SIZEOF_NDK_CAPABILITIES_REVISION_1
                && capabilities.Flags == 0,
            rules::HEADER,
            || format!("NDK capabilities with type {:#x}, size {}", header.Type, header.Size),
        );
        require(!capabilities.NdkInfo.is_null(), rules::NDK_ATTRIBUTES, || {
            "NDK capabilities without adapter information".into()
        });
        let info = Guest::new(capabilities.NdkInfo).read();
        let kept: (Guest<CapabilityBytes>, Guest<InfoBytes>) =
            (Guest::new(attributes.NdkCapabilities).cast(), Guest::new(capabilities.NdkInfo).cast());
        let bytes = (kept.0.read(), kept.1.read());
        let mut set = self.attributes.lock();
        set.ndk = Some((attributes.Enabled != 0, capabilities, info));
        set.kept = Some((kept.0, bytes.0, kept.1, bytes.1));
        NDIS_STATUS_SUCCESS
    }

    /// Reads the NDK capabilities again. Nothing says that NDIS copies them, so it may do that until the adapter is
    /// halted.
    //= R-INFO-11
    pub(crate) fn recheck_ndk_capabilities(&self) {
        let Some((capabilities, were, info, was)) = self.attributes().kept else { return };
        if capabilities.read() != were || info.read() != was {
            self.driver.undocumented(current().host(), Tolerance::ChangedCapabilities, "the NDK capabilities, or the adapter information that they point to, were changed or freed while the \
                        adapter exists");
        }
    }

    fn set_attributes(&self, from: Guest<NDIS_MINIPORT_ADAPTER_ATTRIBUTES>) -> NDIS_STATUS {
        self.require_state("NdisMSetMiniportAttributes", &[AdapterState::Initializing]);
        let header: NDIS_OBJECT_HEADER = from.field(0).read();
        let registration = NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES;
        require(
            header.Type == registration || self.attributes().registration.is_some(),
            rules::ATTRIBUTES_FIRST,
            || {
                format!(
                    "NdisMSetMiniportAttributes: attributes of type {:#x} were set before the registration attributes",
                    header.Type
                )
            },
        );
        match header.Type {
            NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_REGISTRATION_ATTRIBUTES => self.set_registration(from.cast()),
            NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES => self.set_general(from.cast()),
            NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_NDK_ATTRIBUTES => self.set_ndk(from.cast()),
            NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_OFFLOAD_ATTRIBUTES => {
                let minor = self.driver.characteristics.MinorNdisVersion;
                let offloads = AdapterOffloads::new(Offloads::of_attributes(from.cast(), minor));
                coalescing::require_oid(&offloads.possible, &self.oids.lock());
                *self.offloads.lock() = offloads;
                NDIS_STATUS_SUCCESS
            }
            NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_HARDWARE_ASSIST_ATTRIBUTES => NDIS_STATUS_SUCCESS,
            _ => NDIS_STATUS_NOT_SUPPORTED,
        }
    }

    fn end_transition(&self, what: &str, status: NDIS_STATUS) {
        let pending = std::mem::replace(&mut *self.transition_status.lock(), status) == NDIS_STATUS_PENDING;
        if !pending || self.transition.is_set() {
            broken(rules::TRANSITION_COMPLETED, format!("{what} was called twice, or nothing is pending"));
        }
        self.transition.set();
    }
}

/// Returns the adapter of a miniport adapter handle. Any other value is a violation.
pub(crate) fn adapter(handle: usize) -> Arc<Adapter> {
    handle::object("miniport adapter handle", handle)
}

imports! { IMPORTS: "ndis.sys" =>
    /// Sets attributes of the adapter, during initialization.
    [== PASSIVE_LEVEL]
    fn NdisMSetMiniportAttributes(handle: usize, attributes: Guest<NDIS_MINIPORT_ADAPTER_ATTRIBUTES>) -> NDIS_STATUS {
        adapter(handle).set_attributes(attributes)
    }

    /// Completes a pause that pended.
    [<= DISPATCH_LEVEL]
    fn NdisMPauseComplete(handle: usize) {
        let adapter = adapter(handle);
        adapter.require_state("NdisMPauseComplete", &[AdapterState::Pausing]);
        adapter.data_path.require_no_indication("NdisMPauseComplete");
        adapter.end_transition("NdisMPauseComplete", NDIS_STATUS_SUCCESS);
    }

    /// Completes a restart that pended.
    [<= DISPATCH_LEVEL]
    fn NdisMRestartComplete(handle: usize, status: NDIS_STATUS) {
        let adapter = adapter(handle);
        adapter.require_state("NdisMRestartComplete", &[AdapterState::Restarting]);
        adapter.end_transition("NdisMRestartComplete", status);
    }
}
