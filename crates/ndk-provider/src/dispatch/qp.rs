// SPDX-License-Identifier: MIT OR Apache-2.0

//! Queue pairs: `NdkCreateQp`, `NdkCreateQpWithSrq` and `NDK_QP_DISPATCH` with the work requests.

use super::close::close;
use super::created_object::return_created;
use super::query_extension::query_extension;
use super::sge_list::{MAX_INLINE, gather, page_addresses, with_sges};
use crate::base::limits::LIMITS;
use crate::base::object::callback::CreateCallback;
use crate::base::object::{Borrow, DispatchTable, Ref};
use crate::base::status::{self, NtResult};
use crate::objects::cq::Cq;
use crate::objects::mr::{Fast, Mr};
use crate::objects::mw::Mw;
use crate::objects::pd::Pd;
use crate::objects::qp::{Qp, Queues, Sizes};
use crate::objects::srq::Srq;
use core::ffi::c_void;
use ndk_abi::ndk::{
    NDK_CQ, NDK_FN_CREATE_COMPLETION, NDK_LOGICAL_ADDRESS, NDK_MR, NDK_MW, NDK_OBJECT_HEADER,
    NDK_OP_FLAG_ALLOW_LOCAL_WRITE, NDK_OP_FLAG_ALLOW_REMOTE_READ, NDK_OP_FLAG_ALLOW_REMOTE_WRITE,
    NDK_OP_FLAG_INLINE, NDK_OP_FLAG_RDMA_READ_SINK, NDK_PD, NDK_QP, NDK_QP_DISPATCH, NDK_SGE, NDK_SRQ,
};
use ndk_abi::nt::{NTSTATUS, STATUS_INVALID_DEVICE_REQUEST, STATUS_INVALID_PARAMETER};
use roce::{Access, Binding, Registration, SendData, SendOperation};

impl DispatchTable for Qp {
    type Table = NDK_QP_DISPATCH;
    const TABLE: &'static NDK_QP_DISPATCH = &TABLE;
    #[cfg(feature = "strict")]
    const CHECKED: &'static NDK_QP_DISPATCH = &super::strict::qp::TABLE;
}

static TABLE: NDK_QP_DISPATCH = NDK_QP_DISPATCH {
    NdkCloseQp: Some(close::<Qp>),
    NdkQueryExtension: Some(query_extension::<Qp>),
    NdkFlush: Some(flush),
    NdkSend: Some(send),
    NdkReceive: Some(receive),
    NdkBind: Some(bind),
    NdkFastRegister: Some(fast_register),
    NdkInvalidate: Some(invalidate),
    NdkRead: Some(read),
    NdkWrite: Some(write),
    NdkSendAndInvalidate: Some(send_and_invalidate),
};

/// `NdkCreateQp`.
pub unsafe extern "efiapi" fn create(
    pd: *mut NDK_PD,
    receive_cq: *mut NDK_CQ,
    initiator_cq: *mut NDK_CQ,
    qp_context: *mut c_void,
    receive_depth: u32,
    initiator_depth: u32,
    receive_sges: u32,
    initiator_sges: u32,
    inline: u32,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    out: *mut *mut NDK_QP,
) -> NTSTATUS {
    let (pd, receive_cq, initiator_cq) = (
        object!(Pd, pd, or null in out),
        object!(Cq, receive_cq, or null in out).clone(),
        object!(Cq, initiator_cq, or null in out).clone(),
    );
    let sizes = Sizes { receive_depth, initiator_depth, receive_sges, initiator_sges, inline };
    let queues = Queues { receive_cq, initiator_cq, srq: None };
    // SAFETY: by the NDK contract a create call's output is a variable of the consumer's, which is valid until the call completes.
    unsafe { create_with(&pd, queues, sizes, qp_context, CreateCallback::new(completion, context), out) }
}

