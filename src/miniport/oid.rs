// SPDX-License-Identifier: MIT OR Apache-2.0

//! OID requests. Each is completed synchronously, except for changes of the power state.
//!
//! [`query`] and [`set`] handle the requests; [`SUPPORTED`] lists for NDIS exactly those that they handle.

use core::ffi::c_void;
use core::sync::atomic::Ordering;

#[allow(clippy::wildcard_imports, reason = "a screen of OIDs, statuses and flags otherwise")]
use ndk_abi::ndis::*;
use ndk_abi::ndk::{OID_NDK_CONNECTIONS, OID_NDK_LOCAL_ENDPOINTS, OID_NDK_SET_STATE, OID_NDK_STATISTICS};
use virtio_net::ReceiveCounters;

use super::adapter::{Adapter, MAX_MULTICAST};
use super::task_offload::{LONGEST_PARAMETERS, PARAMETERS_LEN};
use super::version::DRIVER_VERSION;
use super::{announce, device_rss, filter, link, power, vlan};
use crate::ndk;
use crate::oid_answer::Answer;

/// The supported OIDs.
//= R-OPEN-3
pub const SUPPORTED: [NDIS_OID; 32] = [
    OID_GEN_CURRENT_PACKET_FILTER,
    OID_GEN_CURRENT_LOOKAHEAD,
    OID_GEN_INTERRUPT_MODERATION,
    OID_GEN_LINK_PARAMETERS,
    OID_GEN_MAXIMUM_TOTAL_SIZE,
    OID_GEN_RECEIVE_BLOCK_SIZE,
    OID_GEN_TRANSMIT_BLOCK_SIZE,
    OID_GEN_RECEIVE_BUFFER_SPACE,
    OID_GEN_TRANSMIT_BUFFER_SPACE,
    OID_GEN_STATISTICS,
    OID_GEN_XMIT_OK,
    OID_GEN_RCV_OK,
    OID_GEN_RECEIVE_SCALE_PARAMETERS,
    OID_GEN_RECEIVE_HASH,
    OID_GEN_VENDOR_ID,
    OID_GEN_VENDOR_DESCRIPTION,
    OID_GEN_VENDOR_DRIVER_VERSION,
    OID_GEN_VLAN_ID,
    OID_GEN_NETWORK_LAYER_ADDRESSES,
    OID_802_3_MULTICAST_LIST,
    OID_TCP_OFFLOAD_PARAMETERS,
    OID_TCP_RSC_STATISTICS,
    OID_OFFLOAD_ENCAPSULATION,
    OID_PNP_QUERY_POWER,
    OID_PNP_SET_POWER,
    OID_PM_PARAMETERS,
    //= R-OIDNDK-1
    OID_NDK_SET_STATE,
    OID_NDK_STATISTICS,
    OID_NDK_CONNECTIONS,
    OID_NDK_LOCAL_ENDPOINTS,
    OID_VIORDMA_COUNTERS,
    OID_VIORDMA_TRACE,
];

/// Vendor-specific query: the counters of the RoCE engine and the transmit queues, by name.
pub const OID_VIORDMA_COUNTERS: NDIS_OID = 0xFF5D_0101;

/// Vendor-specific query: the last events of the RoCE engine. Set: one byte, 1 to record them, 0 not to.
pub const OID_VIORDMA_TRACE: NDIS_OID = 0xFF5D_0102;

/// Supported packet filters.
pub const PACKET_FILTERS: u32 = NDIS_PACKET_TYPE_DIRECTED
    | NDIS_PACKET_TYPE_MULTICAST
    | NDIS_PACKET_TYPE_ALL_MULTICAST
    | NDIS_PACKET_TYPE_BROADCAST
    | NDIS_PACKET_TYPE_PROMISCUOUS;

