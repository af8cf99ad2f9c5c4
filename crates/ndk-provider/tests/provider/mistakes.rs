// SPDX-License-Identifier: MIT OR Apache-2.0

//! Mistakes of consumers that a strict provider reports. Each is made once, and reported once.

use crate::support::*;
use core::ptr::{null, null_mut};
use ndk_abi::ndk::*;
use ndk_abi::nt::*;
use ndk_provider::{Config, CreateCompletion, Mistake};

/// Makes a call and returns the mistakes that were reported for it.
fn mistakes<T>(node: &Node, call: impl FnOnce() -> T) -> (T, Vec<Mistake>) {
    assert_eq!(node.mistakes(), [], "before the call");
    let answer = call();
    (answer, node.mistakes())
}

/// An element with this token.
fn element(token: u32, address: u64, length: u32) -> NDK_SGE {
    NDK_SGE {
        Anonymous: NDK_SGE_Anonymous { VirtualAddress: pointer(address) },
        Length: length,
        MemoryRegionToken: token,
    }
}

#[test]
fn correct_calls_are_not_reported() {
    for pending in [CreateCompletion::Auto, CreateCompletion::PendAll] {
        let (a, b) = pair_with(reporting(Config { create_completion: pending, ..Config::default() }));
        let (active, passive, listener) = connect(&a, &b);
        let memory = Memory::new(8192);
        let registered = memory.register(active.pd, 1);
        assert_eq!(passive.receive(1, &[]), STATUS_SUCCESS);
        assert_eq!(active.send(2, &[], 0), STATUS_SUCCESS);
        assert_eq!(active.cq.next().Status, STATUS_SUCCESS);
        assert_eq!(passive.cq.next().Status, STATUS_SUCCESS);
        assert_eq!(active.receive(3, &[registered.sge()]), STATUS_SUCCESS);
        call!(active.qp, NdkFlush);
        assert_eq!(active.cq.next().Status, STATUS_CANCELLED);
        registered.close();
        active.close();
        passive.close();
        listener.close();
        assert_eq!((a.mistakes(), b.mistakes()), (vec![], vec![]));
    }
}

#[test]
fn nothing_is_reported_without_the_setting() {
    let (a, _b) = pair();
    let (pd, cq) = (a.pd(), a.cq(1));
    let qp = qp(pd, &cq);
    assert_eq!(call!(qp, NdkSend, null_mut(), null(), 0, 1 << 31), STATUS_INVALID_PARAMETER);
    let closing = begin_close!(pd, NdkClosePd);
    close!(qp, NdkCloseQp);
    closing.wait();
    cq.close();
    assert_eq!(a.mistakes(), []);
}

//= R-CLOSE-12
#[test]
fn call_on_a_closed_object_is_refused_and_reported_with_the_object() {
    let (a, _b) = checked_pair();
    let (pd, cq) = (a.pd(), a.cq(4));
    let pair = qp(pd, &cq);
    close!(pair, NdkCloseQp);
    for _ in 0..2 {
        assert_eq!(call!(pair, NdkReceive, null_mut(), null(), 0), STATUS_INVALID_PARAMETER);
    }
    let reports = a.reports();
    assert_eq!(reports.len(), 2);
    let report = reports[0];
    assert_eq!((report.mistake, report.object_type), (Mistake::UseAfterClose, 2));
    assert_eq!(report.object, pair.addr() as u32);
    // A second close has no effect.
    call!(pair, NdkFlush);
    let status = begin_close!(pair, NdkCloseQp).status;
    assert_eq!((status, a.mistakes()), (STATUS_SUCCESS, vec![Mistake::UseAfterClose; 2]));
    // As another object of a call.
    let connector = a.connector();
    let (address, length) = socket_address(a.at(7));
    let address = (&raw const address).cast();
    let (status, reported) = mistakes(&a, || {
        request(|done, context| {
            call!(
                connector,
                NdkConnect,
                pair,
                address,
                length,
                address,
                length,
                0,
                0,
                null(),
                0,
                done,
                context
            )
        })
    });
    assert_eq!((status, reported), (STATUS_INVALID_PARAMETER, vec![Mistake::UseAfterClose]));
    close!(connector, NdkCloseConnector);
    // While the close pends.
    let child = qp(pd, &cq);
    let closing = begin_close!(pd, NdkClosePd);
    assert_eq!(a.mistakes(), [Mistake::AntecedentClosed]);
    let (created, reported) = mistakes(&a, || {
        create(|done, context, out: *mut *mut NDK_MR| call!(pd, NdkCreateMr, 0, done, context, out))
    });
    assert_eq!((created, reported), (Err(STATUS_INVALID_PARAMETER), vec![Mistake::UseAfterClose]));
    close!(child, NdkCloseQp);
    closing.wait();
    cq.close();
    assert_eq!(a.mistakes(), []);
}

