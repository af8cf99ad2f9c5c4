// SPDX-License-Identifier: MIT OR Apache-2.0

//! Loss recovery as a table: what a requester sends again after each answer, without a transport.

use super::*;

/// Microseconds of a round trip here.
const ROUND_TRIP: u64 = 100;

/// A requester without payload: it sends up to `high`, and again what recovery decides.
struct Requester {
    recovery: Recovery,
    una: Sequence,
    next: Sequence,
    high: Sequence,
    /// Microseconds.
    now: u64,
}

/// Events of the requester.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A sequence NAK for a packet, a round trip after the last event.
    Nak(u64),
    /// A second copy of a NAK, at once.
    NakAgain(u64),
    /// A positive acknowledgement of everything before a packet, a round trip after the last event.
    Ack(u64),
    /// Packets are sent for the first time, up to this one.
    Send(u64),
    /// The deadline passes.
    Timeout,
}
use Event::{Ack, Nak, NakAgain, Send, Timeout};

const fn at(number: u64) -> Sequence {
    Sequence::ZERO.add(number)
}

impl Requester {
    fn new() -> Self {
        let mut recovery = Recovery::IDLE;
        recovery.timeout.min_resend = 1_000_000;
        recovery.timeout.ack_timeout = 67_000_000;
        recovery.retries = 2;
        let nanos = ROUND_TRIP * 1000;
        recovery.rtt = Some(Rtt { smoothed: nanos, variation: 0 });
        recovery.window.measure(1, nanos);
        Self { recovery, una: at(0), next: at(0), high: at(0), now: 1_000_000 }
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(self.now * 1000)
    }

    fn advance(&mut self, una: Sequence) {
        if una > self.una {
            self.una = una;
            self.next = self.next.max(una);
            self.recovery.handle_progress(una, self.now());
        }
    }

    fn go_back(&mut self, kind: Resend) {
        self.recovery.record_go_back(self.una, self.high, kind, self.now());
        self.next = self.una;
    }

    /// Sends what may be sent, and returns what was sent again, as ranges.
    fn transmit(&mut self) -> String {
        let mut sent: Vec<(u64, u64)> = Vec::new();
        while self.next < self.high && !self.recovery.awaits_answer(self.una, self.next) {
            let number = self.next.since(Sequence::ZERO);
            match sent.last_mut() {
                Some((_, last)) if *last + 1 == number => *last = number,
                _ => sent.push((number, number)),
            }
            let (now, packet) = (self.now(), (self.next, self.next.next()));
            self.next = hints::resume_after_resend(&mut self.recovery, self.una, packet, now);
        }
        let range = |(first, last): (u64, u64)| {
            if first == last { first.to_string() } else { std::format!("{first}..={last}") }
        };
        sent.into_iter().map(range).collect::<Vec<_>>().join(" ")
    }

    /// Handles an event, as the requester does, and returns what is sent again.
    fn handle(&mut self, event: Event) -> String {
        match event {
            Send(high) => {
                self.high = at(high);
                self.next = self.high;
                self.recovery.record_ack_request(self.una, self.high.previous(), self.high, true, self.now());
                return String::new();
            }
            Nak(number) | NakAgain(number) => {
                self.now += if matches!(event, Nak(_)) { ROUND_TRIP } else { 1 };
                self.advance(at(number));
                let again = self.recovery.is_lost_within_run(self.una, self.now());
                if again || self.recovery.is_new_loss(self.una, self.next, self.now()) {
                    let kind = self.recovery.resend_for_loss(self.una, self.high, self.high);
                    self.go_back(kind);
                }
            }
            Ack(number) => {
                self.now += ROUND_TRIP;
                self.advance(at(number));
                match self.recovery.handle_ack(self.una, self.high, self.high, self.now()) {
                    AfterAck::Continue => {}
                    AfterAck::Resend(kind) => self.go_back(kind),
                    AfterAck::Newest => self.next = self.high.previous(),
                }
            }
            Timeout => {
                let deadline = self.recovery.timeout.deadline(self.una);
                self.now = self.now.max(deadline.as_nanos() / 1000 + 1);
                self.recovery.timeout.back_off();
                self.go_back(Resend::Probe { selective: true });
            }
        }
        self.transmit()
    }
}

