// SPDX-License-Identifier: MIT OR Apache-2.0

//! `ibv_create_qp`, `ibv_destroy_qp`, `ibv_modify_qp`, `ibv_query_qp`.

use core::ffi::c_int;
use core::ptr::null_mut;

use verbs::abi::attributes::{IbvAsyncEvent, IbvQpAttr, IbvQpCap, IbvQpInitAttr, IbvSrqAttr, IbvSrqInitAttr};
use verbs::abi::flags::*;
use verbs::abi::objects::IbvCq;

use crate::rig::{
    Rig, TO_INIT, TO_RTR, TO_RTS, call, completions, errno, number, poll, post, receive, send_wr, state, zero,
};

/// Creates a queue pair with changed attributes. Returns 0 or the error number.
fn create(rig: &Rig, cq: *mut IbvCq, change: impl FnOnce(&mut IbvQpInitAttr)) -> c_int {
    let mut attr = Rig::init_attr(cq, IBV_QPT_RC);
    change(&mut attr);
    let qp = call!(ibv_create_qp(rig.pd, &raw mut attr));
    if qp.is_null() {
        return errno();
    }
    assert_eq!(call!(ibv_destroy_qp(qp)), 0);
    0
}

/// A change of the attributes, and the error number that follows.
type Case = (fn(&mut IbvQpInitAttr), c_int);

#[test]
fn attributes_beyond_the_limits_are_refused() {
    let rig = Rig::new();
    let cq = rig.cq();
    let (invalid, unsupported) = (libc::EINVAL, libc::EOPNOTSUPP);
    let cases: [Case; 16] = [
        (|_| {}, 0),
        (|attr| attr.send_cq = null_mut(), invalid),
        (|attr| attr.recv_cq = null_mut(), invalid),
        (|attr| attr.srq = attr.send_cq.cast(), invalid),
        (|attr| attr.cap.max_send_wr = 1 << 14, 0),
        (|attr| attr.cap.max_send_wr = (1 << 14) + 1, invalid),
        (|attr| attr.cap.max_recv_wr = (1 << 14) + 1, invalid),
        (|attr| attr.cap.max_send_sge = 33, invalid),
        (|attr| attr.cap.max_recv_sge = 33, invalid),
        (|attr| attr.cap.max_inline_data = 513, invalid),
        (|attr| attr.cap = IbvQpCap::default(), 0),
        (|attr| attr.qp_type = IBV_QPT_UC, 0),
        (|attr| attr.qp_type = IBV_QPT_UD, 0),
        // Raw packets, XRC, and no type at all.
        (|attr| attr.qp_type = 8, unsupported),
        (|attr| attr.qp_type = 9, unsupported),
        (|attr| attr.qp_type = 0, unsupported),
    ];
    for (at, (change, error)) in cases.into_iter().enumerate() {
        assert_eq!(create(&rig, cq, change), error, "case {at}");
    }
    let mut attr = Rig::init_attr(cq, IBV_QPT_RC);
    assert!(call!(ibv_create_qp(null_mut(), &raw mut attr)).is_null());
    assert_eq!(errno(), libc::EINVAL);
    assert_eq!(call!(ibv_destroy_cq(cq)), 0);
}

#[test]
fn a_queue_pair_has_at_least_what_was_asked_for() {
    let rig = Rig::new();
    let cq = rig.cq();
    for asked in [
        IbvQpCap::default(),
        IbvQpCap { max_send_wr: 7, max_recv_wr: 9, max_send_sge: 3, max_recv_sge: 5, max_inline_data: 100 },
    ] {
        let mut attr = IbvQpInitAttr { cap: asked, ..Rig::init_attr(cq, IBV_QPT_RC) };
        let qp = call!(ibv_create_qp(rig.pd, &raw mut attr));
        let granted = attr.cap;
        assert!(granted.max_send_wr >= asked.max_send_wr.max(1));
        assert!(granted.max_recv_wr >= asked.max_recv_wr.max(1));
        assert!(granted.max_send_sge >= asked.max_send_sge.max(1));
        assert!(granted.max_recv_sge >= asked.max_recv_sge.max(1));
        assert!(granted.max_inline_data >= asked.max_inline_data);
        let (mut queried, mut created): (IbvQpAttr, IbvQpInitAttr) = (zero(), zero());
        assert_eq!(call!(ibv_query_qp(qp, &raw mut queried, -1, &raw mut created)), 0);
        assert_eq!((queried.cap, created.cap, queried.qp_state), (granted, granted, IBV_QPS_RESET));
        assert_eq!((created.send_cq, created.qp_type, created.sq_sig_all), (cq, IBV_QPT_RC, 1));
        assert_eq!(call!(ibv_destroy_qp(qp)), 0);
    }
    assert_eq!(call!(ibv_destroy_cq(cq)), 0);
}

