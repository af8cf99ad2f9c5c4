// SPDX-License-Identifier: MIT OR Apache-2.0

//! Changes of the power state, and recovery of a device that failed. Both stop the device, which loses its state, and
//! initialize it again with the same queues.
//!
//! A work item does this at `PASSIVE_LEVEL`, one step at a time: a reset and the closing of NDK adapters take time. Each step is bounded.
//! [`Transitions`](super::transitions::Transitions) decides about the next step.

use core::time::Duration;

use ndk_abi::ndis::{
    NDIS_DEVICE_POWER_STATE, NDIS_OBJECT_HEADER, NDIS_OBJECT_TYPE_DEFAULT, NDIS_OID_REQUEST,
    NDIS_PM_CAPABILITIES, NDIS_PM_CAPABILITIES_REVISION_2, NDIS_PM_PARAMETERS_REVISION_1,
    NDIS_SIZEOF_NDIS_PM_CAPABILITIES_REVISION_2, NDIS_SIZEOF_NDIS_PM_PARAMETERS_REVISION_1,
    NDIS_SIZEOF_NDIS_PM_PARAMETERS_REVISION_2, NDIS_STATUS, NDIS_STATUS_ADAPTER_REMOVED,
    NDIS_STATUS_DEVICE_FAILED, NDIS_STATUS_INVALID_DATA, NDIS_STATUS_INVALID_PARAMETER, NDIS_STATUS_PENDING,
    NDIS_STATUS_SUCCESS, NdisMOidRequestComplete, NdisMRemoveMiniport,
};
use nt::Work;
use virtio_net::Error;

use super::adapter::Adapter;
use super::transitions::{Pending, Request, Step};
use super::{announce, device_rss, filter, send};
use crate::events;
use crate::nic::state::{DeviceEvent, DeviceState};

/// Lengths in bytes of `NDIS_PM_PARAMETERS`: of revision 1, and of revision 2, which added the last member.
pub const PARAMETERS_LEN: usize = NDIS_SIZEOF_NDIS_PM_PARAMETERS_REVISION_1 as usize;
pub const LONGEST_PARAMETERS: usize = NDIS_SIZEOF_NDIS_PM_PARAMETERS_REVISION_2 as usize;
/// Time that consumers have to close their NDK adapters before the device loses its state.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);

impl Work for Adapter {
    unsafe fn work(this: *const Self) {
        // SAFETY: `Transitions::close` waits for the work item, and precedes the end of the adapter.
        let adapter = unsafe { &*this };
        while let Some(step) = adapter.transitions.next() {
            match step {
                Step::Sleep(request) => {
                    sleep(adapter);
                    complete(adapter, &request, NDIS_STATUS_SUCCESS);
                }
                Step::Wake(request) => {
                    let status = wake(adapter);
                    complete(adapter, &request, status);
                }
                Step::Reset => reset(adapter),
                Step::GiveUp => give_up(adapter),
                Step::Stalled(pairs) => stalled(adapter, pairs),
                Step::Announce => announce::run(adapter),
            }
        }
    }
}

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

/// Has the work item reset the failed device. IRQL <= `DISPATCH_LEVEL`.
pub fn recover(adapter: &Adapter) {
    begin(adapter, |pending| pending.failed = true);
}

/// Has the work item reset the stalled transmit queue of a pair. IRQL <= `DISPATCH_LEVEL`.
pub fn recover_queue(adapter: &Adapter, pair: u32) {
    begin(adapter, |pending| pending.stalled |= 1_u32.wrapping_shl(pair));
}

/// Has the work item announce the adapter's addresses, if the device has asked for that. IRQL <= `DISPATCH_LEVEL`.
pub fn announce_if_asked(adapter: &Adapter) {
    if adapter.port().take_announcement() {
        begin(adapter, |pending| pending.announce = true);
    }
}

/// Has NDIS remove the adapter. IRQL <= `DISPATCH_LEVEL`.
pub fn remove(adapter: &Adapter) {
    // A failure means that NDIS is removing the adapter already.
    // SAFETY: the adapter's handle; no lock is held.
    let _ = unsafe { NdisMRemoveMiniport(adapter.handle()) };
}

