// SPDX-License-Identifier: MIT OR Apache-2.0

//! READ responses that are lost: only these are requested again, all of them at once.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use roce::{CompletionStatus, Config, QpState, ReadLimits};
use roce_wire::{Opcode, Packet, RethRepr};

use crate::two_hosts::{Memory, Options, TwoHosts, pattern};

const MTU: usize = 1024;
const MESSAGE: usize = 1 << 20;

fn rated() -> Options {
    let reads = ReadLimits { inbound: 16, outbound: 16 };
    Options { reads, rate: Some(10_000_000_000), latency: Duration::from_micros(50), ..Options::default() }
}

/// Alice, who has read from bob once, so that the round trip is measured, and memory for READs of 1 MiB.
struct Reads {
    hosts: TwoHosts,
    source: Memory,
    sink: Memory,
    /// Content of bob's memory.
    data: Vec<u8>,
}

impl Reads {
    /// `messages` READs have memory of their own to read from and into.
    fn new(options: Options, messages: u64) -> Self {
        let mut hosts = TwoHosts::connected(options);
        let [alice, bob] = &hosts.sides;
        let len = messages as usize * MESSAGE;
        let data = pattern(len, 1);
        let (source, sink) = (bob.shared(len), alice.sink(len));
        source.write(&data);
        alice.read(1, &[sink.sge(0, 4096)], &source, 0);
        hosts.run();
        hosts.sides[0].completions();
        Self { hosts, source, sink, data }
    }
}

/// Cost of READs.
struct Cost {
    /// Responses sent beyond those of the READs.
    again: u64,
    /// Requests sent again.
    requests: u64,
    timeouts: u64,
    /// Losses that responses behind them have shown.
    losses: u64,
    /// Round trips.
    took: u64,
}

/// Runs `messages` READs of 1 MiB while the responses with these numbers are lost, as often as `copies` says.
fn lost_responses(messages: u64, copies: usize, lost: impl Fn(u32) -> bool + 'static) -> Cost {
    lost_responses_with(rated(), messages, copies, lost)
}

fn lost_responses_with(
    options: Options,
    messages: u64,
    copies: usize,
    lost: impl Fn(u32) -> bool + 'static,
) -> Cost {
    let Reads { mut hosts, source, sink, data } = Reads::new(options, messages);
    lose_responses(&mut hosts, move |number, copy| lost(number) && copy <= copies);
    let names = ["retransmissions", "tail_probes", "implied_naks", "timeouts"];
    let before = names.map(|name| hosts.sides[0].stat(name));
    let (sent, start) = (hosts.sides[1].stat("tx_bytes"), hosts.now);
    for context in 0..messages {
        let offset = context as usize * MESSAGE;
        hosts.sides[0].read(context, &[sink.sge(offset, MESSAGE)], &source, offset);
    }
    let mut done = Vec::new();
    while done.len() < messages as usize {
        hosts.run_until("a READ", |hosts| !hosts.sides[0].cq.is_empty());
        done.extend(hosts.sides[0].outcomes());
    }
    let expected: Vec<_> = (0..messages).map(|context| (context, CompletionStatus::Success)).collect();
    assert_eq!(done, expected);
    assert_eq!(sink.read(), data);
    let after = names.map(|name| hosts.sides[0].stat(name));
    Cost {
        again: (hosts.sides[1].stat("tx_bytes") - sent - messages * MESSAGE as u64) / MTU as u64,
        requests: after[0] - before[0],
        timeouts: after[1] - before[1] + after[3] - before[3],
        losses: after[2] - before[2],
        took: hosts.now.duration_since(start).as_micros() as u64 / 100,
    }
}

