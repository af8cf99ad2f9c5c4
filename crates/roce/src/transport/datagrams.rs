// SPDX-License-Identifier: MIT OR Apache-2.0

//! Unreliable datagrams (IBTA Volume 1, section 9.8.3): what a queue pair without a peer sends and receives.
//!
//! A datagram is one packet. It is complete when its frame is built, and is not answered. The requests stand in the send queue, as
//! those of a connected queue pair do; their destinations in a queue beside it. Nothing here is on the way of a connection's packets.

use lock_api::RawMutex;

use super::env::Env;
use super::failure::{Failure, PacketError};
use super::packet::frame::{Unsent, build_frame};
use super::peer::Link;
use super::requester::Requester;
use super::requester::life_cycle;
use super::requester::send_queue::Payload;
use super::responder::fatal_nak::FatalNak;
use super::responder::receives::Receives;
use crate::drop_reason::DropReason;
use crate::qp_change::DatagramSpec;
use crate::region::access_rights::AccessError;
use crate::sge_cursor::SgeCursor;
use crate::work::{CompletionKind, CompletionStatus, SendFlags};
use fallible::{AllocError, Fifo};
use roce_wire::{Class, DethRepr, Ext, Headers, ImmDtRepr, Ip, Ipv4, Ipv6, Opcode, Packet, Psn};

/// Bytes before a received datagram: the place of a global route header.
///
/// Source: rocev2 §11; IBTA Volume 1, annex A17.
const HEADER: usize = Ipv6::LEN;

/// The most significant bit of a Q_Key: a datagram gets that of its queue pair.
const CONTROLLED: u32 = 1 << 31;

/// State of a queue pair for datagrams.
#[derive(Debug)]
pub(super) struct Datagrams {
    /// Whether the queue pair is open for datagrams.
    open: bool,
    q_key: u32,
    /// Bytes of the longest payload.
    mtu: u32,
    /// PSN of the next datagram.
    next: Psn,
    /// Of the requests in the send queue, oldest first.
    destinations: Fifo<Destination>,
}

/// Where a datagram goes.
#[derive(Debug)]
pub(crate) struct Destination {
    link: Link,
    q_key: u32,
}

impl Datagrams {
    /// Without room.
    pub(super) const NONE: Self =
        Self { open: false, q_key: 0, mtu: 0, next: Psn::new(0), destinations: Fifo::new() };

    /// Makes room for the destinations of `requests` requests.
    pub(super) fn reserve_for(&mut self, requests: u32) -> Result<(), AllocError> {
        self.destinations.reserve_for(requests as usize)
    }

    /// Opens the queue pair.
    pub(super) fn open(&mut self, spec: &DatagramSpec) {
        self.open = true;
        self.mtu = spec.mtu.bytes() as u32;
        self.q_key = spec.q_key;
        self.next = spec.send_psn;
    }

    /// Adds the destination of a request that is posted.
    pub(super) fn push(&mut self, destination: Destination) {
        self.destinations.push(destination);
    }

    /// Returns how long the payload of a datagram may be, in bytes.
    pub(super) fn mtu(&self) -> u32 {
        self.mtu
    }

    /// Closes the queue pair, and forgets the destinations of dropped requests.
    pub(super) fn close(&mut self) {
        self.open = false;
        while self.destinations.pop().is_some() {}
    }
}

impl Destination {
    pub(crate) fn new(link: Link, q_key: u32) -> Self {
        Self { link, q_key }
    }
}

