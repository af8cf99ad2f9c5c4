// SPDX-License-Identifier: MIT OR Apache-2.0

//! Connections, from REQ to DREP.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use roce::{
    AcceptSpec, CompletionStatus, ConnError, ConnEvent, ConnectSpec, DisconnectOutcome, PostError, QpState,
    ReadLimits, RejectReason, SendFlags,
};
use roce_wire::{Opcode, Packet, PathMtu};

use crate::two_hosts::{Options, PORT, TwoHosts, on_release, pattern, spec};

fn rejection(hosts: &TwoHosts, side: usize) -> Option<(RejectReason, Vec<u8>)> {
    hosts.sides[side].conn_events.iter().find_map(|(_, _, event)| match event {
        ConnEvent::Refused { reason, private_data } => Some((*reason, private_data.as_slice().to_vec())),
        _ => None,
    })
}

//= R-CONN-22
//= R-CONN-25
//= R-CONN-33
//= R-CONN-34
#[test]
fn req_rep_and_rtu_connect_two_queue_pairs() {
    let hosts = TwoHosts::connected(Options::default());
    let [alice, bob] = &hosts.sides;
    let (_, context, ConnEvent::Request(request)) = &bob.conn_events[0] else {
        panic!("no request: {:?}", bob.conn_events)
    };
    assert_eq!((*context, request.local_port, request.remote_port), (500, PORT, 50000));
    assert_eq!(request.private_data.as_slice()[..5], *b"hello");
    let (_, context, ConnEvent::Replied { reads, private_data }) = &alice.conn_events[0] else {
        panic!("no reply: {:?}", alice.conn_events)
    };
    assert_eq!((*context, *reads), (100, ReadLimits { inbound: 4, outbound: 4 }));
    assert_eq!(private_data.as_slice()[..7], *b"welcome");
    assert!(matches!(bob.conn_events[1], (_, 200, ConnEvent::Established { .. })));
    for side in &hosts.sides {
        assert_eq!(side.qp.state(), QpState::Rts);
        assert_eq!(side.stat("connections"), 1);
    }
}

//= R-QP-4
#[test]
fn posts_fail_before_the_connection_is_established() {
    let mut hosts = TwoHosts::new(Options::default());
    hosts.listen();
    let post = |hosts: &TwoHosts, side: usize| {
        hosts.sides[side].post(1, roce::SendOperation::Send, SendFlags::empty(), &[])
    };
    assert_eq!(post(&hosts, 0), Err(PostError::NotConnected));
    hosts.connect(b"");
    hosts.run_until("a request", |hosts| hosts.sides[1].conn.is_some());
    hosts.accept(b"");
    hosts.run_until("a reply", |hosts| hosts.has_event(0, |e| matches!(e, ConnEvent::Replied { .. })));
    assert_eq!(post(&hosts, 0), Err(PostError::NotConnected));
    assert_eq!(post(&hosts, 1), Err(PostError::NotConnected));
}

//= R-CONN-6
//= R-QP-74
#[test]
fn a_rejected_queue_pair_can_connect_again_and_keeps_its_receives() {
    let mut hosts = TwoHosts::new(Options::default());
    let sink = hosts.sides[0].sink(8);
    hosts.sides[0].recv(1, &[sink.all()]);
    hosts.connect(b"");
    hosts.run_until("a REJ", |hosts| rejection(hosts, 0).is_some());
    assert_eq!(rejection(&hosts, 0).unwrap().0, RejectReason::INVALID_SERVICE_ID);
    let old = hosts.sides[0].conn.take().unwrap();
    hosts.listen();
    hosts.connect(b"");
    hosts.sides[0].engine.connections().release(hosts.now, old);
    hosts.run_until("a request", |hosts| hosts.sides[1].conn.is_some());
    hosts.accept(b"");
    hosts.run_until("a reply", |hosts| hosts.has_event(0, |e| matches!(e, ConnEvent::Replied { .. })));
    hosts.complete();
    hosts.run_until("the connection", |p| p.has_event(1, |e| matches!(e, ConnEvent::Established { .. })));
    let source = hosts.sides[1].source(b"received");
    hosts.sides[1].send(1, &[source.all()]);
    hosts.run();
    assert_eq!(sink.read(), b"received");
}

