// SPDX-License-Identifier: MIT OR Apache-2.0

//! Handles READ responses, in order or not, and completes READs (IBTA Volume 1, section 9.7).

use lock_api::RawMutex;

use super::Requester;
use super::outbound_reads::Stored;
use super::outbound_reads::response::Response;
use super::payload::Payload;
use super::send_queue::SendQueue;
use crate::region::access_rights::AccessError;
use crate::sge_cursor::SgeCursor;
use crate::transport::env::Env;
use crate::transport::failure::Failure;
use crate::transport::packet::placement::Placement;
use crate::transport::sequence::Sequence;
use roce_wire::Packet;

impl Requester {
    /// Handles the READ response at `sequence`. It may set `placement` instead of copying the payload:
    /// [`Requester::finish_response`] then follows.
    pub(super) fn handle_read_response<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        sequence: Sequence,
        packet: &Packet<'_>,
        placement: &mut Option<Placement>,
    ) -> Result<(), Failure> {
        //= rocev2 §7
        if sequence < self.una {
            let (reads, requested) = self.reads(env);
            reads.write_again(env, requested, sequence, packet);
            return Ok(());
        }
        // A READ response acknowledges everything before it.
        if !self.advance(env, sequence) {
            return self.handle_response_after_gap(env, sequence, packet);
        }
        let oldest = self.send_queue.front().filter(|wqe| wqe.is_read());
        let response = oldest.map(|wqe| Response::new(&self.send_queue, wqe, self.mtu, sequence, packet));
        let Some(response) = response.filter(|response| self.reads.fits(response, self.mtu)) else {
            return Err(Failure::BadResponse);
        };
        let mut sink = self.reads.cursor;
        if let Some(pieces) = response.pieces(&mut sink) {
            *placement = Some(Placement::Response { pieces, end: sink });
            return Ok(());
        }
        let stored = response.store(env, &mut sink);
        self.response_stored(env, packet, sink, stored)
    }

    /// Continues with the READ response in order whose payload was copied to the READ's memory before `end`.
    pub(crate) fn finish_response<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        packet: &Packet<'_>,
        end: SgeCursor,
        placed: Result<(), AccessError>,
    ) -> Result<(), Failure> {
        self.response_stored(env, packet, end, placed)?;
        self.barrier.check(&self.send_queue)
    }

    /// Accounts for the response that was the oldest missing one, whose payload is `stored` in the READ's memory before `sink`.
    fn response_stored<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        packet: &Packet<'_>,
        sink: SgeCursor,
        stored: Result<(), AccessError>,
    ) -> Result<(), Failure> {
        let sequence = self.una;
        //= R-QP-43
        let Some(wqe) = self.send_queue.front().filter(|_| stored.is_ok()) else {
            return Err(Failure::LocalProtection);
        };
        let response = Response::new(&self.send_queue, wqe, self.mtu, sequence, packet);
        let begins = response.begins_within_chunk();
        // Stored responses count now.
        let (kept, measured) = self.reads.accept_next(sequence, sink, env.now);
        if let Some(measured) = measured {
            self.recovery.window.measure_responses(measured);
        }
        self.accept_responses(env, sequence.next().add(u64::from(kept)))?;
        // Before losses are looked for: they use no retry of a peer that answers.
        self.handle_progress(env.now);
        if self.reads.gaps.is_active() { self.response_received(env, sequence, begins) } else { Ok(()) }
    }

    /// Accounts for the responses up to `end`, all of which are stored, and completes their READs.
    fn accept_responses<R: RawMutex>(&mut self, env: &Env<'_, R>, end: Sequence) -> Result<(), Failure> {
        while let Some(wqe) = self.send_queue.front().filter(|wqe| wqe.is_read()) {
            let before = self.una;
            self.una = wqe.end().min(end);
            self.reads.responses_received(wqe, before, self.una);
            //= R-CQ-57
            if self.una < wqe.end() {
                break;
            }
            if wqe.invalidates_sink() && !invalidate_sink(env, &self.send_queue) {
                return Err(Failure::MemoryManagement);
            }
            self.complete_oldest(env);
            if self.una >= end {
                // Requests behind READs may have been acknowledged while responses were missing.
                self.advance(env, self.reads.acknowledged);
                break;
            }
        }
        Ok(())
    }

    /// Handles a response that arrived after a gap: stores it, and has requested again what is lost.
    #[inline(never)]
    fn handle_response_after_gap<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        sequence: Sequence,
        packet: &Packet<'_>,
    ) -> Result<(), Failure> {
        if env.shared.config.early_placement {
            let (reads, requested) = self.reads(env);
            match reads.store(env, requested, sequence, packet) {
                Stored::New { begins, measured } => {
                    if let Some(measured) = measured {
                        self.recovery.window.measure_responses(measured);
                    }
                    // The request is still being answered: no other one may be sent for what it misses.
                    self.recovery.timeout.restart(env.now);
                    return self.response_received(env, sequence, begins);
                }
                Stored::Useless => return Ok(()),
                Stored::NotStorable => {}
            }
        }
        let again = self.reads.is_lost_again(sequence);
        if again || self.recovery.is_unhandled_loss(self.una, self.next) {
            return self.implied_nak(env);
        }
        Ok(())
    }
}

/// Invalidates the key of the first element of the oldest READ, which is complete. Returns `false` if there is none,
/// or if it cannot be invalidated.
//= R-QP-85
//= R-QP-86
#[inline(never)]
fn invalidate_sink<R: RawMutex>(env: &Env<'_, R>, queue: &SendQueue) -> bool {
    let Some(Payload::Sges([first, ..])) = queue.front().map(|wqe| queue.payload(wqe)) else {
        return false;
    };
    env.shared.regions.invalidate(env.qp.scope(), first.key).is_ok()
}
