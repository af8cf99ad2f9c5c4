// SPDX-License-Identifier: MIT OR Apache-2.0

//! Messages, events and extended interfaces, between two queue pairs of a device.

use core::ffi::{c_int, c_void};
use core::ptr::null_mut;

use verbs::abi::attributes::{
    IbvAsyncEvent, IbvCqInitAttrEx, IbvQpAttr, IbvQpInitAttr, IbvQpInitAttrEx, IbvSrqAttr, IbvSrqInitAttr,
};
use verbs::abi::flags::*;
use verbs::abi::objects::{IbvCq, IbvCqEx, IbvMwBindInfo, IbvPollCqAttr, IbvQp, IbvQpEx, IbvSge, WrAtomic};

use crate::rig::{
    Memory, Rig, call, completions, errno, field, number, poll, post, receive, receive_shared, request_event,
    send_wr, zero,
};

/// Two connected queue pairs with one completion queue.
struct Connected<'a> {
    rig: &'a Rig,
    cq: *mut IbvCq,
    qps: [*mut IbvQp; 2],
}

impl<'a> Connected<'a> {
    fn new(rig: &'a Rig, cq: *mut IbvCq) -> Self {
        let qps = [rig.qp(cq), rig.qp(cq)];
        rig.connect(qps[0], qps[1]);
        rig.connect(qps[1], qps[0]);
        Self { rig, cq, qps }
    }
}

impl Drop for Connected<'_> {
    fn drop(&mut self) {
        for qp in self.qps {
            call!(ibv_destroy_qp(qp));
        }
        call!(ibv_destroy_cq(self.cq));
        let _ = self.rig;
    }
}

#[test]
fn messages_arrive_with_immediate_data() {
    let rig = Rig::new();
    let pair = Connected::new(&rig, rig.cq());
    let (mut source, mut sink) = (rig.memory(5000), rig.memory(5000));
    let data: Vec<u8> = (0..5000u32).map(|at| (at * 7) as u8).collect();
    source.fill(&data);
    for id in [1, 2] {
        assert_eq!(receive(pair.qps[1], id, &mut [sink.sge(0, 5000)]), 0);
    }
    let mut sges = [source.sge(0, 2000), source.sge(2000, 3000)];
    let mut wr = send_wr(3, IBV_WR_SEND_WITH_IMM);
    (wr.sg_list, wr.num_sge, wr.imm_data) = (sges.as_mut_ptr(), 2, 0x1234_5678u32.to_be());
    assert_eq!(post(pair.qps[0], &mut wr).0, 0);
    let mut done = completions(pair.cq, 2);
    done.sort_by_key(|wc| wc.wr_id);
    assert_eq!((done[0].opcode, done[0].byte_len, done[0].wc_flags), (128, 5000, IBV_WC_WITH_IMM));
    assert_eq!((done[0].imm_data, done[0].qp_num), (0x1234_5678u32.to_be(), number(pair.qps[1])));
    assert_eq!((done[1].opcode, done[1].status, done[1].qp_num), (0, 0, number(pair.qps[0])));
    assert_eq!(sink.read(5000), data);
    // A WRITE with immediate data uses the second receive.
    sink.fill(&[0; 5000]);
    wr = send_wr(4, IBV_WR_RDMA_WRITE_WITH_IMM);
    (wr.sg_list, wr.num_sge, wr.imm_data) = (sges.as_mut_ptr(), 2, 9);
    wr.wr.rdma.remote_addr = sink.address(0);
    wr.wr.rdma.rkey = sink.key();
    assert_eq!(post(pair.qps[0], &mut wr).0, 0);
    let mut done = completions(pair.cq, 2);
    done.sort_by_key(|wc| wc.wr_id);
    assert_eq!((done[0].wr_id, done[0].opcode, done[0].byte_len, done[0].imm_data), (2, 129, 5000, 9));
    assert_eq!(done[1].opcode, 1);
    assert_eq!(sink.read(5000), data);
    // A READ back, and inline data, which may change after the call.
    let mut back = [sink.sge(0, 100)];
    source.fill(&[5; 100]);
    wr = send_wr(5, IBV_WR_RDMA_READ);
    (wr.sg_list, wr.num_sge) = (back.as_mut_ptr(), 1);
    wr.wr.rdma.remote_addr = source.address(0);
    wr.wr.rdma.rkey = source.key();
    assert_eq!(post(pair.qps[0], &mut wr).0, 0);
    assert_eq!(completions(pair.cq, 1)[0].opcode, 2);
    assert_eq!(sink.read(100), [5; 100]);
    let mut bytes = *b"inline";
    let mut inline = [IbvSge { addr: bytes.as_ptr().addr() as u64, length: 6, lkey: 0 }];
    wr = send_wr(6, IBV_WR_RDMA_WRITE);
    (wr.sg_list, wr.num_sge) = (inline.as_mut_ptr(), 1);
    wr.send_flags |= IBV_SEND_INLINE;
    wr.wr.rdma.remote_addr = sink.address(0);
    wr.wr.rdma.rkey = sink.key();
    assert_eq!(post(pair.qps[0], &mut wr).0, 0);
    bytes.fill(0);
    completions(pair.cq, 1);
    assert_eq!(sink.read(6), b"inline");
}

