// SPDX-License-Identifier: MIT OR Apache-2.0

//! Congestion control of a queue pair: congestion notification packets, and the rate of DCQCN.

pub(crate) mod cnp;
pub(crate) mod rate;

use lock_api::RawMutex;

use self::cnp::CnpState;
use self::rate::RateLimiter;
use super::env::Env;
use crate::trace::TraceEvent;
use roce_wire::Psn;

/// Handles the CE mark of a request or response, whether or not the packet was of use. `notifies` tells whether the queue pair
/// may send a CNP.
#[inline(never)]
pub(super) fn handle_mark<R: RawMutex>(env: &Env<'_, R>, cnp: &mut CnpState, notifies: bool) {
    //= rocev2 §14
    env.stats.rx_congestion_marked.inc();
    if notifies {
        let was_pending = cnp.is_pending();
        cnp.handle_mark(env.now, &env.shared.config.congestion);
        if cnp.is_pending() && !was_pending {
            env.trace(Psn::default(), TraceEvent::CongestionNotified);
        }
    }
}

/// Handles a CNP of the peer.
#[inline(never)]
pub(super) fn handle_cnp<R: RawMutex>(env: &Env<'_, R>, rate: &mut RateLimiter) {
    env.stats.rx_cnp.inc();
    if rate.handle_cnp(env.now, &env.shared.config.congestion) {
        env.stats.rate_reductions.inc();
        env.trace(Psn::default(), TraceEvent::RateReduced);
    }
}
