// SPDX-License-Identifier: MIT OR Apache-2.0

//! RDMA and TCP at the same time on one device of each host, and what polling by NDIS changes for both.
//!
//! CPU time of threads that serve both cannot be divided between them. The instructions of the image can, by the functions that they are
//! in: those of the engine and of the provider are RDMA's. All others serve both.

use std::{collections::BTreeMap, fmt, path::Path};

use anyhow::{Context as _, Result};
use ndis_sim::Keyword;
use nt_sim::image::symbols::Symbols;

use super::{
    callgrind::Profile,
    figure::{Figure, MESSAGE, Unit},
    image::{self, HostReport},
    orders::{self, Orders},
};
use crate::{
    measure::{self, BenchResult, HostCounters, Run, Transfers, Work},
    testbed::Options,
    workspace,
};

/// Prefix of the counted runs' names.
pub const WORK: &str = "both:";

const MTU: u16 = 9000;
/// Writes of 1 MiB of the two runs under callgrind that are subtracted; TCP sends as many bytes.
const LENGTHS: [u64; 2] = [8, 24];
/// Bytes of the first run in real time, of each.
const BYTES: u64 = 256 << 20;
/// Runs in real time. The bytes of each but the first are such that both last equally long at the rates of the one before.
const RUNS: usize = 4;
/// Seconds that these runs are to last.
const SECONDS: f64 = 1.0;
/// Turns of each way to receive, of which the fastest counts.
const TURNS: usize = 5;
/// Small writes one after the other, and bytes of TCP at the same time, which take longer.
const SMALL: Transfers = Transfers { count: 4000, size: 4096, outstanding: 1, buffers: 1 };
const BESIDE: u64 = 512 << 20;

/// Crates and modules whose functions are RDMA's.
const OF_RDMA: [&str; 4] = ["roce::", "roce_wire::", "ndk_provider::", "viordma::ndk::"];
/// The driver's others.
const OF_DRIVER: [&str; 5] = ["viordma::", "virtio_net::", "nt::", "fallible::", "state_table::"];

/// How a driver receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Receiving {
    InDpc,
    Polled,
}

impl Receiving {
    const ALL: [Self; 2] = [Self::InDpc, Self::Polled];

    fn options(self, real_time: bool) -> Options {
        let options = Options { real_time, mtu: Some(MTU), verifier: false, ..Options::default() };
        let keyword = ("*NdisPoll", Keyword::Text(u32::from(self == Self::Polled).to_string()));
        Options { keywords: vec![keyword], ..options }
    }
}

impl fmt::Display for Receiving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InDpc => "in the DPC",
            Self::Polled => "polled by NDIS",
        })
    }
}

/// Measures RDMA and TCP at the same time.
///
/// # Errors
/// A run fails.
pub fn measure(path: &Path, say: &impl Fn(String), figures: &mut Vec<Figure>) -> Result<()> {
    say("RDMA and TCP at the same time".into());
    let (run, of_rdma, of_tcp) = at_once(path)?;
    for (what, result) in [("RDMA", &of_rdma), ("TCP", &of_tcp)] {
        let name = format!("{what} beside the other, MTU {MTU}, real time");
        figures.push(Figure::new(name, result.bytes_per_second(), Unit::BytesPerSecond));
    }
    let gib = run.result.bytes as f64 / f64::from(1 << 30);
    let name = format!("RDMA and TCP at the same time, MTU {MTU}, CPU time of all threads");
    figures.push(Figure::new(name, run.cpu.as_secs_f64() / gib, Unit::SecondsPerGib));
    say("RDMA and TCP at the same time: instructions".into());
    let symbols = Symbols::read(&path.with_extension("pdb")).context("the image has no PDB")?;
    figures.extend(divided(0, &symbols)?);
    Ok(())
}

/// Runs both until they last equally long. Returns the last run.
fn at_once(path: &Path) -> Result<(Run, BenchResult, BenchResult)> {
    let options = Receiving::InDpc.options(true);
    let mut bytes = [BYTES; 2];
    let mut last = None;
    for _ in 0..RUNS {
        let count = (bytes[0] / u64::from(MESSAGE)).max(16);
        let (run, of_rdma, of_tcp) = measure::run_both(path, writes(count), bytes[1], &options)?;
        #[allow(clippy::cast_sign_loss, reason = "rates are positive")]
        let for_next = |result: &BenchResult| (result.bytes_per_second() * SECONDS) as u64;
        bytes = [&of_rdma, &of_tcp].map(for_next);
        last = Some((run, of_rdma, of_tcp));
    }
    last.context("no run")
}