#[test]
fn an_access_that_is_not_allowed_fails_and_is_reported() {
    let rig = Rig::new();
    let pair = Connected::new(&rig, rig.cq());
    let memory = rig.memory(100);
    let mut sges = [memory.sge(0, 100)];
    let mut wr = send_wr(1, IBV_WR_RDMA_WRITE);
    (wr.sg_list, wr.num_sge) = (sges.as_mut_ptr(), 1);
    wr.wr.rdma.remote_addr = memory.address(1);
    wr.wr.rdma.rkey = memory.key();
    assert_eq!(post(pair.qps[0], &mut wr).0, 0);
    let done = completions(pair.cq, 1)[0];
    assert_eq!((done.wr_id, done.status), (1, 10), "remote access error");
    let mut event: IbvAsyncEvent = zero();
    assert_eq!(call!(ibv_get_async_event(rig.context, &raw mut event)), 0);
    // SAFETY: an event of a queue pair.
    let qp = unsafe { event.element.qp };
    assert_eq!((event.event_type, qp), (3, pair.qps[1]), "access error of the responder");
    call!(ibv_ack_async_event(&raw mut event));
}

#[test]
fn a_solicited_message_wakes_a_channel() {
    let rig = Rig::new();
    let channel = call!(ibv_create_comp_channel(rig.context));
    let cq = rig.cq_with(channel);
    assert_eq!(call!(ibv_destroy_comp_channel(channel)), libc::EBUSY);
    let pair = Connected::new(&rig, cq);
    for id in 0..2 {
        assert_eq!(receive(pair.qps[1], id, &mut []), 0);
    }
    let fd = field!(channel, fd);
    // SAFETY: a descriptor of this process.
    unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK) };
    let (mut event_cq, mut context): (*mut IbvCq, *mut c_void) = (null_mut(), null_mut());
    request_event(cq, true);
    assert_eq!(post(pair.qps[0], &mut send_wr(7, IBV_WR_SEND)).0, 0);
    completions(cq, 2);
    assert_eq!(call!(ibv_get_cq_event(channel, &raw mut event_cq, &raw mut context)), -1);
    assert_eq!(errno(), libc::EAGAIN, "not solicited");
    // SAFETY: a descriptor of this process.
    unsafe { libc::fcntl(fd, libc::F_SETFL, 0) };
    let mut wr = send_wr(8, IBV_WR_SEND);
    wr.send_flags |= IBV_SEND_SOLICITED;
    assert_eq!(post(pair.qps[0], &mut wr).0, 0);
    assert_eq!(call!(ibv_get_cq_event(channel, &raw mut event_cq, &raw mut context)), 0);
    assert_eq!((event_cq, context.addr()), (cq, 7));
    call!(ibv_ack_cq_events(cq, 1));
    completions(cq, 2);
    drop(pair);
    assert_eq!(call!(ibv_destroy_comp_channel(channel)), 0);
}

