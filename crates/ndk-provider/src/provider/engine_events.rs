// SPDX-License-Identifier: MIT OR Apache-2.0

//! Delivers the engine's events to the consumers' callbacks.

use crate::base::state::provider_state::{ProviderState, now};
use crate::base::status;
use crate::base::strict::Mistake;
use crate::objects::connector::{self, Connector};
use crate::objects::cq::Cq;
use crate::objects::listener::Listener;
use crate::objects::srq::Srq;
use ndk_abi::nt::STATUS_SUCCESS;
use roce::{ConnEvent, EngineEvent};

/// Delivers up to `budget` events and returns their number. On the provider's own stack, without a lock, at
/// `DISPATCH_LEVEL`.
///
/// An event whose object is closed, or being finished on another processor, is discarded. The reference taken by
/// the look-up keeps close from completing during a callback.
//= R-CLOSE-5
pub fn deliver(state: &ProviderState, budget: usize) -> usize {
    let mut done = 0;
    while done < budget {
        if let Some(connector) = state.registry.take_deferred::<Connector>() {
            connector.make_callbacks();
        } else {
            match state.engine.poll_event() {
                Some(EngineEvent::NoticesDue { queue }) => {
                    done = done.saturating_add(deliver_due(state, queue, budget.saturating_sub(done)));
                }
                Some(event) => deliver_one(state, &event),
                None => return done,
            }
        }
        done = done.saturating_add(1);
    }
    budget
}

/// Delivers up to `budget` notices of the queues whose affinity is for `processor`, on which the caller runs.
/// Returns their number. Otherwise as [`deliver`].
//= R-CREATE-23, R-SRQ-19
pub fn deliver_on(state: &ProviderState, processor: u32, budget: usize) -> usize {
    for done in 0..budget {
        match state.engine.poll_notice(processor) {
            Some(event) => deliver_one(state, &event),
            None => return done,
        }
    }
    budget
}

/// Delivers notices that are due on `processor`, up to `budget` here if this is it. The remainder is left to the processor's
/// deferred routine.
fn deliver_due(state: &ProviderState, processor: u32, budget: usize) -> usize {
    let mut done = 0;
    if nt::processor::current() == processor {
        done = deliver_on(state, processor, budget);
        if done < budget {
            return done;
        }
    }
    state.scheduler.defer_on(processor);
    done
}

#[inline(never)]
fn deliver_one(state: &ProviderState, event: &EngineEvent<'_, nt::RawSpinLock>) {
    let registry = &state.registry;
    match event {
        //= R-CQ-1, R-CQ-14, R-CQ-32, R-CQ-34
        // The notice lives until the consumer's callback has returned. The engine raises no other one for this
        // completion queue before that.
        EngineEvent::Cq(notice) => {
            let status = status::notification(notice.fault());
            if let Some(cq) = registry.find::<Cq>(notice.context()) {
                if let (Some(checker), true) = (&state.checker, notice.fault().is_some()) {
                    checker.report(cq.subject(), Mistake::CqOverflow, status.cast_unsigned());
                }
                cq.notification().call(status);
            }
        }
        //= R-SRQ-6, R-SRQ-16, R-SRQ-18
        EngineEvent::Srq(notice) => {
            if let Some(srq) = registry.find::<Srq>(notice.context())
                && let Some(notification) = srq.notification()
            {
                notification.call(STATUS_SUCCESS);
            }
        }
        // Nothing to do: a number is not reused while an event may carry it.
        // And every connection is one of connection management.
        EngineEvent::CqGone { .. }
        | EngineEvent::SrqGone { .. }
        | EngineEvent::NoticesDue { .. }
        | EngineEvent::QpFailed { .. }
        | EngineEvent::QpDrained { .. } => {}
        EngineEvent::PathSuspect { id, context } => {
            if let Some(connector) = registry.find::<Connector>(*context) {
                Connector::on_suspect_path(&connector, *id);
            }
        }
        EngineEvent::Conn { id, context, event: ConnEvent::Request(request) } => {
            match registry.find::<Listener>(*context) {
                Some(listener) => connector::on_request(&listener, *id, request),
                None => state.engine.connections().release(now(), *id),
            }
        }
        EngineEvent::Conn { id, context, event } => {
            if let Some(connector) = registry.find::<Connector>(*context) {
                connector.on_event(*id, event);
            }
        }
    }
}
