// SPDX-License-Identifier: MIT OR Apache-2.0

//! Goodput of READs beside WRITEs, by the number of READs that the peer has granted and by the round trip, in virtual time.
//!
//! `INSTA_UPDATE=always cargo test --profile tool -p roce --test simulation granted` rewrites the table.

use std::fmt::Write as _;
use std::time::Duration;

use roce::{Config, ReadLimits};
use roce_testkit::Options;
use roce_testkit::goodput::{Cell, Kind, measure_with};
use roce_wire::PathMtu;

/// Returns the goodput of 64 messages of 1 MiB, 4 of them outstanding, in bits per second.
fn goodput(kind: Kind, granted: u8, micros: u64, loss: u32) -> (f64, f64) {
    let cell = Cell {
        kind,
        message: 1 << 20,
        count: 64,
        outstanding: 4,
        loss,
        bursts: None,
        reordering: 0,
        round_trip: Duration::from_micros(micros),
        seed: 7,
    };
    let config: fn(&mut Config) = |config| config.max_mtu = PathMtu::Bytes1024;
    let reads = ReadLimits { inbound: granted, outbound: granted };
    let figures = measure_with(&cell, &Options { reads, config, ..Options::default() });
    (figures.goodput() * 8.0, figures.overhead())
}

/// Returns the bits per second of one READ of a message at a time: a round trip passes before each.
fn one_at_a_time(micros: u64) -> f64 {
    /// Bits of payload per second that frames of 1024 bytes have on a link of 10 Gb/s.
    const PAYLOAD: f64 = 9.3e9;
    let bits = f64::from(8 << 20);
    bits / (bits / PAYLOAD + micros as f64 * 1e-6)
}

//= rocev2 §7
#[test]
#[cfg_attr(debug_assertions, ignore = "moves a gigabyte: --profile tool")]
fn reads_are_as_fast_as_writes_however_few_are_granted() {
    let mut text = String::from("round trip  granted  loss   READ        WRITE\n");
    for loss in [0, 1] {
        for micros in [20, 100, 1000] {
            let (write, _) = goodput(Kind::Write, 4, micros, loss);
            for granted in [1, 2, 4, 16] {
                let (read, sent) = goodput(Kind::Read, granted, micros, loss);
                let shown = [read, write].map(|rate| rate / 1e9);
                writeln!(
                    text,
                    "{micros:>7} us {granted:>8} {:>3}.{} % {:>5.2} Gb/s {:>5.2} Gb/s {:>4.0} %, sent x {sent:4.2}",
                    loss / 10,
                    loss % 10,
                    shown[0],
                    shown[1],
                    100.0 * read / write,
                )
                .unwrap();
                let due = if granted == 1 { write.min(one_at_a_time(micros)) } else { write };
                assert!(
                    loss > 0 || read >= 0.9 * due,
                    "{granted} granted, {micros} us: {read:.3e} of {due:.3e}"
                );
            }
        }
    }
    insta::assert_snapshot!(text);
}
