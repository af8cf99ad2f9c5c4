// SPDX-License-Identifier: MIT OR Apache-2.0

//! RNR NAKs that are late or duplicated, and what a wait for the peer's receive leaves of retries and timers.

use std::time::Duration;

use roce::{CompletionStatus, Config, QpState};
use roce_wire::{Psn, Syndrome};

use super::forger::{Forger, Options, TwoHosts};

/// RNR NAK with a timer value of 10 us.
const SHORT: Syndrome = Syndrome(0x21);
/// RNR NAK with a timer value of 655 ms, the longest.
const LONG: Syndrome = Syndrome(0x20);

/// Bob sends `count` messages of one packet. Returns the PSN of the first.
fn send(forger: &mut Forger, count: usize) -> Psn {
    let source = forger.hosts.sides[1].source(b"data");
    for context in 0..count {
        forger.hosts.sides[1].send(50 + context as u64, &[source.all()]);
    }
    assert_eq!(forger.sent().len(), count);
    forger.bobs
}

fn give(forger: &mut Forger, psn: Psn, syndrome: Syndrome) {
    let frame = forger.answer(psn, syndrome);
    forger.give(&frame);
}

//= rocev2 §7
#[test]
fn an_rnr_nak_of_an_acknowledged_packet_is_ignored() {
    let mut forger = Forger::new(Options::default());
    let first = send(&mut forger, 3);
    give(&mut forger, first.next(), Syndrome::ACK);
    give(&mut forger, first, LONG);
    assert_eq!(forger.sent(), Vec::<Vec<u8>>::new(), "nothing is sent again");
    let source = forger.hosts.sides[1].source(b"more");
    forger.hosts.sides[1].send(60, &[source.all()]);
    assert_eq!(forger.sent().len(), 1, "and nothing waits");
}

/// The time limit of RNR NAKs counts from the first one without progress since.
//= R-QP-7
#[test]
fn waits_for_receives_far_apart_do_not_add_up() {
    let mut hosts = TwoHosts::connected(Options::default());
    let [alice, bob] = &hosts.sides;
    let (source, sink) = (alice.source(b"data"), bob.sink(4));
    for round in 1..=3 {
        hosts.sides[0].send(round, &[source.all()]);
        hosts.run_for(Duration::from_millis(5));
        assert!(hosts.sides[1].stat("tx_nak_rnr") >= round);
        hosts.sides[1].recv(round, &[sink.all()]);
        hosts.run_until("the send", |hosts| !hosts.sides[0].cq.is_empty());
        assert_eq!(hosts.sides[0].outcomes(), [(round, CompletionStatus::Success)]);
        // Longer than the limit.
        hosts.run_for(Duration::from_secs(31));
    }
}

/// The wait is the peer's request, not its silence: the retransmission timer starts at its end.
//= rocev2 §7
#[test]
fn the_end_of_an_rnr_wait_starts_the_retransmission_timer() {
    let mut forger = Forger::new(Options::default());
    let first = send(&mut forger, 1);
    give(&mut forger, first, LONG);
    let before = forger.stat("timeouts");
    // Less than the shortest time before a tail probe after the wait.
    forger.hosts.run_for(Duration::from_micros(655_360 + 400));
    assert_eq!(forger.sent().len(), 1, "sent again");
    assert_eq!(forger.stat("timeouts"), before);
}

/// Returns the time after which bob gives up a request that is not answered.
fn silence(retries: u8) -> Duration {
    let config: fn(&mut Config) = match retries {
        0 => |config| config.timing.retries = 0,
        1 => |config| config.timing.retries = 1,
        _ => |config| config.timing.retries = 5,
    };
    let mut forger = Forger::new(Options { config, ..Options::default() });
    send(&mut forger, 1);
    let begin = forger.hosts.now;
    forger.hosts.run_until("the end", |hosts| hosts.sides[1].qp.state() == QpState::Error);
    assert_eq!(forger.hosts.sides[1].outcomes(), [(50, CompletionStatus::RetryExceeded)]);
    forger.hosts.now.duration_since(begin)
}

/// The ACK timeout that a pair agrees on.
const ACK_TIMEOUT: Duration = Duration::from_micros(268_435);

//= rocev2 §7
#[test]
fn each_retry_lasts_for_one_ack_timeout() {
    for (retries, took) in [(0, silence(0)), (1, silence(1)), (5, silence(5))] {
        let least = ACK_TIMEOUT * (retries + 1);
        assert!(took >= least && took < least + ACK_TIMEOUT, "{retries} retries: {took:?}");
    }
}

/// Timers that are served late must not use up what silence before the RNR NAK has left.
//= rocev2 §7
#[test]
fn an_rnr_nak_restores_the_retries() {
    let config: fn(&mut Config) = |config| config.timing.retries = 5;
    let mut forger = Forger::new(Options { config, ..Options::default() });
    let first = send(&mut forger, 1);
    forger.hosts.run_for(ACK_TIMEOUT * 4);
    assert_eq!(forger.hosts.sides[1].qp.state(), QpState::Rts);
    give(&mut forger, first, SHORT);
    forger.hosts.run_for(Duration::from_micros(20));
    for late in [6, 1, 1] {
        let now = forger.hosts.now + ACK_TIMEOUT * late;
        forger.hosts.now = now;
        forger.hosts.sides[1].engine.first_shard().handle_timeout(now);
        forger.sent();
    }
    assert_eq!(forger.hosts.sides[1].qp.state(), QpState::Rts);
}

/// One RNR NAK that arrives twice is one: during the wait nothing has been sent that a second could answer.
//= rocev2 §7
#[test]
fn a_duplicated_rnr_nak_uses_one_retry() {
    let config: fn(&mut Config) = |config| config.timing.rnr_retries = 3;
    let mut forger = Forger::new(Options { config, ..Options::default() });
    let first = send(&mut forger, 1);
    for retry in 0..3 {
        for _ in 0..4 {
            give(&mut forger, first, SHORT);
        }
        assert_eq!(forger.hosts.sides[1].qp.state(), QpState::Rts, "retry {retry}");
        forger.hosts.run_for(Duration::from_micros(200));
        assert_eq!(forger.sent().len(), 1, "retry {retry}");
    }
    give(&mut forger, first, SHORT);
    assert_eq!(forger.hosts.sides[1].qp.state(), QpState::Error);
    assert_eq!(forger.hosts.sides[1].outcomes(), [(50, CompletionStatus::RnrRetryExceeded)]);
}
