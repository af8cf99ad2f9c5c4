//! `NDK_QP_DISPATCH`, and the consumers' scatter/gather lists.

use super::{close, object, query_extension};
use crate::info::LIMITS;
use crate::mr::{Fast, Mr};
use crate::mw::Mw;
use crate::object::{Borrow, Ref};
use crate::qp::Qp;
use crate::status::{self, Answer};
use core::ffi::c_void;
use ndk_abi::ndk::{
    NDK_LOGICAL_ADDRESS, NDK_MR, NDK_MW, NDK_OBJECT_HEADER, NDK_OP_FLAG_ALLOW_LOCAL_WRITE,
    NDK_OP_FLAG_ALLOW_REMOTE_READ, NDK_OP_FLAG_ALLOW_REMOTE_WRITE, NDK_OP_FLAG_INLINE,
    NDK_OP_FLAG_RDMA_READ_SINK, NDK_QP, NDK_QP_DISPATCH, NDK_SGE,
};
use ndk_abi::nt::{NTSTATUS, STATUS_BUFFER_OVERFLOW, STATUS_DATA_OVERRUN, STATUS_INVALID_PARAMETER};
use roce::{Access, Binding, Data, Operation, Registration, Sge};

pub static TABLE: NDK_QP_DISPATCH = NDK_QP_DISPATCH {
    NdkCloseQp: Some(close::<Qp>),
    NdkQueryExtension: Some(query_extension),
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

/// Elements of the longest list of any queue.
pub const MAX_SGES: usize = {
    let (a, b, c) = (LIMITS.initiator_sges, LIMITS.receive_sges, LIMITS.read_sges);
    let longest = if a > b { a } else { b };
    (if longest > c { longest } else { c }) as usize
};

/// Bytes of the longest inline request, and elements of the longest list of one.
//= R-QP-32
const MAX_INLINE: usize = LIMITS.inline as usize;

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
    unsafe { initiate(qp, context, sgl, count, flags, Operation::Send) }
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
    let operation = Operation::SendInvalidate { key: remote_token };
    // SAFETY: the consumer's list has `count` elements.
    unsafe { initiate(qp, context, sgl, count, flags, operation) }
}

unsafe extern "efiapi" fn receive(
    qp: *mut NDK_QP,
    context: *mut c_void,
    sgl: *const NDK_SGE,
    count: u32,
) -> NTSTATUS {
    let qp = object!(Qp, qp);
    let mut copy = [Sge::default(); MAX_SGES];
    // SAFETY: the consumer's list has `count` elements.
    let answer = unsafe { sges(sgl, count, &mut copy) };
    status::of(answer.and_then(|sges| qp.receive(context.expose_provenance() as u64, sges)))
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
    let operation = Operation::Read { address: remote_address, key: remote_token };
    // SAFETY: the consumer's list has `count` elements.
    unsafe { initiate(qp, context, sgl, count, flags, operation) }
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
    let operation = Operation::Write { address: remote_address, key: remote_token };
    // SAFETY: the consumer's list has `count` elements.
    unsafe { initiate(qp, context, sgl, count, flags, operation) }
}

///
/// # Safety
/// `sgl` has `count` elements; those of an inline request lead to memory readable during the call.
//= R-QP-1, R-QP-13
unsafe fn initiate(
    qp: *mut NDK_QP,
    context: *mut c_void,
    sgl: *const NDK_SGE,
    count: u32,
    flags: u32,
    operation: Operation,
) -> NTSTATUS {
    let qp = object!(Qp, qp);
    let context = context.expose_provenance() as u64;
    if flags & NDK_OP_FLAG_INLINE != 0 {
        let mut copy = [0; MAX_INLINE];
        // SAFETY: the caller's promise.
        let answer = unsafe { gather(sgl, count, &mut copy) };
        return status::of(match answer {
            Ok(data) => qp.initiate(context, operation, Ok(Data::Inline(&[data])), flags),
            Err(status) => qp.initiate(context, operation, Err(status), flags),
        });
    }
    let mut copy = [Sge::default(); MAX_SGES];
    // SAFETY: the caller's promise.
    let answer = unsafe { sges(sgl, count, &mut copy) };
    status::of(qp.initiate(context, operation, answer.map(Data::Sges), flags))
}

