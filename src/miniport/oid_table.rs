// SPDX-License-Identifier: MIT OR Apache-2.0

//! The supported OIDs: one table of each OID and the functions that answer its queries and set requests. `PASSIVE_LEVEL`, unless a row says
//! otherwise.

#[allow(clippy::wildcard_imports, reason = "a screen of OIDs and statuses otherwise")]
use ndk_abi::ndis::*;
use ndk_abi::ndk::{OID_NDK_CONNECTIONS, OID_NDK_LOCAL_ENDPOINTS, OID_NDK_SET_STATE, OID_NDK_STATISTICS};

use super::adapter::Adapter;
use super::oid_handlers as handlers;
use super::wire_statistics;
use crate::ndk::{diagnostics, queries};
use crate::query_answer::Answer;

/// Vendor-specific query: the counters of the RoCE engine and the transmit queues, by name.
pub const OID_VIORDMA_COUNTERS: NDIS_OID = 0xFF5D_0101;

/// Vendor-specific query: the last events of the RoCE engine. Set: one byte, 1 to record them, 0 not to.
pub const OID_VIORDMA_TRACE: NDIS_OID = 0xFF5D_0102;

/// Vendor-specific query, of a WMI GUID: the values of the counters of [`OID_VIORDMA_COUNTERS`], 64 bits each.
pub const OID_VIORDMA_COUNTER_VALUES: NDIS_OID = 0xFF5D_0103;

/// Answers a query. A query without an answer fails with `NDIS_STATUS_NOT_SUPPORTED`.
type Query = fn(&Adapter, &mut Answer);
/// Handles a set request.
type Set = fn(&Adapter, &mut NDIS_OID_REQUEST_SET) -> NDIS_STATUS;

/// One supported OID.
struct Row {
    oid: NDIS_OID,
    query: Option<Query>,
    set: Option<Set>,
    /// Also answers direct OID requests, which run concurrently with everything, at IRQL <= `DISPATCH_LEVEL`.
    is_direct: bool,
}

impl Row {
    const fn query(oid: NDIS_OID, query: Query) -> Self {
        Self { oid, query: Some(query), set: None, is_direct: false }
    }

    const fn direct_query(oid: NDIS_OID, query: Query) -> Self {
        Self { oid, query: Some(query), set: None, is_direct: true }
    }

    const fn set(oid: NDIS_OID, set: Set) -> Self {
        Self { oid, query: None, set: Some(set), is_direct: false }
    }

    const fn both(oid: NDIS_OID, query: Query, set: Set) -> Self {
        Self { oid, query: Some(query), set: Some(set), is_direct: false }
    }

    /// Returns the row of an OID that [`oid_requests`](super::oid_requests) handles itself.
    const fn elsewhere(oid: NDIS_OID) -> Self {
        Self { oid, query: None, set: None, is_direct: false }
    }
}

