// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sends READ requests and atomic operations: the next chunk of a READ, or a part of one whose responses are missing
//! (IBTA Volume 1, section 9.7). How many may be outstanding: [`Reads::may_request`](super::outbound_reads::Reads::may_request).

use lock_api::RawMutex;

use super::Requester;
use super::outbound_reads::reth;
use super::send_queue::{SendQueue, Wqe};
use crate::trace::TraceEvent;
use crate::transport::env::Env;
use crate::transport::failure::Failure;
use crate::transport::packet::frame::{Unsent, build_headers};
use crate::transport::peer::Link;
use crate::transport::sequence::{Sequence, SequenceSpace};
use crate::work::{AtomicOperation, SendOperation};
use roce_wire::{AtomicEthRepr, Ext, Headers, Opcode};

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
        let (reads, requested) = self.reads(env);
        if is_new && reads.must_wait(requested, sequence) {
            return Err(Unsent::Idle);
        }
        let index = self.position.index;
        if is_new && self.send_queue.get(index).is_some_and(|wqe| wqe.first == sequence) {
            self.send_queue.set_chunk(index, self.recovery.window.chunk(self.reads.limit()));
        }
        let wqe = self.send_queue.get(index).ok_or(Unsent::Idle)?;
        let end = wqe.chunk_end(sequence);
        let packets = end.since(sequence);
        let stored = if self.reads.gaps.is_active() { self.reads.stored() } else { 0 };
        let window = self.recovery.window.of_reads(self.reads.limit(), stored);
        // What is sent again to have a loss reported may be anywhere: the window may have become smaller than what is outstanding.
        let fits = in_flight == 0
            || in_flight.saturating_add(packets) <= window
            || self.recovery.is_resending(sequence, self.high);
        //= rocev2 §7
        //= R-QP-52
        if !self.reads.may_request() || !fits {
            return Err(Unsent::Idle);
        }
        let headers = headers(&self.send_queue, wqe, self.mtu, (sequence, end), self.psns);
        let len = build_headers(link, env, slot, &headers.ok_or(Unsent::Idle)?)?;
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
        let range = (repeat.first, repeat.end);
        let headers = headers(requested.queue, wqe, requested.mtu, range, psns)?;
        let built = build_headers(link, env, slot, &headers);
        if built.is_ok() {
            reads.repeat_sent(requested, repeat);
            env.stats.retransmissions.inc();
            env.trace(headers.psn, TraceEvent::Retransmitted);
        }
        Some(built)
    }
}

/// Returns the headers of the request for the packets from `first` to `end` of `wqe`, a READ or an atomic operation, with `mtu`
/// bytes per packet.
#[inline]
fn headers(
    queue: &SendQueue,
    wqe: &Wqe,
    mtu: u32,
    (first, end): (Sequence, Sequence),
    psns: SequenceSpace,
) -> Option<Headers> {
    let SendOperation::Read { address, key: r_key } = wqe.operation else { return None };
    let atomic = |swap_or_add, compare| Ext::Atomic(AtomicEthRepr { address, r_key, swap_or_add, compare });
    //= rocev2 §4
    let (opcode, ext) = match queue.atomic(wqe) {
        None => (Opcode::READ_REQUEST, Ext::Reth(reth(wqe, mtu, (first, end), (address, r_key)))),
        Some(AtomicOperation::CompareSwap { compare, swap }) => (Opcode::COMPARE_SWAP, atomic(swap, compare)),
        Some(AtomicOperation::FetchAdd { add }) => (Opcode::FETCH_ADD, atomic(add, 0)),
    };
    Some(Headers { opcode, solicited: false, ack_req: true, psn: psns.psn(first), ext })
}
