// SPDX-License-Identifier: MIT OR Apache-2.0

//! The step between the connections of a responder.

use lock_api::RawMutex;

use super::Responder;
use super::message::InboundMessage;
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
