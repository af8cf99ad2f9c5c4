//! The half that serves: requests of the peer in the order of their numbers, each once, and answers to
//! them in the same order.
//!
//! Nothing is sent while a packet is handled. What the peer is to be told is *owed*: at most one
//! acknowledgement for all that was accepted, at most one NAK, and the rest of the READs that were taken.
//! [`Rc::transmit_response`] pays, READs first, since an acknowledgement may not overtake them.

use lock_api::RawMutex;

use super::ahead::Ahead;
use super::reads::{Read, Reads};
use super::{Env, Peer, Rc, State, Stream, Unsent};
use crate::engine::{Config, Reason};
use crate::error::CreateError;
use crate::region::{Access, AccessError, KeyError};
use crate::work::{CompletionKind, Status};
use roce_wire::{
    AethRepr, Ext, Headers, ImmDt, NakCode, Opcode, Operation, Packet, PathMtu, RethRepr, Syndrome,
    SyndromeKind, rnr_timer_code,
};

/// Packets that are accepted without a word, though nobody asked for an acknowledgement. A requester that
/// asks for few (rxe: for one in 66, and its window is 128) has to wait for its timer when one of those is
/// lost, unless the next comes soon.
const UNASKED: u64 = 32;

/// The longest message there is.
const MAX_LENGTH: u32 = 1 << 31;

/// The responder half.
#[derive(Debug)]
pub(super) struct Responder {
    stream: Stream,
    pub(super) mtu: u32,
    /// Number of the next request packet to be accepted.
    pub(super) expected: u64,
    /// Messages completed.
    msn: u32,
    pub(super) message: Message,
    /// Since a packet was missed: the newest that came, of those after it.
    pub(super) missed: Option<u64>,
    /// What came after it and was kept.
    pub(super) ahead: Ahead,
    reads: Reads,
    /// All before `expected` is to be acknowledged.
    pub(super) ack_owed: bool,
    /// All before this was, by the last answer.
    acknowledged: u64,
    pub(super) nak_owed: Option<(Syndrome, u64)>,
    /// Timer code of RNR NAKs.
    rnr_code: u8,
    /// The last frame sent was a response: it is the requester's turn.
    responded: bool,
}

/// The message that is coming in.
#[derive(Clone, Copy, Debug)]
pub(super) enum Message {
    /// The next packet begins one.
    None,
    /// Into the current receive.
    Send,
    Write {
        address: u64,
        key: u32,
        total: u32,
        left: u32,
    },
}

/// A NAK that ends the connection, and how the receive ends that the message was using.
#[derive(Clone, Copy, Debug)]
struct Refusal {
    code: NakCode,
    receive: Status,
}

impl Refusal {
    const INVALID: Self = Self { code: NakCode::INVALID_REQUEST, receive: Status::Flushed };
    const ACCESS: Self = Self { code: NakCode::REMOTE_ACCESS, receive: Status::LocalAccess };
    /// The receive is too short.
    const TOO_LONG: Self = Self { code: NakCode::INVALID_REQUEST, receive: Status::LocalLength };
    /// The receive's memory is not what it should be.
    const PROTECTION: Self = Self { code: NakCode::REMOTE_OPERATIONAL, receive: Status::LocalProtection };
}

/// What became of a request packet that came in order.
enum Accepted {
    /// Executed; takes so many numbers.
    Done(u64),
    /// There is no receive for it.
    NotReady,
}

impl Responder {
    /// Before the peer is known.
    pub(super) const IDLE: Self = Self {
        stream: Stream::ZERO,
        mtu: PathMtu::Bytes256.bytes() as u32,
        expected: 0,
        msn: 0,
        message: Message::None,
        missed: None,
        ahead: Ahead::NOTHING,
        reads: Reads::NONE,
        ack_owed: false,
        acknowledged: 0,
        nak_owed: None,
        rnr_code: 0,
        responded: false,
    };

    pub(super) fn initialize(&mut self, config: &Config) -> Result<(), CreateError> {
        self.reads = Reads::try_new(config.max_reads.inbound)?;
        self.rnr_code = rnr_timer_code(config.timing.rnr_timer);
        Ok(())
    }

    pub(super) fn begin(&mut self, peer: &Peer) {
        self.stream = Stream { start: peer.receive_psn };
        self.mtu = peer.mtu.bytes() as u32;
        self.reads.grant(peer.reads.inbound);
    }

    /// Owes nothing any more.
    pub(super) fn stop(&mut self) {
        self.ack_owed = false;
        self.nak_owed = None;
        self.reads.clear();
    }

    /// Whether the requester may go first this time.
    pub(super) fn yield_turn(&mut self) -> bool {
        core::mem::take(&mut self.responded)
    }

