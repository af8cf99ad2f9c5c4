// SPDX-License-Identifier: MIT OR Apache-2.0

//! Errors of `ibv_post_send`, `ibv_post_recv` and `ibv_post_srq_recv`.

use core::ptr::null_mut;

use verbs::abi::attributes::{IbvSrqAttr, IbvSrqInitAttr};
use verbs::abi::flags::*;
use verbs::abi::objects::{IbvSge, WrUd};

use crate::rig::{Rig, TO_INIT, TO_RTR, call, completions, errno, post, receive, receive_shared, send_wr};

#[test]
fn requests_need_a_state_in_which_they_can_be_sent() {
    let rig = Rig::new();
    let cq = rig.cq();
    let qp = rig.qp(cq);
    let mut wr = send_wr(1, IBV_WR_SEND);
    assert_eq!(post(qp, &mut wr), (libc::EINVAL, true));
    assert_eq!(receive(qp, 1, &mut []), libc::EINVAL, "in Reset");
    assert_eq!(Rig::modify(qp, &rig.attr(IBV_QPS_INIT, qp), TO_INIT), 0);
    assert_eq!(post(qp, &mut wr), (libc::EINVAL, true));
    assert_eq!(receive(qp, 2, &mut []), 0);
    assert_eq!(Rig::modify(qp, &rig.attr(IBV_QPS_RTR, qp), TO_RTR), 0);
    assert_eq!(post(qp, &mut wr), (libc::EINVAL, true));
    // In Error requests complete as flushed, those that were posted before as well as later ones.
    assert_eq!(Rig::modify(qp, &rig.attr(IBV_QPS_ERR, qp), 1), 0);
    assert_eq!(receive(qp, 3, &mut []), 0);
    let flushed: Vec<_> = completions(cq, 2).iter().map(|wc| (wc.wr_id, wc.status)).collect();
    assert_eq!(flushed, [(2, 5), (3, 5)]);
    assert_eq!(call!(ibv_destroy_qp(qp)), 0);
    let qp = rig.qp(cq);
    rig.connect(qp, qp);
    assert_eq!(Rig::modify(qp, &rig.attr(IBV_QPS_ERR, qp), 1), 0);
    assert_eq!(post(qp, &mut wr).0, 0);
    assert_eq!(completions(cq, 1)[0].status, 5);
    assert_eq!(call!(ibv_destroy_qp(qp)), 0);
    assert_eq!(call!(ibv_destroy_cq(cq)), 0);
}

#[test]
fn requests_beyond_the_capabilities_are_refused() {
    let rig = Rig::new();
    let cq = rig.cq();
    let mut attr = Rig::init_attr(cq, IBV_QPT_RC);
    let qp = call!(ibv_create_qp(rig.pd, &raw mut attr));
    rig.connect(qp, qp);
    let elements = usize::try_from(attr.cap.max_send_sge).unwrap();
    let mut sges = vec![IbvSge::default(); 40];
    for (count, error) in [(elements, 0), (elements + 1, libc::EINVAL), (40, libc::EINVAL)] {
        let mut wr = send_wr(1, IBV_WR_RDMA_WRITE);
        wr.sg_list = sges.as_mut_ptr();
        wr.num_sge = count.try_into().unwrap();
        assert_eq!(post(qp, &mut wr), (error, error != 0), "{count} elements");
    }
    let mut negative = send_wr(1, IBV_WR_SEND);
    negative.num_sge = -1;
    assert_eq!(post(qp, &mut negative).0, libc::EINVAL);
    // Inline data that is too long, and with a READ.
    let data = [1u8; 600];
    let mut sge = IbvSge { addr: data.as_ptr().addr() as u64, length: 600, lkey: 0 };
    let mut inline = send_wr(2, IBV_WR_SEND);
    inline.send_flags |= IBV_SEND_INLINE;
    (inline.sg_list, inline.num_sge) = (&raw mut sge, 1);
    assert_eq!(post(qp, &mut inline), (libc::EINVAL, true));
    for opcode in [IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD] {
        sge.length = 8;
        (inline.sg_list, inline.opcode) = (&raw mut sge, opcode);
        assert_eq!(post(qp, &mut inline).0, libc::EINVAL);
    }
    // Checksums of raw packets, and a flag that is none.
    for flag in [1 << 4, 1 << 9] {
        let mut checksum = send_wr(2, IBV_WR_RDMA_WRITE);
        checksum.send_flags |= flag;
        assert_eq!(post(qp, &mut checksum), (libc::EINVAL, true));
    }
    // Operations that do not exist, or are not offered: TSO, 99.
    for opcode in [10, 99, -1] {
        assert_eq!(post(qp, &mut send_wr(3, opcode)), (libc::EOPNOTSUPP, true), "{opcode}");
    }
    let mut receives = vec![IbvSge::default(); usize::try_from(attr.cap.max_recv_sge).unwrap() + 1];
    assert_eq!(receive(qp, 1, &mut receives), libc::EINVAL);
    for _ in 0..attr.cap.max_recv_wr {
        assert_eq!(receive(qp, 1, &mut []), 0);
    }
    assert_eq!(receive(qp, 1, &mut []), libc::ENOMEM);
    // The invalidation of a key that no request has bound fails when it is executed.
    assert_eq!(post(qp, &mut send_wr(4, IBV_WR_LOCAL_INV)).0, 0);
    let done = completions(cq, 2);
    assert_eq!((done[1].wr_id, done[1].status), (4, 6));
    assert_eq!(call!(ibv_destroy_qp(qp)), 0);
    assert_eq!(call!(ibv_destroy_cq(cq)), 0);
}

