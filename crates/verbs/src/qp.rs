// SPDX-License-Identifier: MIT OR Apache-2.0

//! Queue pairs.

use core::ffi::{c_int, c_void};
use core::mem::zeroed;
use std::sync::Arc;

use verbs_core::Error;
use verbs_core::qp::{Capabilities, Mask, QpAttributes, QpState, QueuePair, QueuePairSpec, Service};

use crate::abi::attributes::{IbvEce, IbvQpAttr, IbvQpCap, IbvQpInitAttr, IbvQpInitAttrEx};
use crate::abi::flags::{
    IBV_QPS_ERR, IBV_QPS_INIT, IBV_QPS_RESET, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPS_SQE, IBV_QPT_RC,
    IBV_QPT_UC, IBV_QPT_UD,
};
use crate::abi::objects::{IbvPd, IbvQp, IbvQpEx};
use crate::builder::Builder;
use crate::cq::Cq;
use crate::handles::{self, Handle};
use crate::pd::Pd;
use crate::srq::Srq;
use crate::{ah, errno, tables};

/// A queue pair. All are extended ones.
#[repr(C)]
pub struct Qp {
    base: IbvQpEx,
    pub core: Arc<QueuePair>,
    pub builder: Builder,
}

// SAFETY: it is `repr(C)` and begins with an `IbvQpEx`, which begins with an `IbvQp`.
unsafe impl Handle for Qp {
    type C = IbvQp;
}

/// States with their numbers.
const STATES: [(QpState, c_int); 7] = [
    (QpState::Reset, IBV_QPS_RESET),
    (QpState::Init, IBV_QPS_INIT),
    (QpState::ReadyToReceive, IBV_QPS_RTR),
    (QpState::ReadyToSend, IBV_QPS_RTS),
    (QpState::Drained, IBV_QPS_SQD),
    (QpState::SendError, IBV_QPS_SQE),
    (QpState::Error, IBV_QPS_ERR),
];

/// Returns the number of a state.
pub fn state_number(state: QpState) -> c_int {
    STATES.iter().find(|(known, _)| *known == state).map_or(-1, |&(_, number)| number)
}

/// Returns the state of a number.
pub fn state(number: c_int) -> Result<QpState, Error> {
    let found = STATES.iter().find(|(_, known)| *known == number);
    found.map(|&(state, _)| state).ok_or(Error::Invalid)
}

fn service(qp_type: c_int) -> Result<Service, Error> {
    match qp_type {
        IBV_QPT_RC => Ok(Service::Reliable),
        IBV_QPT_UC => Ok(Service::Unreliable),
        IBV_QPT_UD => Ok(Service::Datagram),
        _ => Err(Error::Unsupported),
    }
}

fn capabilities(cap: &IbvQpCap) -> Capabilities {
    Capabilities {
        send_requests: cap.max_send_wr,
        receive_requests: cap.max_recv_wr,
        send_elements: cap.max_send_sge,
        receive_elements: cap.max_recv_sge,
        inline: cap.max_inline_data,
    }
}

fn cap(capabilities: Capabilities) -> IbvQpCap {
    IbvQpCap {
        max_send_wr: capabilities.send_requests,
        max_recv_wr: capabilities.receive_requests,
        max_send_sge: capabilities.send_elements,
        max_recv_sge: capabilities.receive_elements,
        max_inline_data: capabilities.inline,
    }
}

/// Operations of extended queue pairs, `ibv_qp_create_send_ops_flags`: SENDs, WRITEs, and the others.
const SENDS: u64 = 1 << 2 | 1 << 3;
const WRITES: u64 = 1 | 1 << 1;
const OTHER_OPERATIONS: u64 = 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8 | 1 << 9;

/// In the mask of an extended queue pair: it has functions for send operations.
const SEND_OPERATIONS: u64 = 1;

fn check_operations(service: Service, operations: u64) -> Result<(), Error> {
    let offered = match service {
        Service::Datagram => SENDS,
        Service::Unreliable => SENDS | WRITES,
        Service::Reliable => SENDS | WRITES | OTHER_OPERATIONS,
    };
    if operations & !offered == 0 { Ok(()) } else { Err(Error::Unsupported) }
}

/// Operations of an extended queue pair.
#[derive(Clone, Copy)]
pub struct Operations {
    /// `ibv_qp_create_send_ops_flags`.
    pub flags: u64,
    /// Sets the functions by which they are built.
    pub set_functions: fn(&mut IbvQpEx),
}

