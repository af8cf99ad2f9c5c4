// SPDX-License-Identifier: MIT OR Apache-2.0

//! NDK adapters: `NDK_ADAPTER_DISPATCH`. NDIS opens and closes adapters (see `provider::open`).

use super::query_extension::query_extension;
use super::{connector, cq, lam, listener, pd, shared_endpoint};
use crate::base::object::DispatchTable;
use crate::objects::adapter::Adapter;
use ndk_abi::ndk::{NDK_ADAPTER, NDK_ADAPTER_DISPATCH, NDK_ADAPTER_INFO};
use ndk_abi::nt::{NTSTATUS, STATUS_BUFFER_TOO_SMALL, STATUS_INVALID_PARAMETER, STATUS_SUCCESS};

impl DispatchTable for Adapter {
    type Table = NDK_ADAPTER_DISPATCH;
    const TABLE: &'static NDK_ADAPTER_DISPATCH = &TABLE;
}

static TABLE: NDK_ADAPTER_DISPATCH = NDK_ADAPTER_DISPATCH {
    NdkQueryExtension: Some(query_extension),
    NdkQueryAdapterInfo: Some(query_info),
    NdkCreateCq: Some(cq::create),
    NdkCreatePd: Some(pd::create),
    NdkCreateSharedEndpoint: Some(shared_endpoint::create),
    NdkCreateConnector: Some(connector::create),
    NdkCreateListener: Some(listener::create),
    NdkBuildLAM: Some(lam::build),
    NdkReleaseLAM: Some(lam::release),
};

//= R-INFO-2, R-INFO-3, R-INFO-4, R-INFO-5, R-INFO-6
unsafe extern "efiapi" fn query_info(
    adapter: *mut NDK_ADAPTER,
    info: *mut NDK_ADAPTER_INFO,
    size: *mut u32,
) -> NTSTATUS {
    let adapter = object!(Adapter, adapter);
    // SAFETY: the consumer's variable, valid during the call.
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