/// Runs events from the start of a connection that has sent 128 packets. Each row: an event, and what is sent again.
fn check(name: &str, rows: &[(Event, &str)]) {
    check_with(name, 128, rows);
}

/// [`check`] with another number of packets.
fn check_with(name: &str, packets: u64, rows: &[(Event, &str)]) {
    let mut requester = Requester::new();
    requester.handle(Send(packets));
    for (row, &(event, expected)) in rows.iter().enumerate() {
        assert_eq!(requester.handle(event), expected, "{name}, row {row}: {event:?}");
    }
}

//= rocev2 §7
#[test]
fn each_answer_has_its_retransmission() {
    check(
        "one loss: it, and the newest to have another loss of it reported",
        &[(Nak(10), "10 127"), (NakAgain(10), ""), (Ack(128), "")],
    );
    check("the resent packet is lost, too", &[(Nak(10), "10 127"), (Nak(10), "10 127"), (Ack(128), "")]);
    check(
        "several in a row: twice as many each time",
        &[(Nak(10), "10 127"), (Nak(11), "11..=12 127"), (Nak(13), "13..=16 127"), (Ack(128), "")],
    );
    let runs = |high: u64| {
        [
            (Nak(10), std::format!("10 {high}")),
            (Nak(11), std::format!("11..=12 {high}")),
            (Nak(13), std::format!("13..=16 {high}")),
            (Nak(17), std::format!("17..=24 {high}")),
            (Nak(25), std::format!("25..=40 {high}")),
            (Nak(41), std::format!("41..={high}")),
        ]
    };
    for high in [127, 1000] {
        let runs = runs(high);
        let rows = std::array::from_fn::<_, 6, _>(|row| (runs[row].0, runs[row].1.as_str()));
        check_with("a peer that was not seen to store packets: at most 16 at once", high + 1, &rows);
    }
    check_with(
        "one that was: more",
        1000,
        &[
            (Nak(10), "10 999"),
            (Nak(20), "20 999"),
            (Nak(21), "21..=22 999"),
            (Nak(23), "23..=26 999"),
            (Nak(27), "27..=34 999"),
            (Nak(35), "35..=50 999"),
            (Nak(51), "51..=178 999"),
        ],
    );
    check(
        "a packet of a run is lost again: its first report came with the packet before it, its third did not",
        &[
            (Nak(10), "10 127"),
            (Nak(11), "11..=12 127"),
            (Nak(13), "13..=16 127"),
            (Nak(14), ""),
            (NakAgain(14), ""),
            (NakAgain(14), "14 127"),
        ],
    );
    check(
        "a report after a round trip is no copy of the first",
        &[(Nak(10), "10 127"), (Nak(11), "11..=12 127"), (Nak(12), ""), (Nak(12), "12 127")],
    );
    check(
        "the newest packet is lost again behind a run that ends there",
        &[(Nak(10), "10 127"), (Nak(20), "20 127"), (Nak(126), "126..=127"), (Nak(127), "127")],
    );
    check("a loss near the end: everything", &[(Nak(126), "126..=127"), (Ack(128), "")]);
    check("the last packet", &[(Nak(127), "127"), (Ack(128), "")]);
}

