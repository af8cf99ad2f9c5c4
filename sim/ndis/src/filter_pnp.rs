// SPDX-License-Identifier: MIT OR Apache-2.0

//! PnP events on their way through filter modules: those of devices down to the miniport, those of the network up to the protocol drivers.
//! (WDK: `FILTER_DEVICE_PNP_EVENT_NOTIFY`, `FILTER_NET_PNP_EVENT`)

use std::sync::Arc;

use ndk_abi::ndis::{
    NDIS_STATUS, NDIS_STATUS_NOT_SUPPORTED, NDIS_STATUS_SUCCESS, NET_DEVICE_PNP_EVENT, NET_PNP_EVENT_CODE,
    NET_PNP_EVENT_NOTIFICATION,
};
use nt_sim::{guest::Guest, image::call, imports};

use crate::{
    adapter::{Adapter, adapter},
    filter_module::{self, FilterModule, Handler, module},
    ndk_state::NdkEvent,
};

/// Passes an event of the device to the driver below the place `from`: a filter module that has a handler for it, in any state, or the miniport.
pub(crate) fn pass_down(adapter: &Adapter, from: usize, event: Guest<NET_DEVICE_PNP_EVENT>) {
    let filters = adapter.filters();
    let below = filters[..from - 1].iter().rev().find(|module| module.driver.has(Handler::DevicePnpEvent));
    if let Some(module) = below {
        // SAFETY: the type of the handler.
        let handler: filter_module::DevicePnpEvent =
            unsafe { module.driver.handler(Handler::DevicePnpEvent) };
        module.entered(|| {
            call(Handler::DevicePnpEvent.name(), || {
                // SAFETY: the filter driver registered the function under this contract; the event lives through the call.
                unsafe { handler(module.context() as *mut _, event.as_ptr()) }
            });
        });
        return;
    }
    let Some(handler) = adapter.driver.characteristics.DevicePnPEventNotifyHandler else { return };
    call("MiniportDevicePnPEventNotify", || {
        // SAFETY: the image registered the function under this contract; the event lives through the call.
        unsafe { handler(adapter.context() as *mut _, event.as_ptr()) }
    });
}

/// Passes an event of the network to the driver above the place `from`: a filter module that has a handler for it, in any state, or the protocol
/// drivers.
pub(crate) fn pass_up(
    adapter: &Arc<Adapter>,
    from: usize,
    event: Guest<NET_PNP_EVENT_NOTIFICATION>,
) -> NDIS_STATUS {
    let filters = adapter.filters();
    let above = filters.iter().skip(from).find(|module| module.driver.has(Handler::NetPnpEvent));
    let Some(module) = above else { return deliver(adapter, event) };
    // SAFETY: the type of the handler.
    let handler: filter_module::NetPnpEvent = unsafe { module.driver.handler(Handler::NetPnpEvent) };
    let mut status = 0;
    module.entered(|| {
        status = call(Handler::NetPnpEvent.name(), || {
            // SAFETY: the filter driver registered the function under this contract; the event lives through the call.
            unsafe { handler(module.context() as *mut _, event.as_ptr()) }
        });
    });
    status
}

/// Delivers an event of the network to the protocol drivers.
fn deliver(adapter: &Adapter, notification: Guest<NET_PNP_EVENT_NOTIFICATION>) -> NDIS_STATUS {
    let event = match notification.read().NetPnPEvent.NetEvent {
        NET_PNP_EVENT_CODE::NetEventNDKEnable => NdkEvent::Enable,
        NET_PNP_EVENT_CODE::NetEventNDKDisable => NdkEvent::Disable,
        _ => return NDIS_STATUS_NOT_SUPPORTED,
    };
    //= R-OIDNDK-12
    match event {
        NdkEvent::Enable => adapter.ndk.report(event),
        NdkEvent::Disable => adapter.ndk.await_closed(),
    }
    NDIS_STATUS_SUCCESS
}

/// Returns the adapter of a module, and its place in the stack.
fn place(handle: usize) -> (Arc<Adapter>, usize) {
    let module: Arc<FilterModule> = module(handle);
    let adapter = adapter(module.adapter);
    let filters = adapter.filters();
    // A module that is being attached is above all others.
    let index = filters.iter().position(|other| other.handle == handle).unwrap_or(filters.len());
    (adapter, index + 1)
}

imports! { IMPORTS: "ndis.sys" =>
    /// Passes an event of the device on to the drivers below.
    [== PASSIVE_LEVEL]
    fn NdisFDevicePnPEventNotify(handle: usize, event: Guest<NET_DEVICE_PNP_EVENT>) {
        let (adapter, place) = place(handle);
        pass_down(&adapter, place, event);
    }

    /// Passes an event of the network on to the drivers above.
    [== PASSIVE_LEVEL]
    fn NdisFNetPnPEvent(handle: usize, event: Guest<NET_PNP_EVENT_NOTIFICATION>) -> NDIS_STATUS {
        let (adapter, place) = place(handle);
        pass_up(&adapter, place, event)
    }
}
