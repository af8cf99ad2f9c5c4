// SPDX-License-Identifier: MIT OR Apache-2.0

//! The checks and resets of one adapter, for [`hang`](crate::hang).

use std::{collections::BTreeMap, sync::atomic::AtomicU64};

use ndk_abi::ndis::{
    NDIS_OID, NDIS_STATUS, OID_802_3_MULTICAST_LIST, OID_GEN_CURRENT_LOOKAHEAD, OID_GEN_CURRENT_PACKET_FILTER,
};
use nt_sim::{Event, Host};
use parking_lot::Mutex;

/// The OIDs that NDIS sets again after a reset that lost them.
const ADDRESSING: [NDIS_OID; 3] =
    [OID_802_3_MULTICAST_LIST, OID_GEN_CURRENT_PACKET_FILTER, OID_GEN_CURRENT_LOOKAHEAD];

/// The checks and resets of an adapter.
pub(crate) struct Hang {
    /// Number of restarts: the checks of an earlier one end.
    pub restarts: AtomicU64,
    /// Number of resets that have ended.
    pub resets: AtomicU64,
    /// The outcome of the reset in progress: its status, and whether addressing was lost.
    pub outcome: Mutex<Option<(NDIS_STATUS, bool)>>,
    /// Set when a reset that pended is completed.
    pub done: Event,
    /// The values of [`ADDRESSING`] that protocol drivers have set.
    pub addressing: Mutex<BTreeMap<NDIS_OID, Vec<u8>>>,
}

impl Hang {
    pub fn new(host: &Host) -> Self {
        Self {
            restarts: AtomicU64::new(0),
            resets: AtomicU64::new(0),
            outcome: Mutex::new(None),
            done: host.event(),
            addressing: Mutex::default(),
        }
    }

    /// Notes an OID that was set, if it is lost in a reset.
    pub fn note(&self, oid: NDIS_OID, value: &[u8]) {
        if ADDRESSING.contains(&oid) {
            self.addressing.lock().insert(oid, value.to_vec());
        }
    }
}
