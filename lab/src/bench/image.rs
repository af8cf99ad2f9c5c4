// SPDX-License-Identifier: MIT OR Apache-2.0

//! Benchmarks of the driver's image on two simulated hosts.
//!
//! Rates are in real time, with racing threads, and include the simulated kernel and hardware. The instructions of the image
//! itself are counted by callgrind, in virtual time: those at the addresses of the image, without the kernel's functions that
//! it calls. Two runs of different length are subtracted, so that start, connection and end are not counted.

use std::{fmt, ops::Range, path::Path};

use anyhow::{Context as _, Result, ensure};
use ndis_sim::Keyword;
use serde::{Deserialize, Serialize};

use super::{
    callgrind,
    figure::{Figure, MESSAGE, SMALL, Sample, Unit},
    orders::{self, Orders},
};
use crate::{
    measure::{self, HostCounters, Run, Transfers, Work},
    testbed::Options,
    workspace,
};

/// Prefix of a counted run without moderation of receive interrupts.
const UNMODERATED: &str = "unmoderated-";

/// The counted runs, and the lengths of the two that are subtracted.
const COUNTED: [(Kind, [u64; 2]); 2] = [(Kind::Sends, [1000, 3000]), (Kind::Writes, [8, 24])];

/// Speeds of the link in Gbit/s, and path MTUs, for which WRITEs are counted.
const LINKS: [(u64, u32); 4] = [(10, 1024), (10, 4096), (25, 1024), (25, 4096)];

const SUPPRESSED: &str = "notifications suppressed";

/// Workload of a counted run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// 64-byte SENDs.
    Sends,
    /// 1 MiB WRITEs, path MTU 4096.
    Writes,
}

/// Output of a run under callgrind for each host.
#[derive(Serialize, Deserialize)]
pub(super) struct HostReport {
    pub(super) image: Range<u64>,
    counters: HostCounters,
}

/// Instructions and counters of a host.
struct HostCosts {
    instructions: u64,
    counters: HostCounters,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sends => "sends",
            Self::Writes => "writes",
        })
    }
}

impl Kind {
    fn work(self, count: u64) -> Work {
        match self {
            Self::Sends => Work::Sends { count, size: SMALL as usize },
            Self::Writes => {
                Work::Writes(Transfers { count, size: MESSAGE as usize, outstanding: 8, buffers: 1 })
            }
        }
    }
}

/// Measures throughput and message rate in real time. `bound` and `library_bound` are those of 1 MiB writes.
pub fn measure(
    image: &Path,
    [bound, library_bound]: [Option<f64>; 2],
    say: &impl Fn(String),
    figures: &mut Vec<Figure>,
) -> Result<()> {
    say("image: 1 MiB writes".into());
    let run = measure::run(image, Kind::Writes.work(2048), true)?;
    let rate = run.result.bytes_per_second();
    let figure = Figure::new("image, 1 MiB writes, path MTU 4096", rate, Unit::BytesPerSecond);
    figures.push(Figure { bound, library_bound, ..figure });
    let gib = run.result.bytes as f64 / f64::from(1 << 30);
    let name = "image, 1 MiB writes, CPU time of all threads";
    figures.push(Figure::new(name, run.cpu.as_secs_f64() / gib, Unit::SecondsPerGib));
    figures.extend(of_queues("writes, real time", [None; 2], run.hosts.map(|host| host.counters)));
    say("image: 64-byte sends".into());
    let run = measure::run(image, Kind::Sends.work(400_000), true)?;
    figures.push(Figure::new("image, 64-byte sends", run.result.operations_per_second(), Unit::PerSecond));
    let nanoseconds = run.cpu.as_secs_f64() * 1e9 / run.result.operations as f64;
    figures.push(Figure::new(
        "image, 64-byte sends, CPU time of all threads",
        nanoseconds,
        Unit::Nanoseconds,
    ));
    figures.extend(of_queues("sends, real time", [None; 2], run.hosts.map(|host| host.counters)));
    count(image, Orders::ONE, say, figures)
}

