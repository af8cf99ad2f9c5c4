// SPDX-License-Identifier: MIT OR Apache-2.0

//! The step between the connections of a responder, and changes of its attributes.

use lock_api::RawMutex;

use super::Responder;
use super::message::InboundMessage;
use crate::region::access_rights::Access;
use crate::transport::env::Env;

/// Drops receives, responses and what has arrived of a message, without completions. The next connection continues with these
/// sequence numbers.
pub(in crate::transport) fn reset<R: RawMutex>(responder: &mut Responder, env: &Env<'_, R>) {
    responder.stop();
    responder.stash.clear(&env.shared.stash);
    responder.receives.reset();
    responder.out_of_order.clear();
    responder.acknowledged = responder.expected;
    responder.message = InboundMessage::None;
    responder.newest_after_gap = None;
    responder.msn = 0;
    responder.executing = false;
    responder.responded = false;
    responder.without_receive = false;
    responder.peer_repeats_selectively = false;
}

/// Changes the attributes that are given.
pub(in crate::transport) fn update(
    responder: &mut Responder,
    access: Option<Access>,
    rnr_timer: Option<u8>,
    reads: Option<u8>,
) {
    responder.access = access.map_or(responder.access, |access| access & Access::OF_PEERS);
    responder.rnr_code = rnr_timer.unwrap_or(responder.rnr_code);
    if let Some(reads) = reads {
        responder.reads.set_limit(reads);
    }
}