//= R-CLOSE-37
#[test]
fn object_of_another_type_and_null_are_refused_and_reported() {
    let (a, _b) = checked_pair();
    let (pd, cq) = (a.pd(), a.cq(4));
    let create_qp = |receive, initiator| {
        create(|done, context, out: *mut *mut NDK_QP| {
            call!(pd, NdkCreateQp, receive, initiator, null_mut(), 1, 1, 1, 1, 0, done, context, out)
        })
    };
    let wrong: *mut NDK_CQ = pd.cast();
    for (receive, initiator, count) in [(null_mut(), cq.raw, 1), (cq.raw, wrong, 1), (wrong, wrong, 2)] {
        let (created, reported) = mistakes(&a, || create_qp(receive, initiator));
        assert_eq!(created, Err(STATUS_INVALID_PARAMETER));
        assert_eq!(reported, vec![Mistake::WrongObject; count]);
    }
    let pair = qp(pd, &cq);
    // SAFETY: the queue pair is open, and its table is static.
    let flush = unsafe { (*(*pair).Dispatch).NdkFlush.expect("no member is null") };
    // SAFETY: an open object of another type, which the function refuses.
    let ((), reported) = mistakes(&a, || unsafe { flush(pd.cast()) });
    assert_eq!(reported, [Mistake::WrongObject]);
    close!(pair, NdkCloseQp);
    close!(pd, NdkClosePd);
    cq.close();
}

//= R-CLOSE-9
#[test]
fn antecedent_that_is_closed_first_is_reported() {
    let (a, b) = checked_pair();
    let (active, passive, listener) = connect(&a, &b);
    assert_eq!((a.mistakes(), b.mistakes()), (vec![], vec![]));
    let report = |close: &dyn Fn() -> Closing| {
        let closing = close();
        assert_eq!(closing.status, STATUS_PENDING);
        (closing, a.mistakes())
    };
    // Each before the connector or the queue pair.
    let (pd, on_pd) = report(&|| begin_close!(active.pd, NdkClosePd));
    let (cq, on_cq) = report(&|| begin_close!(active.cq.raw, NdkCloseCq));
    let (qp, on_qp) = report(&|| begin_close!(active.qp, NdkCloseQp));
    assert_eq!([on_pd, on_cq, on_qp], [const { [Mistake::AntecedentClosed] }; 3]);
    close!(active.connector, NdkCloseConnector);
    assert_eq!(a.mistakes(), []);
    [pd, cq, qp].into_iter().for_each(Closing::wait);
    let closing = begin_close!(listener.raw, NdkCloseListener);
    assert_eq!(b.mistakes(), [Mistake::AntecedentClosed]);
    passive.close();
    closing.wait();
    assert_eq!(b.mistakes(), []);
}

#[test]
fn adapter_that_is_closed_before_its_objects_is_reported() {
    let (a, _b) = checked_pair();
    let other = a.open(2, 0);
    let cq = other.cq(1);
    std::thread::scope(|scope| {
        scope.spawn(|| other.close());
        wait("the report is there", || a.mistakes() == [Mistake::AntecedentClosed]);
        cq.close();
    });
}

