// SPDX-License-Identifier: MIT OR Apache-2.0

//! Failure of the device: it violated the format of a ring, reported that it needs a reset, did not answer, or was removed. IRQL <=
//! `DISPATCH_LEVEL`.

use ndk_abi::ndis::NdisMRemoveMiniport;
use virtio_net::Error;

use super::adapter::Adapter;
use super::send;
use super::transition_requests::{recover, reset_receive, reset_transmit};
use crate::events;
use crate::nic::queue_pair::Pair;
use driver_states::device::DeviceEvent;
use driver_states::reset_history::Cause;

/// Handles a failed device: logs an event once, aborts all pending work, and reports that the link is down. Then a work item resets the
/// device, or, if the device is gone, NDIS removes the adapter. IRQL <= `DISPATCH_LEVEL`.
//= R-PNP-8
pub fn device_failed(adapter: &Adapter, error: Error) {
    let gone = error == Error::Removed;
    if !adapter.port().step(if gone { DeviceEvent::Remove } else { DeviceEvent::Fail }) {
        return;
    }
    events::device_failed(adapter.handle(), error);
    adapter.ndk().lose();
    send::abandon(adapter);
    adapter.indicate_link();
    if gone {
        remove(adapter);
    } else {
        let is_of_ring = matches!(error, Error::BrokenRing(_));
        recover(adapter, if is_of_ring { Cause::CorruptRing } else { Cause::Other });
    }
}

/// Handles a receive queue whose ring the device has corrupted: has it reset alone if the device can do that, and it was not reset within the
/// last minute, otherwise the device. IRQL <= `DISPATCH_LEVEL`.
//= virtio §18
pub fn receive_failed(adapter: &Adapter, number: u32, pair: &Pair, error: Error) {
    if adapter.port().resets_queues() && pair.take_receive_reset() {
        events::queue_failed(adapter.handle(), number, error);
        reset_receive(adapter, number);
    } else {
        device_failed(adapter, error);
    }
}

/// Returns whether the device has corrupted the ring of a transmit queue. The queue is reset alone, or the device, as above. IRQL <=
/// `DISPATCH_LEVEL`.
//= virtio §18
pub fn transmit_has_failed(adapter: &Adapter, number: u32, pair: &Pair) -> bool {
    let Some((error, is_reset)) = pair.transmit_fault(adapter.port().resets_queues()) else { return false };
    if is_reset {
        events::queue_failed(adapter.handle(), number, error);
        reset_transmit(adapter, number);
    } else {
        device_failed(adapter, error);
    }
    true
}

/// Has NDIS remove the adapter.
pub fn remove(adapter: &Adapter) {
    // An error means that NDIS is removing the adapter already.
    // SAFETY: the handle is NDIS's of an adapter that is not halted, because callers borrow it; no lock is held.
    let _ = unsafe { NdisMRemoveMiniport(adapter.handle()) };
}