//= rocev2 §7
#[test]
fn a_peer_that_stores_nothing_gets_everything_again() {
    // It acknowledges the resent packet alone, and reports the next.
    let mut requester = Requester::new();
    requester.handle(Send(128));
    let mut una = 10;
    let all = |una: u64| std::format!("{una}..={}", una + 100);
    for _ in 0..MAX_SELECTIVE_FAILURES {
        requester.handle(Send(una + 101));
        assert_eq!(requester.handle(Nak(una)), std::format!("{una} {}", una + 100));
        assert_eq!(requester.handle(Ack(una + 1)), "");
        assert_eq!(requester.handle(Nak(una + 1)), std::format!("{}..={}", una + 1, una + 100));
        requester.handle(Ack(una + 101));
        una += 101;
    }
    for _ in 0..GO_BACK_N_LOSSES {
        requester.handle(Send(una + 101));
        assert_eq!(requester.handle(Nak(una)), all(una));
        requester.handle(Ack(una + 101));
        una += 101;
    }
    requester.handle(Send(una + 101));
    assert_eq!(requester.handle(Nak(una)), std::format!("{una} {}", una + 100), "it is asked again");
}

#[test]
fn of_frequent_losses_several_are_repaired_at_once() {
    let mut requester = Requester::new();
    requester.handle(Send(4096));
    let resent: Vec<_> = (1..60).map(|loss| requester.handle(Nak(loss * 16))).collect();
    assert_eq!(resent[0], "16 4095");
    // After many losses, every 16 packets: half of those from what is resent to the next one.
    let last = resent.last().unwrap();
    assert_eq!(last, "944..=948 4095");
    // Rare losses are repaired one by one again.
    let resent: Vec<_> = (1..20).map(|loss| requester.handle(Nak(950 + loss * 100))).collect();
    assert_eq!(resent.last().unwrap(), "2850 4095");
}

//= rocev2 §7
#[test]
fn a_timeout_sends_one_packet_and_its_answer_tells_what_is_missing() {
    check("nothing was lost but the answer", &[(Timeout, "0"), (Ack(128), "")]);
    check("it misses the next one", &[(Timeout, "0"), (Ack(1), "1 127"), (Nak(2), "2..=3 127")]);
    check("the answer to more was late", &[(Timeout, "0"), (Ack(2), "127"), (Nak(64), "64 127")]);
    check(
        "a peer that stores packets",
        &[(Nak(10), "10 127"), (Ack(40), ""), (Timeout, "40"), (Timeout, "40"), (Ack(41), "41 127")],
    );
    check(
        "few packets are left",
        &[(Nak(10), "10 127"), (Ack(111), ""), (Timeout, "111"), (Ack(112), "112..=127")],
    );
    check(
        "one more than few",
        &[(Nak(10), "10 127"), (Ack(110), ""), (Timeout, "110"), (Ack(111), "111 127")],
    );
    check("a copy of an older answer", &[(Timeout, "0"), (Ack(0), ""), (Ack(1), "1 127")]);
}

//= rocev2 §7
#[test]
fn a_passed_ack_timeout_uses_a_retry_and_progress_gives_them_back() {
    let mut requester = Requester::new();
    requester.handle(Send(8));
    let start = requester.recovery.timeout.last_progress;
    let timeout = requester.recovery.timeout.ack_timeout;
    // Times in halves of the timeout since the last progress, and whether a retry is left.
    for (halves, left) in [(0, true), (1, true), (2, true), (3, true), (4, true), (5, true), (6, false)] {
        let now = start.after_nanos(timeout * halves / 2);
        assert_eq!(requester.recovery.may_retry(now), left, "{halves}");
    }
    let now = start.after_nanos(timeout * 3);
    requester.recovery.handle_progress(at(1), now);
    assert!(requester.recovery.may_retry(now.after_nanos(timeout)));
}

//= rocev2 §7
//= R-QP-7
#[test]
fn rnr_naks_wait_and_end_with_the_retries() {
    let mut requester = Requester::new();
    requester.handle(Send(8));
    (requester.recovery.rnr_retries, requester.recovery.rnr_limit) = (2, Duration::from_secs(10));
    let timer = Duration::from_millis(1);
    for (number, left) in [(0, true), (1, true), (2, false)] {
        let expected = if number == 0 { Resend::GoBackN } else { Resend::Probe { selective: false } };
        assert_eq!(requester.recovery.resend_after_rnr(), expected);
        let now = requester.now();
        assert_eq!(requester.recovery.handle_rnr_nak(now, timer), left, "{number}");
        // Nothing is a new loss during the wait.
        assert!(!requester.recovery.is_new_loss(at(0), at(8), now));
        assert!(!requester.recovery.end_rnr_wait(now));
        requester.now += 1000;
        assert!(requester.recovery.end_rnr_wait(requester.now()));
    }
    requester.recovery.handle_progress(at(1), requester.now());
    assert!(requester.recovery.handle_rnr_nak(requester.now(), timer), "progress gives the retries back");
}

