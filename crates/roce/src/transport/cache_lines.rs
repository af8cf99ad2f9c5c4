// SPDX-License-Identifier: MIT OR Apache-2.0

//! The cache lines of a transport that every packet uses, and their prefetch.
//!
//! With many busy queue pairs, each packet finds the state of its queue pair in memory. What every packet uses is therefore
//! together, in the order of the fields of [`RcTransport`], and loaded at once:
//!
//! | fields | used by |
//! | --- | --- |
//! | to the start of `responder.reads` | received SENDs and WRITEs, acknowledgements to send; `link` by every packet |
//! | from the end of `rate` to the first part of `requester.send_queue` | requests |
//! | from the end of `requester.reads` to the start of `requester.recovery.retransmission` | requests, received acknowledgements |
//!
//! The rest is for READs, losses, paced queue pairs, and requests of several elements.

use core::mem::offset_of;
use core::ops::Range;

use super::congestion::rate::RateLimiter;
use super::rc_transport::RcTransport;
use super::requester::outbound_reads::Reads;
use super::requester::recovery::Recovery;
use super::requester::send_queue::SendQueue;
use super::responder::inbound_reads::InboundReads;
use crate::prefetch::prefetch_bytes;
use crate::recv_queue::RecvQueue;

/// Offsets of what the table above lists.
const RECEIVED: Range<usize> = 0..offset_of!(RcTransport, responder.reads) + InboundReads::USUAL;
const POSTED: Range<usize> = offset_of!(RcTransport, rate) + RateLimiter::USUAL
    ..offset_of!(RcTransport, requester.send_queue) + SendQueue::USUAL;
const REQUESTED: Range<usize> = offset_of!(RcTransport, requester.reads) + Reads::USUAL
    ..offset_of!(RcTransport, requester.recovery) + Recovery::USUAL;

/// Offsets of what a post to the receive queue uses.
const STATE: Range<usize> = 0..offset_of!(RcTransport, link);
const RECEIVES: Range<usize> = offset_of!(RcTransport, responder.receives)
    ..offset_of!(RcTransport, responder.receives) + size_of::<RecvQueue>();

/// Starts to load what a packet uses of the transport at `transport`, which other threads may use.
#[inline]
pub(crate) fn prefetch(transport: *const RcTransport) {
    prefetch_bytes(transport.cast(), RECEIVED);
    prefetch_bytes(transport.cast(), POSTED);
    prefetch_bytes(transport.cast(), REQUESTED);
}

/// Starts to load what a post to the receive queue uses, as [`prefetch`] does.
#[inline]
pub(crate) fn prefetch_receives(transport: *const RcTransport) {
    prefetch_bytes(transport.cast(), STATE);
    prefetch_bytes(transport.cast(), RECEIVES);
}
