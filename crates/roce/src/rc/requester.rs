//! The half that sends: requests become packets, in order, within window, depth and fences, and again
//! when they are lost (go-back-N).
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
//! A long READ is asked for in pieces of [`READ_CHUNK`] packets, so that the window bounds what answers are on
//! their way, and so that what was lost is asked for again by the piece. Pieces begin at the same places
//! every time: a responder finds the rest of a piece inside one READ that it remembers.

use core::time::Duration;

use lock_api::RawMutex;

use super::send::{Payload, Wqe};
use super::sges::Cursor;
use super::{Env, Peer, Rc, State, Stream, Unsent};
use crate::engine::Config;
use crate::region::AccessError;
use crate::time::{Instant, nanos};
use crate::wire::{Ext, Headers, IethRepr, Opcode, PathMtu, RethRepr};
use crate::work::{Operation, SendFlags, Status};

/// Packets of response that one READ request on the wire asks for at most.
const READ_CHUNK: u64 = 64;

/// An RNR retry count that means to try for ever.
const NO_LIMIT: u8 = 7;

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
    /// A request that cannot be sent, by its first number, and how it will end once it is the oldest.
    pub(super) poisoned: Option<(u64, Status)>,
    pub(super) recovery: Recovery,
}

/// What is known of losses and delays.
#[derive(Debug)]
pub(super) struct Recovery {
    retries: u8,
    /// Retries since the last progress.
    spent: u8,
    rnr_retries: u8,
    rnr_spent: u8,
    /// Since when the peer has had no receive.
    rnr_since: Option<Instant>,
    /// Nothing is sent before this.
    rnr_until: Option<Instant>,
    /// Longest that a request goes without an answer before that costs a retry; zero for ever.
    ack_timeout: Duration,
    min_resend: Duration,
    rnr_limit: Duration,
    /// When the last answer came, or when the first unanswered packet was sent.
    progress: Instant,
    /// How long after that the oldest packet is sent again, doubled with every time.
    resend: Duration,
    /// A packet whose answer is awaited to measure the round trip, and when it was sent.
    sample: Option<(u64, Instant)>,
    rtt: Option<Rtt>,
    /// Where and when the requester went back last.
    went_back: Option<(u64, Instant)>,
}

