// SPDX-License-Identifier: MIT OR Apache-2.0

//! Requests to the adapter's work item. IRQL <= `DISPATCH_LEVEL`.

use super::adapter::Adapter;
use super::transitions::{Pending, Start};
use crate::nic::queue_resets::QueueResets;
use driver_states::reset_history::Cause;

/// Has the work item reset the failed device. IRQL <= `DISPATCH_LEVEL`.
pub fn recover(adapter: &Adapter, cause: Cause) {
    begin(adapter, |pending| pending.failed = Some(cause));
}

/// Has the work item start the stopped device when that is due, and a reset that takes long has ended. IRQL <= `DISPATCH_LEVEL`.
pub fn start_later(adapter: &Adapter, start: Start) {
    begin(adapter, |pending| pending.starting = Some(start));
}

/// Has the work item reset the stalled transmit queue of a pair. IRQL <= `DISPATCH_LEVEL`.
pub fn reset_stalled(adapter: &Adapter, pair: u32) {
    begin(adapter, |pending| QueueResets::add(&mut pending.queues.stalled, pair));
}

/// Has the work item reset the transmit queue of a pair, whose ring the device has corrupted. IRQL <= `DISPATCH_LEVEL`.
pub fn reset_transmit(adapter: &Adapter, pair: u32) {
    begin(adapter, |pending| QueueResets::add(&mut pending.queues.corrupt_transmit, pair));
}

/// Has the work item reset the receive queue of a pair, whose ring the device has corrupted. IRQL <= `DISPATCH_LEVEL`.
pub fn reset_receive(adapter: &Adapter, pair: u32) {
    begin(adapter, |pending| QueueResets::add(&mut pending.queues.corrupt_receive, pair));
}

/// Has the work item go on with these resets of queues. IRQL <= `DISPATCH_LEVEL`.
pub fn reset_later(adapter: &Adapter, queues: QueueResets) {
    begin(adapter, |pending| pending.queues.merge(queues));
}

/// Has the work item announce the adapter's addresses, if the device has asked for that. IRQL <= `DISPATCH_LEVEL`.
pub fn announce_if_asked(adapter: &Adapter) {
    if adapter.port().take_announcement() {
        begin(adapter, |pending| pending.announce = true);
    }
}

/// Applies `change` and queues the work item unless it is queued or running.
pub fn begin(adapter: &Adapter, change: impl FnOnce(&mut Pending)) {
    if adapter.transitions.request(change) {
        // SAFETY: only a caller for which `request` returns `true` queues the work item, which has ended its work. The adapter
        // lives until it has, see `work`, and is `Sync`.
        unsafe { adapter.transitions.item.queue(adapter) };
    }
}