#[test]
fn objects_in_use_are_busy_and_destroyed_ones_unknown() {
    let rig = Rig::new();
    let cq = rig.cq();
    let mut srq_attr =
        IbvSrqInitAttr { srq_context: null_mut(), attr: IbvSrqAttr { max_wr: 5, max_sge: 1, srq_limit: 0 } };
    let srq = call!(ibv_create_srq(rig.pd, &raw mut srq_attr));
    // Values for receives are ignored.
    let mut attr = Rig::init_attr(cq, IBV_QPT_RC);
    attr.srq = srq;
    attr.cap.max_recv_sge = 1000;
    let qp = call!(ibv_create_qp(rig.pd, &raw mut attr));
    assert!(!qp.is_null());
    assert_eq!(call!(ibv_destroy_cq(cq)), libc::EBUSY);
    assert_eq!(call!(ibv_destroy_srq(srq)), libc::EBUSY);
    assert_eq!(call!(ibv_dealloc_pd(rig.pd)), libc::EBUSY);
    assert_eq!(call!(ibv_destroy_qp(qp)), 0);
    assert_eq!(call!(ibv_destroy_qp(qp)), libc::EINVAL);
    assert_eq!(call!(ibv_destroy_qp(null_mut())), libc::EINVAL);
    assert_eq!(Rig::modify(qp, &IbvQpAttr::default(), 1), libc::EINVAL);
    assert_eq!(call!(ibv_destroy_srq(srq)), 0);
    assert_eq!(call!(ibv_destroy_srq(srq)), libc::EINVAL);
    assert_eq!(call!(ibv_destroy_cq(cq)), 0);
    assert_eq!(call!(ibv_destroy_cq(cq)), libc::EINVAL);
}

#[test]
fn of_two_threads_that_destroy_a_queue_pair_one_succeeds() {
    let rig = Rig::new();
    let cq = rig.cq();
    for _ in 0..500 {
        let qp = rig.qp(cq);
        let (address, both_are_there) = (qp.expose_provenance(), std::sync::Barrier::new(2));
        let destroy = || {
            both_are_there.wait();
            call!(ibv_destroy_qp(core::ptr::with_exposed_provenance_mut(address)))
        };
        let mut results = std::thread::scope(|scope| {
            let other = scope.spawn(destroy);
            [destroy(), other.join().unwrap()]
        });
        results.sort_unstable();
        assert_eq!(results, [0, libc::EINVAL]);
    }
    assert_eq!(call!(ibv_destroy_cq(cq)), 0);
}

/// Each change without one of its attributes, and with one that it does not take.
#[test]
fn a_change_needs_its_attributes() {
    let rig = Rig::new();
    let cq = rig.cq();
    let qp = rig.qp(cq);
    let steps = [
        (IBV_QPS_RESET, IBV_QPS_INIT, TO_INIT),
        (IBV_QPS_INIT, IBV_QPS_RTR, TO_RTR),
        (IBV_QPS_RTR, IBV_QPS_RTS, TO_RTS),
    ];
    for (from, to, mask) in steps {
        let attr = rig.attr(to, qp);
        for bit in (1..21).map(|bit| 1 << bit).filter(|bit| mask & bit != 0) {
            assert_eq!(Rig::modify(qp, &attr, mask & !bit), libc::EINVAL, "to {to} without {bit:#x}");
        }
        // The Q_Key is for datagrams.
        assert_eq!(Rig::modify(qp, &attr, mask | 1 << 6), libc::EINVAL);
        // Alternate paths, migration and other sizes are not offered; no attribute has bit 30.
        for bit in [14, 18, 19, 25] {
            assert_eq!(Rig::modify(qp, &attr, mask | 1 << bit), libc::EOPNOTSUPP);
        }
        assert_eq!(Rig::modify(qp, &attr, mask | 1 << 30), libc::EINVAL);
        assert_eq!(state(qp), from, "a change that failed has changed the state");
        assert_eq!(Rig::modify(qp, &attr, mask), 0);
        assert_eq!(state(qp), to);
    }
    assert_eq!(call!(ibv_destroy_qp(qp)), 0);
    assert_eq!(call!(ibv_destroy_cq(cq)), 0);
}

