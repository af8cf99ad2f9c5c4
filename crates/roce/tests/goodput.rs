// SPDX-License-Identifier: MIT OR Apache-2.0

//! What a line of 10 Gb/s carries when it loses frames, in virtual time: the same on every machine.
//!
//! `INSTA_UPDATE=always cargo test --profile tool -p roce --test goodput` writes the table anew.

use std::fmt::Write as _;
use std::time::Duration;

use roce_testkit::goodput::{Cell, Figures, Kind, measure, table};

/// What a requester waits before it asks again, as long as it knows nothing of round trips.
const TIMEOUT: Duration = Duration::from_millis(16);

/// The table, each cell with its figures and those of the line without loss.
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
fn losses_cost_little() {
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
        // Half of the bytes at most are sent for nothing at one loss in a hundred, if messages are long.
        if loss <= 10 && kind != Kind::Send {
            assert!(figures.overhead() < 1.5, "{cell:?}: {:.2}", figures.overhead());
        }
        // Messages of a few packets show a pause as it is.
        if kind == Kind::Send {
            assert!(figures.stall <= 2 * TIMEOUT, "{cell:?}: nothing for {:?}", figures.stall);
        }
    }
    insta::assert_snapshot!(text);
}

/// The same goals in few bytes, for builds that are slow.
//= rocev2 §7
#[test]
fn one_loss_in_a_thousand_leaves_most_of_the_goodput() {
    for kind in [Kind::Write, Kind::Read, Kind::Send] {
        let cell = |loss| Cell {
            kind,
            message: 64 << 10,
            count: 64,
            outstanding: 16,
            loss,
            reordering: 0,
            round_trip: Duration::from_micros(100),
            seed: 3,
        };
        let (lossless, lossy) = (measure(&cell(0)), measure(&cell(1)));
        assert!(lossy.sent > lossy.delivered, "{kind}: nothing was lost");
        let share = lossy.goodput() / lossless.goodput();
        assert!(share >= 0.7, "{kind}: {share:.2}");
        assert!(lossy.stall <= 2 * TIMEOUT, "{kind}: {:?}", lossy.stall);
    }
}

/// A line that only reorders costs less than half of the goodput where messages are long.
#[test]
fn reordering_is_no_loss() {
    for kind in [Kind::Write, Kind::Read] {
        let cell = |reordering| Cell {
            kind,
            message: 1 << 20,
            count: 8,
            outstanding: 4,
            loss: 0,
            reordering,
            round_trip: Duration::from_micros(100),
            seed: 3,
        };
        let (calm, wild) = (measure(&cell(0)), measure(&cell(10)));
        let share = wild.goodput() / calm.goodput();
        assert!(share >= 0.5, "{kind}: {share:.2}");
        assert_eq!(wild.timeouts, 0, "{kind}");
        assert!(wild.overhead() < 1.6, "{kind}: {:.2}", wild.overhead());
    }
}
