// SPDX-License-Identifier: MIT OR Apache-2.0

//! A filter driver that does the minimum, and what a test's script adds to it.
#![allow(unsafe_code, reason = "calls and implements functions of NDIS as drivers do")]

use std::{ffi::c_void, mem::offset_of, sync::Arc};

use ndis_sim::{
    NdisHost as _, filter_oid, filter_path, filter_pnp, filter_stack, filter_status, upper_drivers,
};
use ndk_abi::{
    ndis::{
        NDIS_HANDLE, NDIS_OBJECT_TYPE_FILTER_ATTRIBUTES, NDIS_OBJECT_TYPE_FILTER_DRIVER_CHARACTERISTICS,
        NDIS_OID_REQUEST, NDIS_STATUS, NDIS_STATUS_INDICATION, NDIS_STATUS_PENDING, NDIS_STATUS_SUCCESS,
        NET_BUFFER_LIST, NET_DEVICE_PNP_EVENT, NET_PNP_EVENT_NOTIFICATION,
    },
    nt::UNICODE_STRING,
};
use nt_sim::{Host, guest::Guest};

use super::scripted::{header, kept};

pub type List = Guest<NET_BUFFER_LIST>;
pub type Request = Guest<NDIS_OID_REQUEST>;

/// The actions of the filter in its handlers, with the handle of a module, instead of the minimum.
#[derive(Clone, Copy, Default)]
pub struct FilterScript {
    /// Gets the parameters of FilterAttach.
    pub parameters: Option<fn(Guest<u8>)>,
    /// Instead of NdisFSetAttributes.
    pub attach: Option<fn(usize) -> NDIS_STATUS>,
    pub restart: Option<fn(usize) -> NDIS_STATUS>,
    pub pause: Option<fn(usize) -> NDIS_STATUS>,
    pub detach: Option<fn(usize)>,
    /// Instead of passing the list down.
    pub send: Option<fn(usize, List)>,
    /// Instead of completing the lists, which it does not get otherwise.
    pub complete: Option<fn(usize, List)>,
    /// Instead of passing the list up, with the flags.
    pub receive: Option<fn(usize, List, u32)>,
    /// Instead of returning the list.
    pub give_back: Option<fn(usize, List)>,
    pub cancel: Option<fn(usize, usize)>,
    /// Instead of passing the cancellation of a request down; of any path.
    pub cancel_oid: Option<fn(usize, usize)>,
    /// Instead of passing the request down; of any path.
    pub oid: Option<fn(usize, Request) -> NDIS_STATUS>,
    /// Gets the end of a request of the filter's own.
    pub own_oid: Option<fn(usize, Request, NDIS_STATUS)>,
    /// Instead of passing the event down, or up.
    pub device_event: Option<fn(usize, Guest<NET_DEVICE_PNP_EVENT>)>,
    pub net_event: Option<fn(usize, Guest<NET_PNP_EVENT_NOTIFICATION>) -> NDIS_STATUS>,
    /// Instead of passing the status on.
    pub status: Option<fn(usize, Guest<NDIS_STATUS_INDICATION>)>,
}

impl FilterScript {
    /// A filter that lets everything pass.
    pub const NONE: Self = Self {
        parameters: None,
        attach: None,
        restart: None,
        pause: None,
        detach: None,
        send: None,
        complete: None,
        receive: None,
        give_back: None,
        cancel: None,
        cancel_oid: None,
        oid: None,
        own_oid: None,
        device_event: None,
        net_event: None,
        status: None,
    };
}

struct Module {
    script: FilterScript,
    handle: usize,
}

fn module<'a>(context: NDIS_HANDLE) -> &'a Module {
    // SAFETY: the context that `attach` set, never freed.
    unsafe { &*context.cast::<Module>() }
}

/// Sets the context of a module.
pub fn set_attributes(handle: usize, context: usize) -> NDIS_STATUS {
    let attributes = kept([0_u64]);
    attributes.cast().write(header(NDIS_OBJECT_TYPE_FILTER_ATTRIBUTES, 1, 8));
    filter_stack::NdisFSetAttributes(handle, context, attributes.cast())
}

unsafe extern "efiapi" fn attach(
    handle: NDIS_HANDLE,
    driver: NDIS_HANDLE,
    parameters: *mut c_void,
) -> NDIS_STATUS {
    // SAFETY: the script that `register` passed, never freed.
    let script = unsafe { *driver.cast::<FilterScript>() };
    if let Some(see) = script.parameters {
        see(Guest::new(parameters.cast()));
    }
    if let Some(attach) = script.attach {
        return attach(handle.addr());
    }
    let context: *mut Module = Box::leak(Box::new(Module { script, handle: handle.addr() }));
    set_attributes(handle.addr(), context.expose_provenance())
}

unsafe extern "efiapi" fn detach(context: NDIS_HANDLE) {
    let module = module(context);
    if let Some(detach) = module.script.detach {
        detach(module.handle);
    }
}

