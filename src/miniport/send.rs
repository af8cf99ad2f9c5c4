// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sends: copies each frame of a NET_BUFFER_LIST into a transmit slot, so that the NBL can be completed at once.
//!
//! NBLs for which no slot is free wait in order for the transmit interrupt; without a link, none is taken and none waits. The same
//! queue pair sends all NBLs of a flow. IRQL <= `DISPATCH_LEVEL`.

use core::ffi::c_void;

use ndk_abi::ndis::{
    NDIS_HANDLE, NDIS_NET_BUFFER_LIST_INFO, NDIS_PORT_NUMBER, NDIS_SEND_COMPLETE_FLAGS_DISPATCH_LEVEL,
    NDIS_SEND_FLAGS_DISPATCH_LEVEL, NDIS_STATUS, NDIS_STATUS_ADAPTER_REMOVED, NDIS_STATUS_LOW_POWER_STATE,
    NDIS_STATUS_MEDIA_DISCONNECTED, NDIS_STATUS_PAUSED, NDIS_STATUS_RESET_IN_PROGRESS, NDIS_STATUS_RESOURCES,
    NDIS_STATUS_SEND_ABORTED, NET_BUFFER_LIST,
};

use super::adapter::Adapter;
use super::completion::{abort_waiting, complete};
use super::flow_hash;
use super::outgoing_frame::Outgoing;
use super::requested_offload::{Requested, Sent};
use super::statistics::Cast;
use crate::nbl::send_progress::{begin, position, sent_part, set_position, set_sent_part, set_status};
use crate::nbl::{NblList, data_len, info};
use crate::nic::queue_pair::{Pair, TRANSMIT_BUDGET, Transmitter};
use crate::nic::rdma_slots::TransmitSlots;
use driver_states::device::DeviceState;

/// [`TRANSMIT_BUDGET`] counts this number of bytes as one frame.
const FRAME: usize = 1514;

/// `MiniportSendNetBufferLists`.
pub unsafe extern "efiapi" fn send_net_buffer_lists(
    context: NDIS_HANDLE,
    mut chain: *mut NET_BUFFER_LIST,
    _port: NDIS_PORT_NUMBER,
    flags: u32,
) {
    // SAFETY: NDIS passes the context registered for this adapter.
    let adapter = unsafe { Adapter::from_context(context) };
    let mut arrived = NblList::new();
    while !chain.is_null() {
        let nbl = chain;
        // SAFETY: NDIS gave the chain to the driver.
        chain = unsafe { (*nbl).Next };
        // SAFETY: NDIS gave the NBL to the driver, and it is on no list of the driver yet.
        unsafe { begin(nbl) };
        // SAFETY: the driver's own, taken out of the chain.
        unsafe { arrived.push(nbl) };
    }
    let flags =
        if flags & NDIS_SEND_FLAGS_DISPATCH_LEVEL == 0 { 0 } else { NDIS_SEND_COMPLETE_FLAGS_DISPATCH_LEVEL };
    let Some(_passing) = adapter.pass() else {
        complete(adapter.handle(), arrived.first(), Some(NDIS_STATUS_PAUSED), flags);
        return;
    };
    let ended = match adapter.port().pairs() {
        [only] => queue(adapter, only, arrived),
        pairs => queue_by_flow(adapter, pairs, arrived),
    };
    ended.complete(adapter, flags);
}

/// NBLs to complete once the lock is released.
struct Ended {
    /// Each has its own status.
    done: NblList,
    /// Not sent, or not all of their frames.
    refused: NblList,
}

impl Ended {
    const fn new() -> Self {
        Self { done: NblList::new(), refused: NblList::new() }
    }

    fn append(&mut self, other: Self) {
        self.done.append(other.done);
        self.refused.append(other.refused);
    }

    fn complete(self, adapter: &Adapter, flags: u32) {
        complete(adapter.handle(), self.done.first(), None, flags);
        complete(adapter.handle(), self.refused.first(), Some(refusal(adapter)), flags);
    }
}