/// Counts the instructions of the image per operation, and interrupts and notifications per 1000 frames.
///
/// # Errors
/// A run fails.
pub fn count(image: &Path, orders: Orders, say: &impl Fn(String), figures: &mut Vec<Figure>) -> Result<()> {
    for (kind, lengths) in COUNTED {
        say(format!("image: instructions of {kind}"));
        figures.extend(orders::means(orders.instructions, |seed| instructions(kind, lengths, seed))?);
        let options = Options { verifier: false, ..Options::default() };
        let events =
            |seed| events(image, &kind.to_string(), (kind, lengths), &Options { seed, ..options.clone() });
        figures.extend(orders::means(orders.events, events)?);
    }
    for (gigabits, path_mtu) in LINKS {
        let what = format!("writes at {gigabits} Gbit/s, path MTU {path_mtu}");
        say(format!("image: {what}"));
        let rate = gigabits * 1_000_000_000;
        let options = Options { rate, path_mtu, verifier: false, ..Options::default() };
        let events =
            |seed| events(image, &what, (Kind::Writes, [4, 20]), &Options { seed, ..options.clone() });
        figures.extend(orders::means(orders.events, events)?);
    }
    moderation(image, orders, say, figures)
}

/// Counts the instructions of the image per operation, by two runs under callgrind.
fn instructions(kind: Kind, lengths: [u64; 2], seed: u64) -> Result<Vec<Figure>> {
    let counts = instructions_between(lengths.map(|count| format!("{kind}:{count}")), seed)?;
    let operations = (lengths[1] - lengths[0]) as f64;
    let (what, share) = match kind {
        Kind::Sends => ("64-byte send", operations),
        Kind::Writes => ("4 KiB of a write", operations * f64::from(MESSAGE / 4096)),
    };
    let figure = |(side, count): (&str, f64)| {
        let name = format!("image, instructions per {what}, {side}");
        Figure::counted(name, count / share, Unit::Instructions)
    };
    Ok(["initiator", "target"].into_iter().zip(counts).map(figure).collect())
}

/// Counts interrupts and notifications per 1000 frames, by two runs. That a notification is suppressed costs nothing.
fn events(
    image: &Path,
    what: &str,
    (kind, lengths): (Kind, [u64; 2]),
    options: &Options,
) -> Result<Vec<Figure>> {
    let [short, long] = counters(lengths, |count| measure::run_on(image, kind.work(count), options))?;
    let mut figures = of_queues(what, short.map(Some), long);
    for figure in figures.iter_mut().filter(|figure| !figure.name.contains(SUPPRESSED)) {
        figure.sample = Some(Sample::ONE);
    }
    Ok(figures)
}

/// Returns the counters of both hosts in a short and in a long run.
pub(super) fn counters(
    lengths: [u64; 2],
    run: impl Fn(u64) -> Result<Run>,
) -> Result<[[HostCounters; 2]; 2]> {
    let [short, long] = lengths.map(|length| anyhow::Ok(run(length)?.hosts.map(|host| host.counters)));
    Ok([short?, long?])
}

/// Counts what the moderation of receive interrupts costs the target of WRITEs, and what it saves: instructions and time for which the
/// driver stalls the processor, with and without it.
fn moderation(image: &Path, orders: Orders, say: &impl Fn(String), figures: &mut Vec<Figure>) -> Result<()> {
    let (kind, lengths) = COUNTED[1];
    let mut of_frames = Vec::new();
    for (which, prefix) in [("with", ""), ("without", UNMODERATED)] {
        say(format!("image: {kind} {which} moderation of interrupts"));
        let name = |what: &str| format!("image, writes, target, {which} moderation, {what}");
        let instructions = |seed| {
            let [short, long] = lengths.map(|count| costs(&format!("{prefix}{kind}:{count}"), seed));
            let ([_, short], [_, long]) = (short?, long?);
            let count = (long.instructions - short.instructions) as f64;
            let count = count / frames(&short.counters, &long.counters);
            Ok(vec![Figure::counted(name("instructions per frame"), count, Unit::Instructions)])
        };
        let instructions = orders::means(orders.instructions, instructions)?;
        of_frames.extend(instructions.iter().map(|figure| figure.value));
        figures.extend(instructions);
        let keywords = keywords(prefix);
        let events = |seed| {
            let options = Options { seed, verifier: false, keywords: keywords.clone(), ..Options::default() };
            let [[_, short], [_, long]] =
                counters(lengths, |count| measure::run_on(image, kind.work(count), &options))?;
            let per_1000 = |of: fn(&HostCounters) -> u64| {
                1000.0 * (of(&long) - of(&short)) as f64 / frames(&short, &long)
            };
            let interrupts = per_1000(|counters| counters.interrupts);
            let stalled = per_1000(|counters| counters.stalled);
            Ok(vec![
                Figure::counted(name("interrupts per 1000 frames"), interrupts, Unit::PerPacket),
                Figure::counted(name("nanoseconds stalled per frame"), stalled, Unit::Nanoseconds),
            ])
        };
        figures.extend(orders::means(orders.events, events)?);
    }
    if let [with, without] = of_frames[..] {
        let name = "image, writes, target, instructions per frame that moderation adds";
        let figure = Figure::new(name, with - without, Unit::Instructions);
        figures.push(Figure { limit: Some(0.0), ..figure });
    }
    Ok(())
}

