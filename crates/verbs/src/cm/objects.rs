// SPDX-License-Identifier: MIT OR Apache-2.0

//! Queue pairs of identifiers, with the completion queues that are created for them.

use core::ffi::c_int;

use verbs_core::Error;
use verbs_core::qp::QpState;

use super::id::{find, shown, update};
use crate::abi::attributes::{IbvQpAttr, IbvQpInitAttr, IbvQpInitAttrEx, IbvSrqInitAttr, IbvSrqInitAttrEx};
use crate::abi::flags::{IBV_QP_INIT_ATTR_PD, IBV_QPT_UD};
use crate::abi::objects::{IbvCompChannel, IbvCq, IbvPd, IbvQp};
use crate::abi::rdma::RdmaCmId;
use crate::channel::{ibv_create_comp_channel, ibv_destroy_comp_channel};
use crate::cq::{ibv_create_cq, ibv_destroy_cq};
use crate::qp::{self, Qp};
use crate::srq::{self, ibv_destroy_srq};
use crate::{errno, handles, qp_ex};

/// Changes the queue pair of an identifier to a state, as connection management says.
pub fn change_qp(id: *mut RdmaCmId, to: QpState) -> Result<(), Error> {
    let qp = shown(id).qp;
    if qp.is_null() {
        return Ok(());
    }
    let (attributes, mask) = find(id)?.core.qp_attributes(to)?;
    let found = handles::get::<Qp>(qp)?;
    found.core.modify(&attributes, mask)?;
    qp::set_state(qp, to);
    Ok(())
}

/// Puts the queue pair of an identifier in error, if there is one.
pub fn fail_qp(id: *mut RdmaCmId) {
    let qp = shown(id).qp;
    if let Ok(found) = handles::get::<Qp>(qp) {
        // Possible in every state.
        let _ = found.core.fail();
        qp::set_state(qp, found.core.state());
    }
}

/// Creates a completion queue with a channel.
fn create_cq(id: *mut RdmaCmId, size: u32) -> Result<(*mut IbvCompChannel, *mut IbvCq), Error> {
    let context = shown(id).verbs;
    // SAFETY: the identifier has a context.
    let channel = unsafe { ibv_create_comp_channel(context) };
    if channel.is_null() {
        return Err(errno::last());
    }
    let size = c_int::try_from(size.max(1)).unwrap_or(c_int::MAX);
    // SAFETY: as above; the channel was created just now.
    let cq = unsafe { ibv_create_cq(context, size, id.cast(), channel, 0) };
    if cq.is_null() {
        let error = errno::last();
        // SAFETY: the channel was created above, and no completion queue uses it.
        unsafe { ibv_destroy_comp_channel(channel) };
        return Err(error);
    }
    Ok((channel, cq))
}

/// Creates the completion queues that the attributes lack.
fn create_cqs(id: *mut RdmaCmId, attr: &mut IbvQpInitAttr) -> Result<(), Error> {
    if attr.send_cq.is_null() {
        let (channel, cq) = create_cq(id, attr.cap.max_send_wr)?;
        update(id, |shown| (shown.send_cq_channel, shown.send_cq) = (channel, cq));
        attr.send_cq = cq;
    }
    if attr.recv_cq.is_null() {
        let (channel, cq) = create_cq(id, attr.cap.max_recv_wr)?;
        update(id, |shown| (shown.recv_cq_channel, shown.recv_cq) = (channel, cq));
        attr.recv_cq = cq;
    }
    Ok(())
}

fn destroy_cqs(id: *mut RdmaCmId) {
    let RdmaCmId { send_cq, send_cq_channel, recv_cq, recv_cq_channel, .. } = shown(id);
    for (cq, channel) in [(send_cq, send_cq_channel), (recv_cq, recv_cq_channel)] {
        if !cq.is_null() {
            // SAFETY: `create_cqs` has created the queue, and the identifier destroys it once.
            unsafe { ibv_destroy_cq(cq) };
            // SAFETY: `create_cqs` has created the channel for this queue, which is gone.
            unsafe { ibv_destroy_comp_channel(channel) };
        }
    }
    update(id, |shown| {
        shown.send_cq = core::ptr::null_mut();
        shown.send_cq_channel = core::ptr::null_mut();
        shown.recv_cq = core::ptr::null_mut();
        shown.recv_cq_channel = core::ptr::null_mut();
    });
}

/// Creates the queue pair of an identifier with `make`, and brings it to its first state.
fn attach(
    id: *mut RdmaCmId,
    pd: *mut IbvPd,
    attr: &mut IbvQpInitAttr,
    make: impl FnOnce(*mut IbvPd, &mut IbvQpInitAttr) -> Result<*mut IbvQp, Error>,
) -> Result<(), Error> {
    find(id)?;
    let current = shown(id);
    if !current.qp.is_null() || current.verbs.is_null() {
        return Err(Error::Invalid);
    }
    let pd = if pd.is_null() { current.pd } else { pd };
    if attr.srq.is_null() {
        attr.srq = current.srq;
    }
    let given = (attr.send_cq, attr.recv_cq);
    let created = create_cqs(id, attr).and_then(|()| make(pd, attr)).and_then(|qp| {
        update(id, |shown| (shown.qp, shown.pd) = (qp, pd));
        change_qp(id, QpState::Init)?;
        if attr.qp_type == IBV_QPT_UD {
            change_qp(id, QpState::ReadyToReceive)?;
            change_qp(id, QpState::ReadyToSend)?;
        }
        Ok(())
    });
    if created.is_err() {
        detach(id);
        (attr.send_cq, attr.recv_cq) = given;
    }
    created
}

