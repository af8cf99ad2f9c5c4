// SPDX-License-Identifier: MIT OR Apache-2.0

//! Queues, regions and posts.
#![allow(unsafe_code, reason = "opens a provider and calls it through pointers")]

use core::ffi::c_void;
use core::ptr;
use std::collections::VecDeque;

use ndk_abi::ndk::*;
use ndk_abi::nt::*;

use super::*;

fn sges(list: *const NDK_SGE, count: u32) -> Vec<(usize, usize)> {
    if count == 0 {
        return Vec::new();
    }
    // SAFETY: the consumer passes `count` entries.
    let list = unsafe { core::slice::from_raw_parts(list, count as usize) };
    let address = |sge: &NDK_SGE| {
        // SAFETY: both members of the union are 8 initialized bytes.
        let address = unsafe { sge.Anonymous.VirtualAddress };
        address as usize
    };
    list.iter().map(|sge| (address(sge), sge.Length as usize)).collect()
}

pub fn gather(sges: &[(usize, usize)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (address, length) in sges {
        // SAFETY: the consumer registered this range, and does not change or free it before the request completes.
        bytes.extend_from_slice(unsafe { core::slice::from_raw_parts(*address as *const u8, *length) });
    }
    bytes
}

pub fn scatter(sges: &[(usize, usize)], mut bytes: &[u8]) {
    for (address, length) in sges {
        let (now, later) = bytes.split_at(bytes.len().min(*length));
        // SAFETY: the consumer registered this range for writing, and does not use it before the request completes.
        unsafe { ptr::copy_nonoverlapping(now.as_ptr(), *address as *mut u8, now.len()) };
        bytes = later;
    }
}

pub unsafe extern "efiapi" fn create_cq(
    adapter: *mut NDK_ADAPTER,
    _: u32,
    notify: Option<NDK_FN_CQ_NOTIFICATION_CALLBACK>,
    notify_context: *mut c_void,
    _: *mut GROUP_AFFINITY,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    into: *mut *mut NDK_CQ,
) -> NTSTATUS {
    let ndk = NDK_CQ { Header: header(NDK_OBJECT_TYPE::NdkObjectTypeCq), Dispatch: &raw const CQ };
    let notify = (notify.unwrap(), notify_context as usize);
    world(adapter).create(ndk, completion, context, into, |state, key| {
        state.cqs.insert(key, Cq { results: VecDeque::new(), armed: false, notify });
    })
}

unsafe extern "efiapi" fn arm_cq(cq: *mut NDK_CQ, _: u32) {
    let world = world(cq);
    let mut state = world.lock();
    let cq = state.cqs.get_mut(&(cq as usize)).unwrap();
    cq.armed = cq.results.is_empty();
    if !cq.armed {
        let (notify, context) = cq.notify;
        // SAFETY: the consumer's callback and its context.
        world.later(move || unsafe { notify(context as *mut c_void, STATUS_SUCCESS) });
    }
}

unsafe extern "efiapi" fn get_results(cq: *mut NDK_CQ, into: *mut NDK_RESULT_EX, count: u32) -> u32 {
    let world = world(cq);
    let mut state = world.lock();
    let results = &mut state.cqs.get_mut(&(cq as usize)).unwrap().results;
    let count = results.len().min(count as usize);
    for (index, result) in results.drain(..count).enumerate() {
        // SAFETY: the consumer passes room for `count` results.
        let place = unsafe { into.add(index) };
        // SAFETY: the consumer passes room for `count` results, and this one is below it.
        unsafe { place.write(result) };
    }
    count as u32
}

pub unsafe extern "efiapi" fn create_pd(
    adapter: *mut NDK_ADAPTER,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    into: *mut *mut NDK_PD,
) -> NTSTATUS {
    let ndk = NDK_PD { Header: header(NDK_OBJECT_TYPE::NdkObjectTypePd), Dispatch: &raw const PD };
    world(adapter).create(ndk, completion, context, into, |_, _| {})
}

unsafe extern "efiapi" fn create_mr(
    pd: *mut NDK_PD,
    _: BOOLEAN,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    into: *mut *mut NDK_MR,
) -> NTSTATUS {
    let ndk = NDK_MR { Header: header(NDK_OBJECT_TYPE::NdkObjectTypeMr), Dispatch: &raw const MR };
    world(pd).create(ndk, completion, context, into, |_, _| {})
}

unsafe extern "efiapi" fn register(
    mr: *mut NDK_MR,
    mdl: *mut MDL,
    length: usize,
    _: u32,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NTSTATUS {
    let world = world(mr);
    // SAFETY: the consumer passes a list.
    let mdl = unsafe { &*mdl };
    let mut state = world.lock();
    state.next_token += 1;
    let token = state.next_token;
    state.regions.insert(token, (mdl.StartVa as usize + mdl.ByteOffset as usize, length));
    // The region's token is kept where NDIS has its own notes.
    // SAFETY: the region is open, and no other code uses it now.
    unsafe { (*mr).Header.NdkReserved.rf[0] = token as usize as *mut c_void };
    drop(state);
    world.request(completion, context)
}

unsafe extern "efiapi" fn deregister(
    mr: *mut NDK_MR,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NTSTATUS {
    let world = world(mr);
    // SAFETY: the consumer deregisters a region that it has not closed, whose dispatch table is ours.
    let token = unsafe { token(mr) };
    assert!(world.lock().regions.remove(&token).is_some(), "not registered");
    world.request(completion, context)
}

unsafe extern "efiapi" fn token(mr: *mut NDK_MR) -> u32 {
    // SAFETY: the consumer passes an open region.
    let mr = unsafe { &*mr };
    mr.Header.NdkReserved.rf[0] as usize as u32
}

unsafe extern "efiapi" fn create_qp(
    pd: *mut NDK_PD,
    receive_cq: *mut NDK_CQ,
    initiator_cq: *mut NDK_CQ,
    qp_context: *mut c_void,
    _: u32,
    _: u32,
    _: u32,
    _: u32,
    _: u32,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    into: *mut *mut NDK_QP,
) -> NTSTATUS {
    let ndk = NDK_QP { Header: header(NDK_OBJECT_TYPE::NdkObjectTypeQp), Dispatch: &raw const QP };
    let qp = Qp {
        context: qp_context as usize,
        cqs: [receive_cq as usize, initiator_cq as usize],
        receives: VecDeque::new(),
        waiting: VecDeque::new(),
        peer: None,
        connected: false,
    };
    world(pd).create(ndk, completion, context, into, |state, key| drop(state.qps.insert(key, qp)))
}

unsafe extern "efiapi" fn flush(qp: *mut NDK_QP) {
    let world = world(qp);
    world.flush(&mut world.lock(), qp as usize);
}

unsafe extern "efiapi" fn receive(
    qp: *mut NDK_QP,
    context: *mut c_void,
    list: *const NDK_SGE,
    count: u32,
) -> NTSTATUS {
    let world = world(qp);
    let mut state = world.lock();
    let pair = state.qps.get_mut(&(qp as usize)).unwrap();
    pair.receives.push_back((context as usize, sges(list, count)));
    if let Some(peer) = pair.peer {
        world.deliver(&mut state, peer);
    }
    STATUS_SUCCESS
}

unsafe extern "efiapi" fn send(
    qp: *mut NDK_QP,
    context: *mut c_void,
    list: *const NDK_SGE,
    count: u32,
    _: u32,
) -> NTSTATUS {
    let (world, qp) = (world(qp), qp as usize);
    let mut state = world.lock();
    if !state.qps[&qp].connected {
        return STATUS_CONNECTION_INVALID;
    }
    if state.broken {
        let kind = NDK_OPERATION_TYPE::NdkOperationTypeSend;
        world.initiated(&mut state, qp, context as usize, STATUS_IO_TIMEOUT, kind);
        return STATUS_SUCCESS;
    }
    let message = gather(&sges(list, count));
    state.qps.get_mut(&qp).unwrap().waiting.push_back((context as usize, message));
    world.deliver(&mut state, qp);
    STATUS_SUCCESS
}

fn transfer(
    qp: *mut NDK_QP,
    context: *mut c_void,
    list: *const NDK_SGE,
    count: u32,
    (address, token): (u64, u32),
    kind: NDK_OPERATION_TYPE,
) -> NTSTATUS {
    let (world, qp) = (world(qp), qp as usize);
    let mut state = world.lock();
    if !state.qps[&qp].connected {
        return STATUS_CONNECTION_INVALID;
    }
    let list = sges(list, count);
    let length: usize = list.iter().map(|sge| sge.1).sum();
    let region = state.regions.get(&token).copied();
    let inside = length == 0
        || region.is_some_and(|(base, size)| {
            (address as usize).checked_sub(base).is_some_and(|offset| offset + length <= size)
        });
    let status = match (state.broken, inside) {
        (true, _) => STATUS_IO_TIMEOUT,
        (false, false) => STATUS_ACCESS_VIOLATION,
        (false, true) if kind == NDK_OPERATION_TYPE::NdkOperationTypeWrite => {
            scatter(&[(address as usize, length)], &gather(&list));
            STATUS_SUCCESS
        }
        (false, true) => {
            scatter(&list, &gather(&[(address as usize, length)][..usize::from(length != 0)]));
            STATUS_SUCCESS
        }
    };
    world.initiated(&mut state, qp, context as usize, status, kind);
    STATUS_SUCCESS
}

unsafe extern "efiapi" fn read(
    qp: *mut NDK_QP,
    context: *mut c_void,
    list: *const NDK_SGE,
    count: u32,
    address: u64,
    token: u32,
    _: u32,
) -> NTSTATUS {
    transfer(qp, context, list, count, (address, token), NDK_OPERATION_TYPE::NdkOperationTypeRead)
}

unsafe extern "efiapi" fn write(
    qp: *mut NDK_QP,
    context: *mut c_void,
    list: *const NDK_SGE,
    count: u32,
    address: u64,
    token: u32,
    _: u32,
) -> NTSTATUS {
    transfer(qp, context, list, count, (address, token), NDK_OPERATION_TYPE::NdkOperationTypeWrite)
}

pub static CQ: NDK_CQ_DISPATCH = NDK_CQ_DISPATCH {
    NdkCloseCq: Some(close::<NDK_CQ>),
    NdkArmCq: Some(arm_cq),
    NdkGetCqResultsEx: Some(get_results),
    ..NDK_CQ_DISPATCH::zeroed()
};
pub static PD: NDK_PD_DISPATCH = NDK_PD_DISPATCH {
    NdkClosePd: Some(close::<NDK_PD>),
    NdkCreateMr: Some(create_mr),
    NdkCreateQp: Some(create_qp),
    ..NDK_PD_DISPATCH::zeroed()
};
pub static MR: NDK_MR_DISPATCH = NDK_MR_DISPATCH {
    NdkCloseMr: Some(close::<NDK_MR>),
    NdkRegisterMr: Some(register),
    NdkDeregisterMr: Some(deregister),
    NdkGetLocalTokenFromMr: Some(token),
    NdkGetRemoteTokenFromMr: Some(token),
    ..NDK_MR_DISPATCH::zeroed()
};
pub static QP: NDK_QP_DISPATCH = NDK_QP_DISPATCH {
    NdkCloseQp: Some(close::<NDK_QP>),
    NdkFlush: Some(flush),
    NdkSend: Some(send),
    NdkReceive: Some(receive),
    NdkRead: Some(read),
    NdkWrite: Some(write),
    ..NDK_QP_DISPATCH::zeroed()
};