//= R-CONN-38
#[test]
fn a_reject_carries_the_consumers_private_data() {
    let mut hosts = TwoHosts::new(Options::default());
    hosts.listen();
    hosts.connect(b"");
    hosts.run_until("a request", |hosts| hosts.sides[1].conn.is_some());
    let bob = &hosts.sides[1];
    bob.engine.connections().reject(hosts.now, bob.conn.unwrap(), b"not today").unwrap();
    hosts.run_until("a REJ", |hosts| rejection(hosts, 0).is_some());
    let (reason, words) = rejection(&hosts, 0).unwrap();
    assert_eq!(reason, RejectReason::CONSUMER);
    assert_eq!(words[..9], *b"not today");
}

/// The peer's adapter has smaller frames: both sides use the path MTU of these.
//= rocev2 §11
#[test]
fn a_path_mtu_larger_than_the_peers_is_lowered() {
    let mut hosts = TwoHosts::new(Options { mtu: PathMtu::Bytes4096, ..Options::default() });
    let mut small =
        TwoHosts::new(Options { config: |config| config.max_mtu = PathMtu::Bytes1024, ..Options::default() });
    std::mem::swap(&mut hosts.sides[1], &mut small.sides[1]);
    hosts.establish();
    assert!(rejection(&hosts, 0).is_none());
    let (data, longest) = (pattern(5000, 2), |frame: &[u8]| Packet::parse(frame).unwrap().payload().len());
    hosts.capture = Some(Vec::new());
    for side in [0, 1] {
        let (here, there) = (&hosts.sides[side], &hosts.sides[1 - side]);
        let (source, sink) = (here.source(&data), there.sink(5000));
        there.recv(1, &[sink.all()]);
        here.send(2, &[source.all()]);
        hosts.run();
        assert_eq!(sink.read(), data);
    }
    assert_eq!(hosts.capture.unwrap().iter().map(|(_, frame)| longest(frame)).max(), Some(1024));
}

//= R-CONN-59
//= R-CONN-60
#[test]
fn a_paused_listener_rejects_requests() {
    let mut hosts = TwoHosts::new(Options::default());
    let spec = roce::ListenSpec { ip: None, port: PORT, datagrams: false, backlog: 4, context: 500 };
    let listener = hosts.sides[1].engine.connections().listen(&spec).unwrap();
    hosts.sides[1].engine.connections().pause(listener, true).unwrap();
    hosts.connect(b"");
    hosts.run_until("a REJ", |hosts| rejection(hosts, 0).is_some());
    assert!(hosts.sides[1].conn.is_none());
    hosts.sides[1].engine.connections().pause(listener, false).unwrap();
    hosts.connect(b"");
    hosts.run_until("a request", |hosts| hosts.sides[1].conn.is_some());
}

#[test]
fn a_connect_without_response_times_out() {
    let mut hosts = TwoHosts::new(Options { loss: 1000, ..Options::default() });
    hosts.connect(b"");
    let start = hosts.now;
    hosts.run_until("a timeout", |hosts| hosts.has_event(0, |e| matches!(e, ConnEvent::TimedOut)));
    let took = hosts.now.duration_since(start);
    assert!(took > Duration::from_secs(5) && took < Duration::from_secs(60), "{took:?}");
}

