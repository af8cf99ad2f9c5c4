// SPDX-License-Identifier: MIT OR Apache-2.0

//! Attaching, restarting, pausing and detaching the filter modules of an adapter. On a thread of its host, at `PASSIVE_LEVEL`. (WDK:
//! "Pausing a Driver Stack", "Restarting a Driver Stack", "Attaching a Filter Module", "Detaching a Filter Module")
//!
//! The attributes of restarts are not passed to filter drivers.

use std::{mem::offset_of, ptr::null_mut, sync::Arc};

use ndk_abi::{
    ndis::{
        NDIS_MEDIA_CONNECT_STATE, NDIS_MEDIA_DUPLEX_STATE, NDIS_OBJECT_HEADER,
        NDIS_OBJECT_TYPE_FILTER_ATTACH_PARAMETERS, NDIS_OBJECT_TYPE_FILTER_ATTRIBUTES,
        NDIS_OBJECT_TYPE_FILTER_PAUSE_PARAMETERS, NDIS_OBJECT_TYPE_FILTER_RESTART_PARAMETERS, NDIS_STATUS,
        NDIS_STATUS_PENDING, NDIS_STATUS_SUCCESS,
    },
    netio::NET_LUID,
    nt::UNICODE_STRING,
};
use nt_sim::{Host, current, guest::Guest, image::call, imports};

use crate::{
    adapter::Adapter,
    filter_module::{
        self, BOUND_FILTERS, FILTER_DRIVERS, FilterDriver, FilterModule, Handler, ModuleState, module,
    },
    handle::HANDLES,
    owner,
    rules::{self, require},
};

/// NDIS_FILTER_ATTACH_PARAMETERS, as of revision 1.
#[repr(C)]
struct AttachParameters {
    header: NDIS_OBJECT_HEADER,
    index: u32,
    luid: NET_LUID,
    module_guid_name: *mut UNICODE_STRING,
    miniport_index: u32,
    miniport_instance_name: *mut UNICODE_STRING,
    miniport_name: *mut UNICODE_STRING,
    connected: NDIS_MEDIA_CONNECT_STATE,
    duplex: NDIS_MEDIA_DUPLEX_STATE,
    speeds: [u64; 2],
    media_type: u32,
    physical_media_type: u32,
    media_specific_attributes: usize,
    default_offload_configuration: usize,
    mac_address_len: u16,
    mac_address: [u8; 32],
    miniport_luid: NET_LUID,
    lower_index: u32,
    lower_luid: NET_LUID,
    flags: u32,
}

/// NDIS_FILTER_RESTART_PARAMETERS.
#[repr(C)]
struct RestartParameters {
    header: NDIS_OBJECT_HEADER,
    media_type: u32,
    physical_media_type: u32,
    attributes: usize,
    lower_index: u32,
    lower_luid: NET_LUID,
    flags: u32,
}

/// NDIS_FILTER_PAUSE_PARAMETERS.
#[repr(C)]
struct PauseParameters {
    header: NDIS_OBJECT_HEADER,
    flags: u32,
    reason: u32,
}

const ATTACH_LEN: usize = offset_of!(AttachParameters, flags) + 4;
const RESTART_LEN: usize = offset_of!(RestartParameters, flags) + 4;
// The offsets of the headers for x64.
const _: () = assert!(ATTACH_LEN == 164 && RESTART_LEN == 44 && size_of::<PauseParameters>() == 12);
const _: () = assert!(offset_of!(AttachParameters, mac_address) == 98);
/// Longest time that a pause waits for the stack, in nanoseconds: then a driver below keeps its sends, and is asked to pause.
const STACK_LIMIT: u64 = 60_000_000_000;
/// Nanoseconds between two checks of that.
const STACK_POLL: u64 = 1_000_000;
/// NdisPhysicalMedium802_3.
const ETHERNET: u32 = 14;

fn header(kind: u8, len: usize) -> NDIS_OBJECT_HEADER {
    NDIS_OBJECT_HEADER { Type: kind, Revision: 1, Size: len as u16 }
}

fn luid(value: u64) -> NET_LUID {
    NET_LUID { Value: value }
}

/// Attaches a module of each filter driver that is bound, in the order they registered, above those that there are. The adapter is paused.
pub(crate) fn attach_all(host: &Arc<Host>, adapter: &Arc<Adapter>) {
    let drivers = host.state(&FILTER_DRIVERS).lock().clone();
    for driver in drivers {
        attach(host, adapter, driver);
    }
}

