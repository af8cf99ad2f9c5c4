// SPDX-License-Identifier: MIT OR Apache-2.0

//! Goodput of a 10 Gb/s link that loses frames, in virtual time: the same on every machine.
//!
//! `INSTA_UPDATE=always cargo test --profile tool -p roce --test simulation goodput` rewrites the tables.

use std::fmt::Write as _;
use std::time::Duration;

use roce::{Config, ReadLimits};
use roce_testkit::Options;
use roce_testkit::goodput::{Cell, Figures, Kind, faults_table, measure, measure_with, table};
use roce_wire::PathMtu;

/// Retransmission timeout before the first round-trip sample.
const TIMEOUT: Duration = Duration::from_millis(16);

/// Measures the table. Each row has its figures and those of the lossless link.
fn measured() -> Vec<(Cell, Figures, Figures)> {
    let mut lossless = None;
    table()
        .map(|cell| {
            let figures = measure(&cell);
            if cell.loss == 0 {
                lossless = Some(figures);
            }
            (cell, figures, lossless.unwrap())
        })
        .collect()
}

//= rocev2 §7
#[test]
#[cfg_attr(debug_assertions, ignore = "moves a gigabyte: --profile tool")]
fn goodput_table_with_losses() {
    let table = measured();
    let mut text =
        String::from("request       round trip  loss   goodput         sent  longest pause  timeouts\n");
    for (cell, figures, lossless) in &table {
        let Cell { kind, message, loss, round_trip, .. } = *cell;
        let share = 100.0 * figures.goodput() / lossless.goodput();
        writeln!(
            text,
            "{:5} {:4} KiB {:>7} us {:>3}.{} % {:>5.0} MB/s {share:3.0} % x {:4.2} {:>11} us {:>9}",
            kind.to_string(),
            message >> 10,
            round_trip.as_micros(),
            loss / 10,
            loss % 10,
            figures.goodput() / 1e6,
            figures.overhead(),
            figures.stall.as_micros(),
            figures.timeouts,
        )
        .unwrap();
        if loss <= 1 {
            assert!(share >= 70.0, "{cell:?}: {share:.0} % of the lossless goodput");
        }
        // With long messages and 1 % loss, at most half of the payload is sent in vain.
        if loss <= 10 && kind != Kind::Send {
            assert!(figures.overhead() < 1.5, "{cell:?}: {:.2}", figures.overhead());
        }
        // Short messages: packets of later ones are stored, too.
        let most = if loss <= 10 { 1.3 } else { 2.0 };
        if kind == Kind::Send {
            assert!(figures.overhead() <= most, "{cell:?}: {:.2}", figures.overhead());
        }
        // With messages of a few packets, a pause shows in the completions.
        if kind == Kind::Send {
            assert!(figures.stall <= 2 * TIMEOUT, "{cell:?}: no completion for {:?}", figures.stall);
        }
    }
    insta::assert_snapshot!(text);
}

/// Gaps are requested apart as far as the peer has granted as many READs: with many, hardly anything is sent in vain.
//= rocev2 §7
#[test]
#[cfg_attr(debug_assertions, ignore = "moves 32 MiB: --profile tool")]
fn many_granted_reads_keep_the_goodput_at_many_losses() {
    const MANY: ReadLimits = ReadLimits { inbound: 128, outbound: 128 };
    let config: fn(&mut Config) = |config| (config.max_mtu, config.max_reads) = (PathMtu::Bytes1024, MANY);
    let long = |cell: &Cell| cell.round_trip == Duration::from_millis(1);
    let cell = table().find(|cell| cell.kind == Kind::Read && cell.loss == 50 && long(cell)).unwrap();
    let figures = measure_with(&cell, &Options { reads: MANY, config, ..Options::default() });
    let (goodput, overhead) = (figures.goodput() / 1e6, figures.overhead());
    assert!(goodput >= 400.0 && overhead <= 1.18, "{goodput:.1} MB/s, {overhead:.3}");
}

