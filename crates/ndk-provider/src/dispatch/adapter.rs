//! `NDK_ADAPTER_DISPATCH`.

use super::{Sent, answer_create, object, query_extension};
use crate::adapter::Adapter;
use crate::connector::Connector;
use crate::cq::{self, Cq};
use crate::lam;
use crate::listener::{self, Listener};
use crate::object::{Context, CreateRequest};
use crate::pd::Pd;
use crate::shared_endpoint::SharedEndpoint;
use crate::{address, dispatch};
use core::ffi::c_void;
use ndk_abi::ndk::{
    NDK_ADAPTER, NDK_ADAPTER_DISPATCH, NDK_ADAPTER_INFO, NDK_CONNECTOR, NDK_CQ,
    NDK_FN_CONNECT_EVENT_CALLBACK, NDK_FN_CQ_NOTIFICATION_CALLBACK, NDK_FN_CREATE_COMPLETION,
    NDK_FN_REQUEST_COMPLETION, NDK_LISTENER, NDK_LOGICAL_ADDRESS, NDK_LOGICAL_ADDRESS_MAPPING, NDK_PD,
    NDK_SHARED_ENDPOINT,
};
use ndk_abi::netio::SOCKADDR;
use ndk_abi::nt::{
    GROUP_AFFINITY, MDL, NTSTATUS, STATUS_BUFFER_TOO_SMALL, STATUS_INVALID_PARAMETER, STATUS_SUCCESS,
};
use nt::MdlChain;

pub static TABLE: NDK_ADAPTER_DISPATCH = NDK_ADAPTER_DISPATCH {
    NdkQueryExtension: Some(query_extension),
    NdkQueryAdapterInfo: Some(query_info),
    NdkCreateCq: Some(create_cq),
    NdkCreatePd: Some(create_pd),
    NdkCreateSharedEndpoint: Some(create_shared_endpoint),
    NdkCreateConnector: Some(create_connector),
    NdkCreateListener: Some(create_listener),
    NdkBuildLAM: Some(build_lam),
    NdkReleaseLAM: Some(release_lam),
};

//= R-INFO-2, R-INFO-3, R-INFO-4, R-INFO-5, R-INFO-6
unsafe extern "efiapi" fn query_info(
    adapter: *mut NDK_ADAPTER,
    info: *mut NDK_ADAPTER_INFO,
    size: *mut u32,
) -> NTSTATUS {
    let adapter = object!(Adapter, adapter);
    // SAFETY: the size is the consumer's, valid during the call.
    let Some(size) = (unsafe { size.as_mut() }) else { return STATUS_INVALID_PARAMETER };
    let needed = size_of::<NDK_ADAPTER_INFO>() as u32;
    let room = core::mem::replace(size, needed);
    if info.is_null() || room < needed {
        return STATUS_BUFFER_TOO_SMALL;
    }
    // SAFETY: the consumer's buffer has room for it.
    unsafe { info.write(adapter.info()) };
    STATUS_SUCCESS
}

//= R-CREATE-23, R-CREATE-24, R-CREATE-26
unsafe extern "efiapi" fn create_cq(
    adapter: *mut NDK_ADAPTER,
    depth: u32,
    notification: Option<NDK_FN_CQ_NOTIFICATION_CALLBACK>,
    notification_context: *mut c_void,
    // A preference: there is one receive queue, and its processor is where notifications come from.
    _affinity: *mut GROUP_AFFINITY,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    out: *mut *mut NDK_CQ,
) -> NTSTATUS {
    let adapter = object!(Adapter, adapter);
    let Some(callback) = notification else { return STATUS_INVALID_PARAMETER };
    let notification = cq::Notification { callback, context: Context::new(notification_context) };
    let request = CreateRequest::new(completion, Context::new(context));
    let parent = adapter.clone();
    let outcome = adapter.core().create(&adapter, request, move || Cq::create(&parent, depth, notification));
    // SAFETY: the consumer's slot.
    unsafe { answer_create(outcome, out) }
}

unsafe extern "efiapi" fn create_pd(
    adapter: *mut NDK_ADAPTER,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    out: *mut *mut NDK_PD,
) -> NTSTATUS {
    let adapter = object!(Adapter, adapter);
    let request = CreateRequest::new(completion, Context::new(context));
    let parent = adapter.clone();
    let outcome = adapter.core().create(&adapter, request, move || Pd::create(&parent));
    // SAFETY: the consumer's slot.
    unsafe { answer_create(outcome, out) }
}

unsafe extern "efiapi" fn create_shared_endpoint(
    adapter: *mut NDK_ADAPTER,
    socket_address: *const SOCKADDR,
    length: u32,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    out: *mut *mut NDK_SHARED_ENDPOINT,
) -> NTSTATUS {
    let adapter = object!(Adapter, adapter);
    // SAFETY: the consumer's address, `length` bytes of it.
    let bytes = unsafe { dispatch::bytes(socket_address.cast(), length) };
    let address = bytes.ok().and_then(address::parse);
    let request = CreateRequest::new(completion, Context::new(context));
    let parent = adapter.clone();
    let outcome = match address {
        None => Err(STATUS_INVALID_PARAMETER),
        Some(address) => {
            adapter.core().create(&adapter, request, move || SharedEndpoint::create(&parent, address))
        }
    };
    // SAFETY: the consumer's slot.
    unsafe { answer_create(outcome, out) }
}

