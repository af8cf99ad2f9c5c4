// SPDX-License-Identifier: MIT OR Apache-2.0

//! Pause, restart, halt, shutdown and device PnP events. The transitions are those of [`State`](driver_states::adapter::State).

use fallible::AliasableBox;
use ndk_abi::ndis::{
    NDIS_DEVICE_PNP_EVENT, NDIS_HALT_ACTION, NDIS_HANDLE, NDIS_MINIPORT_PAUSE_PARAMETERS,
    NDIS_MINIPORT_RESTART_PARAMETERS, NDIS_SHUTDOWN_ACTION, NDIS_STATUS, NDIS_STATUS_FAILURE,
    NDIS_STATUS_PAUSED, NDIS_STATUS_PENDING, NDIS_STATUS_SUCCESS, NET_DEVICE_PNP_EVENT,
};

use super::adapter::Adapter;
use super::adapter_list;
use super::change_trace::changed;
use super::completion::abort_waiting;
use super::send;
use driver_states::adapter::Event;
use driver_states::device::DeviceEvent;

/// `MiniportPause`: stops frames to and from NDIS. RDMA goes on. `PASSIVE_LEVEL`.
//= R-PNP-6
pub unsafe extern "efiapi" fn pause(
    context: NDIS_HANDLE,
    _parameters: *mut NDIS_MINIPORT_PAUSE_PARAMETERS,
) -> NDIS_STATUS {
    // SAFETY: NDIS passes the context registered for this adapter.
    let adapter = unsafe { Adapter::from_context(context) };
    changed(adapter.handle(), "pause", NDIS_STATUS_SUCCESS);
    if !adapter.step(Event::Pause) {
        return NDIS_STATUS_FAILURE;
    }
    // Done at once, without waiting for received frames that the stack holds.
    abort_waiting(adapter.handle(), adapter.port(), NDIS_STATUS_PAUSED);
    if !adapter.traffic.stop() {
        // The last caller of `Traffic::leave` completes the pause, possibly before this function returns.
        return NDIS_STATUS_PENDING;
    }
    // Aborts sends that arrived between the two calls above.
    abort_waiting(adapter.handle(), adapter.port(), NDIS_STATUS_PAUSED);
    adapter.step(Event::Paused);
    NDIS_STATUS_SUCCESS
}

/// `MiniportRestart`: lets frames to and from NDIS pass again. `PASSIVE_LEVEL`.
//= R-PNP-7
pub unsafe extern "efiapi" fn restart(
    context: NDIS_HANDLE,
    _parameters: *mut NDIS_MINIPORT_RESTART_PARAMETERS,
) -> NDIS_STATUS {
    // SAFETY: NDIS passes the context registered for this adapter.
    let adapter = unsafe { Adapter::from_context(context) };
    changed(adapter.handle(), "restart", NDIS_STATUS_SUCCESS);
    if adapter.step(Event::Restart) && adapter.step(Event::Restarted) {
        adapter.traffic.start();
        NDIS_STATUS_SUCCESS
    } else {
        NDIS_STATUS_FAILURE
    }
}

/// `MiniportHaltEx`: takes everything down, in the reverse order of initialization. `PASSIVE_LEVEL`.
//= R-PNP-4, R-PNP-5
pub unsafe extern "efiapi" fn halt(context: NDIS_HANDLE, _action: NDIS_HALT_ACTION) {
    // SAFETY: the context is the adapter that `initialize` gave up; NDIS does not use it again.
    let adapter = unsafe { AliasableBox::from_raw(context.cast::<Adapter>()) };
    changed(adapter.handle(), "halt", NDIS_STATUS_SUCCESS);
    adapter.step(Event::Halt);
    take_down(adapter);
}

/// Takes down an adapter: takes the deferred routines from senders, resets the device, disconnects the interrupt, then
/// drops the adapter. No DPC refers to it then.
pub(super) fn take_down(adapter: AliasableBox<Adapter>) {
    adapter.transitions.close();
    // Consumers close their NDK objects while the device still runs.
    adapter.ndk().close(adapter.handle());
    for pair in adapter.port().pairs() {
        pair.set_deferred(None);
        pair.set_watchdog(None);
    }
    // Before the interrupt is deregistered and memory is freed.
    adapter.port().shut_down();
    adapter.port().await_reset();
    adapter.settings.end();
    adapter.interrupt.disconnect();
    if let Some(polls) = &adapter.polls {
        polls.disconnect();
    }
    adapter_list::remove(&adapter);
    drop(adapter);
}

/// `MiniportShutdownEx`: the device stops using memory, and is not started again. `PASSIVE_LEVEL`: NDIS calls it after a bug check, at any
/// IRQL, only for miniports that request that.
pub unsafe extern "efiapi" fn shutdown(context: NDIS_HANDLE, _action: NDIS_SHUTDOWN_ACTION) {
    // SAFETY: NDIS passes the context registered for this adapter.
    let adapter = unsafe { Adapter::from_context(context) };
    changed(adapter.handle(), "shutdown", NDIS_STATUS_SUCCESS);
    adapter.port().shut_down();
}

/// `MiniportDevicePnPEventNotify`. `PASSIVE_LEVEL`.
pub unsafe extern "efiapi" fn device_pnp_event(context: NDIS_HANDLE, event: *mut NET_DEVICE_PNP_EVENT) {
    // SAFETY: NDIS passes the context registered for this adapter.
    let adapter = unsafe { Adapter::from_context(context) };
    // SAFETY: NDIS's event, good for the call.
    let event = unsafe { (*event).DevicePnPEvent };
    //= R-PNP-8
    if event == NDIS_DEVICE_PNP_EVENT::NdisDevicePnPEventSurpriseRemoved
        && adapter.port().step(DeviceEvent::Remove)
    {
        changed(adapter.handle(), "surprise removal", NDIS_STATUS_SUCCESS);
        adapter.ndk().lose();
        send::abandon(adapter);
    }
}
