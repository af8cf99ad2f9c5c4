// SPDX-License-Identifier: MIT OR Apache-2.0

//! Handlers of the OIDs in [`oid_table`](super::oid_table). `PASSIVE_LEVEL`.

use core::sync::atomic::Ordering;

use ndk_abi::ndis::{
    NDIS_INTERRUPT_MODERATION, NDIS_INTERRUPT_MODERATION_PARAMETERS,
    NDIS_INTERRUPT_MODERATION_PARAMETERS_REVISION_1, NDIS_OBJECT_HEADER, NDIS_OBJECT_TYPE_DEFAULT,
    NDIS_OFFLOAD_ENCAPSULATION, NDIS_OID_REQUEST_SET, NDIS_SIZEOF_INTERRUPT_MODERATION_PARAMETERS_REVISION_1,
    NDIS_SIZEOF_LINK_PARAMETERS_REVISION_1, NDIS_STATUS, NDIS_STATUS_BUFFER_TOO_SHORT,
    NDIS_STATUS_INVALID_DATA, NDIS_STATUS_INVALID_LENGTH, NDIS_STATUS_MULTICAST_FULL,
    NDIS_STATUS_NOT_SUPPORTED, NDIS_STATUS_RESOURCES, NDIS_STATUS_SUCCESS,
};

use super::adapter::Adapter;
use super::offload_state::{LONGEST_PARAMETERS, PARAMETERS_LEN};
use super::receive_filter::{self, MAX_MULTICAST};
use super::set_value::{padded, value};
use super::version::DRIVER_VERSION;
use super::{device_coalescing, link, power, vlan};
use crate::ndk::diagnostics::{self, OwnCounters};
use crate::query_answer::Answer;
use driver_states::setting::Setting;

/// Text of `OID_GEN_VENDOR_DESCRIPTION`.
pub const VENDOR_DESCRIPTION: &[u8] = b"viordma VirtIO Ethernet Adapter with RDMA\0";

pub fn packet_filter(adapter: &Adapter, answer: &mut Answer) {
    answer.value(&adapter.filter.packet_types());
}

pub fn set_packet_filter(adapter: &Adapter, request: &mut NDIS_OID_REQUEST_SET) -> NDIS_STATUS {
    match value::<u32>(request) {
        Err(status) => status,
        Ok(types) if types & !receive_filter::SUPPORTED != 0 => NDIS_STATUS_NOT_SUPPORTED,
        Ok(types) => {
            adapter.filter.set_packet_types(types);
            programmed(adapter, Setting::Filter)
        }
    }
}

pub fn multicast_list(adapter: &Adapter, answer: &mut Answer) {
    let (addresses, count) = adapter.filter.multicast();
    answer.bytes(addresses.get(..count).unwrap_or_default().as_flattened());
}

/// Replaces the list of multicast addresses.
pub fn set_multicast_list(adapter: &Adapter, request: &mut NDIS_OID_REQUEST_SET) -> NDIS_STATUS {
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
    adapter.filter.set_multicast((addresses, count));
    request.BytesRead = request.InformationBufferLength;
    programmed(adapter, Setting::Filter)
}

pub fn lookahead(adapter: &Adapter, answer: &mut Answer) {
    answer.value(&adapter.lookahead.load(Ordering::Relaxed));
}

pub fn set_lookahead(adapter: &Adapter, request: &mut NDIS_OID_REQUEST_SET) -> NDIS_STATUS {
    match value::<u32>(request) {
        Err(status) => status,
        Ok(lookahead) if lookahead > adapter.max_frame => NDIS_STATUS_INVALID_DATA,
        Ok(lookahead) => {
            adapter.lookahead.store(lookahead, Ordering::Relaxed);
            NDIS_STATUS_SUCCESS
        }
    }
}

