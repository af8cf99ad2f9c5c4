// SPDX-License-Identifier: MIT OR Apache-2.0

//! Changes of the local addresses.

use core::net::IpAddr;

use super::Cm;
use crate::{error::ConnError, time::Instant};

/// Slots that one call checks after an address was removed. Bounds the duration of the call.
const SWEEP_BUDGET: u32 = 256;

impl Cm {
    /// Replaces the local addresses. [`Cm::handle_timeout`] aborts connections at removed addresses, a bounded
    /// number at a time; each peer is notified once, without retries, and its answer is ignored.
    ///
    /// # Errors
    /// [`ConnError::OutOfMemory`], [`ConnError::TooMany`]: some of the new addresses were not added; all removed
    /// addresses are removed.
    //= R-CONN-101
    pub fn set_addresses(&mut self, addresses: &[IpAddr]) -> Result<(), ConnError> {
        self.addresses.replace(addresses)
    }

    /// Returns whether `ip` is a local address.
    pub fn is_local(&self, ip: IpAddr) -> bool {
        self.addresses.contains(ip)
    }

    /// Continues the search for connections at removed addresses.
    pub(super) fn sweep(&mut self, now: Instant) {
        let Some(first) = self.addresses.sweep.take() else { return };
        let end = first.saturating_add(SWEEP_BUDGET);
        for index in first..end.min(self.conns.capacity() as u32) {
            if self.conns.get(index).is_some_and(|conn| !self.addresses.contains(conn.path.local_ip)) {
                self.abort_without_address(now, index);
            }
        }
        if (end as usize) < self.conns.capacity() {
            self.addresses.sweep = Some(end);
        }
    }
}