fn writes(count: u64) -> Work {
    Work::Writes(Transfers { count, size: MESSAGE as usize, outstanding: 8, buffers: 8 })
}

/// Blocks of 4 KiB that the two runs under callgrind differ by.
fn blocks() -> f64 {
    ((LENGTHS[1] - LENGTHS[0]) * u64::from(MESSAGE)) as f64 / 4096.0
}

/// Counts the instructions of the image of both hosts for 4 KiB: of RDMA's functions, of others of the driver, of functions of libraries and
/// without name; and of all.
fn divided(seed: u64, symbols: &Symbols) -> Result<Vec<Figure>> {
    let [short, long] = LENGTHS.map(|count| {
        let (profile, hosts) = image::profiled(&request(count, Receiving::InDpc), seed)?;
        anyhow::Ok(hosts.map(|host| by_part(&profile, &host, symbols)))
    });
    let (short, long) = (short?, long?);
    let mut figures = Vec::new();
    for (side, name) in ["initiator", "target"].into_iter().enumerate() {
        let parts: [f64; 3] =
            std::array::from_fn(|part| (long[side][part] - short[side][part]) as f64 / blocks());
        for (value, what) in
            parts.into_iter().zip(["RDMA's functions", "others of the driver", "memory and others"])
        {
            let name = format!("RDMA and TCP at the same time, {name}, {what}, for 4 KiB of each");
            figures.push(Figure::counted(name, value, Unit::Instructions));
        }
        figures.push(of_both(Receiving::InDpc, name, parts.iter().sum()));
    }
    Ok(figures)
}

/// The instructions of a host for 4 KiB of each.
fn of_both(receiving: Receiving, side: &str, count: f64) -> Figure {
    let name = format!("RDMA and TCP, received {receiving}, {side}, instructions for 4 KiB of each");
    Figure::counted(name, count, Unit::Instructions)
}

/// Returns the instructions of a host's image in a profile, by [`part`].
fn by_part(profile: &Profile, HostReport { image, .. }: &HostReport, symbols: &Symbols) -> [u64; 3] {
    let mut counts = BTreeMap::<u32, u64>::new();
    for (address, count) in profile.at(image) {
        if let Ok(offset) = u32::try_from(address - image.start) {
            *counts.entry(offset).or_default() += count;
        }
    }
    let names = symbols.names(counts.keys().copied());
    let mut parts = [0; 3];
    for (name, count) in names.iter().zip(counts.values()) {
        parts[part(name.as_deref().unwrap_or_default())] += count;
    }
    parts
}

/// Returns whose an instruction is: that of the innermost function of the driver's crates that contains it.
fn part(symbol: &str) -> usize {
    for function in symbol.split(" in ") {
        let function = function.trim_start_matches(['<', '&', '*']).trim_start_matches("impl$");
        if OF_RDMA.iter().any(|prefix| function.starts_with(prefix)) {
            return 0;
        }
        if OF_DRIVER.iter().any(|prefix| function.starts_with(prefix)) {
            return 1;
        }
    }
    2
}

/// The counted run of so many writes, for [`work`].
fn request(count: u64, receiving: Receiving) -> String {
    format!("{WORK}{count}:{}", receiving as u8)
}

/// Runs what [`request`] asked for, and prints the report.
///
/// # Errors
/// Another request, or the run fails.
pub fn work(request: &str, seed: u64) -> Result<()> {
    let request = request.strip_prefix(WORK).context("not a request for both")?;
    let (count, polled) = request.split_once(':').context("no way to receive")?;
    let receiving = Receiving::ALL.into_iter().find(|receiving| (*receiving as u8).to_string() == polled);
    let options = Options { seed, ..receiving.context("no such way to receive")?.options(false) };
    let (run, ..) = both(&workspace::image_path(), count.parse()?, &options)?;
    image::print(run)
}

/// Runs so many writes of 1 MiB, and as many bytes of TCP.
fn both(path: &Path, count: u64, options: &Options) -> Result<(Run, BenchResult, BenchResult)> {
    measure::run_both(path, writes(count), count * u64::from(MESSAGE), options)
}

