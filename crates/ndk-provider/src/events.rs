//! What the engine has to tell, told to consumers.

use crate::connector::Connector;
use crate::cq::Cq;
use crate::dispatch::callback;
use crate::listener::Listener;
use crate::provider::Core;
use crate::srq::Srq;
use ndk_abi::nt::{STATUS_BUFFER_OVERFLOW, STATUS_SUCCESS};
use roce::{ConnEvent, CqFault, Event};

/// Makes up to `budget` callbacks; how many it were. On a stack of the provider's own, without a lock.
///
/// An event whose object is gone, or is being finished on another processor, is nobody's: the hold that the
/// look-up takes is what keeps close from completing under a callback (R-CLOSE-5).
//= R-CLOSE-5
pub fn deliver(core: &Core, budget: usize) -> usize {
    for done in 0..budget {
        if let Some(connector) = core.registry.deferred() {
            connector.deliver();
            continue;
        }
        match core.engine.poll_event() {
            Some(event) => dispatch(core, &event),
            None => return done,
        }
    }
    budget
}

#[inline(never)]
fn dispatch(core: &Core, event: &Event<'_, nt::RawSpinLock>) {
    match event {
        //= R-CQ-1, R-CQ-14, R-CQ-32, R-CQ-34
        // The notice lives until the consumer's callback has returned: the next one waits for that.
        Event::Cq(notice) => {
            let status = match notice.fault() {
                None => STATUS_SUCCESS,
                Some(CqFault::Overflow) => {
                    core.counters.cq_error.add();
                    STATUS_BUFFER_OVERFLOW
                }
            };
            if let Some(cq) = core.registry.find::<Cq>(notice.context()) {
                callback::cq_notification(cq.notification(), status);
            }
        }
        //= R-SRQ-6, R-SRQ-16, R-SRQ-18
        Event::Srq(notice) => {
            if let Some(srq) = core.registry.find::<Srq>(notice.context())
                && let Some(notification) = srq.notification()
            {
                callback::srq_notification(notification, STATUS_SUCCESS);
            }
        }
        // Numbers are not used again while anybody may still know them.
        Event::CqGone { .. } | Event::SrqGone { .. } => {}
        Event::Conn { id, context, event: ConnEvent::Request(request) } => {
            match core.registry.find::<Listener>(*context) {
                Some(listener) => Listener::on_request(&listener, *id, request),
                None => core.engine.release(crate::provider::now(), *id),
            }
        }
        Event::Conn { context, event, .. } => {
            if let Some(connector) = core.registry.find::<Connector>(*context) {
                connector.on_event(event);
            }
        }
    }
}
