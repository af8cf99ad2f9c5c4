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
//! Half of it sends requests, the other half executes those of the peer, as section 9.7 is divided; neither half uses the other:
//!
//! | folder, file | content |
//! | --- | --- |
//! | `rc_transport` | the transport of one queue pair: life cycle, error state; posts, received packets, deadlines |
//! | `transmit` | frames to transmit: turns of the halves, pacing |
//! | [`requester`] | the send queue; request packets; ACKs, NAKs and READ responses of the peer; retransmission and its timer |
//! | [`responder`] | requests of the peer; ACKs, NAKs and READ responses to them |
//! | [`congestion`] | congestion notification packets; DCQCN rate |
//! | [`packet`] | frames that are built; payload that is copied without the lock of the queue pair |
//! | `out_of_order` | which packets after a gap were placed, in either direction |
//! | `sequence` | 64-bit sequence numbers and their translation to and from 24-bit PSNs |
//! | `state`, `failure` | QP states and transitions; failures that end the connection |
//! | [`unreliable`] | unreliable services: datagrams (UD), unreliable connections (UC) |
//! | `posts` | posts that NDKPI does not have: immediate data, datagrams, requests to a queue pair in error |
//! | `change` | changes of a queue pair that its owner connects, without connection management |
//! | `drain` | progress of a change to SQD |
//! | `connection` | the connection, and reports to it |
//! | `peer`, `env` | parameters of the peer; what a step uses besides the transport |
//! | `cache_lines` | fields that every packet uses, and their prefetch |
//! | `testing` | a host for unit tests of one half |

pub(crate) mod cache_lines;
pub(crate) mod change;
mod congestion;
pub(crate) mod connection;
pub(crate) mod drain;
pub(crate) mod env;
mod failure;
mod out_of_order;
pub(crate) mod packet;
pub(crate) mod peer;
pub(crate) mod posts;
pub(crate) mod rc_transport;
pub(crate) mod requester;
pub(crate) mod responder;
mod sequence;
pub(crate) mod state;
#[cfg(test)]
mod testing;
pub(crate) mod transmit;
pub(crate) mod unreliable;
