// SPDX-License-Identifier: MIT OR Apache-2.0

//! Recovery of a device that failed, of queues that have stalled or are corrupt, and the start after a reset. `PASSIVE_LEVEL`.
//!
//! A reset stops the device, which loses its state, and initializes it again with the same queues. Ethernet does not wait for RDMA consumers.
//! A device that needs long for its reset is waited for in steps of a second, between which the work item does what is more urgent. One that
//! fails again and again is stopped, and started after a [pause](driver_states::reset_history).

use core::time::Duration;

use ndk_abi::ndis::NDIS_STATUS_SUCCESS;
use virtio_net::{Error, PairQueue, QueueReset};

use super::adapter::Adapter;
use super::change_trace::changed;
use super::failure::{device_failed, remove};
use super::transition_requests::{announce_if_asked, reset_later, start_later};
use super::transitions::Start;
use super::{configuration_change, device_interrupts, send};
use crate::events;
use crate::nic::queue_resets::QueueResets;
use crate::nic::sleep::sleep;
use driver_states::device::{DeviceEvent, DeviceState};

/// Time that consumers have to close their NDK adapters before the device loses its power.
pub const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// How long resets of queues are begun and waited for at a time: longer than a look at each of 32 that last takes. With the last one, which
/// takes a second, and the time of [`CLOSE_LIMIT`], a low power state takes less than ten seconds.
const RESETS_LIMIT: Duration = Duration::from_secs(2);

/// How long the work item waits at a time for a start that is not due, in microseconds.
const MOMENT: u32 = 100_000;

/// Resets the device after a failure, and starts it after `pause`.
//= R-PNP-4
pub fn reset(adapter: &Adapter, pause: Duration) {
    changed(adapter.handle(), "reset of the device", NDIS_STATUS_SUCCESS);
    adapter.ndk().lose();
    adapter.port().stop();
    adapter.transitions.forget_queues();
    start(adapter, start_after(adapter, pause, true));
}

/// Returns the start of the stopped device after `pause`, which is reported. `is_reset`: it had failed.
fn start_after(adapter: &Adapter, pause: Duration, is_reset: bool) -> Start {
    if !pause.is_zero() {
        let seconds = u32::try_from(pause.as_secs()).unwrap_or(u32::MAX);
        events::write(adapter.handle(), events::table::START_DELAYED, [seconds, 0]);
    }
    let pause = u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX);
    Start { is_reset, due: nt::time::now().saturating_add(pause) }
}

/// Starts the device if that is due, also after a reset that takes long; otherwise waits for a moment. Does nothing if the device is not
/// stopped.
pub fn start(adapter: &Adapter, start: Start) {
    if adapter.port().state() != DeviceState::Stopped {
        return;
    }
    let left = start.due.saturating_sub(nt::time::now());
    if left != 0 {
        sleep(MOMENT.min(u32::try_from(left / 1000).unwrap_or(u32::MAX)));
        start_later(adapter, start);
    } else if restart(adapter, start.is_reset) == Ok(true) && start.is_reset {
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

/// Starts the stopped device. Returns `false` if its reset takes longer, or it fails at once: the work item then tries again. `is_reset`: the
/// device had failed.
///
/// # Errors
/// The device cannot be used, and NDIS removes the adapter.
//= R-PNP-16
pub fn restart(adapter: &Adapter, is_reset: bool) -> Result<bool, Error> {
    match adapter.port().restart() {
        Ok(_) => {}
        Err(Error::ResetTimeout) => {
            start_later(adapter, Start { is_reset, due: 0 });
            return Ok(false);
        }
        // No proof that the device cannot be used.
        Err(error @ (Error::NeedsReset | Error::UnsteadyConfig | Error::OutOfOrder)) => {
            if adapter.port().state() != DeviceState::Absent {
                events::device_failed(adapter.handle(), error);
            }
            start_later(adapter, start_after(adapter, adapter.transitions.start_failed(), is_reset));
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
    adapter.transitions.device_started();
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
