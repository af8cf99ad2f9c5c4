// SPDX-License-Identifier: MIT OR Apache-2.0

//! Shared receive queues.

use core::ffi::{c_int, c_void};
use core::mem::zeroed;
use std::sync::Arc;

use verbs_core::Error;
use verbs_core::srq::{SharedReceiveQueue, SrqAttributes};

use crate::abi::attributes::{IbvSrqAttr, IbvSrqInitAttr, IbvSrqInitAttrEx};
use crate::abi::context::IbvContext;
use crate::abi::flags::{IBV_SRQ_LIMIT, IBV_SRQ_MAX_WR};
use crate::abi::objects::{IbvPd, IbvRecvWr, IbvSrq};
use crate::handles::{self, Handle};
use crate::pd::Pd;
use crate::{elements, errno};

const INIT_ATTR_TYPE: u32 = 1;
const INIT_ATTR_PD: u32 = 1 << 1;

/// A shared receive queue.
#[repr(C)]
pub struct Srq {
    base: IbvSrq,
    pub core: Arc<SharedReceiveQueue>,
}

// SAFETY: it is `repr(C)` and begins with an `IbvSrq`.
unsafe impl Handle for Srq {
    type C = IbvSrq;
}

fn create(pd: *mut IbvPd, srq_context: *mut c_void, attr: &mut IbvSrqAttr) -> Result<*mut IbvSrq, Error> {
    let domain = handles::get::<Pd>(pd)?;
    let asked = SrqAttributes { receives: attr.max_wr, elements: attr.max_sge, limit: 0 };
    handles::create_with(|pointer: *mut IbvSrq| {
        let token = pointer.expose_provenance() as u64;
        let core = SharedReceiveQueue::new(&domain.core, asked, token)?;
        // SAFETY: all-zero bytes are a valid queue: null pointers, numbers, and a mutex and a condition as their static initializers make
        // them.
        let mut base: IbvSrq = unsafe { zeroed() };
        // SAFETY: the domain was found above.
        base.context = unsafe { (*pd).context };
        base.srq_context = srq_context;
        base.pd = pd;
        let granted = core.attributes();
        attr.max_wr = granted.receives;
        attr.max_sge = granted.elements;
        Ok(Srq { base, core })
    })
}

/// Creates a shared receive queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_srq(pd: *mut IbvPd, attr: *mut IbvSrqInitAttr) -> *mut IbvSrq {
    // SAFETY: the program passes a structure that the call may change.
    let attr = unsafe { &mut *attr };
    errno::pointer(create(pd, attr.srq_context, &mut attr.attr))
}

/// Creates a shared receive queue; of the basic type only.
pub unsafe extern "C" fn create_srq_ex(
    _context: *mut IbvContext,
    attr: *mut IbvSrqInitAttrEx,
) -> *mut IbvSrq {
    // SAFETY: the program passes a structure that the call may change.
    let attr = unsafe { &mut *attr };
    let basic = attr.comp_mask & INIT_ATTR_TYPE == 0 || attr.srq_type == 0;
    errno::pointer(if attr.comp_mask & !(INIT_ATTR_TYPE | INIT_ATTR_PD) != 0 || !basic {
        Err(Error::Unsupported)
    } else if attr.comp_mask & INIT_ATTR_PD == 0 {
        Err(Error::Invalid)
    } else {
        create(attr.pd, attr.srq_context, &mut attr.attr)
    })
}

/// Changes the size of a shared receive queue, or its limit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_modify_srq(srq: *mut IbvSrq, attr: *mut IbvSrqAttr, mask: c_int) -> c_int {
    // SAFETY: the program passes a structure.
    let attr = unsafe { &*attr };
    if mask & !(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT) != 0 {
        return libc::EINVAL;
    }
    let receives = (mask & IBV_SRQ_MAX_WR != 0).then_some(attr.max_wr);
    let limit = (mask & IBV_SRQ_LIMIT != 0).then_some(attr.srq_limit);
    errno::status(handles::get::<Srq>(srq).and_then(|srq| srq.core.modify(receives, limit)))
}

/// Returns the attributes of a shared receive queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_srq(srq: *mut IbvSrq, attr: *mut IbvSrqAttr) -> c_int {
    let Ok(srq) = handles::get::<Srq>(srq) else { return libc::EINVAL };
    let SrqAttributes { receives, elements, limit } = srq.core.attributes();
    // SAFETY: the program passes a structure that the call may write.
    unsafe { attr.write(IbvSrqAttr { max_wr: receives, max_sge: elements, srq_limit: limit }) };
    0
}

/// Destroys a shared receive queue. Fails as `EBUSY` if queue pairs use it. Waits until its events are acknowledged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_srq(srq: *mut IbvSrq) -> c_int {
    errno::status(handles::destroy::<Srq>(srq, |srq| srq.core.destroy()))
}

/// Posts receives to a shared receive queue.
pub unsafe extern "C" fn post_srq_recv(
    srq: *mut IbvSrq,
    wr: *mut IbvRecvWr,
    bad_wr: *mut *mut IbvRecvWr,
) -> c_int {
    // SAFETY: the program passes a shared receive queue.
    let Some(srq) = (unsafe { handles::trusted::<Srq>(srq) }) else { return libc::EINVAL };
    // SAFETY: the program passes a list of requests.
    unsafe { elements::post_receives(wr, bad_wr, |request| srq.core.post(request)) }
}
