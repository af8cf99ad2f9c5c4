//! The half that sends: requests become packets, in order, within window, depth and fences, and again
//! when they are lost ([`super::recovery`] says which).
//!
//! Numbers of the send direction, oldest first:
//!
//! ```text
//!   una            next             high             send.end()
//!    | unanswered   | to be sent     | to be sent     |
//!    |              | again          | for the first  |
//!    |              |                | time           |
//! ```
//!
//! A long READ is asked for in pieces of [`READ_CHUNK`] packets, so that the window bounds what answers are
//! on their way, and so that what was lost is asked for again by the piece. Pieces begin at the same places
//! every time: a responder finds the rest of a piece inside one READ that it remembers.

use lock_api::RawMutex;

use super::ahead::Ahead;
use super::recovery::{Recovery, Resend};
use super::send::{Payload, Wqe};
use super::sges::Cursor;
use super::{Env, Peer, Rc, State, Stream, Unsent};
use crate::engine::Config;
use crate::region::AccessError;
use crate::time::Instant;
use crate::work::{Operation, SendFlags, Status};
use roce_wire::{Ext, Headers, IethRepr, Opcode, PathMtu, RethRepr};

/// Packets of response that one READ request on the wire asks for at most.
const READ_CHUNK: u64 = 64;

/// The requester half.
#[derive(Debug)]
pub(super) struct Requester {
    pub(super) stream: Stream,
    /// Bytes per packet.
    pub(super) mtu: u32,
    window: u64,
    /// A packet whose number has all of these bits asks for an acknowledgement.
    ack_mask: u64,
    /// READ requests that may be on the wire at a time.
    pub(super) max_reads: u32,

    /// The oldest packet without an answer.
    pub(super) una: u64,
    /// The next packet to be sent.
    pub(super) next: u64,
    /// The first packet that was never sent.
    pub(super) high: u64,
    /// Which request, counted from the oldest, `next` belongs to.
    pub(super) index: usize,
    /// Requests before that which are READs.
    pub(super) reads_before: usize,
    /// READ requests on the wire.
    reads: u32,
    /// Where in the elements of the request at `index` the next packet's data is.
    cursor: Cursor,
    /// Where in the elements of the oldest READ the next response's data goes.
    pub(super) sink: Cursor,
    /// Responses to that READ that came before an earlier one.
    pub(super) ahead: Ahead,
    /// Since a response was missed: the last one that came, of those after it.
    pub(super) missed: Option<u64>,
    /// A request that cannot be sent, by its first number, and how it will end once it is the oldest.
    pub(super) poisoned: Option<(u64, Status)>,
    pub(super) recovery: Recovery,
}

impl Requester {
    /// Before the peer is known.
    pub(super) const IDLE: Self = Self {
        stream: Stream::ZERO,
        mtu: PathMtu::Bytes256.bytes() as u32,
        window: 2,
        ack_mask: 0,
        max_reads: 0,
        una: 0,
        next: 0,
        high: 0,
        index: 0,
        reads_before: 0,
        reads: 0,
        cursor: Cursor::START,
        sink: Cursor::START,
        ahead: Ahead::NOTHING,
        missed: None,
        poisoned: None,
        recovery: Recovery::IDLE,
    };

    pub(super) fn begin(&mut self, peer: &Peer, config: &Config) {
        self.stream = Stream { start: peer.send_psn };
        self.mtu = peer.mtu.bytes() as u32;
        self.window = u64::from(config.window.clamp(2, 1 << 20));
        self.ack_mask = u64::from(config.ack_every.clamp(1, 1 << 16).next_power_of_two() - 1);
        self.max_reads = u32::from(peer.reads.outbound.min(config.max_reads.outbound));
        self.recovery.begin(peer, config);
    }

    /// Nothing is sent or awaited any more.
    pub(super) fn stop(&mut self) {
        self.una = self.high;
        self.next = self.high;
        self.poisoned = None;
        self.recovery.stop();
    }

    /// Whether something was sent that has not been answered.
    fn waiting(&self) -> bool {
        self.una < self.next
    }

    /// The first number after the piece of `wqe`, a READ, that `sequence` belongs to.
    pub(super) fn chunk_end(wqe: &Wqe, sequence: u64) -> u64 {
        let into = sequence.saturating_sub(wqe.first);
        let end = (into / READ_CHUNK).saturating_add(1).saturating_mul(READ_CHUNK);
        wqe.first.saturating_add(end).min(wqe.end())
    }

    /// READ responses have come for all of `wqe` before `una`, after all before `before` had.
    pub(super) fn responses_came(&mut self, wqe: &Wqe, before: u64) {
        let pieces = Self::pieces(wqe, self.una).saturating_sub(Self::pieces(wqe, before));
        self.reads = self.reads.saturating_sub(pieces);
    }

    /// How many pieces of `wqe`, a READ, end at `sequence` or before.
    fn pieces(wqe: &Wqe, sequence: u64) -> u32 {
        let into = sequence.saturating_sub(wqe.first);
        let whole = if sequence >= wqe.end() { into.div_ceil(READ_CHUNK) } else { into / READ_CHUNK };
        whole as u32
    }

