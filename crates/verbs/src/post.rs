// SPDX-License-Identifier: MIT OR Apache-2.0

//! Work requests.

use core::ffi::c_int;

use verbs_core::qp::{Destination, Service};
use verbs_core::{AtomicOperation, AtomicRequest, Error, SendData, SendOperation, SendRequest};

use crate::abi::flags::{
    IBV_SEND_INLINE, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_BIND_MW,
    IBV_WR_LOCAL_INV, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND,
    IBV_WR_SEND_WITH_IMM, IBV_WR_SEND_WITH_INV,
};
use crate::abi::objects::{IbvQp, IbvRecvWr, IbvSendWr, WrAtomic};
use crate::ah::Ah;
use crate::elements::{Elements, elements, flags, post_receives};
use crate::errno;
use crate::handles;
use crate::mw::binding_of_request;
use crate::qp::Qp;

/// Returns the operation of a request.
fn operation(wr: &IbvSendWr) -> Result<(SendOperation, Option<[u8; 4]>), Error> {
    // SAFETY: every bit pattern is a valid number. Operations of other fields do not use it.
    let rdma = unsafe { wr.wr.rdma };
    let (address, key) = (rdma.remote_addr, rdma.rkey);
    let immediate = Some(wr.imm_data.to_ne_bytes());
    Ok(match wr.opcode {
        IBV_WR_SEND => (SendOperation::Send, None),
        IBV_WR_SEND_WITH_IMM => (SendOperation::Send, immediate),
        IBV_WR_SEND_WITH_INV => (SendOperation::SendInvalidate { key: wr.imm_data }, None),
        IBV_WR_RDMA_WRITE => (SendOperation::Write { address, key }, None),
        IBV_WR_RDMA_WRITE_WITH_IMM => (SendOperation::Write { address, key }, immediate),
        IBV_WR_RDMA_READ => (SendOperation::Read { address, key }, None),
        IBV_WR_LOCAL_INV => (SendOperation::Invalidate { key: wr.imm_data }, None),
        _ => return Err(Error::Unsupported),
    })
}

/// Returns the atomic operation of a request, if it is one.
fn atomic(wr: &IbvSendWr) -> Option<(AtomicOperation, WrAtomic)> {
    // SAFETY: every bit pattern is a valid number. Operations of other fields do not use it.
    let remote = unsafe { wr.wr.atomic };
    let operation = match wr.opcode {
        IBV_WR_ATOMIC_CMP_AND_SWP => {
            AtomicOperation::CompareSwap { compare: remote.compare_add, swap: remote.swap }
        }
        IBV_WR_ATOMIC_FETCH_AND_ADD => AtomicOperation::FetchAdd { add: remote.compare_add },
        _ => return None,
    };
    Some((operation, remote))
}

/// Posts one request of a list.
///
/// # Safety
/// The request is one of a program.
unsafe fn post_one(qp: &Qp, wr: &IbvSendWr) -> Result<(), Error> {
    let flags = flags(wr.send_flags)?;
    let is_inline = wr.send_flags & IBV_SEND_INLINE != 0;
    if wr.opcode == IBV_WR_BIND_MW {
        // SAFETY: every bit pattern is a valid value; a request of this operation has these fields.
        let bind = unsafe { wr.tail.bind_mw };
        let binding = binding_of_request(bind.mw, bind.rkey, &bind.bind_info)?;
        let operation = SendOperation::Bind { key: bind.rkey };
        let data = SendData::Binding(&binding);
        let request = SendRequest { context: wr.wr_id, operation, flags, data };
        return qp.core.post_send(&request, None);
    }
    if let Some((operation, remote)) = atomic(wr) {
        // SAFETY: the program passes as many elements as it says.
        let elements = Elements::of(unsafe { elements(wr.sg_list, wr.num_sge) }?)?;
        let (&[sink], false) = (elements.as_slice(), is_inline) else { return Err(Error::Invalid) };
        return qp.core.post_atomic(&AtomicRequest {
            context: wr.wr_id,
            address: remote.remote_addr,
            key: remote.rkey,
            operation,
            flags,
            sink,
        });
    }
    let (operation, immediate) = operation(wr)?;
    // SAFETY: the program passes as many elements as it says.
    let elements = Elements::of(unsafe { elements(wr.sg_list, wr.num_sge) }?)?;
    let post = |data: SendData<'_>| {
        let request = SendRequest { context: wr.wr_id, operation, flags, data };
        if qp.core.spec().service != Service::Datagram {
            return qp.core.post_send(&request, immediate);
        }
        // SAFETY: a request to a queue pair for datagrams has these fields.
        let ud = unsafe { wr.wr.ud };
        let ah = handles::get::<Ah>(ud.ah)?;
        let to = Destination { handle: &ah.core, qpn: ud.remote_qpn, q_key: ud.remote_qkey, immediate };
        qp.core.post_datagram(&to, &request)
    };
    // SAFETY: inline elements of a program are readable memory.
    unsafe { elements.with_data(is_inline, post) }
}

/// Posts requests to a send queue. The first one that fails ends the call.
pub unsafe extern "C" fn post_send(qp: *mut IbvQp, wr: *mut IbvSendWr, bad_wr: *mut *mut IbvSendWr) -> c_int {
    // SAFETY: the program passes a queue pair.
    let Some(qp) = (unsafe { handles::trusted::<Qp>(qp) }) else { return libc::EINVAL };
    let mut next = wr;
    let mut result = 0;
    // SAFETY: the program passes a list of requests that ends with a null pointer.
    while let Some(wr) = unsafe { next.as_ref() } {
        // SAFETY: the request is an element of the program's list, with the entries that it names.
        if let Err(error) = unsafe { post_one(qp, wr) } {
            // SAFETY: the program passes a pointer that the call may write.
            unsafe { bad_wr.write(next) };
            result = errno::number(error);
            break;
        }
        next = wr.next;
    }
    qp.core.start();
    result
}

/// Posts receives to a queue pair.
pub unsafe extern "C" fn post_recv(qp: *mut IbvQp, wr: *mut IbvRecvWr, bad_wr: *mut *mut IbvRecvWr) -> c_int {
    // SAFETY: the program passes a queue pair.
    let Some(qp) = (unsafe { handles::trusted::<Qp>(qp) }) else { return libc::EINVAL };
    // SAFETY: the program passes a list of requests.
    let result = unsafe { post_receives(wr, bad_wr, |request| qp.core.post_receive(request)) };
    qp.core.receives_posted();
    result
}
