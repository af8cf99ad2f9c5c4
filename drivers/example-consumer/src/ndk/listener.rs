// SPDX-License-Identifier: MIT OR Apache-2.0

//! Listeners.

use core::ffi::c_void;

use driver_support::status::{Result, check};
use fallible::Arc;
use ndk_abi::ndk::{NDK_FN_CONNECT_EVENT_CALLBACK, NDK_LISTENER};
use ndk_abi::netio::SOCKADDR_INET;

use super::adapter::Adapter;
use super::connector::raw_address;
use super::object::{Object, entry};
use super::pending;

/// A listener. Dropping it closes it; the close waits for its connectors' closes, and no connect event runs afterwards.
pub struct Listener {
    object: Object<NDK_LISTENER>,
    // Declared after the object: closed after it.
    _adapter: Arc<Adapter>,
}

impl Listener {
    /// Creates a listener and listens at `address`. With port 0, the provider chooses one. `PASSIVE_LEVEL`.
    ///
    /// # Safety
    /// `connecting` may be called with `event_context` until the listener is closed.
    pub unsafe fn new(
        adapter: &Arc<Adapter>,
        address: &SOCKADDR_INET,
        connecting: NDK_FN_CONNECT_EVENT_CALLBACK,
        event_context: *mut c_void,
    ) -> Result<Self> {
        let (address, length) = raw_address(address)?;
        let create = entry(adapter.dispatch().NdkCreateListener)?;
        let object = Object::<NDK_LISTENER>::create(|| {
            pending::create(|completion, context, into| {
                // SAFETY: the adapter is open; this function's contract for the event's context.
                unsafe { create(adapter.raw(), Some(connecting), event_context, completion, context, into) }
            })
        })?;
        let listener = Self { object, _adapter: Arc::clone(adapter) };
        let listen = entry(listener.object.dispatch().NdkListen)?;
        pending::request(|completion, context| {
            // SAFETY: the listener is open; the address is copied during the call.
            unsafe { listen(listener.object.raw(), address, length, completion, context) }
        })?;
        Ok(listener)
    }

    /// Returns the address of the listener, with the port that the provider has chosen. IRQL <= `DISPATCH_LEVEL`.
    pub fn local_address(&self) -> Result<SOCKADDR_INET> {
        let get = entry(self.object.dispatch().NdkGetLocalAddress)?;
        let mut address = SOCKADDR_INET::zeroed();
        let mut length = size_of::<SOCKADDR_INET>() as u32;
        // SAFETY: the listener is open; the buffer has `length` bytes.
        check(unsafe { get(self.object.raw(), (&raw mut address).cast(), &raw mut length) })?;
        Ok(address)
    }

    /// Stops connect events: further requests are refused by the provider. IRQL <= `DISPATCH_LEVEL`.
    pub fn pause(&self) {
        let Some(control) = self.object.dispatch().NdkControlConnectEvents else { return };
        // SAFETY: `object` keeps the listener open, and the function is a member of its dispatch table.
        unsafe { control(self.object.raw(), 1) };
    }

    pub fn close(&self) {
        self.object.close();
    }
}