/// Supported counters, in general attributes: all, as NDIS 6 requires.
pub const STATISTICS: u32 = NDIS_STATISTICS_XMIT_OK_SUPPORTED
    | NDIS_STATISTICS_RCV_OK_SUPPORTED
    | NDIS_STATISTICS_XMIT_ERROR_SUPPORTED
    | NDIS_STATISTICS_RCV_ERROR_SUPPORTED
    | NDIS_STATISTICS_RCV_NO_BUFFER_SUPPORTED
    | NDIS_STATISTICS_DIRECTED_BYTES_XMIT_SUPPORTED
    | NDIS_STATISTICS_DIRECTED_FRAMES_XMIT_SUPPORTED
    | NDIS_STATISTICS_MULTICAST_BYTES_XMIT_SUPPORTED
    | NDIS_STATISTICS_MULTICAST_FRAMES_XMIT_SUPPORTED
    | NDIS_STATISTICS_BROADCAST_BYTES_XMIT_SUPPORTED
    | NDIS_STATISTICS_BROADCAST_FRAMES_XMIT_SUPPORTED
    | NDIS_STATISTICS_DIRECTED_BYTES_RCV_SUPPORTED
    | NDIS_STATISTICS_DIRECTED_FRAMES_RCV_SUPPORTED
    | NDIS_STATISTICS_MULTICAST_BYTES_RCV_SUPPORTED
    | NDIS_STATISTICS_MULTICAST_FRAMES_RCV_SUPPORTED
    | NDIS_STATISTICS_BROADCAST_BYTES_RCV_SUPPORTED
    | NDIS_STATISTICS_BROADCAST_FRAMES_RCV_SUPPORTED
    | NDIS_STATISTICS_BYTES_RCV_SUPPORTED
    | NDIS_STATISTICS_BYTES_XMIT_SUPPORTED
    | NDIS_STATISTICS_RCV_DISCARDS_SUPPORTED
    | NDIS_STATISTICS_GEN_STATISTICS_SUPPORTED
    | NDIS_STATISTICS_XMIT_DISCARDS_SUPPORTED;

/// The same in `OID_GEN_STATISTICS`, whose flags are others.
const VALID_STATISTICS: u32 = NDIS_STATISTICS_FLAGS_VALID_DIRECTED_FRAMES_RCV
    | NDIS_STATISTICS_FLAGS_VALID_MULTICAST_FRAMES_RCV
    | NDIS_STATISTICS_FLAGS_VALID_BROADCAST_FRAMES_RCV
    | NDIS_STATISTICS_FLAGS_VALID_BYTES_RCV
    | NDIS_STATISTICS_FLAGS_VALID_RCV_DISCARDS
    | NDIS_STATISTICS_FLAGS_VALID_RCV_ERROR
    | NDIS_STATISTICS_FLAGS_VALID_DIRECTED_FRAMES_XMIT
    | NDIS_STATISTICS_FLAGS_VALID_MULTICAST_FRAMES_XMIT
    | NDIS_STATISTICS_FLAGS_VALID_BROADCAST_FRAMES_XMIT
    | NDIS_STATISTICS_FLAGS_VALID_BYTES_XMIT
    | NDIS_STATISTICS_FLAGS_VALID_XMIT_ERROR
    | NDIS_STATISTICS_FLAGS_VALID_XMIT_DISCARDS
    | NDIS_STATISTICS_FLAGS_VALID_DIRECTED_BYTES_RCV
    | NDIS_STATISTICS_FLAGS_VALID_MULTICAST_BYTES_RCV
    | NDIS_STATISTICS_FLAGS_VALID_BROADCAST_BYTES_RCV
    | NDIS_STATISTICS_FLAGS_VALID_DIRECTED_BYTES_XMIT
    | NDIS_STATISTICS_FLAGS_VALID_MULTICAST_BYTES_XMIT
    | NDIS_STATISTICS_FLAGS_VALID_BROADCAST_BYTES_XMIT;

const VENDOR_DESCRIPTION: &[u8] = b"viordma VirtIO Ethernet Adapter with RDMA\0";

