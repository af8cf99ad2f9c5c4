// SPDX-License-Identifier: MIT OR Apache-2.0

//! Messages between devices.

use core::time::Duration;
use std::os::fd::AsRawFd as _;
use std::sync::Arc;

use verbs_core::context::AsyncEventKind;
use verbs_core::cq::{CompletionChannel, CompletionQueue};
use verbs_core::environment::{Faults, Settings};
use verbs_core::qp::{
    AddressHandle, Destination, Mask, QpAttributes, QpState, QueuePair, QueuePairSpec, Service,
};
use verbs_core::srq::{SharedReceiveQueue, SrqAttributes};
use verbs_core::{
    CompletionKind, CompletionStatus, Error, RecvRequest, SendData, SendFlags, SendOperation, SendRequest,
};

use crate::rig::{Side, address, attributes, is_readable, spec, steps};

fn pattern() -> Vec<u8> {
    (0..Side::BYTES).map(|at| (at * 31 / 7) as u8).collect()
}

/// Sends, writes and reads messages of 8192 bytes, `rounds` times.
fn exchange(a: &mut Side, b: &Side, rounds: u64) {
    let length = u32::try_from(Side::BYTES).unwrap();
    a.fill(&pattern());
    for id in 0..rounds {
        b.qp.post_receive(&RecvRequest { context: id, sges: &[b.sge(length)] }).unwrap();
        a.post(id, SendOperation::Send, length).unwrap();
        a.post(id, SendOperation::Write { address: 0, key: b.key() }, length).unwrap();
        a.post(id, SendOperation::Read { address: 0, key: b.key() }, length).unwrap();
        let kinds: Vec<_> = a.completions(3).iter().map(|done| (done.id, done.kind, done.status)).collect();
        let success = CompletionStatus::Success;
        let expected = [CompletionKind::Send, CompletionKind::Write, CompletionKind::Read];
        assert_eq!(kinds, expected.map(|kind| (id, kind, success)));
        let received = b.completions(1)[0];
        assert_eq!((received.id, received.bytes, received.qpn), (id, length, b.qp.qpn()));
    }
    assert_eq!((a.read(), b.read()), (&pattern()[..], &pattern()[..]));
}

fn counter(side: &Side, wanted: &str) -> u64 {
    let mut count = 0;
    side.device.each_counter(|name, value| {
        if name == wanted {
            count = value;
        }
    });
    count
}

#[test]
fn devices_of_two_addresses_exchange_messages() {
    let settings = Settings::default();
    let (mut a, b) = (Side::new(address(), &settings), Side::new(address(), &settings));
    a.connect(&b);
    b.connect(&a);
    exchange(&mut a, &b, 3);
    assert_eq!(counter(&a, "retransmissions"), 0);
}

/// A thread that polls handles frames and deadlines itself: the other one only looks from time to time whether it still does.
#[test]
fn progress_thread_sleeps_while_the_application_polls() {
    let (address, settings) = (address(), Settings::default());
    let (mut a, b) = (Side::new(address, &settings), Side::new(address, &settings));
    a.connect(&b);
    b.connect(&a);
    exchange(&mut a, &b, 100);
    let before = counter(&a, "progress_sleeps");
    let started = std::time::Instant::now();
    let mut rounds = 0;
    while started.elapsed() < Duration::from_millis(300) {
        exchange(&mut a, &b, 10);
        rounds += 10;
    }
    let sleeps = counter(&a, "progress_sleeps") - before;
    let elapsed = started.elapsed();
    // Each millisecond, and more often while the thread that polls has no processor. It slept 166 times in a millisecond when each poll woke it.
    assert!(
        u128::from(sleeps) <= 20 * elapsed.as_millis(),
        "slept {sleeps} times in {rounds} rounds, {elapsed:?}"
    );
}

