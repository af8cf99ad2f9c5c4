// SPDX-License-Identifier: MIT OR Apache-2.0

//! Congestion notification packets (IBTA Volume 1, annex A17): the notification point of DCQCN.

use lock_api::RawMutex;

use crate::congestion::{CongestionConfig, CongestionMode};
use crate::time::Instant;
use crate::transport::env::Env;
use crate::transport::failure::Failure;
use crate::transport::packet::frame::build_headers;
use crate::transport::peer::Link;
use roce_wire::{Ext, Headers, Opcode, Psn};

/// Traffic class of CNPs: DSCP 48.
//= rocev2 §14
const CNP_TRAFFIC_CLASS: u8 = 48 << 2;

/// CNPs that a queue pair sends: at most one per [`CongestionConfig::notify_interval`].
#[derive(Debug)]
#[repr(C)]
pub(crate) struct CnpState {
    last: Option<Instant>,
    pending: bool,
}

impl CnpState {
    pub(crate) const IDLE: Self = Self { pending: false, last: None };

    /// Handles a frame of the peer that was marked with congestion experienced (CE).
    pub(crate) fn handle_mark(&mut self, now: Instant, config: &CongestionConfig) {
        //= rocev2 §14
        let too_soon = self.last.is_some_and(|last| now.duration_since(last) < config.notify_interval);
        if config.mode >= CongestionMode::Notify && !too_soon {
            self.pending = true;
            self.last = Some(now);
        }
    }

    /// Returns whether a CNP is to be sent.
    #[inline]
    pub(crate) fn is_pending(&self) -> bool {
        self.pending
    }

    /// Marks the pending CNP as sent or dropped.
    pub(crate) fn clear(&mut self) {
        self.pending = false;
    }

    /// Writes the pending CNP to `slot` and returns its length.
    #[inline(never)]
    pub(crate) fn transmit<R: RawMutex>(
        &mut self,
        link: &Link,
        env: &Env<'_, R>,
        slot: &mut [u8],
    ) -> Result<usize, Failure> {
        self.clear();
        //= rocev2 §14
        let headers = Headers {
            opcode: Opcode::CNP,
            solicited: false,
            ack_req: false,
            psn: Psn::new(0),
            ext: Ext::Cnp,
        };
        let len = build_headers(link, env, slot, &headers)?;
        if let Some(frame) = slot.get_mut(..len) {
            link.template.set_traffic_class(frame, CNP_TRAFFIC_CLASS);
        }
        env.stats.tx_cnp.inc();
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    //= rocev2 §14
    #[test]
    fn a_peer_gets_one_cnp_per_interval() {
        let at = |micros: u64| Instant::from_nanos(1_000_000_000 + micros * 1000);
        let config = CongestionConfig { mode: CongestionMode::React, ..CongestionConfig::default() };
        let mut cnp = CnpState::IDLE;
        let mut sent = 0;
        for micros in 0..=500 {
            cnp.handle_mark(at(micros), &config);
            sent += u32::from(cnp.is_pending());
            cnp.clear();
        }
        assert_eq!(sent, 11);
        cnp.handle_mark(at(1000), &CongestionConfig { mode: CongestionMode::Ignore, ..config });
        assert!(!cnp.is_pending());
    }
}