/// `NdkCreateQpWithSrq`.
//= R-CREATE-39, R-CREATE-41
pub unsafe extern "efiapi" fn create_with_srq(
    pd: *mut NDK_PD,
    receive_cq: *mut NDK_CQ,
    initiator_cq: *mut NDK_CQ,
    srq: *mut NDK_SRQ,
    qp_context: *mut c_void,
    initiator_depth: u32,
    initiator_sges: u32,
    inline: u32,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    out: *mut *mut NDK_QP,
) -> NTSTATUS {
    let (pd, receive_cq, initiator_cq, srq) = (
        object!(Pd, pd, or null in out),
        object!(Cq, receive_cq, or null in out).clone(),
        object!(Cq, initiator_cq, or null in out).clone(),
        object!(Srq, srq, or null in out).clone(),
    );
    let sizes = Sizes { receive_depth: 0, initiator_depth, receive_sges: 0, initiator_sges, inline };
    let queues = Queues { receive_cq, initiator_cq, srq: Some(srq) };
    // SAFETY: by the NDK contract a create call's output is a variable of the consumer's, which is valid until the call completes.
    unsafe { create_with(&pd, queues, sizes, qp_context, CreateCallback::new(completion, context), out) }
}

/// Creates a queue pair with these queues.
///
/// # Safety
/// `out` is the consumer's variable for the object, valid during the call.
unsafe fn create_with(
    pd: &Ref<Pd>,
    queues: Queues,
    sizes: Sizes,
    qp_context: *mut c_void,
    completion: Option<CreateCallback>,
    out: *mut *mut NDK_QP,
) -> NTSTATUS {
    let (parent, context) = (pd.clone(), qp_context.expose_provenance() as u64);
    let make = move || Qp::create(&parent, queues, context, sizes);
    let outcome = pd.provider().create(pd, completion, sizes.memory(), make);
    // SAFETY: by this function's contract `out` is valid during the call; it is written once, here, before the call returns.
    unsafe { return_created(outcome, out) }
}

unsafe extern "efiapi" fn flush(qp: *mut NDK_QP) {
    object!(Qp, qp, or return).flush();
}

unsafe extern "efiapi" fn send(
    qp: *mut NDK_QP,
    context: *mut c_void,
    sgl: *const NDK_SGE,
    count: u32,
    flags: u32,
) -> NTSTATUS {
    // SAFETY: the consumer's list has `count` elements.
    unsafe { post(qp, context, sgl, count, flags, SendOperation::Send) }
}

//= R-QP-77, R-QP-80, R-CQ-25
unsafe extern "efiapi" fn send_and_invalidate(
    qp: *mut NDK_QP,
    context: *mut c_void,
    sgl: *const NDK_SGE,
    count: u32,
    flags: u32,
    remote_token: u32,
) -> NTSTATUS {
    let operation = SendOperation::SendInvalidate { key: remote_token };
    // SAFETY: the consumer's list has `count` elements.
    unsafe { post(qp, context, sgl, count, flags, operation) }
}

unsafe extern "efiapi" fn receive(
    qp: *mut NDK_QP,
    context: *mut c_void,
    sgl: *const NDK_SGE,
    count: u32,
) -> NTSTATUS {
    let qp = object!(Qp, qp);
    let context = context.expose_provenance() as u64;
    // SAFETY: the consumer's list has `count` elements.
    unsafe { with_sges(sgl, count, |sges| status::of(sges.and_then(|sges| qp.receive(context, sges)))) }
}

//= R-QP-49, R-QP-50, R-QP-51, R-QP-87
unsafe extern "efiapi" fn read(
    qp: *mut NDK_QP,
    context: *mut c_void,
    sgl: *const NDK_SGE,
    count: u32,
    remote_address: u64,
    remote_token: u32,
    flags: u32,
) -> NTSTATUS {
    let operation = SendOperation::Read { address: remote_address, key: remote_token };
    // SAFETY: the consumer's list has `count` elements.
    unsafe { post(qp, context, sgl, count, flags, operation) }
}

//= R-QP-49, R-QP-50
unsafe extern "efiapi" fn write(
    qp: *mut NDK_QP,
    context: *mut c_void,
    sgl: *const NDK_SGE,
    count: u32,
    remote_address: u64,
    remote_token: u32,
    flags: u32,
) -> NTSTATUS {
    let operation = SendOperation::Write { address: remote_address, key: remote_token };
    // SAFETY: the consumer's list has `count` elements.
    unsafe { post(qp, context, sgl, count, flags, operation) }
}

