// SPDX-License-Identifier: MIT OR Apache-2.0

//! Handles failures that were found under a lock: overflowed completion queues, failed queue pairs.

use core::sync::atomic::Ordering;

use lock_api::RawMutex;

use super::Engine;

impl<R: RawMutex> Engine<R> {
    /// Puts the queue pairs of overflowed completion queues in error, and aborts the connections of queue
    /// pairs in error. No lock is held.
    #[inline]
    pub(super) fn process_failures(&self) {
        let shared = &self.shared;
        if shared.cq_fault.load(Ordering::Relaxed) || shared.has_failed_connections.load(Ordering::Relaxed) {
            self.process_found_failures();
        }
    }

    #[inline(never)]
    fn process_found_failures(&self) {
        let shared = &self.shared;
        if shared.cq_fault.swap(false, Ordering::AcqRel) {
            // Rare: a scan of all queue pairs is cheaper than a list per completion queue.
            //= R-CQ-32
            //= R-CQ-37
            self.qps.for_each(|qp| {
                if qp.attributes.send_cq.fault().is_some() || qp.attributes.recv_cq.fault().is_some() {
                    self.flush(qp);
                }
            });
        }
        if shared.has_failed_connections.swap(false, Ordering::AcqRel) {
            loop {
                let Some(conn) = shared.failed_connections.lock().pop() else { break };
                self.abort(conn);
            }
        }
    }
}
