// SPDX-License-Identifier: MIT OR Apache-2.0

//! Timeouts of a requester: measurements of the round trip (RFC 6298), and the probe of the newest packet (RFC 8985, section 7).

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use roce::{CompletionStatus, Config, SendData, SendFlags, SendOperation, SendRequest};
use roce_wire::{Opcode, Packet, PathMtu};

use crate::two_hosts::{Options, TwoHosts, pattern};

/// The least retransmission timeout of the driver.
const DRIVER: fn(&mut Config) = |config| config.timing.min_resend = Duration::from_micros(15_600);

/// Microseconds of a round trip without queues.
const ROUND_TRIP: u64 = 100;

fn options() -> Options {
    let (mtu, rate) = (PathMtu::Bytes4096, Some(10_000_000_000));
    Options { mtu, rate, config: DRIVER, ..Options::default() }
}

/// Drops packets of side 0 by their number, counted from the next one on, if they are sent for the first time.
fn lose(hosts: &mut TwoHosts, lost: impl Fn(u32) -> bool + 'static) {
    let (mut first, mut seen) = (None, std::collections::HashSet::new());
    hosts.filter = Some(Box::new(move |to, frame| {
        let psn = Packet::parse(frame).unwrap().bth().psn();
        if to == 0 {
            return true;
        }
        let number = psn.distance_from(*first.get_or_insert(psn)).cast_unsigned();
        !(seen.insert(number) && lost(number))
    }));
}

/// Writes `packets` packets, of which some are lost, and returns the time until the WRITE is complete.
fn write(hosts: &mut TwoHosts, packets: usize, lost: impl Fn(u32) -> bool + 'static) -> Duration {
    let [alice, bob] = &hosts.sides;
    let data = pattern(packets * 4096, 1);
    let (source, target) = (alice.source(&data), bob.shared(data.len()));
    lose(hosts, lost);
    let start = hosts.now;
    hosts.sides[0].write(1, &[source.all()], &target, 0);
    hosts.run_until("the write", |hosts| !hosts.sides[0].cq.is_empty());
    assert_eq!(hosts.sides[0].outcomes(), [(1, CompletionStatus::Success)]);
    assert_eq!(target.read(), data);
    hosts.now.duration_since(start)
}

//= rocev2 §7
#[test]
fn the_first_acknowledgement_of_a_connection_sets_its_timeouts() {
    for lost in [1, 8, 15] {
        let mut hosts = TwoHosts::connected(options());
        for message in 1..=2 {
            let took = write(&mut hosts, 16, move |number| number >= lost);
            assert!(took < Duration::from_millis(2), "from {lost} on, message {message}: {took:?}");
        }
        assert_eq!(hosts.sides[0].stat("timeouts"), 0);
    }
}

/// Karn's algorithm: the acknowledgement of a packet that was sent twice measures nothing.
//= rocev2 §7
#[test]
fn a_loss_of_the_first_message_does_not_slow_the_repair_of_later_ones() {
    for clean in [1, 5, 15] {
        let mut hosts = TwoHosts::connected(options());
        write(&mut hosts, 1, |_| true);
        for _ in 0..clean {
            write(&mut hosts, 1, |_| false);
            hosts.run_for(Duration::from_millis(1));
        }
        let took = write(&mut hosts, 1, |_| true);
        assert!(took < Duration::from_millis(1), "after {clean} messages: {took:?}");
    }
}

/// Without a valid measurement, timeouts stay as they were backed off.
//= rocev2 §7
#[test]
fn the_timeout_stays_backed_off_until_a_packet_that_was_sent_once_is_acknowledged() {
    let mut hosts = TwoHosts::connected(options());
    write(&mut hosts, 1, |_| false);
    let took: Vec<_> = (0..4).map(|_| write(&mut hosts, 1, |_| true).as_micros() as u64).collect();
    for (number, took) in took.iter().enumerate() {
        let expected = (500 << number) + ROUND_TRIP;
        assert!((expected..expected + 50).contains(took), "loss {number}: {took} us");
    }
    write(&mut hosts, 1, |_| false);
    let took = write(&mut hosts, 1, |_| true);
    assert!(took < Duration::from_millis(1), "{took:?}");
}

/// Does something with a connection beside the one that is tested, with a function that posts to it at a side.
type Meanwhile = fn(&mut TwoHosts, &dyn Fn(&TwoHosts, usize));

/// Writes a message whose last packet is lost, with timers of 15.6 ms. Meanwhile, another connection does something every 200 us.
fn repaired_with(meanwhile: Meanwhile) -> Duration {
    let mut hosts =
        TwoHosts::connected(Options { timer_tick: Some(Duration::from_micros(15_625)), ..options() });
    let others = hosts.connect_another(5);
    let memories = [0, 1].map(|side| hosts.sides[side].shared(64));
    let post = move |hosts: &TwoHosts, side: usize| {
        let (near, far) = (&memories[side], &memories[1 - side]);
        let operation = SendOperation::Write { address: far.address(0), key: far.key() };
        let data = SendData::Sges(&[near.all()]);
        let request = SendRequest { context: 9, operation, flags: SendFlags::SILENT, data };
        hosts.sides[side].engine.post_send(&others[side], &request).unwrap();
    };
    write(&mut hosts, 16, |_| false);
    let [alice, bob] = &hosts.sides;
    let (source, target) = (alice.source(&vec![7; 1 << 16]), bob.shared(1 << 16));
    lose(&mut hosts, |number| number == 15);
    // Of the WRITE alone.
    let filter = hosts.filter.take();
    let mut filter = filter.unwrap();
    hosts.filter = Some(Box::new(move |to, frame| {
        let opcode = Packet::parse(frame).unwrap().bth().opcode();
        matches!(opcode, Opcode::WRITE_ONLY | Opcode::ACKNOWLEDGE) || filter(to, frame)
    }));
    let start = hosts.now;
    hosts.sides[0].write(1, &[source.all()], &target, 0);
    while hosts.sides[0].cq.is_empty() {
        meanwhile(&mut hosts, &post);
        hosts.run_within(Duration::from_micros(200), |hosts| !hosts.sides[0].cq.is_empty());
        hosts.now = hosts.now.max(start);
    }
    assert_eq!(hosts.sides[0].outcomes(), [(1, CompletionStatus::Success)]);
    assert_eq!(hosts.sides[0].stat("timeouts"), 0);
    hosts.now.duration_since(start)
}

