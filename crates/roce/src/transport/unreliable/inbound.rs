// SPDX-License-Identifier: MIT OR Apache-2.0

//! The responder of an unreliable connection (IBTA Volume 1, section 9.8.2): executes messages that arrive complete and in order.
//!
//! After a packet that is missing or cannot be executed, the rest of its message is dropped; the next first packet of a message is
//! executed whatever its PSN is. The receive of a message that is dropped holds the next one. WRITEs that are dropped may have
//! changed memory up to the missing packet.

use lock_api::RawMutex;

use crate::drop_reason::DropReason;
use crate::region::access_rights::{Access, AccessError};
use crate::sge_cursor::SgeCursor;
use crate::transport::env::Env;
use crate::transport::failure::{Failure, PacketError};
use crate::transport::responder::fatal_nak::FatalNak;
use crate::transport::responder::message::InboundMessage;
use crate::transport::responder::receives::Receives;
use crate::work::{CompletionKind, CompletionStatus};
use roce_wire::{Class, Operation, Packet, Psn, RethRepr};

/// The responder.
#[derive(Debug)]
pub(super) struct Inbound {
    /// PSN of the next packet of the message.
    expected: Psn,
    message: InboundMessage,
    /// Operations that the peer may request.
    access: Access,
}

impl Inbound {
    pub(super) fn new(expected: Psn, access: Access) -> Self {
        Self { expected, message: InboundMessage::None, access }
    }

    pub(super) fn set_access(&mut self, access: Access) {
        self.access = access;
    }

    /// Handles a packet of the peer.
    pub(super) fn handle<R: RawMutex>(
        &mut self,
        mtu: u32,
        receives: &mut Receives,
        env: &Env<'_, R>,
        packet: &Packet<'_>,
    ) -> Result<(), PacketError> {
        let info = packet.info();
        if info.class != Class::Unreliable {
            return Err(DropReason::Opcode.into());
        }
        let psn = packet.bth().psn();
        // Unless this packet continues it.
        let mut message = core::mem::replace(&mut self.message, InboundMessage::None);
        if info.first {
            message = InboundMessage::None;
        } else if psn != self.expected {
            return Err(DropReason::Sequence.into());
        }
        if !message.continues_with(info) || !info.payload.admits(packet.payload().len(), mtu as usize) {
            return Err(DropReason::Sequence.into());
        }
        self.message = match info.operation {
            Operation::Send => execute_send(receives, env, packet)?,
            Operation::Write if self.access.contains(Access::REMOTE_WRITE) => {
                execute_write(message, receives, env, packet)?
            }
            // The peer of the queue pair may not request the operation.
            _ => return Err(DropReason::Access.into()),
        };
        self.expected = psn.add(1);
        Ok(())
    }
}

/// Makes the receive of a message that was dropped the current one again, or else the oldest posted one.
fn take_receive<R: RawMutex>(receives: &mut Receives, env: &Env<'_, R>) -> Result<(), PacketError> {
    if !receives.current.active && !receives.take(env) {
        return Err(DropReason::NoReceive.into());
    }
    receives.current.cursor = SgeCursor::START;
    Ok(())
}

/// Executes the next packet of a SEND. Returns the message that it leaves incomplete, if any.
fn execute_send<R: RawMutex>(
    receives: &mut Receives,
    env: &Env<'_, R>,
    packet: &Packet<'_>,
) -> Result<InboundMessage, PacketError> {
    let info = packet.info();
    if info.first {
        take_receive(receives, env)?;
    }
    let mut cursor = receives.current.cursor;
    match receives.write(env, &mut cursor, packet.payload()) {
        Ok(()) => receives.current.cursor = cursor,
        // The peer does not know how long the receive is: the message is dropped, and the queue pair goes on.
        Err(FatalNak::TOO_LONG) => return Err(DropReason::Sequence.into()),
        // Its memory is not what the owner has said.
        Err(_) => {
            receives.fail_current(env, CompletionStatus::LocalProtection);
            return Err(Failure::Refused.into());
        }
    }
    if !info.last {
        return Ok(InboundMessage::Send);
    }
    env.stats.rx_sends.inc();
    complete_receive(receives, env, packet, CompletionKind::Receive, cursor.position);
    Ok(InboundMessage::None)
}

/// Executes the next packet of a WRITE, of the message `message` or a new one. Returns the message that it leaves incomplete, if
/// any.
fn execute_write<R: RawMutex>(
    message: InboundMessage,
    receives: &mut Receives,
    env: &Env<'_, R>,
    packet: &Packet<'_>,
) -> Result<InboundMessage, PacketError> {
    let (info, payload) = (packet.info(), packet.payload());
    let (address, key, total, left) = match (message, packet.reth()) {
        (InboundMessage::Write { address, key, total, left }, _) => (address, key, total, left),
        (_, Some(reth)) => {
            let RethRepr { address, r_key, length } = RethRepr::parse(&reth);
            // The whole range, before the first byte; an empty range is not checked.
            if length > 0 {
                let (by, right) = (env.qp.scope(), Access::REMOTE_WRITE);
                let checked = env.regions.check_remote(by, r_key, address, u64::from(length), right);
                checked.map_err(|AccessError| DropReason::Access)?;
            }
            (address, r_key, length, length)
        }
        _ => return Err(DropReason::Sequence.into()),
    };
    let left = left.checked_sub(payload.len() as u32).filter(|&left| (left == 0) == info.last);
    let left = left.ok_or(DropReason::Sequence)?;
    if packet.imm_dt().is_some() {
        take_receive(receives, env)?;
    }
    if !payload.is_empty() {
        // Checked for each packet: the region may be deregistered meanwhile.
        let written = env.regions.write_remote(env.qp.scope(), key, address, payload);
        written.map_err(|AccessError| DropReason::Access)?;
    }
    if !info.last {
        let address = address.wrapping_add(payload.len() as u64);
        return Ok(InboundMessage::Write { address, key, total, left });
    }
    env.stats.rx_writes.inc();
    if packet.imm_dt().is_some() {
        complete_receive(receives, env, packet, CompletionKind::ReceiveWrite, total);
    }
    Ok(InboundMessage::None)
}

/// Completes the current receive with the last packet of a message.
pub(super) fn complete_receive<R: RawMutex>(
    receives: &mut Receives,
    env: &Env<'_, R>,
    packet: &Packet<'_>,
    kind: CompletionKind,
    bytes: u32,
) {
    receives.current.active = false;
    let context = receives.current.context;
    let mut completion = env.completion(context, kind, CompletionStatus::Success, bytes);
    completion.immediate = packet.imm_dt().map(|imm| imm.data());
    env.push_completion(&env.qp.recv_cq, completion, packet.bth().solicited());
}
