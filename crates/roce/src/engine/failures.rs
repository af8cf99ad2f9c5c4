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
        if shared.has_cq_fault() || shared.has_failed_connections.load(Ordering::Relaxed) {
            self.process_found_failures();
        }
    }

    #[inline(never)]
    fn process_found_failures(&self) {
        let shared = &self.shared;
        let faults = shared.cq_faults.load(Ordering::Acquire);
        if faults & 1 != 0 {
            // Rare: a scan of all queue pairs is cheaper than a list per completion queue.
            //= R-CQ-32
            //= R-CQ-37
            self.qps.for_each(|qp| {
                if qp.attributes.send_cq.fault().is_some() || qp.attributes.recv_cq.fault().is_some() {
                    self.flush(qp);
                }
            });
            // After the scan: until then another processor scans, too, before it disconnects. If that one has finished, or there
            // was another overflow, the number is another one.
            let _ =
                shared.cq_faults.compare_exchange(faults, faults & !1, Ordering::AcqRel, Ordering::Relaxed);
        }
        if shared.has_failed_connections.load(Ordering::Acquire) {
            while self.abort_failed_connection() {}
        }
    }

    /// Aborts one of the connections whose queue pair is in error. Returns false if there is none. It is taken from the list under
    /// the lock of the connections: a disconnect on another processor that finds the list empty waits for this lock, and so for
    /// the abort.
    fn abort_failed_connection(&self) -> bool {
        let now = self.now();
        self.connections.with(|conns| {
            let mut failed = self.shared.failed_connections.lock();
            let Some(conn) = failed.pop() else {
                // With the list locked: what is reported later sets it again.
                self.shared.has_failed_connections.store(false, Ordering::Release);
                return false;
            };
            drop(failed);
            // Unknown when it was released meanwhile.
            let _ = conns.cm.abort(now, conn);
            true
        })
    }
}
