// SPDX-License-Identifier: MIT OR Apache-2.0

//! Several hosts that send through one port of a switch with few buffers, without PFC and without marks, with default settings: nothing
//! limits a sender there but its window, and some senders get nothing. They write, or the receiver reads from all of them.
//!
//! `INSTA_UPDATE=always cargo test --profile tool -p roce --test simulation shallow` rewrites the tables.

use std::fmt::Write as _;
use std::time::Duration;

use roce_testkit::{Incast, Options, Switch};
use roce_wire::PathMtu;

use crate::incast::jain;

const RATE: u64 = 10_000_000_000;

/// How long the senders have to adapt to each other, and how long they are measured.
const WARM_UP: Duration = Duration::from_millis(50);
const PERIOD: Duration = Duration::from_millis(50);

const MESSAGE: usize = 64 << 10;

/// Senders through one port.
#[derive(Clone, Copy)]
struct Case {
    senders: u8,
    tcp: u8,
    /// The receiver reads; otherwise the senders write.
    reads: bool,
    /// Messages that the memory of a reader has room for, of four at a time.
    room: usize,
    queue: usize,
    mtu: PathMtu,
    /// Of the nearest sender.
    round_trip: Duration,
    farther: fn(usize) -> Duration,
    tick: Option<Duration>,
    warm_up: Duration,
    period: Duration,
}

const NEAR: Case = Case {
    senders: 8,
    tcp: 0,
    reads: false,
    room: 4,
    queue: 128 << 10,
    mtu: PathMtu::Bytes1024,
    round_trip: Duration::from_micros(20),
    farther: |_| Duration::ZERO,
    tick: None,
    warm_up: WARM_UP,
    period: PERIOD,
};

struct Figures {
    /// Bytes of completed messages, and of frames of TCP, by the rate of the port.
    used: f64,
    fairness: f64,
    /// Share of TCP, by an equal share for each flow.
    tcp: f64,
    worst: Duration,
    dropped: f64,
}

fn measure(case: &Case) -> Figures {
    let options = Options {
        mtu: case.mtu,
        latency: case.round_trip / 2,
        farther: case.farther,
        rate: Some(RATE),
        switch: Some(Switch { rate: RATE, queue: case.queue, marking: None }),
        timer_tick: case.tick,
        config: |config| config.timing.min_resend = Duration::from_micros(15_600),
        ..Options::default()
    };
    let mut incast = Incast::connected(case.senders, options);
    for _ in 0..case.tcp {
        incast.begin_tcp();
    }
    if case.reads {
        incast.read_for(MESSAGE, 4, case.room, case.warm_up);
    } else {
        incast.write_for(MESSAGE, 4, case.warm_up, case.period, 0);
    }
    incast.take_done();
    let before = incast.tcp_delivered();
    incast.take_port_stats();
    incast.go_on(case.period);
    let port = incast.take_port_stats();
    let done = incast.take_done();
    let bytes: Vec<f64> = done.iter().map(|(bytes, _)| *bytes as f64).collect();
    let tcp: u64 = incast.tcp_delivered().iter().zip(&before).map(|(after, before)| after - before).sum();
    let full = RATE as f64 / 8.0 * case.period.as_secs_f64();
    let flows = f64::from(case.senders) + f64::from(case.tcp);
    // Headers and the gap between frames.
    let payload = case.mtu.bytes() as f64 / (case.mtu.bytes() as f64 + 86.0);
    Figures {
        used: (bytes.iter().sum::<f64>() / payload + tcp as f64 * 1538.0 / 1514.0) / full,
        fairness: jain(&bytes),
        tcp: tcp as f64 / full / (f64::from(case.tcp) / flows),
        worst: done.iter().map(|(_, longest)| *longest).max().unwrap(),
        dropped: port.dropped as f64 / (port.frames + port.dropped) as f64,
    }
}

/// Distances of every second and every third sender.
fn mixed(host: usize) -> Duration {
    Duration::from_micros(match host {
        0 => 0,
        host if host % 3 == 0 => 4990,
        host if host % 2 == 0 => 490,
        _ => 0,
    })
}