/// Writes the oldest datagram to `slot`, and completes it.
#[cold]
#[inline(never)]
pub(super) fn transmit<R: RawMutex>(
    datagrams: &mut Datagrams,
    requester: &mut Requester,
    env: &Env<'_, R>,
    slot: &mut [u8],
) -> Result<usize, Unsent> {
    if !datagrams.open {
        return Err(Unsent::Idle);
    }
    let wqe = *requester.send_queue.front().ok_or(Unsent::Idle)?;
    let destination = datagrams.destinations.pop().ok_or(Unsent::Fatal(Failure::FrameNotBuilt))?;
    let controlled = destination.q_key & CONTROLLED != 0;
    let q_key = if controlled { datagrams.q_key } else { destination.q_key };
    let deth = DethRepr { q_key, source_qp: env.qp.qpn };
    let (opcode, ext) = match requester.send_queue.immediate(&wqe) {
        Some(data) => (Opcode::UD_SEND_ONLY_IMM, Ext::DethImm(deth, ImmDtRepr { data })),
        None => (Opcode::UD_SEND_ONLY, Ext::Deth(deth)),
    };
    let solicited = wqe.flags.contains(SendFlags::SOLICITED);
    let headers = Headers { opcode, solicited, ack_req: false, psn: datagrams.next, ext };
    let payload = requester.send_queue.payload(&wqe);
    let built =
        build_frame(&destination.link, env, slot, &headers, wqe.length as usize, |frame| match payload {
            Payload::Inline(bytes) => {
                frame.write(bytes);
                Ok(())
            }
            Payload::Sges(sges) => {
                let mut cursor = SgeCursor::START;
                cursor.walk(sges, wqe.length, AccessError, |sge, within, len| {
                    env.regions.read_local(env.qp.pd, sge, within, len, frame)
                })
            }
        })?;
    // It is the oldest request, which completes as failed.
    let length = built.map_err(|AccessError| Unsent::Fatal(Failure::LocalProtection))?;
    datagrams.next = datagrams.next.add(1);
    // Its entry is free before its completion can be polled.
    life_cycle::take_sent(requester);
    if !wqe.flags.contains(SendFlags::SILENT) {
        env.complete_send(wqe.context, CompletionKind::Send, CompletionStatus::Success, wqe.length);
    }
    Ok(length)
}

/// Handles a packet for a queue pair that has no peer.
#[cold]
#[inline(never)]
pub(super) fn handle<R: RawMutex>(
    datagrams: &Datagrams,
    receives: &mut Receives,
    env: &Env<'_, R>,
    packet: &Packet<'_>,
) -> Result<(), PacketError> {
    if !datagrams.open {
        return Err(DropReason::State.into());
    }
    let deth = packet.deth().filter(|_| packet.info().class == Class::Datagram).ok_or(DropReason::Opcode)?;
    //= rocev2 §13
    if deth.q_key() != datagrams.q_key {
        return Err(DropReason::QKey.into());
    }
    if packet.payload().len() > datagrams.mtu as usize {
        return Err(DropReason::Sequence.into());
    }
    if !receives.take(env) {
        return Err(DropReason::NoReceive.into());
    }
    let mut cursor = SgeCursor::START;
    let written = receives
        .write(env, &mut cursor, &header(packet.ip()))
        .and_then(|()| receives.write(env, &mut cursor, packet.payload()));
    match written {
        Ok(()) => {
            let context = receives.current.context;
            receives.current.active = false;
            env.stats.rx_sends.inc();
            let kind = CompletionKind::ReceiveDatagram { source: deth.source_qp() };
            let mut completion = env.completion(context, kind, CompletionStatus::Success, cursor.position);
            completion.immediate = packet.imm_dt().map(|imm| imm.data());
            env.push_completion(&env.qp.recv_cq, completion, packet.bth().solicited());
        }
        // The receive is too short. Any host can send a datagram: the queue pair goes on.
        Err(FatalNak::TOO_LONG) => receives.fail_current(env, CompletionStatus::LocalLength),
        // Its memory is not what the owner has said.
        Err(_) => {
            receives.fail_current(env, CompletionStatus::LocalProtection);
            return Err(Failure::Refused.into());
        }
    }
    Ok(())
}

/// Returns what stands before a received datagram: an IPv6 header, or 20 zero bytes and an IPv4 header.
///
/// Source: IBTA Volume 1, annex A17, section A17.4.5.1.
fn header(ip: Ip<'_>) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    match ip {
        Ip::V4(ip) => {
            if let Some(place) = bytes.last_chunk_mut::<{ Ipv4::LEN }>() {
                *place = *ip.as_bytes();
            }
        }
        Ip::V6(ip) => bytes = *ip.as_bytes(),
    }
    bytes
}
