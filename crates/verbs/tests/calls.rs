// SPDX-License-Identifier: MIT OR Apache-2.0

//! The exported functions, as the headers declare them.

use core::ffi::{c_char, c_int, c_uint, c_void};

use verbs::abi::attributes::{
    IbvAhAttr, IbvAsyncEvent, IbvQpAttr, IbvQpInitAttr, IbvSrqAttr, IbvSrqInitAttr,
};
use verbs::abi::context::IbvContext;
use verbs::abi::device::{IbvDevice, IbvDeviceAttr, IbvGid};
use verbs::abi::objects::{IbvAh, IbvCompChannel, IbvCq, IbvMr, IbvPd, IbvQp, IbvQpEx, IbvSrq};
use verbs::abi::rdma::{RdmaAddrinfo, RdmaCmEvent, RdmaCmId, RdmaConnParam, RdmaEventChannel};

unsafe extern "C" {
    pub fn ibv_get_device_list(num_devices: *mut c_int) -> *mut *mut IbvDevice;
    pub fn ibv_free_device_list(list: *mut *mut IbvDevice);
    pub fn ibv_get_device_name(device: *mut IbvDevice) -> *const c_char;
    pub fn ibv_open_device(device: *mut IbvDevice) -> *mut IbvContext;
    pub fn ibv_close_device(context: *mut IbvContext) -> c_int;
    pub fn ibv_query_device(context: *mut IbvContext, attr: *mut IbvDeviceAttr) -> c_int;
    pub fn ibv_query_gid(context: *mut IbvContext, port: u8, index: c_int, gid: *mut IbvGid) -> c_int;
    pub fn ibv_query_pkey(context: *mut IbvContext, port: u8, index: c_int, pkey: *mut u16) -> c_int;
    pub fn ibv_alloc_pd(context: *mut IbvContext) -> *mut IbvPd;
    pub fn ibv_dealloc_pd(pd: *mut IbvPd) -> c_int;
    pub fn ibv_reg_mr(pd: *mut IbvPd, addr: *mut c_void, length: usize, access: c_int) -> *mut IbvMr;
    pub fn ibv_dereg_mr(mr: *mut IbvMr) -> c_int;
    pub fn ibv_rereg_mr(
        mr: *mut IbvMr,
        flags: c_int,
        pd: *mut IbvPd,
        addr: *mut c_void,
        length: usize,
        access: c_int,
    ) -> c_int;
    pub fn ibv_create_comp_channel(context: *mut IbvContext) -> *mut IbvCompChannel;
    pub fn ibv_destroy_comp_channel(channel: *mut IbvCompChannel) -> c_int;
    pub fn ibv_get_cq_event(
        channel: *mut IbvCompChannel,
        cq: *mut *mut IbvCq,
        cq_context: *mut *mut c_void,
    ) -> c_int;
    pub fn ibv_ack_cq_events(cq: *mut IbvCq, events: c_uint);
    pub fn ibv_create_cq(
        context: *mut IbvContext,
        cqe: c_int,
        cq_context: *mut c_void,
        channel: *mut IbvCompChannel,
        comp_vector: c_int,
    ) -> *mut IbvCq;
    pub fn ibv_resize_cq(cq: *mut IbvCq, cqe: c_int) -> c_int;
    pub fn ibv_destroy_cq(cq: *mut IbvCq) -> c_int;
    pub fn ibv_create_srq(pd: *mut IbvPd, attr: *mut IbvSrqInitAttr) -> *mut IbvSrq;
    pub fn ibv_modify_srq(srq: *mut IbvSrq, attr: *mut IbvSrqAttr, mask: c_int) -> c_int;
    pub fn ibv_query_srq(srq: *mut IbvSrq, attr: *mut IbvSrqAttr) -> c_int;
    pub fn ibv_destroy_srq(srq: *mut IbvSrq) -> c_int;
    pub fn ibv_create_qp(pd: *mut IbvPd, attr: *mut IbvQpInitAttr) -> *mut IbvQp;
    pub fn ibv_destroy_qp(qp: *mut IbvQp) -> c_int;
    pub fn ibv_modify_qp(qp: *mut IbvQp, attr: *mut IbvQpAttr, mask: c_int) -> c_int;
    pub fn ibv_query_qp(
        qp: *mut IbvQp,
        attr: *mut IbvQpAttr,
        mask: c_int,
        init_attr: *mut IbvQpInitAttr,
    ) -> c_int;
    pub fn ibv_qp_to_qp_ex(qp: *mut IbvQp) -> *mut IbvQpEx;
    pub fn ibv_create_ah(pd: *mut IbvPd, attr: *mut IbvAhAttr) -> *mut IbvAh;
    pub fn ibv_destroy_ah(ah: *mut IbvAh) -> c_int;
    pub fn ibv_get_async_event(context: *mut IbvContext, event: *mut IbvAsyncEvent) -> c_int;
    pub fn ibv_ack_async_event(event: *mut IbvAsyncEvent);
    pub fn ibv_wc_status_str(status: c_int) -> *const c_char;
    pub fn ibv_rate_to_mbps(rate: c_int) -> c_int;
    pub fn mbps_to_ibv_rate(speed: c_int) -> c_int;
    pub fn rdma_create_event_channel() -> *mut RdmaEventChannel;
    pub fn rdma_destroy_event_channel(channel: *mut RdmaEventChannel);
    pub fn rdma_create_id(
        channel: *mut RdmaEventChannel,
        id: *mut *mut RdmaCmId,
        context: *mut c_void,
        space: c_int,
    ) -> c_int;
    pub fn rdma_destroy_id(id: *mut RdmaCmId) -> c_int;
    pub fn rdma_bind_addr(id: *mut RdmaCmId, address: *mut libc::sockaddr) -> c_int;
    pub fn rdma_listen(id: *mut RdmaCmId, backlog: c_int) -> c_int;
    pub fn rdma_resolve_addr(
        id: *mut RdmaCmId,
        source: *mut libc::sockaddr,
        destination: *mut libc::sockaddr,
        timeout_ms: c_int,
    ) -> c_int;
    pub fn rdma_resolve_route(id: *mut RdmaCmId, timeout_ms: c_int) -> c_int;
    pub fn rdma_create_qp(id: *mut RdmaCmId, pd: *mut IbvPd, attr: *mut IbvQpInitAttr) -> c_int;
    pub fn rdma_destroy_qp(id: *mut RdmaCmId);
    pub fn rdma_connect(id: *mut RdmaCmId, param: *mut RdmaConnParam) -> c_int;
    pub fn rdma_accept(id: *mut RdmaCmId, param: *mut RdmaConnParam) -> c_int;
    pub fn rdma_reject(id: *mut RdmaCmId, data: *const c_void, length: u8) -> c_int;
    pub fn rdma_disconnect(id: *mut RdmaCmId) -> c_int;
    pub fn rdma_get_cm_event(channel: *mut RdmaEventChannel, event: *mut *mut RdmaCmEvent) -> c_int;
    pub fn rdma_ack_cm_event(event: *mut RdmaCmEvent) -> c_int;
    pub fn rdma_event_str(event: c_int) -> *const c_char;
    pub fn rdma_getaddrinfo(
        node: *const c_char,
        service: *const c_char,
        hints: *const RdmaAddrinfo,
        result: *mut *mut RdmaAddrinfo,
    ) -> c_int;
    pub fn rdma_freeaddrinfo(info: *mut RdmaAddrinfo);
    pub fn rdma_create_ep(
        id: *mut *mut RdmaCmId,
        info: *mut RdmaAddrinfo,
        pd: *mut IbvPd,
        attr: *mut IbvQpInitAttr,
    ) -> c_int;
    pub fn rdma_destroy_ep(id: *mut RdmaCmId);
    pub fn rdma_get_request(listener: *mut RdmaCmId, id: *mut *mut RdmaCmId) -> c_int;
}
