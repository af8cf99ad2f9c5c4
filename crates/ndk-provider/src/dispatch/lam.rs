// SPDX-License-Identifier: MIT OR Apache-2.0

//! Logical address mappings: `NdkBuildLAM` and `NdkReleaseLAM`.

use super::buffers::Sent;
use crate::base::calls::needed_memory::NeededMemory;
use crate::base::object::callback::RequestCallback;
use crate::base::state::config::CreateCompletion;
use crate::base::status::{self, NtResult};
use crate::objects::adapter::Adapter;
use crate::objects::lam;
use core::ffi::c_void;
use ndk_abi::ndk::{
    NDK_ADAPTER, NDK_FN_REQUEST_COMPLETION, NDK_LOGICAL_ADDRESS, NDK_LOGICAL_ADDRESS_MAPPING,
};
use ndk_abi::nt::{MDL, NTSTATUS, STATUS_INVALID_PARAMETER};
use nt::MdlChain;

/// `NdkBuildLAM`. Completes inline, even if calls are to pend: the callbacks of some consumers cannot be called. It
/// pends with [`CreateCompletion::PendAll`] only.
//= R-LAM-5, R-LAM-14, R-LAM-15, R-LAM-16, R-CONSUMER-4
pub unsafe extern "efiapi" fn build(
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
    let provider = adapter.provider();
    if provider.create_completion != CreateCompletion::PendAll {
        // SAFETY: the consumer's chain, buffer and variables, valid during the call.
        return status::of(unsafe { build_now(&adapter, mdl, length, lam, size, offset) });
    }
    let arguments = Sent::new((mdl, lam, size, offset));
    let completion = RequestCallback::new(completion, context);
    provider.request(&adapter, completion, NeededMemory::SMALL, move |adapter| {
        let (mdl, lam, size, offset) = arguments.get();
        // SAFETY: as above; valid until the callback.
        unsafe { build_now(adapter, mdl, length, lam, size, offset) }
    })
}

/// Builds a mapping and describes it in the consumer's buffer.
///
/// # Safety
/// Each pointer is null, or the consumer's and valid during the call.
unsafe fn build_now(
    adapter: &Adapter,
    mdl: *mut MDL,
    length: usize,
    lam: *mut NDK_LOGICAL_ADDRESS_MAPPING,
    size: *mut u32,
    offset: *mut u32,
) -> NtResult {
    // SAFETY: the consumer's MDL chain, unchanged during the call.
    let chain = unsafe { MdlChain::new(mdl) };
    // SAFETY: the consumer's variable, valid during the call.
    let (Some(chain), Some(room)) = (chain, unsafe { size.as_mut() }) else {
        return Err(STATUS_INVALID_PARAMETER);
    };
    if let Err((status, needed)) = lam::needed(chain, length, if lam.is_null() { 0 } else { *room }) {
        *room = needed.unwrap_or(*room);
        return Err(status);
    }
    let built = adapter.mappings().build(&adapter.provider().engine, chain, length)?;
    // SAFETY: the consumer's buffer has room for the description, as `needed` found.
    unsafe { describe(lam, &built) };
    *room = 16 + 8 * built.pages;
    if !offset.is_null() {
        // SAFETY: the consumer's variable, valid during the call.
        unsafe { offset.write(built.offset) };
    }
    Ok(())
}

/// Writes the description of a mapping.
///
/// # Safety
/// `lam` has room for the head and `built.pages` addresses.
//= R-LAM-8, R-LAM-9, R-LAM-13
unsafe fn describe(lam: *mut NDK_LOGICAL_ADDRESS_MAPPING, built: &lam::Built) {
    // SAFETY: by this function's contract the mapping has room for its head; only the address of a member is taken.
    let context = unsafe { &raw mut (*lam).AdapterContext };
    // SAFETY: the member is inside the head, for which the mapping has room by this function's contract.
    unsafe { context.write(core::ptr::without_provenance_mut(built.number)) };
    // SAFETY: by this function's contract the mapping has room for its head; only the address of a member is taken.
    let count = unsafe { &raw mut (*lam).AdapterPageCount };
    // SAFETY: the member is inside the head, for which the mapping has room by this function's contract.
    unsafe { count.write(built.pages) };
    // SAFETY: by this function's contract the mapping has room for its head; only the address of a member is taken.
    let pages = unsafe { &raw mut (*lam).AdapterPageArray }.cast::<NDK_LOGICAL_ADDRESS>();
    for index in 0..built.pages {
        let address = built.first_page + 4096 * u64::from(index);
        // SAFETY: the caller's promise; `index` is below the number of pages.
        let page = unsafe { pages.add(index as usize) };
        // SAFETY: the page is one of the `built.pages` for which the mapping has room, by this function's contract.
        unsafe { page.write(NDK_LOGICAL_ADDRESS { QuadPart: address.cast_signed() }) };
    }
}

/// `NdkReleaseLAM`.
//= R-CONSUMER-5
pub unsafe extern "efiapi" fn release(adapter: *mut NDK_ADAPTER, lam: *mut NDK_LOGICAL_ADDRESS_MAPPING) {
    let adapter = object!(Adapter, adapter, or return);
    // SAFETY: the consumer's mapping, as `build` described it.
    if let Some(lam) = unsafe { lam.as_ref() } {
        adapter.mappings().release(&adapter.provider().engine, lam.AdapterContext.addr());
    }
}
