// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sends READ requests: the next chunk of a READ, or a part of one whose responses are missing
//! (IBTA Volume 1, section 9.7).

use lock_api::RawMutex;

use super::Requester;
use super::reads::reth;
use crate::trace::TraceEvent;
use crate::transport::env::Env;
use crate::transport::failure::Failure;
use crate::transport::packet::frame::{Unsent, build_headers};
use crate::transport::peer::Link;
use crate::work::SendOperation;
use roce_wire::{Ext, Headers, Opcode, Psn, RethRepr};

impl Requester {
    /// Writes the request for the next chunk of the READ at the requester's position, with `in_flight` packets unacknowledged.
    #[inline(never)]
    pub(super) fn request_responses<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        link: &Link,
        slot: &mut [u8],
        in_flight: u64,
    ) -> Result<usize, Unsent> {
        let sequence = self.next;
        let is_new = sequence >= self.high;
        let index = self.position.index;
        if is_new && self.send_queue.get(index).is_some_and(|wqe| wqe.first == sequence) {
            self.send_queue.set_chunk(index, self.recovery.window.chunk_shift());
        }
        let wqe = self.send_queue.get(index).ok_or(Unsent::Idle)?;
        let SendOperation::Read { address, key } = wqe.operation else { return Err(Unsent::Idle) };
        let end = wqe.chunk_end(sequence);
        let packets = end.since(sequence);
        let window = self.recovery.window.of_reads(self.reads.gaps.is_active());
        //= rocev2 §7
        //= R-QP-52
        if !self.reads.may_request() || (in_flight > 0 && in_flight.saturating_add(packets) > window) {
            return Err(Unsent::Idle);
        }
        let reth = reth(wqe, self.mtu, (sequence, end), (address, key));
        let len = build_headers(link, env, slot, &headers(self.psns.psn(sequence), reth))?;
        self.reads.record_request(sequence, end, is_new, env.now);
        if !is_new && self.recovery.is_probe(sequence) && env.shared.config.early_placement {
            self.reads.gaps.record_request(sequence, end, self.high, env.now);
        }
        self.sent(env, end, true);
        self.recovery.sample_time_only();
        Ok(len)
    }

    /// Writes the next request for missing responses. Returns `None` if there is none.
    #[inline(never)]
    pub(super) fn request_again<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        link: &Link,
        slot: &mut [u8],
    ) -> Option<Result<usize, Failure>> {
        let psns = self.psns;
        let (reads, requested) = self.reads(env);
        let (repeat, wqe) = reads.next_repeat(requested)?;
        let SendOperation::Read { address, key } = wqe.operation else { return None };
        let reth = reth(wqe, requested.mtu, (repeat.first, repeat.end), (address, key));
        let psn = psns.psn(repeat.first);
        let built = build_headers(link, env, slot, &headers(psn, reth));
        if built.is_ok() {
            reads.repeat_sent(requested, repeat);
            env.stats.retransmissions.inc();
            env.trace(psn, TraceEvent::Retransmitted);
        }
        Some(built)
    }
}

/// Returns the headers of a READ request.
#[inline]
const fn headers(psn: Psn, reth: RethRepr) -> Headers {
    Headers { opcode: Opcode::READ_REQUEST, solicited: false, ack_req: true, psn, ext: Ext::Reth(reth) }
}
