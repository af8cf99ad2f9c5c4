// SPDX-License-Identifier: MIT OR Apache-2.0

//! Processing at `DISPATCH_LEVEL` on the provider's own stack: the end of a receive batch, the timer, and what consumers'
//! calls leave.
//!
//! Each round has a budget. The remainder is deferred: to a DPC, and under load to a work item that lowers the IRQL between
//! rounds ([`nt::Deferred`]).
//= R-IRQL-10

use super::engine_events;
use crate::base::limits::BUDGET;
use crate::base::state::provider_state::{ProviderState, Shard, now};
use crate::objects::connector::Connector;
use roce::Verdict;

/// Processes loopback frames, transmits, and makes the callbacks that are due. Returns whether the budget left some. With
/// `only`, the other shards do not transmit.
///
/// IRQL == `DISPATCH_LEVEL`: the engine holds objects of its tables meanwhile, for which closes wait.
pub fn round(state: &ProviderState, only: Option<&Shard<'_>>) -> bool {
    let transmit = || match only {
        Some(only) => state.transmit_of(only),
        None => state.transmit(),
    };
    let aborting = state.removal.abort_some::<Connector>(&state.registry);
    if state.loopback.has_frames() {
        receive_loopback(state, only);
    }
    transmit();
    let held = state.holds_events();
    let delivered = if held { 0 } else { engine_events::deliver(state, BUDGET) };
    state.run_held();
    if let Some(checker) = &state.checker {
        checker.write_pending();
    }
    for closed in (0..BUDGET).map_while(|_| state.closed.pop()) {
        closed.finish();
    }
    if delivered != 0 {
        // Callbacks may have posted requests.
        transmit();
    }
    match only {
        Some(only) => state.set_timer_of(only),
        None => state.set_timer(),
    }
    // Transmission fails a request whose memory is no longer valid, which is a new event.
    aborting
        || delivered == BUDGET
        || (!held && state.engine.has_event())
        || state.loopback.has_frames()
        || state.closed.has_objects()
}

/// Makes the notifications of the queues whose affinity is for `processor`, on which it runs. Returns whether the
/// budget left some. IRQL == `DISPATCH_LEVEL`.
pub fn round_on(state: &ProviderState, processor: u32) -> bool {
    let delivered = engine_events::deliver_on(state, processor, BUDGET);
    if let Some(checker) = &state.checker {
        checker.write_pending();
    }
    if delivered != 0 {
        // Callbacks may have posted requests, and ended waits for them.
        state.after_call();
    }
    delivered == BUDGET
}

/// Does one [`round`] and defers the work that it left.
pub fn run(state: &ProviderState, only: Option<&Shard<'_>>) {
    if round(state, only) {
        state.defer();
    }
}

/// Processes the engine's timeouts, then everything else.
pub fn on_timer(state: &ProviderState) {
    state.scheduler.timer_expired();
    let now = now();
    for shard in state.engine.shards() {
        shard.handle_timeout(now);
    }
    run(state, None);
}

/// Passes the loopback frames to a shard, or the first one, as if they had been received there, and counts them.
fn receive_loopback(state: &ProviderState, only: Option<&Shard<'_>>) {
    let now = now();
    state.loopback.take(|frame| {
        let verdict = match only {
            Some(only) => only.handle_frame(now, frame),
            None => state.engine.first_shard().handle_frame(now, frame),
        };
        if verdict == Verdict::Consumed {
            state.counters.frames_in.add();
            state.counters.octets_in.add_many(frame.len());
        }
    });
}
