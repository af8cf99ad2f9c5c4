// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask verbs --bench`: figures of programs of Debian, in one run, with the processor time of both sides.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt::Write as _,
    fs,
    path::Path,
};

use anyhow::{Context as _, Result, ensure};

use super::{
    case::{Case, Faults, Runs},
    kind::Kind,
    place::{self, Place},
    run::{Site, run},
    verdict::{NOT_USED, WITHOUT_MEMORY},
};
use crate::shell;

/// Measurements of one setup.
struct Setup {
    name: &'static str,
    place: Kind,
    measurements: [Option<Measurement>; 3],
}

struct Measurement {
    case: Case,
    /// Which word of the line of results is the figure, and what it is multiplied by.
    word: usize,
    factor: f64,
    /// The first word of that line.
    line: &'static str,
}

type Environment = &'static [(&'static str, &'static str)];

const DATAGRAMS: Environment = &[WITHOUT_MEMORY];
const UCX_VERBS: Environment = &[
    ("UCX_TLS", "rc_verbs,ud_verbs,self"),
    ("UCX_NET_DEVICES", "viordma0:1"),
    ("UCX_WARN_UNUSED_ENV_VARS", "n"),
];
const UCX_TCP: Environment = &[("UCX_TLS", "tcp,self"), ("UCX_WARN_UNUSED_ENV_VARS", "n")];

/// The columns: of each setup, these are measured.
const COLUMNS: [&str; 3] =
    ["latency of 64 B, us", "bandwidth of 64 KiB, MB/s", "messages of 64 B, million/s"];

const fn case(
    name: &'static str,
    server: &'static str,
    client: &'static str,
    environment: Environment,
) -> Case {
    let case = Case::new(name, server, client, "", Runs::One);
    Case { environment, ..case }.within(60)
}

const fn perftest(name: &'static str, place: Kind, environment: Environment) -> Setup {
    let latency = case(
        "bench-ib_send_lat",
        "ib_send_lat -F -s 64 -n 10000",
        "ib_send_lat -F -s 64 -n 10000 {host}",
        environment,
    );
    let bandwidth = case(
        "bench-ib_write_bw",
        "ib_write_bw -F -s 65536 -n 10000",
        "ib_write_bw -F -s 65536 -n 10000 {host}",
        environment,
    );
    let messages = case(
        "bench-ib_send_bw",
        "ib_send_bw -F -s 64 -n 200000",
        "ib_send_bw -F -s 64 -n 200000 {host}",
        environment,
    );
    let measurements = [
        // The median, the average, millions.
        Some(Measurement { case: latency, word: 4, factor: 1.0, line: "64" }),
        Some(Measurement { case: bandwidth, word: 3, factor: 1.0, line: "65536" }),
        Some(Measurement { case: messages, word: 4, factor: 1.0, line: "64" }),
    ];
    Setup { name, place, measurements }
}

const fn ucx(name: &'static str, environment: Environment) -> Setup {
    let latency = case(
        "bench-ucx-tag_lat",
        "ucx_perftest",
        "ucx_perftest {host} -t tag_lat -s 64 -n 10000 -w 1000",
        environment,
    );
    let bandwidth = case(
        "bench-ucx-tag_bw",
        "ucx_perftest",
        "ucx_perftest {host} -t tag_bw -s 65536 -n 10000 -w 100",
        environment,
    );
    let messages = case(
        "bench-ucx-messages",
        "ucx_perftest",
        "ucx_perftest {host} -t tag_bw -s 64 -n 200000 -w 1000",
        environment,
    );
    let measurements = [
        // The median; bandwidth and messages per second of the whole run.
        Some(Measurement { case: latency, word: 2, factor: 1.0, line: "Final:" }),
        Some(Measurement { case: bandwidth, word: 6, factor: 1.0, line: "Final:" }),
        Some(Measurement { case: messages, word: 8, factor: 1e-6, line: "Final:" }),
    ];
    Setup { name, place: Kind::One, measurements }
}

const fn libfabric(name: &'static str, server: &'static str, client: &'static str) -> Setup {
    let latency = case("bench-fi_pingpong", server, client, &[]);
    let latency = Measurement { case: latency, word: 6, factor: 1.0, line: "64" };
    Setup { name, place: Kind::One, measurements: [Some(latency), None, None] }
}

static SETUPS: [Setup; 8] = [
    perftest("perftest, one address, shared memory", Kind::One, &[]),
    perftest("perftest, one address, datagrams", Kind::One, DATAGRAMS),
    perftest("perftest, two namespaces, datagrams", Kind::Ipv4, &[]),
    perftest("perftest, two namespaces, Ethernet frames", Kind::Frames4, &[]),
    ucx("UCX, one address, rc_verbs on shared memory", UCX_VERBS),
    ucx("UCX, one address, tcp", UCX_TCP),
    libfabric(
        "libfabric, one address, verbs on shared memory",
        "fi_pingpong -p verbs -I 5000 -S 64",
        "fi_pingpong -p verbs -I 5000 -S 64 {host}",
    ),
    libfabric(
        "libfabric, one address, tcp",
        "fi_pingpong -p tcp -e msg -I 5000 -S 64",
        "fi_pingpong -p tcp -e msg -I 5000 -S 64 {host}",
    ),
];

