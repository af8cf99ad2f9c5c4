// SPDX-License-Identifier: MIT OR Apache-2.0

//! A device of the loopback interface, and objects on it.

use core::ffi::{c_int, c_void};
use core::mem::zeroed;
use core::ptr::null_mut;
use core::time::Duration;
use std::time::Instant;

use verbs::abi::attributes::{IbvAhAttr, IbvGlobalRoute, IbvQpAttr, IbvQpCap, IbvQpInitAttr};
use verbs::abi::context::{IbvContext, IbvContextOps, VerbsContext};
use verbs::abi::device::IbvGid;
use verbs::abi::flags::*;
use verbs::abi::objects::{
    IbvCompChannel, IbvCq, IbvMr, IbvPd, IbvQp, IbvRecvWr, IbvSendWr, IbvSge, IbvSrq, IbvWc,
};

/// Calls an exported function, as a C program does.
macro_rules! call {
    ($name:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: the arguments are those of the function's manual page, or wrong in a way that it reports.
        unsafe { crate::calls::$name($($argument),*) }
    }};
}
pub(crate) use call;

/// Reads a field of an object of the library.
macro_rules! field {
    ($object:expr, $name:ident) => {{
        let object = $object;
        // SAFETY: the library has returned the object, and the test destroys it after its last use.
        unsafe { (*object).$name }
    }};
}
pub(crate) use field;

/// Attributes of the changes to the states of a queue pair of RC.
pub const TO_INIT: c_int = 1 | 1 << 3 | 1 << 4 | 1 << 5;
pub const TO_RTR: c_int = 1 | 1 << 7 | 1 << 8 | 1 << 12 | 1 << 15 | 1 << 17 | 1 << 20;
pub const TO_RTS: c_int = 1 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 13 | 1 << 16;

/// Returns the error number of the last call.
pub fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// A value of zeros.
pub fn zero<T>() -> T {
    // SAFETY: used for structures of C, of which zeros are a valid value.
    unsafe { zeroed() }
}

/// An open device with a protection domain.
pub struct Rig {
    pub context: *mut IbvContext,
    pub pd: *mut IbvPd,
    pub gid: IbvGid,
}

impl Rig {
    /// Opens the device of 127.0.0.1.
    pub fn new() -> Self {
        let mut count = 0;
        let list = call!(ibv_get_device_list(&raw mut count));
        let mut found = None;
        for at in 0..usize::try_from(count).unwrap() {
            // SAFETY: the list has `count` devices.
            let device = unsafe { list.wrapping_add(at).read() };
            let context = call!(ibv_open_device(device));
            let mut gid = IbvGid::default();
            if !context.is_null() && call!(ibv_query_gid(context, 1, 0, &raw mut gid)) == 0 {
                if gid.raw[10..] == [0xFF, 0xFF, 127, 0, 0, 1] {
                    found = Some((context, gid));
                    break;
                }
                call!(ibv_close_device(context));
            }
        }
        call!(ibv_free_device_list(list));
        let (context, gid) = found.expect("a device of 127.0.0.1");
        Self { context, pd: call!(ibv_alloc_pd(context)), gid }
    }

    pub fn cq(&self) -> *mut IbvCq {
        call!(ibv_create_cq(self.context, 100, null_mut(), null_mut(), 0))
    }

    pub fn cq_with(&self, channel: *mut IbvCompChannel) -> *mut IbvCq {
        call!(ibv_create_cq(self.context, 100, 7 as *mut c_void, channel, 0))
    }

    pub fn init_attr(cq: *mut IbvCq, qp_type: c_int) -> IbvQpInitAttr {
        IbvQpInitAttr {
            qp_context: null_mut(),
            send_cq: cq,
            recv_cq: cq,
            srq: null_mut(),
            cap: IbvQpCap {
                max_send_wr: 4,
                max_recv_wr: 4,
                max_send_sge: 2,
                max_recv_sge: 2,
                max_inline_data: 32,
            },
            qp_type,
            sq_sig_all: 1,
        }
    }

    pub fn qp(&self, cq: *mut IbvCq) -> *mut IbvQp {
        let qp = call!(ibv_create_qp(self.pd, &mut Self::init_attr(cq, IBV_QPT_RC)));
        assert!(!qp.is_null());
        qp
    }

    /// Returns the attributes for all states of a queue pair whose peer is `peer`.
    pub fn attr(&self, state: c_int, peer: *mut IbvQp) -> IbvQpAttr {
        IbvQpAttr {
            qp_state: state,
            port_num: 1,
            qp_access_flags: IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
            path_mtu: 3,
            dest_qp_num: number(peer),
            rq_psn: 0x00FF_FFFE,
            sq_psn: 0x00FF_FFFE,
            max_rd_atomic: 4,
            max_dest_rd_atomic: 4,
            min_rnr_timer: 12,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            ah_attr: self.ah_attr(),
            ..IbvQpAttr::default()
        }
    }

    pub fn ah_attr(&self) -> IbvAhAttr {
        IbvAhAttr {
            grh: IbvGlobalRoute { dgid: self.gid, hop_limit: 64, ..IbvGlobalRoute::default() },
            is_global: 1,
            port_num: 1,
            ..IbvAhAttr::default()
        }
    }

    /// Connects a queue pair to a peer on the same device.
    pub fn connect(&self, qp: *mut IbvQp, peer: *mut IbvQp) {
        for (state, mask) in [(IBV_QPS_INIT, TO_INIT), (IBV_QPS_RTR, TO_RTR), (IBV_QPS_RTS, TO_RTS)] {
            assert_eq!(Self::modify(qp, &self.attr(state, peer), mask), 0, "to state {state}");
        }
    }