/// Posts to the initiator queue.
///
/// # Safety
/// `sgl` has `count` elements; those of an inline request point to memory that is readable during the call.
//= R-QP-1, R-QP-13
unsafe fn post(
    qp: *mut NDK_QP,
    context: *mut c_void,
    sgl: *const NDK_SGE,
    count: u32,
    flags: u32,
    operation: SendOperation,
) -> NTSTATUS {
    let qp = object!(Qp, qp);
    let context = context.expose_provenance() as u64;
    if flags & NDK_OP_FLAG_INLINE != 0 {
        let mut copy = [0; MAX_INLINE];
        // SAFETY: by this function's contract the list has `count` elements, and each points to memory that is readable during the call.
        let answer = unsafe { gather(sgl, count, &mut copy) };
        return status::of(match answer {
            Ok(data) => qp.post(context, operation, Ok(SendData::Inline(&[data])), flags),
            Err(status) => qp.post(context, operation, Err(status), flags),
        });
    }
    //= R-CONSUMER-18, R-CONSUMER-21
    // SAFETY: by this function's contract the list has `count` elements, which stay as they are during the call.
    unsafe {
        with_sges(sgl, count, |sges| status::of(qp.post(context, operation, sges.map(SendData::Sges), flags)))
    }
}

//= R-MR-52, R-MR-58, R-MR-60, R-MR-61, R-MR-62, R-MR-66
unsafe extern "efiapi" fn bind(
    qp: *mut NDK_QP,
    context: *mut c_void,
    mr: *mut NDK_MR,
    mw: *mut NDK_MW,
    address: *mut c_void,
    length: usize,
    flags: u32,
) -> NTSTATUS {
    let qp = object!(Qp, qp);
    let (mr, mw) = (object!(Mr, mr, invalid_object(&qp)), object!(Mw, mw, invalid_object(&qp)));
    if !mr.pd().is(qp.pd()) || !mw.pd().is(qp.pd()) {
        return invalid_object(&qp);
    }
    let (access, flags) = rights(flags);
    let registered = mr.normal().and_then(|normal| match normal.token() {
        //= R-MR-67
        0 => Err(STATUS_INVALID_DEVICE_REQUEST),
        token => Ok(token),
    });
    let binding = Binding {
        region: registered.unwrap_or(0),
        address: address.expose_provenance() as u64,
        length: length as u64,
        access: access & (Access::REMOTE_READ | Access::REMOTE_WRITE),
    };
    let checked = registered.and_then(|_| within(length, LIMITS.window));
    let data = match checked {
        Ok(()) if binding.access.is_empty() => Err(STATUS_INVALID_PARAMETER),
        checked => checked.map(|()| SendData::Binding(&binding)),
    };
    let operation = SendOperation::Bind { key: mw.token() };
    let post = || qp.post(context.expose_provenance() as u64, operation, data, flags);
    status::of(with_region(&mw, Some(Ref::clone(&mr)), post))
}

/// Posts a request. If the post succeeds, `mw` holds `region` from then on.
//= R-CLOSE-14
fn with_region(mw: &Mw, region: Option<Ref<Mr>>, post: impl FnOnce() -> NtResult) -> NtResult {
    let previous = mw.set_region(region);
    let answer = post();
    // The posted request may have completed, and the window may be closed, by now.
    drop(if answer.is_ok() { previous } else { mw.set_region(previous) });
    answer
}

