// SPDX-License-Identifier: MIT OR Apache-2.0

//! Handles failures that were found under a lock: overflowed completion queues, failed queue pairs.

use lock_api::RawMutex;

use super::Connections;
use crate::engine::queue_pairs::QueuePairs;

impl<R: RawMutex> Connections<R> {
    /// Puts the queue pairs of overflowed completion queues in error, and aborts the connections of queue
    /// pairs in error. No lock is held.
    #[inline]
    pub(in crate::engine) fn process_failures(&self, qps: &QueuePairs<R>) {
        if qps.shared.cq_faults.are_pending() || qps.shared.failed_connections.has_any() {
            self.process_found_failures(qps);
        }
    }

    #[inline(never)]
    fn process_found_failures(&self, qps: &QueuePairs<R>) {
        qps.flush_overflowed();
        if qps.shared.failed_connections.has_any() {
            while self.abort_failed(qps) {}
        }
    }

    /// Aborts one of the connections whose queue pair is in error. Returns false if there is none. It is taken from the list under
    /// the lock of the connections: a disconnect on another processor that finds the list empty waits for this lock, and so for
    /// the abort.
    fn abort_failed(&self, qps: &QueuePairs<R>) -> bool {
        let now = qps.now();
        self.with(|conns| {
            let Some(conn) = qps.shared.failed_connections.take() else { return false };
            // Unknown when it was released meanwhile.
            let _ = conns.cm.abort(now, conn);
            true
        })
    }
}