#[test]
fn values_out_of_range_are_refused() {
    let rig = Rig::new();
    let cq = rig.cq();
    let qp = rig.qp(cq);
    let refused = |to: c_int, mask: c_int, change: fn(&mut IbvQpAttr)| {
        let mut attr = rig.attr(to, qp);
        change(&mut attr);
        assert_eq!(Rig::modify(qp, &attr, mask), libc::EINVAL, "to {to} with {mask:#x}");
    };
    refused(IBV_QPS_INIT, TO_INIT, |attr| attr.port_num = 2);
    refused(IBV_QPS_INIT, TO_INIT, |attr| attr.pkey_index = 1);
    refused(IBV_QPS_INIT, TO_INIT, |attr| attr.qp_access_flags = 1 << 15);
    refused(7, 1, |_| {});
    // From Reset.
    refused(IBV_QPS_RTR, TO_RTR, |_| {});
    refused(IBV_QPS_RTS, TO_RTS, |_| {});
    refused(IBV_QPS_SQD, 1, |_| {});
    assert_eq!(Rig::modify(qp, &rig.attr(IBV_QPS_INIT, qp), TO_INIT), 0);
    refused(IBV_QPS_RTR, TO_RTR, |attr| attr.path_mtu = 6);
    refused(IBV_QPS_RTR, TO_RTR, |attr| attr.ah_attr.is_global = 0);
    refused(IBV_QPS_RTR, TO_RTR, |attr| attr.ah_attr.grh.sgid_index = 1);
    refused(IBV_QPS_RTR, TO_RTR, |attr| attr.ah_attr.grh.dgid.raw = [0xFD; 16]);
    refused(IBV_QPS_RTR, TO_RTR, |attr| attr.min_rnr_timer = 32);
    refused(IBV_QPS_RTR, TO_RTR, |attr| attr.max_dest_rd_atomic = 17);
    refused(IBV_QPS_RTR, TO_RTR, |attr| attr.dest_qp_num = 1 << 24);
    assert_eq!(Rig::modify(qp, &rig.attr(IBV_QPS_RTR, qp), TO_RTR), 0);
    refused(IBV_QPS_RTS, TO_RTS, |attr| attr.timeout = 32);
    refused(IBV_QPS_RTS, TO_RTS, |attr| attr.retry_cnt = 8);
    refused(IBV_QPS_RTS, TO_RTS, |attr| attr.rnr_retry = 8);
    refused(IBV_QPS_RTS, TO_RTS, |attr| attr.max_rd_atomic = 17);
    // The current state is another one.
    refused(IBV_QPS_RTS, TO_RTS | 2, |attr| attr.cur_qp_state = IBV_QPS_INIT);
    assert_eq!(state(qp), IBV_QPS_RTR);
    assert_eq!(call!(ibv_destroy_qp(qp)), 0);
    assert_eq!(call!(ibv_destroy_cq(cq)), 0);
}

#[test]
fn a_query_returns_what_was_set() {
    let rig = Rig::new();
    let cq = rig.cq();
    let qp = rig.qp(cq);
    rig.connect(qp, qp);
    let (mut attr, mut init): (IbvQpAttr, IbvQpInitAttr) = (zero(), zero());
    assert_eq!(call!(ibv_query_qp(qp, &raw mut attr, 0, &raw mut init)), 0);
    let set = rig.attr(IBV_QPS_RTS, qp);
    let seen = |attr: &IbvQpAttr| {
        (
            (attr.qp_state, attr.path_mtu, attr.rq_psn, attr.sq_psn, attr.dest_qp_num, attr.qp_access_flags),
            (attr.max_rd_atomic, attr.max_dest_rd_atomic, attr.min_rnr_timer, attr.port_num),
            (attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.ah_attr.grh.dgid, attr.ah_attr.is_global),
        )
    };
    assert_eq!(seen(&attr), seen(&set));
    assert_eq!((attr.cur_qp_state, attr.dest_qp_num), (IBV_QPS_RTS, number(qp)));
    // From Error back to Reset, and up again.
    assert_eq!(Rig::modify(qp, &rig.attr(IBV_QPS_ERR, qp), 1), 0);
    assert_eq!(state(qp), IBV_QPS_ERR);
    assert_eq!(Rig::modify(qp, &rig.attr(IBV_QPS_INIT, qp), TO_INIT), libc::EINVAL);
    assert_eq!(Rig::modify(qp, &rig.attr(IBV_QPS_RESET, qp), 1), 0);
    assert_eq!(call!(ibv_query_qp(qp, &raw mut attr, 0, &raw mut init)), 0);
    assert_eq!((attr.qp_state, attr.dest_qp_num, attr.timeout), (IBV_QPS_RESET, 0, 0));
    rig.connect(qp, qp);
    assert_eq!(call!(ibv_destroy_qp(qp)), 0);
    assert_eq!(call!(ibv_destroy_cq(cq)), 0);
    assert_eq!(call!(ibv_query_qp(qp, &raw mut attr, 0, &raw mut init)), libc::EINVAL);
}