/// Packets that a peer stores behind a gap have left the path, so that more may be sent. Of other peers that is not known.
//= rocev2 §7
#[test]
fn the_window_is_larger_while_a_peer_that_stores_packets_misses_one() {
    let mut requester = Requester::new();
    requester.recovery.window = Window::new(128, 8192);
    requester.recovery.window.measure(1, 100_000);
    requester.handle(Send(128));
    let events = [
        (None, 128),
        (Some(Nak(10)), 128),
        // It stores packets.
        (Some(Nak(20)), 256),
        (Some(Ack(128)), 128),
        (Some(Send(256)), 128),
        (Some(Nak(140)), 256),
        (Some(Timeout), 128),
    ];
    for (event, expected) in events {
        event.map(|event| requester.handle(event));
        assert_eq!(requester.recovery.extended_window(requester.una), expected, "after {event:?}");
    }
}

//= rocev2 §7
#[test]
fn the_deadline_counts_from_the_first_ack_request_that_is_not_answered() {
    let mut recovery = Recovery::IDLE;
    (recovery.timeout.resend, recovery.timeout.ack_timeout) = (1_000_000, 67_000_000);
    let time = |millis: u64| Instant::from_nanos(millis * 1_000_000);
    let mut request = |una, sequence, first, millis| {
        let end = at(sequence).next();
        recovery.record_ack_request(at(una), at(sequence), end, first, time(millis));
        recovery.timeout.ack_requested.unwrap()
    };
    assert_eq!(request(0, 3, true, 10), (at(4), time(10)));
    assert_eq!(request(0, 5, true, 11), (at(6), time(10)), "an ACK is due already");
    assert_eq!(request(6, 7, true, 12), (at(8), time(12)));
    assert_eq!(request(8, 7, false, 13), (at(8), time(12)), "it is sent again");
    for (una, awaited, deadline) in [(7, true, time(13)), (8, false, time(67))] {
        assert_eq!(
            (recovery.timeout.awaits_ack(at(una)), recovery.timeout.deadline(at(una))),
            (awaited, deadline),
            "{una}"
        );
    }
    assert!(!Recovery::IDLE.timeout.awaits_ack(at(0)));
}

//= rocev2 §7
#[test]
fn a_packet_that_is_sent_again_measures_no_round_trip() {
    let mut recovery = Recovery::IDLE;
    let now = Instant::from_nanos(1);
    recovery.record_ack_request(at(0), at(0), at(1), false, now);
    assert_eq!(recovery.sample.sequence, Sequence::MAX);
    recovery.record_ack_request(at(0), at(1), at(2), true, now);
    recovery.record_ack_request(at(0), at(2), at(3), true, now);
    assert_eq!(recovery.sample.sequence, at(1), "one at a time");
}

#[test]
fn the_first_packet_of_a_burst_measures_the_path() {
    let mut recovery = Recovery::IDLE;
    let time = |micros: u64| Instant::from_nanos(1_000_000 + micros * 1000);
    recovery.record_ack_request(at(0), at(0), at(1), true, time(0));
    recovery.sample_path();
    recovery.handle_progress(at(0), time(50));
    assert!(recovery.window.is_unmeasured(), "it is not acknowledged");
    recovery.handle_progress(at(1), time(100));
    assert_eq!(recovery.window.round_trip(), 100_000);
}