#[test]
fn devices_of_one_address_have_numbers_of_their_own() {
    let (address, settings) = (address(), Settings::default());
    let (mut a, b) = (Side::new(address, &settings), Side::new(address, &settings));
    assert_ne!(a.qp.qpn() >> 18, b.qp.qpn() >> 18, "the slot is the upper six bits");
    a.connect(&b);
    b.connect(&a);
    exchange(&mut a, &b, 3);
}

#[test]
fn frames_between_processes_of_one_address_go_through_memory_unless_it_is_switched_off() {
    for shared_memory in [true, false] {
        let (address, settings) = (address(), Settings { shared_memory, ..Settings::default() });
        let (mut a, b) = (Side::new(address, &settings), Side::new(address, &settings));
        a.connect(&b);
        b.connect(&a);
        // The first frames are datagrams, until the other progress thread has mapped the memory.
        let started = std::time::Instant::now();
        let through_memory = |side: &Side| counter(side, "sent_through_memory");
        while {
            exchange(&mut a, &b, 1);
            shared_memory && through_memory(&a).min(through_memory(&b)) == 0
        } {
            assert!(started.elapsed() < Duration::from_secs(20), "no frame went through memory");
        }
        assert_eq!(through_memory(&a) > 0, shared_memory);
    }
}

#[test]
fn a_device_receives_from_other_hosts_after_the_first_one_of_its_address_is_closed() {
    let (shared, settings) = (address(), Settings::default());
    let first = Side::new(shared, &settings);
    let (mut a, b) = (Side::new(shared, &settings), Side::new(address(), &settings));
    a.connect(&b);
    b.connect(&a);
    exchange(&mut a, &b, 1);
    drop(first);
    exchange(&mut a, &b, 1);
}

/// Each pair of queue pairs has a socket for its source port.
#[test]
fn a_program_that_uses_all_descriptors_can_send() {
    let addresses = [address(), address()];
    // SAFETY: the child uses no lock that another thread has but those of the C library, and ends before it returns.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let [mut a, b] = addresses.map(|address| Side::new(address, &Settings::default()));
        a.connect(&b);
        b.connect(&a);
        // The lowest that is free.
        let next = std::fs::File::open("/dev/null").unwrap().as_raw_fd().cast_unsigned().into();
        let limit = libc::rlimit { rlim_cur: next, rlim_max: next };
        // SAFETY: the call reads a structure.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
        exchange(&mut a, &b, 3);
        // SAFETY: the call takes a number.
        unsafe { libc::_exit(7) };
    }
    let mut status = 0;
    // SAFETY: the call writes an integer to `status`, which outlives it.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 7 << 8);
}

#[test]
fn messages_arrive_over_ipv6() {
    let (address, settings) = ("::1".parse().unwrap(), Settings::default());
    let (mut a, b) = (Side::new(address, &settings), Side::new(address, &settings));
    a.connect(&b);
    b.connect(&a);
    exchange(&mut a, &b, 1);
}

#[test]
fn lost_frames_are_sent_again() {
    let faults = Faults { loss: 50_000, duplicate: 50_000, reorder: 50_000, seed: 3 };
    let settings = Settings { faults, ..Settings::default() };
    let (mut a, b) = (Side::new(address(), &settings), Side::new(address(), &settings));
    a.connect(&b);
    b.connect(&a);
    exchange(&mut a, &b, 5);
}

/// The progress thread serves the peer of a program that makes no calls.
#[test]
fn a_write_needs_no_call_of_the_target() {
    let settings = Settings::default();
    let (mut a, b) = (Side::new(address(), &settings), Side::new(address(), &settings));
    a.connect(&b);
    b.connect(&a);
    a.fill(&[7; 100]);
    a.post(1, SendOperation::Write { address: 0, key: b.key() }, 100).unwrap();
    assert_eq!(a.completions(1)[0].status, CompletionStatus::Success);
    assert_eq!(b.read()[..100], [7; 100]);
}

