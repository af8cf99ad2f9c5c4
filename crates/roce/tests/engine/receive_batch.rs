// SPDX-License-Identifier: MIT OR Apache-2.0

//! Frames received in a batch.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use roce::{
    CompletionStatus, ConnEvent, DropReason, QpState, Receiver, RecvRequest, SendData, SendFlags,
    SendOperation, SendRequest, Verdict,
};

use crate::two_hosts::{Lock, Options, Side, TwoHosts, pattern};

/// Two connections over which one side has sent messages of these lengths, in turn. Returns the frames, which have not arrived.
fn sent(lengths: &[usize]) -> (TwoHosts, Vec<Vec<u8>>) {
    let mut hosts = TwoHosts::connected(Options::default());
    let others = hosts.connect_another(9);
    let qps = [[hosts.sides[0].qp.clone(), hosts.sides[1].qp.clone()], others];
    hosts.sides.iter_mut().for_each(|side| drop(side.outcomes()));
    hosts.cut = [true, true];
    hosts.capture = Some(Vec::new());
    for (at, &length) in lengths.iter().enumerate() {
        let [alice, bob] = &hosts.sides;
        let (source, sink) = (alice.source(&pattern(length, at as u64)), bob.sink(length.max(1)));
        let [from, to] = &qps[at % 2];
        let context = at as u64;
        bob.engine.post_recv(to, &RecvRequest { context, sges: &[sink.all()] }).unwrap();
        let sges = [source.all()];
        let (operation, flags, data) = (SendOperation::Send, SendFlags::empty(), SendData::Sges(&sges));
        alice.engine.post_send(from, &SendRequest { context, operation, flags, data }).unwrap();
        hosts.run_for(Duration::from_nanos(100));
    }
    let frames = hosts.capture.take().unwrap();
    (hosts, frames.into_iter().filter(|(from, _)| *from == 0).map(|(_, frame)| frame).collect())
}

/// State of a host that has received frames.
fn seen(hosts: &mut TwoHosts, verdicts: Vec<Verdict>) -> impl PartialEq + std::fmt::Debug + use<> {
    let bob = &mut hosts.sides[1];
    let mut stats = Vec::new();
    bob.engine.stats().each(|name, value| stats.push((name, value)));
    let answers = bob.transmit(hosts.now, 1000);
    (verdicts, bob.outcomes(), stats, answers, bob.engine.first_shard().poll_timeout())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_batch_has_the_same_effects_as_its_frames_one_by_one(
        lengths in proptest::collection::vec(prop_oneof![0usize..100, 400usize..600, 900usize..5000], 1..12),
        order in proptest::collection::vec((any::<prop::sample::Index>(), 0u8..8), 0..40),
        batch in 1usize..20,
    ) {
        let (mut single, frames) = sent(&lengths);
        let (mut batched, same) = sent(&lengths);
        prop_assert_eq!(&frames, &same);
        // All frames, then some of them again, some damaged, and some to a queue pair that does not exist.
        let mut arriving = frames.clone();
        for (pick, damage) in order {
            let mut frame = frames[pick.index(frames.len())].clone();
            match damage {
                0 => *frame.last_mut().unwrap() ^= 1,
                // Destination queue pair, and P_Key.
                1 => frame[49] ^= 0x55,
                2 => frame[45] ^= 1,
                3 => frame.truncate(50),
                _ => {}
            }
            arriving.insert(pick.index(arriving.len() + 1), frame);
        }
        let one_by_one = arriving.iter().map(|frame| single.sides[1].engine.first_shard().handle_frame(single.now, frame));
        let one_by_one = one_by_one.collect();
        let mut verdicts = Vec::new();
        for frames in arriving.chunks(batch) {
            let mut receiver = batched.sides[1].engine.first_shard().receiver();
            verdicts.extend(frames.iter().map(|frame| receiver.handle_frame(batched.now, frame)));
        }
        prop_assert_eq!(seen(&mut single, one_by_one), seen(&mut batched, verdicts));
    }
}

#[test]
fn what_a_batch_adds_to_the_statistics_is_there_at_its_end() {
    let (hosts, frames) = sent(&[64, 64, 64]);
    let bob = &hosts.sides[1].engine;
    let before = bob.stats();
    let mut receiver = bob.first_shard().receiver();
    for frame in &frames {
        assert_eq!(receiver.handle_frame(hosts.now, frame), Verdict::Consumed);
    }
    drop(receiver);
    let stats = bob.stats();
    assert_eq!((stats.rx_sends.get(), stats.completions.get()), (3, 3));
    let (frames, bytes) = (&stats.rx_frames, &stats.rx_bytes);
    assert_eq!((frames.get() - before.rx_frames.get(), bytes.get() - before.rx_bytes.get()), (3, 192));
}