//= R-MR-30, R-MR-37, R-MR-40, R-MR-52
unsafe extern "efiapi" fn fast_register(
    qp: *mut NDK_QP,
    context: *mut c_void,
    mr: *mut NDK_MR,
    count: u32,
    pages: *const NDK_LOGICAL_ADDRESS,
    offset: u32,
    length: usize,
    base: *mut c_void,
    flags: u32,
) -> NTSTATUS {
    let qp = object!(Qp, qp);
    let mr = object!(Mr, mr, invalid_object(&qp));
    if !mr.pd().is(qp.pd()) {
        return invalid_object(&qp);
    }
    let (access, flags) = rights(flags);
    // SAFETY: the consumer's array has `count` entries.
    let pages = unsafe { page_addresses(pages, count) };
    let key = mr.fast().and_then(Fast::key);
    let registration = pages.map(|pages| Registration {
        base: base.expose_provenance() as u64,
        offset,
        length: length as u64,
        access,
        pages,
    });
    let data = key.and_then(|_| registration.as_ref().map(SendData::Registration).map_err(|status| *status));
    let operation = SendOperation::FastRegister { key: key.unwrap_or(0) };
    status::of(qp.post(context.expose_provenance() as u64, operation, data, flags))
}

//= R-MR-43, R-MR-52
unsafe extern "efiapi" fn invalidate(
    qp: *mut NDK_QP,
    context: *mut c_void,
    object: *mut NDK_OBJECT_HEADER,
    flags: u32,
) -> NTSTATUS {
    let qp = object!(Qp, qp);
    let post = |key: NtResult<u32>| {
        let operation = SendOperation::Invalidate { key: key.unwrap_or(0) };
        let data = key.map(|_| SendData::Sges(&[]));
        qp.post(context.expose_provenance() as u64, operation, data, flags)
    };
    // SAFETY: the consumer's promise about object pointers.
    if let Some(mr) = unsafe { Borrow::<Mr>::new(object.cast()) } {
        if !mr.pd().is(qp.pd()) {
            return invalid_object(&qp);
        }
        return status::of(post(mr.fast().and_then(Fast::key)));
    }
    let mw = object!(Mw, object.cast(), invalid_object(&qp));
    if !mw.pd().is(qp.pd()) {
        return invalid_object(&qp);
    }
    status::of(with_region(&mw, None, || post(Ok(mw.token()))))
}

/// Splits the flags of a fast registration or a bind into access rights and the other flags.
//= R-MR-40, R-QP-24
fn rights(flags: u32) -> (Access, u32) {
    let access_flags = [
        (NDK_OP_FLAG_ALLOW_REMOTE_READ, Access::REMOTE_READ),
        (NDK_OP_FLAG_ALLOW_LOCAL_WRITE, Access::LOCAL_WRITE),
        // Includes LOCAL_WRITE.
        (NDK_OP_FLAG_ALLOW_REMOTE_WRITE, Access::REMOTE_WRITE),
        //= R-MR-11
        (NDK_OP_FLAG_RDMA_READ_SINK, Access::empty()),
    ];
    access_flags
        .into_iter()
        .filter(|(bits, _)| flags & bits == *bits)
        .fold((Access::empty(), flags), |(access, rest), (bits, right)| (access | right, rest & !bits))
}

/// Checks that a length is in 1..=`limit`.
fn within(length: usize, limit: usize) -> NtResult {
    if (1..=limit).contains(&length) { Ok(()) } else { Err(STATUS_INVALID_PARAMETER) }
}

/// Fails a post because of an invalid object pointer, or an object of another protection domain. Like any failed post, it ends a chain of deferred requests.
//= R-QP-38
fn invalid_object(qp: &Qp) -> NTSTATUS {
    qp.post_failed();
    STATUS_INVALID_PARAMETER
}

#[cfg(test)]
mod tests {
    use super::*;

    //= R-MR-40, R-QP-24
    #[test]
    fn access_rights_are_separated_from_other_flags() {
        assert_eq!(rights(0x201), (Access::empty(), 0x201));
        assert_eq!(rights(0x8), (Access::REMOTE_READ, 0));
        assert_eq!(rights(0x10), (Access::LOCAL_WRITE, 0));
        assert_eq!(rights(0x30 | 1), (Access::LOCAL_WRITE | Access::REMOTE_WRITE, 1));
        assert_eq!(rights(0x80), (Access::empty(), 0));
        // The remote write bit without the local write bit that it includes is not a right.
        assert_eq!(rights(0x20), (Access::empty(), 0x20));
    }
}