#[test]
fn a_completion_queue_changes_its_size() {
    let rig = Rig::new();
    let cq = rig.cq();
    for (cqe, error) in [(0, libc::EINVAL), (-1, libc::EINVAL), ((1 << 20) + 1, libc::EINVAL), (200, 0)] {
        assert_eq!(call!(ibv_resize_cq(cq, cqe)), error);
    }
    assert!(field!(cq, cqe) >= 200);
    assert_eq!(call!(ibv_destroy_cq(cq)), 0);
    for (cqe, vector) in [(0, 0), (-1, 0), ((1 << 20) + 1, 0), (10, 1), (10, -1)] {
        assert!(call!(ibv_create_cq(rig.context, cqe, null_mut(), null_mut(), vector)).is_null());
        assert_eq!(errno(), libc::EINVAL);
    }
    let foreign = rig.pd.cast();
    assert!(call!(ibv_create_cq(rig.context, 10, null_mut(), foreign, 0)).is_null());
    assert_eq!(errno(), libc::EINVAL);
}

#[test]
fn a_shared_receive_queue_reports_its_limit() {
    let rig = Rig::new();
    let cq = rig.cq();
    let mut attr =
        IbvSrqInitAttr { srq_context: null_mut(), attr: IbvSrqAttr { max_wr: 4, max_sge: 1, srq_limit: 0 } };
    let srq = call!(ibv_create_srq(rig.pd, &raw mut attr));
    assert_eq!(receive_shared(srq, 1, &mut []), 0);
    let mut limit = IbvSrqAttr { max_wr: 0, max_sge: 0, srq_limit: 2 };
    assert_eq!(call!(ibv_modify_srq(srq, &raw mut limit, IBV_SRQ_LIMIT)), 0);
    let mut event: IbvAsyncEvent = zero();
    assert_eq!(call!(ibv_get_async_event(rig.context, &raw mut event)), 0);
    // SAFETY: an event of a shared receive queue.
    assert_eq!((event.event_type, unsafe { event.element.srq }), (15, srq));
    call!(ibv_ack_async_event(&raw mut event));
    assert_eq!(call!(ibv_query_srq(srq, &raw mut limit)), 0);
    assert_eq!(limit.srq_limit, 0);
    // One that is set to 0 before the queue falls below it.
    assert_eq!(receive_shared(srq, 2, &mut []), 0);
    for srq_limit in [2, 0] {
        let mut limit = IbvSrqAttr { max_wr: 0, max_sge: 0, srq_limit };
        assert_eq!(call!(ibv_modify_srq(srq, &raw mut limit, IBV_SRQ_LIMIT)), 0);
    }
    let mut attr = Rig::init_attr(cq, IBV_QPT_RC);
    attr.srq = srq;
    let qp = call!(ibv_create_qp(rig.pd, &raw mut attr));
    rig.connect(qp, qp);
    assert_eq!(post(qp, &mut send_wr(3, IBV_WR_SEND)).0, 0);
    completions(cq, 2);
    let fd = field!(rig.context, async_fd);
    // SAFETY: a descriptor of this process.
    unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK) };
    assert_eq!(call!(ibv_get_async_event(rig.context, &raw mut event)), -1);
    assert_eq!(errno(), libc::EAGAIN);
    assert_eq!(call!(ibv_destroy_qp(qp)), 0);
    assert_eq!(call!(ibv_destroy_srq(srq)), 0);
    assert_eq!(call!(ibv_destroy_cq(cq)), 0);
}

/// Brings a queue pair for datagrams to RTS.
fn open_datagrams(qp: *mut IbvQp) {
    let attr = |qp_state| IbvQpAttr { qp_state, port_num: 1, qkey: 0x1111, ..IbvQpAttr::default() };
    let init = 1 | 1 << 4 | 1 << 5 | 1 << 6;
    for (state, mask) in [(IBV_QPS_INIT, init), (IBV_QPS_RTR, 1), (IBV_QPS_RTS, 1 | 1 << 16)] {
        assert_eq!(Rig::modify(qp, &attr(state), mask), 0);
    }
}