#[test]
fn a_channel_wakes_a_waiting_thread() {
    let settings = Settings::default();
    let (a, b) = (Side::new(address(), &settings), Side::new(address(), &settings));
    let channel = CompletionChannel::new(&b.context).unwrap();
    let cq = CompletionQueue::new(&b.context, 10, Some(&channel), 77).unwrap();
    let qp = QueuePair::new(spec(&b.pd, &cq)).unwrap();
    for (state, mask) in steps() {
        qp.modify(&attributes(state, &a), mask).unwrap();
        let to = QpAttributes { destination: qp.qpn(), ..attributes(state, &b) };
        a.qp.modify(&to, mask).unwrap();
    }
    qp.post_receive(&RecvRequest { context: 5, sges: &[] }).unwrap();
    cq.request_event(false);
    a.post(1, SendOperation::Send, 0).unwrap();
    assert_eq!(channel.take(), Ok(77));
    assert_eq!(channel.destroy(), Err(Error::Busy));
    let mut received = Vec::new();
    cq.poll(10, |completion| received.push(completion.id)).unwrap();
    assert_eq!(received, [5]);
    // An event that is not acknowledged holds up the destruction.
    qp.destroy();
    let other = Arc::clone(&cq);
    let destroyed = std::thread::spawn(move || other.destroy());
    std::thread::sleep(Duration::from_millis(20));
    assert!(!destroyed.is_finished());
    cq.unacknowledged().acknowledge(1);
    assert_eq!(destroyed.join().unwrap(), Ok(()));
    assert_eq!(channel.destroy(), Ok(()));
}

/// Returns a completion queue of one entry that has overflowed, and its queue pair.
fn overflowed(a: &Side) -> (Arc<CompletionQueue>, Arc<QueuePair>) {
    let cq = CompletionQueue::new(&a.context, 1, None, 9).unwrap();
    let qp = QueuePair::new(spec(&a.pd, &cq)).unwrap();
    let init = QpAttributes { state: QpState::Init, port: 1, ..QpAttributes::default() };
    let [(_, mask), ..] = steps();
    qp.modify(&init, mask).unwrap();
    for id in 0..3 {
        qp.post_receive(&RecvRequest { context: id, sges: &[] }).unwrap();
    }
    qp.fail().unwrap();
    (cq, qp)
}

#[test]
fn a_completion_queue_that_overflows_is_reported() {
    let a = Side::new(address(), &Settings::default());
    let (cq, qp) = overflowed(&a);
    let event = a.context.async_events().take().unwrap();
    assert_eq!((event.kind, event.token), (AsyncEventKind::CqError, 9));
    let mut taken = Vec::new();
    cq.poll(10, |completion| taken.push((completion.id, completion.status))).unwrap();
    assert_eq!(taken, [(0, CompletionStatus::Flushed)]);
    assert_eq!(cq.poll(10, |_| {}), Err(Error::Invalid));
    qp.destroy();
    cq.destroy().unwrap();
}

#[test]
fn an_event_that_is_not_taken_goes_with_its_completion_queue() {
    let a = Side::new(address(), &Settings::default());
    let (cq, qp) = overflowed(&a);
    qp.destroy();
    let events = a.context.async_events();
    assert!(is_readable(events, 0));
    cq.destroy().unwrap();
    assert!(!is_readable(events, 0));
}

