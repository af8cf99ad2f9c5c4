// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask verbs --bench`: figures of programs of Debian, in one run, with the processor time of both sides.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt::Write as _,
    fs,
    path::Path,
    process::Command,
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

/// Programs in one place, over one transport.
struct Setup {
    name: &'static str,
    place: Kind,
    environment: Environment,
    /// Whether the programs use the libraries.
    is_on_library: bool,
    /// Measurements of the [`FIGURES`], in their order.
    measurements: [Option<Measurement>; 6],
}

/// How a figure is measured.
#[derive(Clone, Copy)]
struct Measurement {
    /// Commands, with `{size}` for the size of a message; `{count}` is how many there are.
    server: &'static str,
    client: &'static str,
    /// The first word of the line of results; `{size}` is that of the message, `{short}` the same as libfabric writes it.
    line: &'static str,
    /// Which word of this line is the figure. A unit may follow.
    word: usize,
    /// Factor of the figure.
    factor: f64,
}

type Environment = &'static [(&'static str, &'static str)];

/// A column.
struct Figure {
    name: &'static str,
    /// Bytes of a message, and how many messages are sent.
    size: u32,
    count: u32,
}

const FIGURES: [Figure; 6] = [
    Figure { name: "latency of 2 B, us", size: 2, count: 10_000 },
    Figure { name: "of 64 B", size: 64, count: 10_000 },
    Figure { name: "of 4096 B", size: 4096, count: 10_000 },
    Figure { name: "bandwidth of 64 KiB, MiB/s", size: 1 << 16, count: 10_000 },
    Figure { name: "of 1 MiB", size: 1 << 20, count: 1000 },
    Figure { name: "messages of 64 B, million/s", size: 64, count: 200_000 },
];

const DATAGRAMS: Environment = &[WITHOUT_MEMORY];
const UCX_VERBS: Environment = &[
    ("UCX_TLS", "rc_verbs,ud_verbs,self"),
    ("UCX_NET_DEVICES", "viordma0:1"),
    ("UCX_WARN_UNUSED_ENV_VARS", "n"),
];
const UCX_TCP: Environment = &[("UCX_TLS", "tcp,self"), ("UCX_WARN_UNUSED_ENV_VARS", "n")];

const fn measurement(
    server: &'static str,
    client: &'static str,
    line: &'static str,
    word: usize,
) -> Measurement {
    Measurement { server, client, line, word, factor: 1.0 }
}

const fn all(
    latency: Measurement,
    bandwidth: Measurement,
    messages: Measurement,
) -> [Option<Measurement>; 6] {
    let (latency, bandwidth) = (Some(latency), Some(bandwidth));
    [latency, latency, latency, bandwidth, bandwidth, Some(messages)]
}

const fn perftest(name: &'static str, place: Kind, environment: Environment) -> Setup {
    // The median.
    let latency = measurement(
        "ib_send_lat -F -s {size} -n {count}",
        "ib_send_lat -F -s {size} -n {count} {host}",
        "{size}",
        4,
    );
    // The average.
    let bandwidth = measurement(
        "ib_write_bw -F -s {size} -n {count}",
        "ib_write_bw -F -s {size} -n {count} {host}",
        "{size}",
        3,
    );
    // Millions.
    let messages = measurement(
        "ib_send_bw -F -s {size} -n {count}",
        "ib_send_bw -F -s {size} -n {count} {host}",
        "{size}",
        4,
    );
    Setup { name, place, environment, is_on_library: true, measurements: all(latency, bandwidth, messages) }
}

const fn ucx(name: &'static str, environment: Environment, is_on_library: bool) -> Setup {
    // The median; bandwidth of the whole run, and its messages per second.
    let latency = measurement(
        "ucx_perftest",
        "ucx_perftest {host} -t tag_lat -s {size} -n {count} -w 1000",
        "Final:",
        2,
    );
    let stream = "ucx_perftest {host} -t tag_bw -s {size} -n {count} -w 100";
    let bandwidth = measurement("ucx_perftest", stream, "Final:", 6);
    let messages =
        Measurement { server: "ucx_perftest", client: stream, line: "Final:", word: 8, factor: 1e-6 };
    let measurements = all(latency, bandwidth, messages);
    Setup { name, place: Kind::One, environment, is_on_library, measurements }
}

const fn libfabric(
    name: &'static str,
    server: &'static str,
    client: &'static str,
    is_on_library: bool,
) -> Setup {
    let latency = Some(measurement(server, client, "{short}", 6));
    let measurements = [None, latency, latency, None, None, None];
    Setup { name, place: Kind::One, environment: &[], is_on_library, measurements }
}