//= R-IRQL-1
#[test]
fn call_above_its_irql_is_reported_and_above_dispatch_level_refused() {
    let (a, _b) = checked_pair();
    let cq = a.cq(1);
    let mut size = 0;
    let query = |size: *mut u32| call!(a.adapter(), NdkQueryAdapterInfo, null_mut(), size);
    nt::irql::at_level(nt::irql::DISPATCH_LEVEL, || {
        assert_eq!(query(&raw mut size), STATUS_BUFFER_TOO_SMALL);
    });
    assert_eq!((size, a.mistakes()), (104, vec![Mistake::WrongIrql]));
    nt::irql::at_level(5, || {
        assert_eq!(query(&raw mut size), STATUS_INVALID_PARAMETER);
        call!(cq.raw, NdkArmCq, 1);
    });
    // Written by the next call.
    assert_eq!(a.mistakes(), []);
    assert_eq!(cq.poll().map(|_| ()), None);
    let report = a.reports();
    assert_eq!((report[0].mistake, report[0].object_type, report[0].detail), (Mistake::WrongIrql, 3, 5));
    cq.close();
}

#[test]
fn call_without_a_completion_callback_is_reported() {
    let (a, _b) = checked_pair();
    let mut out: *mut NDK_PD = null_mut();
    let (status, reported) = mistakes(&a, || call!(a.adapter(), NdkCreatePd, None, null_mut(), &raw mut out));
    assert_eq!((status, reported), (STATUS_SUCCESS, vec![Mistake::NoCallback]));
    let status = close_with!(out, NdkClosePd, None, null_mut());
    assert_eq!((status, a.mistakes()), (STATUS_SUCCESS, vec![Mistake::NoCallback]));
    let create = |out| call!(a.adapter(), NdkCreatePd, Some(never), null_mut(), out);
    let (status, reported) = mistakes(&a, || create(null_mut()));
    assert_eq!((status, reported), (STATUS_INVALID_PARAMETER, vec![Mistake::NullResult]));
}

unsafe extern "efiapi" fn never(_: *mut c_void, _: NTSTATUS, _: *mut NDK_OBJECT_HEADER) {
    panic!("the call completes inline");
}

#[test]
fn requests_that_cannot_be_posted_are_reported_with_their_rule() {
    let (a, b) = checked_pair();
    let (active, passive, listener) = connect(&a, &b);
    let end = &active;
    let none: &[NDK_SGE] = &[];
    let many = vec![element(1, 0, 0); 33];
    let long = vec![element(1, 0, u32::MAX)];
    let expect = |status, mistake: &[Mistake], call: &dyn Fn() -> NTSTATUS| {
        let (answer, reported) = mistakes(&a, call);
        assert_eq!((answer, &reported[..]), (status, mistake));
    };
    //= R-QP-16, R-QP-19, R-QP-23
    expect(STATUS_DATA_OVERRUN, &[Mistake::TooManySges], &|| end.send(1, &many, 0));
    expect(STATUS_DATA_OVERRUN, &[Mistake::TooManySges], &|| end.receive(1, &many));
    expect(STATUS_BUFFER_OVERFLOW, &[Mistake::TooLong], &|| end.send(1, &long, 0));
    expect(STATUS_INVALID_PARAMETER, &[Mistake::RequestArguments], &|| end.send(1, none, 1 << 31));
    expect(STATUS_INVALID_PARAMETER, &[Mistake::RequestArguments], &|| {
        call!(end.qp, NdkReceive, null_mut(), null(), 1)
    });
    // The size of the queues is that of `OpenAdapter::end`.
    //= R-QP-18
    while end.receive(1, none) == STATUS_SUCCESS {}
    assert_eq!(a.mistakes(), [Mistake::QueueFull]);
    //= R-QP-4
    let fresh = qp(active.pd, &active.cq);
    expect(STATUS_CONNECTION_INVALID, &[Mistake::NotConnected], &|| {
        call!(fresh, NdkSend, null_mut(), null(), 0, 0)
    });
    close!(fresh, NdkCloseQp);
    active.close();
    // The same status, but no mistake: the connection has ended.
    passive.disconnected.wait(1);
    assert_eq!(passive.disconnect(), STATUS_SUCCESS);
    assert_eq!(passive.send(1, none, 0), STATUS_CONNECTION_INVALID);
    assert_eq!(b.mistakes(), []);
    passive.close();
    listener.close();
}

