// SPDX-License-Identifier: MIT OR Apache-2.0

//! The requester of an unreliable connection (IBTA Volume 1, section 9.8.2): messages of any length to one peer, without
//! acknowledgement.
//!
//! A packet that is lost is not sent again, and the peer drops the message that it belonged to. The requester waits for nothing but
//! its turn: it needs no window and no timer.

use lock_api::RawMutex;

use super::inbound::Inbound;
use crate::drop_reason::DropReason;
use crate::region::access_rights::Access;
use crate::sge_cursor::SgeCursor;
use crate::transport::env::Env;
use crate::transport::failure::{Failure, PacketError};
use crate::transport::packet::frame::{Unsent, build_frame};
use crate::transport::peer::Link;
use crate::transport::requester::Requester;
use crate::transport::requester::send_queue::Wqe;
use crate::transport::requester::transmit::{ext, opcode};
use crate::transport::responder::receives::Receives;
use crate::work::SendFlags;
use roce_wire::{Headers, Packet, PathMtu, Psn};

/// The peer of an unreliable connection, and the operations that it may request.
#[derive(Debug)]
pub(crate) struct UnreliablePeer {
    pub(crate) link: Link,
    pub(crate) mtu: PathMtu,
    /// PSN of the peer's first packet.
    pub(crate) receive_psn: Psn,
    pub(crate) access: Access,
}

/// An unreliable connection.
#[derive(Debug)]
pub(super) struct UnreliableConnection {
    link: Link,
    /// Bytes of the oldest request that are sent.
    offset: u32,
    /// Position of the next packet's payload in it.
    cursor: SgeCursor,
    inbound: Inbound,
}

impl UnreliableConnection {
    pub(super) fn new(peer: UnreliablePeer) -> Self {
        let inbound = Inbound::new(peer.receive_psn, peer.access);
        Self { link: peer.link, offset: 0, cursor: SgeCursor::START, inbound }
    }

    /// Returns whether the oldest request is sent in part.
    pub(super) fn is_within_message(&self) -> bool {
        self.offset > 0
    }

    pub(super) fn link_mut(&mut self) -> &mut Link {
        &mut self.link
    }

    pub(super) fn set_access(&mut self, access: Access) {
        self.inbound.set_access(access);
    }

    /// Forgets the request that is being sent.
    pub(super) fn forget_requests(&mut self) {
        (self.offset, self.cursor) = (0, SgeCursor::START);
    }

    /// Writes the next packet of the oldest request to `slot`. Returns the length of the frame, and whether the request ends with
    /// it.
    pub(super) fn transmit<R: RawMutex>(
        &mut self,
        requester: &Requester,
        env: &Env<'_, R>,
        slot: &mut [u8],
        (wqe, mtu, psn): (&Wqe, u32, Psn),
    ) -> Result<(usize, bool), Unsent> {
        //= rocev2 §5
        let rest = wqe.length.saturating_sub(self.offset);
        let length = rest.min(mtu);
        let (first, last) = (self.offset == 0, length == rest);
        let immediate = requester.send_queue.immediate(wqe);
        let headers = Headers {
            opcode: opcode(wqe.operation, immediate.is_some(), first, last).unreliable(),
            solicited: last && wqe.flags.contains(SendFlags::SOLICITED),
            ack_req: false,
            psn,
            ext: ext(wqe.operation, immediate, wqe.length, first, last),
        };
        let payload = requester.send_queue.payload(wqe);
        let Self { link, offset, cursor, .. } = self;
        let built = build_frame(link, env, slot, &headers, length as usize, |frame| {
            payload.copy(env, cursor, (*offset, length), frame)
        })?;
        let built = built.map_err(|_| Unsent::Fatal(Failure::LocalProtection))?;
        if last {
            self.forget_requests();
        } else {
            self.offset = self.offset.saturating_add(length);
        }
        Ok((built, last))
    }

    /// Handles a packet.
    pub(super) fn handle<R: RawMutex>(
        &mut self,
        mtu: u32,
        receives: &mut Receives,
        env: &Env<'_, R>,
        packet: &Packet<'_>,
    ) -> Result<(), PacketError> {
        //= rocev2 §6
        if !self.link.template.is_reverse_of(packet) {
            return Err(DropReason::Address.into());
        }
        self.inbound.handle(mtu, receives, env, packet)
    }
}
