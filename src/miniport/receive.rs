// SPDX-License-Identifier: MIT OR Apache-2.0

//! Receive indications: frames that the RDMA provider does not claim are copied into NET_BUFFER_LISTs of a fixed pool and
//! indicated to NDIS.

use core::ops::ControlFlow;

use fallible::Arc;
use ndk_abi::ndis::{
    NDIS_HANDLE, NDIS_NET_BUFFER_LIST_INFO, NDIS_RECEIVE_FLAGS_DISPATCH_LEVEL, NDIS_RECEIVE_FLAGS_RESOURCES,
    NET_BUFFER_LIST, NdisMIndicateReceiveNetBufferLists,
};
use virtio_net::{Coalesced, HashTypes};

use super::adapter::Adapter;
use super::receive_checksum;
use super::receive_lanes::Receiver;
use super::receive_pool::ReceivedInfo;
use super::rss::{Scaled, Scaling};
use crate::nbl::{NblList, set_info};
use crate::nic::poll_objects::PollObjects;
use crate::nic::vlan_tag::Tag;

/// The frames of one poll that the driver will indicate.
pub struct Indication<'a> {
    adapter: &'a Adapter,
    /// The RSS parameters in force for these frames.
    scaling: Option<Arc<Scaling>>,
    chain: NblList,
    count: u32,
    /// There are more frames than buffers that the device has filled.
    is_divided: bool,
}

impl Receiver for Adapter {
    fn indicate(&self, lists: &NblList, count: u32) {
        if lists.is_empty() {
            return;
        }
        // The stack may return all of them before the indication returns, for which a pause waits, too.
        let _passing = self.pass_with_lists();
        // The stack would keep the last ones, and later frames would be dropped.
        let remain_ours = self.receive_pool().is_low();
        let flags = if remain_ours { NDIS_RECEIVE_FLAGS_RESOURCES } else { 0 };
        // SAFETY: a chain of `count` lists of this adapter's. The stack returns them through `return_net_buffer_lists`, or copies their
        // data during the call.
        unsafe {
            NdisMIndicateReceiveNetBufferLists(
                self.handle(),
                lists.first(),
                0,
                count,
                NDIS_RECEIVE_FLAGS_DISPATCH_LEVEL | flags,
            );
        }
        if remain_ours {
            self.passed(self.receive_pool().take_back(lists.first()));
        }
    }
}

/// Result of the checks of a received frame.
#[derive(Clone, Copy)]
pub enum Checked {
    /// Whether the TCP or UDP checksum was verified.
    Verified(bool),
    /// It consists of this number of TCP segments, at least 2, and its checksums were verified. `has_checksum`: the field of the TCP checksum
    /// has the one of the whole.
    Coalesced { segments: u16, has_checksum: bool },
}

impl<'a> Indication<'a> {
    /// Returns an empty indication. The caller holds a [permission](Adapter::pass) until after [`indicate`](Self::indicate).
    pub fn new(adapter: &'a Adapter) -> Self {
        Self { adapter, scaling: adapter.rss.current(), chain: NblList::new(), count: 0, is_divided: false }
    }

    /// Copies and adds a frame. Returns how many NBLs are left for frames like this one; `None` if there was none. `tag` was removed from
    /// the frame; `reported` is the device's hash, if it reported one.
    pub fn add(
        &mut self,
        frame: &[u8],
        tag: Option<Tag>,
        checked: Checked,
        reported: Option<(HashTypes, u32)>,
    ) -> Option<u32> {
        let (checksum, coalesced) = match checked {
            Checked::Verified(is_verified) => {
                (receive_checksum::report(&self.adapter.offloads, frame, is_verified), 0)
            }
            Checked::Coalesced { segments, has_checksum } => {
                (receive_checksum::report_coalesced(frame, has_checksum), segments.into())
            }
        };
        let priority_vlan = self.adapter.vlan.report(tag);
        let info = ReceivedInfo { checksum: checksum as usize, priority_vlan, coalesced };
        let (nbl, left) = self.adapter.receive_pool().fill(frame, info)?;
        if let Some(scaling) = &self.scaling {
            // SAFETY: fresh from the free list.
            set_scaled(unsafe { &mut *nbl }, scaling.of(frame, reported));
        }
        self.adapter.traffic.join();
        // SAFETY: fresh from the free list.
        unsafe { self.chain.push(nbl) };
        self.count += 1;
        Some(left)
    }

