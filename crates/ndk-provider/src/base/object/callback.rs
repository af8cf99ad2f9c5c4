// SPDX-License-Identifier: MIT OR Apache-2.0

//! The consumer's callbacks, each with the context it is called with. This is the only place that calls them.
//!
//! A callback is made without a lock, at IRQL <= `DISPATCH_LEVEL`, and never on the stack of a consumer's call
//! except where its function says so.
//= R-IRQL-3, R-IRQL-4, R-IRQL-12

use core::ffi::c_void;
use ndk_abi::ndk::{
    NDK_CONNECTOR, NDK_FN_CLOSE_COMPLETION, NDK_FN_CONNECT_EVENT_CALLBACK, NDK_FN_CQ_NOTIFICATION_CALLBACK,
    NDK_FN_CREATE_COMPLETION, NDK_FN_DISCONNECT_EVENT_CALLBACK, NDK_FN_DISCONNECT_EVENT_CALLBACK_EX,
    NDK_FN_REQUEST_COMPLETION, NDK_FN_SRQ_NOTIFICATION_CALLBACK, NDK_OBJECT_HEADER,
};
use ndk_abi::nt::NTSTATUS;

/// A consumer's pointer that is passed back to its callbacks and never dereferenced.
#[derive(Clone, Copy)]
struct Context(*mut c_void);

// SAFETY: the provider treats it as a number; the consumer's callbacks may run on any thread.
unsafe impl Send for Context {}
// SAFETY: shared use copies the pointer, which the provider never dereferences.
unsafe impl Sync for Context {}

/// Declares a callback with its context, and a constructor that is `None` without a callback.
macro_rules! callbacks {
    ($($(#[$doc:meta])* $Name:ident: $Function:ident,)*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub struct $Name {
            function: $Function,
            context: Context,
        }

        impl $Name {
            /// Returns the callback, or `None` if the consumer gave none.
            pub fn new(function: Option<$Function>, context: *mut c_void) -> Option<Self> {
                function.map(|function| Self { function, context: Context(context) })
            }
        }
    )* };
}

callbacks! {
    /// The completion callback of a create call.
    CreateCallback: NDK_FN_CREATE_COMPLETION,
    /// The completion callback of a request on an object.
    RequestCallback: NDK_FN_REQUEST_COMPLETION,
    /// The completion callback of a close call.
    CloseCallback: NDK_FN_CLOSE_COMPLETION,
    /// The notification callback of a completion queue.
    CqNotification: NDK_FN_CQ_NOTIFICATION_CALLBACK,
    /// The notification callback of a shared receive queue.
    SrqNotification: NDK_FN_SRQ_NOTIFICATION_CALLBACK,
    /// The connect event callback of a listener.
    ConnectEvent: NDK_FN_CONNECT_EVENT_CALLBACK,
    /// The disconnect event callback up to NDKPI 2.0.
    DisconnectEventPlain: NDK_FN_DISCONNECT_EVENT_CALLBACK,
    /// The disconnect event callback from NDKPI 2.1 on, which has a reason.
    //= R-CONN-98
    DisconnectEventEx: NDK_FN_DISCONNECT_EVENT_CALLBACK_EX,
}

/// The disconnect event callback of a connector, of either kind.
#[derive(Clone, Copy)]
pub enum DisconnectEvent {
    Plain(DisconnectEventPlain),
    Ex(DisconnectEventEx),
}

impl CreateCallback {
    /// Reports a status, and the new object unless it is null. The object belongs to the consumer from here on.
    pub fn call(self, status: NTSTATUS, object: *mut NDK_OBJECT_HEADER) {
        // SAFETY: the consumer gave callback and context to a create call that returned STATUS_PENDING.
        unsafe { (self.function)(self.context.0, status, object) };
    }
}

impl RequestCallback {
    pub fn call(self, status: NTSTATUS) {
        // SAFETY: the consumer gave callback and context to a request that returned STATUS_PENDING.
        unsafe { (self.function)(self.context.0, status) };
    }
}

impl CloseCallback {
    pub fn call(self) {
        // SAFETY: the consumer gave callback and context to a close call that returned STATUS_PENDING.
        unsafe { (self.function)(self.context.0) };
    }
}

impl CqNotification {
    pub fn call(self, status: NTSTATUS) {
        // SAFETY: the consumer gave callback and context at create; the caller holds the completion queue.
        unsafe { (self.function)(self.context.0, status) };
    }
}

impl SrqNotification {
    pub fn call(self, status: NTSTATUS) {
        // SAFETY: the consumer gave callback and context at create; the caller holds the receive queue.
        unsafe { (self.function)(self.context.0, status) };
    }
}

impl ConnectEvent {
    /// Reports a connection request. The connector belongs to the consumer from here on.
    pub fn call(self, connector: *mut NDK_CONNECTOR) {
        // SAFETY: the consumer gave callback and context at create; the caller holds the listener and has just
        // published the connector.
        unsafe { (self.function)(self.context.0, connector) };
    }
}

impl DisconnectEvent {
    pub fn call(self) {
        match self {
            // SAFETY: the consumer gave callback and context at accept or complete-connect; the caller holds
            // the connector.
            Self::Plain(event) => unsafe { (event.function)(event.context.0) },
            // SAFETY: as above. The provider has no reason of its own to report.
            Self::Ex(event) => unsafe { (event.function)(event.context.0, 0) },
        }
    }
}