/// Attaches a module of a filter driver on top, if the driver is bound. The adapter is paused. Without a module if the driver refuses it.
pub(crate) fn attach(host: &Arc<Host>, adapter: &Arc<Adapter>, driver: Arc<FilterDriver>) {
    let is_bound = host.state(&BOUND_FILTERS).lock().contains(&driver.service);
    let is_attached = adapter.filters().iter().any(|module| Arc::ptr_eq(&module.driver, &driver));
    if !is_bound || is_attached {
        return;
    }
    let module = host
        .state(&HANDLES)
        .insert_with(|handle| Arc::new(FilterModule::new(host, handle, adapter.handle, driver)));
    // SAFETY: the type of the handler.
    let handler: filter_module::Attach = unsafe { module.driver.handler(Handler::Attach) };
    let mut parameters = attach_parameters(adapter);
    let pointer = (&raw mut parameters).cast();
    let status = call(Handler::Attach.name(), || {
        // SAFETY: the filter driver registered the function under this contract; the parameters live through the call.
        unsafe { handler(module.handle as *mut _, module.driver.context as *mut _, pointer) }
    });
    require(status != NDIS_STATUS_PENDING, rules::FILTER_ATTACHED, || "FilterAttach pended".into());
    if status != NDIS_STATUS_SUCCESS {
        forget(host, &module, "a failed FilterAttach");
        return;
    }
    require(module.context() != 0, rules::FILTER_ATTACHED, || {
        "FilterAttach succeeded without NdisFSetAttributes".into()
    });
    module.set_state(ModuleState::Paused);
    adapter.filters.lock().push(module);
}

fn attach_parameters(adapter: &Adapter) -> AttachParameters {
    let general = adapter.attributes().general;
    let mut address = [0; 32];
    let station = adapter.attributes().station().unwrap_or_default();
    address[..station.len()].copy_from_slice(&station);
    let below = luid(adapter.interface.luid);
    AttachParameters {
        header: header(NDIS_OBJECT_TYPE_FILTER_ATTACH_PARAMETERS, ATTACH_LEN),
        index: adapter.if_index,
        luid: below,
        module_guid_name: null_mut(),
        miniport_index: adapter.if_index,
        miniport_instance_name: null_mut(),
        miniport_name: null_mut(),
        connected: general
            .map_or(NDIS_MEDIA_CONNECT_STATE::MediaConnectStateUnknown, |general| general.MediaConnectState),
        duplex: general
            .map_or(NDIS_MEDIA_DUPLEX_STATE::MediaDuplexStateUnknown, |general| general.MediaDuplexState),
        speeds: general.map_or([0; 2], |general| [general.XmitLinkSpeed, general.RcvLinkSpeed]),
        media_type: 0,
        physical_media_type: ETHERNET,
        media_specific_attributes: 0,
        default_offload_configuration: 0,
        mac_address_len: station.len() as u16,
        mac_address: address,
        miniport_luid: below,
        lower_index: adapter.if_index,
        lower_luid: below,
        flags: 0,
    }
}

/// Restarts the modules of an adapter, from the lowest one up, after its miniport. Detaches a module that fails.
pub(crate) fn restart(host: &Arc<Host>, adapter: &Arc<Adapter>) {
    for module in adapter.filters() {
        if module.state() != ModuleState::Paused {
            continue;
        }
        module.begin(ModuleState::Restarting);
        let mut parameters = RestartParameters {
            header: header(NDIS_OBJECT_TYPE_FILTER_RESTART_PARAMETERS, RESTART_LEN),
            media_type: 0,
            physical_media_type: ETHERNET,
            attributes: 0,
            lower_index: adapter.if_index,
            lower_luid: luid(adapter.interface.luid),
            flags: 0,
        };
        let status = module.await_end(transition(&module, Handler::Restart, (&raw mut parameters).cast()));
        if status == NDIS_STATUS_SUCCESS {
            module.set_state(ModuleState::Running);
        } else {
            module.set_state(ModuleState::Paused);
            detach(host, adapter, &module);
        }
    }
}

fn transition(module: &FilterModule, handler: Handler, parameters: *mut std::ffi::c_void) -> NDIS_STATUS {
    // SAFETY: the type of both handlers.
    let function: filter_module::Transition = unsafe { module.driver.handler(handler) };
    call(handler.name(), || {
        // SAFETY: the filter driver registered the function under this contract; the parameters live through the call.
        unsafe { function(module.context() as *mut _, parameters) }
    })
}