    /// Divides an untagged frame that consists of several segments, and adds each as a frame of its own. Returns how many NBLs are left for
    /// such frames; `None` if there were not enough. The contents of `frame` are others afterwards.
    ///
    /// Not inlined: the DPC's stack frame is large without it.
    #[cold]
    #[inline(never)]
    pub fn add_segments(
        &mut self,
        frame: &mut [u8],
        tag: Option<Tag>,
        segments: &Coalesced,
        reported: Option<(HashTypes, u32)>,
    ) -> Option<u32> {
        self.is_divided = true;
        let mut left = None;
        segments.divide(frame, |segment| {
            left = self.add(segment, tag, Checked::Verified(true), reported);
            if left.is_some() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        left
    }

    /// Passes each frame to the poll object that indicates it: the one of its processor, or without RSS `own`, which is being polled.
    pub fn queue(mut self, polls: &PollObjects<Adapter>, own: u32) {
        if !self.is_scaled() {
            polls.queue(own, self.chain);
            return;
        }
        while let Some((processor, run, frames)) = self.take_run() {
            polls.queue(processor, run);
            if processor != own {
                self.adapter.rss.count_handed_over(frames.into());
                polls.request(processor);
            }
        }
    }

    /// Indicates the frames to the protocol stack; hands over frames of other processors. Frames of a batch with divided ones are handed
    /// over, too: NDIS limits how many a DPC indicates. `DISPATCH_LEVEL`, no lock held.
    pub fn indicate(mut self) {
        let adapter = self.adapter;
        if self.is_scaled() {
            self.hand_over();
        } else if adapter.coalescing.has_divided() {
            let here = nt::processor::current();
            if self.is_divided || !adapter.lanes.is_idle(here) {
                adapter.lanes.hand_over(adapter, here, self.chain);
                return;
            }
        }
        adapter.indicate(&self.chain, self.count);
    }

    /// Whether an indirection table says which processors indicate the frames.
    fn is_scaled(&self) -> bool {
        self.scaling.as_ref().is_some_and(|scaling| scaling.indirection.is_some())
    }

    /// Hands over the frames of other processors. Keeps the frames of this processor, unless earlier ones are still
    /// waiting for it.
    fn hand_over(&mut self) {
        let adapter = self.adapter;
        let here = nt::processor::current();
        let is_idle = adapter.lanes.is_idle(here);
        let (mut kept, mut count) = (NblList::new(), 0);
        while let Some((processor, run, frames)) = self.take_run() {
            if processor == here && is_idle && !self.is_divided {
                kept.append(run);
                count += frames;
            } else {
                adapter.rss.count_handed_over(frames.into());
                adapter.lanes.hand_over(adapter, processor, run);
            }
        }
        (self.chain, self.count) = (kept, count);
    }

    /// Removes the first run of frames that are for the same processor. Returns the processor, the frames and their
    /// number.
    fn take_run(&mut self) -> Option<(u32, NblList, u32)> {
        let first = self.chain.pop()?;
        let processor = processor_of(first);
        let (mut run, mut frames) = (NblList::new(), 1);
        // SAFETY: just taken off its list.
        unsafe { run.push(first) };
        while let Some(nbl) = self.chain.take_first_if(|nbl| processor_of(nbl) == processor) {
            // SAFETY: just taken off its list.
            unsafe { run.push(nbl) };
            frames += 1;
        }
        Some((processor, run, frames))
    }
}

/// Writes the hash into the frame's NBL for NDIS, and the processor for the driver.
fn set_scaled(nbl: &mut NET_BUFFER_LIST, scaled: Scaled) {
    set_info(nbl, NDIS_NET_BUFFER_LIST_INFO::NetBufferListHashInfo, scaled.hash_info as usize);
    set_info(nbl, NDIS_NET_BUFFER_LIST_INFO::NetBufferListHashValue, scaled.hash_value as usize);
    if let Some(number) = scaled.processor {
        let [_, processor] = &mut nbl.MiniportReserved;
        *processor = core::ptr::without_provenance_mut(number as usize);
    }
}

/// Returns the processor that [`set_scaled`] wrote into an NBL.
fn processor_of(nbl: *mut NET_BUFFER_LIST) -> u32 {
    // SAFETY: the NBL is on a list of this driver's, which owns it until it is indicated.
    let [_, processor] = unsafe { (*nbl).MiniportReserved };
    processor.addr() as u32
}

/// `MiniportReturnNetBufferLists`.
pub unsafe extern "efiapi" fn return_net_buffer_lists(
    context: NDIS_HANDLE,
    chain: *mut NET_BUFFER_LIST,
    _flags: u32,
) {
    // SAFETY: NDIS passes the context registered for this adapter.
    let adapter = unsafe { Adapter::from_context(context) };
    let returned = adapter.receive_pool().take_back(chain);
    adapter.passed(returned);
}