/// Bytes per second in millions, as a program prints them, for MiB.
const MEGABYTE: f64 = 1e6 / (1 << 20) as f64;

const fn kernel(name: &'static str, place: Kind, protocol: Protocol) -> Setup {
    let (latency, bandwidth, line) = match protocol {
        Protocol::Tcp => {
            ("qperf {host} -m {size} -t 1 tcp_lat quit", "qperf {host} -m {size} -t 1 tcp_bw quit", "bw")
        }
        // A message of many packets is none of a datagram.
        Protocol::Udp => {
            ("qperf {host} -m {size} -t 1 udp_lat quit", "qperf {host} -m 4096 -t 1 udp_bw quit", "recv_bw")
        }
    };
    let latency = Some(measurement("qperf", latency, "latency", 2));
    let bandwidth = Some(Measurement { server: "qperf", client: bandwidth, line, word: 2, factor: MEGABYTE });
    let second = match protocol {
        Protocol::Tcp => bandwidth,
        Protocol::Udp => None,
    };
    let measurements = [latency, latency, latency, bandwidth, second, None];
    Setup { name, place, environment: &[], is_on_library: false, measurements }
}

#[derive(Clone, Copy)]
enum Protocol {
    Tcp,
    Udp,
}

static SETUPS: [Setup; 12] = [
    perftest("perftest, one address, shared memory", Kind::One, &[]),
    perftest("perftest, one address, datagrams", Kind::One, DATAGRAMS),
    perftest("perftest, two namespaces, datagrams", Kind::Ipv4, &[]),
    perftest("perftest, two namespaces, Ethernet frames", Kind::Frames4, &[]),
    ucx("UCX, one address, rc_verbs on shared memory", UCX_VERBS, true),
    ucx("UCX, one address, tcp", UCX_TCP, false),
    libfabric(
        "libfabric, one address, verbs on shared memory",
        "fi_pingpong -p verbs -I {count} -S {size}",
        "fi_pingpong -p verbs -I {count} -S {size} {host}",
        true,
    ),
    libfabric(
        "libfabric, one address, tcp",
        "fi_pingpong -p tcp -e msg -I {count} -S {size}",
        "fi_pingpong -p tcp -e msg -I {count} -S {size} {host}",
        false,
    ),
    kernel("TCP of the kernel (qperf, 1 s), one address", Kind::One, Protocol::Tcp),
    kernel("TCP of the kernel (qperf, 1 s), two namespaces", Kind::Ipv4, Protocol::Tcp),
    kernel(
        "TCP of the kernel (qperf, 1 s), without offloads, packets of 4200 B",
        Kind::Plain4,
        Protocol::Tcp,
    ),
    kernel("UDP of the kernel (qperf, 1 s), one address; bandwidth of 4096 B", Kind::One, Protocol::Udp),
];

/// Measures all setups with the libraries in `target/verbs/lib`, and the ring with the program `ring`, and writes
/// `target/verbs/bench.md`.
///
/// # Errors
/// There can be no namespaces, or a program fails.
pub fn bench(ring: &Path) -> Result<()> {
    if let Some(obstacle) = place::obstacle() {
        anyhow::bail!("{obstacle}");
    }
    let folder = shell::root().join("target/verbs");
    let mut places = BTreeMap::new();
    let mut table = format!("{}, load average {}\n\n{}", machine(), load_average(), header());
    print!("{table}");
    for setup in &SETUPS {
        let place = match places.entry(setup.place) {
            Entry::Occupied(entry) => entry.into_mut(),
            // UCX looks for a character device.
            Entry::Vacant(entry) => entry.insert(Place::make(setup.place, true, &folder)?),
        };
        let mut row = format!("| {} |", setup.name);
        for (figure, measurement) in FIGURES.iter().zip(&setup.measurements) {
            let cell = match measurement {
                Some(measurement) => {
                    measure(setup, measurement, figure, place).with_context(|| setup.name)?
                }
                None => String::new(),
            };
            let _ = write!(row, " {cell} |");
        }
        println!("{row}");
        table += &(row + "\n");
    }
    let row = alone(ring)?;
    println!("{row}");
    table += &(row + "\n");
    let after = format!("\nLoad average at the end: {}\n", load_average());
    print!("{after}");
    fs::write(folder.join("bench.md"), table + &after).context("cannot write the table")
}