//= rocev2 §7
#[test]
fn what_a_peer_that_stores_packets_does_not_acknowledge_in_time_is_overdue() {
    let mut requester = Requester::new();
    requester.handle(Send(128));
    let round_trip = |requester: &mut Requester| {
        requester.recovery.rtt = Some(Rtt { smoothed: 100_000, variation: 0 });
        requester.now()
    };
    requester.handle(Nak(10));
    let sent = round_trip(&mut requester);
    assert!(
        !requester.recovery.is_overdue(at(10), sent.after_nanos(1_000_000)),
        "it is not known to store any"
    );
    requester.handle(Nak(20));
    let sent = round_trip(&mut requester);
    for (una, nanos, expected) in
        [(20, 124_999, false), (20, 125_000, true), (5, 125_000, false), (21, 125_000, false)]
    {
        assert_eq!(
            requester.recovery.is_overdue(at(una), sent.after_nanos(nanos)),
            expected,
            "{una}, {nanos}"
        );
    }
}

/// Which packet measures the round trip with those that are acknowledged with it, and when.
//= rocev2 §7
#[test]
fn a_sample_behind_a_loss_measures_no_path() {
    for (repaired, high, una, kind) in [
        (5, None, 4, SampleKind::AfterLoss),
        (5, None, 5, SampleKind::Usual),
        (0, Some(10), 9, SampleKind::AfterLoss),
        (0, Some(10), 10, SampleKind::Usual),
        (11, Some(10), 10, SampleKind::AfterLoss),
    ] {
        let mut recovery = Recovery::IDLE;
        let now = Instant::from_nanos(1000);
        if let Some(high) = high {
            recovery.record_go_back(at(0), at(high), Resend::GoBackN, now);
        }
        recovery.repaired = at(repaired);
        recovery.record_ack_request(at(una), at(una), at(una).next(), true, now);
        assert_eq!(recovery.sample.kind, kind, "{repaired}, {high:?}, {una}");
    }
    let mut recovery = Recovery::IDLE;
    recovery.record_ack_request(at(0), at(3), at(4), true, Instant::from_nanos(1000));
    recovery.handle_progress(at(3), Instant::from_nanos(2000));
    assert!(recovery.rtt.is_none(), "those before it are acknowledged");
    recovery.handle_progress(at(4), Instant::from_nanos(5000));
    assert_eq!(recovery.rtt.map(|rtt| rtt.smoothed), Some(4000));
}

/// A requester that misses the answer to 128 packets, and has sent again those from 10 to before 14 of `kind`, or the first ones.
fn resent(kind: Resend, sent: u64) -> Requester {
    let mut requester = Requester::new();
    requester.handle(Send(128));
    requester.una = at(10);
    requester.go_back(kind);
    for number in 10..10 + sent {
        let packet = (at(number), at(number).next());
        requester.next = {
            let (una, now) = (requester.una, requester.now());
            hints::resume_after_resend(&mut requester.recovery, una, packet, now)
        };
    }
    requester
}

const RUN: Resend = Resend::Selective { run_end: at(14), resume: at(127) };

//= rocev2 §7
#[test]
fn the_first_answer_to_a_run_measures_the_round_trip_and_one_behind_it_shows_that_packets_are_stored() {
    let mut requester = resent(RUN, 4);
    let state = |requester: &Requester| {
        let recovery = &requester.recovery;
        (recovery.rtt.map(|rtt| rtt.smoothed), recovery.peer_stores, recovery.selective_failures)
    };
    requester.recovery.selective_failures = 2;
    requester.now += 2 * ROUND_TRIP;
    requester.advance(at(11));
    assert_eq!(state(&requester), (Some(112_500), false, 2), "the first packet of the run");
    requester.now += ROUND_TRIP;
    requester.advance(at(14));
    assert_eq!(state(&requester), (Some(112_500), false, 2), "the whole run");
    requester.advance(at(15));
    assert_eq!(state(&requester), (Some(112_500), true, 0), "a packet behind it");

    // The first copies were late.
    let mut requester = resent(RUN, 4);
    requester.now += ROUND_TRIP - 1;
    requester.advance(at(15));
    requester.now += ROUND_TRIP;
    requester.advance(at(16));
    assert_eq!(state(&requester), (Some(100_000), false, 0));
    let mut requester = resent(Resend::Probe { selective: true }, 1);
    requester.now += ROUND_TRIP;
    requester.advance(at(15));
    assert_eq!(state(&requester), (Some(100_000), false, 0), "a probe");
}

