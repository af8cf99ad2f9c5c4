// SPDX-License-Identifier: MIT OR Apache-2.0

//! Completion queues: `NdkCreateCq` and `NDK_CQ_DISPATCH`.

use super::close::close;
use super::created_object::{preferred_processors, refuse, return_created};
use super::query_extension::query_extension;
use crate::base::object::DispatchTable;
use crate::base::object::callback::{CqNotification, CreateCallback, RequestCallback};
use crate::base::status;
use crate::objects::adapter::Adapter;
use crate::objects::cq::Cq;
use core::ffi::c_void;
use ndk_abi::ndk::{
    NDK_ADAPTER, NDK_CQ, NDK_CQ_DISPATCH, NDK_FN_CQ_NOTIFICATION_CALLBACK, NDK_FN_CREATE_COMPLETION,
    NDK_FN_REQUEST_COMPLETION, NDK_OPERATION_TYPE, NDK_RESULT, NDK_RESULT_EX,
};
use ndk_abi::nt::{GROUP_AFFINITY, NTSTATUS};
use roce::{Completion, CompletionKind};

impl DispatchTable for Cq {
    type Table = NDK_CQ_DISPATCH;
    const TABLE: &'static NDK_CQ_DISPATCH = &TABLE;
    #[cfg(feature = "strict")]
    const CHECKED: &'static NDK_CQ_DISPATCH = &super::strict::cq::TABLE;
}

static TABLE: NDK_CQ_DISPATCH = NDK_CQ_DISPATCH {
    NdkCloseCq: Some(close::<Cq>),
    NdkQueryExtension: Some(query_extension::<Cq>),
    NdkResizeCq: Some(resize),
    NdkArmCq: Some(arm),
    NdkGetCqResults: Some(get_results),
    NdkControlCqInterruptModeration: Some(control_moderation),
    NdkGetCqResultsEx: Some(get_results_ex),
};

/// Completions taken from the queue at a time, limited by stack size.
const BATCH: usize = 8;

/// `NdkCreateCq`.
//= R-CREATE-23, R-CREATE-24, R-CREATE-26
pub unsafe extern "efiapi" fn create(
    adapter: *mut NDK_ADAPTER,
    depth: u32,
    notification: Option<NDK_FN_CQ_NOTIFICATION_CALLBACK>,
    notification_context: *mut c_void,
    affinity: *mut GROUP_AFFINITY,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    out: *mut *mut NDK_CQ,
) -> NTSTATUS {
    let adapter = object!(Adapter, adapter, or null in out);
    let Some(notification) = CqNotification::new(notification, notification_context) else {
        // SAFETY: by the NDK contract a create call's output is a variable of the consumer's, which is valid until the call completes.
        return unsafe { refuse(out) };
    };
    // SAFETY: the consumer's variable is valid during the call.
    let affinity = unsafe { preferred_processors(affinity) };
    let completion = CreateCallback::new(completion, context);
    let parent = adapter.clone();
    let make = move || Cq::create(&parent, depth, notification, affinity);
    let outcome = adapter.provider().create(&adapter, completion, Cq::memory(depth), make);
    // SAFETY: by the NDK contract a create call's output is a variable of the consumer's, which is valid until the call completes.
    unsafe { return_created(outcome, out) }
}

