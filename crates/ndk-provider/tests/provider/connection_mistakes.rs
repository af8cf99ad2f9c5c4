// SPDX-License-Identifier: MIT OR Apache-2.0

//! Mistakes of consumers that a strict provider reports for queue pairs and regions of a connection.

use crate::support::*;
use core::ptr::{null, null_mut};
use ndk_abi::ndk::*;
use ndk_abi::nt::*;
use ndk_provider::Mistake;

/// Returns the mistakes that were reported, which name this object.
fn reported(node: &Node, object: *mut c_void) -> Vec<Mistake> {
    let reports = node.reports();
    assert!(reports.iter().all(|report| report.object == object.addr() as u32), "{reports:x?}");
    reports.iter().map(|report| report.mistake).collect()
}

/// An end with another queue pair. Only the connector of the result is closed.
fn with_qp(end: &End, connector: *mut NDK_CONNECTOR) -> End {
    let cq = Cq { raw: end.cq.raw, notified: end.cq.notified };
    End { cq, pd: end.pd, qp: end.qp, connector, disconnected: CallbackRecord::new() }
}

//= R-QP-73, R-QP-75, R-CONN-18
#[test]
fn queue_pair_that_is_or_was_connected_is_reported_with_the_connector() {
    let (a, b) = checked_pair();
    let (active, passive, listener) = connect(&a, &b);
    let own_listener = a.listener(446);
    let asking = b.active();
    let request = asking.connect(b.at(0), a.at(446), &[]);
    let connecting = with_qp(&active, a.connector());
    let accepting = with_qp(&active, own_listener.accept());
    let both = || {
        let connect = connecting.connect(a.at(0), b.at(445), &[]).wait();
        assert_eq!(reported(&a, connecting.connector.cast()), [Mistake::QpInUse]);
        let accept = accepting.accept(&[]).wait();
        assert_eq!(reported(&a, accepting.connector.cast()), [Mistake::QpInUse]);
        [connect, accept]
    };
    assert_eq!(both(), [STATUS_CONNECTION_ACTIVE; 2]);
    call!(active.qp, NdkFlush);
    assert_eq!(both(), [STATUS_CONNECTION_INVALID; 2]);
    // The same status for another reason.
    let fresh = a.end(connecting.connector);
    assert_eq!(fresh.accept(&[]).wait(), STATUS_CONNECTION_INVALID);
    assert_eq!(reported(&a, fresh.connector.cast()), [Mistake::ConnectorState]);
    fresh.close();
    close!(accepting.connector, NdkCloseConnector);
    assert_eq!(request.wait(), STATUS_CONNECTION_REFUSED);
    asking.close();
    own_listener.close();
    active.close();
    passive.close();
    listener.close();
}

//= R-MR-31, R-MR-59
#[test]
fn right_that_a_region_does_not_have_is_reported_with_the_queue_pair() {
    let (a, b) = checked_pair();
    let (active, passive, listener) = connect(&a, &b);
    let memory = Memory::new(4096);
    let (readable, fast) = (memory.register(active.pd, 0), fast_mr(active.pd));
    assert_eq!(initialize(fast, 1, 0), STATUS_SUCCESS);
    let mapped = Mapped::new(&a, &memory, 4096);
    let window: *mut NDK_MW =
        create(|done, context, out| call!(active.pd, NdkCreateMw, done, context, out)).expect("a window");
    let (qp, context) = (active.qp, null_mut());
    let pages = mapped.pages().as_ptr().cast();
    let register = |flags| call!(qp, NdkFastRegister, context, fast, 1, pages, 0, 4096, null_mut(), flags);
    let bind = |flags| {
        let (base, _) = readable.remote();
        call!(qp, NdkBind, context, readable.mr, window, pointer(base), 8, flags)
    };
    for status in [register(NDK_OP_FLAG_ALLOW_REMOTE_READ), bind(NDK_OP_FLAG_ALLOW_REMOTE_WRITE)] {
        assert_eq!(status, STATUS_ACCESS_VIOLATION);
    }
    assert_eq!(reported(&a, qp.cast()), [Mistake::MissingRight; 2]);
    // Rights that they have.
    assert_eq!(register(NDK_OP_FLAG_ALLOW_LOCAL_WRITE), STATUS_SUCCESS);
    assert_eq!(bind(NDK_OP_FLAG_ALLOW_REMOTE_READ), STATUS_SUCCESS);
    assert_eq!(a.mistakes(), []);
    close!(window, NdkCloseMw);
    close!(fast, NdkCloseMr);
    drop(mapped);
    readable.close();
    active.close();
    passive.close();
    listener.close();
}

