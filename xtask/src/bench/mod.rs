//! `cargo xtask bench`: figures, not a test. Everything is measured in this run, on this machine, and stands beside
//! what the same run could do at best, and beside its goal.
//!
//! Rates are per second of the measuring thread's processor time, so that other work on the machine takes little
//! away from them; what goes through the image takes several threads and is in real time.

pub mod allocations;
mod bound;
mod clock;
mod engine;
mod instructions;
mod pair;
mod plot;
mod scale;

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use console::style;
use indicatif::ProgressBar;
use serde_json::{Value, json};
use viordma_tests::measure::{self, Work};

/// Each figure is measured for so long, after as much to warm up.
const TIME: Duration = Duration::from_millis(1500);
const MESSAGE: u32 = 1 << 20;
const SMALL: u32 = 64;
/// How far the cost of a packet may rise from the fewest queue pairs to the most.
const FLAT: f64 = 1.2;

#[derive(clap::Args)]
pub struct Options {
    /// Also write the figures to this file
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
    /// Draw goodput over loss, cost over queue pairs and ways to compute the CRC, as SVG files in this directory
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
    /// Leave out what goes through the driver's image
    #[arg(long)]
    engine: bool,
    /// Keep this run's instruction counts as the baseline of later runs
    #[arg(long)]
    keep_baseline: bool,
    /// Do the work whose instructions are counted, and nothing else
    #[arg(long, hide = true)]
    under_callgrind: bool,
}

/// One line of the report.
#[derive(Default)]
struct Figure {
    name: String,
    value: f64,
    unit: Unit,
    /// The same run's bound in the registers that a driver may use.
    bound: Option<f64>,
    /// The same with a library's CRC, which may use AVX.
    library_bound: Option<f64>,
    /// At least so much is wanted.
    goal: Option<f64>,
    /// At most so much is wanted.
    limit: Option<f64>,
}

#[derive(Clone, Copy, Default)]
enum Unit {
    #[default]
    BytesPerSecond,
    PerSecond,
    PerPacket,
    Nanoseconds,
    Bytes,
    Instructions,
}

pub fn run(options: &Options) -> Result<()> {
    if options.under_callgrind {
        return instructions::work();
    }
    let spinner = ProgressBar::new_spinner();
    spinner.enable_steady_tick(Duration::from_millis(100));
    let say = |what: String| spinner.set_message(what);
    let mut figures = Vec::new();
    engine::measure(&say, &mut figures)?;
    let points = scale::measure(TIME, |count| say(format!("engine: {count} queue pairs")))?;
    figures.extend(over_queue_pairs(&points));
    say("instructions, by callgrind".into());
    let counts = instructions::count()?;
    figures.extend(counted(&counts)?);
    if !options.engine {
        say("building the image".into());
        let image = crate::image::built()?;
        through_the_image(&image, &say, &mut figures)?;
    }
    if let Some(directory) = &options.plot {
        plot::draw(directory, &points, &say)?;
    }
    spinner.finish_and_clear();
    for figure in &figures {
        println!("{}", figure.line());
    }
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(&json(&figures))? + "\n";
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if options.keep_baseline {
        return instructions::keep(&counts);
    }
    // Other figures depend on the machine and on what else it does; these do not.
    let worse = figures.iter().filter(|figure| matches!(figure.unit, Unit::Instructions) && figure.misses());
    let worse: Vec<&str> = worse.map(|figure| figure.name.as_str()).collect();
    if worse.is_empty() { Ok(()) } else { bail!("more instructions than the baseline: {}", worse.join(", ")) }
}

/// What a packet costs, whatever else is connected.
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
    if let Some(last) = points.last() {
        let name = format!("memory of an idle queue pair, depth {}", scale::DEPTH);
        figures.push(Figure::new(name, last.memory, Unit::Bytes));
    }
    figures
}

fn counted(counts: &instructions::Counts) -> Result<Vec<Figure>> {
    let baseline = instructions::baseline()?;
    let figure = |(name, count): (&String, &f64)| {
        let limit = baseline.get(name).map(|count| count * (1.0 + instructions::TOLERANCE));
        Figure { limit, ..Figure::new(format!("instructions, {name}"), *count, Unit::Instructions) }
    };
    Ok(counts.iter().map(figure).collect())
}

/// The driver image on two simulated hosts, in real time, with the verifier off.
fn through_the_image(image: &Path, say: &impl Fn(String), figures: &mut Vec<Figure>) -> Result<()> {
    say("image: 1 MiB writes".into());
    let bound = figures.get(1).map(|figure| figure.value);
    let library_bound = figures.first().map(|figure| figure.value);
    let work = Work::Writes { count: 512, size: MESSAGE as usize, outstanding: 8 };
    let rate = measure::run(image, work)?.bytes_per_second();
    let figure = Figure::new("image, 1 MiB writes, path MTU 4096", rate, Unit::BytesPerSecond);
    figures.push(Figure { bound, library_bound, ..figure });
    say("image: 64-byte sends".into());
    let work = Work::Sends { count: 200_000, size: SMALL as usize };
    let rate = measure::run(image, work)?.operations_per_second();
    figures.push(Figure::new("image, 64-byte sends", rate, Unit::PerSecond));
    Ok(())
}

/// How much of something `work` does per second of processor time; it returns how much it did.
fn rate_of(time: Duration, mut work: impl FnMut() -> f64) -> f64 {
    let mut once = |time: Duration| {
        let (start, mut total) = (clock::now(), 0.0);
        loop {
            total += work();
            let elapsed = clock::since(start);
            if elapsed >= time {
                return total / elapsed.as_secs_f64();
            }
        }
    };
    once(time / 4);
    once(time)
}

impl Figure {
    fn new(name: impl Into<String>, value: f64, unit: Unit) -> Self {
        Self { name: name.into(), value, unit, ..Self::default() }
    }

    /// Whether the value is on the wrong side of its goal.
    fn misses(&self) -> bool {
        self.goal.is_some_and(|goal| self.value < goal) || self.limit.is_some_and(|limit| self.value > limit)
    }

    fn line(&self) -> String {
        let text = |value: f64| match self.unit {
            Unit::BytesPerSecond => format!("{:.2} GiB/s", value / f64::from(1 << 30)),
            Unit::PerSecond => format!("{value:.0} /s"),
            Unit::PerPacket => format!("{value:.3}"),
            Unit::Nanoseconds => format!("{value:.0} ns"),
            Unit::Bytes => format!("{value:.0} B"),
            Unit::Instructions => format!("{value:.0}"),
        };
        let percent = |bound: f64| 100.0 * self.value / bound;
        let mut line = format!("  {:<56}{:>14}", self.name, text(self.value));
        if let Some(bound) = self.bound {
            line += &style(format!("  {:.0} % of the bound", percent(bound))).bold().to_string();
        }
        if let Some(bound) = self.library_bound {
            let _ = write!(line, ", {:.0} % of crc32fast's", percent(bound));
        }
        let wanted = match (self.goal, self.limit) {
            (Some(goal), _) => format!("  goal: {} or more", text(goal)),
            (_, Some(limit)) => format!("  goal: {} or less", text(limit)),
            _ => return line,
        };
        let wanted = if self.misses() { style(wanted).red() } else { style(wanted).green() };
        line + &wanted.to_string()
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
                Unit::Nanoseconds => "ns",
                Unit::Bytes => "B",
                Unit::Instructions => "instructions",
            };
            json!({ "name": figure.name, "value": figure.value, "unit": unit, "bound": figure.bound,
                "library_bound": figure.library_bound, "goal": figure.goal, "limit": figure.limit })
        })
        .collect()
}