unsafe extern "efiapi" fn create_connector(
    adapter: *mut NDK_ADAPTER,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    out: *mut *mut NDK_CONNECTOR,
) -> NTSTATUS {
    let adapter = object!(Adapter, adapter);
    let request = CreateRequest::new(completion, Context::new(context));
    let parent = adapter.clone();
    let outcome = adapter.core().create(&adapter, request, move || Connector::create(&parent));
    // SAFETY: the consumer's slot.
    unsafe { answer_create(outcome, out) }
}

unsafe extern "efiapi" fn create_listener(
    adapter: *mut NDK_ADAPTER,
    connect_event: Option<NDK_FN_CONNECT_EVENT_CALLBACK>,
    connect_event_context: *mut c_void,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    out: *mut *mut NDK_LISTENER,
) -> NTSTATUS {
    let adapter = object!(Adapter, adapter);
    let Some(callback) = connect_event else { return STATUS_INVALID_PARAMETER };
    let notification = listener::Notification { callback, context: Context::new(connect_event_context) };
    let request = CreateRequest::new(completion, Context::new(context));
    let parent = adapter.clone();
    let outcome = adapter.core().create(&adapter, request, move || Listener::create(&parent, notification));
    // SAFETY: the consumer's slot.
    unsafe { answer_create(outcome, out) }
}

/// Where the consumer wants a mapping's description.
struct Description {
    mdl: *mut MDL,
    lam: *mut NDK_LOGICAL_ADDRESS_MAPPING,
    size: *mut u32,
    offset: *mut u32,
}

//= R-LAM-5, R-LAM-14, R-LAM-15, R-LAM-16
unsafe extern "efiapi" fn build_lam(
    adapter: *mut NDK_ADAPTER,
    mdl: *mut MDL,
    length: usize,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
    lam: *mut NDK_LOGICAL_ADDRESS_MAPPING,
    size: *mut u32,
    offset: *mut u32,
) -> NTSTATUS {
    let adapter = object!(Adapter, adapter);
    // SAFETY: the consumer's list, unchanged during the call.
    let chain = unsafe { MdlChain::new(mdl) };
    // SAFETY: the size is the consumer's, valid during the call.
    let (Some(chain), Some(room)) = (chain, unsafe { size.as_mut() }) else {
        return STATUS_INVALID_PARAMETER;
    };
    if let Err((status, needed)) = lam::needed(chain, length, if lam.is_null() { 0 } else { *room }) {
        *room = needed.unwrap_or(*room);
        return status;
    }
    let description = Sent(Description { mdl, lam, size, offset });
    adapter.core().request(&adapter, completion, Context::new(context), move |adapter| {
        let Description { mdl, lam, size, offset } = description.get();
        // SAFETY: the consumer's list, unchanged until the request is answered.
        let chain = unsafe { MdlChain::new(mdl) }.ok_or(STATUS_INVALID_PARAMETER)?;
        let built = lam::build(adapter, chain, length)?;
        // SAFETY: the consumer's buffer has room for the description, as `needed` found.
        unsafe { describe(lam, &built) };
        // SAFETY: the size is the consumer's, valid until the request is answered.
        unsafe { size.write(16 + 8 * built.pages) };
        if !offset.is_null() {
            // SAFETY: the same of the offset.
            unsafe { offset.write(built.offset) };
        }
        Ok(())
    })
}

///
/// # Safety
/// `lam` has room for the head and `built.pages` addresses.
//= R-LAM-8, R-LAM-9, R-LAM-13
unsafe fn describe(lam: *mut NDK_LOGICAL_ADDRESS_MAPPING, built: &lam::Built) {
    // SAFETY: the caller's promise.
    let context = unsafe { &raw mut (*lam).AdapterContext };
    // SAFETY: the caller's promise.
    unsafe { context.write(core::ptr::without_provenance_mut(built.number)) };
    // SAFETY: the caller's promise.
    let count = unsafe { &raw mut (*lam).AdapterPageCount };
    // SAFETY: the caller's promise.
    unsafe { count.write(built.pages) };
    // SAFETY: the caller's promise.
    let pages = unsafe { &raw mut (*lam).AdapterPageArray }.cast::<NDK_LOGICAL_ADDRESS>();
    for index in 0..built.pages {
        let address = built.first_page + 4096 * u64::from(index);
        // SAFETY: the caller's promise; `index` is below the number of pages.
        let page = unsafe { pages.add(index as usize) };
        // SAFETY: the caller's promise.
        unsafe { page.write(NDK_LOGICAL_ADDRESS { QuadPart: address.cast_signed() }) };
    }
}

unsafe extern "efiapi" fn release_lam(adapter: *mut NDK_ADAPTER, lam: *mut NDK_LOGICAL_ADDRESS_MAPPING) {
    let adapter = object!(Adapter, adapter, or return);
    // SAFETY: the consumer's mapping, as `build_lam` described it.
    if let Some(lam) = unsafe { lam.as_ref() } {
        lam::release(&adapter, lam.AdapterContext.addr());
    }
}