/// A queue pair that connects fails a send for the same status as one that was never connected, and for another reason.
//= R-QP-4
#[test]
fn send_while_the_queue_pair_connects_is_not_reported() {
    let (a, b) = checked_pair();
    a.host.cut();
    let active = a.active();
    let connecting = active.connect(a.at(0), b.at(445), &[]);
    assert!(!connecting.is_inline());
    assert_eq!(active.send(1, &[], 0), STATUS_CONNECTION_INVALID);
    assert_eq!(a.mistakes(), []);
    active.close();
    assert_eq!(connecting.wait(), STATUS_CANCELLED);
}

//= R-CLOSE-9
#[test]
fn region_of_a_window_and_endpoint_of_a_connector_that_are_closed_first_are_reported() {
    let (a, b) = checked_pair();
    let listener = b.listener(445);
    let (endpoint, active) = (a.shared_endpoint(9000), a.active());
    let other = a.shared_endpoint(9001);
    let connecting = active.connect_with(endpoint, b.at(445));
    let passive = b.end(listener.accept());
    establish(&active, &passive, &connecting);
    let memory = Memory::new(4096);
    let (bound, unbound) = (memory.register(active.pd, 1), memory.register(active.pd, 1));
    let window: *mut NDK_MW =
        create(|done, context, out| call!(active.pd, NdkCreateMw, done, context, out)).expect("a window");
    let base = pointer(memory.base());
    let flags = NDK_OP_FLAG_ALLOW_REMOTE_READ;
    assert_eq!(call!(active.qp, NdkBind, null_mut(), bound.mr, window, base, 8, flags), STATUS_SUCCESS);
    assert_eq!(active.cq.next().Status, STATUS_SUCCESS);

    unbound.close();
    close!(other, NdkCloseSharedEndpoint);
    assert_eq!(a.mistakes(), [], "no window is bound to it, and no connector uses it");
    let (begun, ended) = (begin_close!(bound.mr, NdkCloseMr), begin_close!(endpoint, NdkCloseSharedEndpoint));
    let dependents: Vec<_> = a.reports().iter().map(|report| (report.mistake, report.detail)).collect();
    let addresses = [window.addr() as u32, active.connector.addr() as u32];
    assert_eq!(dependents, addresses.map(|address| (Mistake::AntecedentClosed, address)));
    close!(window, NdkCloseMw);
    active.close();
    begun.wait();
    ended.wait();
    passive.close();
    listener.close();
    assert_eq!(a.mistakes(), []);
}

/// The slot of the first mapping is that of the second, which a request uses.
//= R-LAM-23, R-CONSUMER-16
#[test]
fn second_release_of_a_mapping_does_not_report_another_one_that_is_in_use() {
    let (a, _b) = checked_pair();
    let (pd, cq, memory) = (a.pd(), a.cq(16), Memory::new(4096));
    let pair = qp(pd, &cq);
    let map = || {
        let (mut words, mut size) = ([0u64; 3], 24);
        let (into, none) = (words.as_mut_ptr().cast(), null_mut());
        let size = &raw mut size;
        let status = call!(a.adapter(), NdkBuildLAM, memory.mdl(), 4096, None, none, into, size, none.cast());
        assert_eq!(status, STATUS_SUCCESS);
        words
    };
    let release = |words: &mut [u64; 3]| call!(a.adapter(), NdkReleaseLAM, words.as_mut_ptr().cast());
    let mut first = map();
    let mut again = first;
    release(&mut first);
    let mut second = map();
    let sge = privileged(pd, second[2], 4096);
    assert_eq!(call!(pair, NdkReceive, null_mut(), &raw const sge, 1), STATUS_SUCCESS);
    a.mistakes();
    release(&mut again);
    assert_eq!(a.mistakes(), []);
    release(&mut second);
    assert_eq!(a.mistakes(), [Mistake::MappingInUse]);
    close!(pair, NdkCloseQp);
    close!(pd, NdkClosePd);
    cq.close();
}