/// Queues NBLs on a pair and sends as many frames as there are slots, also of NBLs of others that wait. NBLs are refused if the device does
/// not use the pair or has no link.
fn queue(adapter: &Adapter, pair: &Pair, arrived: NblList) -> Ended {
    let mut ended = Ended::new();
    pair.send_lists(arrived, |transmitter| {
        // Checked with the lock held: `abandon` takes the lock after the state has changed, and finds all NBLs queued
        // before.
        if transmitter.is_used && adapter.port().link_up() {
            ended.done.append(send_waiting(adapter, transmitter));
        } else {
            ended.refused.append(transmitter.waiting.take_all());
        }
    });
    ended
}

/// Queues each NBL on the pair of its flow. Successive NBLs of a pair are queued together.
fn queue_by_flow(adapter: &Adapter, pairs: &[Pair], mut arrived: NblList) -> Ended {
    let mut ended = Ended::new();
    while let Some(first) = arrived.pop() {
        let number = pair_of(adapter, first);
        let mut run = NblList::new();
        // SAFETY: just taken off its list.
        unsafe { run.push(first) };
        while let Some(next) = arrived.take_first_if(|nbl| pair_of(adapter, nbl) == number) {
            // SAFETY: just taken off its list.
            unsafe { run.push(next) };
        }
        let Some(pair) = pairs.get(number) else {
            ended.refused.append(run);
            continue;
        };
        let mut of_run = queue(adapter, pair, run);
        if let Some(pair) = pairs.first()
            && !of_run.refused.is_empty()
        {
            // The device has been reset meanwhile, and may use only the first pair.
            let refused = of_run.refused.take_all();
            of_run.append(queue(adapter, pair, refused));
        }
        ended.append(of_run);
    }
    ended
}

/// Returns the number of the pair that sends an NBL.
fn pair_of(adapter: &Adapter, nbl: *mut NET_BUFFER_LIST) -> usize {
    // SAFETY: the driver's own, and not referenced elsewhere.
    let hash = flow_hash::hash(unsafe { &*nbl });
    hash.checked_rem(adapter.port().used_pairs()).unwrap_or(0) as usize
}

/// `MiniportCancelSend`.
pub unsafe extern "efiapi" fn cancel_send(context: NDIS_HANDLE, cancel_id: *mut c_void) {
    // SAFETY: NDIS passes the context registered for this adapter.
    let adapter = unsafe { Adapter::from_context(context) };
    // A pause completes everything.
    let Some(_passing) = adapter.pass() else { return };
    let id = |nbl: &NET_BUFFER_LIST| info(nbl, NDIS_NET_BUFFER_LIST_INFO::NetBufferListCancelId);
    let cancelled = adapter.port().take_waiting(|nbl| id(nbl) == cancel_id);
    complete(adapter.handle(), cancelled, Some(NDIS_STATUS_SEND_ABORTED), 0);
}

/// Sends the waiting NBLs of a pair while slots are free, after the device returned slots. `DISPATCH_LEVEL`.
pub fn resume(adapter: &Adapter, pair: &Pair) {
    let Some(_passing) = adapter.pass() else { return };
    let ended = queue(adapter, pair, NblList::new());
    ended.complete(adapter, NDIS_SEND_COMPLETE_FLAGS_DISPATCH_LEVEL);
}

/// Completes all waiting NBLs unsent, after the device stopped running or its link went down.
pub fn abandon(adapter: &Adapter) {
    // A pause completes everything.
    let Some(_passing) = adapter.pass() else { return };
    abort_waiting(adapter.handle(), adapter.port(), refusal(adapter));
}

/// Completes the waiting NBLs of a pair unsent, whose queue the device does not serve. IRQL <= `DISPATCH_LEVEL`.
pub fn abandon_pair(adapter: &Adapter, pair: &Pair) {
    // A pause completes everything.
    let Some(_passing) = adapter.pass() else { return };
    let waiting = pair.take_waiting(|_| true);
    complete(adapter.handle(), waiting.first(), Some(NDIS_STATUS_RESOURCES), 0);
}

/// Returns the status of sends while the device does not run or has no link.
fn refusal(adapter: &Adapter) -> NDIS_STATUS {
    match adapter.port().state() {
        DeviceState::Running if !adapter.port().link_up() => NDIS_STATUS_MEDIA_DISCONNECTED,
        DeviceState::Running | DeviceState::Failed => NDIS_STATUS_RESET_IN_PROGRESS,
        DeviceState::Stopped => NDIS_STATUS_LOW_POWER_STATE,
        DeviceState::Absent => NDIS_STATUS_ADAPTER_REMOVED,
    }
}

