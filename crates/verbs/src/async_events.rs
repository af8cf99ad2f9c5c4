// SPDX-License-Identifier: MIT OR Apache-2.0

//! Asynchronous events.

use core::ffi::c_int;
use std::sync::Arc;

use verbs_core::context::{AsyncEvent, AsyncEventKind};
use verbs_core::{Error, Unacknowledged};

use crate::abi::attributes::{AsyncElement, IbvAsyncEvent};
use crate::abi::context::IbvContext;
use crate::cq::Cq;
use crate::handles;
use crate::qp::Qp;
use crate::srq::Srq;
use crate::{context, errno};

/// The types of events, `ibv_event_type`.
const TYPES: [(AsyncEventKind, c_int); 7] = [
    (AsyncEventKind::CqError, 0),
    (AsyncEventKind::QpFatal, 1),
    (AsyncEventKind::QpRequestError, 2),
    (AsyncEventKind::QpAccessError, 3),
    (AsyncEventKind::SendQueueDrained, 5),
    (AsyncEventKind::SrqLimitReached, 15),
    (AsyncEventKind::LastWqeReached, 16),
];

fn type_of(kind: AsyncEventKind) -> c_int {
    TYPES.iter().find(|(known, _)| *known == kind).map_or(-1, |&(_, number)| number)
}

/// Returns the count of the events of an object.
fn unacknowledged<'a>(kind: AsyncEventKind, token: u64) -> Result<&'a Unacknowledged, Error> {
    let object = core::ptr::with_exposed_provenance_mut::<()>(token as usize);
    Ok(match kind {
        AsyncEventKind::CqError => handles::get::<Cq>(object.cast())?.core.unacknowledged(),
        AsyncEventKind::SrqLimitReached => handles::get::<Srq>(object.cast())?.core.unacknowledged(),
        AsyncEventKind::QpFatal
        | AsyncEventKind::QpRequestError
        | AsyncEventKind::QpAccessError
        | AsyncEventKind::SendQueueDrained
        | AsyncEventKind::LastWqeReached => handles::get::<Qp>(object.cast())?.core.unacknowledged(),
    })
}

/// Waits for the next asynchronous event of a context, or returns -1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_async_event(context: *mut IbvContext, event: *mut IbvAsyncEvent) -> c_int {
    // The object of an event that is queued exists.
    let count = |event: &AsyncEvent| {
        if let Ok(events) = unacknowledged(event.kind, event.token) {
            events.taken();
        }
    };
    // Kept while the call waits: another thread may close the context meanwhile.
    let core = context::find(context).map(Arc::clone);
    let taken = core.and_then(|core| core.async_events().take_counted(count));
    errno::flag(taken.map(|taken| {
        let qp = core::ptr::with_exposed_provenance_mut(taken.token as usize);
        let taken = IbvAsyncEvent { element: AsyncElement { qp }, event_type: type_of(taken.kind) };
        // SAFETY: the program passes a structure that the call may write.
        unsafe { event.write(taken) };
    }))
}

/// Acknowledges an asynchronous event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_ack_async_event(event: *mut IbvAsyncEvent) {
    // SAFETY: the program passes an event.
    let event = unsafe { &*event };
    let Some(&(kind, _)) = TYPES.iter().find(|(_, number)| *number == event.event_type) else { return };
    // SAFETY: events of all these types name an object.
    let object = unsafe { event.element.qp };
    if let Ok(events) = unacknowledged(kind, object.addr() as u64) {
        events.acknowledge(1);
    }
}
