// SPDX-License-Identifier: MIT OR Apache-2.0

//! The answers that a driver gets without a lock after each post and each batch: whether there is something to transmit, when the next
//! timer expires, whether there is an event.

use fallible::Arc;
use roce::{Access, Arm, Engine, Instant, Qp, RecvRequest, SendData, SendFlags, SendOperation, SendRequest};
use roce_testkit::Lock;

use crate::two_hosts::{Options, TwoHosts};

/// Two connections between two hosts that have nothing to do: by connection, the queue pair of each side.
fn idle() -> (TwoHosts, [[Arc<Qp<Lock>>; 2]; 2]) {
    let mut hosts = TwoHosts::connected(Options::default());
    let others = hosts.connect_another(9);
    let first = hosts.sides.each_ref().map(|side| side.qp.clone());
    hosts.run();
    for side in &hosts.sides {
        side.completions();
        assert!(!side.engine.first_shard().wants_transmit() && !side.engine.has_event());
    }
    (hosts, [first, others])
}

fn send(hosts: &TwoHosts, qp: &Arc<Qp<Lock>>) {
    let memory = hosts.sides[0].source(b"message");
    let sges = [memory.all()];
    let request = SendRequest {
        context: 1,
        operation: SendOperation::Send,
        flags: SendFlags::empty(),
        data: SendData::Sges(&sges),
    };
    hosts.sides[0].engine.post_send(qp, &request).unwrap();
}

fn engine(hosts: &TwoHosts) -> &Engine<Lock> {
    &hosts.sides[0].engine
}

#[test]
fn there_is_something_to_transmit_until_the_last_queue_pair_has_transmitted() {
    let (hosts, [[first, _], [second, _]]) = idle();
    send(&hosts, &first);
    assert!(engine(&hosts).first_shard().wants_transmit());
    send(&hosts, &second);
    // A frame of the first of two.
    assert_eq!(hosts.sides[0].transmit(hosts.now, 1).len(), 1);
    assert!(engine(&hosts).first_shard().wants_transmit());
    assert_eq!(hosts.sides[0].transmit(hosts.now, 100).len(), 1);
    assert!(!engine(&hosts).first_shard().wants_transmit());
}

#[test]
fn a_destroyed_queue_pair_takes_back_its_own_frames_only() {
    let (hosts, [[first, _], [second, _]]) = idle();
    send(&hosts, &first);
    send(&hosts, &second);
    engine(&hosts).destroy_qp(&second);
    assert!(engine(&hosts).first_shard().wants_transmit());
    let opcodes = hosts.sides[0].transmit(hosts.now, 100).into_iter().map(|frame| frame[42]);
    assert_eq!(opcodes.filter(|opcode| *opcode == roce_wire::Opcode::SEND_ONLY.0).count(), 1);
    send(&hosts, &first);
    assert!(engine(&hosts).first_shard().wants_transmit());
    engine(&hosts).destroy_qp(&first);
    // Connection management may still have frames; the queue pairs have none.
    hosts.sides[0].transmit(hosts.now, 100);
    assert!(!engine(&hosts).first_shard().wants_transmit());
}

/// Lets timers expire until the first side sends something again. Returns that time.
fn resent(hosts: &TwoHosts) -> Instant {
    for _ in 0..1000 {
        let at = engine(hosts).first_shard().poll_timeout().expect("an answer is awaited");
        engine(hosts).first_shard().handle_timeout(at);
        if !hosts.sides[0].transmit(at, 100).is_empty() {
            return at;
        }
    }
    panic!("nothing is sent again");
}

#[test]
fn the_next_timer_is_the_earliest_of_the_queue_pairs_that_wait() {
    let (hosts, [[first, _], [second, _]]) = idle();
    let idle = engine(&hosts).first_shard().poll_timeout();
    send(&hosts, &first);
    hosts.sides[0].transmit(hosts.now, 100);
    let one = engine(&hosts).first_shard().poll_timeout().expect("the answer to the message is awaited");
    assert!(idle.is_none_or(|idle| one < idle), "{idle:?} {one:?}");
    // Nothing arrives. It waits longer from time to time.
    resent(&hosts);
    let now = resent(&hosts);
    let late = engine(&hosts).first_shard().poll_timeout().expect("an answer is still awaited");
    send(&hosts, &second);
    hosts.sides[0].transmit(now, 100);
    let next = engine(&hosts).first_shard().poll_timeout().expect("two answers are awaited");
    assert!(one < now && now < next && next < late, "{one:?} {now:?} {next:?} {late:?}");
    engine(&hosts).destroy_qp(&second);
    hosts.sides[0].transmit(now, 100);
    assert_eq!(engine(&hosts).first_shard().poll_timeout(), Some(late));
    engine(&hosts).destroy_qp(&first);
    // What is left is the end of the connections.
    assert!(engine(&hosts).first_shard().poll_timeout().is_none_or(|left| left != late), "{late:?}");
}

#[test]
fn there_is_an_event_until_the_last_one_is_taken() {
    let (mut hosts, [_, [second, peer]]) = idle();
    let bob = &hosts.sides[1];
    let other = bob.engine.create_cq(16, 5).unwrap();
    let sink = bob.memory(64, Access::all());
    bob.engine.post_recv(&peer, &RecvRequest { context: 3, sges: &[sink.all()] }).unwrap();
    bob.engine.arm_cq(&bob.cq, Arm::Any);
    assert!(!bob.engine.has_event());
    send(&hosts, &second);
    let now = hosts.now;
    for frame in hosts.sides[0].transmit(now, 100) {
        hosts.sides[1].engine.first_shard().handle_frame(now, &frame);
    }
    let bob = &mut hosts.sides[1];
    assert!(bob.engine.has_event());
    bob.take_events();
    assert!(!bob.engine.has_event());
    assert_eq!(bob.cq_notifications.len(), 1);
    // Its notice is withdrawn with the queue.
    bob.engine.arm_cq(&bob.cq, Arm::Any);
    assert!(!bob.engine.has_event());
    let _ = bob.engine.destroy_cq(&other);
    assert!(!bob.engine.has_event());
}