#[test]
fn datagrams_arrive_behind_a_header() {
    let rig = Rig::new();
    let cq = rig.cq();
    let qps = [(); 2].map(|()| {
        let qp = call!(ibv_create_qp(rig.pd, &mut Rig::init_attr(cq, IBV_QPT_UD)));
        open_datagrams(qp);
        qp
    });
    let mut wrong = rig.ah_attr();
    wrong.port_num = 2;
    assert!(call!(ibv_create_ah(rig.pd, &raw mut wrong)).is_null());
    assert_eq!(errno(), libc::EINVAL);
    let ah = call!(ibv_create_ah(rig.pd, &mut rig.ah_attr()));
    let (mut source, sink) = (rig.memory(100), rig.memory(200));
    source.fill(&[3; 100]);
    assert_eq!(receive(qps[1], 1, &mut [sink.sge(0, 200)]), 0);
    let mut sges = [source.sge(0, 100)];
    let mut wr = send_wr(2, IBV_WR_SEND);
    (wr.sg_list, wr.num_sge) = (sges.as_mut_ptr(), 1);
    assert_eq!(post(qps[0], &mut wr).0, libc::EINVAL, "without an address handle");
    wr.wr.ud = verbs::abi::objects::WrUd { ah, remote_qpn: number(qps[1]), remote_qkey: 0x1111 };
    assert_eq!(post(qps[0], &mut wr).0, 0);
    let mut done = completions(cq, 2);
    done.sort_by_key(|wc| wc.wr_id);
    assert_eq!((done[0].byte_len, done[0].wc_flags, done[0].src_qp), (140, IBV_WC_GRH, number(qps[0])));
    assert_eq!((done[0].sl, done[1].sl), (0b1010, 0), "RoCEv2 over IPv4");
    assert_eq!(sink.read(140)[40..], [3; 100]);
    wr.opcode = IBV_WR_RDMA_WRITE;
    assert_eq!(post(qps[0], &mut wr).0, libc::EINVAL, "a datagram is a SEND");
    assert_eq!(call!(ibv_destroy_ah(ah)), 0);
    assert_eq!(call!(ibv_destroy_ah(ah)), libc::EINVAL);
    wr.opcode = IBV_WR_SEND;
    for foreign in [ah, cq.cast()] {
        wr.wr.ud.ah = foreign;
        assert_eq!(
            post(qps[0], &mut wr).0,
            libc::EINVAL,
            "an address handle that is gone, and another object"
        );
    }
    for qp in qps {
        assert_eq!(call!(ibv_destroy_qp(qp)), 0);
    }
    assert_eq!(call!(ibv_destroy_cq(cq)), 0);
}

/// Creates an extended queue pair with these operations, or returns the error number.
fn extended(rig: &Rig, cq: *mut IbvCq, operations: u64) -> Result<*mut IbvQp, c_int> {
    let base = Rig::init_attr(cq, IBV_QPT_RC);
    let mut attr: IbvQpInitAttrEx = zero();
    (attr.send_cq, attr.recv_cq, attr.cap) = (base.send_cq, base.recv_cq, base.cap);
    (attr.qp_type, attr.pd, attr.send_ops_flags) = (base.qp_type, rig.pd, operations);
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    let create = rig.table().create_qp_ex.unwrap();
    // SAFETY: the arguments are those of the inline function in the header.
    let qp = unsafe { create(rig.context, &raw mut attr) };
    if qp.is_null() { Err(errno()) } else { Ok(qp) }
}

/// Returns how many requests a send queue takes.
fn extended_depth(qp: *mut IbvQp) -> u32 {
    let (mut attr, mut init): (IbvQpAttr, IbvQpInitAttr) = (zero(), zero());
    assert_eq!(call!(ibv_query_qp(qp, &raw mut attr, 0, &raw mut init)), 0);
    init.cap.max_send_wr
}

/// Calls a function of an extended queue pair.
macro_rules! build {
    ($qp:expr, $name:ident($($argument:expr),*)) => {{
        // SAFETY: the queue pair exists, and has the functions of the operations that it was created with.
        let function = unsafe { (*$qp).$name }.unwrap();
        // SAFETY: the arguments are those of the manual page.
        unsafe { function($qp $(, $argument)*) }
    }};
}

fn set_request(qp: *mut IbvQpEx, id: u64) {
    // SAFETY: the queue pair is destroyed later, and its functions run in this thread only.
    let fields = unsafe { &mut *qp };
    (fields.wr_id, fields.wr_flags) = (id, IBV_SEND_SIGNALED);
}

