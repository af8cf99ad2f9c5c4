// SPDX-License-Identifier: MIT OR Apache-2.0

//! Recovery of a device that failed, of queues that have stalled or are corrupt, and the start after a reset. `PASSIVE_LEVEL`.
//!
//! A reset stops the device, which loses its state, and initializes it again with the same queues. Ethernet does not wait for RDMA consumers.
//! A device that needs long for its reset is waited for in steps of a second, between which the work item does what is more urgent.

use core::time::Duration;

use ndk_abi::ndis::NDIS_STATUS_SUCCESS;
use virtio_net::{Error, PairQueue, QueueReset};

use super::adapter::Adapter;
use super::change_trace::changed;
use super::failure::{device_failed, remove};
use super::transition_requests::{announce_if_asked, reset_later, start_later};
use super::{configuration_change, device_interrupts, send};
use crate::events;
use crate::nic::queue_resets::QueueResets;
use driver_states::device::{DeviceEvent, DeviceState};

/// Time that consumers have to close their NDK adapters before the device loses its power.
pub const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// How long resets of queues are begun and waited for at a time: longer than a look at each of 32 that last takes. With the last one, which
/// takes a second, and the time of [`CLOSE_LIMIT`], a low power state takes less than ten seconds.
const RESETS_LIMIT: Duration = Duration::from_secs(2);

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

/// Has the device reset queues. One that cannot do that goes on: stalled queues wait for it. A reset that lasts is looked at again, after what
/// is more urgent; none is begun after [`RESETS_LIMIT`], so that a power state is not late.
pub fn reset_queues(adapter: &Adapter, queues: QueueResets) {
    let mut left = QueueResets::default();
    let end = nt::time::now().saturating_add(RESETS_LIMIT.as_nanos() as u64);
    for number in QueueResets::pairs(queues.stalled) {
        match reset_queue(adapter, PairQueue::Transmit(number), end) {
            Reset::Done => {
                events::write(adapter.handle(), events::table::QUEUE_RESET, [number.into(), 0]);
            }
            Reset::Lasts => QueueResets::add(&mut left.stalled, number.into()),
            Reset::Impossible => {}
        }
    }
    for number in QueueResets::pairs(queues.corrupt_transmit & !queues.stalled) {
        if reset_queue(adapter, PairQueue::Transmit(number), end) == Reset::Lasts {
            QueueResets::add(&mut left.corrupt_transmit, number.into());
        }
    }
    for number in QueueResets::pairs(queues.corrupt_receive) {
        match reset_queue(adapter, PairQueue::Receive(number), end) {
            Reset::Done => device_interrupts::lost(adapter, number),
            Reset::Lasts => QueueResets::add(&mut left.corrupt_receive, number.into()),
            Reset::Impossible => {}
        }
    }
    if !left.are_none() {
        reset_later(adapter, left);
    }
    // A configuration interrupt may have been missed while the registers were in use here.
    configuration_change::handle(adapter);
}

/// Outcome of a look at the reset of a queue.
#[derive(PartialEq, Eq)]
enum Reset {
    Done,
    /// It has not ended, or not begun.
    Lasts,
    /// The device cannot reset queues, or is reset as a whole.
    Impossible,
}

/// Has the device reset a queue, before `end`, in nanoseconds.
fn reset_queue(adapter: &Adapter, queue: PairQueue, end: u64) -> Reset {
    if nt::time::now() >= end {
        return Reset::Lasts;
    }
    match adapter.port().reset_queue(queue) {
        Ok(QueueReset::Ended) => return Reset::Done,
        Ok(QueueReset::Lasts { is_new }) => {
            if is_new {
                let (PairQueue::Receive(number) | PairQueue::Transmit(number)) = queue;
                events::write(adapter.handle(), events::table::QUEUE_RESET_LATE, [number.into(), 0]);
            }
            return Reset::Lasts;
        }
        Err(Error::OutOfOrder) => {}
        Err(error) => device_failed(adapter, error),
    }
    Reset::Impossible
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