//= rocev2 §7
#[test]
fn responses_lost_anywhere_are_requested_again_in_one_round_trip() {
    const MANY: u8 = 128;
    let without = lost_responses(2, 1, |_| false);
    assert_eq!((without.again, without.requests), (0, 0));
    // The first chunks are requested from the first gap to the last, until the peer shows how it answers. Gaps are requested apart as
    // far as the peer has granted as many requests: 16 are fewer than the gaps if one in 7 is lost, of which some wait for answers.
    for (granted, distance, more) in
        [(16, 7, 8 * 64), (MANY, 7, 6 * 64), (16, 20, 6 * 64), (16, 100, 64), (16, 300, 0)]
    {
        let options = Options {
            reads: ReadLimits { inbound: granted, outbound: granted },
            config: |config| config.max_reads = ReadLimits { inbound: MANY, outbound: MANY },
            ..rated()
        };
        let cost = lost_responses_with(options, 2, 1, move |number| number % distance == 5);
        let count = (2048 - 5u64).div_ceil(u64::from(distance));
        assert_eq!(cost.timeouts, 0, "one in {distance}");
        assert!(
            (count..=count + more).contains(&cost.again),
            "one in {distance}: {} for {count}",
            cost.again
        );
        let most = without.took * 2;
        assert!(cost.took <= most, "{} round trips, {} without", cost.took, without.took);
    }
}

//= rocev2 §7
#[test]
fn gaps_are_requested_apart_from_a_peer_that_answers_each_request_as_its_own() {
    let cost =
        lost_responses(2, 1, |number| number == 100 || (1000..1100).contains(&number) && number % 10 == 0);
    assert_eq!((cost.again, cost.timeouts), (11, 0));
    assert_eq!((cost.requests, cost.losses), (11, 4));
}

//= rocev2 §7
#[test]
fn a_response_that_is_lost_again_is_requested_again_without_a_timeout() {
    let cost = lost_responses(4, 2, |number| matches!(number, 300 | 400 | 401 | 900));
    assert_eq!((cost.again, cost.timeouts), (8, 0));
}

/// A response that was overtaken by two is not requested again.
//= rocev2 §7
#[test]
fn late_responses_at_the_end_of_a_chunk_are_not_requested_again() {
    let cost = lost_responses(1, 1, |number| number == 63);
    assert_eq!((cost.again, cost.requests), (1, 1));
    let mut hosts =
        TwoHosts::connected(Options { reordering: 200, latency: Duration::from_nanos(300), ..rated() });
    let [alice, bob] = &hosts.sides;
    let (source, sink) = (bob.shared(MESSAGE), alice.sink(MESSAGE));
    alice.read(1, &[sink.all()], &source, 0);
    hosts.run();
    assert_eq!(hosts.sides[0].outcomes(), [(1, CompletionStatus::Success)]);
    assert_eq!(hosts.sides[0].stat("retransmissions"), 0);
}

/// The messages behind it may need what it reads.
//= rocev2 §7
#[test]
fn a_missing_response_is_requested_before_a_short_message_is_sent() {
    let Reads { hosts, source, sink, .. } = Reads::new(rated(), 1);
    let [alice, bob] = &hosts.sides;
    alice.read(1, &[sink.sge(0, 64 * MTU)], &source, 0);
    for frame in alice.transmit(hosts.now, 64) {
        bob.engine.first_shard().handle_frame(hosts.now, &frame);
    }
    let later = hosts.now + Duration::from_micros(100);
    for (number, response) in bob.transmit(hosts.now, 64).iter().enumerate() {
        if number != 5 {
            alice.engine.first_shard().handle_frame(later, response);
        }
    }
    alice.send(2, &[sink.sge(64 * MTU, 8)]);
    let sent = alice.transmit(later, 64);
    let sent = sent.iter().map(|frame| Packet::parse(frame).unwrap().bth().opcode()).collect::<Vec<_>>();
    assert_eq!(sent, [Opcode::READ_REQUEST, Opcode::SEND_ONLY]);
}

/// Nothing behind the end of the last READ shows its loss: a probe does.
//= rocev2 §7
#[test]
fn a_lost_end_of_a_read_is_requested_again_after_a_timeout() {
    for lost in [1, 2, 8, 70, 200] {
        let cost = lost_responses(1, 1, move |number| number >= 1024 - lost);
        assert_eq!(cost.timeouts, 1, "{lost} lost");
        assert!(cost.again <= u64::from(lost) + 1, "{lost} lost: {} sent again", cost.again);
    }
}

/// A timeout requests the rest of the oldest chunk, and what is missing behind it.
//= rocev2 §7
#[test]
fn a_timeout_does_not_request_later_chunks_that_have_arrived() {
    let cost = lost_responses(1, 2, |number| matches!(number, 900 | 965));
    assert_eq!(cost.timeouts, 1);
    assert!(cost.again <= 70, "{} sent again", cost.again);
}

