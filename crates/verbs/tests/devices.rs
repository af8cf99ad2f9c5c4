// SPDX-License-Identifier: MIT OR Apache-2.0

//! Devices, queries, and functions of what is not offered.

use core::ffi::CStr;
use core::ptr::null_mut;

use verbs::abi::device::{IbvDeviceAttr, IbvGid, IbvPortAttr};

use crate::rig::{Rig, call, errno, zero};

#[test]
fn a_device_answers_queries() {
    let rig = Rig::new();
    let mut attr: IbvDeviceAttr = zero();
    assert_eq!(call!(ibv_query_device(rig.context, &raw mut attr)), 0);
    assert_eq!((attr.phys_port_cnt, attr.max_pkeys), (1, 1));
    assert!(attr.max_qp > 0 && attr.max_qp_wr > 0 && attr.max_sge > 0 && attr.node_guid != 0);
    let query_port = rig.table().query_port.unwrap();
    let mut port: IbvPortAttr = zero();
    let size = size_of::<IbvPortAttr>();
    // SAFETY: the arguments are those of the inline function in the header.
    assert_eq!(unsafe { query_port(rig.context, 1, &raw mut port, size) }, 0);
    assert_eq!((port.state, port.max_mtu, port.active_mtu, port.link_layer), (4, 5, 5, 2));
    // SAFETY: the device is open, and `port` has the size that the call gets.
    assert_eq!(unsafe { query_port(rig.context, 2, &raw mut port, size) }, libc::EINVAL);
    let mut gid = IbvGid::default();
    assert_eq!(call!(ibv_query_gid(rig.context, 1, 1, &raw mut gid)), -1);
    let mut pkey = 0;
    assert_eq!(call!(ibv_query_pkey(rig.context, 1, 0, &raw mut pkey)), 0);
    assert_eq!((pkey, call!(ibv_query_pkey(rig.context, 1, 1, &raw mut pkey))), (0xFFFF, -1));
    assert_eq!(call!(ibv_query_device(null_mut(), &raw mut attr)), libc::EINVAL);
}

#[test]
fn unknown_and_closed_handles_are_refused() {
    assert!(call!(ibv_open_device(null_mut())).is_null());
    assert_eq!(errno(), libc::EINVAL);
    assert!(call!(ibv_get_device_name(null_mut())).is_null());
    assert_eq!(call!(ibv_close_device(null_mut())), libc::EINVAL);
    assert!(call!(ibv_alloc_pd(null_mut())).is_null());
    assert_eq!(errno(), libc::EINVAL);
    let rig = Rig::new();
    // A pointer to an object of another type.
    assert_eq!(call!(ibv_dealloc_pd(rig.context.cast())), libc::EINVAL);
    let pd = call!(ibv_alloc_pd(rig.context));
    assert_eq!(call!(ibv_dealloc_pd(pd)), 0);
    assert_eq!(call!(ibv_dealloc_pd(pd)), libc::EINVAL);
}

#[test]
fn numbers_have_texts_and_rates() {
    let text = |text: *const core::ffi::c_char| {
        // SAFETY: the functions return texts that live forever.
        unsafe { CStr::from_ptr(text) }.to_str().unwrap()
    };
    assert_eq!(text(call!(ibv_wc_status_str(5))), "Work Request Flushed Error");
    assert_eq!(text(call!(ibv_wc_status_str(99))), "unknown");
    assert_eq!(text(call!(rdma_event_str(9))), "RDMA_CM_EVENT_ESTABLISHED");
    assert_eq!(text(call!(rdma_event_str(-1))), "UNKNOWN EVENT");
    for code in 2..=24 {
        let speed = call!(ibv_rate_to_mbps(code));
        assert_eq!(call!(mbps_to_ibv_rate(speed)), code);
    }
    assert_eq!(call!(ibv_rate_to_mbps(99)), -1);
}
