// SPDX-License-Identifier: MIT OR Apache-2.0

//! The task offloads of an adapter: those that the device supports, those in force, and the OIDs that change them.

use core::sync::atomic::{AtomicU32, Ordering};

#[allow(clippy::wildcard_imports, reason = "a screen of structures and constants otherwise")]
use ndk_abi::ndis::*;
use virtio_net::Features;

use super::offload_set::TaskOffloads;
use super::status_indication;
use crate::config::OffloadKeywords;

/// Lengths in bytes of `NDIS_OFFLOAD_PARAMETERS`: of revision 1, and with all members that the driver uses. The last
/// two members are `UdpSegmentation`, which revision 5 added.
pub const PARAMETERS_LEN: usize = NDIS_SIZEOF_OFFLOAD_PARAMETERS_REVISION_1 as usize;
pub const LONGEST_PARAMETERS: usize = 34;
/// Offset of `RscIPv4` in that structure, in bytes.
const PARAMETERS_RSC: usize = 22;

/// The task offloads of an adapter.
pub struct OffloadState {
    possible: TaskOffloads,
    /// Set by keywords and `OID_TCP_OFFLOAD_PARAMETERS`.
    configured: AtomicU32,
    /// Receive offloads that `OID_OFFLOAD_ENCAPSULATION` has started.
    started: AtomicU32,
    /// Offloads of the IP versions for which `OID_OFFLOAD_ENCAPSULATION` has stopped them.
    stopped: AtomicU32,
}

impl OffloadState {
    pub fn new(features: Features, keywords: &OffloadKeywords) -> Self {
        let possible = TaskOffloads::of_device(features);
        let configured = possible.and(TaskOffloads::of_keywords(keywords));
        Self {
            possible,
            configured: AtomicU32::new(configured.0),
            started: AtomicU32::new(0),
            stopped: AtomicU32::new(0),
        }
    }

    /// Whether the device completes checksums of sent frames.
    pub fn completes_checksums(&self) -> bool {
        self.possible.has(TaskOffloads::ALL_SENDS)
    }

    /// Returns the offloads in force.
    pub fn current(&self) -> TaskOffloads {
        let stopped = TaskOffloads(self.stopped.load(Ordering::Relaxed));
        TaskOffloads(self.configured.load(Ordering::Relaxed)).without(stopped).consistent()
    }

    /// Returns the receive offloads in force, which the stack has started.
    pub fn current_receives(&self) -> TaskOffloads {
        self.current().and(TaskOffloads(self.started.load(Ordering::Relaxed)))
    }

    /// Whether the device can coalesce received TCP segments.
    pub fn can_coalesce(&self) -> bool {
        self.possible.has(TaskOffloads::COALESCING4) || self.possible.has(TaskOffloads::COALESCING6)
    }

    /// Returns whether received TCP segments are to be coalesced, for IPv4 and for IPv6.
    pub fn coalescing(&self) -> [bool; 2] {
        let current = self.current_receives();
        [TaskOffloads::COALESCING4, TaskOffloads::COALESCING6].map(|of| current.has(of))
    }

    /// Returns the possible offloads, for the offload attributes.
    pub fn describe_possible(&self) -> NDIS_OFFLOAD {
        self.possible.describe()
    }

    /// Returns the offloads in force.
    pub fn describe_current(&self) -> NDIS_OFFLOAD {
        self.current().describe()
    }