//= R-QP-75
#[test]
fn a_queue_pair_has_at_most_one_connection() {
    let mut hosts = TwoHosts::new(Options::default());
    hosts.listen();
    hosts.connect(b"");
    let path = hosts.path(0);
    let alice = &hosts.sides[0];
    let spec = ConnectSpec {
        path,
        local_port: 50001,
        remote_port: PORT,
        mtu: hosts.options.mtu,
        reads: hosts.options.reads,
        private_data: b"",
        context: 0,
    };
    assert_eq!(alice.engine.connections().connect(hosts.now, &alice.qp, &spec), Err(ConnError::QpBusy));
    hosts.run_until("a request", |hosts| hosts.sides[1].conn.is_some());
    hosts.accept(b"");
    let bob = &hosts.sides[1];
    let spec = AcceptSpec { reads: hosts.options.reads, private_data: b"", context: 0 };
    let again = bob.engine.connections().accept(hosts.now, bob.conn.unwrap(), &bob.qp, &spec);
    assert_eq!(again, Err(ConnError::QpBusy));
}

//= rocev2 §12
#[test]
fn the_first_packet_replaces_a_lost_rtu() {
    let mut hosts = TwoHosts::new(Options::default());
    hosts.listen();
    hosts.connect(b"");
    hosts.run_until("a request", |hosts| hosts.sides[1].conn.is_some());
    let sink = hosts.sides[1].sink(5);
    hosts.sides[1].recv(1, &[sink.all()]);
    hosts.accept(b"");
    hosts.run_until("a reply", |hosts| hosts.has_event(0, |e| matches!(e, ConnEvent::Replied { .. })));
    // From here on, CM datagrams are lost.
    hosts.filter = Some(Box::new(|to, frame| {
        to == 0 || Packet::parse(frame).unwrap().bth().opcode() != Opcode::UD_SEND_ONLY
    }));
    hosts.complete();
    let source = hosts.sides[0].source(b"early");
    hosts.sides[0].send(2, &[source.all()]);
    hosts.run_until("the message", |hosts| !hosts.sides[0].cq.is_empty() && !hosts.sides[1].cq.is_empty());
    assert_eq!(sink.read(), b"early");
    assert!(hosts.has_event(1, |e| matches!(e, ConnEvent::Established { .. })));
    assert_eq!(hosts.sides[1].qp.state(), QpState::Rts);
}

//= R-CONN-80
//= R-CONN-83
//= R-CONN-84
//= R-QP-71
//= R-QP-72
#[test]
fn disconnect_completes_when_both_sides_disconnect() {
    let mut hosts = TwoHosts::connected(Options::default());
    let sinks: Vec<_> = hosts.sides.iter().map(|side| side.sink(8)).collect();
    for (side, sink) in hosts.sides.iter().zip(&sinks) {
        side.recv(1, &[sink.all()]);
    }
    let alice = &hosts.sides[0];
    alice.engine.connections().disconnect(hosts.now, alice.conn.unwrap()).unwrap();
    hosts.run_until("a DREQ", |hosts| hosts.has_event(1, |e| matches!(e, ConnEvent::Disconnected)));
    assert!(!hosts.has_event(0, |e| matches!(e, ConnEvent::DisconnectDone { .. })));
    assert_eq!(hosts.sides[1].outcomes(), [], "the peer's DREQ flushes nothing");
    let bob = &hosts.sides[1];
    bob.engine.connections().disconnect(hosts.now, bob.conn.unwrap()).unwrap();
    hosts.run_until("the end", |hosts| {
        hosts.has_event(0, |e| matches!(e, ConnEvent::DisconnectDone(DisconnectOutcome::Graceful)))
    });
    assert!(hosts.has_event(1, |e| matches!(e, ConnEvent::DisconnectDone(DisconnectOutcome::Graceful))));
    for side in &hosts.sides {
        assert_eq!(side.outcomes(), [(1, CompletionStatus::Flushed)]);
        assert_eq!(side.qp.state(), QpState::Error);
    }
}

//= R-CONN-94
#[test]
fn both_sides_can_disconnect_at_once() {
    let mut hosts = TwoHosts::connected(Options::default());
    for side in &hosts.sides {
        side.engine.connections().disconnect(hosts.now, side.conn.unwrap()).unwrap();
    }
    hosts.run();
    for side in 0..2 {
        assert!(
            hosts.has_event(side, |e| matches!(e, ConnEvent::DisconnectDone(DisconnectOutcome::Graceful)))
        );
    }
}

