// SPDX-License-Identifier: MIT OR Apache-2.0

//! Reliable connection (RC) transport of one queue pair.
//!
//! Implements the reliable service of the IBTA specification (Volume 1, section 9.7) over RoCEv2 (annex A17):
//! segmentation, PSN order, acknowledgements, retries, RNR NAK, READ responses, congestion notification.
//! Not responsible for connection management ([`crate::cm`]), for finding the queue pair of a packet or for
//! time; [`crate::engine`] calls [`rc_transport::RcTransport`] with the queue pair's lock held. No method
//! allocates after `initialize`, scans more than one request's scatter/gather list, or touches another queue
//! pair.
//!
//! From the bottom up:
//!
//! | file | content |
//! | --- | --- |
//! | `sequence` | 64-bit sequence numbers and their translation to and from 24-bit PSNs |
//! | `state` | QP states and transitions |
//! | `send_queue`, `inbound_reads` | requests of this side; READ requests of the peer |
//! | `window` | how many packets may be unacknowledged |
//! | `retransmission` | what is sent again |
//! | `round_trip` | estimate of the round-trip time |
//! | `recovery` | retransmission: round-trip time, retry counters, go-back-N or selective repeat |
//! | `out_of_order`, `stash` | which packets after a gap were placed; copies of those that cannot be placed yet |
//! | `read_gaps` | which READ responses are requested again, and when |
//! | `cnp`, `rate` | congestion notification packets; DCQCN rate |
//! | `requester_state`, `responder_state` | what the two halves remember |
//! | `rc_transport` | the transport of one queue pair: life cycle, error state, completions |
//! | `pieces`, `payload_copy`, `placement` | the payload of a packet to send or received, copied without the lock of the queue pair |
//! | `requester`, `local_requests`, `retransmit_timer` | request packets; local requests; ACK timeout |
//! | `completer`, `read_responses` | received ACKs and NAKs; READ responses |
//! | `responder`, `out_of_order_requests`, `acknowledge` | received requests; ACK, NAK and READ responses to them |
//! | `dispatch` | entry points: posts, received packets, transmit, timeout |

mod acknowledge;
mod cnp;
mod completer;
pub(crate) mod dispatch;
pub(crate) mod env;
mod frame;
mod inbound_reads;
mod local_requests;
mod out_of_order;
mod out_of_order_requests;
pub(crate) mod payload_copy;
pub(crate) mod peer;
mod pieces;
pub(crate) mod placement;
mod rate;
pub(crate) mod rc_transport;
mod read_gaps;
mod read_responses;
mod read_sinks;
mod recovery;
mod requester;
mod requester_state;
mod responder;
mod responder_state;
mod retransmission;
mod retransmit_timer;
mod round_trip;
mod send_queue;
mod sequence;
pub(crate) mod stash;
pub(crate) mod state;
mod window;
