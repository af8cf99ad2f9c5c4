// SPDX-License-Identifier: MIT OR Apache-2.0

//! Opening of devices.

use core::ffi::c_void;
use core::mem::zeroed;
use std::os::fd::{AsFd, AsRawFd};

use verbs_core::Error;
use verbs_core::context::Context;

use crate::abi::context::{IbvContext, IbvContextOps, VerbsContext};
use crate::abi::device::IbvDevice;
use crate::context::OpenContext;
use crate::device::{self, ListedDevice};
use crate::{context, cq, errno, handles, mw, post, qp_ex, srq};

/// Opens a device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_open_device(device: *mut IbvDevice) -> *mut IbvContext {
    errno::pointer(device::find(device).and_then(open))
}

/// Opens a listed device.
pub fn open(listed: &'static ListedDevice) -> Result<*mut IbvContext, Error> {
    let core = Context::new(device::open(listed)?)?;
    Ok(handles::create(OpenContext { verbs: table(listed, &core), core, device: listed }))
}

/// Returns the tables of functions.
fn table(listed: &ListedDevice, core: &Context) -> VerbsContext {
    // SAFETY: all-zero bytes are a valid table: null pointers, absent functions, numbers, and a mutex as its static initializer makes it.
    let mut ops: IbvContextOps = unsafe { zeroed() };
    ops.query_device = Some(context::ibv_query_device);
    ops.query_port = Some(context::ibv_query_port);
    ops.alloc_mw = Some(mw::alloc_mw);
    ops.bind_mw = Some(mw::bind_mw);
    ops.dealloc_mw = Some(mw::dealloc_mw);
    ops.poll_cq = Some(cq::poll_cq);
    ops.req_notify_cq = Some(cq::req_notify_cq);
    ops.post_srq_recv = Some(srq::post_srq_recv);
    ops.post_send = Some(post::post_send);
    ops.post_recv = Some(post::post_recv);
    // SAFETY: the extended table consists of such fields, too, which are valid as zero bytes.
    let mut verbs: VerbsContext = unsafe { zeroed() };
    verbs.query_port = Some(context::query_port);
    verbs.query_device_ex = Some(context::query_device_ex);
    verbs.modify_cq = Some(cq::modify_cq);
    verbs.create_cq_ex = Some(cq::create_cq_ex);
    verbs.create_qp_ex = Some(qp_ex::create_qp_ex);
    verbs.create_srq_ex = Some(srq::create_srq_ex);
    verbs.size = size_of::<VerbsContext>();
    verbs.context.device = listed.pointer();
    verbs.context.ops = ops;
    verbs.context.cmd_fd = -1;
    verbs.context.async_fd = core.async_events().as_fd().as_raw_fd();
    verbs.context.num_comp_vectors = 1;
    verbs.context.abi_compat = core::ptr::without_provenance_mut::<c_void>(usize::MAX);
    verbs
}