#[test]
#[cfg_attr(debug_assertions, ignore = "moves a gigabyte: --profile tool")]
fn senders_through_a_shallow_port() {
    let mut cases = Vec::new();
    for queue in [64, 128, 256] {
        for senders in [2, 8, 64] {
            cases.push(("", Case { senders, queue: queue << 10, ..NEAR }));
        }
    }
    for senders in [2, 8, 64] {
        cases.push(("path MTU 4096", Case { senders, mtu: PathMtu::Bytes4096, ..NEAR }));
    }
    for senders in [2, 8, 64] {
        cases.push(("READ", Case { senders, reads: true, ..NEAR }));
    }
    cases.push(("READ, path MTU 4096", Case { reads: true, mtu: PathMtu::Bytes4096, ..NEAR }));
    cases.push(("20 us to 10 ms", Case { farther: mixed, ..NEAR }));
    cases.push(("beside 2 of TCP", Case { tcp: 2, ..NEAR }));
    cases.push(("timers of 15.6 ms", Case { tick: Some(Duration::from_micros(15_600)), ..NEAR }));
    let mut text = String::from("port     senders    used  Jain  dropped  longest message\n");
    for (what, case) in cases {
        let figures = measure(&case);
        let tcp =
            if case.tcp > 0 { format!(", TCP has {:.2} of its share", figures.tcp) } else { String::new() };
        let line = format!(
            "{:>3} KiB {:>8} {:>5.1} % {:>5.3} {:>6.1} % {:>9} us {what}{tcp}",
            case.queue >> 10,
            case.senders,
            100.0 * figures.used,
            figures.fairness,
            100.0 * figures.dropped,
            figures.worst.as_micros(),
        );
        writeln!(text, "{}", line.trim_end()).unwrap();
    }
    insta::assert_snapshot!(text);
}

/// Which packets meet in the port depends on nanoseconds, and a row of the table says little about others. So the aims are those of
/// means over round trips that differ by less than the time of a packet.
#[test]
#[cfg_attr(debug_assertions, ignore = "moves a gigabyte: --profile tool")]
fn senders_have_nearly_equal_shares_on_average() {
    let mut text = String::from("path MTU  senders    used  Jain (mean, least) of five round trips\n");
    for (mtu, senders) in [(PathMtu::Bytes1024, 8), (PathMtu::Bytes1024, 64), (PathMtu::Bytes4096, 8)] {
        let of = |nanos| measure(&Case { senders, mtu, round_trip: Duration::from_nanos(nanos), ..NEAR });
        let all: Vec<_> = (0..5).map(|number| of(20_000 + 150 * number)).collect();
        let used = all.iter().map(|figures| figures.used).sum::<f64>() / all.len() as f64;
        let fairness = all.iter().map(|figures| figures.fairness).sum::<f64>() / all.len() as f64;
        let least = all.iter().map(|figures| figures.fairness).fold(1.0, f64::min);
        let (mtu, used) = (mtu.bytes(), 100.0 * used);
        writeln!(text, "{mtu:>8} {senders:>8} {used:>5.1} % {fairness:>5.3} {least:>5.3}").unwrap();
    }
    insta::assert_snapshot!(text);
}

/// READs into the same memory complete one after the other: after a loss, the responses to later ones cannot be kept, and do not fill the
/// port.
//= R-CQ-57
#[test]
#[cfg_attr(debug_assertions, ignore = "moves a hundred megabytes: --profile tool")]
fn reads_into_the_same_memory_make_progress_through_a_full_port() {
    // Two at a time are less than the window, so that a reader that fills the port has no loss for longer than here.
    for (room, fair) in [(1, 0.98), (2, 0.98)] {
        let figures = measure(&Case { senders: 2, reads: true, room, ..NEAR });
        let Figures { used, fairness, worst, .. } = figures;
        assert!(used > 0.75 && fairness > fair, "room for {room}: {used:.3} used, fairness {fairness:.3}");
        assert!(worst < Duration::from_millis(10), "room for {room}: {worst:?}");
    }
}