//= R-OPEN-3
static TABLE: [Row; 34] = [
    Row::both(OID_GEN_CURRENT_PACKET_FILTER, handlers::packet_filter, handlers::set_packet_filter),
    Row::both(OID_GEN_CURRENT_LOOKAHEAD, handlers::lookahead, handlers::set_lookahead),
    Row::both(
        OID_GEN_INTERRUPT_MODERATION,
        handlers::interrupt_moderation,
        handlers::set_interrupt_moderation,
    ),
    Row::set(OID_GEN_LINK_PARAMETERS, handlers::set_link_parameters),
    Row::query(OID_GEN_MAXIMUM_TOTAL_SIZE, handlers::longest_frame),
    Row::query(OID_GEN_RECEIVE_BLOCK_SIZE, handlers::longest_frame),
    Row::query(OID_GEN_TRANSMIT_BLOCK_SIZE, handlers::longest_frame),
    Row::query(OID_GEN_RECEIVE_BUFFER_SPACE, handlers::receive_buffer_space),
    Row::query(OID_GEN_TRANSMIT_BUFFER_SPACE, handlers::transmit_buffer_space),
    Row::query(OID_GEN_STATISTICS, |adapter, answer| answer.value(&wire_statistics::statistics(adapter))),
    Row::query(OID_GEN_XMIT_OK, |adapter, answer| answer.counter(adapter.port().transmit_counters().frames)),
    Row::query(OID_GEN_RCV_OK, |adapter, answer| {
        answer.counter(wire_statistics::receive_counters(adapter).frames);
    }),
    Row::set(OID_GEN_RECEIVE_SCALE_PARAMETERS, handlers::set_scaling),
    Row::set(OID_GEN_RECEIVE_HASH, handlers::set_hash),
    Row::query(OID_GEN_VENDOR_ID, |_, answer| answer.value(&ndk_provider::VENDOR_ID)),
    Row::query(OID_GEN_VENDOR_DESCRIPTION, |_, answer| answer.bytes(handlers::VENDOR_DESCRIPTION)),
    Row::query(OID_GEN_VENDOR_DRIVER_VERSION, handlers::driver_version),
    Row::both(OID_GEN_VLAN_ID, handlers::vlan_id, handlers::set_vlan_id),
    Row::set(OID_GEN_NETWORK_LAYER_ADDRESSES, super::announce::set_addresses),
    Row::both(OID_802_3_MULTICAST_LIST, handlers::multicast_list, handlers::set_multicast_list),
    Row::set(OID_TCP_OFFLOAD_PARAMETERS, handlers::set_offload_parameters),
    Row::query(OID_TCP_RSC_STATISTICS, |adapter, answer| answer.value(&adapter.coalescing.statistics())),
    Row::set(OID_OFFLOAD_ENCAPSULATION, handlers::set_offload_encapsulation),
    // Always succeeds: the driver makes the transition that follows in any case.
    Row::query(OID_PNP_QUERY_POWER, |_, answer| answer.bytes(&[])),
    Row::elsewhere(OID_PNP_SET_POWER),
    Row::set(OID_PM_PARAMETERS, handlers::set_power_parameters),
    //= R-OIDNDK-1
    Row::set(OID_NDK_SET_STATE, handlers::set_ndk_state),
    Row::direct_query(OID_NDK_STATISTICS, |adapter, answer| queries::statistics(adapter.ndk(), answer)),
    Row::query(OID_NDK_CONNECTIONS, |adapter, answer| queries::connections(adapter.ndk(), answer)),
    Row::query(OID_NDK_LOCAL_ENDPOINTS, |adapter, answer| queries::local_endpoints(adapter.ndk(), answer)),
    Row::query(OID_GEN_SUPPORTED_GUIDS, |adapter, answer| {
        diagnostics::guids(adapter.ndk(), OID_VIORDMA_COUNTER_VALUES, answer);
    }),
    Row::query(OID_VIORDMA_COUNTERS, handlers::counters),
    Row::query(OID_VIORDMA_COUNTER_VALUES, handlers::counter_values),
    Row::both(
        OID_VIORDMA_TRACE,
        |adapter, answer| diagnostics::trace(adapter.ndk(), answer),
        handlers::set_tracing,
    ),
];

/// Returns the OIDs of the table, for the general attributes.
pub fn supported() -> [NDIS_OID; TABLE.len()] {
    TABLE.each_ref().map(|row| row.oid)
}

fn row(oid: NDIS_OID) -> Option<&'static Row> {
    TABLE.iter().find(|row| row.oid == oid)
}

/// Handles a query request.
pub fn query(adapter: &Adapter, request: &mut NDIS_OID_REQUEST_QUERY) -> NDIS_STATUS {
    answer(adapter, request, row(request.Oid))
}

/// Handles a direct query request. IRQL <= `DISPATCH_LEVEL`.
pub fn query_direct(adapter: &Adapter, request: &mut NDIS_OID_REQUEST_QUERY) -> NDIS_STATUS {
    match row(request.Oid).filter(|row| row.is_direct) {
        Some(row) => answer(adapter, request, Some(row)),
        None => NDIS_STATUS_NOT_SUPPORTED,
    }
}

fn answer(adapter: &Adapter, request: &mut NDIS_OID_REQUEST_QUERY, row: Option<&Row>) -> NDIS_STATUS {
    let mut answer = Answer::new(request);
    if let Some(query) = row.and_then(|row| row.query) {
        query(adapter, &mut answer);
    }
    answer.finish(request)
}

/// Handles a set request.
pub fn set(adapter: &Adapter, request: &mut NDIS_OID_REQUEST_SET) -> NDIS_STATUS {
    match row(request.Oid).and_then(|row| row.set) {
        Some(set) => set(adapter, request),
        None => NDIS_STATUS_NOT_SUPPORTED,
    }
}