/// Returns the row of the ring alone.
fn alone(ring: &Path) -> Result<String> {
    let before = children_seconds()?;
    let text = shell::output(&mut Command::new(ring))?;
    let time = children_seconds()? - before;
    let mut figures = text.split_whitespace().map(str::to_owned);
    let mut next = || figures.next().with_context(|| format!("{} prints too few figures", ring.display()));
    let [tiny, small, large, bandwidth, messages] = [next()?, next()?, next()?, next()?, next()?];
    Ok(format!(
        "| the shared ring alone, two threads (all five in {time:.2} s); bandwidth of 4096 B | {tiny} | {small} | {large} | {bandwidth} | | {messages} |"
    ))
}

fn header() -> String {
    let columns = FIGURES.map(|figure| figure.name).join(" | ");
    format!("| setup | {columns} |\n| --- |{}\n", " --- |".repeat(FIGURES.len()))
}

/// Returns the processors and the kernel.
fn machine() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let processors = read("/proc/cpuinfo");
    let of = |name: &'static str| {
        let lines = processors.lines().filter(move |line| line.starts_with(name));
        lines.filter_map(|line| Some(line.split_once(": ")?.1.to_owned())).collect::<Vec<_>>()
    };
    let names = of("model name");
    let name = names.first().map_or("unknown", String::as_str);
    format!("{} × {name}, Linux {}", names.len(), read("/proc/sys/kernel/osrelease").trim())
}

/// Returns that of the last minute.
fn load_average() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().unwrap_or("unknown").to_owned()
}

/// Returns a cell: the figure, the processor time of both sides, and the packets that were transmitted again.
fn measure(setup: &Setup, measurement: &Measurement, of: &Figure, place: &Place) -> Result<String> {
    // As long as the program, as the texts of cases.
    let text = |pattern: &str| &*filled(pattern, of).leak();
    let name = text(&format!("bench-{}-{{size}}", setup.name.replace([' ', ',', ';', '(', ')'], "-")));
    let case = Case::new(name, text(measurement.server), text(measurement.client), "", Runs::One);
    let case = Case { environment: setup.environment, ..case }.within(60);
    let before = children_seconds()?;
    let outcome = run(&case, &Site::Place(place, setup.place), Faults::None, 1)?;
    let time = children_seconds()? - before;
    let text = &outcome.text;
    // Over TCP, programs do not use the library, and must not.
    let expected = (!setup.is_on_library).then_some(NOT_USED);
    let fault = outcome.verdict.fault.as_deref();
    ensure!(fault == expected, "{name}: {}\n{text}", fault.unwrap_or("the library was used"));
    let figure =
        figure(measurement, of, text).with_context(|| format!("{name} prints no figure:\n{text}"))?;
    let retransmissions = match outcome.retransmissions {
        0 => String::new(),
        count => format!(", {count} retransmissions"),
    };
    Ok(format!("{figure:.2} ({time:.2} s{retransmissions})"))
}

fn filled(pattern: &str, of: &Figure) -> String {
    let size = of.size.to_string();
    let short = if of.size < 1024 { size.clone() } else { format!("{}k", of.size / 1024) };
    pattern.replace("{size}", &size).replace("{short}", &short).replace("{count}", &of.count.to_string())
}

fn figure(measurement: &Measurement, of: &Figure, text: &str) -> Option<f64> {
    let first = filled(measurement.line, of);
    let mut lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let line = lines.find(|words| words.first() == Some(&&*first) && words.len() > measurement.word)?;
    // The statistics of the library may follow without a space.
    let word = line[measurement.word].split("viordma").next()?;
    let unit = match line.get(measurement.word + 1).copied() {
        Some("ns" | "KB/sec") => 1e-3,
        Some("ms" | "GB/sec") => 1e3,
        _ => 1.0,
    };
    Some(word.parse::<f64>().ok()? * unit * measurement.factor)
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
        let tcp = "tcp_bw:\n    bw  =  2.1 GB/sec\n";
        let slow = "tcp_lat:\n    latency  =  950 ns\n";
        let of = |setup: usize, column: usize, text| {
            figure(SETUPS[setup].measurements[column].as_ref().unwrap(), &FIGURES[column], text)
        };
        assert_eq!(of(0, 1, perftest), Some(2.25));
        assert_eq!(of(0, 0, perftest), None, "of another size");
        let libfabric = "4k      10k     =10k     78m         0.85s     96.19      42.58       0.02\n";
        assert_eq!(of(6, 2, libfabric), Some(42.58));
        assert_eq!(of(5, 1, ucx), Some(1.5));
        assert!((of(5, 5, ucx).unwrap() - 0.59).abs() < 1e-9);
        assert!((of(8, 3, tcp).unwrap() - 2002.7).abs() < 0.1);
        assert!((of(8, 1, slow).unwrap() - 0.95).abs() < 1e-9);
        assert_eq!(of(0, 1, "64 1000\n"), None);
        assert!(children_seconds().unwrap() >= 0.0);
    }
}