unsafe extern "efiapi" fn restart(context: NDIS_HANDLE, _: *mut c_void) -> NDIS_STATUS {
    let module = module(context);
    module.script.restart.map_or(NDIS_STATUS_SUCCESS, |restart| restart(module.handle))
}

unsafe extern "efiapi" fn pause(context: NDIS_HANDLE, _: *mut c_void) -> NDIS_STATUS {
    let module = module(context);
    module.script.pause.map_or(NDIS_STATUS_SUCCESS, |pause| pause(module.handle))
}

unsafe extern "efiapi" fn send(context: NDIS_HANDLE, list: *mut NET_BUFFER_LIST, port: u32, flags: u32) {
    let module = module(context);
    match module.script.send {
        Some(send) => send(module.handle, Guest::new(list)),
        None => filter_path::NdisFSendNetBufferLists(module.handle, Guest::new(list), port, flags),
    }
}

unsafe extern "efiapi" fn complete(context: NDIS_HANDLE, list: *mut NET_BUFFER_LIST, flags: u32) {
    let module = module(context);
    match module.script.complete {
        Some(complete) => complete(module.handle, Guest::new(list)),
        None => filter_path::NdisFSendNetBufferListsComplete(module.handle, Guest::new(list), flags),
    }
}

unsafe extern "efiapi" fn cancel(context: NDIS_HANDLE, id: *mut c_void) {
    let module = module(context);
    match module.script.cancel {
        Some(cancel) => cancel(module.handle, id.addr()),
        None => filter_path::NdisFCancelSendNetBufferLists(module.handle, id.addr()),
    }
}

unsafe extern "efiapi" fn receive(
    context: NDIS_HANDLE,
    list: *mut NET_BUFFER_LIST,
    port: u32,
    count: u32,
    flags: u32,
) {
    let module = module(context);
    let list = Guest::new(list);
    match module.script.receive {
        Some(receive) => receive(module.handle, list, flags),
        None => filter_path::NdisFIndicateReceiveNetBufferLists(module.handle, list, port, count, flags),
    }
}

unsafe extern "efiapi" fn give_back(context: NDIS_HANDLE, list: *mut NET_BUFFER_LIST, flags: u32) {
    let module = module(context);
    match module.script.give_back {
        Some(give_back) => give_back(module.handle, Guest::new(list)),
        None => filter_path::NdisFReturnNetBufferLists(module.handle, Guest::new(list), flags),
    }
}

unsafe extern "efiapi" fn status(context: NDIS_HANDLE, indication: *mut NDIS_STATUS_INDICATION) {
    let module = module(context);
    match module.script.status {
        Some(status) => status(module.handle, Guest::new(indication)),
        None => filter_status::NdisFIndicateStatus(module.handle, Guest::new(indication)),
    }
}

const ORIGINAL: usize = offset_of!(NDIS_OID_REQUEST, SourceReserved);
const TAG: u32 = u32::from_le_bytes(*b"tset");

/// Passes a clone of a request down.
fn forward(handle: usize, request: Request, is_direct: bool) -> NDIS_STATUS {
    let result = kept(0_usize);
    assert_eq!(filter_oid::NdisAllocateCloneOidRequest(handle, request, TAG, result), NDIS_STATUS_SUCCESS);
    let clone: Request = Guest::from_address(result.read());
    clone.field::<usize>(ORIGINAL).write(request.address());
    let status = if is_direct {
        filter_oid::NdisFDirectOidRequest(handle, clone)
    } else {
        filter_oid::NdisFOidRequest(handle, clone)
    };
    if status != NDIS_STATUS_PENDING {
        take_result(handle, clone);
    }
    status
}

/// Copies what a clone says of the result, and frees it. Returns the request.
fn take_result(handle: usize, clone: Request) -> Request {
    let request: Request = Guest::from_address(clone.field::<usize>(ORIGINAL).read());
    let mut whole = request.read();
    whole.DATA = clone.read().DATA;
    request.write(whole);
    filter_oid::NdisFreeCloneOidRequest(handle, clone);
    request
}

unsafe extern "efiapi" fn oid(context: NDIS_HANDLE, request: *mut NDIS_OID_REQUEST) -> NDIS_STATUS {
    let (module, request) = (module(context), Guest::new(request));
    module
        .script
        .oid
        .map_or_else(|| forward(module.handle, request, false), |oid| oid(module.handle, request))
}

unsafe extern "efiapi" fn direct_oid(context: NDIS_HANDLE, request: *mut NDIS_OID_REQUEST) -> NDIS_STATUS {
    let (module, request) = (module(context), Guest::new(request));
    module.script.oid.map_or_else(|| forward(module.handle, request, true), |oid| oid(module.handle, request))
}

unsafe extern "efiapi" fn oid_complete(
    context: NDIS_HANDLE,
    clone: *mut NDIS_OID_REQUEST,
    status: NDIS_STATUS,
) {
    let (module, clone) = (module(context), Guest::new(clone));
    if clone.field::<usize>(ORIGINAL).read() == 0 {
        module.script.own_oid.expect("a script that makes requests")(module.handle, clone, status);
        return;
    }
    let request = take_result(module.handle, clone);
    filter_oid::NdisFOidRequestComplete(module.handle, request, status);
}