//= R-QP-69
//= R-QP-70
//= R-CONN-87
#[test]
fn a_flush_ends_the_connection_of_both_sides() {
    let mut hosts = TwoHosts::connected(Options::default());
    let alice = &hosts.sides[0];
    alice.engine.flush(&alice.qp);
    let post = alice.post(1, roce::SendOperation::Send, SendFlags::empty(), &[]);
    assert_eq!(post, Err(PostError::NotConnected));
    hosts.run_until("a DREQ", |hosts| {
        hosts.has_event(1, |e| matches!(e, ConnEvent::Disconnected | ConnEvent::Aborted))
    });
    assert!(hosts.has_event(0, |e| matches!(e, ConnEvent::Aborted)));
}

//= R-CONN-89
//= R-CONN-96
#[test]
fn release_ends_a_connection() {
    let mut hosts = TwoHosts::connected(Options::default());
    let sink = hosts.sides[0].sink(8);
    hosts.sides[0].recv(7, &[sink.all()]);
    let events = hosts.sides[0].conn_events.len();
    let alice = &hosts.sides[0];
    alice.engine.connections().release(hosts.now, alice.conn.unwrap());
    assert_eq!(alice.outcomes(), [(7, CompletionStatus::Flushed)]);
    hosts.run_until("a DREQ", |hosts| hosts.has_event(1, |e| matches!(e, ConnEvent::Disconnected)));
    hosts.run();
    assert_eq!(hosts.sides[0].conn_events.len(), events, "no event follows release");
}

#[test]
fn connect_and_disconnect_succeed_over_a_faulty_network() {
    for seed in 0..20 {
        let mut hosts = TwoHosts::connected(Options {
            seed,
            loss: 150,
            duplication: 100,
            reordering: 100,
            corruption: 20,
            ..Options::default()
        });
        for side in &hosts.sides {
            side.engine.connections().disconnect(hosts.now, side.conn.unwrap()).unwrap();
        }
        hosts.run_until("the end", |hosts| {
            (0..2).all(|side| hosts.has_event(side, |e| matches!(e, ConnEvent::DisconnectDone { .. })))
        });
    }
}

//= R-CONN-81
#[test]
fn a_disconnect_after_an_abort_reports_the_abort() {
    for is_reported in [false, true] {
        let mut hosts = TwoHosts::connected(Options::default());
        let alice = &hosts.sides[0];
        alice.engine.flush(&alice.qp);
        if is_reported {
            hosts.run_until("the abort", |hosts| hosts.has_event(0, |e| matches!(e, ConnEvent::Aborted)));
        }
        let alice = &hosts.sides[0];
        alice.engine.connections().disconnect(hosts.now, alice.conn.unwrap()).unwrap();
        hosts.run_until("the end", |hosts| {
            hosts.has_event(0, |e| matches!(e, ConnEvent::DisconnectDone(DisconnectOutcome::Aborted)))
        });
    }
}

/// A thread aborts the connection of a failed queue pair, and another one disconnects: wherever the first has just released a
/// lock, also while it holds another one, for which the second has to wait.
//= R-CONN-81, R-PERF-5
#[test]
fn a_disconnect_while_a_failed_connection_is_aborted_ends_a_failed_connection() {
    let mut places = 0;
    loop {
        let mut hosts = TwoHosts::connected(Options::default());
        let alice = &hosts.sides[0];
        alice.engine.flush(&alice.qp);
        let (engine, conn, now) = (alice.engine.clone(), alice.conn.unwrap(), hosts.now);
        let disconnecting = Rc::new(RefCell::new(None));
        let (started, mut released) = (disconnecting.clone(), 0);
        let disconnect = move |_| {
            if released == places {
                let (engine, (done, is_done)) = (engine.clone(), channel());
                let thread = thread::spawn(move || {
                    engine.connections().disconnect(now, conn).unwrap();
                    let _ = done.send(());
                });
                let _ = is_done.recv_timeout(Duration::from_millis(20));
                started.replace(Some(thread));
            }
            released += 1;
        };
        on_release(disconnect, || hosts.take_events(0));
        let Some(thread) = disconnecting.take() else { break };
        thread.join().unwrap();
        hosts.take_events(0);
        let failed = |event: &ConnEvent| matches!(event, ConnEvent::DisconnectDone(outcome) if *outcome == DisconnectOutcome::Aborted);
        assert!(hosts.has_event(0, failed), "after release {places}");
        places += 1;
    }
    assert!(places >= 3, "{places}");
}