/// Pauses the modules of an adapter, from the highest one down, before its miniport: once the stack above has got back what it sent, and
/// has returned what it received, or after [`STACK_LIMIT`].
pub(crate) fn pause(adapter: &Adapter) {
    let filters = adapter.filters();
    let stack = filters.len() + 1;
    if !filters.is_empty() {
        let me = current();
        let end = me.world().now() + STACK_LIMIT;
        while !adapter.data_path.is_stack_idle(stack) && me.world().now() < end {
            me.park(Some(me.world().now() + STACK_POLL));
        }
    }
    for (index, module) in filters.iter().enumerate().rev() {
        if module.state() != ModuleState::Running {
            continue;
        }
        module.begin(ModuleState::Pausing);
        let mut parameters = PauseParameters {
            header: header(NDIS_OBJECT_TYPE_FILTER_PAUSE_PARAMETERS, size_of::<PauseParameters>()),
            flags: 0,
            reason: 0,
        };
        let status = module.await_end(transition(module, Handler::Pause, (&raw mut parameters).cast()));
        require(status == NDIS_STATUS_SUCCESS, rules::FILTER_PAUSED, || {
            format!("FilterPause failed: {status:#010x}")
        });
        module.set_state(ModuleState::Paused);
        module.await_users();
        let [sent, received, own] = adapter.data_path.held_by(index + 1, module.handle);
        require(sent == 0, rules::FILTER_PAUSED, || {
            format!("FilterPause completed, but the module holds {sent} sends")
        });
        require(received == 0, rules::FILTER_PAUSED, || {
            format!("FilterPause completed before {received} received lists were returned")
        });
        require(own == 0, rules::FILTER_PAUSED, || {
            format!("FilterPause completed before the module got {own} lists of its own back")
        });
    }
}

/// Detaches the modules of a paused adapter, from the highest one down.
pub(crate) fn detach_all(host: &Arc<Host>, adapter: &Arc<Adapter>) {
    for module in adapter.filters().iter().rev() {
        detach(host, adapter, module);
    }
}

/// Detaches a paused module.
pub(crate) fn detach(host: &Arc<Host>, adapter: &Adapter, module: &Arc<FilterModule>) {
    module.await_oids();
    adapter.filters.lock().retain(|other| !Arc::ptr_eq(other, module));
    module.await_users();
    // SAFETY: the type of the handler.
    let handler: filter_module::Detach = unsafe { module.driver.handler(Handler::Detach) };
    call(Handler::Detach.name(), || {
        // SAFETY: the filter driver registered the function under this contract.
        unsafe { handler(module.context() as *mut _) }
    });
    forget(host, module, "FilterDetach");
}

/// Ends a module, which has released everything.
fn forget(host: &Host, module: &FilterModule, after: &str) {
    let left = owner::held(host, module.handle);
    require(left.is_empty(), rules::FILTER_ATTACHED, || {
        let names: Vec<_> =
            left.iter().map(|object| format!("{} {:#x}", object.kind, object.address)).collect();
        format!("{after} returned without releasing: {}", names.join(", "))
    });
    module.set_state(ModuleState::Detached);
    let _ = host.state(&HANDLES).remove::<FilterModule>(module.handle);
}

imports! { IMPORTS: "ndis.sys" =>
    /// Sets the context of a module, during FilterAttach.
    [== PASSIVE_LEVEL]
    fn NdisFSetAttributes(handle: usize, context: usize, attributes: Guest<NDIS_OBJECT_HEADER>) -> NDIS_STATUS {
        let module = module(handle);
        let (state, header) = (module.state(), attributes.read());
        require(state == ModuleState::Attaching, rules::FILTER_ATTRIBUTES, || format!("NdisFSetAttributes was called in state {state}"));
        require(header.Type == NDIS_OBJECT_TYPE_FILTER_ATTRIBUTES && header.Size >= 8, rules::HEADER, || {
            format!("NdisFSetAttributes: attributes of type {:#x} and {} bytes", header.Type, header.Size)
        });
        require(context != 0, rules::FILTER_ATTRIBUTES, || "NdisFSetAttributes: FilterModuleContext is null".into());
        module.set_context(context);
        NDIS_STATUS_SUCCESS
    }

    /// Completes a pause that pended.
    [<= DISPATCH_LEVEL]
    fn NdisFPauseComplete(handle: usize) {
        module(handle).end("NdisFPauseComplete", ModuleState::Pausing, NDIS_STATUS_SUCCESS);
    }

    /// Completes a restart that pended.
    [<= DISPATCH_LEVEL]
    fn NdisFRestartComplete(handle: usize, status: NDIS_STATUS) {
        module(handle).end("NdisFRestartComplete", ModuleState::Restarting, status);
    }
}
