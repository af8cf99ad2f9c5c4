// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask bench`: benchmarks. Each figure is printed with an upper bound measured in the same run on the same
//! machine, and with its goal.
//!
//! Rates are per second of the measuring thread's CPU time, so that other load on the machine has little effect.
//! Figures of the image involve several threads and are in real time.

pub mod allocations;
mod baseline;
mod bound;
mod callgrind;
mod cores;
mod engine;
mod ethernet;
mod figure;
mod image;
mod instructions;
mod kernel;
mod linux;
mod listing;
mod miniport;
mod orders;
mod plot;
mod scale;
mod shared;
mod smb;
mod tcp;
mod two_hosts;

use std::{
    fs,
    io::{self, IsTerminal as _},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use indicatif::ProgressBar;

use self::{
    figure::{Figure, TIME, Unit},
    orders::Orders,
};
use crate::{
    consumer::script::duration,
    driver_file::DriverFile,
    exit::Exit,
    files::{self, Named, Output},
    workspace,
};

/// Goal: largest cost of a packet with any number of queue pairs, relative to the lowest cost.
const FLAT: f64 = 1.2;

/// Goal: cost of a packet if the largest number of queue pairs send in turn, relative to one queue pair.
const BUSY_IN_TURN: f64 = 1.5;

#[derive(clap::Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is an option of the command")]
pub struct Options {
    /// Also write the figures to this file
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
    /// Draw goodput over loss, cost over queue pairs and CRC throughput, as SVG files in this directory
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
    /// Skip the benchmarks of the driver's image
    #[arg(long)]
    engine: bool,
    /// Only measure the simulated kernel: calls of imports, DPCs
    #[arg(long, conflicts_with_all = ["engine", "plot", "keep_baseline"])]
    kernel: bool,
    /// Only measure SMB Direct through the driver's image
    #[arg(long, conflicts_with_all = ["engine", "kernel", "image", "plot", "keep_baseline"])]
    smb: bool,
    /// Only measure the driver's image
    #[arg(long, conflicts_with_all = ["engine", "kernel", "plot", "keep_baseline"])]
    image: bool,
    /// Only measure Ethernet through the driver's image: TCP, beside RDMA, and several queue pairs
    #[arg(long, conflicts_with_all = ["engine", "kernel", "image", "smb", "plot", "keep_baseline"])]
    ethernet: bool,
    /// Only measure polling by NDIS beside the driver's own DPC, under RDMA and TCP at the same time
    #[arg(long, conflicts_with_all = ["engine", "kernel", "image", "smb", "ethernet", "plot", "keep_baseline"])]
    poll: bool,
    /// Only count what the driver's image does in virtual time: instructions, interrupts, notifications
    #[arg(long, conflicts_with_all = ["engine", "kernel", "image", "smb", "ethernet", "poll", "plot"])]
    counts: bool,
    /// Only measure this miniport driver for virtio-net, a file that you bring, beside the driver's image
    #[arg(long, value_name = "IMAGE.sys", conflicts_with_all = ["engine", "kernel", "image", "counts", "plot"])]
    miniport: Option<PathBuf>,
    /// Real time after which a run of that driver is given up
    #[arg(long, value_name = "TIME", default_value = "2min", value_parser = duration, requires = "miniport")]
    limit: Duration,
    /// Only list what the instructions of the engine's paths do, by concern and by source line, as files in this directory
    #[arg(long, value_name = "DIR", conflicts_with_all = ["engine", "kernel", "image", "counts", "miniport", "plot", "keep_baseline"])]
    listing: Option<PathBuf>,
    /// Keep this run's counts as the baseline of later runs
    #[arg(long)]
    keep_baseline: bool,
    /// Run only what is counted
    #[arg(long, hide = true)]
    under_callgrind: Option<String>,
}

/// Runs the command.
///
/// # Errors
/// A benchmark or an output fails, or a count exceeds its baseline.
pub fn run(options: &Options) -> Result<()> {
    match options {
        Options { under_callgrind: Some(counted), .. } => return work(counted),
        Options { listing: Some(directory), .. } => return listing::write(directory),
        _ => (),
    }
    let json = check_outputs(options)?;
    let spinner = ProgressBar::new_spinner();
    spinner.enable_steady_tick(Duration::from_millis(100));
    // A spinner shows nothing where there is no terminal.
    let is_seen = io::stderr().is_terminal();
    let say = |what: String| if is_seen { spinner.set_message(what) } else { eprintln!("{what}") };
    let mut figures = Vec::new();
    if options.smb {
        smb::measure(&workspace::built_image()?, &say, &mut figures)?;
        spinner.finish_and_clear();
        return report(&figures, json);
    }
    if options.poll {
        shared::polled(&workspace::built_image()?, &say, &mut figures)?;
        spinner.finish_and_clear();
        return compared(&mut figures, json);
    }
    if options.counts {
        let of_frames = count(&say, &mut figures)?;
        spinner.finish_and_clear();
        if options.keep_baseline {
            baseline::keep_counted(&figures)?;
            miniport::keep(&of_frames)?;
            return report(&figures, json);
        }
        let unmatched = baseline::unmatched(&figures)?;
        compared(&mut figures, json)?;
        ensure!(unmatched.is_empty(), "only counted now, or only in the baseline: {}", unmatched.join(", "));
        return Ok(());
    }
    if options.kernel {
        kernel::measure(&workspace::built_test_driver()?, &say, &mut figures)?;
        spinner.finish_and_clear();
        return report(&figures, json);
    }
    if let Some(image) = &options.miniport {
        return beside_viordma(image, options.limit, &spinner, &say, json, options.keep_baseline);
    }
    if options.ethernet {
        let omitted = ethernet::measure(&workspace::built_image()?, &say, &mut figures)?;
        spinner.finish_and_clear();
        for reason in omitted {
            println!("  {reason}");
        }
        return compared(&mut figures, json);
    }
    if options.image {
        let image = workspace::built_image()?;
        image::measure(&image, [None; 2], &say, &mut figures)?;
        miniport::count_viordma(&say, &mut figures)?;
        smb::measure(&image, &say, &mut figures)?;
        spinner.finish_and_clear();
        return compared(&mut figures, json);
    }
    engine::measure(&say, &mut figures)?;
    let omitted = beside_tcp(&say, &mut figures);
    cores::measure(&say, &mut figures)?;
    let points = scale::measure(TIME, |count| say(format!("engine: {count} queue pairs")))?;
    figures.extend(over_queue_pairs(&points));
    say("cache lines, by callgrind".into());
    figures.push(Figure::new(
        format!("cache lines of a message, {} busy in turn", scale::COUNTS[scale::COUNTS.len() - 1]),
        scale::cache_lines()?,
        Unit::CacheLines,
    ));
    say("instructions, by callgrind".into());
    let counts = instructions::count()?;
    figures.extend(counted(&counts)?);
    if !options.engine {
        say("building the image".into());
        let image = workspace::built_image()?;
        let bounds = [1, 0].map(|at: usize| figures.get(at).map(|figure| figure.value));
        image::measure(&image, bounds, &say, &mut figures)?;
        miniport::count_viordma(&say, &mut figures)?;
        smb::measure(&image, &say, &mut figures)?;
        kernel::measure(&workspace::built_test_driver()?, &say, &mut figures)?;
    }
    if let Some(directory) = &options.plot {
        plot::draw(directory, &points, &say)?;
    }
    spinner.finish_and_clear();
    baseline::limit_counted(&mut figures)?;
    report(&figures, json)?;
    if let Some(reason) = omitted {
        println!("  {reason}");
    }
    if options.keep_baseline {
        return instructions::keep(&counts);
    }
    within_baseline(&figures)
}

/// Measures a miniport driver of the user's beside the driver's image.
fn beside_viordma(
    image: &Path,
    limit: Duration,
    spinner: &ProgressBar,
    say: &impl Fn(String),
    json: Option<Output>,
    keeps_baseline: bool,
) -> Result<()> {
    let file = DriverFile::read(image)?;
    let mut figures = Vec::new();
    let compared = miniport::measure(image, limit, say, &mut figures)?;
    spinner.finish_and_clear();
    println!("{file}");
    report(&figures, json)?;
    compared.print();
    if keeps_baseline { miniport::keep(&compared.counts) } else { within_baseline(&figures) }
}

/// Runs what callgrind counts of a process of its own.
fn work(counted: &str) -> Result<()> {
    match counted {
        instructions::WORK => instructions::work(),
        scale::WORK => scale::work(),
        of_smb if of_smb.starts_with(smb::WORK) => smb::work(of_smb),
        of_miniport if of_miniport.starts_with(miniport::WORK) => miniport::work(of_miniport),
        of_order => work_of_order(of_order),
    }
}

/// Runs a workload with one order of events, whose seed is behind `@`.
fn work_of_order(counted: &str) -> Result<()> {
    let (counted, seed) = counted.split_once('@').unwrap_or((counted, "0"));
    let seed = seed.parse().with_context(|| format!("no seed: {seed}"))?;
    match counted {
        of_tcp if of_tcp.starts_with(ethernet::WORK) => ethernet::work(of_tcp, seed),
        of_both if of_both.starts_with(shared::WORK) => shared::work(of_both, seed),
        of_image => image::work(of_image, seed),
    }
}

/// Counts what the driver's image does in virtual time. Returns the counts for frames of which other miniport drivers have some, too.
fn count(say: &impl Fn(String), figures: &mut Vec<Figure>) -> Result<baseline::Counts> {
    let image = workspace::built_image()?;
    image::count(&image, Orders::ALL, say, figures)?;
    ethernet::count(&image, Orders::ALL, say, figures)?;
    shared::count(&image, Orders::ALL, say, figures)?;
    miniport::count_viordma(say, figures)
}

/// Prints the figures, and compares those that were counted with their baseline.
fn compared(figures: &mut [Figure], json: Option<Output>) -> Result<()> {
    baseline::limit_counted(figures)?;
    report(figures, json)?;
    within_baseline(figures)
}

/// Checks what does not depend on the machine and its load: instructions, notifications and interrupts.
fn within_baseline(figures: &[Figure]) -> Result<()> {
    let is_count = |figure: &&Figure| {
        figure.sample.is_some() || matches!(figure.unit, Unit::Instructions | Unit::PerPacket)
    };
    let worse = figures.iter().filter(is_count).filter(|figure| figure.misses());
    let worse: Vec<&str> = worse.map(|figure| figure.name.as_str()).collect();
    if worse.is_empty() { Ok(()) } else { bail!("more than the baseline: {}", worse.join(", ")) }
}

/// Adds the CPU time per GiB of kernel TCP and of the engine's WRITEs, which are among the figures. Returns the reason if TCP
/// cannot be measured here.
fn beside_tcp(say: &impl Fn(String), figures: &mut Vec<Figure>) -> Option<String> {
    let rate =
        figures.iter().find(|figure| figure.name.starts_with(engine::WRITES)).map(|figure| figure.value);
    let omitted = tcp::measure(TIME, say, figures);
    if let Some(rate) = rate {
        let seconds = f64::from(1 << 30) / rate;
        let figure =
            Figure::new("engine, 1 MiB writes, CPU time of both sides", seconds, Unit::SecondsPerGib);
        figures.push(figure);
    }
    omitted
}

/// Prints the figures, and writes them to the `--json` file.
fn report(figures: &[Figure], json: Option<Output>) -> Result<()> {
    for figure in figures {
        println!("{}", figure.line());
    }
    if let Some(json) = json {
        let text = serde_json::to_string_pretty(&figure::json(figures))? + "\n";
        json.write(text.as_bytes())?;
    }
    Ok(())
}

/// Opens the `--json` file and creates the `--plot` directory before measuring.
fn check_outputs(options: &Options) -> Result<Option<Output>> {
    let pictures: Vec<PathBuf> = match &options.plot {
        Some(directory) => {
            fs::create_dir_all(directory)
                .map_err(|error| Exit::usage(format!("cannot create {}: {error}", directory.display())))?;
            plot::FILES.iter().map(|name| directory.join(name)).collect()
        }
        None => Vec::new(),
    };
    let pictures = pictures.iter().map(|path| Named { option: "a file of --plot", path });
    let json = options.json.iter().map(|path| Named { option: "--json", path });
    let outputs: Vec<Named<'_>> = pictures.chain(json).collect();
    let image = workspace::image_path();
    files::check_outputs(&[Named { option: "the driver image", path: &image }], &outputs)?;
    options.json.as_deref().map(Output::open).transpose()
}

/// Returns the costs per packet by number of connected queue pairs.
fn over_queue_pairs(points: &[scale::Point]) -> Vec<Figure> {
    let mut figures = Vec::new();
    let lowest = points.iter().map(|point| point.few).fold(f64::INFINITY, f64::min);
    for point in points {
        let name = format!(
            "cost of a packet, {} connected, {} busy",
            point.queue_pairs,
            scale::BUSY.min(point.queue_pairs)
        );
        let figure = Figure::new(name, point.few, Unit::Nanoseconds);
        figures.push(Figure { limit: Some(lowest * FLAT), ..figure });
    }
    for point in points {
        let name = format!("cost of a packet, {} connected, all busy in turn", point.queue_pairs);
        figures.push(Figure::new(name, point.all, Unit::Nanoseconds));
    }
    if let (Some(first), Some(last)) = (points.first(), points.last()) {
        let name =
            format!("cost of a packet, {} busy in turn, against {}", last.queue_pairs, first.queue_pairs);
        let figure = Figure::new(name, last.all / first.all, Unit::Times);
        figures.push(Figure { limit: Some(BUSY_IN_TURN), ..figure });
    }
    if let Some(last) = points.last() {
        let name = format!("memory of an idle queue pair, depth {}", scale::DEPTH);
        figures.push(Figure::new(name, last.memory, Unit::Bytes));
    }
    figures
}

fn counted(counts: &baseline::Counts) -> Result<Vec<Figure>> {
    let baseline = instructions::baseline()?;
    let figure = |(name, count): (&String, &f64)| {
        let figure = Figure::new(format!("instructions, {name}"), *count, Unit::Instructions);
        baseline::limited(&baseline, name, figure)
    };
    Ok(counts.iter().map(figure).collect())
}