//= R-QP-43
#[test]
fn unknown_token_is_reported_when_the_request_is_posted() {
    let (a, b) = checked_pair();
    let (active, passive, listener) = connect(&a, &b);
    let memory = Memory::new(4096);
    let (readable, writable) = (memory.register(active.pd, 0), memory.register(active.pd, 1));
    let other_pd = a.pd();
    let foreign = memory.register(other_pd, 1);
    let base = memory.base();
    let post = |sge: NDK_SGE| {
        assert_eq!(active.receive(1, &[sge]), STATUS_SUCCESS);
        a.reports().iter().map(|report| (report.mistake, report.detail)).collect::<Vec<_>>()
    };
    let unknown = |token| [(Mistake::UnknownToken, token)];
    assert_eq!(post(writable.sge()), []);
    assert_eq!(post(element(0, base, 8)), unknown(0));
    assert_eq!(post(element(0x1234_5678, base, 8)), unknown(0x1234_5678));
    // A stale token: the index is right, the consumer's byte is not.
    let stale = writable.token() ^ 1;
    assert_eq!(post(element(stale, base, 8)), unknown(stale));
    assert_eq!(post(element(writable.token(), base, 4097)), unknown(writable.token()));
    assert_eq!(post(element(writable.token(), base - 1, 2)), unknown(writable.token()));
    assert_eq!(post(element(writable.token(), u64::MAX, 2)), unknown(writable.token()));
    // No right to write; another protection domain.
    assert_eq!(post(readable.sge()), unknown(readable.token()));
    assert_eq!(post(foreign.sge()), unknown(foreign.token()));
    // Elements without bytes are not checked.
    assert_eq!(post(element(0, base, 0)), []);
    let mapped = Mapped::new(&a, &memory, 4096);
    let logical = mapped.pages()[0];
    let privileged_token = privileged(active.pd, 0, 0).MemoryRegionToken;
    assert_eq!(post(privileged(active.pd, logical, 4096)), []);
    assert_eq!(post(privileged(active.pd, logical, 4097)), unknown(privileged_token));
    assert_eq!(post(privileged(active.pd, 77, 1)), unknown(privileged_token));
    // Inline data has no token.
    assert_eq!(active.send(2, &[element(7, 0, 0)], NDK_OP_FLAG_INLINE), STATUS_SUCCESS);
    assert_eq!(a.mistakes(), []);
    assert_eq!(active.send(2, &[element(7, 0, 1)], 0), STATUS_SUCCESS);
    assert_eq!(a.mistakes(), [Mistake::UnknownToken]);
    call!(active.qp, NdkFlush);
    while active.cq.poll().is_some() {}
    drop(mapped);
    [readable, writable, foreign].into_iter().for_each(Registered::close);
    close!(other_pd, NdkClosePd);
    active.close();
    passive.close();
    listener.close();
    assert_eq!(a.mistakes(), []);
}

