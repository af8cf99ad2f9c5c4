// SPDX-License-Identifier: MIT OR Apache-2.0

//! Processing at `DISPATCH_LEVEL` on the provider's own stack: the end of a receive batch, the timer, and what consumers'
//! calls leave.
//!
//! Each round has a budget. The remainder is deferred: to a DPC, and under load to a work item that lowers the IRQL between
//! rounds ([`nt::Deferred`]).
//= R-IRQL-10

use super::engine_events;
use crate::base::limits::BUDGET;
use crate::base::shared::{Shared, now};
use crate::objects::connector::Connector;
use roce::{Instant, Verdict};

/// Processes loopback frames, transmits, and makes the callbacks that are due. Returns whether the budget left some.
///
/// IRQL == `DISPATCH_LEVEL`: the engine holds objects of its tables meanwhile, for which closes wait.
pub fn round(shared: &Shared) -> bool {
    let aborting = shared.removal.abort_some::<Connector>(&shared.registry);
    if shared.loopback.has_frames() {
        let now = now();
        shared.loopback.take(|frame| {
            receive(shared, now, frame);
        });
    }
    shared.transmit();
    let held = shared.holds_events();
    let delivered = if held { 0 } else { engine_events::deliver(shared, BUDGET) };
    shared.run_held();
    if let Some(checker) = &shared.checker {
        checker.write_pending();
    }
    for closed in (0..BUDGET).map_while(|_| shared.closed.pop()) {
        closed.finish();
    }
    if delivered != 0 {
        // Callbacks may have posted requests.
        shared.transmit();
    }
    shared.set_timer();
    // Transmission fails a request whose memory is no longer valid, which is a new event.
    aborting
        || delivered == BUDGET
        || (!held && shared.engine.has_event())
        || shared.loopback.has_frames()
        || shared.closed.has_objects()
}

/// Makes the notifications of the completion queues whose affinity is for `processor`, on which it runs. Returns whether the
/// budget left some. IRQL == `DISPATCH_LEVEL`.
pub fn round_on(shared: &Shared, processor: u32) -> bool {
    let delivered = engine_events::deliver_on(shared, processor, BUDGET);
    if let Some(checker) = &shared.checker {
        checker.write_pending();
    }
    if delivered != 0 {
        // Callbacks may have posted requests, and ended waits for them.
        shared.after_call();
    }
    delivered == BUDGET
}

/// As [`round`]; defers what it left.
pub fn run(shared: &Shared) {
    if round(shared) {
        shared.defer();
    }
}

/// Processes the engine's timeouts, then everything else.
pub fn on_timer(shared: &Shared) {
    shared.scheduler.timer_expired();
    shared.engine.handle_timeout(now());
    run(shared);
}

/// Passes a frame of this adapter to itself to the engine, and counts it as received.
pub fn receive(shared: &Shared, now: Instant, frame: &[u8]) -> Verdict {
    let verdict = shared.engine.handle_frame(now, frame);
    if verdict == Verdict::Consumed {
        shared.counters.frames_in.add();
        shared.counters.octets_in.add_many(frame.len());
    }
    verdict
}
