// SPDX-License-Identifier: MIT OR Apache-2.0

//! NDK adapters: `NDK_ADAPTER_DISPATCH`. NDIS opens and closes adapters (see `provider::open`).

use super::query_extension::query_extension;
use super::{connector, cq, lam, listener, pd, shared_endpoint};
use crate::base::object::DispatchTable;
use crate::objects::adapter::Adapter;
use core::ops::Range;
use ndk_abi::ndk::{NDK_ADAPTER, NDK_ADAPTER_DISPATCH, NDK_ADAPTER_INFO};
use ndk_abi::nt::{NTSTATUS, STATUS_BUFFER_TOO_SMALL, STATUS_INVALID_PARAMETER, STATUS_SUCCESS};

impl DispatchTable for Adapter {
    type Table = NDK_ADAPTER_DISPATCH;
    const TABLE: &'static NDK_ADAPTER_DISPATCH = &TABLE;
    #[cfg(feature = "strict")]
    const CHECKED: &'static NDK_ADAPTER_DISPATCH = &super::strict::adapter::TABLE;
}

//= R-OPEN-27
static TABLE: NDK_ADAPTER_DISPATCH = NDK_ADAPTER_DISPATCH {
    NdkQueryExtension: Some(query_extension::<Adapter>),
    NdkQueryAdapterInfo: Some(query_info),
    NdkCreateCq: Some(cq::create),
    NdkCreatePd: Some(pd::create),
    NdkCreateSharedEndpoint: Some(shared_endpoint::create),
    NdkCreateConnector: Some(connector::create),
    NdkCreateListener: Some(listener::create),
    NdkBuildLAM: Some(lam::build),
    NdkReleaseLAM: Some(lam::release),
};

/// Size in bytes of the structure of old consumers, which ends before `RdmaTechnology`.
//= R-CONSUMER-17
const SHORT_INFO: u32 = core::mem::offset_of!(NDK_ADAPTER_INFO, RdmaTechnology) as u32;

/// The bytes of the structure that belong to no member. Consumers get zeros.
const PADDING: [Range<usize>; 2] = [
    core::mem::offset_of!(NDK_ADAPTER_INFO, DeviceId) + 4
        ..core::mem::offset_of!(NDK_ADAPTER_INFO, MaxRegistrationSize),
    core::mem::offset_of!(NDK_ADAPTER_INFO, RdmaTechnology) + 4..size_of::<NDK_ADAPTER_INFO>(),
];

/// Writes the whole structure if it fits, or else the short one. Another size is too small.
//= R-INFO-2, R-INFO-3, R-INFO-4, R-INFO-5, R-INFO-6, R-CONSUMER-17
unsafe extern "efiapi" fn query_info(
    adapter: *mut NDK_ADAPTER,
    info: *mut NDK_ADAPTER_INFO,
    size: *mut u32,
) -> NTSTATUS {
    let adapter = object!(Adapter, adapter);
    // SAFETY: the consumer's variable, valid during the call.
    let Some(size) = (unsafe { size.as_mut() }) else { return STATUS_INVALID_PARAMETER };
    let whole = size_of::<NDK_ADAPTER_INFO>() as u32;
    let room = core::mem::replace(size, whole);
    if info.is_null() || room < SHORT_INFO {
        return STATUS_BUFFER_TOO_SMALL;
    }
    *size = if room < whole { SHORT_INFO } else { whole };
    let source = adapter.info();
    // SAFETY: the consumer's buffer has room for `size` bytes, which are not more than the structure has.
    unsafe { core::ptr::copy_nonoverlapping((&raw const source).cast(), info.cast::<u8>(), *size as usize) };
    for padding in PADDING {
        if padding.end <= *size as usize {
            // SAFETY: within the buffer, as checked.
            let start = unsafe { info.cast::<u8>().add(padding.start) };
            // SAFETY: the padding ends inside the buffer by the comparison above, and its bytes belong to no member.
            unsafe { start.write_bytes(0, padding.len()) };
        }
    }
    STATUS_SUCCESS
}