    pub fn modify(qp: *mut IbvQp, attr: &IbvQpAttr, mask: c_int) -> c_int {
        call!(ibv_modify_qp(qp, core::ptr::from_ref(attr).cast_mut(), mask))
    }

    pub fn memory(&self, bytes: usize) -> Memory {
        let mut bytes = vec![0u8; bytes];
        let access = IBV_ACCESS_LOCAL_WRITE
            | IBV_ACCESS_REMOTE_WRITE
            | IBV_ACCESS_REMOTE_READ
            | IBV_ACCESS_REMOTE_ATOMIC
            | IBV_ACCESS_MW_BIND;
        let mr = call!(ibv_reg_mr(self.pd, bytes.as_mut_ptr().cast(), bytes.len(), access.cast_signed()));
        assert!(!mr.is_null());
        Memory { bytes, mr }
    }

    /// Returns the functions that the header's inline functions call.
    pub fn table(&self) -> &VerbsContext {
        let offset = core::mem::offset_of!(VerbsContext, context);
        let table = self.context.wrapping_byte_sub(offset).cast::<VerbsContext>();
        // SAFETY: the context is the last field of a table.
        unsafe { &*table }
    }
}

impl Drop for Rig {
    /// Fails unless each test has destroyed its objects.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(call!(ibv_dealloc_pd(self.pd)), 0, "objects are left");
            assert_eq!(call!(ibv_close_device(self.context)), 0);
        }
    }
}

/// Registered memory.
pub struct Memory {
    bytes: Vec<u8>,
    pub mr: *mut IbvMr,
}

impl Memory {
    pub fn sge(&self, offset: usize, length: usize) -> IbvSge {
        let lkey = field!(self.mr, lkey);
        IbvSge { addr: self.address(offset), length: length.try_into().unwrap(), lkey }
    }

    pub fn address(&self, offset: usize) -> u64 {
        self.bytes.as_ptr().addr() as u64 + offset as u64
    }

    pub fn key(&self) -> u32 {
        field!(self.mr, rkey)
    }

    pub fn fill(&mut self, from: &[u8]) {
        self.bytes[..from.len()].copy_from_slice(from);
    }

    pub fn read(&self, length: usize) -> Vec<u8> {
        self.bytes[..length].to_vec()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        call!(ibv_dereg_mr(self.mr));
    }
}

pub fn number(qp: *mut IbvQp) -> u32 {
    if qp.is_null() { 0 } else { field!(qp, qp_num) }
}

pub fn state(qp: *mut IbvQp) -> c_int {
    field!(qp, state)
}

/// A send request without elements.
pub fn send_wr(id: u64, opcode: c_int) -> IbvSendWr {
    IbvSendWr { wr_id: id, opcode, send_flags: IBV_SEND_SIGNALED, ..zero() }
}

/// Returns the functions of an open device.
pub fn ops<'a>(context: *mut IbvContext) -> &'a IbvContextOps {
    // SAFETY: a test's `Rig` closes the device after the last use of the table, which never changes.
    unsafe { &(*context).ops }
}

/// Posts a send request. Returns the result, and whether it was named as the bad one.
pub fn post(qp: *mut IbvQp, wr: &mut IbvSendWr) -> (c_int, bool) {
    let mut bad = null_mut();
    let post = ops(field!(qp, context)).post_send.unwrap();
    // SAFETY: the arguments are those of the manual page.
    let result = unsafe { post(qp, wr, &raw mut bad) };
    (result, core::ptr::eq(bad, wr))
}

/// Posts a receive.
pub fn receive(qp: *mut IbvQp, id: u64, sges: &mut [IbvSge]) -> c_int {
    let mut bad = null_mut();
    let num_sge = sges.len().try_into().unwrap();
    let mut wr = IbvRecvWr { wr_id: id, next: null_mut(), sg_list: sges.as_mut_ptr(), num_sge };
    let post = ops(field!(qp, context)).post_recv.unwrap();
    // SAFETY: the arguments are those of the manual page.
    unsafe { post(qp, &raw mut wr, &raw mut bad) }
}

/// Posts a receive to a shared receive queue.
pub fn receive_shared(srq: *mut IbvSrq, id: u64, sges: &mut [IbvSge]) -> c_int {
    let mut bad = null_mut();
    let num_sge = sges.len().try_into().unwrap();
    let mut wr = IbvRecvWr { wr_id: id, next: null_mut(), sg_list: sges.as_mut_ptr(), num_sge };
    let post = ops(field!(srq, context)).post_srq_recv.unwrap();
    // SAFETY: the arguments are those of the manual page.
    unsafe { post(srq, &raw mut wr, &raw mut bad) }
}

/// Takes what a completion queue has.
pub fn poll(cq: *mut IbvCq) -> Vec<IbvWc> {
    let mut completions = [IbvWc::default(); 8];
    let poll = ops(field!(cq, context)).poll_cq.unwrap();
    // SAFETY: there is room for that many.
    let count = unsafe { poll(cq, 8, completions.as_mut_ptr()) };
    completions[..usize::try_from(count).unwrap()].to_vec()
}

/// Takes `count` completions, for which it waits.
pub fn completions(cq: *mut IbvCq, count: usize) -> Vec<IbvWc> {
    let started = Instant::now();
    let mut all = Vec::new();
    while all.len() < count {
        assert!(started.elapsed() < Duration::from_secs(20), "{all:?}");
        all.extend(poll(cq));
    }
    all
}

/// Requests an event.
pub fn request_event(cq: *mut IbvCq, solicited_only: bool) {
    let request = ops(field!(cq, context)).req_notify_cq.unwrap();
    // SAFETY: the arguments are those of the manual page.
    assert_eq!(unsafe { request(cq, solicited_only.into()) }, 0);
}
