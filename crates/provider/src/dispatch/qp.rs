//! `NDK_QP_DISPATCH`, and the consumers' scatter/gather lists.

use super::{close, object, query_extension};
use crate::info::LIMITS;
use crate::qp::Qp;
use crate::status::{self, Answer};
use core::ffi::c_void;
use ndk_abi::ndk::{
    NDK_LOGICAL_ADDRESS, NDK_MR, NDK_MW, NDK_OBJECT_HEADER, NDK_OP_FLAG_INLINE, NDK_QP, NDK_QP_DISPATCH,
    NDK_SGE,
};
use ndk_abi::nt::{
    NTSTATUS, STATUS_BUFFER_OVERFLOW, STATUS_DATA_OVERRUN, STATUS_INVALID_PARAMETER, STATUS_NOT_SUPPORTED,
};
use roce::{Data, Operation, Sge};

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

/// Bytes of the longest inline request, and elements of the longest list of one. //= R-QP-32
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

/// Not offered: peers have nothing to invalidate.
unsafe extern "efiapi" fn send_and_invalidate(
    qp: *mut NDK_QP,
    _context: *mut c_void,
    _sgl: *const NDK_SGE,
    _count: u32,
    _flags: u32,
    _remote_token: u32,
) -> NTSTATUS {
    let qp = object!(Qp, qp);
    not_offered(&qp)
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

/// //= R-QP-49, R-QP-50, R-QP-51, R-QP-87
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

/// //= R-QP-49, R-QP-50
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

/// //= R-QP-1, R-QP-13
///
/// # Safety
/// `sgl` has `count` elements; those of an inline request lead to memory readable during the call.
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
/// //= R-QP-13, R-QP-14, R-QP-41
///
/// # Safety
/// `sgl` is null or has `count` elements.
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
/// //= R-QP-30, R-QP-32, R-QP-33, R-IRQL-7
///
/// # Safety
/// `sgl` is null or has `count` elements, and each leads to memory that is readable during the call.
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

/// Not offered.
unsafe extern "efiapi" fn bind(
    qp: *mut NDK_QP,
    _context: *mut c_void,
    _mr: *mut NDK_MR,
    _mw: *mut NDK_MW,
    _address: *mut c_void,
    _length: usize,
    _flags: u32,
) -> NTSTATUS {
    let qp = object!(Qp, qp);
    not_offered(&qp)
}

/// Not offered.
unsafe extern "efiapi" fn fast_register(
    qp: *mut NDK_QP,
    _context: *mut c_void,
    _mr: *mut NDK_MR,
    _pages: u32,
    _page_array: *const NDK_LOGICAL_ADDRESS,
    _offset: u32,
    _length: usize,
    _base: *mut c_void,
    _flags: u32,
) -> NTSTATUS {
    let qp = object!(Qp, qp);
    not_offered(&qp)
}

/// Not offered.
unsafe extern "efiapi" fn invalidate(
    qp: *mut NDK_QP,
    _context: *mut c_void,
    _region: *mut NDK_OBJECT_HEADER,
    _flags: u32,
) -> NTSTATUS {
    let qp = object!(Qp, qp);
    not_offered(&qp)
}

/// A failed post like any other. //= R-QP-38
fn not_offered(qp: &Qp) -> NTSTATUS {
    qp.refuse();
    STATUS_NOT_SUPPORTED
}
