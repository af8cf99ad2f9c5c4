// SPDX-License-Identifier: MIT OR Apache-2.0

//! Recovery of a device that failed, of queues that have stalled or are corrupt, and the start after a reset. `PASSIVE_LEVEL`.
//!
//! A reset stops the device, which loses its state, and initializes it again with the same queues. Ethernet does not wait for RDMA consumers.
//! A device that needs long for its reset is waited for in steps of a second, between which the work item does what is more urgent.

use core::time::Duration;

use ndk_abi::ndis::NDIS_STATUS_SUCCESS;
use virtio_net::{Error, PairQueue};

use super::adapter::Adapter;
use super::change_trace::changed;
use super::failure::{device_failed, remove};
use super::transition_requests::{announce_if_asked, start_later};
use super::{configuration_change, device_interrupts, send};
use crate::events;
use crate::nic::queue_resets::QueueResets;
use driver_states::device::{DeviceEvent, DeviceState};

/// Time that consumers have to close their NDK adapters before the device loses its power.
pub const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// Resets the device after a failure.
//= R-PNP-4
pub fn reset(adapter: &Adapter) {
    changed(adapter.handle(), "reset of the device", NDIS_STATUS_SUCCESS);
    adapter.ndk().lose();
    adapter.port().stop();
    adapter.transitions.forget_queues();
    start_again(adapter, true);
}

/// Starts the device, also after a reset that takes long. `is_reset`: it had failed. Does nothing if the device is not stopped.
pub fn start_again(adapter: &Adapter, is_reset: bool) {
    if adapter.port().state() == DeviceState::Stopped && restart(adapter, is_reset) == Ok(true) && is_reset {
        events::write(adapter.handle(), events::table::RECOVERED, [0, 0]);
    }
}

/// Has the device reset queues. One that cannot do that goes on: stalled queues wait for it.
pub fn reset_queues(adapter: &Adapter, queues: QueueResets) {
    let QueueResets { stalled, corrupt_transmit, corrupt_receive } = queues;
    for number in QueueResets::pairs(stalled) {
        if reset_queue(adapter, PairQueue::Transmit(number)) {
            events::write(adapter.handle(), events::table::QUEUE_RESET, [number.into(), 0]);
        }
    }
    for number in QueueResets::pairs(corrupt_transmit & !stalled) {
        reset_queue(adapter, PairQueue::Transmit(number));
    }
    for number in QueueResets::pairs(corrupt_receive) {
        if reset_queue(adapter, PairQueue::Receive(number)) {
            device_interrupts::lost(adapter, number);
        }
    }
    // A configuration interrupt may have been missed while the registers were in use here.
    configuration_change::handle(adapter);
}

/// Has the device reset a queue. Returns whether it has; the device is reset as a whole if it fails to.
fn reset_queue(adapter: &Adapter, queue: PairQueue) -> bool {
    match adapter.port().reset_queue(queue) {
        Ok(()) => return true,
        Err(Error::OutOfOrder) => {}
        Err(error) => device_failed(adapter, error),
    }
    false
}

/// Starts the stopped device. Returns `false` if its reset takes longer: the work item then tries again. `is_reset`: the device had failed.
///
/// # Errors
/// The device cannot be used, and NDIS removes the adapter.
//= R-PNP-16
pub fn restart(adapter: &Adapter, is_reset: bool) -> Result<bool, Error> {
    match adapter.port().restart() {
        Ok(_) => {}
        Err(Error::ResetTimeout) => {
            start_later(adapter, is_reset);
            return Ok(false);
        }
        Err(error) => {
            if adapter.port().state() != DeviceState::Absent {
                events::device_failed(adapter.handle(), error);
            }
            give_up(adapter);
            return Err(error);
        }
    }
    adapter.coalescing.complete_change(adapter.offloads.coalescing());
    adapter.indicate_link();
    adapter.settings.set_all(adapter.port());
    announce_if_asked(adapter);
    adapter.ndk().resume();
    Ok(true)
}

/// Gives up the device: has NDIS remove the adapter.
pub fn give_up(adapter: &Adapter) {
    if adapter.port().step(DeviceEvent::Remove) {
        events::write(adapter.handle(), events::table::GIVEN_UP, [0, 0]);
        adapter.ndk().lose();
        send::abandon(adapter);
        remove(adapter);
    }
}