/// Destroys the queue pair of an identifier, and its completion queues.
fn detach(id: *mut RdmaCmId) {
    let qp = shown(id).qp;
    if !qp.is_null() {
        // SAFETY: `attach` has created the queue pair, and it is forgotten below.
        unsafe { qp::ibv_destroy_qp(qp) };
        update(id, |shown| shown.qp = core::ptr::null_mut());
    }
    destroy_cqs(id);
}

/// Creates the queue pair of an identifier.
pub fn create_qp(id: *mut RdmaCmId, pd: *mut IbvPd, attr: &mut IbvQpInitAttr) -> Result<(), Error> {
    attach(id, pd, attr, |pd, attr| qp::create(pd, attr, None))
}

/// Creates the queue pair of an identifier.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_create_qp(
    id: *mut RdmaCmId,
    pd: *mut IbvPd,
    attr: *mut IbvQpInitAttr,
) -> c_int {
    // SAFETY: the program passes a structure that the call may change.
    errno::flag(create_qp(id, pd, unsafe { &mut *attr }))
}

/// Creates the queue pair of an identifier, an extended one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_create_qp_ex(id: *mut RdmaCmId, attr: *mut IbvQpInitAttrEx) -> c_int {
    // SAFETY: the program passes a structure that the call may change.
    let attr = unsafe { &mut *attr };
    let pd = if attr.comp_mask & IBV_QP_INIT_ATTR_PD == 0 { core::ptr::null_mut() } else { attr.pd };
    let mut base = qp::base_of(attr);
    errno::flag(attach(id, pd, &mut base, |pd, base| {
        let comp_mask = attr.comp_mask | IBV_QP_INIT_ATTR_PD;
        let IbvQpInitAttr { send_cq, recv_cq, srq, .. } = *base;
        let mut whole = IbvQpInitAttrEx { send_cq, recv_cq, srq, comp_mask, pd, ..*attr };
        let created = qp_ex::create_extended(&mut whole)?;
        *attr = whole;
        Ok(created)
    }))
}

/// Destroys the queue pair of an identifier.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_destroy_qp(id: *mut RdmaCmId) {
    if find(id).is_ok() {
        detach(id);
    }
}

/// Creates the shared receive queue of an identifier.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_create_srq(
    id: *mut RdmaCmId,
    pd: *mut IbvPd,
    attr: *mut IbvSrqInitAttr,
) -> c_int {
    errno::flag(find(id).and_then(|_| {
        let pd = if pd.is_null() { shown(id).pd } else { pd };
        // SAFETY: the program passes a structure that the call may change.
        let srq = unsafe { srq::ibv_create_srq(pd, attr) };
        attach_srq(id, pd, srq)
    }))
}

/// Creates the shared receive queue of an identifier; of the basic type only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_create_srq_ex(id: *mut RdmaCmId, attr: *mut IbvSrqInitAttrEx) -> c_int {
    errno::flag(find(id).and_then(|_| {
        // SAFETY: the program passes a structure that the call may change.
        let attr = unsafe { &mut *attr };
        if attr.pd.is_null() {
            attr.pd = shown(id).pd;
        }
        // SAFETY: `attr` is the program's structure, and the identifier shows its open device.
        let srq = unsafe { srq::create_srq_ex(shown(id).verbs, attr) };
        attach_srq(id, attr.pd, srq)
    }))
}

fn attach_srq(id: *mut RdmaCmId, pd: *mut IbvPd, srq: *mut crate::abi::objects::IbvSrq) -> Result<(), Error> {
    if srq.is_null() {
        return Err(errno::last());
    }
    update(id, |shown| (shown.srq, shown.pd) = (srq, pd));
    Ok(())
}

/// Destroys the shared receive queue of an identifier.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_destroy_srq(id: *mut RdmaCmId) {
    if find(id).is_ok() {
        // SAFETY: null, or the queue that was created for the identifier.
        unsafe { ibv_destroy_srq(shown(id).srq) };
        update(id, |shown| shown.srq = core::ptr::null_mut());
    }
}

/// Returns the attributes for a change of a queue pair that the program has created itself, to the state that it has set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_init_qp_attr(
    id: *mut RdmaCmId,
    attr: *mut IbvQpAttr,
    mask: *mut c_int,
) -> c_int {
    errno::flag(find(id).and_then(|found| {
        // SAFETY: the program passes a structure with the state.
        let wanted = qp::state(unsafe { (*attr).qp_state })?;
        let (attributes, named) = found.core.qp_attributes(wanted)?;
        // SAFETY: the call may write the structure.
        unsafe { attr.write(qp::shown_attributes(&attributes)) };
        // SAFETY: the program passes a number that the call may write.
        unsafe { mask.write(named.bits().cast_signed()) };
        Ok(())
    }))
}