/// A copy of a consumer's list, which may be gone when the post returns.
///
///
/// # Safety
/// `sgl` is null or has `count` elements.
//= R-QP-13, R-QP-14, R-QP-41
pub unsafe fn sges(sgl: *const NDK_SGE, count: u32, copy: &mut [Sge; MAX_SGES]) -> Answer<&[Sge]> {
    let copy = copy.get_mut(..count as usize).ok_or(STATUS_DATA_OVERRUN)?;
    if sgl.is_null() && count != 0 {
        return Err(STATUS_INVALID_PARAMETER);
    }
    for (index, slot) in copy.iter_mut().enumerate() {
        // SAFETY: `index` is below `count`.
        let element = unsafe { element(sgl, index) };
        *slot = Sge { address: address(&element).expose_provenance() as u64, ..numbers(&element) };
    }
    Ok(copy)
}

/// A copy of the data that an inline list leads to, tokens unseen. The longest that any queue pair takes;
/// shorter limits are the queue pair's own.
///
///
/// # Safety
/// `sgl` is null or has `count` elements, and each leads to memory that is readable during the call.
//= R-QP-30, R-QP-32, R-QP-33, R-IRQL-7
unsafe fn gather(sgl: *const NDK_SGE, count: u32, copy: &mut [u8; MAX_INLINE]) -> Answer<&[u8]> {
    if count as usize > MAX_INLINE {
        return Err(STATUS_DATA_OVERRUN);
    }
    if sgl.is_null() && count != 0 {
        return Err(STATUS_INVALID_PARAMETER);
    }
    let mut filled = 0usize;
    for index in 0..count as usize {
        // SAFETY: `index` is below `count`.
        let element = unsafe { element(sgl, index) };
        let length = element.Length as usize;
        let end = filled.checked_add(length).ok_or(STATUS_BUFFER_OVERFLOW)?;
        let room = copy.get_mut(filled..end).ok_or(STATUS_BUFFER_OVERFLOW)?;
        // SAFETY: the caller's promise; `room` is as long, and nobody else's.
        unsafe { core::ptr::copy_nonoverlapping(address(&element).cast(), room.as_mut_ptr(), length) };
        filled = end;
    }
    Ok(copy.get(..filled).unwrap_or_default())
}

/// # Safety
/// `sgl` has more than `index` elements.
unsafe fn element(sgl: *const NDK_SGE, index: usize) -> NDK_SGE {
    // SAFETY: the caller's promise.
    let element = unsafe { sgl.add(index) };
    // SAFETY: the caller's promise.
    unsafe { element.read() }
}

/// Virtual or logical, whichever the token makes it.
fn address(element: &NDK_SGE) -> *mut c_void {
    // SAFETY: both members of the union are eight bytes, any of which are good.
    unsafe { element.Anonymous.VirtualAddress }
}

fn numbers(element: &NDK_SGE) -> Sge {
    Sge { address: 0, length: element.Length, key: element.MemoryRegionToken }
}

//= R-MR-58, R-MR-60, R-MR-61, R-MR-62, R-MR-66
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
    let (mr, mw) = (object!(Mr, mr, refused(&qp)), object!(Mw, mw, refused(&qp)));
    let (access, flags) = rights(flags);
    let binding = Binding {
        region: mr.token(),
        address: address.expose_provenance() as u64,
        length: length as u64,
        access: access & (Access::REMOTE_READ | Access::REMOTE_WRITE),
    };
    let data = mr.normal().and_then(|_| within(length, LIMITS.window)).map(|()| Data::Binding(&binding));
    let operation = Operation::Bind { key: mw.token() };
    let post = || qp.initiate(context.expose_provenance() as u64, operation, data, flags);
    status::of(keeping(&mw, Some(Ref::clone(&mr)), post))
}

/// Posts a request after which `mw` keeps `region`, if the post succeeds.
//= R-CLOSE-14
fn keeping(mw: &Mw, region: Option<Ref<Mr>>, post: impl FnOnce() -> Answer) -> Answer {
    let before = mw.keep(region);
    let answer = post();
    // Once it is posted, it may be complete, and the window closed.
    drop(if answer.is_ok() { before } else { mw.keep(before) });
    answer
}