/// Ends the use of an object on another thread while `receive` runs, which gets whether that has ended.
fn ended_meanwhile(side: &Side, end: impl FnOnce(&Side) + Send, receive: impl FnOnce(&dyn Fn() -> bool)) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            end(side);
            done.store(true, Ordering::SeqCst);
        });
        receive(&|| done.load(Ordering::SeqCst));
    });
    assert!(done.into_inner());
}

fn destroy_qp(side: &Side) {
    side.engine.destroy_qp(&side.qp);
}

#[test]
fn the_destruction_of_a_queue_pair_waits_for_a_batch_with_its_frames() {
    let (hosts, frames) = sent(&[64, 64, 64]);
    let mut receiver = hosts.sides[1].engine.first_shard().receiver();
    assert_eq!(receiver.handle_frame(hosts.now, &frames[0]), Verdict::Consumed);
    ended_meanwhile(&hosts.sides[1], destroy_qp, |done| {
        // It is flushed at once; its number is free when the batch has ended.
        while receiver.handle_frame(hosts.now, &frames[2]) != Verdict::Dropped(DropReason::State) {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(20));
        assert!(!done(), "destroyed while a batch uses it");
        drop(receiver);
    });
    assert_eq!(
        hosts.sides[1].engine.first_shard().handle_frame(hosts.now, &frames[2]),
        Verdict::Dropped(DropReason::NoQp)
    );
    let outcomes = hosts.sides[1].outcomes();
    assert!(outcomes.contains(&(0, CompletionStatus::Success)), "{outcomes:?}");
}

/// Checks that `end` on another thread does not wait for the end of the batch.
fn ends_before(receiver: Receiver<'_, Lock>, side: &Side, end: impl FnOnce(&Side) + Send) {
    ended_meanwhile(side, end, |done| {
        let begin = std::time::Instant::now();
        while !done() && begin.elapsed() < Duration::from_secs(20) {
            std::thread::yield_now();
        }
        assert!(done(), "the batch still uses it");
        drop(receiver);
    });
}

#[test]
fn a_batch_lets_go_of_a_queue_pair_with_the_next_frame_to_another_one() {
    let (hosts, frames) = sent(&[64, 64]);
    let mut receiver = hosts.sides[1].engine.first_shard().receiver();
    for frame in &frames {
        assert_eq!(receiver.handle_frame(hosts.now, frame), Verdict::Consumed);
    }
    ends_before(receiver, &hosts.sides[1], destroy_qp);
}

/// Two hosts of which the second waits for the RTU, which is lost.
fn without_rtu() -> TwoHosts {
    let mut hosts = TwoHosts::new(Options::default());
    hosts.listen();
    hosts.connect(b"");
    hosts.run_until("a request", |hosts| hosts.sides[1].conn.is_some());
    hosts.accept(b"");
    hosts.run_until("a reply", |hosts| hosts.has_event(0, |e| matches!(e, ConnEvent::Replied { .. })));
    hosts.cut[1] = true;
    hosts.complete();
    hosts.drive();
    hosts
}

/// It may wait for the lock of the connections: those that free an object do not wait for that, too.
#[test]
fn a_batch_uses_no_object_while_connection_management_handles_a_frame() {
    // The packet that establishes the connection, and one to QP 1.
    for hosts in [without_rtu(), TwoHosts::connected(Options::default())] {
        let [alice, bob] = &hosts.sides;
        let (source, sink) = (alice.source(b"message"), bob.sink(7));
        bob.recv(2, &[sink.all()]);
        alice.send(1, &[source.all()]);
        let mut frame = alice.transmit(hosts.now, 1).remove(0);
        let mut receiver = bob.engine.first_shard().receiver();
        assert_eq!(receiver.handle_frame(hosts.now, &frame), Verdict::Consumed);
        assert_eq!(sink.read(), b"message");
        if bob.qp.state() == QpState::Rts {
            frame[47..50].copy_from_slice(&[0, 0, 1]);
            receiver.handle_frame(hosts.now, &frame);
        }
        ends_before(receiver, bob, |bob| {
            destroy_qp(bob);
            assert!(bob.engine.memory().deregister(&sink.region));
        });
    }
}
