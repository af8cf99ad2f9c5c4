// SPDX-License-Identifier: MIT OR Apache-2.0

//! Parameters of the connected peer, and the path to it.

use core::time::Duration;

use crate::conn::{ConnId, ReadLimits};
use crate::region::access_rights::Access;
use roce_wire::{PathMtu, Psn, Template};

/// The path to the peer.
#[derive(Debug)]
pub(crate) struct Link {
    /// Only packets of its reverse direction are accepted.
    pub(crate) template: Template,
}

/// Parameters of a connection that its queue pair needs.
#[derive(Debug)]
pub(crate) struct Peer {
    /// `None` if the owner of the queue pair connects it.
    pub(crate) conn: Option<ConnId>,
    pub(crate) template: Template,
    pub(crate) mtu: PathMtu,
    pub(crate) reads: ReadLimits,
    /// Operations that the peer may request.
    pub(crate) access: Access,
    /// Code of the RNR NAK timer; `None` for that of the configuration.
    pub(crate) rnr_timer: Option<u8>,
    /// Starting PSN of this side.
    pub(crate) send_psn: Psn,
    /// Starting PSN of the peer.
    pub(crate) receive_psn: Psn,
    pub(crate) retries: u8,
    /// 7 for no limit.
    pub(crate) rnr_retries: u8,
    /// Zero for no timeout.
    pub(crate) ack_timeout: Duration,
}