/// Of those that the manual page lists for UC, three are not offered: `SEND_WITH_INV`, which no packet of UC names, `LOCAL_INV` and `BIND_MW`.
#[test]
fn each_service_has_its_operations() {
    let rig = Rig::new();
    let cq = rig.cq();
    let ah = call!(ibv_create_ah(rig.pd, &mut rig.ah_attr()));
    let (sends, writes) =
        ([IBV_WR_SEND, IBV_WR_SEND_WITH_IMM], [IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM]);
    let steps = [IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS];
    let of_unreliable = [TO_INIT, TO_RTR & !(1 << 15 | 1 << 17), 1 | 1 << 16];
    for (qp_type, masks, offered) in [
        (IBV_QPT_UC, of_unreliable, [sends, writes].concat()),
        (IBV_QPT_UD, [1 | 1 << 4 | 1 << 5 | 1 << 6, 1, 1 | 1 << 16], sends.to_vec()),
    ] {
        let mut init = Rig::init_attr(cq, qp_type);
        init.cap.max_send_wr = 20;
        let qp = call!(ibv_create_qp(rig.pd, &raw mut init));
        for (to, mask) in steps.into_iter().zip(masks) {
            assert_eq!(Rig::modify(qp, &rig.attr(to, qp), mask), 0);
        }
        for opcode in (0..10).filter(|&opcode| opcode != IBV_WR_BIND_MW) {
            let mut wr = send_wr(1, opcode);
            if qp_type == IBV_QPT_UD {
                wr.wr.ud = WrUd { ah, remote_qpn: 1, remote_qkey: 1 };
            }
            let expected = if offered.contains(&opcode) { 0 } else { libc::EINVAL };
            assert_eq!(post(qp, &mut wr), (expected, expected != 0), "operation {opcode} of type {qp_type}");
        }
        assert_eq!(call!(ibv_destroy_qp(qp)), 0);
    }
    assert_eq!(call!(ibv_destroy_ah(ah)), 0);
    assert_eq!(call!(ibv_destroy_cq(cq)), 0);
}

/// A list of requests ends at the first that does not fit; those before it are posted.
#[test]
fn a_full_send_queue_takes_no_more() {
    let rig = Rig::new();
    let cq = rig.cq();
    let (qp, peer) = (rig.qp(cq), rig.qp(cq));
    rig.connect(qp, peer);
    // The peer has no receive, so that SENDs stay in the queue.
    rig.connect(peer, qp);
    let mut list: Vec<_> = (0..6).map(|id| send_wr(id, IBV_WR_SEND)).collect();
    for at in 0..5 {
        list[at].next = &raw mut list[at + 1];
    }
    let (result, first_is_bad) = post(qp, &mut list[0]);
    assert_eq!((result, first_is_bad), (libc::ENOMEM, false));
    assert_eq!(Rig::modify(qp, &rig.attr(IBV_QPS_ERR, qp), 1), 0);
    let flushed: Vec<_> = completions(cq, 4).iter().map(|wc| (wc.wr_id, wc.status)).collect();
    assert_eq!(flushed, [(0, 5), (1, 5), (2, 5), (3, 5)]);
    for qp in [qp, peer] {
        assert_eq!(call!(ibv_destroy_qp(qp)), 0);
    }
    assert_eq!(call!(ibv_destroy_cq(cq)), 0);
}

#[test]
fn a_shared_receive_queue_has_its_own_receives() {
    let rig = Rig::new();
    let cq = rig.cq();
    let mut attr =
        IbvSrqInitAttr { srq_context: null_mut(), attr: IbvSrqAttr { max_wr: 2, max_sge: 1, srq_limit: 0 } };
    let srq = call!(ibv_create_srq(rig.pd, &raw mut attr));
    let mut with_srq = Rig::init_attr(cq, IBV_QPT_RC);
    with_srq.srq = srq;
    let qp = call!(ibv_create_qp(rig.pd, &raw mut with_srq));
    rig.connect(qp, qp);
    assert_eq!(receive(qp, 1, &mut []), libc::EINVAL);
    assert_eq!(receive_shared(srq, 1, &mut [IbvSge::default(); 2]), libc::EINVAL);
    assert_eq!((receive_shared(srq, 1, &mut []), receive_shared(srq, 2, &mut [])), (0, 0));
    assert_eq!(receive_shared(srq, 3, &mut []), libc::ENOMEM);
    let modify = |max_wr, srq_limit, mask| {
        let mut attr = IbvSrqAttr { max_wr, max_sge: 0, srq_limit };
        call!(ibv_modify_srq(srq, &raw mut attr, mask))
    };
    assert_eq!(modify(1, 0, IBV_SRQ_MAX_WR), libc::EINVAL, "it holds more");
    assert_eq!(modify(1 << 15, 0, IBV_SRQ_MAX_WR), libc::EINVAL);
    assert_eq!(modify(0, 9, IBV_SRQ_LIMIT), libc::EINVAL, "more than it can hold");
    assert_eq!(modify(0, 0, 4), libc::EINVAL);
    assert_eq!(modify(3, 1, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT), 0);
    let mut queried = IbvSrqAttr::default();
    assert_eq!(call!(ibv_query_srq(srq, &raw mut queried)), 0);
    assert_eq!(queried, IbvSrqAttr { max_wr: 3, max_sge: 1, srq_limit: 1 });
    assert_eq!(call!(ibv_destroy_qp(qp)), 0);
    assert_eq!(call!(ibv_destroy_srq(srq)), 0);
    let mut large = IbvSrqInitAttr {
        srq_context: null_mut(),
        attr: IbvSrqAttr { max_wr: 1 << 15, max_sge: 1, srq_limit: 0 },
    };
    assert!(call!(ibv_create_srq(rig.pd, &raw mut large)).is_null());
    assert_eq!(errno(), libc::EINVAL);
    assert_eq!(call!(ibv_destroy_cq(cq)), 0);
}
