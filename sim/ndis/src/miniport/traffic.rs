// SPDX-License-Identifier: MIT OR Apache-2.0

//! Frames between the protocol drivers and the adapter.

use std::time::Duration;

use ndk_abi::ndis::NDIS_STATUS;
use nt_sim::{Irql, current};

use super::{Miniport, calls::on_host};
use crate::{
    in_flight::SendId,
    offload::{ReceivedFrame, SendRequest},
};

impl Miniport {
    /// Sends a frame as a protocol driver does; returns the status of its completion, `None` when it is not
    /// completed within `timeout`.
    ///
    /// # Panics
    /// When the host dies.
    #[must_use]
    pub fn send(&self, frame: &[u8], timeout: Duration) -> Option<NDIS_STATUS> {
        let ids = self.send_chain(&[frame.to_vec()], 0);
        ids.first().and_then(|&id| self.send_status(id, timeout))
    }

    /// Passes frames to the miniport in one chain, one NET_BUFFER_LIST each with the given cancel ID; does not wait.
    ///
    /// # Panics
    /// When the host dies.
    #[must_use]
    pub fn send_chain(&self, frames: &[Vec<u8>], cancel_id: usize) -> Vec<SendId> {
        pass(self, without_requests(frames), cancel_id)
    }

    /// Passes frames with requests for task offloads to the miniport in one chain; does not wait. Whether the miniport offers
    /// what is requested is not checked.
    ///
    /// # Panics
    /// When the host dies.
    #[must_use]
    pub fn send_requests(&self, frames: Vec<(Vec<u8>, SendRequest)>) -> Vec<SendId> {
        pass(self, frames, 0)
    }

    /// Passes frames to the miniport in one NET_BUFFER_LIST with a NET_BUFFER for each; does not wait. The data of each begins after
    /// `offset` bytes of its MDLs, which describe `mdl_len` bytes each, or all if that is 0.
    ///
    /// # Panics
    /// When the host dies.
    #[must_use]
    pub fn send_list(&self, frames: &[Vec<u8>], mdl_len: usize, offset: usize) -> SendId {
        let (this, frames) = (self.clone(), frames.to_vec());
        let sent = on_host(&self.host, "protocol", move || {
            let frames: Vec<_> = frames.iter().map(Vec::as_slice).collect();
            this.adapter.send_list(&this.host, &frames, mdl_len, offset)
        });
        sent.unwrap_or_else(|lost| panic!("{lost}"))
    }

    /// Sends a chain as [`Miniport::send_chain`] does, at `DISPATCH_LEVEL`, as the flags tell the miniport.
    ///
    /// # Panics
    /// When the host dies.
    #[must_use]
    pub fn send_chain_at_dispatch(&self, frames: &[Vec<u8>]) -> Vec<SendId> {
        let (this, frames) = (self.clone(), without_requests(frames));
        let sent = on_host(&self.host, "protocol", move || {
            let before = current().raise(Irql::DISPATCH_LEVEL);
            let sent = this.adapter.send(&this.host, &frames, 0);
            current().lower(before);
            sent
        });
        sent.unwrap_or_else(|lost| panic!("{lost}"))
    }

    /// Cancels the sends with `cancel_id` that the miniport has not sent yet.
    ///
    /// # Panics
    /// When the host dies.
    pub fn cancel_sends(&self, cancel_id: usize) {
        let adapter = self.adapter.clone();
        let cancelled = on_host(&self.host, "protocol", move || adapter.cancel_sends(cancel_id));
        cancelled.unwrap_or_else(|lost| panic!("{lost}"));
    }

    /// Returns the status with which a send completed, `None` when it is not completed within `timeout`. The status of
    /// a send is returned once.
    ///
    /// # Panics
    /// When the host dies.
    #[must_use]
    pub fn send_status(&self, id: SendId, timeout: Duration) -> Option<NDIS_STATUS> {
        let this = self.clone();
        let status = on_host(&self.host, "protocol", move || {
            let adapter = &this.adapter;
            let deadline = this.host.world().now() + timeout.as_nanos() as u64;
            loop {
                adapter.data_path.changed.reset();
                if let Some(status) = adapter.send_status(id) {
                    return Some(status);
                }
                let left = Duration::from_nanos(deadline.saturating_sub(this.host.world().now()));
                if !adapter.data_path.changed.wait(left) {
                    // Another waiter may have reset the event meanwhile.
                    return adapter.send_status(id);
                }
            }
        });
        status.unwrap_or_else(|lost| panic!("{lost}"))
    }

    /// Returns the frames that the miniport indicated since the last call.
    #[must_use]
    pub fn received(&self) -> Vec<Vec<u8>> {
        self.received_frames().into_iter().map(|frame| frame.bytes).collect()
    }

    /// Returns the frames of [`Miniport::received`] with what the miniport reported of their checksums.
    #[must_use]
    pub fn received_frames(&self) -> Vec<ReceivedFrame> {
        self.adapter.data_path.take_received()
    }
}

fn without_requests(frames: &[Vec<u8>]) -> Vec<(Vec<u8>, SendRequest)> {
    frames.iter().map(|frame| (frame.clone(), SendRequest::default())).collect()
}

fn pass(miniport: &Miniport, frames: Vec<(Vec<u8>, SendRequest)>, cancel_id: usize) -> Vec<SendId> {
    let this = miniport.clone();
    let sent = on_host(&miniport.host, "protocol", move || this.adapter.send(&this.host, &frames, cancel_id));
    sent.unwrap_or_else(|lost| panic!("{lost}"))
}