//= rocev2 §12
//= R-CONN-81
//= R-CONN-95
#[test]
fn an_unanswered_disconnect_ends_within_ten_seconds() {
    for side in 0..2 {
        let mut hosts = TwoHosts::connected(Options::default());
        let sink = hosts.sides[side].sink(8);
        hosts.sides[side].recv(1, &[sink.all()]);
        // As with Linux if the application does not disconnect: the DREQ is received but not answered.
        let here = &hosts.sides[side];
        here.engine.connections().disconnect(hosts.now, here.conn.unwrap()).unwrap();
        let begun = hosts.now;
        hosts.run_until("the end", |hosts| {
            hosts.has_event(side, |e| matches!(e, ConnEvent::DisconnectDone(DisconnectOutcome::TimedOut)))
        });
        let took = hosts.now.duration_since(begun);
        assert!(took > Duration::from_secs(5) && took < Duration::from_secs(10), "{took:?}");
        assert_eq!(hosts.sides[side].outcomes(), [(1, CompletionStatus::Flushed)]);
        assert!(hosts.has_event(1 - side, |e| matches!(e, ConnEvent::Disconnected)));
    }
}

//= rocev2 §12
#[test]
fn a_queue_pair_that_is_stale_at_the_peer_connects_once_timewait_is_over() {
    let mut hosts = TwoHosts::new(Options::default());
    hosts.listen();
    hosts.connect(b"");
    hosts.run_until("a request", |hosts| hosts.sides[1].conn.is_some());
    hosts.accept(b"");
    // All frames are lost, including the DREQ.
    hosts.filter = Some(Box::new(|_, _| false));
    let alice = &hosts.sides[0];
    alice.engine.connections().release(hosts.now, alice.conn.unwrap());
    hosts.drive();
    hosts.filter = None;
    hosts.connect(b"");
    hosts.run_until("a REJ", |hosts| rejection(hosts, 0).is_some());
    assert_eq!(rejection(&hosts, 0).unwrap().0, RejectReason::STALE);
    // Bob repeats his REP, and alice her REJ.
    hosts.run_until("bob's REJ", |hosts| rejection(hosts, 1).is_some());
    assert_eq!(rejection(&hosts, 1).unwrap().0, RejectReason::TIMEOUT);
    let bob = &mut hosts.sides[1];
    bob.engine.connections().release(hosts.now, bob.conn.take().unwrap());
    bob.qp = bob.engine.create_qp(spec(bob.pd, &bob.cq, &hosts.options)).unwrap();
    hosts.run_for(Duration::from_secs(3));
    hosts.sides[0].conn_events.clear();
    hosts.connect(b"");
    hosts.run_until("a request", |hosts| hosts.sides[1].conn.is_some());
    hosts.accept(b"");
    hosts.run_until("a reply", |hosts| hosts.has_event(0, |e| matches!(e, ConnEvent::Replied { .. })));
    hosts.complete();
    hosts.run_until("the connection", |p| p.has_event(1, |e| matches!(e, ConnEvent::Established { .. })));
}

//= rocev2 §12
#[test]
fn queue_pair_numbers_are_not_reused_for_long() {
    let hosts = TwoHosts::new(Options::default());
    let alice = &hosts.sides[0];
    let mut seen = std::collections::HashSet::new();
    for number in 0..5000 {
        let qp = alice.engine.create_qp(spec(alice.pd, &alice.cq, &hosts.options)).unwrap();
        assert!(seen.insert(qp.qpn()), "queue pair {number} has the number of a destroyed one");
        alice.engine.destroy_qp(&qp);
    }
}
