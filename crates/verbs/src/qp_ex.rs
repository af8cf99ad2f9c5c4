// SPDX-License-Identifier: MIT OR Apache-2.0

//! Work requests of extended queue pairs: the functions behind `ibv_wr_start`, `ibv_wr_send` and the like.
//!
//! Requests are collected, and posted when the program completes them. An aborted list leaves nothing behind.

use core::ffi::{c_int, c_void};

use verbs_core::qp::{Destination, QueuePair, Service};
use verbs_core::{AtomicOperation, AtomicRequest, Error, SendData, SendOperation, SendRequest, limits};

use crate::abi::attributes::IbvQpInitAttrEx;
use crate::abi::context::IbvContext;
use crate::abi::flags::{
    IBV_QP_INIT_ATTR_CREATE_FLAGS, IBV_QP_INIT_ATTR_PD, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, IBV_SEND_INLINE,
};
use crate::abi::objects::{IbvAh, IbvDataBuf, IbvMw, IbvMwBindInfo, IbvQp, IbvQpEx, IbvSge};
use crate::ah::Ah;
use crate::builder::{Data, List, Operation, Pending};
use crate::elements::flags;
use crate::errno;
use crate::handles;
use crate::mw::binding_of_request;
use crate::qp::{self, Operations, Qp};

/// Posts all requests of a list, or none: a program that hears of an error may post all of them again.
fn post_all(list: &List, qp: &QueuePair) -> Result<(), Error> {
    if let Some(error) = list.error {
        return Err(error);
    }
    for request in &list.requests {
        check(request, list, qp)?;
    }
    if list.requests.len() > qp.free_requests() as usize {
        return Err(Error::OutOfMemory);
    }
    for request in &list.requests {
        let pieces;
        let data = match &request.data {
            Data::Elements(range) => SendData::Sges(&list.elements[range.clone()]),
            Data::Inline(range) => {
                pieces = [&list.bytes[range.clone()]];
                SendData::Inline(&pieces)
            }
            Data::Binding(binding) => SendData::Binding(binding),
        };
        post_one(qp, request, data)?;
    }
    Ok(())
}

/// Checks what makes the post of a request fail, but for the state of the queue pair, with which the first one fails.
fn check(request: &Pending, list: &List, qp: &QueuePair) -> Result<(), Error> {
    let (service, sizes) = (qp.spec().service, qp.capabilities());
    let operation = match request.operation {
        Operation::Send(operation) => Some(operation),
        Operation::Atomic { .. } => None,
    };
    let is_offered = match operation {
        Some(SendOperation::Send) => true,
        Some(SendOperation::Write { .. }) => service != Service::Datagram,
        _ => service == Service::Reliable,
    };
    let fits = match &request.data {
        Data::Elements(range) => {
            let elements = &list.elements[range.clone()];
            let bytes: u64 = elements.iter().map(|element| u64::from(element.length)).sum();
            let most = if operation.is_none() { 1 } else { sizes.send_elements as usize };
            elements.len() <= most && bytes <= limits::MESSAGE.into() && (operation.is_some() || bytes == 8)
        }
        Data::Inline(range) => {
            let takes = matches!(operation, Some(SendOperation::Send | SendOperation::Write { .. }));
            takes && range.len() <= sizes.inline as usize
        }
        Data::Binding(_) => true,
    };
    if service == Service::Datagram {
        let (ah, ..) = request.to.ok_or(Error::Invalid)?;
        handles::get::<Ah>(ah)?;
    }
    flags(request.flags)?;
    if is_offered && fits { Ok(()) } else { Err(Error::Invalid) }
}

fn post_one(qp: &QueuePair, pending: &Pending, data: SendData<'_>) -> Result<(), Error> {
    let Pending { id, operation, immediate, .. } = *pending;
    let flags = flags(pending.flags)?;
    let operation = match operation {
        Operation::Send(operation) => operation,
        Operation::Atomic { operation, address, key } => {
            let SendData::Sges(&[sink]) = data else { return Err(Error::Invalid) };
            return qp.post_atomic(&AtomicRequest { context: id, address, key, operation, flags, sink });
        }
    };
    let request = SendRequest { context: id, operation, flags, data };
    if qp.spec().service != Service::Datagram {
        return qp.post_send(&request, immediate);
    }
    let (ah, qpn, q_key) = pending.to.ok_or(Error::Invalid)?;
    let ah = handles::get::<Ah>(ah)?;
    qp.post_datagram(&Destination { handle: &ah.core, qpn, q_key, immediate }, &request)
}