/// Without early placement everything behind a lost response is requested again.
//= rocev2 §7
#[test]
fn without_early_placement_reads_are_requested_again_from_the_lost_response_on() {
    let options = Options { config: |config| config.early_placement = false, ..rated() };
    for (lost, copies, expected) in
        [(300, 1, (212, 4, 1, 0)), (300, 3, (508, 10, 3, 0)), (1023, 1, (1, 1, 0, 1))]
    {
        let cost = lost_responses_with(options.clone(), 1, copies, move |number| number == lost);
        assert_eq!(
            (cost.again, cost.requests, cost.losses, cost.timeouts),
            expected,
            "{lost}, {copies} copies"
        );
    }
    // A timeout requests all of the rest at once, too: no later loss is found.
    let cost = lost_responses_with(options, 1, 1, |number| number >= 824);
    assert_eq!((cost.again, cost.requests, cost.losses, cost.timeouts), (200, 4, 0, 1));
}

/// A late response that was sent before does not tell how the peer answers a request for a part of a chunk.
//= rocev2 §7
#[test]
fn a_late_response_does_not_tell_how_the_peer_answers() {
    let Reads { hosts, source, sink, .. } = Reads::new(rated(), 1);
    let [alice, bob] = &hosts.sides;
    alice.read(1, &[sink.sge(0, 128 * MTU)], &source, 0);
    for frame in alice.transmit(hosts.now, 64) {
        bob.engine.first_shard().handle_frame(hosts.now, &frame);
    }
    let later = hosts.now + Duration::from_micros(100);
    let responses = bob.transmit(hosts.now, 256);
    assert_eq!(responses.len(), 128);
    let missing = [3, 10, 70, 80];
    let requests = || {
        let sent = alice.transmit(later, 64);
        let sent = sent.iter().map(|frame| {
            let packet = Packet::parse(frame).unwrap();
            RethRepr::parse(&packet.reth().unwrap()).length as usize / MTU
        });
        sent.collect::<Vec<_>>()
    };
    for (number, response) in responses.iter().enumerate().take(72) {
        if !missing.contains(&number) {
            alice.engine.first_shard().handle_frame(later, response);
        }
    }
    assert_eq!(requests(), [8], "from 3 to 10");
    alice.engine.first_shard().handle_frame(later, &responses[3]);
    for (number, response) in responses.iter().enumerate().skip(72) {
        if !missing.contains(&number) {
            alice.engine.first_shard().handle_frame(later, response);
        }
    }
    assert_eq!(requests(), [11], "from 70 to 80");
}

/// Responses behind the oldest READ are stored in the elements of theirs.
#[test]
fn responses_of_a_later_read_are_stored_in_its_own_elements() {
    let Reads { mut hosts, source, sink, data } = Reads::new(rated(), 1);
    lose_responses(&mut hosts, |number, copy| number == 9 && copy == 1);
    let alice = &hosts.sides[0];
    let parts = [2, 2, 2, 14].map(|packets| packets * MTU);
    let mut at = 0;
    let elements = parts.map(|length| {
        at += length;
        sink.sge(at - length, length)
    });
    let before = alice.stat("retransmissions");
    alice.read(1, &elements, &source, 0);
    alice.read(2, &[sink.sge(at, MTU), sink.sge(at + MTU, 19 * MTU)], &source, at);
    hosts.run();
    assert_eq!(hosts.sides[0].outcomes(), [1, 2].map(|context| (context, CompletionStatus::Success)));
    assert!(sink.read()[..40 * MTU] == data[..40 * MTU]);
    assert_eq!(hosts.sides[0].stat("retransmissions") - before, 1);
}