//= R-MR-21, R-LAM-23
#[test]
fn memory_that_is_released_while_a_request_uses_it_is_reported() {
    let (a, _b) = checked_pair();
    let (pd, cq) = (a.pd(), a.cq(16));
    let pair = qp(pd, &cq);
    let memory = Memory::new(4096);
    let [deregistered, closed] = [memory.register(pd, 1), memory.register(pd, 1)];
    let (unused, mapped) = (Mapped::new(&a, &memory, 4096), Mapped::new(&a, &memory, 4096));
    let receive =
        |sge: NDK_SGE| assert_eq!(call!(pair, NdkReceive, null_mut(), &raw const sge, 1), STATUS_SUCCESS);
    receive(deregistered.sge());
    receive(closed.sge());
    receive(privileged(pd, mapped.pages()[0] + 100, 8));
    assert_eq!(a.mistakes(), []);
    let tokens = [deregistered.token(), closed.token()];
    let status = request(|done, context| call!(deregistered.mr, NdkDeregisterMr, done, context));
    assert_eq!(status, STATUS_SUCCESS);
    closed.close();
    let reports = a.reports();
    let reports: Vec<_> = reports.iter().map(|report| (report.mistake, report.detail)).collect();
    assert_eq!(reports, tokens.map(|token| (Mistake::MemoryInUse, token)));
    drop(unused);
    assert_eq!(a.mistakes(), []);
    drop(mapped);
    assert_eq!(a.mistakes(), [Mistake::MappingInUse]);
    // Not after the requests have completed.
    call!(pair, NdkFlush);
    let (again, mapped) = (memory.register(pd, 1), Mapped::new(&a, &memory, 4096));
    again.close();
    drop(mapped);
    deregistered.close();
    close!(pair, NdkCloseQp);
    close!(pd, NdkClosePd);
    cq.close();
    assert_eq!(a.mistakes(), []);
}

#[test]
fn wrong_use_of_regions_is_reported() {
    let (a, _b) = checked_pair();
    let pd = a.pd();
    let memory = Memory::new(4096);
    let registered = memory.register(pd, 0);
    let fast = fast_mr(pd);
    let register = |mr: *mut NDK_MR, length: usize, flags| {
        request(|done, context| call!(mr, NdkRegisterMr, memory.mdl(), length, flags, done, context))
    };
    let expect = |mistake: Mistake, call: &dyn Fn() -> NTSTATUS| {
        let (status, reported) = mistakes(&a, call);
        assert_ne!(status, STATUS_SUCCESS);
        assert_eq!(reported, [mistake]);
    };
    //= R-MR-18, R-MR-19
    expect(Mistake::RegionState, &|| register(registered.mr, 4096, 0));
    //= R-CREATE-43
    expect(Mistake::RegionKind, &|| register(fast, 4096, 0));
    expect(Mistake::RegionKind, &|| initialize(registered.mr, 4, 0));
    //= R-MR-26
    expect(Mistake::Registration, &|| initialize(fast, 0, 0));
    //= R-MR-25
    expect(Mistake::Registration, &|| initialize(fast, u32::MAX, 0));
    let deregister = || request(|done, context| call!(registered.mr, NdkDeregisterMr, done, context));
    assert_eq!(deregister(), STATUS_SUCCESS);
    expect(Mistake::RegionState, &deregister);
    //= R-MR-2, R-MR-3
    expect(Mistake::Registration, &|| register(registered.mr, 0, 0));
    expect(Mistake::Registration, &|| register(registered.mr, 4097, 0));
    expect(Mistake::Registration, &|| register(registered.mr, 4096, 1 << 30));
    registered.close();
    close!(fast, NdkCloseMr);
    close!(pd, NdkClosePd);
}

