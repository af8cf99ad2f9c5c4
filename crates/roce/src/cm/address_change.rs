// SPDX-License-Identifier: MIT OR Apache-2.0

//! Changes of this side's addresses.

use core::net::IpAddr;

use super::Cm;
use super::addresses::Addresses;
use crate::{error::ConnError, time::Instant};
use fallible::vec;

/// Slots that one call looks at after an address has gone: bounds the time it takes.
const SWEEP_BUDGET: u32 = 256;

impl Cm {
    /// Says which addresses are this side's from now on. Connections at others are aborted by
    /// [`Cm::handle_timeout`], a bounded number at a time; their peers are told once, and what they answer is
    /// not heard.
    ///
    /// # Errors
    /// [`ConnError::OutOfMemory`], [`ConnError::TooMany`]: some of the new ones are not known, all that went
    /// are forgotten.
    //= R-CONN-101
    pub fn set_addresses(&mut self, addresses: &[IpAddr]) -> Result<(), ConnError> {
        let known = &mut self.addresses;
        let before = known.all.len();
        known.all.retain(|ip| addresses.contains(ip));
        if known.all.len() < before {
            known.sweep = Some(0);
        }
        for &ip in addresses {
            if !known.contains(ip) {
                if known.all.len() >= Addresses::MAX {
                    return Err(ConnError::TooMany);
                }
                vec::push(&mut known.all, ip)?;
            }
        }
        Ok(())
    }

    /// Goes on looking for connections at addresses that have gone.
    pub(super) fn sweep(&mut self, now: Instant) {
        let Some(first) = self.addresses.sweep.take() else { return };
        let end = first.saturating_add(SWEEP_BUDGET);
        for index in first..end.min(self.conns.capacity() as u32) {
            if self.conns.get(index).is_some_and(|conn| !self.addresses.contains(conn.path.local_ip)) {
                self.lose_address(now, index);
            }
        }
        if (end as usize) < self.conns.capacity() {
            self.addresses.sweep = Some(end);
        }
    }
}