unsafe extern "efiapi" fn direct_complete(
    context: NDIS_HANDLE,
    clone: *mut NDIS_OID_REQUEST,
    status: NDIS_STATUS,
) {
    let module = module(context);
    let request = take_result(module.handle, Guest::new(clone));
    filter_oid::NdisFDirectOidRequestComplete(module.handle, request, status);
}

unsafe extern "efiapi" fn cancel_oid(context: NDIS_HANDLE, id: *mut c_void) {
    let module = module(context);
    match module.script.cancel_oid {
        Some(cancel) => cancel(module.handle, id.addr()),
        None => filter_oid::NdisFCancelOidRequest(module.handle, id.addr()),
    }
}

unsafe extern "efiapi" fn cancel_direct(context: NDIS_HANDLE, id: *mut c_void) {
    let module = module(context);
    match module.script.cancel_oid {
        Some(cancel) => cancel(module.handle, id.addr()),
        None => filter_oid::NdisFCancelDirectOidRequest(module.handle, id.addr()),
    }
}

unsafe extern "efiapi" fn device_event(context: NDIS_HANDLE, event: *mut NET_DEVICE_PNP_EVENT) {
    let module = module(context);
    match module.script.device_event {
        Some(device_event) => device_event(module.handle, Guest::new(event)),
        None => filter_pnp::NdisFDevicePnPEventNotify(module.handle, Guest::new(event)),
    }
}

unsafe extern "efiapi" fn net_event(
    context: NDIS_HANDLE,
    event: *mut NET_PNP_EVENT_NOTIFICATION,
) -> NDIS_STATUS {
    let module = module(context);
    match module.script.net_event {
        Some(net_event) => net_event(module.handle, Guest::new(event)),
        None => filter_pnp::NdisFNetPnPEvent(module.handle, Guest::new(event)),
    }
}

/// Writes characteristics of NDIS 6.85 with these handlers, by their offsets.
pub fn characteristics(service: &'static str, handlers: &[(usize, usize)]) -> Guest<u8> {
    let memory: Guest<u8> = kept([0_u64; 32]).cast();
    memory.cast().write(header(NDIS_OBJECT_TYPE_FILTER_DRIVER_CHARACTERISTICS, 2, 0xe0));
    memory.add(4).write_bytes(&[6, 85]);
    let name: &'static [u16] = Box::leak(service.encode_utf16().collect());
    let length = size_of_val(name) as u16;
    let name = UNICODE_STRING { Length: length, MaximumLength: length, Buffer: name.as_ptr().cast_mut() };
    memory.field(0x30).write(name);
    for &(offset, handler) in handlers {
        memory.field::<usize>(offset).write(handler);
    }
    memory
}

/// Binds and registers these filters, the lowest first.
pub fn register_all(host: &Arc<Host>, filters: &[(&'static str, FilterScript)]) {
    for &(service, script) in filters {
        host.bind_filter(service);
        register(host, service, script);
    }
}

/// Registers the filter, which NDIS binds, on a thread of the host; returns its handle.
pub fn register(host: &Arc<Host>, service: &'static str, script: FilterScript) -> usize {
    register_with(host, service, script, usize::MAX)
}

/// Registers the filter with the first `count` of its handlers, of which four are mandatory; otherwise as [`register`].
pub fn register_with(host: &Arc<Host>, service: &'static str, script: FilterScript, count: usize) -> usize {
    let handlers = [
        (0x50, attach as *const () as usize),
        (0x58, detach as *const () as usize),
        (0x60, restart as *const () as usize),
        (0x68, pause as *const () as usize),
        (0x70, send as *const () as usize),
        (0x78, complete as *const () as usize),
        (0x80, cancel as *const () as usize),
        (0x88, receive as *const () as usize),
        (0x90, give_back as *const () as usize),
        (0x98, oid as *const () as usize),
        (0xa0, oid_complete as *const () as usize),
        (0xb0, device_event as *const () as usize),
        (0xb8, net_event as *const () as usize),
        (0xc0, status as *const () as usize),
        (0xc8, direct_oid as *const () as usize),
        (0xd0, direct_complete as *const () as usize),
        (0xa8, cancel_oid as *const () as usize),
        (0xd8, cancel_direct as *const () as usize),
    ];
    let entry = move || {
        let from = characteristics(service, &handlers[..count.min(handlers.len())]);
        let context = std::ptr::from_mut(Box::leak(Box::new(script))).expose_provenance();
        let handle = kept(0_usize);
        let status = upper_drivers::NdisFRegisterFilterDriver(Guest::null(), context, from, handle);
        assert_eq!(status, NDIS_STATUS_SUCCESS);
        handle.read()
    };
    host.spawn("system", entry).join().expect("the host lives")
}