//= rocev2 §7
#[test]
fn posts_and_received_frames_advance_the_tail_probe() {
    let posts = repaired_with(|hosts, post| post(hosts, 0));
    let frames = repaired_with(|hosts, post| post(hosts, 1));
    for took in [posts, frames] {
        assert!(took < Duration::from_millis(1), "{took:?}");
    }
    let alone = repaired_with(|hosts, _| {
        let next = hosts.now + Duration::from_micros(200);
        hosts.now = next;
    });
    assert!(alone < Duration::from_millis(17), "{alone:?}");
}

/// A peer that gets no processor for 100 ms answers all at once. What it had received is not sent again but for some probes.
//= rocev2 §7
#[test]
fn late_acknowledgements_of_a_starved_peer_cost_probes_and_not_a_window() {
    for answered in [Opcode::WRITE_ONLY, Opcode::WRITE_MIDDLE] {
        let mut hosts = TwoHosts::connected(options());
        write(&mut hosts, 16, |_| false);
        let [alice, bob] = &hosts.sides;
        let (source, target) = (alice.source(&vec![7; 100 * 4096]), bob.shared(100 * 4096));
        let (held, starved) = (Rc::new(std::cell::RefCell::new(Vec::new())), Rc::new(Cell::new(true)));
        let (frames, is_starved) = (held.clone(), starved.clone());
        hosts.filter = Some(Box::new(move |to, frame| {
            let keep = to == 1 && is_starved.get();
            if keep {
                frames.borrow_mut().push(frame.clone());
            }
            !keep
        }));
        if answered == Opcode::WRITE_ONLY {
            for context in 0..60 {
                hosts.sides[0].write(context, &[source.sge(0, 64)], &target, 0);
            }
        } else {
            hosts.sides[0].write(0, &[source.all()], &target, 0);
        }
        let before = hosts.sides[0].stat("retransmissions");
        hosts.run_for(Duration::from_millis(100));
        let probes = hosts.sides[0].stat("retransmissions") - before;
        assert!((1..=6).contains(&probes), "{probes} probes");
        // The peer handles a few frames at a time, in the order of their arrival, and sends its ACKs.
        while !held.borrow().is_empty() {
            let frames: Vec<_> = {
                let mut held = held.borrow_mut();
                let count = held.len().min(8);
                held.drain(..count).collect()
            };
            for frame in frames {
                hosts.sides[1].engine.first_shard().handle_frame(hosts.now, &frame);
            }
            hosts.run_for(Duration::from_micros(120));
        }
        starved.set(false);
        hosts.run();
        let sent = hosts.sides[0].stat("retransmissions") - before;
        assert!(sent <= probes + 2, "{answered:?}: {sent} sent again");
        assert_eq!(hosts.sides[1].stat("tx_nak_sequence"), 0);
    }
}

/// A consumer may take its memory back while a request is in flight. If the request has arrived, it succeeds: a probe, which would read
/// that memory, is not sent.
//= R-CONSUMER-16
#[test]
fn memory_that_is_taken_back_ends_no_request_by_a_probe() {
    for measured in [false, true] {
        let mut hosts = TwoHosts::connected(options());
        if measured {
            write(&mut hosts, 1, |_| false);
        }
        let sinks = [(); 2].map(|()| hosts.sides[1].sink(4));
        for (context, sink) in sinks.iter().enumerate() {
            hosts.sides[1].recv(context as u64, &[sink.all()]);
        }
        let (taken_back, kept) = (hosts.sides[0].source(b"gone"), hosts.sides[0].source(b"kept"));
        // The first acknowledgement is lost.
        let mut lost = false;
        hosts.filter = Some(Box::new(move |to, _| to != 0 || std::mem::replace(&mut lost, true)));
        hosts.sides[0].send(2, &[taken_back.all()]);
        hosts.run_for(Duration::from_micros(ROUND_TRIP));
        assert!(hosts.sides[0].engine.memory().deregister(&taken_back.region));
        // Later than a probe.
        hosts.run_for(Duration::from_millis(5));
        assert_eq!(hosts.sides[0].stat("tail_probes"), 0, "{measured}");
        hosts.sides[0].send(3, &[kept.all()]);
        hosts.run_for(Duration::from_millis(1));
        let succeeded = [2, 3].map(|context| (context, CompletionStatus::Success));
        assert_eq!(hosts.sides[0].outcomes(), succeeded, "{measured}");
        assert_eq!(sinks[0].read(), b"gone");
    }
}