/// A request behind a READ that misses a response is lost, too: of the READ only the oldest chunk is requested again.
//= rocev2 §7
//= R-QP-52
#[test]
fn a_loss_behind_a_read_that_misses_a_response_resends_one_chunk_of_it() {
    let options = Options { reads: ReadLimits { inbound: 2, outbound: 2 }, ..rated() };
    let Reads { hosts, source, sink, .. } = Reads::new(options, 1);
    let [alice, bob] = &hosts.sides;
    let target = bob.shared(4 * MTU);
    alice.read(1, &[sink.sge(0, 100 * MTU)], &source, 0);
    alice.write(2, &[sink.sge(128 * MTU, 4 * MTU)], &target, 0);
    alice.read(3, &[sink.sge(132 * MTU, MTU)], &source, 0);
    let opcodes = |frames: &[Vec<u8>]| {
        frames.iter().map(|frame| Packet::parse(frame).unwrap().bth().opcode()).collect::<Vec<_>>()
    };
    let all = [
        Opcode::READ_REQUEST,
        Opcode::WRITE_FIRST,
        Opcode::WRITE_MIDDLE,
        Opcode::WRITE_MIDDLE,
        Opcode::WRITE_LAST,
    ];
    let later = |round: u32| hosts.now + Duration::from_micros(100) * round;
    let sent = alice.transmit(later(0), 64);
    assert_eq!(opcodes(&sent), [&all[..1], &all[..]].concat());
    // The first packet of the WRITE and a response are lost.
    for (_, frame) in sent.iter().enumerate().filter(|(number, _)| *number != 2) {
        bob.engine.first_shard().handle_frame(later(0), frame);
    }
    for (_, frame) in bob.transmit(later(0), 256).iter().enumerate().filter(|(number, _)| *number != 10) {
        alice.engine.first_shard().handle_frame(later(1), frame);
    }
    let sent = alice.transmit(later(1), 64);
    assert_eq!(opcodes(&sent), all, "the third request waits");
    // The response is lost again, which the acknowledgement of the WRITE shows.
    for frame in &sent {
        bob.engine.first_shard().handle_frame(later(1), frame);
    }
    for frame in bob.transmit(later(1), 256).iter().skip(1) {
        alice.engine.first_shard().handle_frame(later(2), frame);
    }
    assert_eq!(opcodes(&alice.transmit(later(2), 64)), all[..1]);
}

/// The chunks of a READ stay the same while the window grows.
//= rocev2 §7
#[test]
fn the_chunks_of_a_read_do_not_change_while_the_window_does() {
    let options = Options { latency: Duration::from_micros(500), ..rated() };
    let Reads { mut hosts, source, sink, .. } = Reads::new(options, 4);
    for expected in [64, 256] {
        hosts.capture = Some(Vec::new());
        hosts.sides[0].read(1, &[sink.sge(0, 4 * MESSAGE)], &source, 0);
        hosts.run();
        assert_eq!(hosts.sides[0].outcomes(), [(1, CompletionStatus::Success)]);
        let capture = hosts.capture.take().unwrap();
        for (_, frame) in capture.iter().filter(|(from, _)| *from == 0) {
            let reth = RethRepr::parse(&Packet::parse(frame).unwrap().reth().unwrap());
            assert_eq!(reth.length as usize / MTU, expected);
        }
    }
}

/// Responses are requested up to the window, and a chunk that is longer than it if nothing else is in flight.
//= rocev2 §7
#[test]
fn responses_are_requested_up_to_the_window() {
    // Of a window of 96 packets READs may use 144.
    for (written, expected) in [(15, 2), (16, 2), (17, 1)] {
        let hosts = TwoHosts::connected(Options { config: |config| config.window = 96, ..rated() });
        let [alice, bob] = &hosts.sides;
        let (source, sink) = (bob.shared(MESSAGE), alice.sink(MESSAGE));
        alice.write(1, &[sink.sge(0, written * MTU)], &source, 0);
        alice.read(2, &[sink.sge(0, 192 * MTU)], &source, 0);
        assert_eq!(alice.transmit(hosts.now, 64).len(), written + expected, "{written} packets before");
    }
    let config = |config: &mut Config| (config.window, config.max_in_flight) = (2, 2048);
    let mut hosts = TwoHosts::connected(Options { config, ..rated() });
    let [alice, bob] = &hosts.sides;
    let (source, sink) = (bob.shared(MESSAGE), alice.sink(MESSAGE));
    alice.read(1, &[sink.sge(0, 192 * MTU)], &source, 0);
    hosts.run();
    assert_eq!(hosts.sides[0].outcomes(), [(1, CompletionStatus::Success)]);
}