    /// `OID_TCP_OFFLOAD_PARAMETERS`: changes the configured offloads. Members that the request lacks are 0, which changes nothing. The
    /// caller [indicates](Self::indicate) the change. `PASSIVE_LEVEL`.
    pub fn set_parameters(&self, parameters: &[u8; LONGEST_PARAMETERS]) -> NDIS_STATUS {
        let &[kind, revision, _, _, ip4, tcp4, udp4, tcp6, udp6, others @ ..] = parameters;
        let [lso1, ipsec, lso4, lso6, connection4, connection6, ..] = others;
        let [uso4, uso6] = match parameters.last_chunk() {
            Some(&uso) if revision >= NDIS_OFFLOAD_PARAMETERS_REVISION_5 => uso,
            _ => [NDIS_OFFLOAD_PARAMETERS_NO_CHANGE; 2],
        };
        if kind != NDIS_OBJECT_TYPE_DEFAULT || revision < NDIS_OFFLOAD_PARAMETERS_REVISION_1 {
            return NDIS_STATUS_INVALID_DATA;
        }
        let mut changed = TaskOffloads(self.configured.load(Ordering::Relaxed));
        for (number, value) in [ip4, tcp4, udp4, tcp6, udp6].into_iter().enumerate() {
            let (send, receive) = TaskOffloads::checksum(number);
            let (sends, receives) = match value {
                NDIS_OFFLOAD_PARAMETERS_NO_CHANGE => continue,
                NDIS_OFFLOAD_PARAMETERS_TX_RX_DISABLED => (false, false),
                NDIS_OFFLOAD_PARAMETERS_TX_ENABLED_RX_DISABLED => (true, false),
                NDIS_OFFLOAD_PARAMETERS_RX_ENABLED_TX_DISABLED => (false, true),
                NDIS_OFFLOAD_PARAMETERS_TX_RX_ENABLED => (true, true),
                _ => return NDIS_STATUS_INVALID_DATA,
            };
            changed = changed.set(send, sends).set(receive, receives);
        }
        // Revision 3 added `RscIPv4` and `RscIPv6`.
        let [rsc4, rsc6] = match parameters.get(PARAMETERS_RSC..).and_then(<[u8]>::first_chunk) {
            Some(&rsc) if revision >= NDIS_OFFLOAD_PARAMETERS_REVISION_3 => rsc,
            _ => [NDIS_OFFLOAD_PARAMETERS_NO_CHANGE; 2],
        };
        let switched = [
            (TaskOffloads::LARGE_SEND4, lso4),
            (TaskOffloads::LARGE_SEND6, lso6),
            (TaskOffloads::UDP_SEGMENTATION4, uso4),
            (TaskOffloads::UDP_SEGMENTATION6, uso6),
            (TaskOffloads::COALESCING4, rsc4),
            (TaskOffloads::COALESCING6, rsc6),
        ];
        // All members have the same values.
        const {
            assert!(NDIS_OFFLOAD_PARAMETERS_USO_DISABLED == NDIS_OFFLOAD_PARAMETERS_LSOV2_DISABLED);
            assert!(NDIS_OFFLOAD_PARAMETERS_USO_ENABLED == NDIS_OFFLOAD_PARAMETERS_LSOV2_ENABLED);
            assert!(NDIS_OFFLOAD_PARAMETERS_RSC_DISABLED == NDIS_OFFLOAD_PARAMETERS_LSOV2_DISABLED);
            assert!(NDIS_OFFLOAD_PARAMETERS_RSC_ENABLED == NDIS_OFFLOAD_PARAMETERS_LSOV2_ENABLED);
        }
        for (of, value) in switched {
            changed = match value {
                NDIS_OFFLOAD_PARAMETERS_NO_CHANGE => changed,
                NDIS_OFFLOAD_PARAMETERS_LSOV2_DISABLED => changed.set(of, false),
                NDIS_OFFLOAD_PARAMETERS_LSOV2_ENABLED => changed.set(of, true),
                _ => return NDIS_STATUS_INVALID_DATA,
            };
        }
        // For an offload that the adapter lacks, only "no change" and "disabled", which is 1, are valid.
        if !self.possible.has(changed)
            || [lso1, ipsec, connection4, connection6].iter().any(|&value| value > 1)
        {
            return NDIS_STATUS_INVALID_DATA;
        }
        self.configured.store(changed.0, Ordering::Relaxed);
        NDIS_STATUS_SUCCESS
    }

    /// `OID_OFFLOAD_ENCAPSULATION`: starts or stops the configured offloads. The caller [indicates](Self::indicate) the change.
    /// `PASSIVE_LEVEL`.
    pub fn set_encapsulation(&self, to: &NDIS_OFFLOAD_ENCAPSULATION) -> NDIS_STATUS {
        if to.Header.Type != NDIS_OBJECT_TYPE_OFFLOAD_ENCAPSULATION
            || to.Header.Revision < NDIS_OFFLOAD_ENCAPSULATION_REVISION_1
        {
            return NDIS_STATUS_INVALID_DATA;
        }
        if self.possible == TaskOffloads::NONE {
            return NDIS_STATUS_NOT_SUPPORTED;
        }
        let mut started = TaskOffloads(self.started.load(Ordering::Relaxed));
        let mut stopped = TaskOffloads(self.stopped.load(Ordering::Relaxed));
        let versions = [
            (to.IPv4.Enabled, to.IPv4.EncapsulationType, TaskOffloads::ALL_IPV4),
            (to.IPv6.Enabled, to.IPv6.EncapsulationType, TaskOffloads::ALL_IPV6),
        ];
        for (enabled, encapsulation, of) in versions {
            let on = match enabled {
                NDIS_OFFLOAD_SET_NO_CHANGE => continue,
                NDIS_OFFLOAD_SET_ON if encapsulation == NDIS_ENCAPSULATION_IEEE_802_3 => true,
                NDIS_OFFLOAD_SET_OFF => false,
                _ => return NDIS_STATUS_INVALID_PARAMETER,
            };
            started = started.set(of.and(TaskOffloads::STARTED), on);
            stopped = stopped.set(of, !on);
        }
        self.started.store(started.0, Ordering::Relaxed);
        self.stopped.store(stopped.0, Ordering::Relaxed);
        NDIS_STATUS_SUCCESS
    }

    /// Indicates the offloads in force to NDIS.
    pub fn indicate(&self, handle: NDIS_HANDLE) {
        let mut offload = self.describe_current();
        status_indication::indicate(handle, NDIS_STATUS_TASK_OFFLOAD_CURRENT_CONFIG, &mut offload);
    }
}