/// `MiniportOidRequest`. `PASSIVE_LEVEL`, one at a time.
pub unsafe extern "efiapi" fn oid_request(
    context: NDIS_HANDLE,
    request: *mut NDIS_OID_REQUEST,
) -> NDIS_STATUS {
    // SAFETY: NDIS passes the context registered for this adapter.
    let adapter = unsafe { Adapter::from_context(context) };
    // SAFETY: NDIS's request, the driver's alone until it returns.
    let request = unsafe { &mut *request };
    match request.RequestType {
        NDIS_REQUEST_TYPE::NdisRequestQueryInformation | NDIS_REQUEST_TYPE::NdisRequestQueryStatistics => {
            // SAFETY: the type says which member of the union is in use.
            let member = unsafe { &mut request.DATA.QUERY_INFORMATION };
            let mut answer = Answer::new(member);
            query(adapter, member.Oid, &mut answer);
            answer.finish(member)
        }
        NDIS_REQUEST_TYPE::NdisRequestSetInformation => {
            // SAFETY: the type says which member of the union is in use.
            let member = unsafe { &mut request.DATA.SET_INFORMATION };
            if member.Oid == OID_PNP_SET_POWER {
                return match value::<NDIS_DEVICE_POWER_STATE>(member) {
                    Err(status) => status,
                    Ok(state) => power::set(adapter, state, request),
                };
            }
            set(adapter, member)
        }
        _ => NDIS_STATUS_NOT_SUPPORTED,
    }
}

/// `MiniportDirectOidRequest`: concurrent with everything. IRQL <= `DISPATCH_LEVEL`.
//= R-OIDNDK-16
pub unsafe extern "efiapi" fn direct_oid_request(
    context: NDIS_HANDLE,
    request: *mut NDIS_OID_REQUEST,
) -> NDIS_STATUS {
    // SAFETY: NDIS passes the context registered for this adapter.
    let adapter = unsafe { Adapter::from_context(context) };
    // SAFETY: NDIS's request, the driver's alone until it returns.
    let request = unsafe { &mut *request };
    let kinds =
        [NDIS_REQUEST_TYPE::NdisRequestQueryInformation, NDIS_REQUEST_TYPE::NdisRequestQueryStatistics];
    if !kinds.contains(&request.RequestType) {
        return NDIS_STATUS_NOT_SUPPORTED;
    }
    // SAFETY: the type says which member of the union is in use.
    let member = unsafe { &mut request.DATA.QUERY_INFORMATION };
    if member.Oid != OID_NDK_STATISTICS {
        return NDIS_STATUS_NOT_SUPPORTED;
    }
    let mut answer = Answer::new(member);
    query(adapter, member.Oid, &mut answer);
    answer.finish(member)
}

/// `MiniportCancelOidRequest` and `MiniportCancelDirectOidRequest`: the only request that pends, `OID_PNP_SET_POWER`, ends in
/// bounded time.
pub unsafe extern "efiapi" fn cancel_oid_request(_context: NDIS_HANDLE, _request: *mut c_void) {}

/// Handles a query request.
fn query(adapter: &Adapter, oid: NDIS_OID, answer: &mut Answer) {
    let max_frame = adapter.max_frame;
    match oid {
        OID_GEN_CURRENT_PACKET_FILTER => {
            answer.value(&adapter.filter.packet_types.load(Ordering::Relaxed));
        }
        OID_GEN_CURRENT_LOOKAHEAD => answer.value(&adapter.lookahead.load(Ordering::Relaxed)),
        OID_GEN_INTERRUPT_MODERATION => answer.value(&interrupt_moderation()),
        OID_GEN_MAXIMUM_TOTAL_SIZE | OID_GEN_RECEIVE_BLOCK_SIZE | OID_GEN_TRANSMIT_BLOCK_SIZE => {
            answer.value(&max_frame);
        }
        OID_GEN_RECEIVE_BUFFER_SPACE | OID_GEN_TRANSMIT_BUFFER_SPACE => {
            answer.value(&max_frame.saturating_mul(256));
        }
        OID_GEN_STATISTICS => answer.value(&statistics(adapter)),
        OID_GEN_XMIT_OK => answer.counter(adapter.port().transmit_counters().frames),
        OID_GEN_RCV_OK => answer.counter(receive_counters(adapter).frames),
        OID_GEN_VENDOR_ID => answer.value(&ndk_provider::VENDOR_ID),
        OID_GEN_VENDOR_DESCRIPTION => answer.bytes(VENDOR_DESCRIPTION),
        OID_GEN_VENDOR_DRIVER_VERSION => {
            let (major, minor) = DRIVER_VERSION;
            answer.value(&(u32::from(major) << 16 | u32::from(minor)));
        }
        OID_GEN_VLAN_ID => answer.value(&u32::from(adapter.vlan.id())),
        OID_TCP_RSC_STATISTICS => answer.value(&adapter.coalescing.statistics()),
        OID_802_3_MULTICAST_LIST => {
            let (addresses, count) = *adapter.filter.multicast.lock();
            answer.bytes(addresses.get(..count).unwrap_or_default().as_flattened());
        }
        // Always succeeds: the driver makes the transition that follows in any case.
        OID_PNP_QUERY_POWER => answer.bytes(&[]),
        OID_NDK_STATISTICS => ndk::oid::statistics(adapter.ndk(), answer),
        OID_NDK_CONNECTIONS => ndk::oid::connections(adapter.ndk(), answer),
        OID_NDK_LOCAL_ENDPOINTS => ndk::oid::local_endpoints(adapter.ndk(), answer),
        OID_VIORDMA_COUNTERS => {
            let queue = adapter.port().transmit_counters();
            let others = [
                ("tx_notifications", queue.notifications),
                ("tx_notifications_suppressed", queue.suppressed),
                ("rx_handed_over", adapter.rss.handed_over()),
            ];
            ndk::oid::counters(adapter.ndk(), &others, answer);
        }
        OID_VIORDMA_TRACE => ndk::oid::trace(adapter.ndk(), answer),
        // A query without an answer fails with NDIS_STATUS_NOT_SUPPORTED.
        _ => {}
    }
}

