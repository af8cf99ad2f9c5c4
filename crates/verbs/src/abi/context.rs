// SPDX-License-Identifier: MIT OR Apache-2.0

//! Contexts: the tables of functions through which the inline functions of the header call.

use core::ffi::{c_int, c_void};

use libc::pthread_mutex_t;

use super::Absent;
use super::attributes::{IbvCqInitAttrEx, IbvModifyCqAttr, IbvQpInitAttrEx, IbvSrqInitAttrEx};
use super::device::{IbvDevice, IbvDeviceAttr, IbvDeviceAttrEx, IbvPortAttr, IbvQueryDeviceExInput};
use super::objects::{IbvCq, IbvCqEx, IbvMw, IbvPd, IbvQp, IbvSrq};
use super::objects::{IbvMwBind, IbvRecvWr, IbvSendWr, IbvWc};

type PostReceive<T> = Option<unsafe extern "C" fn(*mut T, *mut IbvRecvWr, *mut *mut IbvRecvWr) -> c_int>;

#[repr(C)]
pub struct IbvContextOps {
    pub query_device: Option<unsafe extern "C" fn(*mut IbvContext, *mut IbvDeviceAttr) -> c_int>,
    pub query_port: Option<unsafe extern "C" fn(*mut IbvContext, u8, *mut IbvPortAttr) -> c_int>,
    pub compat_alloc_pd: Absent,
    pub compat_dealloc_pd: Absent,
    pub compat_reg_mr: Absent,
    pub compat_rereg_mr: Absent,
    pub compat_dereg_mr: Absent,
    pub alloc_mw: Option<unsafe extern "C" fn(*mut IbvPd, c_int) -> *mut IbvMw>,
    pub bind_mw: Option<unsafe extern "C" fn(*mut IbvQp, *mut IbvMw, *mut IbvMwBind) -> c_int>,
    pub dealloc_mw: Option<unsafe extern "C" fn(*mut IbvMw) -> c_int>,
    pub compat_create_cq: Absent,
    pub poll_cq: Option<unsafe extern "C" fn(*mut IbvCq, c_int, *mut IbvWc) -> c_int>,
    pub req_notify_cq: Option<unsafe extern "C" fn(*mut IbvCq, c_int) -> c_int>,
    pub compat_cq_event: Absent,
    pub compat_resize_cq: Absent,
    pub compat_destroy_cq: Absent,
    pub compat_create_srq: Absent,
    pub compat_modify_srq: Absent,
    pub compat_query_srq: Absent,
    pub compat_destroy_srq: Absent,
    pub post_srq_recv: PostReceive<IbvSrq>,
    pub compat_create_qp: Absent,
    pub compat_query_qp: Absent,
    pub compat_modify_qp: Absent,
    pub compat_destroy_qp: Absent,
    pub post_send: Option<unsafe extern "C" fn(*mut IbvQp, *mut IbvSendWr, *mut *mut IbvSendWr) -> c_int>,
    pub post_recv: PostReceive<IbvQp>,
    pub compat_create_ah: Absent,
    pub compat_destroy_ah: Absent,
    pub compat_attach_mcast: Absent,
    pub compat_detach_mcast: Absent,
    pub compat_async_event: Absent,
}

#[repr(C)]
pub struct IbvContext {
    pub device: *mut IbvDevice,
    pub ops: IbvContextOps,
    pub cmd_fd: c_int,
    pub async_fd: c_int,
    pub num_comp_vectors: c_int,
    pub mutex: pthread_mutex_t,
    /// All bits set: there is a [`VerbsContext`] around.
    pub abi_compat: *mut c_void,
}

/// The context with the functions added later. The one that the program sees is its last field.
#[repr(C)]
pub struct VerbsContext {
    pub query_port: Option<unsafe extern "C" fn(*mut IbvContext, u8, *mut IbvPortAttr, usize) -> c_int>,
    pub advise_mr: Absent,
    pub alloc_null_mr: Absent,
    pub read_counters: Absent,
    pub attach_counters_point_flow: Absent,
    pub create_counters: Absent,
    pub destroy_counters: Absent,
    pub reg_dm_mr: Absent,
    pub alloc_dm: Absent,
    pub free_dm: Absent,
    pub modify_flow_action_esp: Absent,
    pub destroy_flow_action: Absent,
    pub create_flow_action_esp: Absent,
    pub modify_qp_rate_limit: Absent,
    pub alloc_parent_domain: Absent,
    pub dealloc_td: Absent,
    pub alloc_td: Absent,
    pub modify_cq: Option<unsafe extern "C" fn(*mut IbvCq, *mut IbvModifyCqAttr) -> c_int>,
    pub post_srq_ops: Absent,
    pub destroy_rwq_ind_table: Absent,
    pub create_rwq_ind_table: Absent,
    pub destroy_wq: Absent,
    pub modify_wq: Absent,
    pub create_wq: Absent,
    pub query_rt_values: Absent,
    pub create_cq_ex: Option<unsafe extern "C" fn(*mut IbvContext, *mut IbvCqInitAttrEx) -> *mut IbvCqEx>,
    pub private: *mut c_void,
    pub query_device_ex: Option<
        unsafe extern "C" fn(
            *mut IbvContext,
            *const IbvQueryDeviceExInput,
            *mut IbvDeviceAttrEx,
            usize,
        ) -> c_int,
    >,
    pub destroy_flow: Absent,
    pub placeholder2: Absent,
    pub create_flow: Absent,
    pub placeholder1: Absent,
    pub open_qp: Absent,
    pub create_qp_ex: Option<unsafe extern "C" fn(*mut IbvContext, *mut IbvQpInitAttrEx) -> *mut IbvQp>,
    pub get_srq_num: Absent,
    pub create_srq_ex: Option<unsafe extern "C" fn(*mut IbvContext, *mut IbvSrqInitAttrEx) -> *mut IbvSrq>,
    pub open_xrcd: Absent,
    pub close_xrcd: Absent,
    pub placeholder3: u64,
    pub size: usize,
    pub context: IbvContext,
}
