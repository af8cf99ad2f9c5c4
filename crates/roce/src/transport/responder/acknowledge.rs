// SPDX-License-Identifier: MIT OR Apache-2.0

//! Generates ACKs, NAKs and READ responses (IBTA Volume 1, section 9.7).
//!
//! READ responses go first: an ACK must not overtake them.

use lock_api::RawMutex;

use super::inbound_reads::NextResponse;
use crate::region::access_rights::AccessError;
use crate::transport::env::Env;
use crate::transport::packet::frame::{Unsent, build_frame};
use crate::transport::packet::payload_copy::{CopiedResponse, Copying, MIN_LENGTH, PayloadCopy};
use crate::transport::rc_transport::RcTransport;
use crate::transport::state::State;
use roce_wire::{Ext, Headers, NakCode, Opcode, Syndrome};

impl RcTransport {
    /// Writes the next READ response, NAK or ACK, or sets `copy`.
    pub(crate) fn transmit_response<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        slot: &mut [u8],
        copy: &mut Option<PayloadCopy>,
    ) -> Result<usize, Unsent> {
        if self.responder.executing {
            self.execute_more(env);
        }
        while self.responder.reads.is_serving() {
            let Some(next) = self.responder.reads.next(self.responder.mtu) else { break };
            if let Some(len) = self.transmit_read_response(env, slot, &next, copy)? {
                return Ok(len);
            }
        }
        self.transmit_acknowledgement(env, slot)
    }

    /// Writes the READ response `next`, or sets `copy`. Returns `None` if its memory cannot be read.
    #[inline(never)]
    fn transmit_read_response<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        slot: &mut [u8],
        next: &NextResponse,
        copy: &mut Option<PayloadCopy>,
    ) -> Result<Option<usize>, Unsent> {
        let responder = &self.responder;
        let headers = Headers {
            opcode: next.opcode,
            solicited: false,
            ack_req: false,
            psn: responder.psns.psn(next.sequence),
            ext: match next.opcode {
                Opcode::READ_RESPONSE_MIDDLE => Ext::None,
                _ => Ext::Aeth(responder.aeth(Syndrome::ACK)),
            },
        };
        if next.len >= MIN_LENGTH {
            *copy = Some(PayloadCopy::of_response(headers, next));
            let copied = CopiedResponse { length: next.len, paced: self.rate.is_limited() };
            self.copying = Some(Copying::Response(copied));
            return Err(Unsent::Copying);
        }
        let built = build_frame(self.link.as_ref(), env, slot, &headers, next.len as usize, |frame| {
            if next.len == 0 {
                return Ok(());
            }
            env.regions.read_remote(env.qp.scope(), next.key, next.address, next.len, frame)
        })?;
        Ok(self.response_built(env, next, built))
    }

    /// Accounts for the READ response whose payload was copied without the lock.
    pub(crate) fn finish_response<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        copying: CopiedResponse,
        copied: Result<usize, AccessError>,
    ) -> Option<usize> {
        // The same as before the copy: all that changes it waits.
        let next = self.responder.reads.next(self.responder.mtu)?;
        if copied.is_ok() {
            env.built(copying.length as usize);
        }
        self.response_built(env, &next, copied)
    }

    /// Accounts for the READ response `next`: `built` is the length of its frame. Returns that, or `None` if its memory cannot be
    /// read.
    fn response_built<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        next: &NextResponse,
        built: Result<usize, AccessError>,
    ) -> Option<usize> {
        let responder = &mut self.responder;
        if let Ok(len) = built {
            responder.reads.sent(responder.mtu);
            responder.responded = true;
            // A READ response acknowledges everything up to itself.
            responder.acknowledged = responder.acknowledged.max(next.sequence.next());
            if next.sequence.next() == responder.expected {
                responder.ack_pending = false;
            }
            return Some(len);
        }
        if next.repeated {
            // A late duplicate: the requester has its data, and the region's owner has taken back the key since. If the
            // requester still waits, its retries end the connection.
            responder.reads.drop_repeat();
        } else {
            // The region was deregistered after the READ was accepted.
            responder.reads.clear();
            responder.ack_pending = false;
            responder.nak_pending = Some((Syndrome::nak(NakCode::REMOTE_ACCESS), next.sequence));
            self.fail(env, None);
        }
        None
    }

    /// Writes the pending NAK or ACK.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "called in one place, for every ACK")]
    fn transmit_acknowledgement<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        slot: &mut [u8],
    ) -> Result<usize, Unsent> {
        let stats = &env.stats;
        let responder = &mut self.responder;
        let (syndrome, sequence) = match responder.nak_pending {
            // A NAK acknowledges everything before itself.
            Some((syndrome, sequence)) => (syndrome, sequence),
            None if responder.ack_pending => (Syndrome::ACK, responder.expected.previous()),
            None => return Err(Unsent::Idle),
        };
        let headers = Headers {
            opcode: Opcode::ACKNOWLEDGE,
            solicited: false,
            ack_req: false,
            psn: responder.psns.psn(sequence),
            ext: Ext::Aeth(responder.aeth(syndrome)),
        };
        let built = build_frame(self.link.as_ref(), env, slot, &headers, 0, |_| Ok::<_, AccessError>(()))?;
        // Another turn executes more.
        responder.ack_pending = responder.executing;
        responder.acknowledged = responder.expected;
        if !core::mem::take(&mut responder.nak_twice) {
            responder.nak_pending = None;
        }
        responder.responded = true;
        if self.state == State::Error {
            self.report_failure(env);
        }
        match syndrome {
            Syndrome::ACK => stats.tx_acks.inc(),
            Syndrome(0x60) => stats.tx_nak_sequence.inc(),
            Syndrome(0x61) => stats.tx_nak_invalid.inc(),
            Syndrome(0x62) => stats.tx_nak_access.inc(),
            Syndrome(0x63) => stats.tx_nak_operational.inc(),
            _ => stats.tx_nak_rnr.inc(),
        }
        built.map_err(|_| Unsent::Failed)
    }
}