/// Creates an extended queue pair.
pub fn create_extended(attr: &mut IbvQpInitAttrEx) -> Result<*mut IbvQp, Error> {
    let mask = attr.comp_mask;
    let flags = if mask & IBV_QP_INIT_ATTR_CREATE_FLAGS == 0 { 0 } else { attr.create_flags };
    let known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    if mask & !known != 0 || flags != 0 {
        return Err(Error::Unsupported);
    }
    if mask & IBV_QP_INIT_ATTR_PD == 0 {
        return Err(Error::Invalid);
    }
    let mut base = qp::base_of(attr);
    let operations = Operations { flags: attr.send_ops_flags, set_functions };
    let operations = (mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS != 0).then_some(operations);
    let created = qp::create(attr.pd, &mut base, operations)?;
    attr.cap = base.cap;
    Ok(created)
}

/// Creates an extended queue pair.
pub unsafe extern "C" fn create_qp_ex(_context: *mut IbvContext, attr: *mut IbvQpInitAttrEx) -> *mut IbvQp {
    // SAFETY: the program passes a structure that the call may change.
    errno::pointer(create_extended(unsafe { &mut *attr }))
}

/// Sets the functions of a queue pair.
pub fn set_functions(qp: &mut IbvQpEx) {
    qp.wr_start = Some(wr_start);
    qp.wr_complete = Some(wr_complete);
    qp.wr_abort = Some(wr_abort);
    qp.wr_send = Some(wr_send);
    qp.wr_send_imm = Some(wr_send_imm);
    qp.wr_send_inv = Some(wr_send_inv);
    qp.wr_rdma_write = Some(wr_rdma_write);
    qp.wr_rdma_write_imm = Some(wr_rdma_write_imm);
    qp.wr_rdma_read = Some(wr_rdma_read);
    qp.wr_local_inv = Some(wr_local_inv);
    qp.wr_bind_mw = Some(wr_bind_mw);
    qp.wr_atomic_cmp_swp = Some(wr_atomic_cmp_swp);
    qp.wr_atomic_fetch_add = Some(wr_atomic_fetch_add);
    qp.wr_set_ud_addr = Some(wr_set_ud_addr);
    qp.wr_set_sge = Some(wr_set_sge);
    qp.wr_set_sge_list = Some(wr_set_sge_list);
    qp.wr_set_inline_data = Some(wr_set_inline_data);
    qp.wr_set_inline_data_list = Some(wr_set_inline_data_list);
}

/// Calls `change` with the list of a queue pair.
///
/// # Safety
/// The program passes an extended queue pair, and has started the list.
unsafe fn with_list(qp: *mut IbvQpEx, change: impl FnOnce(&mut List)) {
    // SAFETY: by the contract of this function.
    if let Some(found) = unsafe { handles::trusted::<Qp>(qp.cast()) } {
        // SAFETY: the thread that has started the list has the lock, and no other reference to the list is live.
        change(unsafe { &mut *found.builder.list() });
    }
}

/// Begins a request.
///
/// # Safety
/// As for [`with_list`].
unsafe fn begin(qp: *mut IbvQpEx, operation: Operation, immediate: Option<u32>) {
    // SAFETY: the program sets these fields before each request, in the thread that builds it.
    let fields = unsafe { &*qp };
    let (id, flags) = (fields.wr_id, fields.wr_flags);
    let immediate = immediate.map(u32::to_ne_bytes);
    // Whether data is inline follows from how it is set.
    let flags = flags & !IBV_SEND_INLINE;
    let pending = Pending { id, flags, operation, immediate, to: None, data: Data::Elements(0..0) };
    // SAFETY: by the contract of this function.
    unsafe { with_list(qp, |list| list.requests.push(pending)) };
}

unsafe extern "C" fn wr_start(qp: *mut IbvQpEx) {
    // SAFETY: the program passes an extended queue pair.
    if let Some(found) = unsafe { handles::trusted::<Qp>(qp.cast()) } {
        found.builder.lock();
    }
    // SAFETY: as above; this thread has the lock.
    unsafe { with_list(qp, List::clear) };
}

unsafe extern "C" fn wr_complete(qp: *mut IbvQpEx) -> c_int {
    // SAFETY: the program passes an extended queue pair.
    let found = unsafe { handles::trusted::<Qp>(qp.cast()) };
    let Some(found) = found.filter(|qp| qp.builder.is_locked()) else { return libc::EINVAL };
    let mut posted = Ok(());
    // SAFETY: the program has started the list.
    unsafe { with_list(qp, |list| posted = post_all(list, &found.core)) };
    // SAFETY: this thread has locked it in `wr_start`.
    unsafe { found.builder.unlock() };
    found.core.start();
    errno::status(posted)
}

unsafe extern "C" fn wr_abort(qp: *mut IbvQpEx) {
    // SAFETY: the program passes an extended queue pair.
    let found = unsafe { handles::trusted::<Qp>(qp.cast()) };
    if let Some(found) = found.filter(|qp| qp.builder.is_locked()) {
        // SAFETY: this thread has locked it in `wr_start`.
        unsafe { found.builder.unlock() };
    }
}

