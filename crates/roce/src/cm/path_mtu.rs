// SPDX-License-Identifier: MIT OR Apache-2.0

//! The path MTU of a connection as it is agreed: a REQ offers that of [`ConnectSpec::mtu`](crate::ConnectSpec::mtu), which the consumer chose.
//! A peer that refuses it names the one that it accepts (REJ, reason 26), and the next REQ offers that.

use super::conn_set::ConnSet;
use super::state::State;
use crate::time::Instant;
use roce_wire::{
    Mad, MtuCode, PathMtu,
    cm::{CmMessage, RejReason, RejRepr, ReqRepr},
};

impl ConnSet {
    /// Sends the REQ of a connection again with a smaller path MTU, under another communication ID: the peer has refused the one that
    /// it knows. Returns `false` and changes nothing if the REQ is not outstanding, or its path MTU not larger.
    //= rocev2 §12
    // Its message would be on the stack of each REJ.
    #[inline(never)]
    pub(super) fn request_with_mtu(&mut self, now: Instant, index: u32, mtu: PathMtu) -> bool {
        let Some(conn) = self.slots.get(index) else { return false };
        if conn.state != State::ReqSent || mtu >= conn.peer.mtu {
            return false;
        }
        let request = Mad::new_checked(&conn.message).ok().and_then(|mad| CmMessage::parse(&mad));
        let Some(CmMessage::Req(request)) = request else { return false };
        let local_comm_id = self.slots.other_comm_id(index);
        let request = CmMessage::Req(ReqRepr { local_comm_id, path_mtu: mtu.code(), ..request });
        let (transaction, retries) = (self.random.next_u64(), self.config.max_retries);
        if let Some(conn) = self.slots.get_mut(index) {
            conn.local_id = local_comm_id;
            conn.transaction = transaction;
            conn.peer.mtu = mtu;
            conn.set_message(&request, transaction, retries);
        }
        self.slots.queue_message(now, index);
        true
    }
}

/// Returns the path MTU that the peer accepts instead of that of the REQ which it refuses for that.
//= rocev2 §11
pub(super) fn acceptable_mtu(rej: &RejRepr) -> Option<PathMtu> {
    let [first, ..] = rej.information;
    let is_given = rej.reason == RejReason::INVALID_MTU && rej.information_len > 0;
    MtuCode(first >> 4).mtu().filter(|_| is_given)
}