/// Packets that are sent again after a loss of the packet at 126 or 10 of 128, and how many failures are counted then.
//= rocev2 §7
#[test]
fn what_is_sent_again_depends_on_what_the_peer_has_shown() {
    let selective = |una: u64| Resend::Selective { run_end: at(una + 1), resume: at(127) };
    let rows = [
        (false, 0, 10, selective(10), 0),
        (false, 0, 126, Resend::GoBackN, 0),
        (false, 0, 127, Resend::GoBackN, 0),
        (true, 0, 126, selective(126), 0),
        (true, 2, 126, selective(126), 2),
        (true, 0, 127, Resend::GoBackN, 0),
        (true, 3, 126, Resend::GoBackN, 3),
        (true, 3, 10, Resend::GoBackN, 4),
        (true, 18, 10, Resend::GoBackN, 19),
        (true, 19, 10, selective(10), 2),
    ];
    for (stores, failures, una, expected, after) in rows {
        let mut recovery = Requester::new().recovery;
        (recovery.peer_stores, recovery.selective_failures) = (stores, failures);
        let kind = recovery.resend_for_loss(at(una), at(128), at(128));
        assert_eq!((kind, recovery.selective_failures), (expected, after), "{stores}, {failures}, {una}");
    }
}

#[test]
fn a_run_of_16_packets_halves_the_window() {
    let mut requester = Requester::new();
    requester.recovery.window = Window::new(2, 8192);
    requester.recovery.window.measure(1, 100_000);
    requester.recovery.window.measure(128, 100_000);
    requester.handle(Send(1000));
    for (lost, expected) in [(10, 256), (11, 256), (13, 256), (17, 256), (25, 128)] {
        requester.handle(Nak(lost));
        assert_eq!(requester.recovery.window.packets(), expected, "{lost}");
    }
}

/// By the mean number of packets to the next loss.
#[test]
fn many_packets_are_sent_again_at_once_if_losses_are_frequent() {
    for (spacing, stores, behind, expected) in [
        (29, true, 1000, 14),
        (30, true, 1000, 1),
        (20, true, 1000, 10),
        (20, true, 40, 10),
        (20, true, 39, 1),
        (20, false, 1000, 1),
        (1, true, 1000, 1),
    ] {
        let mut recovery = Recovery { spacing: spacing * 8, peer_stores: stores, ..Recovery::IDLE };
        assert_eq!(recovery.expected_run(at(10), at(10 + behind)), expected, "{spacing}, {stores}, {behind}");
    }
}

//= rocev2 §7
#[test]
fn an_acknowledgement_of_a_whole_run_and_no_more_is_remembered() {
    let ends_at_newest = Resend::Selective { run_end: at(12), resume: at(12) };
    // What was sent again, the end of what is acknowledged, when, and whether that is the whole run alone.
    for (kind, sent, una, micros, expected) in [
        (RUN, 4, 14, ROUND_TRIP, true),
        (RUN, 4, 14, ROUND_TRIP - 1, false),
        (RUN, 4, 13, ROUND_TRIP, false),
        (RUN, 4, 15, ROUND_TRIP, false),
        (RUN, 2, 12, ROUND_TRIP, false),
        (RUN, 2, 14, ROUND_TRIP, false),
        (ends_at_newest, 2, 12, ROUND_TRIP, false),
    ] {
        let mut requester = resent(kind, sent);
        requester.now += micros;
        let (high, now) = (requester.high, requester.now());
        assert_eq!(requester.recovery.handle_ack(at(una), high, high, now), AfterAck::Continue);
        let alone = requester.recovery.retransmission.unwrap().alone;
        assert_eq!(alone, expected, "{kind:?}, {sent} sent, {una} after {micros}");
    }
    for (stores, failures, expected) in [
        (true, 2, AfterAck::Resend(Resend::Selective { run_end: at(12), resume: at(127) })),
        (true, 3, AfterAck::Continue),
        (false, 0, AfterAck::Resend(Resend::Selective { run_end: at(12), resume: at(127) })),
    ] {
        let mut requester = resent(Resend::Probe { selective: true }, 1);
        let recovery = &mut requester.recovery;
        (recovery.peer_stores, recovery.selective_failures) = (stores, failures);
        let now = Instant::from_nanos(requester.now * 1000);
        assert_eq!(recovery.handle_ack(at(11), at(128), at(128), now), expected, "{stores}, {failures}");
        assert_eq!(recovery.selective_failures, failures);
    }
}