    /// What to send again of `wqe`, the oldest READ, after a response was lost.
    pub(super) fn request_again(&self, wqe: &Wqe) -> Resend {
        Resend::Request(wqe.end().min(self.high))
    }

    /// Goes on to the request after `wqe`, all of which has been sent, or done.
    #[inline]
    pub(super) fn step(&mut self, wqe: &Wqe) {
        self.reads_before = self.reads_before.saturating_add(usize::from(wqe.is_read()));
        self.index = self.index.saturating_add(1);
        self.cursor = Cursor::default();
    }

    /// The oldest request is complete and has left the queue.
    pub(super) fn popped(&mut self, wqe: &Wqe) {
        if let Some(index) = self.index.checked_sub(1) {
            self.index = index;
            self.reads_before = self.reads_before.saturating_sub(usize::from(wqe.is_read()));
        } else {
            self.cursor = Cursor::default();
        }
        if wqe.is_read() {
            self.sink = Cursor::default();
            self.ahead = Ahead::NOTHING;
        }
    }

    /// Answers have arrived for all before `una`.
    pub(super) fn progressed(&mut self, now: Instant) {
        // What is answered need not be sent again.
        if self.next < self.una {
            self.next = self.una;
            self.index = 0;
            self.reads_before = 0;
            self.cursor = Cursor::default();
        }
        self.recovery.progressed(self.una, now);
    }

    /// Goes back to the oldest unanswered packet, of `oldest`.
    pub(super) fn go_back(&mut self, now: Instant, how: Resend, oldest: Option<&Wqe>) {
        self.recovery.went_back(self.una, self.high, how, now);
        self.next = self.una;
        self.index = 0;
        self.reads_before = 0;
        // Those that are asked for again count again.
        self.reads = match (how, oldest) {
            (Resend::Request(resume), Some(wqe)) => {
                let end = Self::chunk_end(wqe, self.una);
                resume.saturating_sub(end).div_ceil(READ_CHUNK) as u32
            }
            _ => 0,
        };
        self.cursor = Cursor::default();
    }
}

impl Rc {
    /// When something is to be done without a packet.
    pub(super) fn deadline(&self) -> Option<Instant> {
        if self.state != State::Rts {
            return None;
        }
        let recovery = &self.requester.recovery;
        //= rocev2 §7
        if let Some(until) = recovery.rnr_until {
            return Some(until);
        }
        self.requester.waiting().then(|| recovery.deadline(self.requester.una))
    }

    pub(super) fn check_deadline<R: RawMutex>(&mut self, env: &Env<'_, R>) {
        if self.deadline().is_none_or(|deadline| deadline > env.now) {
            return;
        }
        let requester = &mut self.requester;
        if requester.recovery.wait_is_over(env.now) {
            // The requester has gone back when the NAK came.
            return;
        }
        env.engine.stats.timeouts.inc();
        if !requester.recovery.may_go_back(env.now) {
            self.fail(env, Some(Status::RetryExceeded));
            return;
        }
        requester.recovery.timed_out();
        requester.go_back(env.now, Resend::Probe, None);
    }

    /// Whether [`Rc::transmit_request`] may find something.
    pub(super) fn wants_to_request(&self) -> bool {
        self.state == State::Rts
            && self.requester.recovery.rnr_until.is_none()
            && (self.requester.next < self.send.end() || self.send.has_noted())
            && !self.requester.recovery.holds(self.requester.una, self.requester.next)
    }