/// Drops the READ requests with these numbers, counted from the next one on.
fn lose_request(hosts: &mut TwoHosts, lost: impl Fn(u32) -> bool + 'static) {
    let mut seen = 0;
    hosts.filter = Some(Box::new(move |to, frame| {
        let is_request = to == 1 && Packet::parse(frame).unwrap().bth().opcode() == Opcode::READ_REQUEST;
        seen += u32::from(is_request);
        !(is_request && lost(seen - 1))
    }));
}

/// A peer that stores requests needs one of them again; one that drops them needs all behind it.
//= rocev2 §7
#[test]
fn a_lost_request_is_sent_again_and_those_behind_it_if_the_peer_has_dropped_them() {
    for keeps in [true, false] {
        let options = Options { keeps_packets: [true, keeps], ..rated() };
        let Reads { mut hosts, source, sink, data } = Reads::new(options, 2);
        lose_request(&mut hosts, |number| number == 5);
        let sent = hosts.sides[1].stat("tx_bytes");
        let before = ["retransmissions", "implied_naks"].map(|name| hosts.sides[0].stat(name));
        for context in 0..2 {
            let offset = context as usize * MESSAGE;
            hosts.sides[0].read(context, &[sink.sge(offset, MESSAGE)], &source, offset);
        }
        hosts.run();
        assert_eq!(hosts.sides[0].outcomes(), [0, 1].map(|context| (context, CompletionStatus::Success)));
        assert_eq!(sink.read(), data);
        assert_eq!(hosts.sides[0].stat("timeouts"), 0, "keeps: {keeps}");
        let after = ["retransmissions", "implied_naks"].map(|name| hosts.sides[0].stat(name));
        let expected = if keeps { [2, 1] } else { [5, 2] };
        assert_eq!([after[0] - before[0], after[1] - before[1]], expected, "keeps: {keeps}");
        let again = (hosts.sides[1].stat("tx_bytes") - sent) / MTU as u64 - 2048;
        assert!(again <= 64, "keeps: {keeps}: {again} responses sent again");
    }
}

/// Requests of other kinds behind READs: their acknowledgements count once the READs are complete.
//= rocev2 §7
//= R-QP-2
#[test]
fn requests_acknowledged_while_responses_are_missing_complete_behind_them() {
    for lost in [3, 40, 99] {
        let mut hosts = TwoHosts::connected(rated());
        let [alice, bob] = &hosts.sides;
        let data = pattern(100 * MTU, 1);
        let (source, sink) = (bob.shared(100 * MTU), alice.sink(100 * MTU));
        source.write(&data);
        let (from, target) = (alice.source(&data), bob.shared(100 * MTU));
        alice.read(0, &[sink.sge(0, 4096)], &source, 0);
        hosts.run();
        hosts.sides[0].completions();
        let (mut first, mut done) = (None, false);
        hosts.filter = Some(Box::new(move |to, frame| {
            let packet = Packet::parse(frame).unwrap();
            if to != 0 || done {
                return true;
            }
            let psn = packet.bth().psn();
            done = psn.distance_from(*first.get_or_insert(psn)) == lost;
            !done
        }));
        let before = hosts.sides[0].stat("retransmissions");
        hosts.sides[0].read(1, &[sink.all()], &source, 0);
        hosts.sides[0].write(2, &[from.all()], &target, 0);
        hosts.run();
        assert_eq!(hosts.sides[0].outcomes(), [1, 2].map(|context| (context, CompletionStatus::Success)));
        assert_eq!((sink.read(), target.read()), (data.clone(), data));
        assert_eq!(hosts.sides[0].stat("retransmissions") - before, 1, "{lost}");
        assert_eq!(hosts.sides[0].stat("timeouts"), 0, "{lost}");
    }
}