/// Copies the frames of waiting NBLs into slots. Returns the finished NBLs.
fn send_waiting(adapter: &Adapter, transmitter: &mut Transmitter) -> NblList {
    let mut done = NblList::new();
    let mut budget = TRANSMIT_BUDGET;
    while let Some(nbl) = transmitter.waiting.pop() {
        if !send_list(adapter, transmitter, nbl, &mut budget) {
            // No slot is free, or the budget is used up: the NBL stays first, and continues with the frame at which it
            // stopped. SAFETY: just taken off its list.
            unsafe { transmitter.waiting.push_front(nbl) };
            break;
        }
        // SAFETY: just taken off its list.
        unsafe { done.push(nbl) };
    }
    done
}

/// Copies the remaining frames of one NBL; `false` if slots or the budget ran out.
fn send_list(
    adapter: &Adapter,
    transmitter: &mut Transmitter,
    nbl: *mut NET_BUFFER_LIST,
    budget: &mut usize,
) -> bool {
    // SAFETY: the NBL was taken from the waiting list of the pair, whose lock is held, so no other thread accesses it.
    let list = unsafe { &*nbl };
    let requested = Requested::of(list);
    let vlan = adapter.vlan.id();
    let tag =
        adapter.vlan.requested(info(list, NDIS_NET_BUFFER_LIST_INFO::Ieee8021QNetBufferListInfo).addr());
    loop {
        // SAFETY: the NBL was taken from the waiting list, as above.
        let net_buffer = unsafe { position(nbl) };
        if net_buffer.is_null() {
            return true;
        }
        let Some(left) = budget.checked_sub(1) else { return false };
        *budget = left;
        let queue = &mut transmitter.queue;
        let outgoing = |tag| Outgoing { net_buffer, tag, vlan, max_frame: adapter.max_frame as usize };
        let sent = match (tag, requested) {
            (Err(status), _) => Some(Err(status)),
            (Ok(tag), None) => send_plain(queue, outgoing(tag)),
            (Ok(tag), Some(requested)) => {
                // SAFETY: the NBL was taken from the waiting list, as above.
                let sent = unsafe { sent_part(nbl) };
                requested.send(&adapter.offloads, queue, outgoing(tag), sent)
            }
        };
        match sent {
            None => return false,
            Some(Ok(sent)) => {
                // Copying an LSO or USO packet takes as long as copying its segments. For each part, the whole packet is copied.
                *budget = budget.saturating_sub(data_len(net_buffer) as usize / FRAME);
                adapter.statistics().sent(sent.cast, sent.len);
                if let Some(part) = sent.unfinished {
                    // SAFETY: the NBL was taken from the waiting list, as above.
                    unsafe { set_sent_part(nbl, part) };
                    continue;
                }
            }
            Some(Err(status)) => {
                // SAFETY: the NBL was taken from the waiting list, as above.
                unsafe { set_status(nbl, status) };
                adapter.statistics().send_failed();
            }
        }
        // SAFETY: a frame of a list that is the driver's own.
        let next = unsafe { (*net_buffer).Next };
        // SAFETY: the NBL was taken from the waiting list, as above.
        unsafe { set_position(nbl, next) };
    }
}

/// Queues a frame without offloads; `None` if no slot is free. An error is the status with which the NBL fails.
fn send_plain(queue: &mut TransmitSlots, outgoing: Outgoing) -> Option<Result<Sent, NDIS_STATUS>> {
    let slot = queue.slot()?;
    let (cast, len) = match outgoing.copy(slot, outgoing.max_frame) {
        Ok(frame) => (Cast::of(frame), frame.len()),
        Err(status) => return Some(Err(status)),
    };
    let len = match outgoing.tag {
        None => len,
        Some(_) => match outgoing.insert_tag_unless_tagged(slot, len) {
            Ok(len) => len,
            Err(status) => return Some(Err(status)),
        },
    };
    queue.commit(len);
    Some(Ok(Sent { cast, len, unfinished: None }))
}
