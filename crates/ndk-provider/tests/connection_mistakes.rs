// SPDX-License-Identifier: MIT OR Apache-2.0

//! Mistakes of consumers that a strict provider reports for queue pairs and regions of a connection.

#![allow(clippy::multiple_unsafe_ops_per_block, reason = "a consumer's call through a table is several")]
#![allow(clippy::macro_metavars_in_unsafe, reason = "a test's call is unsafe as a whole")]

mod support;

use core::ptr::null_mut;
use ndk_abi::ndk::*;
use ndk_abi::nt::*;
use ndk_provider::Mistake;
use support::*;

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
