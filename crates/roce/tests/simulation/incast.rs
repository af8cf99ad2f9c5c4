// SPDX-License-Identifier: MIT OR Apache-2.0

//! DCQCN through a switch: several senders into one port, and pacing with timers of coarse ticks.
//!
//! High-resolution timers of Windows expire each 0.5 to 1 ms, ordinary ones each 15.625 ms.

use std::time::Duration;

use roce::{CompletionStatus, CongestionMode};
use roce_testkit::{Incast, Marking, Options, Switch, TwoHosts};
use roce_wire::PathMtu;

const RATE: u64 = 10_000_000_000;

const ORDINARY_TICK: Duration = Duration::from_micros(15_625);

/// That of the driver.
const MIN_RESEND: Duration = Duration::from_micros(15_600);

/// Ticks of timers; `None` for exact ones.
const TICKS: [Option<Duration>; 4] =
    [None, Some(Duration::from_micros(500)), Some(Duration::from_millis(1)), Some(ORDINARY_TICK)];

/// Returns options with which all hosts react, at 10 Gb/s, through a switch that marks queues from 50 KB on.
fn options(tick: Option<Duration>) -> Options {
    let config: fn(&mut roce::Config) = |config| {
        config.congestion.mode = CongestionMode::React;
        config.congestion.reaction.line_rate = RATE;
        config.timing.min_resend = MIN_RESEND;
    };
    let marking = Marking { min: 50_000, max: 200_000, most: 10 };
    Options {
        mtu: PathMtu::Bytes4096,
        latency: Duration::from_micros(10),
        rate: Some(RATE),
        switch: Some(Switch { rate: RATE, queue: 4 << 20, marking: Some(marking) }),
        timer_tick: tick,
        config,
        ..Options::default()
    }
}

/// Returns Jain's fairness index: 1 if all are equal, 1/n if one has everything.
pub(crate) fn jain(shares: &[f64]) -> f64 {
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    shares.iter().sum::<f64>().powi(2) / (shares.len() as f64 * squares)
}

/// Effect of several senders on a port of the switch, once they have adapted to each other.
struct Figures {
    /// Share of the port's rate that is used; the mean, and the least of a period.
    used: f64,
    least: f64,
    /// Jain's index over all periods, and the least of one.
    fairness: f64,
    least_fairness: f64,
    dropped: u64,
    /// Most bytes in the port's queue.
    queue: usize,
}

fn measure(senders: u8, tick: Option<Duration>) -> Figures {
    let ordinary = tick == Some(ORDINARY_TICK);
    let (warm_up, period) = if ordinary { (300, 100) } else { (50, 20) };
    let (warm_up, period) = (Duration::from_millis(warm_up), Duration::from_millis(period));
    let mut incast = Incast::connected(senders, options(tick));
    let periods = incast.write_for(64 << 10, 4, warm_up, period, 5);
    let port = incast.take_port_stats();
    let periods: Vec<Vec<_>> =
        periods.iter().map(|bytes| bytes.iter().map(|&bytes| bytes as f64).collect()).collect();
    let full = RATE as f64 / 8.0 * period.as_secs_f64();
    let used: Vec<f64> = periods.iter().map(|bytes| bytes.iter().sum::<f64>() / full).collect();
    let least = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::INFINITY, f64::min);
    let sums: Vec<f64> =
        (0..usize::from(senders)).map(|sender| periods.iter().map(|bytes| bytes[sender]).sum()).collect();
    let figures = Figures {
        used: used.iter().sum::<f64>() / used.len() as f64,
        least: least(&mut used.iter().copied()),
        fairness: jain(&sums),
        least_fairness: least(&mut periods.iter().map(|bytes| jain(bytes))),
        dropped: port.dropped,
        queue: port.longest,
    };
    println!(
        "{senders:2} senders, tick {tick:?}: {:.3} used (least {:.3}), fairness {:.3} (least {:.3}), {} dropped, queue {}",
        figures.used, figures.least, figures.fairness, figures.least_fairness, figures.dropped, figures.queue,
    );
    figures
}

/// Checks 2, 8 and 32 senders with these ticks. `used` is the least share of the port's rate in a period, `fair` the least
/// index over all periods.
fn check(ticks: &[Option<Duration>], used: f64, fair: f64) {
    for &tick in ticks {
        for senders in [2, 8, 32] {
            let figures = measure(senders, tick);
            let what = format!("{senders} senders, tick {tick:?}");
            assert!(figures.least >= used, "{what}: {:.3} used in a period", figures.least);
            assert!(figures.used <= 1.0, "{what}: {:.3} sent", figures.used);
            assert!(figures.fairness >= fair, "{what}: fairness {:.3}", figures.fairness);
            assert!(
                figures.least_fairness >= fair - 0.2,
                "{what}: {:.3} in a period",
                figures.least_fairness
            );
            assert_eq!(figures.dropped, 0, "{what}");
            assert!(figures.queue < 3 << 20, "{what}: {} bytes queued", figures.queue);
        }
    }
}