#[test]
fn a_drained_send_queue_begins_no_requests() {
    const NOTIFY: c_int = 1 << 2;
    let rig = Rig::new();
    let cq = rig.cq();
    for (qp_type, to_rtr, to_rts) in
        [(IBV_QPT_RC, TO_RTR, TO_RTS), (IBV_QPT_UC, TO_RTR & !(1 << 17 | 1 << 15), 1 | 1 << 16)]
    {
        let mut init = Rig::init_attr(cq, qp_type);
        let qp = call!(ibv_create_qp(rig.pd, &raw mut init));
        for (to, mask) in [(IBV_QPS_INIT, TO_INIT), (IBV_QPS_RTR, to_rtr), (IBV_QPS_RTS, to_rts)] {
            assert_eq!(Rig::modify(qp, &rig.attr(to, qp), mask), 0);
        }
        let mut drained = rig.attr(IBV_QPS_SQD, qp);
        drained.en_sqd_async_notify = 1;
        // No attribute but the event.
        assert_eq!(Rig::modify(qp, &drained, 1 | 1 << 3), libc::EINVAL);
        assert_eq!(Rig::modify(qp, &drained, 1 | NOTIFY), 0);
        let mut event: IbvAsyncEvent = zero();
        assert_eq!(call!(ibv_get_async_event(rig.context, &raw mut event)), 0);
        // SAFETY: an event of a queue pair.
        assert_eq!((event.event_type, unsafe { event.element.qp }), (5, qp), "drained");
        call!(ibv_ack_async_event(&raw mut event));
        let (mut attr, mut init): (IbvQpAttr, IbvQpInitAttr) = (zero(), zero());
        assert_eq!(call!(ibv_query_qp(qp, &raw mut attr, 0, &raw mut init)), 0);
        assert_eq!((attr.qp_state, attr.sq_draining, state(qp)), (IBV_QPS_SQD, 0, IBV_QPS_SQD));
        assert_eq!(receive(qp, 1, &mut []), 0);
        assert_eq!(post(qp, &mut send_wr(2, IBV_WR_SEND)).0, 0);
        // Attributes of a drained queue; those of others are refused.
        attr.ah_attr = rig.ah_attr();
        attr.timeout = 12;
        let of_drained = 1 << 3 | 1 << 7 | if qp_type == IBV_QPT_RC { 1 << 9 | 1 << 15 } else { 0 };
        assert_eq!(Rig::modify(qp, &attr, of_drained), 0);
        assert_eq!(Rig::modify(qp, &attr, of_drained | 1 << 16), libc::EINVAL);
        assert_eq!(call!(ibv_query_qp(qp, &raw mut attr, 0, &raw mut init)), 0);
        assert_eq!((attr.qp_state, attr.timeout == 12), (IBV_QPS_SQD, qp_type == IBV_QPT_RC));
        assert!(poll(cq).is_empty());
        assert_eq!(Rig::modify(qp, &rig.attr(IBV_QPS_RTS, qp), 1), 0);
        let mut done: Vec<_> = completions(cq, 2).iter().map(|done| (done.wr_id, done.status)).collect();
        done.sort_unstable();
        assert_eq!((done, state(qp)), (vec![(1, 0), (2, 0)], IBV_QPS_RTS));
        assert_eq!(call!(ibv_destroy_qp(qp)), 0);
    }
    assert_eq!(call!(ibv_destroy_cq(cq)), 0);
}

/// NICs do so, and programs rely on it when they connect a queue pair again.
#[test]
fn completions_of_before_a_reset_are_dropped() {
    let rig = Rig::new();
    let (cq, other) = (rig.cq(), rig.cq());
    let (qp, peer) = (rig.qp(cq), rig.qp(cq));
    let mut split = Rig::init_attr(cq, IBV_QPT_RC);
    split.recv_cq = other;
    let split = call!(ibv_create_qp(rig.pd, &raw mut split));
    for qp in [qp, peer, split] {
        assert_eq!(Rig::modify(qp, &rig.attr(IBV_QPS_INIT, qp), TO_INIT), 0);
        assert_eq!(receive(qp, 1, &mut []), 0);
        assert_eq!(Rig::modify(qp, &rig.attr(IBV_QPS_ERR, qp), 1), 0);
    }
    assert_eq!(Rig::modify(qp, &rig.attr(IBV_QPS_RESET, qp), 1), 0);
    let left: Vec<_> = completions(cq, 1).iter().map(|completion| completion.qp_num).collect();
    assert_eq!(left, [number(peer)]);
    assert_eq!(Rig::modify(split, &rig.attr(IBV_QPS_RESET, split), 1), 0);
    assert!(poll(cq).is_empty());
    assert!(poll(other).is_empty());
    for qp in [qp, peer, split] {
        assert_eq!(call!(ibv_destroy_qp(qp)), 0);
    }
    for cq in [cq, other] {
        assert_eq!(call!(ibv_destroy_cq(cq)), 0);
    }
}
