//! `cargo xtask bench`: figures, not a test. Everything is measured in this run, on this machine, and stands beside
//! what the same run could do at best.

pub mod allocations;
mod bound;
mod pair;

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use console::style;
use indicatif::ProgressBar;
use roce::{icrc::Crc, wire::PathMtu};
use serde_json::{Value, json};
use viordma_tests::measure::{self, Work};

use self::pair::Pair;

/// Each figure is measured for so long, after as much to warm up.
const TIME: Duration = Duration::from_millis(1500);
const MESSAGE: u32 = 1 << 20;
const SMALL: u32 = 64;

#[derive(clap::Args)]
pub struct Options {
    /// Also write the figures to this file
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
}

/// One line of the report.
struct Figure {
    name: String,
    value: f64,
    unit: Unit,
    /// The same run's bound in the registers that a driver may use.
    bound: Option<f64>,
    /// The same with a library's CRC, which may use AVX.
    library_bound: Option<f64>,
}

#[derive(Clone, Copy)]
enum Unit {
    BytesPerSecond,
    PerSecond,
    PerPacket,
}

pub fn run(options: &Options) -> Result<()> {
    let spinner = ProgressBar::new_spinner();
    spinner.enable_steady_tick(Duration::from_millis(100));
    let mut figures = Vec::new();
    engine(&spinner, &mut figures)?;
    spinner.set_message("building the image");
    let image = crate::image::built()?;
    through_the_image(&image, &spinner, &mut figures)?;
    spinner.finish_and_clear();
    for figure in &figures {
        println!("{}", figure.line());
    }
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(&json(&figures))? + "\n";
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// The engine alone: two of them on one thread, frames handed over in memory.
fn engine(spinner: &ProgressBar, figures: &mut Vec<Figure>) -> Result<()> {
    spinner.set_message("bound by a library");
    let library = bound::with_library(TIME);
    figures.push(Figure::new("copy and CRC, both sides (crc32fast)".into(), library, Unit::BytesPerSecond));
    for crc in [Crc::clmul(), Some(Crc::table())].into_iter().flatten() {
        let name = crc.name();
        spinner.set_message(format!("engine, {name}: bound"));
        let bound = bound::with(crc, TIME);
        figures.push(Figure::new(format!("copy and CRC, both sides ({name})"), bound, Unit::BytesPerSecond));

        spinner.set_message(format!("engine, {name}: 1 MiB writes"));
        let mut pair = Pair::connect(crc, PathMtu::Bytes4096, MESSAGE as usize)?;
        let mut error = None;
        let rate = rate_of(TIME, || {
            error = pair.write(MESSAGE, 16).err().or(error.take());
            16.0 * f64::from(MESSAGE)
        });
        error.map_or(Ok(()), Err)?;
        let name = format!("engine, 1 MiB writes, path MTU 4096 ({name})");
        let library_bound = (crc != Crc::table()).then_some(library);
        let figure = Figure::new(name, rate, Unit::BytesPerSecond);
        figures.push(Figure { bound: Some(bound), library_bound, ..figure });
        figures.push(allocations_per_packet("writes", &mut pair, |pair| pair.write(MESSAGE, 64))?);
    }
    spinner.set_message("engine: 64-byte sends");
    let mut pair = Pair::connect(Crc::detect(), PathMtu::Bytes4096, MESSAGE as usize)?;
    let mut error = None;
    let rate = rate_of(TIME, || {
        error = pair.send(SMALL, 10_000).err().or(error.take());
        10_000.0
    });
    error.map_or(Ok(()), Err)?;
    figures.push(Figure::new("engine, 64-byte sends".into(), rate, Unit::PerSecond));
    figures.push(allocations_per_packet("sends", &mut pair, |pair| pair.send(SMALL, 10_000))?);
    Ok(())
}

/// The driver image on two simulated hosts, in real time, with the verifier off.
fn through_the_image(image: &Path, spinner: &ProgressBar, figures: &mut Vec<Figure>) -> Result<()> {
    spinner.set_message("image: 1 MiB writes");
    let bound = figures.get(1).map(|figure| figure.value);
    let library_bound = figures.first().map(|figure| figure.value);
    let work = Work::Writes { count: 512, size: MESSAGE as usize, outstanding: 8 };
    let rate = measure::run(image, work)?.bytes_per_second();
    let name = "image, 1 MiB writes, path MTU 4096".into();
    figures.push(Figure { bound, library_bound, ..Figure::new(name, rate, Unit::BytesPerSecond) });
    spinner.set_message("image: 64-byte sends");
    let work = Work::Sends { count: 200_000, size: SMALL as usize };
    let rate = measure::run(image, work)?.operations_per_second();
    figures.push(Figure::new("image, 64-byte sends".into(), rate, Unit::PerSecond));
    Ok(())
}

fn allocations_per_packet(
    what: &str,
    pair: &mut Pair,
    work: impl Fn(&mut Pair) -> Result<()>,
) -> Result<Figure> {
    let (frames, before) = (pair.frames(), allocations::count());
    work(pair)?;
    let (frames, allocations) = (pair.frames() - frames, allocations::count() - before);
    let value = allocations as f64 / frames.max(1) as f64;
    Ok(Figure::new(format!("engine, allocations per packet, {what}"), value, Unit::PerPacket))
}

/// How much of something `work` does per second; it returns how much it did.
fn rate_of(time: Duration, mut work: impl FnMut() -> f64) -> f64 {
    let mut once = |time: Duration| {
        let (start, mut total) = (Instant::now(), 0.0);
        loop {
            total += work();
            let elapsed = start.elapsed();
            if elapsed >= time {
                return total / elapsed.as_secs_f64();
            }
        }
    };
    once(time / 4);
    once(time)
}

impl Figure {
    fn new(name: String, value: f64, unit: Unit) -> Self {
        Self { name, value, unit, bound: None, library_bound: None }
    }

    fn line(&self) -> String {
        let value = match self.unit {
            Unit::BytesPerSecond => format!("{:>9.2} GiB/s", self.value / f64::from(1 << 30)),
            Unit::PerSecond => format!("{:>9.0} /s", self.value),
            Unit::PerPacket => format!("{:>9.3}", self.value),
        };
        let percent = |bound: f64| 100.0 * self.value / bound;
        let share = self.bound.map_or(String::new(), |bound| {
            style(format!("{:.0} % of the bound", percent(bound))).bold().to_string()
        });
        let library = self
            .library_bound
            .map_or(String::new(), |bound| format!(", {:.0} % of crc32fast's", percent(bound)));
        format!("  {:<52}{value:<18}{share}{library}", self.name)
    }
}

fn json(figures: &[Figure]) -> Value {
    figures
        .iter()
        .map(|figure| {
            let unit = match figure.unit {
                Unit::BytesPerSecond => "B/s",
                Unit::PerSecond => "1/s",
                Unit::PerPacket => "1/packet",
            };
            json!({ "name": figure.name, "value": figure.value, "unit": unit, "bound": figure.bound,
                "library_bound": figure.library_bound })
        })
        .collect()
}