/// Creates a queue pair; an extended one if there are operations.
pub fn create(
    pd: *mut IbvPd,
    attr: &mut IbvQpInitAttr,
    operations: Option<Operations>,
) -> Result<*mut IbvQp, Error> {
    let domain = handles::get::<Pd>(pd)?;
    let service = service(attr.qp_type)?;
    let send_cq = Arc::clone(&handles::get::<Cq>(attr.send_cq)?.core);
    let receive_cq = Arc::clone(&handles::get::<Cq>(attr.recv_cq)?.core);
    let srq = if attr.srq.is_null() { None } else { Some(Arc::clone(&handles::get::<Srq>(attr.srq)?.core)) };
    if let Some(operations) = &operations {
        check_operations(service, operations.flags)?;
    }
    let mut asked = capabilities(&attr.cap);
    if srq.is_some() {
        asked.receive_requests = 0;
        asked.receive_elements = 0;
    }
    handles::create_with(|pointer: *mut IbvQp| {
        let core = QueuePair::new(QueuePairSpec {
            pd: Arc::clone(&domain.core),
            service,
            send_cq,
            receive_cq,
            srq,
            capabilities: asked,
            signal_all: attr.sq_sig_all != 0,
            token: pointer.expose_provenance() as u64,
        })?;
        // SAFETY: all-zero bytes are a valid queue pair: null pointers, absent functions, numbers, and a mutex and a condition as their
        // static initializers make them.
        let mut base: IbvQpEx = unsafe { zeroed() };
        // SAFETY: the domain was found above.
        base.base.context = unsafe { (*pd).context };
        base.base.qp_context = attr.qp_context;
        base.base.pd = pd;
        base.base.send_cq = attr.send_cq;
        base.base.recv_cq = attr.recv_cq;
        base.base.srq = attr.srq;
        base.base.qp_num = core.qpn();
        base.base.qp_type = attr.qp_type;
        base.base.state = IBV_QPS_RESET;
        let granted = core.capabilities();
        let receives = (attr.cap.max_recv_wr, attr.cap.max_recv_sge);
        attr.cap = cap(granted);
        if !attr.srq.is_null() {
            (attr.cap.max_recv_wr, attr.cap.max_recv_sge) = receives;
        }
        if let Some(Operations { set_functions, .. }) = operations {
            base.comp_mask = SEND_OPERATIONS;
            set_functions(&mut base);
        }
        Ok(Qp { base, core, builder: Builder::new() })
    })
}

/// Creates a queue pair.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_qp(pd: *mut IbvPd, attr: *mut IbvQpInitAttr) -> *mut IbvQp {
    // SAFETY: the program passes a structure that the call may change.
    errno::pointer(create(pd, unsafe { &mut *attr }, None))
}

/// Returns the attributes of a queue pair without the extended ones.
pub fn base_of(attr: &IbvQpInitAttrEx) -> IbvQpInitAttr {
    IbvQpInitAttr {
        qp_context: attr.qp_context,
        send_cq: attr.send_cq,
        recv_cq: attr.recv_cq,
        srq: attr.srq,
        cap: attr.cap,
        qp_type: attr.qp_type,
        sq_sig_all: attr.sq_sig_all,
    }
}

/// Destroys a queue pair. Waits until its events are acknowledged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_qp(qp: *mut IbvQp) -> c_int {
    errno::status(handles::destroy::<Qp>(qp, |qp| {
        qp.core.destroy();
        Ok(())
    }))
}

/// Changes attributes and state of a queue pair.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_modify_qp(qp: *mut IbvQp, attr: *mut IbvQpAttr, mask: c_int) -> c_int {
    // SAFETY: the program passes a structure.
    let attr = unsafe { &*attr };
    errno::status(handles::get::<Qp>(qp).and_then(|found| {
        let mask = Mask::from_bits(mask.cast_unsigned()).ok_or(Error::Invalid)?;
        found.core.modify(&attributes(attr, mask)?, mask)?;
        set_state(qp, found.core.state());
        Ok(())
    }))
}

/// Updates the state that a program sees.
pub fn set_state(qp: *mut IbvQp, state: QpState) {
    // SAFETY: the caller has found the queue pair. Programs read the field without a lock, as with any provider.
    unsafe { (*qp).state = state_number(state) };
}

