// SPDX-License-Identifier: MIT OR Apache-2.0

//! Executes atomic operations of the peer, each once (IBTA Volume 1, section 9.4.5).
//!
//! The result is kept with the READ requests, as a responder resource: a repeated request is answered from there.

use lock_api::RawMutex;

use super::fatal_nak::FatalNak;
use super::inbound_reads::{InboundRead, InboundReads};
use crate::region::access_rights::AccessError;
use crate::transport::env::Env;
use crate::transport::sequence::Sequence;
use roce_wire::{AtomicEthRepr, Opcode, Packet};

/// Bytes of the number that an operation changes.
const SIZE: u64 = 8;

/// Executes the atomic operation at `sequence`, the expected packet, and adds it to `reads`.
//= rocev2 §6
#[inline(never)]
pub(super) fn execute<R: RawMutex>(
    reads: &mut InboundReads,
    env: &Env<'_, R>,
    sequence: Sequence,
    packet: &Packet<'_>,
) -> Result<(), FatalNak> {
    let request = packet.atomic_eth().map(|header| AtomicEthRepr::parse(&header));
    let AtomicEthRepr { address, r_key, swap_or_add, compare } = request.ok_or(FatalNak::INVALID)?;
    // Before it is executed.
    if !address.is_multiple_of(SIZE) || !reads.has_room() {
        return Err(FatalNak::INVALID);
    }
    let swaps = packet.bth().opcode() == Opcode::COMPARE_SWAP;
    let update = |before: u64| match swaps {
        true if before == compare => swap_or_add,
        true => before,
        false => before.wrapping_add(swap_or_add),
    };
    let original = env.regions.update_remote(env.qp.scope(), r_key, address, update);
    let original = original.map_err(|AccessError| FatalNak::ACCESS)?;
    reads.push(InboundRead::of_atomic(sequence, address, r_key, original));
    env.stats.rx_atomics.inc();
    Ok(())
}