/// Measures how the two ways to receive differ: instructions and interrupts of both hosts, and the time of a small write beside TCP.
///
/// # Errors
/// A run fails.
pub fn polled(path: &Path, say: &impl Fn(String), figures: &mut Vec<Figure>) -> Result<()> {
    count(path, Orders::ONE, say, figures)?;
    small_writes(path, say, figures)
}

/// Counts what RDMA and TCP cost at the same time, in virtual time.
///
/// # Errors
/// A run fails.
pub fn count(path: &Path, orders: Orders, say: &impl Fn(String), figures: &mut Vec<Figure>) -> Result<()> {
    say("RDMA and TCP at the same time: instructions".into());
    let symbols = Symbols::read(&path.with_extension("pdb")).context("the image has no PDB")?;
    figures.extend(orders::means(orders.instructions, |seed| divided(seed, &symbols))?);
    say("RDMA and TCP, polled by NDIS: instructions".into());
    figures.extend(orders::means(orders.instructions, polled_instructions)?);
    for receiving in Receiving::ALL {
        say(format!("RDMA and TCP, received {receiving}"));
        figures.extend(orders::means(orders.events, |seed| interrupts(path, receiving, seed))?);
    }
    Ok(())
}

/// Counts the instructions of both hosts that NDIS polls.
fn polled_instructions(seed: u64) -> Result<Vec<Figure>> {
    let requests = LENGTHS.map(|count| request(count, Receiving::Polled));
    let counts = image::instructions_between(requests, seed)?;
    let figure = |(side, count): (&str, f64)| of_both(Receiving::Polled, side, count / blocks());
    Ok(["initiator", "target"].into_iter().zip(counts).map(figure).collect())
}

/// Counts the interrupts of both hosts.
fn interrupts(path: &Path, receiving: Receiving, seed: u64) -> Result<Vec<Figure>> {
    let options = Options { seed, ..receiving.options(false) };
    let [short, long] = image::counters(LENGTHS, |count| Ok(both(path, count, &options)?.0))?;
    let sides = ["initiator", "target"].into_iter().zip(short.into_iter().zip(long));
    let figure = |(side, (short, long)): (&str, (HostCounters, HostCounters))| {
        let interrupts = 1000.0 * (long.interrupts - short.interrupts) as f64 / image::frames(&short, &long);
        let name = format!("RDMA and TCP, received {receiving}, {side}, interrupts per 1000 frames");
        Figure::counted(name, interrupts, Unit::PerPacket)
    };
    Ok(sides.map(figure).collect())
}

/// Adds the time of a small write beside TCP, with each way to receive in turn.
fn small_writes(path: &Path, say: &impl Fn(String), figures: &mut Vec<Figure>) -> Result<()> {
    say("small writes beside TCP".into());
    let mut best = [f64::INFINITY; 2];
    let mut rates = [0.0_f64; 2];
    for _ in 0..TURNS {
        for (at, receiving) in Receiving::ALL.into_iter().enumerate() {
            let options = receiving.options(true);
            let (_, of_rdma, of_tcp) = measure::run_both(path, Work::Writes(SMALL), BESIDE, &options)?;
            best[at] = best[at].min(of_rdma.elapsed.as_secs_f64() / of_rdma.operations as f64);
            rates[at] = rates[at].max(of_tcp.bytes_per_second());
        }
    }
    for (at, receiving) in Receiving::ALL.into_iter().enumerate() {
        let name = format!("a 4 KiB write beside TCP, received {receiving}, real time");
        figures.push(Figure::new(name, best[at] * 1e9, Unit::Nanoseconds));
        let name = format!("TCP beside it, received {receiving}, real time");
        figures.push(Figure::new(name, rates[at], Unit::BytesPerSecond));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instruction_is_that_of_the_innermost_function_of_the_driver() {
        assert_eq!(
            part(
                "core::ptr::read (mod.rs:1) in roce::transport::run (run.rs:3) in viordma::miniport::dpc::run+0x1"
            ),
            0
        );
        assert_eq!(part("virtio_net::ring::add (ring.rs:1) in roce::transport::run+0x1"), 1);
        assert_eq!(part("memcpy+0x1"), 2);
        assert_eq!(part(""), 2);
    }
}
