// SPDX-License-Identifier: MIT OR Apache-2.0

//! Waits after RNR NAKs with the timers of Windows, which expire at ticks.

use std::time::Duration;

use roce::CompletionStatus;

use crate::two_hosts::{Options, TwoHosts};

/// High-resolution timers, and the two resolutions of ordinary ones.
const TICKS: [Option<Duration>; 4] = [
    None,
    Some(Duration::from_micros(500)),
    Some(Duration::from_millis(1)),
    Some(Duration::from_micros(15_625)),
];

const RNR_TIMER: Duration = Duration::from_micros(640);
/// Of the engine's timers.
const RESOLUTION: Duration = Duration::from_nanos(16_384);
const ROUND_TRIP: Duration = Duration::from_micros(100);

fn hosts(timer_tick: Option<Duration>) -> TwoHosts {
    let config: fn(&mut roce::Config) = |config| config.timing.rnr_timer = RNR_TIMER;
    TwoHosts::connected(Options { timer_tick, config, ..Options::default() })
}

/// Side 0 asks again at the first tick after each wait, and not before its end.
//= rocev2 §7
#[test]
fn an_rnr_wait_ends_at_the_first_tick_after_the_timer_and_is_no_timeout() {
    const TIME: Duration = Duration::from_secs(2);
    for tick in TICKS {
        let mut hosts = hosts(tick);
        let source = hosts.sides[0].source(b"data");
        hosts.sides[0].send(1, &[source.all()]);
        hosts.run_for(TIME);
        let waits = hosts.sides[1].stat("tx_nak_rnr");
        let shortest = RNR_TIMER + ROUND_TRIP;
        let longest = shortest + RESOLUTION + tick.unwrap_or_default();
        let [least, most] = [longest, shortest].map(|wait| (TIME.as_nanos() / wait.as_nanos()) as u64);
        let most = most + 1;
        assert!((least..=most).contains(&waits), "{tick:?}: {waits} of {least} to {most}");
        assert_eq!(hosts.sides[0].stat("timeouts"), 0, "{tick:?}");
    }
}

//= rocev2 §7
#[test]
fn a_receive_that_is_posted_late_gets_its_send_within_a_wait_and_a_tick() {
    for tick in TICKS {
        let mut hosts = hosts(tick);
        let (source, sink) = (hosts.sides[0].source(b"data"), hosts.sides[1].sink(4));
        for round in 0..20 {
            hosts.sides[0].send(round, &[source.all()]);
            hosts.run_for(Duration::from_millis(20) + Duration::from_micros(777 * round));
            hosts.sides[1].recv(round, &[sink.all()]);
            let posted = hosts.now;
            hosts.run_until("the send", |hosts| !hosts.sides[0].cq.is_empty());
            assert_eq!(hosts.sides[0].outcomes(), [(round, CompletionStatus::Success)]);
            let took = hosts.now.duration_since(posted);
            let limit = RNR_TIMER + RESOLUTION + 2 * ROUND_TRIP + tick.unwrap_or_default();
            assert!(took <= limit, "{tick:?}, round {round}: {took:?} of {limit:?}");
        }
        assert_eq!(hosts.sides[0].stat("timeouts"), 0, "{tick:?}");
    }
}

/// The limit is one of time, so that ticks longer than the RNR timer do not extend it.
//= R-QP-7
#[test]
fn a_send_without_receive_fails_after_30_seconds_and_a_tick() {
    for tick in TICKS {
        let mut hosts = hosts(tick);
        let source = hosts.sides[0].source(b"data");
        let start = hosts.now;
        hosts.sides[0].send(1, &[source.all()]);
        hosts.run_until("the end", |hosts| !hosts.sides[0].cq.is_empty());
        assert_eq!(hosts.sides[0].outcomes(), [(1, CompletionStatus::RnrRetryExceeded)]);
        let took = hosts.now.duration_since(start);
        let limit = Duration::from_secs(30);
        let latest = limit + RNR_TIMER + RESOLUTION + 2 * ROUND_TRIP + tick.unwrap_or_default();
        assert!(took >= limit && took <= latest, "{tick:?}: {took:?}");
    }
}
