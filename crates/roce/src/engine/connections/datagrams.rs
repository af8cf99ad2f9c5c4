// SPDX-License-Identifier: MIT OR Apache-2.0

//! Datagrams and deadlines of connection management.

use lock_api::RawMutex;

use super::Connections;
use crate::conn::ConnId;
use crate::drop_reason::DropReason;
use crate::engine::queue_pairs::QueuePairs;
use crate::engine::transmit::Transmit;
use crate::ignored::Ignored;
use crate::shard::ShardState;
use crate::time::Instant;
use crate::trace::TraceEvent;
use roce_wire::{Packet, Qpn};

impl<R: RawMutex> Connections<R> {
    /// Handles a management datagram that arrived by `shard`.
    ///
    /// # Errors
    /// [`DropReason::Address`] if it is not to a local address.
    #[inline(never)]
    pub(in crate::engine) fn handle(
        &self,
        qps: &QueuePairs<R>,
        shard: &ShardState<R>,
        now: Instant,
        packet: &Packet<'_>,
    ) -> Result<(), DropReason> {
        // A fatal NAK precedes the peer's DREQ. The connection ends by what came first.
        //= R-QP-60
        //= R-PERF-5
        self.process_failures(qps);
        let handled = self.with(|conns| conns.handle(now, packet, |qp| qps.challenge(shard, now, qp)));
        if handled == Err(Ignored::NotLocal) {
            // For the network stack, so that it does not count.
            return Err(DropReason::Address);
        }
        shard.stats.count_datagram(handled);
        if let Err(reason) = handled {
            qps.shared.trace(Qpn::GSI, packet.bth().psn(), TraceEvent::Ignored(reason));
        }
        Ok(())
    }

    /// Reports a packet for a connection that waits for the RTU.
    pub(in crate::engine) fn traffic_seen(&self, now: Instant, conn: ConnId) {
        // Unknown when it was released meanwhile.
        let _ = self.with(|conns| conns.cm.traffic_seen(now, conn));
    }

    /// Writes up to `budget` datagrams into slots of `tx`, and returns their number.
    #[inline]
    pub(in crate::engine) fn transmit(
        &self,
        qps: &QueuePairs<R>,
        shard: &ShardState<R>,
        now: Instant,
        tx: &mut dyn Transmit,
        budget: usize,
    ) -> usize {
        if !self.has_transmit() {
            return 0;
        }
        self.transmit_waiting(qps, shard, now, tx, budget)
    }

    #[inline(never)]
    fn transmit_waiting(
        &self,
        qps: &QueuePairs<R>,
        shard: &ShardState<R>,
        now: Instant,
        tx: &mut dyn Transmit,
        budget: usize,
    ) -> usize {
        self.with(|conns| {
            let mut sent = 0;
            while sent < budget {
                let Some(slot) = tx.slot() else { break };
                let Some(len) = conns.cm.poll_transmit(now, qps.shared.config.crc, slot) else { break };
                tx.commit(len);
                shard.stats.tx_datagrams.inc();
                sent = sent.saturating_add(1);
            }
            sent
        })
    }

    /// Handles deadlines of connection management that have passed.
    #[inline(never)]
    pub(in crate::engine) fn handle_timeout(&self, now: Instant) {
        self.with(|conns| conns.cm.handle_timeout(now));
    }
}