//= R-MR-27, R-CREATE-43, R-MR-67, R-CONN-69
#[test]
fn posts_that_name_the_wrong_region_and_queries_without_room_are_reported_with_the_object() {
    let (a, b) = checked_pair();
    let (active, passive, listener) = connect(&a, &b);
    let memory = Memory::new(4096);
    let (normal, fast) = (memory.register(active.pd, 7), fast_mr(active.pd));
    assert_eq!(initialize(fast, 1, 1), STATUS_SUCCESS);
    let window: *mut NDK_MW =
        create(|done, context, out| call!(active.pd, NdkCreateMw, done, context, out)).expect("a window");
    let (qp, page) = (active.qp, [0x10_0000_u64]);
    let pages = page.as_ptr().cast();
    let base = pointer(memory.base());
    let flags = NDK_OP_FLAG_ALLOW_REMOTE_READ;
    let expect = |object: *mut c_void, status, mistake: Mistake, call: &dyn Fn() -> NTSTATUS| {
        assert_eq!((call(), reported(&a, object)), (status, vec![mistake]));
    };
    let register =
        |mr, length, flags| call!(qp, NdkFastRegister, null_mut(), mr, 1, pages, 0, length, base, flags);
    let on_qp = |status, mistake, call: &dyn Fn() -> NTSTATUS| expect(qp.cast(), status, mistake, call);
    // No page for the second one, a flag of another request, no page array.
    on_qp(STATUS_INVALID_PARAMETER, Mistake::Registration, &|| register(fast, 4097, flags));
    on_qp(STATUS_INVALID_PARAMETER, Mistake::Registration, &|| register(fast, 4096, flags | 1 << 31));
    on_qp(STATUS_INVALID_PARAMETER, Mistake::Registration, &|| {
        call!(qp, NdkFastRegister, null_mut(), fast, 1, null(), 0, 4096, base, flags)
    });
    on_qp(STATUS_INVALID_PARAMETER, Mistake::Registration, &|| {
        call!(qp, NdkBind, null_mut(), normal.mr, window, base, 0, flags)
    });
    on_qp(STATUS_INVALID_DEVICE_REQUEST, Mistake::RegionKind, &|| register(normal.mr, 4096, flags));
    on_qp(STATUS_INVALID_DEVICE_REQUEST, Mistake::RegionKind, &|| {
        call!(qp, NdkBind, null_mut(), fast, window, base, 8, flags)
    });
    on_qp(STATUS_INVALID_DEVICE_REQUEST, Mistake::RegionKind, &|| {
        call!(qp, NdkInvalidate, null_mut(), normal.mr.cast(), 0)
    });
    // Queries without a variable for the result.
    let connector = active.connector;
    expect(a.adapter().cast(), STATUS_INVALID_PARAMETER, Mistake::NullResult, &|| {
        call!(a.adapter(), NdkQueryAdapterInfo, null_mut(), null_mut())
    });
    expect(connector.cast(), STATUS_INVALID_PARAMETER, Mistake::NullResult, &|| {
        call!(connector, NdkGetLocalAddress, null_mut(), null_mut())
    });
    close!(window, NdkCloseMw);
    close!(fast, NdkCloseMr);
    normal.close();
    active.close();
    passive.close();
    listener.close();
}