#[test]
fn arguments_that_cannot_be_used_are_reported() {
    let (a, _b) = checked_pair();
    let (pd, cq) = (a.pd(), a.cq(4));
    let pair = qp(pd, &cq);
    let connector = a.connector();
    let (listener, idle) = (a.listener(0), a.idle_listener());
    let memory = Memory::new(4096);
    let expect = |mistake: Mistake, call: &dyn Fn() -> NTSTATUS| {
        let (status, reported) = mistakes(&a, call);
        assert_ne!(status, STATUS_SUCCESS);
        assert_eq!(reported, [mistake]);
    };
    //= R-CREATE-20, R-CREATE-26
    let create_cq = |depth, callback: Option<NDK_FN_CQ_NOTIFICATION_CALLBACK>| {
        create(|done, context, out: *mut *mut NDK_CQ| {
            let null = null_mut();
            call!(a.adapter(), NdkCreateCq, depth, callback, null, null.cast(), done, context, out)
        })
        .err()
        .unwrap_or(STATUS_SUCCESS)
    };
    expect(Mistake::CreateArguments, &|| create_cq(0, Some(on_cq)));
    expect(Mistake::CreateArguments, &|| create_cq(u32::MAX, Some(on_cq)));
    expect(Mistake::CreateArguments, &|| create_cq(4, None));
    //= R-LAM-3
    expect(Mistake::MappingArguments, &|| {
        let (mut size, null) = (0, null_mut());
        call!(a.adapter(), NdkBuildLAM, memory.mdl(), 0, None, null, null.cast(), &raw mut size, null.cast())
    });
    //= R-CONN-52
    expect(Mistake::ListenerState, &|| listener.listen(a.at(5000)));
    //= R-CREATE-51
    let address = socket_address(a.at(7)).0;
    let address = (&raw const address).cast();
    expect(Mistake::ConnectArguments, &|| {
        request(|done, context| call!(idle.raw, NdkListen, address, 3, done, context))
    });
    //= R-CONN-28
    expect(Mistake::ConnectorState, &|| {
        request(|done, context| call!(connector, NdkCompleteConnect, None, null_mut(), done, context))
    });
    expect(Mistake::ConnectorState, &|| call!(connector, NdkReject, null(), 0));
    //= R-CONN-74
    expect(Mistake::ConnectorState, &|| {
        call!(connector, NdkGetConnectionData, null_mut(), null_mut(), null_mut(), null_mut())
    });
    //= R-CONN-15, R-CONN-16
    let (source, length) = socket_address(a.at(0));
    let source = (&raw const source).cast();
    let connect = |data: *const c_void, size| {
        request(|done, context| {
            let (from, to) = ((source, length), (address, length));
            call!(connector, NdkConnect, pair, from.0, from.1, to.0, to.1, 0, 0, data, size, done, context)
        })
    };
    let data = [0u8; 512];
    expect(Mistake::PrivateData, &|| connect(data.as_ptr().cast(), 512));
    expect(Mistake::ConnectArguments, &|| connect(null(), 1));
    //= R-CQ-42, R-CQ-44
    let reported = mistakes(&a, || call!(cq.raw, NdkControlCqInterruptModeration, u32::MAX, u32::MAX)).1;
    assert!(matches!(reported[..], [Mistake::NoCapability | Mistake::QueueSize]), "{reported:?}");
    close!(connector, NdkCloseConnector);
    listener.close();
    idle.close();
    close!(pair, NdkCloseQp);
    close!(pd, NdkClosePd);
    cq.close();
}

//= R-QP-84, R-SRQ-11
#[test]
fn wrong_use_of_a_shared_receive_queue_is_reported() {
    let (a, _b) = checked_pair();
    let (pd, cq) = (a.pd(), a.cq(4));
    let srq: *mut NDK_SRQ = create(|done, context, out| {
        let null = null_mut();
        call!(pd, NdkCreateSrq, 1, 1, 0, None, null, null.cast(), done, context, out)
    })
    .expect("a shared receive queue");
    let pair: *mut NDK_QP = create(|done, context, out| {
        let null = null_mut();
        call!(pd, NdkCreateQpWithSrq, cq.raw, cq.raw, srq, null, 1, 1, 0, done, context, out)
    })
    .expect("a queue pair");
    let (_, reported) = mistakes(&a, || call!(pair, NdkReceive, null_mut(), null(), 0));
    assert_eq!(reported, [Mistake::ReceiveWithSrq]);
    let receive = |token| {
        let sge = element(token, 0, 4);
        call!(srq, NdkSrqReceive, null_mut(), &raw const sge, 1)
    };
    assert_eq!(mistakes(&a, || receive(7)), (STATUS_SUCCESS, vec![Mistake::UnknownToken]));
    assert_eq!(mistakes(&a, || receive(7)).1, [Mistake::QueueFull]);
    let modify = |depth| request(|done, context| call!(srq, NdkModifySrq, depth, 0, done, context));
    assert_eq!(mistakes(&a, || modify(u32::MAX)).1, [Mistake::QueueSize]);
    let closing = begin_close!(srq, NdkCloseSrq);
    assert_eq!(a.mistakes(), [Mistake::AntecedentClosed]);
    close!(pair, NdkCloseQp);
    closing.wait();
    close!(pd, NdkClosePd);
    cq.close();
}