/// Two READs into the same memory: the later one decides what it holds, whatever is lost of the earlier one.
#[test]
fn a_later_read_into_the_same_memory_is_not_overwritten_by_an_earlier_one() {
    // In packets, of the 20 of both elements: where the second READ begins, and which packet of the first one is lost.
    for (begin, lost) in [(0, 5), (0, 7), (4, 6), (9, 2), (12, 1)] {
        for copies in [1, 2] {
            let mut hosts = TwoHosts::connected(rated());
            let [alice, bob] = &hosts.sides;
            let data = [pattern(8 * MTU, 1), pattern(8 * MTU, 2)];
            let sources = [0, 1].map(|number| bob.shared(data[number].len()));
            for (source, data) in sources.iter().zip(&data) {
                source.write(data);
            }
            let sink = alice.sink(20 * MTU);
            alice.read(9, &[sink.sge(0, MTU)], &sources[0], 0);
            hosts.run();
            hosts.sides[0].completions();
            sink.write(&vec![0; 20 * MTU]);
            lose_responses(&mut hosts, move |number, copy| number == lost && copy <= copies);
            let alice = &hosts.sides[0];
            alice.read(1, &[sink.sge(0, 6 * MTU), sink.sge(10 * MTU, 2 * MTU)], &sources[0], 0);
            alice.read(2, &[sink.sge(begin * MTU, 8 * MTU)], &sources[1], 0);
            hosts.run();
            let outcomes = [1, 2].map(|context| (context, CompletionStatus::Success));
            assert_eq!(hosts.sides[0].outcomes(), outcomes, "{begin}, {lost}");
            let mut expected = vec![0; 20 * MTU];
            expected[..6 * MTU].copy_from_slice(&data[0][..6 * MTU]);
            expected[10 * MTU..12 * MTU].copy_from_slice(&data[0][6 * MTU..]);
            expected[begin * MTU..][..8 * MTU].copy_from_slice(&data[1]);
            assert!(sink.read() == expected, "{begin}, {lost}, {copies} copies");
            // Behind READs that are stored, nothing shows the second loss.
            let probes = u64::from(begin == 12 && copies == 2);
            assert_eq!(hosts.sides[0].stat("tail_probes"), probes, "{begin}, {lost}, {copies} copies");
        }
    }
}

/// Drops responses by their number, counted from the next one on, and by how often it was sent.
fn lose_responses(hosts: &mut TwoHosts, lost: impl Fn(u32, usize) -> bool + 'static) {
    let (mut first, mut seen) = (None, std::collections::HashMap::new());
    hosts.filter = Some(Box::new(move |to, frame| {
        let packet = Packet::parse(frame).unwrap();
        if to != 0 {
            return true;
        }
        let psn = packet.bth().psn();
        let number = psn.distance_from(*first.get_or_insert(psn)).cast_unsigned();
        let copy = seen.entry(number).or_insert(0);
        *copy += 1;
        !lost(number, *copy)
    }));
}

/// The answer to the last repetition comes late, but before the retries are used up. That it shows other losses is no reason to
/// give up.
//= rocev2 §7
#[test]
fn an_answer_before_the_retries_are_used_up_is_progress_although_it_shows_losses() {
    let Reads { mut hosts, source, sink, data } = Reads::new(rated(), 2);
    // The answer to the newest request.
    let answer = Rc::new(RefCell::new(Vec::new()));
    let kept = answer.clone();
    hosts.filter = Some(Box::new(move |to, frame| {
        if to == 1 {
            kept.borrow_mut().clear();
            return true;
        }
        kept.borrow_mut().push(frame.clone());
        false
    }));
    let timing = roce::Config::new(0, [0; 32]).timing;
    let attempts = u32::from(timing.retries) + 1;
    let limit = hosts.now + timing.ack_timeout * attempts;
    for context in 0..2 {
        let offset = context as usize * MESSAGE;
        hosts.sides[0].read(context, &[sink.sge(offset, MESSAGE)], &source, offset);
    }
    hosts.run_within(Duration::from_secs(60), |hosts| hosts.now > limit);
    assert_eq!(hosts.sides[0].qp.state(), QpState::Rts);
    hosts.filter = None;
    let late = answer.borrow().clone();
    assert!(!late.is_empty());
    for frame in late {
        hosts.sides[0].engine.first_shard().handle_frame(hosts.now, &frame);
    }
    hosts.run();
    assert_eq!(hosts.sides[0].outcomes(), [0, 1].map(|context| (context, CompletionStatus::Success)));
    assert!(sink.read() == data);
}

