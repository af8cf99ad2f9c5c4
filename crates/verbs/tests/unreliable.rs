// SPDX-License-Identifier: MIT OR Apache-2.0

//! Unreliable connections (`IBV_QPT_UC`), and errors of the send queue.

use core::ffi::c_int;
use core::ptr::null_mut;

use verbs::abi::attributes::{IbvQpAttr, IbvQpInitAttr, IbvSrqAttr, IbvSrqInitAttr};
use verbs::abi::flags::*;
use verbs::abi::objects::{IbvCq, IbvQp, WrRdma};

use crate::rig::{Rig, call, completions, errno, post, receive, send_wr, state};

/// Attributes of the changes to the states of a queue pair of UC.
const TO_INIT: c_int = 1 | 1 << 3 | 1 << 4 | 1 << 5;
const TO_RTR: c_int = 1 | 1 << 7 | 1 << 8 | 1 << 12 | 1 << 20;
const TO_RTS: c_int = 1 | 1 << 16;

const STEPS: [(c_int, c_int, c_int); 3] = [
    (IBV_QPS_RESET, IBV_QPS_INIT, TO_INIT),
    (IBV_QPS_INIT, IBV_QPS_RTR, TO_RTR),
    (IBV_QPS_RTR, IBV_QPS_RTS, TO_RTS),
];

/// Status of a request whose memory cannot be accessed, and of a flushed one.
const PROTECTION: c_int = 4;
const FLUSHED: c_int = 5;

fn create(rig: &Rig, cq: *mut IbvCq) -> *mut IbvQp {
    let qp = call!(ibv_create_qp(rig.pd, &mut Rig::init_attr(cq, IBV_QPT_UC)));
    assert!(!qp.is_null(), "error {}", errno());
    qp
}

fn connect(rig: &Rig, qp: *mut IbvQp, peer: *mut IbvQp) {
    for (_, to, mask) in STEPS {
        assert_eq!(Rig::modify(qp, &rig.attr(to, peer), mask), 0, "to {to}");
    }
}

fn destroy(cq: *mut IbvCq, qps: &[*mut IbvQp]) {
    for &qp in qps {
        assert_eq!(call!(ibv_destroy_qp(qp)), 0);
    }
    assert_eq!(call!(ibv_destroy_cq(cq)), 0);
}

#[test]
fn an_unreliable_connection_has_no_shared_receive_queue() {
    let rig = Rig::new();
    let cq = rig.cq();
    let mut srq =
        IbvSrqInitAttr { srq_context: null_mut(), attr: IbvSrqAttr { max_wr: 5, max_sge: 1, srq_limit: 0 } };
    let srq = call!(ibv_create_srq(rig.pd, &raw mut srq));
    for (qp_type, is_offered) in [(IBV_QPT_UC, false), (IBV_QPT_UD, true), (IBV_QPT_RC, true)] {
        let mut attr = IbvQpInitAttr { srq, ..Rig::init_attr(cq, qp_type) };
        let qp = call!(ibv_create_qp(rig.pd, &raw mut attr));
        assert_eq!(qp.is_null(), !is_offered, "type {qp_type}");
        if is_offered {
            assert_eq!(call!(ibv_destroy_qp(qp)), 0);
        } else {
            assert_eq!(errno(), libc::EINVAL);
        }
    }
    assert_eq!(call!(ibv_destroy_srq(srq)), 0);
    destroy(cq, &[]);
}

#[test]
fn a_change_needs_its_attributes() {
    let rig = Rig::new();
    let cq = rig.cq();
    let qp = create(&rig, cq);
    for (from, to, mask) in STEPS {
        let attr = rig.attr(to, qp);
        for bit in (1..21).map(|bit| 1 << bit).filter(|bit| mask & bit != 0) {
            assert_eq!(Rig::modify(qp, &attr, mask & !bit), libc::EINVAL, "to {to} without {bit:#x}");
        }
        // Q_Key, ACK timeout, retry counts, READs and the RNR timer are those of other services.
        for bit in [6, 9, 10, 11, 13, 15, 17] {
            assert_eq!(Rig::modify(qp, &attr, mask | 1 << bit), libc::EINVAL, "to {to} with bit {bit}");
        }
        assert_eq!(state(qp), from, "a change that failed has changed the state");
        assert_eq!(Rig::modify(qp, &attr, mask), 0);
        assert_eq!(state(qp), to);
    }
    destroy(cq, &[qp]);
}

