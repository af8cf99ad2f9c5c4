// SPDX-License-Identifier: MIT OR Apache-2.0

//! The answers that a driver gets without a lock after each post and each batch: whether there is something to transmit, when the next
//! timer expires, whether there is an event.

use fallible::Arc;
use roce::{Access, Arm, Engine, Instant, Qp, RecvRequest, SendData, SendFlags, SendOperation, SendRequest};
use roce_testkit::Lock;

use crate::two_hosts::{Options, TwoHosts};

/// Two connections between two hosts that have nothing to do: by connection, the queue pair of each side.
fn idle() -> (TwoHosts, [[Arc<Qp<Lock>>; 2]; 2]) {
    let mut pair = TwoHosts::connected(Options::default());
    let others = pair.connect_another(9);
    let first = pair.sides.each_ref().map(|side| side.qp.clone());
    pair.run();
    for side in &pair.sides {
        side.completions();
        assert!(!side.engine.first_shard().wants_transmit() && !side.engine.has_event());
    }
    (pair, [first, others])
}

fn send(pair: &TwoHosts, qp: &Arc<Qp<Lock>>) {
    let memory = pair.sides[0].source(b"message");
    let sges = [memory.all()];
    let request = SendRequest {
        context: 1,
        operation: SendOperation::Send,
        flags: SendFlags::empty(),
        data: SendData::Sges(&sges),
    };
    pair.sides[0].engine.post_send(qp, &request).unwrap();
}

fn engine(pair: &TwoHosts) -> &Engine<Lock> {
    &pair.sides[0].engine
}

#[test]
fn there_is_something_to_transmit_until_the_last_queue_pair_has_transmitted() {
    let (pair, [[first, _], [second, _]]) = idle();
    send(&pair, &first);
    assert!(engine(&pair).first_shard().wants_transmit());
    send(&pair, &second);
    // A frame of the first of two.
    assert_eq!(pair.sides[0].transmit(pair.now, 1).len(), 1);
    assert!(engine(&pair).first_shard().wants_transmit());
    assert_eq!(pair.sides[0].transmit(pair.now, 100).len(), 1);
    assert!(!engine(&pair).first_shard().wants_transmit());
}

#[test]
fn a_destroyed_queue_pair_takes_back_its_own_frames_only() {
    let (pair, [[first, _], [second, _]]) = idle();
    send(&pair, &first);
    send(&pair, &second);
    engine(&pair).destroy_qp(&second);
    assert!(engine(&pair).first_shard().wants_transmit());
    let opcodes = pair.sides[0].transmit(pair.now, 100).into_iter().map(|frame| frame[42]);
    assert_eq!(opcodes.filter(|opcode| *opcode == roce_wire::Opcode::SEND_ONLY.0).count(), 1);
    send(&pair, &first);
    assert!(engine(&pair).first_shard().wants_transmit());
    engine(&pair).destroy_qp(&first);
    // Connection management may still have frames; the queue pairs have none.
    pair.sides[0].transmit(pair.now, 100);
    assert!(!engine(&pair).first_shard().wants_transmit());
}

/// Lets timers expire until the first side sends something again. Returns that time.
fn resent(pair: &TwoHosts) -> Instant {
    for _ in 0..1000 {
        let at = engine(pair).first_shard().poll_timeout().expect("an answer is awaited");
        engine(pair).first_shard().handle_timeout(at);
        if !pair.sides[0].transmit(at, 100).is_empty() {
            return at;
        }
    }
    panic!("nothing is sent again");
}

#[test]
fn the_next_timer_is_the_earliest_of_the_queue_pairs_that_wait() {
    let (pair, [[first, _], [second, _]]) = idle();
    let idle = engine(&pair).first_shard().poll_timeout();
    send(&pair, &first);
    pair.sides[0].transmit(pair.now, 100);
    let one = engine(&pair).first_shard().poll_timeout().expect("the answer to the message is awaited");
    assert!(idle.is_none_or(|idle| one < idle), "{idle:?} {one:?}");
    // Nothing arrives. It waits longer from time to time.
    resent(&pair);
    let now = resent(&pair);
    let late = engine(&pair).first_shard().poll_timeout().expect("an answer is still awaited");
    send(&pair, &second);
    pair.sides[0].transmit(now, 100);
    let next = engine(&pair).first_shard().poll_timeout().expect("two answers are awaited");
    assert!(one < now && now < next && next < late, "{one:?} {now:?} {next:?} {late:?}");
    engine(&pair).destroy_qp(&second);
    pair.sides[0].transmit(now, 100);
    assert_eq!(engine(&pair).first_shard().poll_timeout(), Some(late));
    engine(&pair).destroy_qp(&first);
    // What is left is the end of the connections.
    assert!(engine(&pair).first_shard().poll_timeout().is_none_or(|left| left != late), "{late:?}");
}

#[test]
fn there_is_an_event_until_the_last_one_is_taken() {
    let (mut pair, [_, [second, peer]]) = idle();
    let bob = &pair.sides[1];
    let other = bob.engine.create_cq(16, 5).unwrap();
    let sink = bob.memory(64, Access::all());
    bob.engine.post_recv(&peer, &RecvRequest { context: 3, sges: &[sink.all()] }).unwrap();
    bob.engine.arm_cq(&bob.cq, Arm::Any);
    assert!(!bob.engine.has_event());
    send(&pair, &second);
    let now = pair.now;
    for frame in pair.sides[0].transmit(now, 100) {
        pair.sides[1].engine.first_shard().handle_frame(now, &frame);
    }
    let bob = &mut pair.sides[1];
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