/// Runs two threads until one of them has made a call while the other one's was in progress.
fn race(node: &Node, call: impl Fn() + Sync) {
    let done = std::sync::atomic::AtomicBool::new(false);
    let done = &done;
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    call();
                }
            });
        }
        wait("calls have overlapped", || node.mistakes().contains(&Mistake::ConcurrentCalls));
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

//= R-CQ-17, R-QP-8, R-SRQ-4
#[test]
fn calls_that_the_consumer_must_serialize_are_reported_if_they_overlap() {
    let (a, b) = checked_pair();
    // Three hosts, because the reports of one mistake are limited.
    let polled = a.cq(4);
    let address = polled.raw.expose_provenance();
    race(&a, || {
        let cq: *mut NDK_CQ = core::ptr::with_exposed_provenance_mut(address);
        call!(cq, NdkGetCqResults, null_mut(), 0);
    });
    polled.close();
    let (pd, cq) = (b.pd(), b.cq(4));
    let pair = qp(pd, &cq);
    let address = pair.expose_provenance();
    race(&b, || {
        let qp: *mut NDK_QP = core::ptr::with_exposed_provenance_mut(address);
        call!(qp, NdkSend, null_mut(), null(), 0, 0);
    });
    close!(pair, NdkCloseQp);
    close!(pd, NdkClosePd);
    cq.close();
    let (c, _d) = checked_pair();
    let pd = c.pd();
    let shared: *mut NDK_SRQ = create(|done, context, out| {
        let null = null_mut::<c_void>();
        call!(pd, NdkCreateSrq, 8, 1, 0, None, null, null.cast(), done, context, out)
    })
    .expect("a shared queue");
    let address = shared.expose_provenance();
    race(&c, || {
        let srq: *mut NDK_SRQ = core::ptr::with_exposed_provenance_mut(address);
        call!(srq, NdkSrqReceive, null_mut(), null(), 0);
    });
    close!(shared, NdkCloseSrq);
    close!(pd, NdkClosePd);
}

//= R-CQ-32
#[test]
fn overflow_of_a_completion_queue_is_reported() {
    let (a, _b) = checked_pair();
    let (pd, cq) = (a.pd(), a.cq(1));
    let pair = qp(pd, &cq);
    cq.arm(NDK_CQ_NOTIFY_ERRORS);
    for _ in 0..2 {
        assert_eq!(call!(pair, NdkReceive, null_mut(), null(), 0), STATUS_SUCCESS);
    }
    call!(pair, NdkFlush);
    assert_eq!(cq.notified.wait(1), STATUS_BUFFER_OVERFLOW);
    wait("the report is there", || a.mistakes() == [Mistake::CqOverflow]);
    close!(pair, NdkCloseQp);
    close!(pd, NdkClosePd);
    cq.close();
}

/// Failures that a pended call reports through its completion.
#[test]
fn mistakes_in_calls_that_pend_are_reported() {
    let (a, _b) =
        pair_with(reporting(Config { create_completion: CreateCompletion::PendAll, ..Config::default() }));
    let pd = a.pd();
    let memory = Memory::new(4096);
    let mr: *mut NDK_MR =
        create(|done, context, out| call!(pd, NdkCreateMr, 0, done, context, out)).expect("an MR");
    let (status, reported) = mistakes(&a, || {
        request(|done, context| call!(mr, NdkRegisterMr, memory.mdl(), 4097, 0, done, context))
    });
    assert_eq!((status, reported), (STATUS_INVALID_PARAMETER, vec![Mistake::Registration]));
    let (created, reported) = mistakes(&a, || {
        create(|done, context, out: *mut *mut NDK_SRQ| {
            let null = null_mut();
            call!(pd, NdkCreateSrq, 0, 1, 0, None, null, null.cast(), done, context, out)
        })
    });
    assert_eq!((created, reported), (Err(STATUS_INVALID_PARAMETER), vec![Mistake::CreateArguments]));
    close!(mr, NdkCloseMr);
    close!(pd, NdkClosePd);
}