#[test]
fn objects_of_another_device_are_refused() {
    let settings = Settings::default();
    let (a, b) = (Side::new(address(), &settings), Side::new(address(), &settings));
    let receives = SrqAttributes { receives: 1, elements: 1, limit: 0 };
    let srq = SharedReceiveQueue::new(&b.pd, receives, 3).unwrap();
    for foreign in [
        QueuePairSpec { send_cq: Arc::clone(&b.cq), ..spec(&a.pd, &a.cq) },
        QueuePairSpec { receive_cq: Arc::clone(&b.cq), ..spec(&a.pd, &a.cq) },
        QueuePairSpec { srq: Some(Arc::clone(&srq)), ..spec(&a.pd, &a.cq) },
    ] {
        assert_eq!(QueuePair::new(foreign).err(), Some(Error::Invalid));
    }
    srq.destroy().unwrap();
    let qp = QueuePair::new(QueuePairSpec { service: Service::Datagram, ..spec(&a.pd, &a.cq) }).unwrap();
    for (state, named) in [
        (QpState::Init, Mask::PKEY_INDEX | Mask::PORT | Mask::Q_KEY),
        (QpState::ReadyToReceive, Mask::empty()),
        (QpState::ReadyToSend, Mask::SEND_PSN),
    ] {
        qp.modify(&attributes(state, &b), Mask::STATE | named).unwrap();
    }
    let request = SendRequest {
        context: 1,
        operation: SendOperation::Send,
        flags: SendFlags::empty(),
        data: SendData::Sges(&[]),
    };
    for (pd, posted) in [(&a.pd, Ok(())), (&b.pd, Err(Error::Invalid))] {
        let handle = AddressHandle::new(pd, &attributes(QpState::Init, &b).path).unwrap();
        let to = Destination { handle: &handle, qpn: b.qp.qpn(), q_key: 0, immediate: None };
        assert_eq!(qp.post_datagram(&to, &request), posted);
        handle.destroy();
    }
    qp.destroy();
}

/// An answer may have arrived in time and wait behind others: the deadline of its packet is not handled before it.
#[test]
fn answers_that_wait_behind_others_cost_no_retransmission() {
    let a = Side::new(address(), &Settings::default());
    let cq = CompletionQueue::new(&a.context, 4000, None, 9).unwrap();
    let qps: Vec<_> = (0..1000).map(|_| QueuePair::new(spec(&a.pd, &cq)).unwrap()).collect();
    for (qp, peer) in qps.iter().zip(qps.iter().rev()) {
        for (state, mask) in steps() {
            let to_peer = QpAttributes { destination: peer.qpn(), ..attributes(state, &a) };
            qp.modify(&to_peer, mask).unwrap();
        }
    }
    let length = 4096;
    let mut done = 0;
    for id in 0..3 {
        for qp in &qps {
            let (sges, operation) = ([a.sge(length)], SendOperation::Write { address: 0, key: a.key() });
            let data = SendData::Sges(&sges);
            let request = SendRequest { context: id, operation, flags: SendFlags::empty(), data };
            qp.post_send(&request, None).unwrap();
            qp.start();
        }
        let started = std::time::Instant::now();
        while done < (id + 1) * 1000 {
            assert!(started.elapsed() < Duration::from_secs(20), "{done} completions");
            cq.poll(100, |completion| {
                assert_eq!(completion.status, CompletionStatus::Success);
                done += 1;
            })
            .unwrap();
        }
    }
    let again = counter(&a, "retransmissions");
    assert!(again <= 1000, "{again} packets of 12000 were sent again");
    for qp in qps {
        qp.destroy();
    }
    cq.destroy().unwrap();
}

/// A peer that is gone is detected by the retry count, after the least ACK timeout for each attempt: others may be without a processor as long.
#[test]
fn requests_to_a_peer_that_is_gone_fail() {
    let settings = Settings::default();
    let (a, b) = (Side::new(address(), &settings), Side::new(address(), &settings));
    for (state, mask) in steps() {
        let quick = QpAttributes { timeout: 8, retries: 1, ..attributes(state, &b) };
        a.qp.modify(&quick, mask).unwrap();
    }
    assert_eq!(a.qp.attributes().timeout, 8);
    drop(b);
    let started = std::time::Instant::now();
    a.post(1, SendOperation::Send, 10).unwrap();
    assert_eq!(a.completions(1)[0].status, CompletionStatus::RetryExceeded);
    let took = started.elapsed();
    assert!(took >= Duration::from_millis(134), "{took:?}");
    assert_eq!(a.qp.state(), QpState::Error);
}
