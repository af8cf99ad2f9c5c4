// SPDX-License-Identifier: MIT OR Apache-2.0

//! RDMA and TCP at the same time on one device of each host, and what polling by NDIS changes for both.
//!
//! CPU time of threads that serve both cannot be divided between them. The instructions of the image can, by the functions that they are
//! in: those of the engine and of the provider are RDMA's. All others serve both.

use std::{collections::BTreeMap, fmt, path::Path};

use anyhow::{Context as _, Result, ensure};
use ndis_sim::Keyword;
use nt_sim::image::symbols::Symbols;

use super::{
    figure::{Figure, MESSAGE, Unit},
    image::{self, HostReport},
};
use crate::{
    measure::{self, BenchResult, Run, Transfers, Work},
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
    divided(path, figures)
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

/// Adds the instructions of the image of both hosts for 4 KiB, by function.
fn divided(path: &Path, figures: &mut Vec<Figure>) -> Result<()> {
    let symbols = Symbols::read(&path.with_extension("pdb")).context("the image has no PDB")?;
    let [short, long] =
        LENGTHS.map(|count| counted(&format!("{WORK}{count}:{}", Receiving::InDpc as u8), &symbols));
    let (short, long) = (short?, long?);
    for (side, name) in ["initiator", "target"].into_iter().enumerate() {
        for (part, what) in
            ["RDMA's functions", "others of the driver", "memory and others"].into_iter().enumerate()
        {
            let value = (long[side][part] - short[side][part]) as f64 / blocks();
            let name = format!("RDMA and TCP at the same time, {name}, {what}, for 4 KiB of each");
            figures.push(Figure::counted(name, value, Unit::Instructions));
        }
    }
    Ok(())
}

/// Returns the instructions of each host's image: of RDMA's functions, of others of the driver, of functions of libraries and without name.
fn counted(work: &str, symbols: &Symbols) -> Result<[[u64; 3]; 2]> {
    let (profile, hosts) = image::profiled(work)?;
    Ok(hosts.map(|HostReport { image, .. }| {
        let mut counts = BTreeMap::<u32, u64>::new();
        for (address, count) in profile.at(&image) {
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
    }))
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

/// Runs what [`divided`] asked for, `both:COUNT:POLLED`, and prints the report.
///
/// # Errors
/// Another request, or the run fails.
pub fn work(request: &str) -> Result<()> {
    let request = request.strip_prefix(WORK).context("not a request for both")?;
    let (count, polled) = request.split_once(':').context("no way to receive")?;
    let receiving = Receiving::ALL.into_iter().find(|receiving| (*receiving as u8).to_string() == polled);
    let options = receiving.context("no such way to receive")?.options(false);
    let count: u64 = count.parse()?;
    let bytes = count * u64::from(MESSAGE);
    let (run, ..) = measure::run_both(&workspace::image_path(), writes(count), bytes, &options)?;
    image::print(run)
}

/// Measures how the two ways to receive differ: instructions and interrupts of both hosts, and the time of a small write beside TCP.
///
/// # Errors
/// A run fails.
pub fn polled(path: &Path, say: &impl Fn(String), figures: &mut Vec<Figure>) -> Result<()> {
    count_polled(say, figures)?;
    small_writes(path, say, figures)
}

/// Counts what RDMA and TCP cost at the same time, in virtual time.
///
/// # Errors
/// A run fails.
pub fn count(path: &Path, say: &impl Fn(String), figures: &mut Vec<Figure>) -> Result<()> {
    say("RDMA and TCP at the same time: instructions".into());
    divided(path, figures)?;
    count_polled(say, figures)
}

fn count_polled(say: &impl Fn(String), figures: &mut Vec<Figure>) -> Result<()> {
    for receiving in Receiving::ALL {
        say(format!("RDMA and TCP, received {receiving}"));
        let [short, long] = LENGTHS.map(|count| image::costs(&format!("{WORK}{count}:{}", receiving as u8)));
        let (short, long) = (short?, long?);
        for (side, name) in ["initiator", "target"].into_iter().enumerate() {
            let name = format!("RDMA and TCP, received {receiving}, {name}");
            let (less, more) = (&short[side], &long[side]);
            let instructions = (more.instructions - less.instructions) as f64 / blocks();
            figures.push(Figure::counted(
                format!("{name}, instructions for 4 KiB of each"),
                instructions,
                Unit::Instructions,
            ));
            let interrupts = (more.counters.interrupts - less.counters.interrupts) as f64;
            let frames = more.counters.sent_frames + more.counters.received_frames
                - less.counters.sent_frames
                - less.counters.received_frames;
            ensure!(frames > 0, "no frames");
            let interrupts = 1000.0 * interrupts / frames as f64;
            figures.push(Figure::counted(
                format!("{name}, interrupts per 1000 frames"),
                interrupts,
                Unit::PerPacket,
            ));
        }
    }
    Ok(())
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