/// `NdkResizeCq`.
//= R-CQ-43
unsafe extern "efiapi" fn resize(
    cq: *mut NDK_CQ,
    depth: u32,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NTSTATUS {
    let cq = object!(Cq, cq);
    let completion = RequestCallback::new(completion, context);
    cq.adapter().provider().request(&cq, completion, Cq::memory(depth), move |cq| cq.resize(depth))
}

/// `NdkControlCqInterruptModeration`. Completes inline.
//= R-CQ-45, R-CQ-53
//= R-CONSUMER-19
unsafe extern "efiapi" fn control_moderation(cq: *mut NDK_CQ, interval: u32, count: u32) -> NTSTATUS {
    status::of(object!(Cq, cq).moderate(interval, count))
}

unsafe extern "efiapi" fn arm(cq: *mut NDK_CQ, kind: u32) {
    object!(Cq, cq, or return).arm(kind);
}

unsafe extern "efiapi" fn get_results(cq: *mut NDK_CQ, results: *mut NDK_RESULT, count: u32) -> u32 {
    let cq = object!(Cq, cq, 0);
    // SAFETY: the consumer's array has `count` entries.
    unsafe { poll(&cq, results, count, plain) }
}

unsafe extern "efiapi" fn get_results_ex(cq: *mut NDK_CQ, results: *mut NDK_RESULT_EX, count: u32) -> u32 {
    let cq = object!(Cq, cq, 0);
    // SAFETY: the consumer's array has `count` entries.
    unsafe { poll(&cq, results, count, extended) }
}

/// Moves up to `count` completions into `results` and returns their number.
///
/// # Safety
/// `results` is null or has room for `count` entries.
//= R-CQ-19, R-CQ-20, R-CQ-28
unsafe fn poll<T>(cq: &Cq, results: *mut T, count: u32, convert: fn(&Completion) -> T) -> u32 {
    if results.is_null() {
        return 0;
    }
    let mut batch = [Completion::EMPTY; BATCH];
    let mut filled = 0u32;
    while filled < count {
        let wanted = BATCH.min((count - filled) as usize);
        let taken = cq.poll(batch.get_mut(..wanted).unwrap_or_default());
        for completion in batch.iter().take(taken) {
            // SAFETY: `filled` stays below `count`, the number of elements of the consumer's array.
            let result = unsafe { results.add(filled as usize) };
            // SAFETY: as above; the consumer's array need not be initialized.
            unsafe { result.write(convert(completion)) };
            filled += 1;
        }
        if taken < wanted {
            break;
        }
    }
    filled
}

//= R-CQ-22, R-CQ-23
fn plain(completion: &Completion) -> NDK_RESULT {
    NDK_RESULT {
        Status: status::completion(completion.status, completion.kind),
        BytesTransferred: completion.bytes,
        QPContext: pointer(completion.qp_context),
        RequestContext: pointer(completion.context),
    }
}

//= R-CQ-24, R-CQ-26, R-CQ-27, R-CQ-29
fn extended(completion: &Completion) -> NDK_RESULT_EX {
    let NDK_RESULT { Status, BytesTransferred, QPContext, RequestContext } = plain(completion);
    let (kind, output) = match completion.kind {
        CompletionKind::Receive | CompletionKind::ReceiveWrite | CompletionKind::ReceiveDatagram { .. } => {
            (NDK_OPERATION_TYPE::NdkOperationTypeReceive, 0)
        }
        CompletionKind::ReceiveInvalidate { key } => {
            (NDK_OPERATION_TYPE::NdkOperationTypeReceiveAndInvalidate, key as usize)
        }
        CompletionKind::Send => (NDK_OPERATION_TYPE::NdkOperationTypeSend, 0),
        // No NDK call posts an atomic operation.
        CompletionKind::Read | CompletionKind::CompareSwap | CompletionKind::FetchAdd => {
            (NDK_OPERATION_TYPE::NdkOperationTypeRead, 0)
        }
        CompletionKind::Write => (NDK_OPERATION_TYPE::NdkOperationTypeWrite, 0),
        CompletionKind::FastRegister => (NDK_OPERATION_TYPE::NdkOperationTypeFastRegister, 0),
        CompletionKind::Invalidate => (NDK_OPERATION_TYPE::NdkOperationTypeInvalidate, 0),
        CompletionKind::Bind => (NDK_OPERATION_TYPE::NdkOperationTypeBind, 0),
    };
    NDK_RESULT_EX {
        Status,
        BytesTransferred,
        QPContext,
        RequestContext,
        Type: kind,
        ProviderErrorCode: 0,
        TypeSpecificCompletionOutput: output,
    }
}

/// Returns a consumer's context as the pointer it was.
fn pointer(context: u64) -> *mut c_void {
    core::ptr::with_exposed_provenance_mut(context as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use roce::CompletionStatus;

    //= R-CQ-24, R-CQ-27
    #[test]
    fn only_receives_have_bit_0_of_their_type_set() {
        let kinds = [
            (CompletionKind::Receive, 1),
            (CompletionKind::ReceiveWrite, 1),
            (CompletionKind::ReceiveInvalidate { key: 7 }, 32769),
            (CompletionKind::Send, 2),
            (CompletionKind::Read, 32),
            (CompletionKind::Write, 64),
            (CompletionKind::FastRegister, 4),
            (CompletionKind::Bind, 8),
            (CompletionKind::Invalidate, 16),
        ];
        for (kind, number) in kinds {
            let result =
                extended(&Completion { kind, status: CompletionStatus::Flushed, ..Completion::EMPTY });
            assert_eq!(result.Type.0, number);
            assert_eq!(result.Type.0 & 1 == 1, kind.is_receive());
        }
    }

    //= R-CQ-26
    #[test]
    fn invalidated_token_is_zero_extended() {
        let kind = CompletionKind::ReceiveInvalidate { key: u32::MAX };
        assert_eq!(
            extended(&Completion { kind, ..Completion::EMPTY }).TypeSpecificCompletionOutput,
            0xffff_ffff
        );
    }
}
