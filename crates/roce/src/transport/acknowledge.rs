// SPDX-License-Identifier: MIT OR Apache-2.0

//! Generates ACKs, NAKs and READ responses (IBTA Volume 1, section 9.7).
//!
//! READ responses go first: an ACK must not overtake them.

use lock_api::RawMutex;

use super::env::Env;
use super::frame::{Unsent, build_frame};
use super::rc_transport::RcTransport;
use super::state::State;
use crate::region::access_rights::AccessError;
use roce_wire::{Ext, Headers, NakCode, Opcode, Syndrome};

impl RcTransport {
    /// Writes the next READ response, NAK or ACK.
    pub(super) fn transmit_response<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        slot: &mut [u8],
    ) -> Result<usize, Unsent> {
        if self.responder.executing {
            self.execute_more(env);
        }
        let responder = &mut self.responder;
        let stats = &env.stats;
        while responder.reads.is_serving()
            && let Some(next) = responder.reads.next(responder.mtu)
        {
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
            let built = build_frame(self.link.as_ref(), env, slot, &headers, next.len as usize, |frame| {
                if next.len == 0 {
                    return Ok(());
                }
                env.regions.read_remote(env.qp.scope(), next.key, next.address, next.len, frame)
            })?;
            if let Ok(len) = built {
                responder.reads.sent(responder.mtu);
                responder.responded = true;
                // A READ response acknowledges everything up to itself.
                responder.acknowledged = responder.acknowledged.max(next.sequence.next());
                if next.sequence.next() == responder.expected {
                    responder.ack_pending = false;
                }
                return Ok(len);
            }
            if next.repeated {
                // A late duplicate: the requester has its data, and the region's owner has taken back the key since. If the
                // requester still waits, its retries end the connection.
                responder.reads.drop_repeat();
                continue;
            }
            // The region was deregistered after the READ was accepted.
            responder.reads.clear();
            responder.ack_pending = false;
            responder.nak_pending = Some((Syndrome::nak(NakCode::REMOTE_ACCESS), next.sequence));
            self.fail(env, None);
            break;
        }
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
