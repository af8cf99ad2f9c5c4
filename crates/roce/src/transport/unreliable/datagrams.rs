// SPDX-License-Identifier: MIT OR Apache-2.0

//! Unreliable datagrams (IBTA Volume 1, section 9.8.3): what a queue pair without a peer sends and receives.
//!
//! A datagram is one packet. The destinations of the requests stand in a queue beside the send queue.

use lock_api::RawMutex;

use super::inbound::complete_receive;
use crate::drop_reason::DropReason;
use crate::sge_cursor::SgeCursor;
use crate::transport::env::Env;
use crate::transport::failure::{Failure, PacketError};
use crate::transport::packet::frame::{Unsent, build_frame};
use crate::transport::peer::Link;
use crate::transport::requester::Requester;
use crate::transport::requester::send_queue::Wqe;
use crate::transport::responder::fatal_nak::FatalNak;
use crate::transport::responder::receives::Receives;
use crate::work::{CompletionKind, CompletionStatus, SendFlags};
use fallible::{AllocError, Fifo};
use roce_wire::{Class, DethRepr, Ext, Headers, ImmDtRepr, Ip, Ipv4, Ipv6, Opcode, Packet, Psn};

/// Bytes before a received datagram: the place of a global route header.
///
/// Source: rocev2 §11; IBTA Volume 1, annex A17.
const HEADER: usize = Ipv6::LEN;

/// The most significant bit of a Q_Key: a datagram gets that of its queue pair.
const CONTROLLED: u32 = 1 << 31;

/// State of a queue pair for datagrams besides its queues.
#[derive(Debug)]
pub(super) struct Datagrams {
    q_key: u32,
    /// Of the requests in the send queue, oldest first.
    destinations: Fifo<Destination>,
}

/// Where a datagram goes.
#[derive(Debug)]
pub(crate) struct Destination {
    link: Link,
    q_key: u32,
}

impl Destination {
    pub(crate) fn new(link: Link, q_key: u32) -> Self {
        Self { link, q_key }
    }
}

impl Datagrams {
    /// Makes room for the destinations of `requests` requests.
    pub(super) fn try_new(q_key: u32, requests: u32) -> Result<Self, AllocError> {
        let mut destinations = Fifo::new();
        destinations.reserve_for(requests as usize)?;
        Ok(Self { q_key, destinations })
    }

    /// Adds the destination of a request that is posted. Returns whether there was room.
    pub(super) fn push(&mut self, destination: Destination) -> bool {
        self.destinations.push(destination)
    }

    pub(super) fn set_q_key(&mut self, q_key: u32) {
        self.q_key = q_key;
    }

    /// Forgets the destinations of dropped requests.
    pub(super) fn forget_requests(&mut self) {
        while self.destinations.pop().is_some() {}
    }

    /// Writes the oldest datagram, `wqe`, to `slot`. Returns the length of the frame, and that the request ends with it.
    pub(super) fn transmit<R: RawMutex>(
        &mut self,
        requester: &Requester,
        env: &Env<'_, R>,
        slot: &mut [u8],
        wqe: &Wqe,
        psn: Psn,
    ) -> Result<(usize, bool), Unsent> {
        let destination = self.destinations.pop().ok_or(Unsent::Fatal(Failure::FrameNotBuilt))?;
        let controlled = destination.q_key & CONTROLLED != 0;
        let q_key = if controlled { self.q_key } else { destination.q_key };
        let deth = DethRepr { q_key, source_qp: env.qp.qpn };
        let (opcode, ext) = match requester.send_queue.immediate(wqe) {
            Some(data) => (Opcode::UD_SEND_ONLY_IMM, Ext::DethImm(deth, ImmDtRepr { data })),
            None => (Opcode::UD_SEND_ONLY, Ext::Deth(deth)),
        };
        let solicited = wqe.flags.contains(SendFlags::SOLICITED);
        let headers = Headers { opcode, solicited, ack_req: false, psn, ext };
        let payload = requester.send_queue.payload(wqe);
        let built = build_frame(&destination.link, env, slot, &headers, wqe.length as usize, |frame| {
            payload.copy(env, &mut SgeCursor::default(), (0, wqe.length), frame)
        })?;
        Ok((built.map_err(|_| Unsent::Fatal(Failure::LocalProtection))?, true))
    }

    /// Handles a packet.
    pub(super) fn handle<R: RawMutex>(
        &self,
        mtu: u32,
        receives: &mut Receives,
        env: &Env<'_, R>,
        packet: &Packet<'_>,
    ) -> Result<(), PacketError> {
        let is_datagram = packet.info().class == Class::Datagram;
        let deth = packet.deth().filter(|_| is_datagram).ok_or(DropReason::Opcode)?;
        //= rocev2 §13
        if deth.q_key() != self.q_key {
            return Err(DropReason::QKey.into());
        }
        if packet.payload().len() > mtu as usize {
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
                env.stats.rx_sends.inc();
                let kind = CompletionKind::ReceiveDatagram { source: deth.source_qp() };
                complete_receive(receives, env, packet, kind, cursor.position);
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