#[test]
fn an_extended_queue_pair_posts_lists() {
    let rig = Rig::new();
    let cq = rig.cq();
    let plain = rig.qp(cq);
    assert!(call!(ibv_qp_to_qp_ex(plain)).is_null());
    assert_eq!(extended(&rig, cq, 1 << 10), Err(libc::EOPNOTSUPP), "TSO");
    let qp = extended(&rig, cq, 1 | 1 << 2).unwrap();
    let ex = call!(ibv_qp_to_qp_ex(qp));
    rig.connect(qp, plain);
    rig.connect(plain, qp);
    let (mut source, sink) = (rig.memory(100), rig.memory(200));
    source.fill(&[8; 100]);
    assert_eq!(receive(plain, 1, &mut [sink.sge(100, 100)]), 0);
    // An aborted list posts nothing.
    build!(ex, wr_start());
    set_request(ex, 9);
    build!(ex, wr_send());
    build!(ex, wr_abort());
    build!(ex, wr_start());
    set_request(ex, 2);
    build!(ex, wr_rdma_write(sink.key(), sink.address(0)));
    let sge = source.sge(0, 100);
    build!(ex, wr_set_sge(sge.lkey, sge.addr, sge.length));
    set_request(ex, 3);
    build!(ex, wr_send());
    let mut bytes = *b"inline";
    build!(ex, wr_set_inline_data(bytes.as_mut_ptr().cast(), 6));
    bytes.fill(0);
    assert_eq!(build!(ex, wr_complete()), 0);
    let mut done: Vec<_> = completions(cq, 3).iter().map(|wc| (wc.wr_id, wc.status)).collect();
    done.sort_unstable();
    assert_eq!(done, [(1, 0), (2, 0), (3, 0)]);
    assert_eq!((&sink.read(106)[..100], &sink.read(106)[100..]), (&[8; 100][..], &b"inline"[..]));
    // Data without a request.
    build!(ex, wr_start());
    build!(ex, wr_set_sge(0, 0, 0));
    assert_eq!(build!(ex, wr_complete()), libc::EINVAL);
    // Nothing of a list is posted in which a binding names no region.
    let nothing: IbvMwBindInfo = zero();
    build!(ex, wr_start());
    set_request(ex, 4);
    build!(ex, wr_rdma_write(sink.key(), sink.address(0)));
    build!(ex, wr_bind_mw(null_mut(), 0, &raw const nothing));
    assert_eq!(build!(ex, wr_complete()), libc::EINVAL);
    // Nor one that is too long, or whose last request has too much data.
    let (fits, mut long) = (extended_depth(qp), [0u8; 600]);
    for (count, error) in [(fits + 1, libc::ENOMEM), (2, libc::EINVAL)] {
        build!(ex, wr_start());
        set_request(ex, 6);
        for _ in 0..count {
            build!(ex, wr_rdma_write(sink.key(), sink.address(0)));
        }
        if error == libc::EINVAL {
            build!(ex, wr_set_inline_data(long.as_mut_ptr().cast(), long.len()));
        }
        assert_eq!(build!(ex, wr_complete()), error);
    }
    build!(ex, wr_start());
    set_request(ex, 5);
    build!(ex, wr_rdma_write(sink.key(), sink.address(0)));
    assert_eq!(build!(ex, wr_complete()), 0);
    assert_eq!(completions(cq, 1)[0].wr_id, 5);
    assert!(poll(cq).is_empty());
    // Without a start.
    assert_eq!(build!(ex, wr_complete()), libc::EINVAL);
    build!(ex, wr_abort());
    for qp in [plain, qp] {
        assert_eq!(call!(ibv_destroy_qp(qp)), 0);
    }
    assert_eq!(call!(ibv_destroy_cq(cq)), 0);
}

