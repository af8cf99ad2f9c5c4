// SPDX-License-Identifier: MIT OR Apache-2.0

//! Functions of what is not offered, and of the interface between libibverbs and its providers, which Debian's provider libraries import.
//! Each fails as `EOPNOTSUPP`, whatever its arguments.

use core::ffi::{c_int, c_void};

use crate::errno;

/// Functions that return an error number.
macro_rules! refuse_number {
    ($($name:ident)+) => {$(
        #[doc = concat!("Fails as `EOPNOTSUPP`: `", stringify!($name), "` is not offered.")]
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> c_int {
            errno::set(libc::EOPNOTSUPP);
            libc::EOPNOTSUPP
        }
    )+};
}

/// Functions that return a pointer.
macro_rules! refuse_pointer {
    ($($name:ident)+) => {$(
        #[doc = concat!("Fails as `EOPNOTSUPP`: `", stringify!($name), "` is not offered.")]
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> *mut c_void {
            errno::set(libc::EOPNOTSUPP);
            core::ptr::null_mut()
        }
    )+};
}

/// Functions that return nothing, and do nothing.
macro_rules! ignore {
    ($($name:ident)+) => {$(
        #[doc = concat!("Does nothing: `", stringify!($name), "` is for objects that no call creates.")]
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() {}
    )+};
}

refuse_number! {
    ibv_attach_mcast ibv_detach_mcast ibv_rereg_mr ibv_resolve_eth_l2_from_gid
    execute_ioctl
    ibv_cmd_advise_mr ibv_cmd_alloc_dm ibv_cmd_alloc_mw ibv_cmd_alloc_pd ibv_cmd_attach_mcast ibv_cmd_close_xrcd
    ibv_cmd_create_ah ibv_cmd_create_counters ibv_cmd_create_cq ibv_cmd_create_cq_ex ibv_cmd_create_flow
    ibv_cmd_create_flow_action_esp ibv_cmd_create_qp ibv_cmd_create_qp_ex ibv_cmd_create_qp_ex2
    ibv_cmd_create_rwq_ind_table ibv_cmd_create_srq ibv_cmd_create_srq_ex ibv_cmd_create_wq ibv_cmd_dealloc_mw
    ibv_cmd_dealloc_pd ibv_cmd_dereg_mr ibv_cmd_destroy_ah ibv_cmd_destroy_counters ibv_cmd_destroy_cq
    ibv_cmd_destroy_flow ibv_cmd_destroy_flow_action ibv_cmd_destroy_qp ibv_cmd_destroy_rwq_ind_table
    ibv_cmd_destroy_srq ibv_cmd_destroy_wq ibv_cmd_detach_mcast ibv_cmd_free_dm ibv_cmd_get_context
    ibv_cmd_modify_cq ibv_cmd_modify_flow_action_esp ibv_cmd_modify_qp ibv_cmd_modify_qp_ex ibv_cmd_modify_srq
    ibv_cmd_modify_wq ibv_cmd_open_qp ibv_cmd_open_xrcd ibv_cmd_poll_cq ibv_cmd_post_recv ibv_cmd_post_send
    ibv_cmd_post_srq_recv ibv_cmd_query_context ibv_cmd_query_device_any ibv_cmd_query_mr ibv_cmd_query_port
    ibv_cmd_query_qp ibv_cmd_query_srq ibv_cmd_read_counters ibv_cmd_reg_dm_mr ibv_cmd_reg_dmabuf_mr
    ibv_cmd_reg_mr ibv_cmd_req_notify_cq ibv_cmd_rereg_mr ibv_cmd_resize_cq
    __ioctl_final_num_attrs verbs_init_cq
}

refuse_pointer! {
    ibv_reg_dmabuf_mr ibv_import_device ibv_import_pd ibv_import_mr ibv_import_dm
    _verbs_init_and_alloc_context verbs_open_device
}

ignore! {
    ibv_unimport_pd ibv_unimport_mr ibv_unimport_dm
    ibv_copy_ah_attr_from_kern ibv_copy_path_rec_from_kern ibv_copy_path_rec_to_kern ibv_copy_qp_attr_from_kern
    ibv_register_driver verbs_register_driver_34 verbs_set_ops verbs_uninit_context __verbs_log
}

/// Read by Debian's providers: whether the objects of a device that was removed may be destroyed.
#[unsafe(no_mangle)]
pub static verbs_allow_disassociate_destroy: u8 = 0;