//= R-MR-30, R-MR-37, R-MR-40
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
    let mr = object!(Mr, mr, refused(&qp));
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
    let data = key.and_then(|_| registration.as_ref().map(Data::Registration).map_err(|status| *status));
    let operation = Operation::FastRegister { key: key.unwrap_or(0) };
    status::of(qp.initiate(context.expose_provenance() as u64, operation, data, flags))
}

//= R-MR-43
unsafe extern "efiapi" fn invalidate(
    qp: *mut NDK_QP,
    context: *mut c_void,
    object: *mut NDK_OBJECT_HEADER,
    flags: u32,
) -> NTSTATUS {
    let qp = object!(Qp, qp);
    let post = |key: Answer<u32>| {
        let operation = Operation::Invalidate { key: key.unwrap_or(0) };
        let data = key.map(|_| Data::Sges(&[]));
        qp.initiate(context.expose_provenance() as u64, operation, data, flags)
    };
    // SAFETY: the consumer's promise about object pointers.
    if let Some(mr) = unsafe { Borrow::<Mr>::new(object.cast()) } {
        return status::of(post(mr.fast().and_then(Fast::key)));
    }
    let mw = object!(Mw, object.cast(), refused(&qp));
    status::of(keeping(&mw, None, || post(Ok(mw.token()))))
}

/// What the rights among the flags of a fast registration or a bind mean, and the flags without them.
//= R-MR-40, R-QP-24
fn rights(flags: u32) -> (Access, u32) {
    let meanings = [
        (NDK_OP_FLAG_ALLOW_REMOTE_READ, Access::REMOTE_READ),
        (NDK_OP_FLAG_ALLOW_LOCAL_WRITE, Access::LOCAL_WRITE),
        // It contains the one before.
        (NDK_OP_FLAG_ALLOW_REMOTE_WRITE, Access::REMOTE_WRITE),
        //= R-MR-11
        (NDK_OP_FLAG_RDMA_READ_SINK, Access::empty()),
    ];
    meanings
        .into_iter()
        .filter(|(bits, _)| flags & bits == *bits)
        .fold((Access::empty(), flags), |(access, rest), (bits, right)| (access | right, rest & !bits))
}

/// Addresses of pages, in the consumer's array.
///
///
/// # Safety
/// `pages` is null or has `count` entries during `'a`.
//= R-MR-32, R-MR-39
unsafe fn page_addresses<'a>(pages: *const NDK_LOGICAL_ADDRESS, count: u32) -> Answer<&'a [u64]> {
    if pages.is_null() || count == 0 || count > LIMITS.fast_pages {
        return Err(STATUS_INVALID_PARAMETER);
    }
    // SAFETY: the caller's promise; an address is eight bytes, any of which are good.
    Ok(unsafe { core::slice::from_raw_parts(pages.cast(), count as usize) })
}

fn within(length: usize, limit: usize) -> Answer {
    if (1..=limit).contains(&length) { Ok(()) } else { Err(STATUS_INVALID_PARAMETER) }
}

/// A failed post like any other, of an object that is none.
//= R-QP-38
fn refused(qp: &Qp) -> NTSTATUS {
    qp.refuse();
    STATUS_INVALID_PARAMETER
}

#[cfg(test)]
mod tests {
    use super::*;

    //= R-MR-40, R-QP-24
    #[test]
    fn rights_are_told_from_flags() {
        assert_eq!(rights(0x201), (Access::empty(), 0x201));
        assert_eq!(rights(0x8), (Access::REMOTE_READ, 0));
        assert_eq!(rights(0x10), (Access::LOCAL_WRITE, 0));
        assert_eq!(rights(0x30 | 1), (Access::LOCAL_WRITE | Access::REMOTE_WRITE, 1));
        assert_eq!(rights(0x80), (Access::empty(), 0));
        // Remote write without what it contains is a bit that means nothing.
        assert_eq!(rights(0x20), (Access::empty(), 0x20));
    }
}
