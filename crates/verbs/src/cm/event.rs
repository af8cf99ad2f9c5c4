// SPDX-License-Identifier: MIT OR Apache-2.0

//! Events.

use core::ffi::{CStr, c_char, c_int};
use std::sync::Arc;

use verbs_core::cm::{CmEventKind, CmId};
use verbs_core::{Error, PrivateData};

use crate::abi::rdma::RdmaCmEvent;
use crate::errno;
use crate::handles::{self, Handle};

/// An event, with what it points to.
#[repr(C)]
pub struct Event {
    pub base: RdmaCmEvent,
    pub private_data: PrivateData,
    /// Counts the acknowledgment.
    pub id: Arc<CmId>,
}

// SAFETY: it is `repr(C)` and begins with an `RdmaCmEvent`.
unsafe impl Handle for Event {
    type C = RdmaCmEvent;
}

/// Numbers and names of events, `rdma_cm_event_type`.
const NAMES: [&CStr; 16] = [
    c"RDMA_CM_EVENT_ADDR_RESOLVED",
    c"RDMA_CM_EVENT_ADDR_ERROR",
    c"RDMA_CM_EVENT_ROUTE_RESOLVED",
    c"RDMA_CM_EVENT_ROUTE_ERROR",
    c"RDMA_CM_EVENT_CONNECT_REQUEST",
    c"RDMA_CM_EVENT_CONNECT_RESPONSE",
    c"RDMA_CM_EVENT_CONNECT_ERROR",
    c"RDMA_CM_EVENT_UNREACHABLE",
    c"RDMA_CM_EVENT_REJECTED",
    c"RDMA_CM_EVENT_ESTABLISHED",
    c"RDMA_CM_EVENT_DISCONNECTED",
    c"RDMA_CM_EVENT_DEVICE_REMOVAL",
    c"RDMA_CM_EVENT_MULTICAST_JOIN",
    c"RDMA_CM_EVENT_MULTICAST_ERROR",
    c"RDMA_CM_EVENT_ADDR_CHANGE",
    c"RDMA_CM_EVENT_TIMEWAIT_EXIT",
];

/// Returns the number of an event.
pub const fn number(kind: CmEventKind) -> c_int {
    match kind {
        CmEventKind::AddressResolved => 0,
        CmEventKind::AddressError => 1,
        CmEventKind::RouteResolved => 2,
        CmEventKind::RouteError => 3,
        CmEventKind::ConnectRequest => 4,
        CmEventKind::ConnectResponse => 5,
        CmEventKind::ConnectError => 6,
        CmEventKind::Unreachable => 7,
        CmEventKind::Rejected => 8,
        CmEventKind::Established => 9,
        CmEventKind::Disconnected => 10,
    }
}

/// Returns the name of an event.
#[unsafe(no_mangle)]
pub extern "C" fn rdma_event_str(event: c_int) -> *const c_char {
    let known = usize::try_from(event).ok().and_then(|at| NAMES.get(at));
    known.map_or(c"UNKNOWN EVENT".as_ptr(), |name| name.as_ptr())
}

/// Frees an event.
pub fn acknowledge(event: *mut RdmaCmEvent) -> Result<(), Error> {
    let event = handles::take::<Event>(event)?;
    event.id.acknowledge();
    Ok(())
}

/// Acknowledges and frees an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_ack_cm_event(event: *mut RdmaCmEvent) -> c_int {
    errno::flag(acknowledge(event))
}
