// SPDX-License-Identifier: MIT OR Apache-2.0

//! Asynchronous events.

use core::ffi::c_int;

use verbs_core::context::AsyncEventKind;

use crate::abi::attributes::{AsyncElement, IbvAsyncEvent};
use crate::abi::context::IbvContext;
use crate::handles;
use crate::qp::Qp;
use crate::srq::Srq;
use crate::{context, errno};

/// The types of events, `ibv_event_type`.
const TYPES: [(AsyncEventKind, c_int); 6] = [
    (AsyncEventKind::CqError, 0),
    (AsyncEventKind::QpFatal, 1),
    (AsyncEventKind::QpRequestError, 2),
    (AsyncEventKind::QpAccessError, 3),
    (AsyncEventKind::SrqLimitReached, 15),
    (AsyncEventKind::LastWqeReached, 16),
];

fn type_of(kind: AsyncEventKind) -> c_int {
    TYPES.iter().find(|(known, _)| *known == kind).map_or(-1, |&(_, number)| number)
}

/// Waits for the next asynchronous event of a context, or returns -1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_async_event(context: *mut IbvContext, event: *mut IbvAsyncEvent) -> c_int {
    let taken = context::find(context).and_then(|context| context.async_events().take());
    errno::flag(taken.map(|taken| {
        let pointer = core::ptr::with_exposed_provenance_mut::<()>(taken.token as usize);
        if taken.kind.is_of_qp() {
            if let Ok(qp) = handles::get::<Qp>(pointer.cast()) {
                qp.core.event_taken();
            }
        } else if let Ok(srq) = handles::get::<Srq>(pointer.cast()) {
            srq.core.event_taken();
        }
        let element = AsyncElement { qp: pointer.cast() };
        // SAFETY: the program passes a structure that the call may write.
        unsafe { event.write(IbvAsyncEvent { element, event_type: type_of(taken.kind) }) };
    }))
}

/// Acknowledges an asynchronous event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_ack_async_event(event: *mut IbvAsyncEvent) {
    // SAFETY: the program passes an event.
    let event = unsafe { &*event };
    let Some((kind, _)) = TYPES.iter().find(|(_, number)| *number == event.event_type) else { return };
    // SAFETY: events of all these types name an object.
    let qp = unsafe { event.element.qp };
    if kind.is_of_qp() {
        if let Ok(qp) = handles::get::<Qp>(qp) {
            qp.core.acknowledge();
        }
    } else if let Ok(srq) = handles::get::<Srq>(qp.cast()) {
        srq.core.acknowledge();
    }
}