/// Handles a set request.
fn set(adapter: &Adapter, request: &mut NDIS_OID_REQUEST_SET) -> NDIS_STATUS {
    match request.Oid {
        OID_GEN_CURRENT_PACKET_FILTER => match value::<u32>(request) {
            Err(status) => status,
            Ok(types) if types & !PACKET_FILTERS != 0 => NDIS_STATUS_NOT_SUPPORTED,
            Ok(types) => {
                adapter.filter.packet_types.store(types, Ordering::Relaxed);
                programmed(adapter, filter::program(adapter))
            }
        },
        OID_GEN_CURRENT_LOOKAHEAD => match value::<u32>(request) {
            Err(status) => status,
            Ok(lookahead) if lookahead > adapter.max_frame => NDIS_STATUS_INVALID_DATA,
            Ok(lookahead) => {
                adapter.lookahead.store(lookahead, Ordering::Relaxed);
                NDIS_STATUS_SUCCESS
            }
        },
        OID_802_3_MULTICAST_LIST => set_multicast(adapter, request),
        OID_GEN_NETWORK_LAYER_ADDRESSES => announce::set_addresses(adapter, request),
        OID_GEN_VLAN_ID => match value::<u32>(request) {
            Err(status) => status,
            Ok(id) => set_vlan(adapter, id),
        },
        // Interrupt moderation cannot be configured.
        OID_GEN_INTERRUPT_MODERATION => NDIS_STATUS_INVALID_DATA,
        OID_GEN_LINK_PARAMETERS => {
            const LEN: usize = NDIS_SIZEOF_LINK_PARAMETERS_REVISION_1 as usize;
            match padded::<LEN>(request, LEN, NDIS_STATUS_INVALID_LENGTH) {
                Err(status) => status,
                Ok(parameters) => link::set_parameters(&parameters),
            }
        }
        OID_TCP_OFFLOAD_PARAMETERS => {
            match padded::<LONGEST_PARAMETERS>(request, PARAMETERS_LEN, NDIS_STATUS_INVALID_LENGTH) {
                Err(status) => status,
                Ok(parameters) => offloads_changed(adapter, adapter.offloads.set_parameters(&parameters)),
            }
        }
        OID_OFFLOAD_ENCAPSULATION => match value::<NDIS_OFFLOAD_ENCAPSULATION>(request) {
            Err(status) => status,
            Ok(encapsulation) => {
                offloads_changed(adapter, adapter.offloads.set_encapsulation(&encapsulation))
            }
        },
        OID_GEN_RECEIVE_SCALE_PARAMETERS => {
            let status = adapter.rss.set(adapter.port(), request);
            scaling_changed(adapter, status)
        }
        OID_GEN_RECEIVE_HASH => {
            let status = adapter.rss.set_hash(adapter.port(), request);
            scaling_changed(adapter, status)
        }
        OID_PM_PARAMETERS => match padded(request, power::PARAMETERS_LEN, NDIS_STATUS_BUFFER_TOO_SHORT) {
            Err(status) => status,
            Ok(parameters) => power::set_parameters(&parameters),
        },
        //= R-OIDNDK-2, R-OIDNDK-3
        OID_NDK_SET_STATE => match value::<u8>(request) {
            Err(status) => status,
            Ok(enable) => adapter.ndk().set_state(enable != 0),
        },
        OID_VIORDMA_TRACE => match value::<u8>(request) {
            Err(status) => status,
            Ok(on @ 0..=1) => match adapter.ndk().tracing().set(on == 1) {
                Ok(()) => NDIS_STATUS_SUCCESS,
                Err(_) => NDIS_STATUS_RESOURCES,
            },
            Ok(_) => NDIS_STATUS_INVALID_DATA,
        },
        _ => NDIS_STATUS_NOT_SUPPORTED,
    }
}

