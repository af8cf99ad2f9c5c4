// SPDX-License-Identifier: MIT OR Apache-2.0

//! Endpoints: identifiers from the result of `rdma_getaddrinfo`, used without events.

use core::ffi::c_int;

use libc::sockaddr;
use verbs_core::Error;

use super::channel::take;
use super::connect::{rdma_resolve_addr, rdma_resolve_route};
use super::event::{acknowledge, number};
use super::id::{acknowledge_last, find, rdma_bind_addr, rdma_create_id, rdma_destroy_id, shown, update};
use super::objects::{create_qp, rdma_destroy_qp, rdma_destroy_srq};
use crate::abi::attributes::IbvQpInitAttr;
use crate::abi::objects::IbvPd;
use crate::abi::rdma::{RAI_PASSIVE, RdmaAddrinfo, RdmaCmEvent, RdmaCmId};
use crate::errno;
use verbs_core::cm::CmEventKind;

/// Time for the resolution of addresses and routes, which takes none here.
const TIMEOUT: c_int = 2000;

/// Turns the result of a function of librdmacm into one of this crate.
fn result(status: c_int) -> Result<(), Error> {
    if status == 0 { Ok(()) } else { Err(errno::last()) }
}

fn create(
    info: &RdmaAddrinfo,
    pd: *mut IbvPd,
    attr: Option<&mut IbvQpInitAttr>,
) -> Result<*mut RdmaCmId, Error> {
    let mut id = core::ptr::null_mut();
    let null = core::ptr::null_mut();
    // SAFETY: `id` is a variable of this function that the call may write.
    result(unsafe { rdma_create_id(null, &raw mut id, core::ptr::null_mut(), info.ai_port_space) })?;
    let prepared = if info.ai_flags & RAI_PASSIVE == 0 {
        connect_side(id, info, pd, attr)
    } else {
        listen_side(id, info.ai_src_addr, pd, attr.map(|attr| &*attr), info.ai_qp_type)
    };
    if let Err(error) = prepared {
        destroy(id);
        return Err(error);
    }
    Ok(id)
}

fn listen_side(
    id: *mut RdmaCmId,
    address: *mut sockaddr,
    pd: *mut IbvPd,
    attr: Option<&IbvQpInitAttr>,
    qp_type: c_int,
) -> Result<(), Error> {
    // SAFETY: the address of a result of `rdma_getaddrinfo`.
    result(unsafe { rdma_bind_addr(id, address) })?;
    if !pd.is_null() {
        update(id, |shown| shown.pd = pd);
    }
    let template = attr.map(|attr| IbvQpInitAttr { qp_type, ..*attr });
    find(id)?.template.set(template);
    Ok(())
}

fn connect_side(
    id: *mut RdmaCmId,
    info: &RdmaAddrinfo,
    pd: *mut IbvPd,
    attr: Option<&mut IbvQpInitAttr>,
) -> Result<(), Error> {
    // SAFETY: the addresses of a result of `rdma_getaddrinfo`.
    result(unsafe { rdma_resolve_addr(id, info.ai_src_addr, info.ai_dst_addr, TIMEOUT) })?;
    // SAFETY: the identifier was created by the caller.
    result(unsafe { rdma_resolve_route(id, TIMEOUT) })?;
    match attr {
        Some(attr) => {
            attr.qp_type = info.ai_qp_type;
            create_qp(id, pd, attr)
        }
        None => Ok(()),
    }
}

/// Creates an endpoint.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_create_ep(
    id: *mut *mut RdmaCmId,
    info: *mut RdmaAddrinfo,
    pd: *mut IbvPd,
    attr: *mut IbvQpInitAttr,
) -> c_int {
    // SAFETY: the program passes a result of `rdma_getaddrinfo`.
    let info = unsafe { &*info };
    // SAFETY: the program passes null or a structure that the call may change.
    let attr = unsafe { attr.as_mut() };
    errno::flag(create(info, pd, attr).map(|created| {
        // SAFETY: the program passes a pointer that the call may write.
        unsafe { id.write(created) };
    }))
}

fn destroy(id: *mut RdmaCmId) {
    if find(id).is_err() {
        return;
    }
    // SAFETY: the identifier exists: it was found above.
    unsafe { rdma_destroy_qp(id) };
    if !shown(id).srq.is_null() {
        // SAFETY: the identifier still exists: only its queue pair was destroyed.
        unsafe { rdma_destroy_srq(id) };
    }
    // SAFETY: the identifier still exists, and is destroyed here only.
    unsafe { rdma_destroy_id(id) };
}

/// Destroys an endpoint with its queue pair.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_destroy_ep(id: *mut RdmaCmId) {
    destroy(id);
}

fn request(listener: *mut RdmaCmId) -> Result<*mut RdmaCmId, Error> {
    let found = find(listener)?;
    if !found.is_synchronous.get() {
        return Err(Error::Invalid);
    }
    acknowledge_last(listener);
    let event = take(shown(listener).channel)?;
    // SAFETY: the event was created just now.
    let RdmaCmEvent { event: kind, id, .. } = unsafe { event.read() };
    if kind != number(CmEventKind::ConnectRequest) {
        acknowledge(event)?;
        return Err(Error::Invalid);
    }
    update(id, |shown| shown.event = event);
    if let Some(mut template) = found.template.get() {
        let pd = shown(listener).pd;
        if let Err(error) = create_qp(id, pd, &mut template) {
            destroy(id);
            return Err(error);
        }
    }
    Ok(id)
}

/// Waits for the next request of a listening endpoint.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_get_request(listener: *mut RdmaCmId, id: *mut *mut RdmaCmId) -> c_int {
    errno::flag(request(listener).map(|created| {
        // SAFETY: the program passes a pointer that the call may write.
        unsafe { id.write(created) };
    }))
}