/// Returns the attributes that `mask` names.
fn attributes(attr: &IbvQpAttr, mask: Mask) -> Result<QpAttributes, Error> {
    let named = |flag| mask.contains(flag);
    let mut new = QpAttributes {
        pkey_index: attr.pkey_index,
        port: attr.port_num,
        q_key: attr.qkey,
        path: ah::vector(&attr.ah_attr),
        timeout: attr.timeout,
        retries: attr.retry_cnt,
        rnr_retries: attr.rnr_retry,
        receive_psn: attr.rq_psn,
        send_psn: attr.sq_psn,
        outbound_reads: attr.max_rd_atomic,
        inbound_reads: attr.max_dest_rd_atomic,
        rnr_timer: attr.min_rnr_timer,
        destination: attr.dest_qp_num,
        drain_event: attr.en_sqd_async_notify != 0,
        ..QpAttributes::default()
    };
    if named(Mask::STATE) {
        new.state = state(attr.qp_state)?;
    }
    if named(Mask::CURRENT_STATE) {
        new.current_state = state(attr.cur_qp_state)?;
    }
    if named(Mask::ACCESS) {
        new.access = tables::access(attr.qp_access_flags)?;
    }
    if named(Mask::PATH_MTU) {
        new.path_mtu = tables::mtu(attr.path_mtu).ok_or(Error::Invalid)?;
    }
    Ok(new)
}

/// Returns the structure of attributes.
pub fn shown_attributes(attributes: &QpAttributes) -> IbvQpAttr {
    let number = state_number(attributes.state);
    IbvQpAttr {
        qp_state: number,
        cur_qp_state: number,
        path_mtu: c_int::from(tables::mtu_code(attributes.path_mtu)),
        qkey: attributes.q_key,
        rq_psn: attributes.receive_psn,
        sq_psn: attributes.send_psn,
        dest_qp_num: attributes.destination,
        sq_draining: attributes.draining.into(),
        qp_access_flags: tables::access_flags(attributes.access),
        ah_attr: ah::attributes(&attributes.path),
        pkey_index: attributes.pkey_index,
        max_rd_atomic: attributes.outbound_reads,
        max_dest_rd_atomic: attributes.inbound_reads,
        min_rnr_timer: attributes.rnr_timer,
        port_num: attributes.port,
        timeout: attributes.timeout,
        retry_cnt: attributes.retries,
        rnr_retry: attributes.rnr_retries,
        ..IbvQpAttr::default()
    }
}

/// Returns the attributes of a queue pair, all of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_qp(
    qp: *mut IbvQp,
    attr: *mut IbvQpAttr,
    _mask: c_int,
    init_attr: *mut IbvQpInitAttr,
) -> c_int {
    let Ok(found) = handles::get::<Qp>(qp) else { return libc::EINVAL };
    let current = found.core.attributes();
    set_state(qp, current.state);
    let cap = cap(found.core.capabilities());
    let queried = IbvQpAttr { cap, ..shown_attributes(&current) };
    let shown = &found.base.base;
    let created = IbvQpInitAttr {
        qp_context: shown.qp_context,
        send_cq: shown.send_cq,
        recv_cq: shown.recv_cq,
        srq: shown.srq,
        cap,
        qp_type: shown.qp_type,
        sq_sig_all: found.core.spec().signal_all.into(),
    };
    // SAFETY: the program passes structures that the call may write.
    unsafe { attr.write(queried) };
    // SAFETY: the program passes a second structure that the call may write.
    unsafe { init_attr.write(created) };
    0
}

/// Returns the extended form of a queue pair.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_qp_to_qp_ex(qp: *mut IbvQp) -> *mut IbvQpEx {
    match handles::get::<Qp>(qp) {
        Ok(found) if found.base.comp_mask != 0 => qp.cast(),
        _ => core::ptr::null_mut(),
    }
}

/// Returns 0: data is not placed in order, since packets that arrive early are placed at once.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_query_qp_data_in_order(_qp: *mut c_void, _operation: c_int, _flags: u32) -> c_int {
    0
}

/// Fails as `EOPNOTSUPP` unless the parameters are those of no vendor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_set_ece(qp: *mut IbvQp, ece: *mut IbvEce) -> c_int {
    // SAFETY: the program passes a structure.
    let none = unsafe { (*ece).vendor_id } == 0;
    let offered = if none { Ok(()) } else { Err(Error::Unsupported) };
    errno::status(handles::get::<Qp>(qp).and(offered))
}

/// Returns the parameters of no vendor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_ece(qp: *mut IbvQp, ece: *mut IbvEce) -> c_int {
    if handles::get::<Qp>(qp).is_err() {
        return libc::EINVAL;
    }
    // SAFETY: the program passes a structure that the call may write.
    unsafe { ece.write(IbvEce::default()) };
    0
}
