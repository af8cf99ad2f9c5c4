// SPDX-License-Identifier: MIT OR Apache-2.0

//! Handles losses: decides with [`Recovery`](super::recovery::Recovery) what is sent again.

use lock_api::RawMutex;

use super::Requester;
use super::recovery::retransmission::Resend;
use crate::transport::env::Env;
use crate::transport::failure::Failure;
use crate::transport::sequence::Sequence;

impl Requester {
    /// Goes back after the loss of the packet at `una`, or of its response.
    pub(super) fn lost<R: RawMutex>(&mut self, env: &Env<'_, R>) -> Result<(), Failure> {
        if !self.recovery.may_retry(env.now) {
            return Err(Failure::RetryExceeded);
        }
        let kind = match self.send_queue.front() {
            // Without early placement nothing behind the gap is stored here.
            Some(wqe) if wqe.is_read() && env.shared.config.early_placement => {
                Resend::Read(wqe.end().min(self.high))
            }
            Some(wqe) if !wqe.is_read() => {
                let storable = self.reads.storable(wqe, self.una, self.high);
                self.recovery.resend_for_loss(self.una, storable, self.high)
            }
            _ => Resend::GoBackN,
        };
        self.go_back(env.now, kind);
        Ok(())
    }

    /// Goes back after a loss that the peer's answer to a later packet shows: an implied NAK.
    pub(super) fn implied_nak<R: RawMutex>(&mut self, env: &Env<'_, R>) -> Result<(), Failure> {
        env.stats.implied_naks.inc();
        self.lost(env)
    }

    /// Has requested again what is lost before the response at `sequence`, which is stored. `begins` as in
    /// [`Response::begins_within_chunk`](super::outbound_reads::response::Response::begins_within_chunk).
    pub(super) fn response_received<R: RawMutex>(
        &mut self,
        env: &Env<'_, R>,
        sequence: Sequence,
        begins: bool,
    ) -> Result<(), Failure> {
        let (reads, requested) = self.reads(env);
        if !reads.find_losses(requested, sequence, begins) {
            return Ok(());
        }
        // Less than a window is what the consumer has posted: the window does not fill the port.
        if self.high.since(self.una) > self.recovery.window.packets() {
            self.recovery.window.lose(sequence, self.high, self.recovery.connecting);
        }
        self.responses_lost(env)
    }

    /// Accounts for a loss of responses that are to be requested again.
    pub(super) fn responses_lost<R: RawMutex>(&mut self, env: &Env<'_, R>) -> Result<(), Failure> {
        env.stats.implied_naks.inc();
        if !self.recovery.may_retry(env.now) {
            return Err(Failure::RetryExceeded);
        }
        self.recovery.record_repair(self.high);
        self.recovery.timeout.restart(env.now);
        Ok(())
    }
}
