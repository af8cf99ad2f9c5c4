//! Callbacks of the consumer. Never under a lock, never above `DISPATCH_LEVEL`, on a stack of the provider's
//! own (R-IRQL-3, R-IRQL-4, R-IRQL-12).
//= R-IRQL-3, R-IRQL-4, R-IRQL-12

use crate::connector::{Connector, DisconnectEvent};
use crate::object::Created;
use crate::{cq, listener, srq};
use ndk_abi::nt::NTSTATUS;

/// An armed completion queue has something to tell.
pub fn cq_notification(to: cq::Notification, status: NTSTATUS) {
    // SAFETY: callback and context are the consumer's, given at create; the queue is held by the caller.
    unsafe { (to.callback)(to.context.get(), status) };
}

/// A shared receive queue runs short.
pub fn srq_notification(to: srq::Notification, status: NTSTATUS) {
    // SAFETY: callback and context are the consumer's, given at create; the queue is held by the caller.
    unsafe { (to.callback)(to.context.get(), status) };
}

/// A peer wants to connect. The connector is the consumer's from here on.
pub fn connect_event(to: listener::Notification, connector: Created<Connector>) {
    let connector = connector.publish();
    // SAFETY: callback and context are the consumer's, given at create; the listener is held by the caller,
    // the connector has just been made.
    unsafe { (to.callback)(to.context.get(), connector) };
}

/// The peer has gone.
pub fn disconnect_event(to: DisconnectEvent) {
    match to {
        DisconnectEvent::Plain(callback, context) => {
            // SAFETY: callback and context are the consumer's, given at accept or complete; the connector is
            // held by the caller.
            unsafe { callback(context.get()) };
        }
        DisconnectEvent::Ex(callback, context) => {
            // SAFETY: as above. There is no reason of the provider's own to give.
            unsafe { callback(context.get(), 0) };
        }
    }
}