/// Measures all setups with the libraries in `target/verbs/lib`, and writes `target/verbs/bench.md`.
///
/// # Errors
/// There can be no namespaces, or a program fails.
pub fn bench() -> Result<()> {
    if let Some(obstacle) = place::obstacle() {
        anyhow::bail!("{obstacle}");
    }
    let folder = shell::root().join("target/verbs");
    let mut places = BTreeMap::new();
    let mut table = header();
    print!("{table}");
    for setup in &SETUPS {
        let place = match places.entry(setup.place) {
            Entry::Occupied(entry) => entry.into_mut(),
            // UCX looks for a character device.
            Entry::Vacant(entry) => entry.insert(Place::make(setup.place, true, &folder)?),
        };
        let mut row = format!("| {} |", setup.name);
        for measurement in &setup.measurements {
            let cell = match measurement {
                Some(measurement) => {
                    measure(measurement, &Site::Place(place, setup.place)).with_context(|| setup.name)?
                }
                None => "| ".to_owned(),
            };
            let _ = write!(row, " {cell} |");
        }
        println!("{row}");
        table += &(row + "\n");
    }
    fs::write(folder.join("bench.md"), table).context("cannot write the table")
}

fn header() -> String {
    let columns = COLUMNS.join(" | CPU, s | ");
    format!("| setup | {columns} | CPU, s |\n| --- |{}\n", " --- | --- |".repeat(COLUMNS.len()))
}

/// Returns two cells: the figure, and the processor time of both sides.
fn measure(measurement: &'static Measurement, site: &Site<'_>) -> Result<String> {
    let before = children_seconds()?;
    let outcome = run(&measurement.case, site, Faults::None, 1)?;
    let time = children_seconds()? - before;
    let (name, text) = (measurement.case.name, &outcome.text);
    // Over TCP, programs do not use the library, and must not.
    let expected = uses_tcp(&measurement.case).then_some(NOT_USED);
    let fault = outcome.verdict.fault.as_deref();
    ensure!(fault == expected, "{name}: {}\n{text}", fault.unwrap_or("the library was used"));
    let figure = figure(measurement, text).with_context(|| format!("{name} prints no figure:\n{text}"))?;
    let retransmissions = match outcome.retransmissions {
        0 => String::new(),
        count => format!(" ({count} retransmissions)"),
    };
    Ok(format!("{figure:.2}{retransmissions} | {time:.2}"))
}

fn uses_tcp(case: &Case) -> bool {
    case.environment == UCX_TCP || case.client.contains("-p tcp")
}

fn figure(measurement: &Measurement, text: &str) -> Option<f64> {
    let mut lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let line =
        lines.find(|words| words.first() == Some(&measurement.line) && words.len() > measurement.word)?;
    // The statistics of the library may follow without a space.
    let word = line[measurement.word].split("viordma").next()?;
    Some(word.parse::<f64>().ok()? * measurement.factor)
}

/// Returns the processor time of the processes that this one has started and awaited, with those that they have.
fn children_seconds() -> Result<f64> {
    /// Of Linux, for programs.
    const TICKS: f64 = 100.0;
    let text = fs::read_to_string(Path::new("/proc/self/stat"))?;
    // The name, which may have spaces, ends with the last parenthesis; the times of children are the 14th and 15th word behind.
    let (_, words) = text.rsplit_once(')').context("no name")?;
    let words: Vec<&str> = words.split_whitespace().collect();
    let times = words.get(13..15).context("no times")?;
    let ticks = times.iter().map(|word| word.parse::<f64>()).sum::<Result<f64, _>>()?;
    Ok(ticks / TICKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_from_what_programs_print() {
        let perftest =
            " #bytes #iterations t_min\n 64 1000 1.10 99.0 2.25 3.00 0.1 4.0 5.0viordma: ::1: tx_frames=64\n";
        let ucx = "Final:                 10000      1.500     1.700     1.650       36.0       35.5   600000   590000\n";
        for (setup, text, expected) in [(&SETUPS[0], perftest, [2.25, 0.0]), (&SETUPS[5], ucx, [1.5, 0.59])] {
            let read = |at: usize| figure(setup.measurements[at].as_ref().unwrap(), text);
            assert_eq!(read(0), Some(expected[0]), "{}", setup.name);
            if expected[1] > 0.0 {
                assert!((read(2).unwrap() - expected[1]).abs() < 1e-9);
            }
        }
        assert_eq!(figure(SETUPS[0].measurements[0].as_ref().unwrap(), "64 1000\n"), None);
        assert!(children_seconds().unwrap() >= 0.0);
    }
}