/// Answers whether receive interrupts are moderated.
pub fn interrupt_moderation(adapter: &Adapter, answer: &mut Answer) {
    let is_on = adapter.backlog(0).is_some_and(|backlog| backlog.moderation.is_on());
    answer.value(&NDIS_INTERRUPT_MODERATION_PARAMETERS {
        Header: NDIS_OBJECT_HEADER {
            Type: NDIS_OBJECT_TYPE_DEFAULT,
            Revision: NDIS_INTERRUPT_MODERATION_PARAMETERS_REVISION_1,
            Size: NDIS_SIZEOF_INTERRUPT_MODERATION_PARAMETERS_REVISION_1,
        },
        Flags: 0,
        InterruptModeration: if is_on {
            NDIS_INTERRUPT_MODERATION::NdisInterruptModerationEnabled
        } else {
            NDIS_INTERRUPT_MODERATION::NdisInterruptModerationDisabled
        },
    });
}

/// Switches the moderation of receive interrupts on or off.
pub fn set_interrupt_moderation(adapter: &Adapter, request: &mut NDIS_OID_REQUEST_SET) -> NDIS_STATUS {
    const LEN: usize = NDIS_SIZEOF_INTERRUPT_MODERATION_PARAMETERS_REVISION_1 as usize;
    let parameters = match padded::<LEN>(request, LEN, NDIS_STATUS_INVALID_LENGTH) {
        Err(status) => return status,
        Ok(parameters) => parameters,
    };
    let wanted = parameters.last_chunk().map_or(0, |value| i32::from_le_bytes(*value));
    let is_on = match NDIS_INTERRUPT_MODERATION(wanted) {
        NDIS_INTERRUPT_MODERATION::NdisInterruptModerationEnabled => true,
        NDIS_INTERRUPT_MODERATION::NdisInterruptModerationDisabled => false,
        _ => return NDIS_STATUS_INVALID_DATA,
    };
    for backlog in (0..).map_while(|pair| adapter.backlog(pair)) {
        backlog.moderation.set_on(is_on);
    }
    NDIS_STATUS_SUCCESS
}

pub fn longest_frame(adapter: &Adapter, answer: &mut Answer) {
    answer.value(&adapter.max_frame);
}

pub fn receive_buffer_space(adapter: &Adapter, answer: &mut Answer) {
    let [buffers, _] = adapter.port().queue_sizes();
    answer.value(&adapter.max_frame.saturating_mul(buffers.into()));
}

pub fn transmit_buffer_space(adapter: &Adapter, answer: &mut Answer) {
    let [_, buffers] = adapter.port().queue_sizes();
    answer.value(&adapter.max_frame.saturating_mul(buffers.into()));
}

pub fn driver_version(_adapter: &Adapter, answer: &mut Answer) {
    let (major, minor) = DRIVER_VERSION;
    answer.value(&(u32::from(major) << 16 | u32::from(minor)));
}

pub fn vlan_id(adapter: &Adapter, answer: &mut Answer) {
    answer.value(&u32::from(adapter.vlan.id()));
}

/// Moves the adapter to another VLAN, or to none.
pub fn set_vlan_id(adapter: &Adapter, request: &mut NDIS_OID_REQUEST_SET) -> NDIS_STATUS {
    let id = match value::<u32>(request) {
        Err(status) => return status,
        Ok(id) => id,
    };
    let Some(id) = u16::try_from(id).ok().filter(|&id| id <= vlan::MAX_ID) else {
        return NDIS_STATUS_INVALID_DATA;
    };
    if !adapter.vlan.set_id(id) {
        return NDIS_STATUS_NOT_SUPPORTED;
    }
    for pair in adapter.port().pairs() {
        pair.set_tag(adapter.vlan.own_tag());
    }
    programmed(adapter, Setting::Filter)
}

pub fn set_link_parameters(_adapter: &Adapter, request: &mut NDIS_OID_REQUEST_SET) -> NDIS_STATUS {
    const LEN: usize = NDIS_SIZEOF_LINK_PARAMETERS_REVISION_1 as usize;
    match padded::<LEN>(request, LEN, NDIS_STATUS_INVALID_LENGTH) {
        Err(status) => status,
        Ok(parameters) => link::set_parameters(&parameters),
    }
}

pub fn set_offload_parameters(adapter: &Adapter, request: &mut NDIS_OID_REQUEST_SET) -> NDIS_STATUS {
    match padded::<LONGEST_PARAMETERS>(request, PARAMETERS_LEN, NDIS_STATUS_INVALID_LENGTH) {
        Err(status) => status,
        Ok(parameters) => offloads_changed(adapter, adapter.offloads.set_parameters(&parameters)),
    }
}