/// Replaces the list of multicast addresses.
fn set_multicast(adapter: &Adapter, request: &mut NDIS_OID_REQUEST_SET) -> NDIS_STATUS {
    let len = request.InformationBufferLength as usize;
    if !len.is_multiple_of(6) {
        return NDIS_STATUS_INVALID_LENGTH;
    }
    let count = len / 6;
    if count > MAX_MULTICAST {
        return NDIS_STATUS_MULTICAST_FULL;
    }
    let mut addresses = [[0; 6]; MAX_MULTICAST];
    if count != 0 {
        let from = request.InformationBuffer.cast::<[u8; 6]>();
        // SAFETY: the buffer has `count` addresses of six bytes, and there is room for as many.
        unsafe { core::ptr::copy_nonoverlapping(from, addresses.as_mut_ptr(), count) };
    }
    *adapter.filter.multicast.lock() = (addresses, count);
    request.BytesRead = request.InformationBufferLength;
    programmed(adapter, filter::program(adapter))
}

/// Moves the adapter to another VLAN, or to none.
fn set_vlan(adapter: &Adapter, id: u32) -> NDIS_STATUS {
    let Some(id) = u16::try_from(id).ok().filter(|&id| id <= vlan::MAX_ID) else {
        return NDIS_STATUS_INVALID_DATA;
    };
    if !adapter.vlan.set_id(id) {
        return NDIS_STATUS_NOT_SUPPORTED;
    }
    for pair in adapter.port().pairs() {
        pair.set_tag(adapter.vlan.own_tag());
    }
    programmed(adapter, filter::program(adapter))
}

/// After a request that succeeded, indicates the offloads in force to NDIS, then programs the device. So NDIS knows before the first frame
/// is coalesced, and the request completes after the last coalesced frame is indicated. A device that fails is reset.
fn offloads_changed(adapter: &Adapter, status: NDIS_STATUS) -> NDIS_STATUS {
    if status != NDIS_STATUS_SUCCESS {
        return status;
    }
    adapter.offloads.indicate(adapter.handle());
    if let Err(error) = adapter.program_coalescing() {
        adapter.device_failed(error);
    }
    NDIS_STATUS_SUCCESS
}

/// Programs the device with the RSS and hash parameters in force, if the request that changed them has succeeded. Returns its status.
fn scaling_changed(adapter: &Adapter, status: NDIS_STATUS) -> NDIS_STATUS {
    if status == NDIS_STATUS_SUCCESS { programmed(adapter, device_rss::program(adapter)) } else { status }
}

/// Returns the status of a request that programmed the device: always success. A device that failed is reset, and the
/// reset programs it.
fn programmed(adapter: &Adapter, outcome: Result<(), virtio_net::Error>) -> NDIS_STATUS {
    if let Err(error) = outcome {
        adapter.device_failed(error);
    }
    NDIS_STATUS_SUCCESS
}

/// Reads the value of a set request: plain data of a fixed size. Bytes beyond it are ignored.
fn value<T: Copy>(request: &mut NDIS_OID_REQUEST_SET) -> Result<T, NDIS_STATUS> {
    let needed = size_of::<T>() as u32;
    if request.InformationBufferLength < needed {
        request.BytesNeeded = needed;
        return Err(NDIS_STATUS_INVALID_LENGTH);
    }
    request.BytesRead = needed;
    // SAFETY: the buffer is large enough; the types used are plain integers.
    Ok(unsafe { request.InformationBuffer.cast::<T>().read_unaligned() })
}