/// A READ and another request behind it are asked for by one packet after a timeout; of its answer the first packet is lost.
//= rocev2 §7
#[test]
fn a_response_lost_from_the_answer_to_a_probe_is_requested_again_without_another_timeout() {
    for lost in [0, 30, 62] {
        let Reads { mut hosts, source, sink, data } = Reads::new(rated(), 1);
        let written = hosts.sides[1].shared(MTU);
        let asked = Rc::new(Cell::new(0));
        let (count, mut answered) = (asked.clone(), 0);
        hosts.filter = Some(Box::new(move |to, frame| {
            let packet = Packet::parse(frame).unwrap();
            if to == 1 {
                let is_read = packet.bth().opcode() == Opcode::READ_REQUEST;
                count.set(count.get() + u32::from(is_read));
                return true;
            }
            answered += u32::from(count.get() == 2);
            count.get() > 2 || count.get() == 2 && answered != lost + 1
        }));
        let before = hosts.sides[0].stat("timeouts");
        let alice = &hosts.sides[0];
        alice.read(1, &[sink.sge(0, 64 * MTU)], &source, 0);
        alice.write(2, &[sink.sge(64 * MTU, MTU)], &written, 0);
        hosts.run();
        assert_eq!(hosts.sides[0].outcomes(), [1, 2].map(|context| (context, CompletionStatus::Success)));
        assert!(sink.read()[..64 * MTU] == data[..64 * MTU]);
        assert_eq!(hosts.sides[0].stat("timeouts") - before, 1, "{lost} lost");
        assert_eq!(asked.get(), 3, "{lost} lost");
    }
}

/// As many responses as the engine can record are in flight at most.
//= rocev2 §7
#[test]
fn responses_in_flight_are_as_many_as_can_be_recorded() {
    let config = |config: &mut Config| config.max_in_flight = 32 << 10;
    let Reads { mut hosts, source, sink, data } = Reads::new(Options { config, ..rated() }, 1);
    lose_responses(&mut hosts, |number, copy| number == 1 && copy == 1);
    hosts.sides[0].read(1, &[sink.sge(0, 192 * MTU)], &source, 0);
    hosts.run();
    assert_eq!(hosts.sides[0].outcomes(), [(1, CompletionStatus::Success)]);
    assert!(sink.read()[..192 * MTU] == data[..192 * MTU]);
    assert_eq!(hosts.sides[0].stat("timeouts"), 0);
}

/// A request is outstanding until the last response to it was sent, whether or not it arrives.
//= rocev2 §6
//= R-QP-52
#[test]
fn no_more_read_requests_are_outstanding_than_the_peer_granted() {
    for granted in [1, 2, 4] {
        let options = Options { reads: ReadLimits { inbound: granted, outbound: granted }, ..rated() };
        let Reads { mut hosts, source, sink, data } = Reads::new(options, 4);
        let most = Rc::new(Cell::new(0));
        let seen = most.clone();
        let (mut open, mut count, mut base) = (Vec::new(), 0u32, None);
        hosts.filter = Some(Box::new(move |to, frame| {
            let packet = Packet::parse(frame).unwrap();
            let psn = packet.bth().psn();
            let at = psn.distance_from(*base.get_or_insert(psn));
            if to == 1 && packet.bth().opcode() == Opcode::READ_REQUEST {
                open.push(at + packet.reth().unwrap().length().div_ceil(MTU as u32).cast_signed());
                seen.set(seen.get().max(open.len()));
            } else if to == 0 && packet.info().operation == roce_wire::Operation::Read {
                if packet.info().last
                    && let Some(answered) = open.iter().position(|end| *end == at + 1)
                {
                    open.remove(answered);
                }
                count += 1;
                return !count.is_multiple_of(9);
            }
            true
        }));
        for context in 0..4 {
            let offset = context as usize * MESSAGE;
            hosts.sides[0].read(context, &[sink.sge(offset, MESSAGE)], &source, offset);
        }
        let mut done = 0;
        while done < 4 {
            hosts.run_until("a READ", |hosts| !hosts.sides[0].cq.is_empty());
            done += hosts.sides[0].outcomes().len();
        }
        assert!(sink.read() == data);
        assert!(most.get() <= usize::from(granted), "granted {granted}: {}", most.get());
    }
}
