// SPDX-License-Identifier: MIT OR Apache-2.0

//! Separates received frames: RDMA frames go to the provider, frames that the VLAN and the receive filter admit go to NDIS. What an RDMA
//! frame is, `packet.rs` of `roce-wire` decides.
//! `DISPATCH_LEVEL`.

use core::ops::ControlFlow;

use ndk_provider::ReceiveBatch;
use roce::Verdict;
use virtio_net::{Coalesced, FrameInfo};

use super::adapter::{Adapter, Passing};
use super::coalescing::Segments;
use super::receive::{Checked, Indication};
use super::statistics::Cast;
use crate::nic::vlan_tag;

/// Separates the frames of one poll into RDMA frames, which the provider processes, and the frames for NDIS.
pub struct Demultiplexer<'a> {
    adapter: &'a Adapter,
    /// `None` if the pair has no shard; each pair has one.
    rdma: Option<ReceiveBatch<'a>>,
    /// The frames for NDIS, and permission to indicate them; `None` unless the adapter runs.
    others: Option<(Indication<'a>, Passing<'a>)>,
}

impl<'a> Demultiplexer<'a> {
    /// Begins a batch of frames that were received by queue pair `pair`.
    pub fn new(adapter: &'a Adapter, pair: u32) -> Self {
        let rdma = adapter.ndk().provider().receive_batch(pair);
        let others = adapter.pass().map(|passing| (Indication::new(adapter), passing));
        Self { adapter, rdma, others }
    }

    /// Processes an RDMA frame; adds any other frame to those for NDIS. Breaks if there is no NBL for the next one until these have been
    /// indicated.
    pub fn add(&mut self, frame: &mut [u8], info: FrameInfo) -> ControlFlow<()> {
        let Self { adapter, rdma, others } = self;
        let len = frame.len();
        let (frame, tag) = vlan_tag::remove(frame);
        let Some(received) = check(adapter, frame, len, info) else { return ControlFlow::Continue(()) };
        let is_rdma = adapter.vlan.has_frame(tag)
            && rdma.as_mut().is_some_and(|rdma| rdma.receive(frame) != Verdict::NotOurs);
        if is_rdma {
            return ControlFlow::Continue(());
        }
        adapter.statistics().received(Cast::of(frame), len);
        let Some((indication, _)) = others else { return ControlFlow::Continue(()) };
        if !adapter.vlan.admits(tag, frame) || !adapter.filter.admits(frame, adapter.addresses.current) {
            return ControlFlow::Continue(());
        }
        let (added, needed) = match received {
            Received::One(checked) => (indication.add(frame, tag, checked, info.hash), 1),
            Received::Several(segments) => {
                (indication.add_segments(frame, tag, &segments, info.hash), segments.segments)
            }
        };
        match added {
            // The next frame may need as many.
            Some(left) if left < needed.into() => return ControlFlow::Break(()),
            Some(_) => {}
            None => adapter.statistics().received_without_buffer(),
        }
        ControlFlow::Continue(())
    }

    /// Passes the frames for NDIS to `deliver`; then has the provider send pending acknowledgments and notify CQs. No lock is held.
    ///
    /// Not inlined: together with the caller's, its stack frame is too large for a kernel stack.
    #[inline(never)]
    pub fn end(&mut self, deliver: impl FnOnce(Indication<'a>)) {
        if let Some(rdma) = &mut self.rdma {
            rdma.pause();
        }
        if let Some((indication, _passing)) = self.others.take() {
            deliver(indication);
        }
        if let Some(rdma) = self.rdma.take() {
            rdma.end();
        }
    }
}

/// A received frame, by what is indicated of it.
enum Received {
    One(Checked),
    /// Each of its segments.
    Several(Coalesced),
}

/// Checks the length of an untagged frame, or its contents if the device reports that it consists of several segments. `None` if the frame
/// must be dropped. `len` is its length with the tag.
fn check(adapter: &Adapter, frame: &mut [u8], len: usize, info: FrameInfo) -> Option<Received> {
    let Some(header) = info.coalesced else {
        // The buffers have room for a tag.
        if frame.len() > adapter.max_frame as usize {
            adapter.statistics().received_too_long(len);
            return None;
        }
        return Some(Received::One(Checked::Verified(info.is_verified)));
    };
    Some(match adapter.coalescing.complete(frame, header, adapter.max_frame)? {
        Segments::Coalesced(Coalesced { segments: 1, .. })
        | Segments::Divided(Coalesced { segments: 1, .. }) => Received::One(Checked::Verified(true)),
        Segments::Coalesced(Coalesced { segments, has_checksum, .. }) => {
            Received::One(Checked::Coalesced { segments, has_checksum })
        }
        Segments::Divided(segments) => Received::Several(segments),
    })
}
