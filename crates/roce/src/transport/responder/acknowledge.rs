// SPDX-License-Identifier: MIT OR Apache-2.0

//! Generates ACKs, NAKs and READ responses (IBTA Volume 1, section 9.7).
//!
//! READ responses go first: an ACK must not overtake them.

use lock_api::RawMutex;

use super::Responder;
use super::gaps::hints;
use super::inbound_reads::NextResponse;
use crate::region::access_rights::AccessError;
use crate::transport::env::Env;
use crate::transport::failure::Failure;
use crate::transport::packet::frame::{Unsent, build_frame, build_headers};
use crate::transport::packet::payload_copy::{MIN_LENGTH, PayloadCopy};
use crate::transport::peer::Link;
use crate::transport::sequence::Sequence;
use roce_wire::{AtomicAckEthRepr, Ext, Headers, NakCode, Opcode, Syndrome};

impl Responder {
    /// Writes the next READ response, NAK or ACK, or sets `copy`.
    pub(crate) fn transmit<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        link: &Link,
        slot: &mut [u8],
        copy: &mut Option<PayloadCopy>,
    ) -> Result<usize, Unsent> {
        if self.executing {
            self.execute_more(env)?;
        }
        while self.reads.is_serving() {
            let Some(next) = self.reads.next(self.mtu) else { break };
            if let Some(len) = self.transmit_read_response(env, link, slot, &next, copy)? {
                return Ok(len);
            }
        }
        self.transmit_acknowledgement(env, link, slot)
    }

    /// Writes the READ response `next`, or sets `copy`. Returns `None` if its memory cannot be read.
    #[inline(never)]
    fn transmit_read_response<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        link: &Link,
        slot: &mut [u8],
        next: &NextResponse,
        copy: &mut Option<PayloadCopy>,
    ) -> Result<Option<usize>, Unsent> {
        let headers = Headers {
            opcode: next.opcode,
            solicited: false,
            ack_req: false,
            psn: self.psns.psn(next.sequence),
            ext: match (next.opcode, next.original) {
                (Opcode::READ_RESPONSE_MIDDLE, _) => Ext::None,
                (_, None) => Ext::Aeth(self.aeth(Syndrome::ACK)),
                (_, Some(original)) => {
                    Ext::AtomicAck(self.aeth(Syndrome::ACK), AtomicAckEthRepr { original })
                }
            },
        };
        if next.len >= MIN_LENGTH {
            *copy = Some(PayloadCopy::of_response(headers, next.len, next.key, next.address));
            return Err(Unsent::Copying);
        }
        let built = build_frame(link, env, slot, &headers, next.len as usize, |frame| {
            if next.len == 0 {
                return Ok(());
            }
            env.regions.read_remote(env.qp.scope(), next.key, next.address, next.len, frame)
        })?;
        Ok(self.response_built(next, built)?)
    }

    /// Accounts for the READ response whose payload was copied without the lock. Returns the length of its frame, which is
    /// `copied`.
    pub(crate) fn finish_copy<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        copy: &PayloadCopy,
        copied: Result<usize, AccessError>,
    ) -> Result<usize, Unsent> {
        // The same as before the copy: all that changes it waits.
        let next = self.reads.next(self.mtu).ok_or(Unsent::Idle)?;
        if copied.is_ok() {
            env.built(copy.length as usize);
        }
        self.response_built(&next, copied)?.ok_or(Unsent::Idle)
    }

    /// Accounts for the READ response `next`: `built` is the length of its frame. Returns that, or `None` if its memory cannot be
    /// read and it is given up.
    fn response_built(
        &mut self,
        next: &NextResponse,
        built: Result<usize, AccessError>,
    ) -> Result<Option<usize>, Failure> {
        if let Ok(len) = built {
            self.reads.sent(self.mtu);
            self.responded = true;
            // A READ response acknowledges everything up to itself.
            self.acknowledged = self.acknowledged.max(next.sequence.next());
            if next.sequence.next() == self.expected {
                // Stored packets and gap hints have another turn.
                self.ack_pending = self.executing | self.hints.is_wanted();
            }
            return Ok(Some(len));
        }
        if next.repeated {
            // A late duplicate: the requester has its data, and the region's owner has taken back the key since. If the
            // requester still waits, its retries end the connection.
            self.reads.drop_repeat();
            return Ok(None);
        }
        // The region was deregistered after the READ was accepted.
        self.reads.clear();
        self.ack_pending = false;
        self.nak_pending = Some((Syndrome::nak(NakCode::REMOTE_ACCESS), next.sequence));
        Err(Failure::Refused)
    }

    /// Writes the pending NAK or ACK.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "called in one place, for every ACK")]
    fn transmit_acknowledgement<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        link: &Link,
        slot: &mut [u8],
    ) -> Result<usize, Unsent> {
        let acknowledgement = match self.nak_pending {
            // A NAK acknowledges everything before itself.
            Some((syndrome, sequence)) => (syndrome, sequence),
            None if self.hints.is_wanted() => return transmit_hint(self, env, link, slot),
            None if self.ack_pending => (Syndrome::ACK, self.expected.previous()),
            None => return Err(Unsent::Idle),
        };
        write(self, env, link, slot, acknowledgement)
    }
}

/// Writes an ACK or a NAK with this syndrome, of the packet at this sequence.
#[inline(always)]
#[allow(clippy::inline_always, reason = "for every ACK, and for the rare ones that name a missing packet")]
fn write<R: RawMutex>(
    responder: &mut Responder,
    env: &Env<'_, R>,
    link: &Link,
    slot: &mut [u8],
    (syndrome, sequence): (Syndrome, Sequence),
) -> Result<usize, Unsent> {
    let stats = &env.stats;
    let headers = Headers {
        opcode: Opcode::ACKNOWLEDGE,
        solicited: false,
        ack_req: false,
        psn: responder.psns.psn(sequence),
        ext: Ext::Aeth(responder.aeth(syndrome)),
    };
    let len = build_headers(link, env, slot, &headers)?;
    responder.hints.arrivals = responder.hints.arrivals.saturating_sub(1);
    // Another turn executes more.
    responder.ack_pending = responder.executing | responder.hints.is_wanted();
    responder.acknowledged = responder.expected;
    if !core::mem::take(&mut responder.nak_twice) {
        responder.nak_pending = None;
    }
    responder.responded = true;
    match syndrome {
        Syndrome::ACK => stats.tx_acks.inc(),
        Syndrome(0x60) => stats.tx_nak_sequence.inc(),
        Syndrome(0x61) => stats.tx_nak_invalid.inc(),
        Syndrome(0x62) => stats.tx_nak_access.inc(),
        Syndrome(0x63) => stats.tx_nak_operational.inc(),
        _ => stats.tx_nak_rnr.inc(),
    }
    Ok(len)
}

/// Writes an acknowledgement that names a missing packet, if that is missing still.
#[cold]
#[inline(never)]
fn transmit_hint<R: RawMutex>(
    responder: &mut Responder,
    env: &Env<'_, R>,
    link: &Link,
    slot: &mut [u8],
) -> Result<usize, Unsent> {
    let memory = &env.shared.stash;
    let hint = hints::take(responder, memory).unwrap_or(0);
    let link = Link { template: link.template.with_gap_hint(hint) };
    let acknowledgement = (Syndrome::ACK, responder.expected.previous());
    let written = write(responder, env, &link, slot, acknowledgement)?;
    hints::advance(responder, memory);
    Ok(written)
}