/// Applies `change` and queues the work item unless it is queued or running.
fn begin(adapter: &Adapter, change: impl FnOnce(&mut Pending)) {
    if adapter.transitions.request(change) {
        // SAFETY: only a caller for which `request` returns `true` queues the work item, which has ended its work. The adapter
        // lives until it has, see `work`, and is `Sync`.
        unsafe { adapter.transitions.item.queue(adapter) };
    }
}

/// Prepares for the loss of power. Afterwards there is no register access, DMA or interrupt, and no send is pending.
//= R-PNP-11
fn sleep(adapter: &Adapter) {
    if adapter.port().state() == DeviceState::Stopped {
        return;
    }
    adapter.ndk().suspend(CLOSE_LIMIT);
    adapter.port().stop();
    adapter.transitions.forget_stalled();
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
fn wake(adapter: &Adapter) -> NDIS_STATUS {
    match adapter.port().state() {
        DeviceState::Stopped => {}
        DeviceState::Absent => return NDIS_STATUS_ADAPTER_REMOVED,
        // The transition to low power that NDIS requested did not follow, or a reset is due.
        DeviceState::Running | DeviceState::Failed => return NDIS_STATUS_SUCCESS,
    }
    if restart(adapter) { NDIS_STATUS_SUCCESS } else { NDIS_STATUS_DEVICE_FAILED }
}

/// Resets the device after a failure.
//= R-PNP-4
fn reset(adapter: &Adapter) {
    adapter.ndk().suspend(CLOSE_LIMIT);
    adapter.port().stop();
    adapter.transitions.forget_stalled();
    if restart(adapter) {
        events::write(adapter.handle(), events::table::RECOVERED, [0, 0]);
    }
}

/// Has the device reset its stalled transmit queues. A device that cannot reset queues is reset as a whole later,
/// unless it serves them again.
fn stalled(adapter: &Adapter, pairs: u32) {
    for number in (0..u32::BITS).filter(|&number| pairs & 1_u32.wrapping_shl(number) != 0) {
        match adapter.port().reset_transmit_queue(number as u16) {
            Ok(()) => events::write(adapter.handle(), events::table::QUEUE_RESET, [number, 0]),
            Err(Error::OutOfOrder) => {}
            Err(_) => adapter.device_failed(Error::TransmitStalled),
        }
    }
    // A configuration interrupt may have been missed while the registers were in use here.
    adapter.configuration_message();
}

/// Starts the stopped device. If that fails, removes the adapter and returns `false`.
//= R-PNP-16
fn restart(adapter: &Adapter) -> bool {
    if let Err(error) = adapter.port().restart().and_then(|_| program(adapter)) {
        if adapter.port().state() != DeviceState::Absent {
            events::device_failed(adapter.handle(), error);
        }
        give_up(adapter);
        return false;
    }
    adapter.indicate_link();
    announce_if_asked(adapter);
    adapter.ndk().resume();
    true
}

/// Programs all settings of the control queue into the device, which lost them when it was reset and has started again. `PASSIVE_LEVEL`.
///
/// # Errors
/// The device failed.
pub fn program(adapter: &Adapter) -> Result<(), Error> {
    adapter.port().use_all_pairs()?;
    device_rss::program(adapter)?;
    filter::program(adapter)?;
    adapter.program_coalescing()
}

/// Gives up the device: has NDIS remove the adapter.
fn give_up(adapter: &Adapter) {
    if adapter.port().step(DeviceEvent::Remove) {
        events::write(adapter.handle(), events::table::GIVEN_UP, [0, 0]);
        send::abandon(adapter);
        remove(adapter);
    }
}

fn complete(adapter: &Adapter, request: &Request, status: NDIS_STATUS) {
    // SAFETY: the request that pended, completed once; no lock is held.
    unsafe { NdisMOidRequestComplete(adapter.handle(), request.get(), status) };
}