    /// Whether [`Rc::transmit_response`] would find something.
    pub(super) fn owes(&self) -> bool {
        self.ack_owed || self.nak_owed.is_some() || self.reads.is_serving()
    }

    /// Whether what is owed next is a READ response.
    pub(super) fn is_serving(&self) -> bool {
        self.reads.is_serving()
    }

    /// Whether the peer is still to be told why this side has failed.
    pub(super) fn owes_refusal(&self) -> bool {
        //= rocev2 §9
        match self.nak_owed.map(|(syndrome, _)| syndrome.kind()) {
            Some(SyndromeKind::Nak(code)) => code != NakCode::PSN_SEQUENCE,
            _ => false,
        }
    }

    fn aeth(&self, syndrome: Syndrome) -> AethRepr {
        AethRepr { syndrome, msn: self.msn }
    }
}

impl Rc {
    /// Whether [`Rc::transmit`] may find something.
    pub(crate) fn wants_to_transmit(&self) -> bool {
        self.responder.owes() || self.wants_to_request() || self.notifier.owes()
    }

    /// A packet of the peer's requests.
    pub(super) fn handle_request<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        packet: &Packet<'_>,
    ) -> Result<(), Reason> {
        let stats = &env.engine.stats;
        let responder = &mut self.responder;
        let psn = packet.bth().psn();
        let sequence = match responder.stream.sequence(psn, responder.expected) {
            Some(sequence) if sequence == responder.expected => sequence,
            Some(sequence) if sequence > responder.expected => {
                stats.rx_out_of_order.inc();
                responder.out_of_order(sequence);
                return if self.keep(env, sequence, packet) { Ok(()) } else { Err(Reason::Sequence) };
            }
            sequence => {
                stats.rx_duplicates.inc();
                responder.duplicate(sequence.ok_or(Reason::Sequence)?, packet);
                return Ok(());
            }
        };
        match self.accept(env, sequence, packet) {
            Ok(Accepted::Done(packets)) => {
                let responder = &mut self.responder;
                responder.expected = sequence.saturating_add(packets);
                responder.missed = None;
                responder.nak_owed = None;
                //= rocev2 §6
                responder.ack_owed |= packet.bth().ack_req()
                    || responder.expected.saturating_sub(responder.acknowledged) >= UNASKED;
                if !responder.ahead.is_empty() {
                    self.take_kept(env, sequence);
                }
                Ok(())
            }
            Ok(Accepted::NotReady) => {
                stats.rx_rnr.inc();
                let responder = &mut self.responder;
                responder.nak_owed = Some((Syndrome::rnr_nak(responder.rnr_code), sequence));
                // What follows was sent before the peer knew: no news.
                responder.missed = Some(sequence);
                Ok(())
            }
            Err(refusal) => {
                //= rocev2 §9
                //= R-QP-58
                self.responder.nak_owed = Some((Syndrome::nak(refusal.code), sequence));
                if core::mem::take(&mut self.current.active) {
                    env.complete_receive(self.current.context, refusal.receive);
                }
                self.fail(env, None);
                Ok(())
            }
        }
    }

    /// A request packet whose turn it is.
    fn accept<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        sequence: u64,
        packet: &Packet<'_>,
    ) -> Result<Accepted, Refusal> {
        let info = packet.info();
        let responder = &mut self.responder;
        //= rocev2 §6
        let in_sequence = match (responder.message, info.operation) {
            (Message::None, _) => info.first,
            (Message::Send, Operation::Send) | (Message::Write { .. }, Operation::Write) => !info.first,
            _ => false,
        };
        if !in_sequence || !info.payload.admits(packet.payload().len(), responder.mtu as usize) {
            return Err(Refusal::INVALID);
        }
        match info.operation {
            Operation::Send => self.accept_send(env, packet),
            Operation::Write => self.accept_write(env, packet),
            Operation::Read => {
                let reth = packet.reth().map(|reth| RethRepr::parse(&reth)).ok_or(Refusal::INVALID)?;
                responder.accept_read(env, sequence, &reth)
            }
            // Atomics are not offered.
            _ => Err(Refusal::INVALID),
        }
    }

    fn accept_send<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        packet: &Packet<'_>,
    ) -> Result<Accepted, Refusal> {
        if packet.info().first && !self.take_receive(env) {
            return Ok(Accepted::NotReady);
        }
        let mut rest = packet.payload();
        //= R-QP-46
        let sges = self.current.sges();
        let mut cursor = self.current.cursor;
        cursor.walk(sges, rest.len() as u32, Refusal::TOO_LONG, |sge, within, len| {
            let (now, later) = rest.split_at_checked(len as usize).ok_or(Refusal::TOO_LONG)?;
            rest = later;
            let stored = env.engine.regions.write_local(env.qp.pd, sge, within, now);
            stored.map_err(|AccessError| Refusal::PROTECTION)
        })?;
        self.current.cursor = cursor;
        if !packet.info().last {
            self.responder.message = Message::Send;
            return Ok(Accepted::Done(1));
        }
        let mut kind = CompletionKind::Receive;
        if let Some(ieth) = packet.ieth() {
            let key = ieth.r_key();
            //= rocev2 §9
            //= rocev2 §10
            //= R-QP-77
            //= R-QP-78
            //= R-MR-48
            let done = env.engine.regions.invalidate_remotely(env.qp.scope(), key);
            done.map_err(|KeyError| Refusal::ACCESS)?;
            env.engine.stats.rx_invalidations.inc();
            kind = CompletionKind::ReceiveInvalidate { key };
        }
        env.engine.stats.rx_sends.inc();
        let bytes = self.current.cursor.position;
        self.complete_current(env, kind, packet.imm_dt(), packet.bth().solicited(), bytes);
        Ok(Accepted::Done(1))
    }

    fn accept_write<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        packet: &Packet<'_>,
    ) -> Result<Accepted, Refusal> {
        let info = packet.info();
        let payload = packet.payload();
        let (address, key, total, left) = match (self.responder.message, packet.reth()) {
            (Message::Write { address, key, total, left }, _) => (address, key, total, left),
            (_, Some(reth)) => {
                let reth = RethRepr::parse(&reth);
                if reth.length > MAX_LENGTH {
                    return Err(Refusal::INVALID);
                }
                //= rocev2 §6
                // All of the range, before the first byte; nothing at all when it is empty.
                if reth.length > 0 {
                    let right = Access::REMOTE_WRITE;
                    let (key, length) = (reth.r_key, u64::from(reth.length));
                    let checked =
                        env.engine.regions.check_remote(env.qp.scope(), key, reth.address, length, right);
                    checked.map_err(|AccessError| Refusal::ACCESS)?;
                }
                (reth.address, reth.r_key, reth.length, reth.length)
            }
            _ => return Err(Refusal::INVALID),
        };
        let left = match left.checked_sub(payload.len() as u32) {
            Some(0) if info.last => 0,
            Some(rest) if rest > 0 && !info.last => rest,
            _ => return Err(Refusal::INVALID),
        };
        let immediate = packet.imm_dt().is_some();
        if immediate && !self.take_receive(env) {
            return Ok(Accepted::NotReady);
        }
        if !payload.is_empty() {
            // Again for each packet: the region may go meanwhile.
            //= R-MR-17
            let written = env.engine.regions.write_remote(env.qp.scope(), key, address, payload);
            written.map_err(|AccessError| Refusal::ACCESS)?;
        }
        if !info.last {
            let address = address.wrapping_add(payload.len() as u64);
            self.responder.message = Message::Write { address, key, total, left };
            return Ok(Accepted::Done(1));
        }
        env.engine.stats.rx_writes.inc();
        if immediate {
            let kind = CompletionKind::Receive;
            self.complete_current(env, kind, packet.imm_dt(), packet.bth().solicited(), total);
        } else {
            self.responder.end_message();
        }
        Ok(Accepted::Done(1))
    }

    /// Makes the oldest receive the current one; `false` when there is none.
    fn take_receive<R: RawMutex>(&mut self, env: &Env<'_, R>) -> bool {
        //= R-SRQ-1
        match &env.qp.srq {
            Some(srq) => {
                let (taken, follow) = srq.take(&mut self.current);
                env.engine.follow_srq(srq, follow);
                taken
            }
            None => self.recv.take(&mut self.current),
        }
    }

    /// The message is complete, and with it the current receive.
    pub(super) fn complete_current<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        kind: CompletionKind,
        immediate: Option<ImmDt<'_>>,
        solicited: bool,
        bytes: u32,
    ) {
        self.current.active = false;
        self.responder.end_message();
        //= R-CQ-23
        //= R-CQ-26
        let mut completion = env.completion(self.current.context, kind, Status::Success, bytes);
        completion.immediate = immediate.map(|imm| imm.data());
        //= R-CQ-5
        env.engine.push_completion(&env.qp.recv_cq, completion, solicited);
    }

    /// Writes the next frame that the peer is owed.
    pub(super) fn transmit_response<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        slot: &mut [u8],
    ) -> Result<usize, Unsent> {
        let responder = &mut self.responder;
        let stats = &env.engine.stats;
        if let Some(next) = responder.reads.next(responder.mtu) {
            let headers = Headers {
                opcode: next.opcode,
                solicited: false,
                ack_req: false,
                psn: responder.stream.psn(next.sequence),
                ext: match next.opcode {
                    Opcode::READ_RESPONSE_MIDDLE => Ext::None,
                    _ => Ext::Aeth(responder.aeth(Syndrome::ACK)),
                },
            };
            let built = Self::build(self.link.as_ref(), env, slot, &headers, next.len as usize, |frame| {
                if next.len == 0 {
                    return Ok(());
                }
                env.engine.regions.read_remote(env.qp.scope(), next.key, next.address, next.len, frame)
            })?;
            if let Ok(len) = built {
                responder.reads.sent();
                responder.responded = true;
                // It acknowledges everything up to itself.
                responder.acknowledged = responder.acknowledged.max(next.sequence.saturating_add(1));
                if next.sequence.saturating_add(1) == responder.expected {
                    responder.ack_owed = false;
                }
                return Ok(len);
            }
            // The region has gone since the READ was taken.
            responder.reads.clear();
            responder.ack_owed = false;
            responder.nak_owed = Some((Syndrome::nak(NakCode::REMOTE_ACCESS), next.sequence));
            self.fail(env, None);
        }
        let responder = &mut self.responder;
        let (syndrome, sequence) = match responder.nak_owed {
            // It acknowledges everything before itself.
            Some((syndrome, sequence)) => (syndrome, sequence),
            None if responder.ack_owed => (Syndrome::ACK, responder.expected.saturating_sub(1)),
            None => return Err(Unsent::Idle),
        };
        let headers = Headers {
            opcode: Opcode::ACKNOWLEDGE,
            solicited: false,
            ack_req: false,
            psn: responder.stream.psn(sequence),
            ext: Ext::Aeth(responder.aeth(syndrome)),
        };
        let built = Self::build(self.link.as_ref(), env, slot, &headers, 0, |_| Ok::<_, AccessError>(()))?;
        responder.ack_owed = false;
        responder.acknowledged = responder.expected;
        responder.nak_owed = None;
        responder.responded = true;
        if self.state == State::Error {
            self.report_broken(env);
        }
        let counter = match syndrome {
            Syndrome::ACK => &stats.tx_acks,
            Syndrome(0x60) => &stats.tx_nak_sequence,
            Syndrome(0x61) => &stats.tx_nak_invalid,
            Syndrome(0x62) => &stats.tx_nak_access,
            Syndrome(0x63) => &stats.tx_nak_operational,
            _ => &stats.tx_nak_rnr,
        };
        counter.inc();
        built.map_err(|_| Unsent::Broken)
    }
}