/// As [`value`], for a structure of at least `min` bytes; missing bytes are 0. A shorter structure fails with
/// `too_short`.
fn padded<const LONGEST: usize>(
    request: &mut NDIS_OID_REQUEST_SET,
    min: usize,
    too_short: NDIS_STATUS,
) -> Result<[u8; LONGEST], NDIS_STATUS> {
    let len = request.InformationBufferLength as usize;
    if len < min {
        request.BytesNeeded = min as u32;
        return Err(too_short);
    }
    let len = len.min(LONGEST);
    request.BytesRead = len as u32;
    let mut bytes = [0; LONGEST];
    // SAFETY: the request's buffer has `len` bytes, and so has the array.
    unsafe { core::ptr::copy_nonoverlapping(request.InformationBuffer.cast(), bytes.as_mut_ptr(), len) };
    Ok(bytes)
}

fn interrupt_moderation() -> NDIS_INTERRUPT_MODERATION_PARAMETERS {
    NDIS_INTERRUPT_MODERATION_PARAMETERS {
        Header: NDIS_OBJECT_HEADER {
            Type: NDIS_OBJECT_TYPE_DEFAULT,
            Revision: NDIS_INTERRUPT_MODERATION_PARAMETERS_REVISION_1,
            Size: NDIS_SIZEOF_INTERRUPT_MODERATION_PARAMETERS_REVISION_1,
        },
        Flags: 0,
        InterruptModeration: NDIS_INTERRUPT_MODERATION::NdisInterruptModerationNotSupported,
    }
}

/// Returns the counters of the frames on the wire.
fn receive_counters(adapter: &Adapter) -> ReceiveCounters {
    adapter.coalescing.complete_counters(adapter.port().receive_counters())
}

/// Returns the statistics of all traffic of the adapter, RDMA included.
//= R-OIDNDK-29
fn statistics(adapter: &Adapter) -> NDIS_STATISTICS_INFO {
    let (sent, received) = (adapter.port().transmit_counters(), receive_counters(adapter));
    let kinds = adapter.statistics();
    let directed = |all: u64, multicast: u64, broadcast: u64| all.saturating_sub(multicast + broadcast);
    NDIS_STATISTICS_INFO {
        Header: NDIS_OBJECT_HEADER {
            Type: NDIS_OBJECT_TYPE_DEFAULT,
            Revision: NDIS_STATISTICS_INFO_REVISION_1,
            Size: NDIS_SIZEOF_STATISTICS_INFO_REVISION_1,
        },
        SupportedStatistics: VALID_STATISTICS,
        // All frames that are dropped, for lack of a buffer or as invalid: OID_GEN_RCV_NO_BUFFER and OID_GEN_RCV_ERROR.
        ifInDiscards: kinds.no_buffer().saturating_add(received.invalid),
        ifInErrors: received.invalid,
        ifHCInOctets: received.bytes,
        ifHCInUcastPkts: directed(
            received.frames,
            kinds.multicast_received.frames(),
            kinds.broadcast_received.frames(),
        ),
        ifHCInMulticastPkts: kinds.multicast_received.frames(),
        ifHCInBroadcastPkts: kinds.broadcast_received.frames(),
        ifHCOutOctets: sent.bytes,
        ifHCOutUcastPkts: directed(sent.frames, kinds.multicast_sent.frames(), kinds.broadcast_sent.frames()),
        ifHCOutMulticastPkts: kinds.multicast_sent.frames(),
        ifHCOutBroadcastPkts: kinds.broadcast_sent.frames(),
        ifOutErrors: kinds.send_failures(),
        ifOutDiscards: sent.bad_length,
        ifHCInUcastOctets: directed(
            received.bytes,
            kinds.multicast_received.bytes(),
            kinds.broadcast_received.bytes(),
        ),
        ifHCInMulticastOctets: kinds.multicast_received.bytes(),
        ifHCInBroadcastOctets: kinds.broadcast_received.bytes(),
        ifHCOutUcastOctets: directed(sent.bytes, kinds.multicast_sent.bytes(), kinds.broadcast_sent.bytes()),
        ifHCOutMulticastOctets: kinds.multicast_sent.bytes(),
        ifHCOutBroadcastOctets: kinds.broadcast_sent.bytes(),
    }
}