#[test]
fn an_extended_completion_queue_is_read_by_functions() {
    let rig = Rig::new();
    let mut attr: IbvCqInitAttrEx = zero();
    (attr.cqe, attr.wc_flags) = (10, 0x7F);
    let create = rig.table().create_cq_ex.unwrap();
    // SAFETY: the arguments are those of the inline function in the header.
    let cq = unsafe { create(rig.context, &raw mut attr) };
    attr.wc_flags = 1 << 7;
    // SAFETY: the device is open, and `attr` outlives the call, which refuses the flags in it.
    assert!(unsafe { create(rig.context, &raw mut attr) }.is_null());
    assert_eq!(errno(), libc::EOPNOTSUPP, "times are not offered");
    let pair = Connected::new(&rig, cq.cast());
    let mut poll_attr = IbvPollCqAttr { comp_mask: 0 };
    assert_eq!(build!(cq, start_poll(&raw mut poll_attr)), libc::ENOENT);
    poll_attr.comp_mask = 1;
    assert_eq!(build!(cq, start_poll(&raw mut poll_attr)), libc::EINVAL);
    poll_attr.comp_mask = 0;
    assert_eq!(receive(pair.qps[1], 1, &mut []), 0);
    let mut wr = send_wr(2, IBV_WR_SEND_WITH_IMM);
    wr.imm_data = 77;
    assert_eq!(post(pair.qps[0], &mut wr).0, 0);
    let mut seen = Vec::new();
    while seen.len() < 2 {
        if build!(cq, start_poll(&raw mut poll_attr)) == 0 {
            // SAFETY: only calls of this thread write to the queue, the next one after these reads.
            let fields: &IbvCqEx = unsafe { &*cq };
            let (id, status) = (fields.wr_id, fields.status);
            seen.push((id, status, build!(cq, read_opcode()), build!(cq, read_imm_data())));
            build!(cq, end_poll());
        }
    }
    seen.sort_unstable();
    assert_eq!(seen, [(1, 0, 128, 77), (2, 0, 0, 0)]);
    assert!(poll(cq.cast()).is_empty());
}

#[test]
fn atomic_operations_return_the_number_before() {
    let rig = Rig::new();
    let pair = Connected::new(&rig, rig.cq());
    let (mut number, sink) = (rig.memory(16), rig.memory(8));
    number.fill(&7u64.to_ne_bytes());
    let mut sges = [sink.sge(0, 8)];
    let mut atomic = |opcode, address, compare_add, swap, bytes| {
        sges[0].length = bytes;
        let mut wr = send_wr(1, opcode);
        (wr.sg_list, wr.num_sge) = (sges.as_mut_ptr(), 1);
        wr.wr.atomic = WrAtomic { remote_addr: address, compare_add, swap, rkey: number.key() };
        post(pair.qps[0], &mut wr).0
    };
    let value = |memory: &Memory| u64::from_ne_bytes(memory.read(8).try_into().unwrap());
    assert_eq!(atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, number.address(0), 5, 0, 8), 0);
    let done = &completions(pair.cq, 1)[0];
    assert_eq!((done.opcode, done.status, value(&sink), value(&number)), (4, 0, 7, 12));
    assert_eq!(atomic(IBV_WR_ATOMIC_CMP_AND_SWP, number.address(0), 12, 99, 8), 0);
    let done = &completions(pair.cq, 1)[0];
    assert_eq!((done.opcode, done.status, value(&sink), value(&number)), (3, 0, 12, 99));
    assert_eq!(atomic(IBV_WR_ATOMIC_CMP_AND_SWP, number.address(0), 12, 1, 8), 0);
    assert_eq!((completions(pair.cq, 1)[0].status, value(&sink), value(&number)), (0, 99, 99));
    // Eight bytes, at a multiple of eight.
    assert_eq!(atomic(IBV_WR_ATOMIC_CMP_AND_SWP, number.address(0), 12, 1, 4), libc::EINVAL);
    assert_eq!(atomic(IBV_WR_ATOMIC_CMP_AND_SWP, number.address(4), 12, 1, 8), 0);
    assert_eq!(completions(pair.cq, 1)[0].status, 9, "remote invalid request");
    let mut event: IbvAsyncEvent = zero();
    assert_eq!(call!(ibv_get_async_event(rig.context, &raw mut event)), 0);
    assert_eq!(event.event_type, 2, "request error of the responder");
    call!(ibv_ack_async_event(&raw mut event));
}
