// SPDX-License-Identifier: MIT OR Apache-2.0

//! `NdkCloseCq`, `NdkCloseQp` and so on, and `NdkQueryExtension`, of objects whose calls are checked.

use super::call::Call;
use crate::base::object::ObjectType;
use crate::base::strict::CallKind;
use crate::base::strict::Mistake;
use crate::dispatch::close::{Closable, close as ordinary};
use crate::dispatch::query_extension::query_extension as ordinary_query;
use core::ffi::c_void;
use core::ptr::NonNull;
use ndk_abi::ndk::{NDK_EXTENSION_INTERFACE, NDK_FN_CLOSE_COMPLETION, NDK_OBJECT_HEADER, NDK_VERSION};
use ndk_abi::nt::{GUID, NTSTATUS, STATUS_INVALID_PARAMETER, STATUS_SUCCESS};
use roce::Sge;

/// `NdkClose*`. An object below this one should be closed first; a region's token should be in no posted request.
pub unsafe extern "efiapi" fn close<T: Closable>(
    object: *mut NDK_OBJECT_HEADER,
    completion: Option<NDK_FN_CLOSE_COMPLETION>,
    context: *mut c_void,
) -> NTSTATUS {
    // SAFETY: the consumer's promise about object pointers; the memory of closed objects is kept.
    let call = unsafe { Call::enter::<T>(object.cast(), CallKind::Query) };
    if !call.is_valid() {
        return STATUS_SUCCESS;
    }
    call.completion(completion.is_some());
    if let (Some(checker), Some(object)) = (call.checker(), NonNull::new(object)) {
        checker.close_begins(T::TYPE, object.cast());
    }
    // SAFETY: an open object; the consumer's callback.
    unsafe { ordinary::<T>(object, completion, context) }
}

/// Reports that memory with this token is in use by a posted request.
pub fn check_token_unused(call: &Call, token: u32) {
    let uses = |sge: &Sge| sge.key == token && sge.length != 0;
    if token != 0 && call.checker().is_some_and(|checker| checker.has_element(&uses)) {
        call.report(Mistake::MemoryInUse, token);
    }
}

/// `NdkQueryExtension`.
pub unsafe extern "efiapi" fn query_extension<T: ObjectType>(
    object: *mut NDK_OBJECT_HEADER,
    id: *mut GUID,
    version: NDK_VERSION,
    extension: *mut NDK_EXTENSION_INTERFACE,
) -> NTSTATUS {
    // SAFETY: the pointer is an argument of the call: null, or the memory of an object, which the provider keeps after its close while
    // calls are checked.
    let call = unsafe { Call::enter::<T>(object.cast(), CallKind::Query) };
    if !call.is_valid() {
        return STATUS_INVALID_PARAMETER;
    }
    // SAFETY: the arguments are those that the consumer passed to the function of this name, with the same contract.
    unsafe { ordinary_query::<T>(object, id, version, extension) }
}