/// Round trips, in nanoseconds: unlike those of [`Duration`], divisions of integers cannot panic here.
#[derive(Clone, Copy, Debug)]
struct Rtt {
    smoothed: u64,
    variation: u64,
    shortest: u64,
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
        poisoned: None,
        recovery: Recovery {
            retries: 0,
            spent: 0,
            rnr_retries: 0,
            rnr_spent: 0,
            rnr_since: None,
            rnr_until: None,
            ack_timeout: Duration::ZERO,
            min_resend: Duration::ZERO,
            rnr_limit: Duration::ZERO,
            progress: Instant::from_nanos(0),
            resend: Duration::ZERO,
            sample: None,
            rtt: None,
            went_back: None,
        },
    };

    pub(super) fn begin(&mut self, peer: &Peer, config: &Config) {
        self.stream = Stream { start: peer.send_psn };
        self.mtu = peer.mtu.bytes() as u32;
        self.window = u64::from(config.window.clamp(2, 1 << 20));
        self.ack_mask = u64::from(config.ack_every.clamp(1, 1 << 16).next_power_of_two() - 1);
        self.max_reads = u32::from(peer.reads.outbound.min(config.max_reads.outbound));
        let recovery = &mut self.recovery;
        recovery.retries = peer.retries;
        recovery.rnr_retries = peer.rnr_retries;
        recovery.ack_timeout = peer.ack_timeout;
        recovery.min_resend = config.timing.min_resend;
        recovery.rnr_limit = config.timing.rnr_limit;
        recovery.resend = recovery.first_resend();
    }

    /// Nothing is sent or awaited any more.
    pub(super) fn stop(&mut self) {
        self.una = self.high;
        self.next = self.high;
        self.poisoned = None;
        self.recovery.rnr_until = None;
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

    /// A READ response has come that is the last of its piece.
    pub(super) fn chunk_done(&mut self) {
        self.reads = self.reads.saturating_sub(1);
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

    /// Goes back to the oldest unanswered packet.
    pub(super) fn go_back(&mut self, now: Instant) {
        self.next = self.una;
        self.index = 0;
        self.reads_before = 0;
        self.reads = 0;
        self.cursor = Cursor::default();
        self.recovery.sample = None;
        self.recovery.went_back = Some((self.una, now));
    }

    /// Whether a loss at the oldest packet that is reported now is news: not the echo of one that the
    /// requester has gone back for already.
    pub(super) fn is_news(&self, now: Instant) -> bool {
        match self.recovery.went_back {
            // An answer to what was sent since then takes a round trip.
            Some((una, at)) if una == self.una => {
                let round_trip = self.recovery.rtt.map_or(0, |rtt| rtt.shortest);
                nanos(now.duration_since(at)) >= round_trip
            }
            _ => true,
        }
    }
}

impl Recovery {
    fn first_resend(&self) -> Duration {
        let estimate = match self.rtt {
            Some(rtt) => Duration::from_nanos(rtt.smoothed.saturating_add(rtt.variation.saturating_mul(4))),
            None => self.min_resend.saturating_mul(2),
        };
        self.at_most_timeout(estimate.max(self.min_resend))
    }

    fn at_most_timeout(&self, time: Duration) -> Duration {
        if self.ack_timeout.is_zero() { time } else { time.min(self.ack_timeout) }
    }

    /// Something has been answered.
    fn progressed(&mut self, una: u64, now: Instant) {
        //= rocev2 §7
        self.spent = 0;
        self.rnr_spent = 0;
        self.rnr_since = None;
        self.progress = now;
        if let Some((sequence, at)) = self.sample
            && una > sequence
        {
            self.sample = None;
            self.measured(now.duration_since(at));
        }
        self.resend = self.first_resend();
    }

    fn measured(&mut self, rtt: Duration) {
        let rtt = nanos(rtt);
        let old = self.rtt.unwrap_or(Rtt { smoothed: rtt, variation: rtt / 2, shortest: rtt });
        self.rtt = Some(Rtt {
            smoothed: old.smoothed.saturating_mul(7).saturating_add(rtt) / 8,
            variation: old.variation.saturating_mul(3).saturating_add(old.smoothed.abs_diff(rtt)) / 4,
            shortest: old.shortest.min(rtt),
        });
    }

    /// Accounts for having to go back once more; `false` when no retry is left for that.
    ///
    /// A retry is not each going back, but each time that the agreed timeout has passed without progress:
    /// the same patience, whether the peer is silent, or reports the same loss over and over. Before that,
    /// resending is free, and finds a lost tail early.
    pub(super) fn may_go_back(&mut self, now: Instant) -> bool {
        //= rocev2 §7
        let waited = now.duration_since(self.progress);
        let due = self.ack_timeout.saturating_mul(u32::from(self.spent).saturating_add(1));
        if !self.ack_timeout.is_zero() && waited >= due {
            self.spent = self.spent.saturating_add(1);
        }
        self.spent <= self.retries
    }

    /// The peer had no receive: waits for `timer`. `false` when that has gone on for too long.
    pub(super) fn wait_for_receive(&mut self, now: Instant, timer: Duration) -> bool {
        let since = *self.rnr_since.get_or_insert(now);
        //= rocev2 §7
        self.rnr_until = Some(now + timer);
        self.spent = 0;
        //= R-QP-7
        if now.duration_since(since) >= self.rnr_limit {
            return false;
        }
        self.rnr_spent = self.rnr_spent.saturating_add(1).min(NO_LIMIT);
        self.rnr_retries >= NO_LIMIT || self.rnr_spent <= self.rnr_retries
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
        self.requester.waiting().then(|| recovery.progress + recovery.resend)
    }

    pub(super) fn check_deadline<R: RawMutex>(&mut self, env: &Env<'_, R>) {
        if self.deadline().is_none_or(|deadline| deadline > env.now) {
            return;
        }
        let requester = &mut self.requester;
        if requester.recovery.rnr_until.take().is_some() {
            // The requester has gone back when the NAK came.
            requester.recovery.progress = env.now;
            return;
        }
        env.engine.stats.timeouts.inc();
        let recovery = &mut requester.recovery;
        if !recovery.may_go_back(env.now) {
            self.fail(env, Some(Status::RetryExceeded));
            return;
        }
        // `resend` counts from the last progress: each pause is twice the one before, up to the agreed time.
        let pause = recovery.at_most_timeout(recovery.resend);
        recovery.resend = recovery.resend.saturating_add(pause);
        requester.go_back(env.now);
    }

    /// Whether [`Rc::transmit_request`] may find something.
    pub(super) fn wants_to_request(&self) -> bool {
        self.state == State::Rts
            && self.requester.recovery.rnr_until.is_none()
            && (self.requester.next < self.send.end() || self.send.has_noted())
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
        if requester.next == requester.una && recovery.went_back.is_none_or(|(una, _)| una != requester.una) {
            // Nothing was awaited: the time without answer begins now.
            recovery.progress = env.now;
        }
        if requester.next < requester.high {
            env.engine.stats.retransmissions.inc();
        } else if ack_req && recovery.sample.is_none() {
            recovery.sample = Some((requester.next, env.now));
        }
        requester.next = end;
        requester.high = requester.high.max(end);
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