/// Returns the frames of a host, sent and received, by which two runs differ.
pub(super) fn frames(short: &HostCounters, long: &HostCounters) -> f64 {
    let frames = |counters: &HostCounters| counters.sent_frames + counters.received_frames;
    (frames(long) - frames(short)).max(1) as f64
}

/// Returns the settings of a run with this prefix.
fn keywords(prefix: &str) -> Vec<(&'static str, Keyword)> {
    if prefix == UNMODERATED { vec![("*InterruptModeration", Keyword::Text("0".into()))] } else { Vec::new() }
}

/// Returns how often each side interrupted, and was notified, per 1000 frames between two counts.
pub(super) fn of_queues(
    what: &str,
    before: [Option<HostCounters>; 2],
    after: [HostCounters; 2],
) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (side, (before, after)) in ["initiator", "target"].into_iter().zip(before.into_iter().zip(after)) {
        let before = before.unwrap_or_default();
        let frames = frames(&before, &after);
        // What is rare may be rarer in the longer of two runs.
        let difference = |of: fn(&HostCounters) -> u64| of(&after) as f64 - of(&before) as f64;
        let rows = [
            ("interrupts", difference(|host| host.interrupts)),
            ("notifications", difference(|host| host.notifications)),
            (SUPPRESSED, difference(|host| host.suppressed)),
        ];
        for (event, count) in rows {
            let value = 1000.0 * count / frames;
            let name = format!("image, {what}, {side}, {event} per 1000 frames");
            figures.push(Figure::new(name, value, Unit::PerPacket));
        }
    }
    figures
}

/// Runs `work` under callgrind with the order of events of a seed, and [prints](print) what its hosts did. Returns the costs of initiator
/// and target.
fn costs(work: &str, seed: u64) -> Result<[HostCosts; 2]> {
    let (profile, hosts) = profiled(work, seed)?;
    let cost = |host: HostReport| HostCosts {
        instructions: profile.instructions_at(&host.image),
        counters: host.counters,
    };
    let costs = hosts.map(cost);
    ensure!(costs.iter().all(|cost| cost.instructions > 0), "callgrind did not see the image");
    Ok(costs)
}

/// Counts the instructions of both hosts by which a short and a long run differ.
pub(super) fn instructions_between(works: [String; 2], seed: u64) -> Result<[f64; 2]> {
    let [short, long] = works.map(|work| costs(&work, seed));
    let (short, long) = (short?, long?);
    Ok([0, 1].map(|side| (long[side].instructions - short[side].instructions) as f64))
}

/// Runs `work` as [`costs`]. Returns the profile, and initiator and target.
pub(super) fn profiled(work: &str, seed: u64) -> Result<(callgrind::Profile, [HostReport; 2])> {
    let profile = callgrind::run(&callgrind::BY_INSTRUCTION, &format!("{work}@{seed}"))?;
    let report = profile.output.lines().last().context("the run printed nothing")?;
    let hosts = serde_json::from_str(report).context("the run printed no report")?;
    Ok((profile, hosts))
}

/// Runs what [`costs`] asked for: `sends:N` or `writes:N`, `unmoderated-` before it for runs without moderation of interrupts, in real time if `:real` follows, to profile the simulation. Prints the
/// report.
///
/// # Errors
/// Another request, or the run fails.
pub fn work(request: &str, seed: u64) -> Result<()> {
    let (request, real_time) = match request.strip_suffix(":real") {
        Some(request) => (request, true),
        None => (request, false),
    };
    let (request, keywords) = match request.strip_prefix(UNMODERATED) {
        Some(request) => (request, keywords(UNMODERATED)),
        None => (request, Vec::new()),
    };
    let mut known = [Kind::Sends, Kind::Writes].into_iter();
    let (kind, count) = known
        .find_map(|kind| Some((kind, request.strip_prefix(&format!("{kind}:"))?)))
        .with_context(|| format!("nothing to count is named {request}"))?;
    let options = Options { seed, real_time, verifier: false, keywords, ..Options::default() };
    let run = measure::run_on(&workspace::image_path(), kind.work(count.parse()?), &options)?;
    print(run)
}

/// Prints the report of a run under callgrind.
pub(super) fn print(run: Run) -> Result<()> {
    let report = run.hosts.map(|host| HostReport { image: host.image, counters: host.counters });
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}