//= rocev2 §7
#[test]
fn what_is_sent_again_is_known_by_its_kind() {
    let probe = Resend::Probe { selective: true };
    let single = Resend::Probe { selective: false };
    // Whether packets up to the newest are sent again beyond the window, and whether a NAK for 10 and for 11 answers a probe.
    for (kind, resending, answers) in [
        (RUN, true, [false, false]),
        (probe, true, [false, true]),
        (single, false, [false, false]),
        (Resend::GoBackN, false, [false, false]),
    ] {
        let requester = resent(kind, 1);
        let recovery = &requester.recovery;
        assert!(recovery.has_resent());
        assert_eq!(recovery.is_resending(at(127), at(128)), resending, "{kind:?}");
        assert!(!recovery.is_resending(at(128), at(128)), "{kind:?}");
        assert_eq!([10, 11].map(|una| recovery.answers_probe(at(una))), answers, "{kind:?}");
        let ends = [12, 13, 14].map(|number| recovery.ends_run(at(number)));
        assert_eq!(ends, [false, kind == RUN, false], "{kind:?}");
    }
    let recovery = Requester::new().recovery;
    assert!(!recovery.has_resent() && !recovery.ends_run(at(0)) && !recovery.is_resending(at(0), at(128)));
}

//= rocev2 §7
#[test]
fn a_loss_is_not_new_before_the_packet_is_sent_again() {
    let mut requester = resent(RUN, 0);
    requester.now += ROUND_TRIP;
    for (next, expected) in [(10, false), (11, true)] {
        assert_eq!(requester.recovery.is_new_loss(at(10), at(next), requester.now()), expected, "{next}");
    }
}

/// A peer may report each retransmission twice. While the round-trip time is unknown, no wait separates them.
#[test]
fn a_loss_that_is_reported_endlessly_is_repaired_a_few_times_at_once_and_then_once_per_minimum_resend_time() {
    let mut requester = Requester::new();
    requester.recovery.window = Window::IDLE;
    requester.handle(Send(4));
    let mut resent =
        |reports: usize| (0..reports).filter(|_| !requester.handle(NakAgain(1)).is_empty()).count();
    assert_eq!(resent(100), usize::from(HASTY) + 1);
    // Each report comes 1 us after the one before.
    assert_eq!(resent(4000), 4);
}

/// A hint names a packet that was sent, behind the oldest one, and before which the peer can store others.
//= rocev2 §7
#[test]
fn a_gap_hint_for_a_packet_that_the_peer_cannot_name_is_ignored() {
    for (missing, next) in [(9, None), (10, None), (11, Some(at(11))), (49, Some(at(49))), (50, None)] {
        let mut requester = resent(RUN, 4);
        requester.recovery.peer_stores = true;
        let (una, next_sent, high, now) = (requester.una, requester.next, requester.high, requester.now());
        let sent = hints::Sent { una, next: next_sent, storable: at(50), high };
        let continues = hints::handle_hint(&mut requester.recovery, at(missing), sent, now);
        assert_eq!(continues, next, "{missing}");
    }
}
