// SPDX-License-Identifier: MIT OR Apache-2.0

//! Power states: `OID_PNP_SET_POWER`, and what happens to the device before its power is lost and after it has returned.
//!
//! The adapter's [work item](super::transition_worker) makes the transitions at `PASSIVE_LEVEL`: the closing of NDK adapters takes time.

use ndk_abi::ndis::{
    NDIS_DEVICE_POWER_STATE, NDIS_OBJECT_HEADER, NDIS_OBJECT_TYPE_DEFAULT, NDIS_OID_REQUEST,
    NDIS_PM_CAPABILITIES, NDIS_PM_CAPABILITIES_REVISION_2, NDIS_PM_PARAMETERS_REVISION_1,
    NDIS_SIZEOF_NDIS_PM_CAPABILITIES_REVISION_2, NDIS_SIZEOF_NDIS_PM_PARAMETERS_REVISION_1,
    NDIS_SIZEOF_NDIS_PM_PARAMETERS_REVISION_2, NDIS_STATUS, NDIS_STATUS_ADAPTER_REMOVED,
    NDIS_STATUS_DEVICE_FAILED, NDIS_STATUS_INVALID_DATA, NDIS_STATUS_INVALID_PARAMETER, NDIS_STATUS_PENDING,
    NDIS_STATUS_SUCCESS, NdisMOidRequestComplete,
};

use super::adapter::Adapter;
use super::change_trace::changed;
use super::recovery::{self, CLOSE_LIMIT};
use super::send;
use super::transition_requests::begin;
use super::transitions::Request;
use driver_states::device::DeviceState;

/// Lengths in bytes of `NDIS_PM_PARAMETERS`: of revision 1, and of revision 2, which added the last member.
pub const PARAMETERS_LEN: usize = NDIS_SIZEOF_NDIS_PM_PARAMETERS_REVISION_1 as usize;
pub const LONGEST_PARAMETERS: usize = NDIS_SIZEOF_NDIS_PM_PARAMETERS_REVISION_2 as usize;

/// Returns what the adapter supports: low power, without waking the system.
pub fn capabilities() -> NDIS_PM_CAPABILITIES {
    const NONE: NDIS_DEVICE_POWER_STATE = NDIS_DEVICE_POWER_STATE::NdisDeviceStateUnspecified;
    NDIS_PM_CAPABILITIES {
        Header: NDIS_OBJECT_HEADER {
            Type: NDIS_OBJECT_TYPE_DEFAULT,
            Revision: NDIS_PM_CAPABILITIES_REVISION_2,
            Size: NDIS_SIZEOF_NDIS_PM_CAPABILITIES_REVISION_2,
        },
        Flags: 0,
        SupportedWoLPacketPatterns: 0,
        NumTotalWoLPatterns: 0,
        MaxWoLPatternSize: 0,
        MaxWoLPatternOffset: 0,
        MaxWoLPacketSaveBuffer: 0,
        SupportedProtocolOffloads: 0,
        NumArpOffloadIPv4Addresses: 0,
        NumNSOffloadIPv6Addresses: 0,
        MinMagicPacketWakeUp: NONE,
        MinPatternWakeUp: NONE,
        MinLinkChangeWakeUp: NONE,
        SupportedWakeUpEvents: 0,
        MediaSpecificWakeUpEvents: 0,
    }
}

/// `OID_PNP_SET_POWER`. Pends: NDIS must not be inside the request while consumers close their NDK adapters.
/// `PASSIVE_LEVEL`.
//= R-OIDNDK-11
pub fn set(adapter: &Adapter, state: NDIS_DEVICE_POWER_STATE, request: *mut NDIS_OID_REQUEST) -> NDIS_STATUS {
    let full_power = state == NDIS_DEVICE_POWER_STATE::NdisDeviceStateD0;
    let low_power = [
        NDIS_DEVICE_POWER_STATE::NdisDeviceStateD1,
        NDIS_DEVICE_POWER_STATE::NdisDeviceStateD2,
        NDIS_DEVICE_POWER_STATE::NdisDeviceStateD3,
    ];
    if !full_power && !low_power.contains(&state) {
        return NDIS_STATUS_INVALID_DATA;
    }
    let change = if full_power { "full power requested" } else { "low power requested" };
    changed(adapter.handle(), change, NDIS_STATUS_PENDING);
    begin(adapter, |pending| {
        pending.full_power = full_power;
        pending.request = Some(Request::new(request));
    });
    NDIS_STATUS_PENDING
}

/// `OID_PM_PARAMETERS`: which events wake the system. The adapter supports none, see [`capabilities`], so only parameters that enable
/// nothing are accepted. (WDK: `OID_PM_PARAMETERS`)
pub fn set_parameters(&[kind, revision, _, _, ref enabled @ ..]: &[u8; LONGEST_PARAMETERS]) -> NDIS_STATUS {
    if kind != NDIS_OBJECT_TYPE_DEFAULT || revision < NDIS_PM_PARAMETERS_REVISION_1 {
        return NDIS_STATUS_INVALID_DATA;
    }
    if enabled.iter().any(|&byte| byte != 0) { NDIS_STATUS_INVALID_PARAMETER } else { NDIS_STATUS_SUCCESS }
}

/// Prepares for the loss of power. Afterwards there is no register access, DMA or interrupt, and no send is pending.
//= R-PNP-11
pub fn sleep(adapter: &Adapter) {
    if adapter.port().state() == DeviceState::Stopped {
        adapter.interrupt.set_powered(false);
        return;
    }
    adapter.ndk().suspend(CLOSE_LIMIT);
    adapter.port().stop();
    adapter.interrupt.set_powered(false);
    adapter.transitions.forget_queues();
    send::abandon(adapter);
    // A DPC may still be processing frames, and so may a deferred routine that a DPC has queued.
    nt::flush_dpcs();
    for deferred in adapter.interrupt.deferred() {
        deferred.flush();
    }
    if let Some(polls) = &adapter.polls {
        polls.flush();
    }
}

/// Initializes the device after its power returned.
//= R-PNP-11
pub fn wake(adapter: &Adapter) -> NDIS_STATUS {
    adapter.interrupt.set_powered(true);
    match adapter.port().state() {
        DeviceState::Stopped => {}
        DeviceState::Absent => return NDIS_STATUS_ADAPTER_REMOVED,
        // The transition to low power that NDIS requested did not follow, or a reset is due.
        DeviceState::Running | DeviceState::Failed => return NDIS_STATUS_SUCCESS,
    }
    // A device that needs long is started when it is ready; its link is down until then.
    if recovery::restart(adapter, false).is_ok() { NDIS_STATUS_SUCCESS } else { NDIS_STATUS_DEVICE_FAILED }
}

/// Completes a pending power request with `status`.
pub fn complete(adapter: &Adapter, request: &Request, status: NDIS_STATUS) {
    changed(adapter.handle(), "power request completed", status);
    // SAFETY: `set` left the request pending, and `Transitions::next` returned it once; no lock is held.
    unsafe { NdisMOidRequestComplete(adapter.handle(), request.get(), status) };
}
