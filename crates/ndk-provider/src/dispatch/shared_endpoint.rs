// SPDX-License-Identifier: MIT OR Apache-2.0

//! Shared endpoints: `NdkCreateSharedEndpoint` and `NDK_SHARED_ENDPOINT_DISPATCH`.

use super::buffers::{return_address, socket_address};
use super::close::close;
use super::created_object::return_created;
use super::query_extension::query_extension;
use crate::base::calls::needed_memory::NeededMemory;
use crate::base::object::DispatchTable;
use crate::base::object::callback::CreateCallback;
use crate::objects::adapter::Adapter;
use crate::objects::shared_endpoint::SharedEndpoint;
use core::ffi::c_void;
use ndk_abi::ndk::{
    NDK_ADAPTER, NDK_FN_CREATE_COMPLETION, NDK_SHARED_ENDPOINT, NDK_SHARED_ENDPOINT_DISPATCH,
};
use ndk_abi::netio::SOCKADDR;
use ndk_abi::nt::NTSTATUS;

impl DispatchTable for SharedEndpoint {
    type Table = NDK_SHARED_ENDPOINT_DISPATCH;
    const TABLE: &'static NDK_SHARED_ENDPOINT_DISPATCH = &TABLE;
    #[cfg(feature = "strict")]
    const CHECKED: &'static NDK_SHARED_ENDPOINT_DISPATCH = &super::strict::endpoints::SHARED_ENDPOINT;
}

static TABLE: NDK_SHARED_ENDPOINT_DISPATCH = NDK_SHARED_ENDPOINT_DISPATCH {
    NdkCloseSharedEndpoint: Some(close::<SharedEndpoint>),
    NdkQueryExtension: Some(query_extension::<SharedEndpoint>),
    NdkGetLocalAddress: Some(get_local_address),
};

/// `NdkCreateSharedEndpoint`.
pub unsafe extern "efiapi" fn create(
    adapter: *mut NDK_ADAPTER,
    address: *const SOCKADDR,
    length: u32,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    out: *mut *mut NDK_SHARED_ENDPOINT,
) -> NTSTATUS {
    let adapter = object!(Adapter, adapter, or null in out);
    let completion = CreateCallback::new(completion, context);
    let parent = adapter.clone();
    // SAFETY: the consumer's address has `length` bytes.
    let address = unsafe { socket_address(address, length) };
    let outcome = address.and_then(|address| {
        adapter.provider().create(&adapter, completion, NeededMemory::SMALL, move || {
            SharedEndpoint::create(&parent, address)
        })
    });
    // SAFETY: by the NDK contract a create call's output is a variable of the consumer's, which is valid until the call completes.
    unsafe { return_created(outcome, out) }
}

unsafe extern "efiapi" fn get_local_address(
    endpoint: *mut NDK_SHARED_ENDPOINT,
    out: *mut SOCKADDR,
    length: *mut u32,
) -> NTSTATUS {
    let endpoint = object!(SharedEndpoint, endpoint);
    // SAFETY: the consumer's buffer and its length.
    unsafe { return_address(Ok(endpoint.address()), out, length) }
}