impl Responder {
    /// The message is complete, and what was kept beyond it belongs to another one.
    pub(super) fn end_message(&mut self) {
        self.message = Message::None;
        self.ahead = Ahead::NOTHING;
        self.msn = self.msn.wrapping_add(1) & 0x00FF_FFFF;
    }

    /// A packet has come before an earlier one.
    fn out_of_order(&mut self, sequence: u64) {
        //= rocev2 §6
        // One NAK for each gap. A number that does not rise shows that the requester has gone back and that
        // its first packet was lost once more: that would otherwise cost a timeout.
        let restarted = self.missed.is_some_and(|newest| sequence <= newest);
        if self.missed.is_none() || restarted {
            self.nak_owed = Some((Syndrome::nak(NakCode::PSN_SEQUENCE), self.expected));
        }
        self.missed = Some(sequence);
    }

    /// A packet has come again.
    fn duplicate(&mut self, sequence: u64, packet: &Packet<'_>) {
        //= rocev2 §6
        match (packet.info().operation, packet.reth()) {
            (Operation::Read, Some(reth)) => {
                self.reads.again(sequence, &RethRepr::parse(&reth), self.mtu);
            }
            // Never executed, so never acknowledged either.
            (Operation::Atomic, _) => {}
            _ => self.ack_owed = true,
        }
    }

    fn accept_read<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        sequence: u64,
        reth: &RethRepr,
    ) -> Result<Accepted, Refusal> {
        if reth.length > MAX_LENGTH {
            return Err(Refusal::INVALID);
        }
        if reth.length > 0 {
            let (key, length) = (reth.r_key, u64::from(reth.length));
            let right = Access::REMOTE_READ;
            let checked = env.engine.regions.check_remote(env.qp.scope(), key, reth.address, length, right);
            checked.map_err(|AccessError| Refusal::ACCESS)?;
        }
        let packets = reth.length.div_ceil(self.mtu.max(1)).max(1);
        //= R-QP-54
        if !self.reads.take(Read::new(sequence, packets, *reth)) {
            return Err(Refusal::INVALID);
        }
        env.engine.stats.rx_reads.inc();
        self.msn = self.msn.wrapping_add(1) & 0x00FF_FFFF;
        Ok(Accepted::Done(u64::from(packets)))
    }
}