#[test]
fn messages_and_writes_arrive() {
    let rig = Rig::new();
    let cq = rig.cq();
    let qps = [create(&rig, cq), create(&rig, cq)];
    connect(&rig, qps[0], qps[1]);
    connect(&rig, qps[1], qps[0]);
    let (mut source, sinks) = (rig.memory(5000), [rig.memory(5000), rig.memory(5000)]);
    let data: Vec<u8> = (0..5000u32).map(|at| (at * 7) as u8).collect();
    source.fill(&data);
    assert_eq!(receive(qps[1], 1, &mut [sinks[0].sge(0, 5000)]), 0);
    assert_eq!(receive(qps[1], 2, &mut []), 0);
    let mut sges = [source.sge(0, 2000), source.sge(2000, 3000)];
    let mut send = send_wr(3, IBV_WR_SEND);
    (send.sg_list, send.num_sge) = (sges.as_mut_ptr(), 2);
    let mut write = send_wr(4, IBV_WR_RDMA_WRITE_WITH_IMM);
    (write.sg_list, write.num_sge, write.imm_data) = (sges.as_mut_ptr(), 2, 0x0102_0304);
    write.wr.rdma = WrRdma { remote_addr: sinks[1].address(0), rkey: sinks[1].key() };
    send.next = &raw mut write;
    assert_eq!(post(qps[0], &mut send).0, 0);
    let mut done = completions(cq, 4);
    done.sort_by_key(|wc| wc.wr_id);
    let results: Vec<_> = done.iter().map(|wc| (wc.wr_id, wc.status, wc.opcode)).collect();
    // Receive, receive of a WRITE, SEND, WRITE.
    assert_eq!(results, [(1, 0, 128), (2, 0, 129), (3, 0, 0), (4, 0, 1)]);
    assert_eq!(done[1].imm_data, 0x0102_0304);
    assert!(sinks.iter().all(|sink| sink.read(5000) == data));
    // Operations that the service does not have.
    for opcode in [IBV_WR_RDMA_READ, IBV_WR_SEND_WITH_INV, IBV_WR_ATOMIC_FETCH_AND_ADD] {
        let mut wr = send_wr(5, opcode);
        let mut sge = source.sge(0, 8);
        (wr.sg_list, wr.num_sge) = (&raw mut sge, 1);
        assert_eq!(post(qps[0], &mut wr), (libc::EINVAL, true), "{opcode}");
    }
    drop((source, sinks));
    destroy(cq, &qps);
}

/// The first request fails, the others are flushed; receives go on, and a change to RTS ends the error.
#[test]
fn an_error_of_the_send_queue_ends_with_a_change_to_rts() {
    let rig = Rig::new();
    let cq = rig.cq();
    let qps = [create(&rig, cq), create(&rig, cq)];
    connect(&rig, qps[0], qps[1]);
    connect(&rig, qps[1], qps[0]);
    let sink = rig.memory(100);
    assert_eq!(receive(qps[0], 1, &mut [sink.sge(0, 100)]), 0);
    let mut bad = sink.sge(0, 100);
    bad.lkey ^= 0x55;
    let mut first = send_wr(2, IBV_WR_SEND);
    (first.sg_list, first.num_sge) = (&raw mut bad, 1);
    let mut second = send_wr(3, IBV_WR_SEND);
    first.next = &raw mut second;
    assert_eq!(post(qps[0], &mut first).0, 0);
    let results =
        |count| -> Vec<_> { completions(cq, count).iter().map(|wc| (wc.wr_id, wc.status)).collect() };
    assert_eq!(results(2), [(2, PROTECTION), (3, FLUSHED)]);
    let (mut queried, mut created) = (IbvQpAttr::default(), Rig::init_attr(cq, IBV_QPT_UC));
    assert_eq!(call!(ibv_query_qp(qps[0], &raw mut queried, 1, &raw mut created)), 0);
    assert_eq!((queried.qp_state, state(qps[0])), (IBV_QPS_SQE, IBV_QPS_SQE));
    assert_eq!(post(qps[0], &mut send_wr(4, IBV_WR_SEND)).0, 0);
    assert_eq!(results(1), [(4, FLUSHED)]);
    assert_eq!(post(qps[1], &mut send_wr(5, IBV_WR_SEND)).0, 0);
    let mut received = results(2);
    received.sort_unstable();
    assert_eq!(received, [(1, 0), (5, 0)]);
    // A change to another state than RTS, Error and Reset is none of this state.
    assert_eq!(Rig::modify(qps[0], &rig.attr(IBV_QPS_RTR, qps[1]), TO_RTR), libc::EINVAL);
    assert_eq!(Rig::modify(qps[0], &rig.attr(IBV_QPS_RTS, qps[1]), TO_RTS), libc::EINVAL, "it has a PSN");
    assert_eq!(Rig::modify(qps[0], &rig.attr(IBV_QPS_RTS, qps[1]), 1), 0);
    assert_eq!(receive(qps[1], 6, &mut []), 0);
    assert_eq!(post(qps[0], &mut send_wr(7, IBV_WR_SEND)).0, 0);
    let mut exchanged = results(2);
    exchanged.sort_unstable();
    assert_eq!(exchanged, [(6, 0), (7, 0)]);
    drop(sink);
    destroy(cq, &qps);
}