pub fn set_offload_encapsulation(adapter: &Adapter, request: &mut NDIS_OID_REQUEST_SET) -> NDIS_STATUS {
    match value::<NDIS_OFFLOAD_ENCAPSULATION>(request) {
        Err(status) => status,
        Ok(encapsulation) => offloads_changed(adapter, adapter.offloads.set_encapsulation(&encapsulation)),
    }
}

pub fn set_scaling(adapter: &Adapter, request: &mut NDIS_OID_REQUEST_SET) -> NDIS_STATUS {
    let status = adapter.rss.set(adapter.port(), request, || adapter.settings.want(Setting::Scaling));
    scaling_changed(adapter, status)
}

pub fn set_hash(adapter: &Adapter, request: &mut NDIS_OID_REQUEST_SET) -> NDIS_STATUS {
    let status = adapter.rss.set_hash(adapter.port(), request, || adapter.settings.want(Setting::Scaling));
    scaling_changed(adapter, status)
}

pub fn set_power_parameters(_adapter: &Adapter, request: &mut NDIS_OID_REQUEST_SET) -> NDIS_STATUS {
    match padded(request, power::PARAMETERS_LEN, NDIS_STATUS_BUFFER_TOO_SHORT) {
        Err(status) => status,
        Ok(parameters) => power::set_parameters(&parameters),
    }
}

//= R-OIDNDK-2, R-OIDNDK-3
pub fn set_ndk_state(adapter: &Adapter, request: &mut NDIS_OID_REQUEST_SET) -> NDIS_STATUS {
    match value::<u8>(request) {
        Err(status) => status,
        Ok(enable) => adapter.ndk().set_state(enable != 0),
    }
}

/// Answers with the counters of the engine, and the driver's own.
pub fn counters(adapter: &Adapter, answer: &mut Answer) {
    diagnostics::counters(adapter.ndk(), own_counters(adapter), answer);
}

/// Answers with the values of [`counters`].
pub fn counter_values(adapter: &Adapter, answer: &mut Answer) {
    diagnostics::counter_values(adapter.ndk(), own_counters(adapter), answer);
}

/// Returns the values of [`OF_DRIVER`](viordma_inf::counters::OF_DRIVER).
fn own_counters(adapter: &Adapter) -> OwnCounters {
    let queue = adapter.port().transmit_counters();
    [queue.notifications, queue.suppressed, adapter.rss.handed_over()]
}

pub fn set_tracing(adapter: &Adapter, request: &mut NDIS_OID_REQUEST_SET) -> NDIS_STATUS {
    match value::<u8>(request) {
        Err(status) => status,
        Ok(on @ 0..=1) => match adapter.ndk().tracing().set(on == 1) {
            Ok(()) => NDIS_STATUS_SUCCESS,
            Err(_) => NDIS_STATUS_RESOURCES,
        },
        Ok(_) => NDIS_STATUS_INVALID_DATA,
    }
}

/// After a request that succeeded, indicates the offloads in force to NDIS, then programs the device. So NDIS knows before the first frame
/// is coalesced, and the request completes after the last coalesced frame is indicated.
fn offloads_changed(adapter: &Adapter, status: NDIS_STATUS) -> NDIS_STATUS {
    if status != NDIS_STATUS_SUCCESS {
        return status;
    }
    adapter.offloads.indicate(adapter.handle());
    device_coalescing::changed(adapter);
    NDIS_STATUS_SUCCESS
}

/// Programs the device with the RSS and hash parameters in force, if the request that changed them has succeeded. Returns its status.
fn scaling_changed(adapter: &Adapter, status: NDIS_STATUS) -> NDIS_STATUS {
    if status == NDIS_STATUS_SUCCESS { programmed(adapter, Setting::Scaling) } else { status }
}

/// Has the device programmed with a setting that a request has changed. Returns the request's status, always success: a late device is
/// programmed later.
fn programmed(adapter: &Adapter, setting: Setting) -> NDIS_STATUS {
    adapter.settings.set(adapter.port(), setting);
    NDIS_STATUS_SUCCESS
}