    /// Writes the next packet of a request.
    pub(super) fn transmit_request<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        slot: &mut [u8],
    ) -> Result<usize, Unsent> {
        if !self.wants_to_request() {
            return Err(Unsent::Idle);
        }
        if self.requester.recovery.rnr_until.is_some_and(|until| until > env.now) {
            return Err(Unsent::Idle);
        }
        self.step_over(env);
        let requester = &mut self.requester;
        let wqe = self.send.get(requester.index).ok_or(Unsent::Idle)?;
        if requester.next >= wqe.end() {
            return Err(Unsent::Idle);
        }
        if requester.poisoned.is_some_and(|(first, _)| first == wqe.first) {
            return Err(Unsent::Idle);
        }
        //= R-QP-28
        if wqe.flags.contains(SendFlags::FENCE) && requester.reads_before > 0 {
            return Err(Unsent::Idle);
        }
        let in_flight = requester.next.saturating_sub(requester.una);
        if in_flight >= requester.window {
            return Err(Unsent::Idle);
        }
        let sequence = requester.next;
        let into = sequence.saturating_sub(wqe.first);
        // Below the length, which is a `u32`.
        let offset = into.saturating_mul(u64::from(requester.mtu)) as u32;
        let rest = wqe.length.saturating_sub(offset);
        let (first, last) = (into == 0, sequence.saturating_add(1) == wqe.end());

        if let Operation::Read { address, key } = wqe.operation {
            let end = Requester::chunk_end(wqe, sequence);
            let packets = end.saturating_sub(sequence);
            //= rocev2 §7
            //= R-QP-52
            if requester.reads >= requester.max_reads
                || (in_flight > 0 && in_flight.saturating_add(packets) > requester.window)
            {
                return Err(Unsent::Idle);
            }
            let chunk = packets.saturating_mul(u64::from(requester.mtu));
            let length = u64::from(rest).min(chunk) as u32;
            let reth = RethRepr { address: address.wrapping_add(u64::from(offset)), r_key: key, length };
            let headers = Headers {
                opcode: Opcode::READ_REQUEST,
                solicited: false,
                ack_req: true,
                psn: requester.stream.psn(sequence),
                ext: Ext::Reth(reth),
            };
            let built =
                Self::build(self.link.as_ref(), env, slot, &headers, 0, |_| Ok::<_, AccessError>(()))?;
            requester.reads = requester.reads.saturating_add(1);
            self.sent(env, end, true);
            return built.map_err(|_| Unsent::Broken);
        }

        let len = rest.min(requester.mtu);
        // Resends are answered early, so that what was lost again shows.
        let again = sequence < requester.high;
        let ack_req = last
            || sequence & requester.ack_mask == requester.ack_mask
            || in_flight.saturating_add(1) >= requester.window
            || (again && in_flight == 0)
            || self.rate.is_crawling();
        let headers = Headers {
            opcode: opcode(wqe.operation, first, last),
            //= R-QP-76
            solicited: last && wqe.flags.contains(SendFlags::SOLICITED),
            ack_req,
            psn: requester.stream.psn(sequence),
            ext: match wqe.operation {
                //= R-QP-49
                //= R-QP-50
                Operation::Write { address, key } if first => {
                    Ext::Reth(RethRepr { address, r_key: key, length: wqe.length })
                }
                Operation::SendInvalidate { key } if last => Ext::Ieth(IethRepr { r_key: key }),
                _ => Ext::None,
            },
        };
        let payload = self.send.payload(wqe);
        let cursor = &mut requester.cursor;
        let built =
            Self::build(self.link.as_ref(), env, slot, &headers, len as usize, |frame| match payload {
                Payload::Inline(bytes) => {
                    let bytes = bytes.get(offset as usize..).unwrap_or_default();
                    frame.write(bytes.get(..len as usize).unwrap_or_default());
                    Ok(())
                }
                Payload::Sges(sges) => {
                    cursor.seek(sges, offset).map_err(|_| AccessError)?;
                    cursor.walk(sges, len, AccessError, |sge, within, len| {
                        env.engine.regions.read_local(env.qp.pd, sge, within, len, frame)
                    })
                }
            })?;
        let Ok(length) = built else {
            //= R-QP-43
            //= R-QP-44
            self.requester.poisoned = Some((wqe.first, Status::LocalProtection));
            self.check_poison(env);
            return Err(Unsent::Idle);
        };
        self.sent(env, sequence.saturating_add(1), ack_req);
        Ok(length)
    }

    /// Accounts for packets sent, up to `end`.
    fn sent<R: RawMutex>(&mut self, env: &Env<'_, R>, end: u64, ack_req: bool) {
        let requester = &mut self.requester;
        let recovery = &mut requester.recovery;
        if requester.next == requester.una {
            recovery.begins_waiting(requester.una, env.now);
        }
        let sequence = requester.next;
        requester.next = end;
        let first = sequence >= requester.high;
        if ack_req {
            recovery.asked(requester.una, sequence, end, first, env.now);
        }
        if !first {
            env.engine.stats.retransmissions.inc();
            requester.next = recovery.sent_again(sequence, end);
        }
        requester.high = requester.high.max(requester.next);
    }

    /// Ends a request that could not be sent, once all before it have ended.
    pub(super) fn check_poison<R: RawMutex>(&mut self, env: &Env<'_, R>) {
        if let Some((first, status)) = self.requester.poisoned
            && self.send.front().is_some_and(|wqe| wqe.first == first)
        {
            self.fail(env, Some(status));
        }
    }
}

/// The opcode of a packet of a SEND or WRITE.
//= rocev2 §4
const fn opcode(operation: Operation, first: bool, last: bool) -> Opcode {
    match (operation, first, last) {
        (Operation::Write { .. }, true, true) => Opcode::WRITE_ONLY,
        (Operation::Write { .. }, true, false) => Opcode::WRITE_FIRST,
        (Operation::Write { .. }, false, false) => Opcode::WRITE_MIDDLE,
        (Operation::Write { .. }, false, true) => Opcode::WRITE_LAST,
        (Operation::SendInvalidate { .. }, true, true) => Opcode::SEND_ONLY_INVALIDATE,
        (Operation::SendInvalidate { .. }, false, true) => Opcode::SEND_LAST_INVALIDATE,
        (_, true, true) => Opcode::SEND_ONLY,
        (_, true, false) => Opcode::SEND_FIRST,
        (_, false, false) => Opcode::SEND_MIDDLE,
        (_, false, true) => Opcode::SEND_LAST,
    }
}