/// Losses in bursts, reordering, and small messages.
//= rocev2 §7
#[test]
#[cfg_attr(debug_assertions, ignore = "moves a gigabyte: --profile tool")]
fn goodput_table_with_bursts_and_reordering() {
    let mut text = String::from(
        "request       fault                    goodput         sent  longest pause  timeouts\n",
    );
    let mut without = None;
    for cell in faults_table() {
        let figures = measure(&cell);
        let Cell { kind, message, loss, bursts, reordering, .. } = cell;
        let fault = match (loss, bursts, reordering) {
            (0, None, 0) => {
                without = Some(figures);
                "none".into()
            }
            (0, None, late) => format!("{} % late", late / 10),
            (0, Some(bursts), _) => {
                let share = 100.0 * f64::from(bursts.begin) / f64::from(bursts.begin + bursts.end);
                format!("{share:.0} % lost, bursts of {}", 1_000_000 / bursts.end)
            }
            (loss, ..) => format!("{} % lost", loss / 10),
        };
        let share = 100.0 * figures.goodput() / without.unwrap().goodput();
        writeln!(
            text,
            "{:5} {:7} {fault:23} {:>5.0} MB/s {share:3.0} % x {:4.2} {:>11} us {:>9}",
            kind.to_string(),
            message,
            figures.goodput() / 1e6,
            figures.overhead(),
            figures.stall.as_micros(),
            figures.timeouts,
        )
        .unwrap();
        assert!(figures.stall <= 20 * TIMEOUT, "{cell:?}: no completion for {:?}", figures.stall);
    }
    insta::assert_snapshot!(text);
}

/// The same limits with fewer bytes, for debug builds.
//= rocev2 §7
#[test]
fn one_loss_in_a_thousand_keeps_70_percent_of_the_goodput() {
    for kind in [Kind::Write, Kind::Read, Kind::Send] {
        let cell = |loss| Cell {
            kind,
            message: 64 << 10,
            count: 64,
            outstanding: 16,
            loss,
            bursts: None,
            reordering: 0,
            round_trip: Duration::from_micros(100),
            seed: 3,
        };
        let (lossless, lossy) = (measure(&cell(0)), measure(&cell(1)));
        assert!(lossy.sent > lossy.delivered, "{kind}: no frame was lost");
        let share = lossy.goodput() / lossless.goodput();
        assert!(share >= 0.7, "{kind}: {share:.2}");
        assert!(lossy.stall <= 2 * TIMEOUT, "{kind}: {:?}", lossy.stall);
    }
}

/// One connection fills a path that holds ten times the window that it begins with.
#[test]
fn a_long_path_is_filled() {
    let cell = |round_trip| Cell {
        kind: Kind::Write,
        message: 1 << 20,
        count: 32,
        outstanding: 8,
        loss: 0,
        bursts: None,
        reordering: 0,
        round_trip: Duration::from_micros(round_trip),
        seed: 3,
    };
    for round_trip in [200, 1000] {
        let share = measure(&cell(round_trip)).goodput() / measure(&cell(20)).goodput();
        // The first round trips are those of a short window.
        assert!(share >= 0.8, "{round_trip} us: {share:.2}");
    }
}

/// A link that only reorders keeps half of the goodput, and little is sent again.
#[test]
fn reordering_is_not_taken_for_loss() {
    for (kind, message, outstanding, most) in
        [(Kind::Write, 1 << 20, 4, 1.05), (Kind::Read, 1 << 20, 4, 1.6), (Kind::Send, 8 << 10, 64, 1.05)]
    {
        let cell = |reordering| Cell {
            kind,
            message,
            count: (8 << 20) / message as u64,
            outstanding,
            loss: 0,
            bursts: None,
            reordering,
            round_trip: Duration::from_micros(100),
            seed: 3,
        };
        let (calm, wild) = (measure(&cell(0)), measure(&cell(10)));
        let share = wild.goodput() / calm.goodput();
        assert!(share >= 0.5, "{kind}: {share:.2}");
        assert_eq!(wild.timeouts, 0, "{kind}");
        assert!(wild.overhead() <= most, "{kind}: {:.2}", wild.overhead());
    }
}