macro_rules! operations {
    ($($name:ident($($argument:ident: $kind:ty),*) $operation:expr, $immediate:expr;)+) => {$(
        unsafe extern "C" fn $name(qp: *mut IbvQpEx $(, $argument: $kind)*) {
            // SAFETY: the program passes an extended queue pair, and has started the list.
            unsafe { begin(qp, Operation::Send($operation), $immediate) };
        }
    )+};
}

operations! {
    wr_send() SendOperation::Send, None;
    wr_send_imm(data: u32) SendOperation::Send, Some(data);
    wr_send_inv(key: u32) SendOperation::SendInvalidate { key }, None;
    wr_rdma_write(key: u32, address: u64) SendOperation::Write { address, key }, None;
    wr_rdma_write_imm(key: u32, address: u64, data: u32) SendOperation::Write { address, key }, Some(data);
    wr_rdma_read(key: u32, address: u64) SendOperation::Read { address, key }, None;
    wr_local_inv(key: u32) SendOperation::Invalidate { key }, None;
}

unsafe extern "C" fn wr_atomic_cmp_swp(qp: *mut IbvQpEx, key: u32, address: u64, compare: u64, swap: u64) {
    let operation = AtomicOperation::CompareSwap { compare, swap };
    // SAFETY: the program passes an extended queue pair, and has started the list.
    unsafe { begin(qp, Operation::Atomic { operation, address, key }, None) };
}

unsafe extern "C" fn wr_atomic_fetch_add(qp: *mut IbvQpEx, key: u32, address: u64, add: u64) {
    let operation = AtomicOperation::FetchAdd { add };
    // SAFETY: the program passes an extended queue pair, and has started the list.
    unsafe { begin(qp, Operation::Atomic { operation, address, key }, None) };
}

unsafe extern "C" fn wr_bind_mw(qp: *mut IbvQpEx, mw: *mut IbvMw, key: u32, info: *const IbvMwBindInfo) {
    // SAFETY: the program passes a structure.
    let binding = binding_of_request(mw, key, unsafe { &*info });
    // SAFETY: the program passes an extended queue pair, and has started the list.
    unsafe { begin(qp, Operation::Send(SendOperation::Bind { key }), None) };
    let set = |list: &mut List| match (binding, list.current()) {
        (Ok(binding), Some(request)) => request.data = Data::Binding(binding),
        (Err(error), _) => list.error = Some(error),
        (Ok(_), None) => {}
    };
    // SAFETY: the queue pair is the one of `begin`, on which the program has started the list.
    unsafe { with_list(qp, set) };
}

unsafe extern "C" fn wr_set_ud_addr(qp: *mut IbvQpEx, ah: *mut IbvAh, qpn: u32, q_key: u32) {
    let set = |list: &mut List| {
        if let Some(request) = list.current() {
            request.to = Some((ah, qpn, q_key));
        }
    };
    // SAFETY: the program passes an extended queue pair, and has started the list.
    unsafe { with_list(qp, set) };
}

unsafe extern "C" fn wr_set_sge(qp: *mut IbvQpEx, lkey: u32, addr: u64, length: u32) {
    // SAFETY: the program passes an extended queue pair, and has started the list.
    unsafe { with_list(qp, |list| list.set_elements(&[IbvSge { addr, length, lkey }])) };
}

unsafe extern "C" fn wr_set_sge_list(qp: *mut IbvQpEx, count: usize, elements: *const IbvSge) {
    // SAFETY: the program passes that many elements, if any.
    let elements = if count == 0 { &[] } else { unsafe { core::slice::from_raw_parts(elements, count) } };
    // SAFETY: the program passes an extended queue pair, and has started the list.
    unsafe { with_list(qp, |list| list.set_elements(elements)) };
}

unsafe extern "C" fn wr_set_inline_data(qp: *mut IbvQpEx, addr: *mut c_void, length: usize) {
    let buffer = IbvDataBuf { addr, length };
    // SAFETY: the program passes readable memory.
    unsafe { wr_set_inline_data_list(qp, 1, &raw const buffer) };
}

unsafe extern "C" fn wr_set_inline_data_list(qp: *mut IbvQpEx, count: usize, buffers: *const IbvDataBuf) {
    // SAFETY: the program passes that many buffers, if any.
    let buffers = if count == 0 { &[] } else { unsafe { core::slice::from_raw_parts(buffers, count) } };
    let copy = |bytes: &mut Vec<u8>| {
        for buffer in buffers.iter().filter(|buffer| buffer.length > 0) {
            // SAFETY: the program passes readable memory.
            bytes.extend_from_slice(unsafe {
                core::slice::from_raw_parts(buffer.addr.cast::<u8>(), buffer.length)
            });
        }
    };
    // SAFETY: the program passes an extended queue pair, and has started the list.
    unsafe { with_list(qp, |list| list.set_inline(copy)) };
}
