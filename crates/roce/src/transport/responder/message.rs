// SPDX-License-Identifier: MIT OR Apache-2.0

//! Message that the responder is receiving.

use lock_api::RawMutex;

use crate::transport::env::Env;
use roce_wire::{OpcodeInfo, Operation, Packet};

/// The message being received.
#[derive(Clone, Copy, Debug)]
pub(in crate::transport) enum InboundMessage {
    /// Between messages.
    None,
    /// A SEND, into the current receive.
    Send,
    Write {
        address: u64,
        key: u32,
        total: u32,
        left: u32,
    },
}

impl InboundMessage {
    /// Returns whether a packet of this kind may come next.
    #[inline]
    pub(in crate::transport) fn continues_with(self, info: &OpcodeInfo) -> bool {
        //= rocev2 §6
        match (self, info.operation) {
            (Self::None, _) => info.first,
            (Self::Send, Operation::Send) | (Self::Write { .. }, Operation::Write) => !info.first,
            _ => false,
        }
    }

    /// Places a packet of the WRITE into memory, as many packets after the expected one as `distance` tells, or compares memory with
    /// it (`is_placed`). Returns whether it could be placed, or was the same.
    pub(super) fn place<R: RawMutex>(
        self,
        env: &Env<'_, R>,
        mtu: u32,
        distance: u32,
        packet: &Packet<'_>,
        is_placed: bool,
    ) -> bool {
        let Self::Write { address, key, left, .. } = self else { return false };
        let (info, payload) = (packet.info(), packet.payload());
        let continues = info.operation == Operation::Write && !info.first && packet.imm_dt().is_none();
        if !continues || !info.payload.admits(payload.len(), mtu as usize) {
            return false;
        }
        let offset = distance.saturating_mul(mtu);
        let rest = left.checked_sub(offset).and_then(|left| left.checked_sub(payload.len() as u32));
        if rest.is_none_or(|rest| (rest == 0) != info.last) {
            return false;
        }
        let (by, address) = (env.qp.scope(), address.wrapping_add(u64::from(offset)));
        if is_placed {
            env.regions.holds_remote(by, key, address, payload)
        } else {
            env.regions.write_remote(by, key, address, payload).is_ok()
        }
    }
}