//= rocev2 §14
#[test]
#[cfg_attr(debug_assertions, ignore = "moves a gigabyte: --profile tool")]
fn senders_into_one_port_are_fair_and_stable_with_exact_timers() {
    check(&TICKS[..1], 0.7, 0.98);
}

//= rocev2 §14
#[test]
#[cfg_attr(debug_assertions, ignore = "moves a gigabyte: --profile tool")]
fn senders_into_one_port_are_fair_and_stable_with_high_resolution_timers() {
    check(&TICKS[1..3], 0.7, 0.95);
}

/// A tick is 300 rounds of recovery long: rates adapt slowly, but no frame is lost.
//= rocev2 §14
#[test]
#[cfg_attr(debug_assertions, ignore = "moves a gigabyte: --profile tool")]
fn senders_into_one_port_are_stable_with_ordinary_timers() {
    check(&TICKS[3..], 0.3, 0.8);
}

/// The rate of [`at_a_fixed_rate`].
const FIXED: u64 = 1_000_000_000;

/// Returns options with which each frame is marked and rates stay at their minimum, [`FIXED`].
fn at_a_fixed_rate(tick: Option<Duration>) -> Options {
    let config: fn(&mut roce::Config) = |config| {
        config.congestion.mode = CongestionMode::React;
        config.congestion.reaction.line_rate = RATE;
        config.timing.min_resend = MIN_RESEND;
        config.congestion.reaction.min_rate = FIXED;
        config.congestion.reaction.increase_interval = Duration::from_secs(100);
        config.congestion.reaction.increase_bytes = u64::MAX;
    };
    Options { marks: 1000, switch: None, config, ..options(tick) }
}

/// Returns the share of [`FIXED`] at which side 0 writes, or side 1 is read from.
fn share_of_a_fixed_rate(tick: Option<Duration>, read: bool) -> f64 {
    let mut hosts = TwoHosts::connected(at_a_fixed_rate(tick));
    let len = 256 << 10;
    let [alice, bob] = &hosts.sides;
    let (near, far) = (alice.shared(len), bob.shared(len));
    let from = usize::from(read);
    let post = |hosts: &TwoHosts| {
        if read {
            hosts.sides[0].read(0, &[near.all()], &far, 0);
        } else {
            hosts.sides[0].write(0, &[near.all()], &far, 0);
        }
    };
    for _ in 0..4 {
        post(&hosts);
    }
    let mut start = (hosts.now, 0);
    let end = hosts.now + Duration::from_millis(800);
    while hosts.run_within(end.duration_since(hosts.now), |hosts| !hosts.sides[0].cq.is_empty()) {
        for (_, status) in hosts.sides[0].outcomes() {
            assert_eq!(status, CompletionStatus::Success);
            post(&hosts);
        }
        if start.1 == 0 && end.duration_since(hosts.now) < Duration::from_millis(700) {
            start = (hosts.now, hosts.sides[from].stat("tx_bytes"));
        }
    }
    // Nothing is lost. Responses that wait for a late timer may be requested again by tail probes.
    let sent_again = hosts.sides[0].stat("retransmissions");
    assert!(sent_again <= 4, "{sent_again} sent again");
    let bytes = hosts.sides[from].stat("tx_bytes") - start.1;
    let full = FIXED as f64 / 8.0 * end.duration_since(start.0).as_secs_f64();
    bytes as f64 / full
}

//= rocev2 §14
#[test]
fn a_late_timer_does_not_lower_the_rate() {
    for read in [false, true] {
        for tick in TICKS {
            let share = share_of_a_fixed_rate(tick, read);
            assert!((0.9..=1.01).contains(&share), "tick {tick:?}, read {read}: {share:.3}");
        }
    }
}

//= rocev2 §14
#[test]
fn a_pause_of_the_consumer_gives_no_credit() {
    let mut hosts = TwoHosts::connected(at_a_fixed_rate(None));
    let len = 256 << 10;
    let [alice, bob] = &hosts.sides;
    let (source, target) = (alice.source(&vec![0; len]), bob.shared(len));
    for round in 0..8 {
        let start = hosts.now;
        hosts.sides[0].write(round, &[source.all()], &target, 0);
        hosts.run_until("the write", |hosts| !hosts.sides[0].cq.is_empty());
        assert_eq!(hosts.sides[0].outcomes(), [(round, CompletionStatus::Success)]);
        let took = hosts.now.duration_since(start).as_secs_f64();
        let due = len as f64 * 8.0 / FIXED as f64;
        // The rate falls in the first rounds.
        assert!(round < 4 || took > 0.95 * due, "round {round}: {took} s, {due} at the rate");
        hosts.run_for(Duration::from_millis(12));
    }
}
