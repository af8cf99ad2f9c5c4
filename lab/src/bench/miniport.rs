// SPDX-License-Identifier: MIT OR Apache-2.0

//! A miniport driver of others beside viordma, on the simulated device and opposite viordma: what a frame of 1514 bytes costs each
//! way. In virtual time, so that the figures do not depend on the load of the machine; except for the frames per second, which the two
//! drivers are measured for by turns.

use std::{path::Path, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};

use super::{
    baseline::{self, Counts},
    callgrind,
    figure::{Figure, Unit},
    kernel,
};
use crate::{
    consumer::Limit,
    miniport::load::{self, Counted, Direction, Load, Took},
    workspace,
};

/// Prefix of the counted runs' names.
pub const WORK: &str = "miniport:";

/// The lengths of the two runs that are subtracted.
const LENGTHS: [u64; 2] = [400, 1000];

/// Runs of each driver in real time, of which the fastest counts.
const RUNS: usize = 5;

/// Name of the count of an image by callgrind.
const INSTRUCTIONS: &str = "instructions of the image per frame";

/// A case: frames in one direction, seen from the measured driver, in one pattern.
#[derive(Clone, Copy)]
struct Case {
    way: &'static str,
    direction: Direction,
    pattern: &'static str,
    chain: usize,
    outstanding: usize,
    /// Frames of a run in real time.
    timed: u64,
}

/// Returns the cases.
fn cases() -> impl Iterator<Item = Case> {
    [("transmitted", Direction::Transmit), ("received", Direction::Receive)].into_iter().flat_map(
        |(way, direction)| {
            [("one at a time", 1, 1, 10_000), ("chains of 16, 64 at a time", 16, 64, 50_000)].map(
                |(pattern, chain, outstanding, timed)| Case {
                    way,
                    direction,
                    pattern,
                    chain,
                    outstanding,
                    timed,
                },
            )
        },
    )
}

impl Case {
    fn name(self) -> String {
        format!("frames {}, {}", self.way, self.pattern)
    }

    fn load(self, count: u64) -> Load {
        Load { direction: self.direction, count, chain: self.chain, outstanding: self.outstanding }
    }
}

const BASELINE: &str = "miniport.toml";

/// A comparison, besides its figures. See [`measure`].
pub struct Compared {
    /// The counts of viordma.
    pub counts: Counts,
    /// Reasons why something could not be measured.
    omitted: Vec<String>,
    /// The rows in which viordma needs more than the other driver.
    behind: Vec<String>,
    /// The CPU time of an access to `cr8`, in seconds, once it was measured.
    cr8: Option<f64>,
}

impl Compared {
    /// Prints what was not measured, and where viordma is behind.
    pub fn print(&self) {
        for reason in &self.omitted {
            println!("  {reason}");
        }
        match self.behind.as_slice() {
            [] => println!("viordma is behind in no row"),
            rows => println!("viordma is behind in: {}", rows.join("; ")),
        }
    }
}

/// Measures the driver `image` and viordma, by turns, in each case: a direction and a pattern. A driver that does not end is given up after
/// `limit` of real time.
///
/// # Errors
/// A run in virtual time fails.
pub fn measure(
    image: &Path,
    limit: Duration,
    say: &impl Fn(String),
    figures: &mut Vec<Figure>,
) -> Result<Compared> {
    let limit = Limit::watched(limit);
    let viordma = workspace::built_image()?;
    let baseline = baseline::read(BASELINE)?;
    let mut compared = Compared { counts: Counts::new(), omitted: Vec::new(), behind: Vec::new(), cr8: None };
    for case in cases() {
        say(format!("{}: {}", name(image), case.name()));
        limit.begin(format!("{}: {}", name(image), case.name()));
        let counted = load::run(image, &viordma, case.load(LENGTHS[1]))?;
        limit.end();
        let accesses = counted.irql_accesses as f64 / counted.frames as f64;
        let mut of_image = of_queues(&counted).to_vec();
        match instructions_per_frame(image, case) {
            Ok(value) => of_image.push((INSTRUCTIONS, value)),
            Err(error) => compared.omitted.push(format!(
                "{}, {}: {INSTRUCTIONS}: not counted: {error:#}",
                name(image),
                case.name()
            )),
        }
        for &(event, value) in &of_image {
            let name = format!("{}, {}: {event}", name(image), case.name());
            figures.push(Figure::new(name, value, unit(event)));
        }
        let of_viordma = count_case(&viordma, case, &baseline, say, figures, &mut compared.counts)?;
        for (event, value) in of_viordma {
            let other = of_image.iter().find(|(name, _)| *name == event);
            if other.is_some_and(|(_, other)| value > *other) {
                compared.behind.push(format!("{}: {event}", case.name()));
            }
        }
        rates([image, &viordma], case, accesses, &limit, say, figures, &mut compared)?;
    }
    Ok(compared)
}

/// Counts what frames cost viordma, in virtual time, without another driver. The baseline is that of [`measure`]. Returns the counts.
///
/// # Errors
/// A run fails.
pub fn count_viordma(say: &impl Fn(String), figures: &mut Vec<Figure>) -> Result<Counts> {
    let viordma = workspace::built_image()?;
    let baseline = baseline::read(BASELINE)?;
    let mut counts = Counts::new();
    for case in cases() {
        count_case(&viordma, case, &baseline, say, figures, &mut counts)?;
    }
    Ok(counts)
}

/// Writes the baseline for later runs.
///
/// # Errors
/// The file cannot be written.
pub fn keep(counts: &Counts) -> Result<()> {
    let what = "What frames of 1514 bytes cost viordma, in virtual time";
    baseline::keep(BASELINE, what, "cargo xtask bench --miniport IMAGE.sys", counts)
}

/// Events per 1000 frames.
fn of_queues(counted: &Counted) -> [(&'static str, f64); 2] {
    let share = |count: u64| 1000.0 * count as f64 / counted.frames.max(1) as f64;
    [
        ("notifications per 1000 frames", share(counted.notifications)),
        ("interrupts per 1000 frames", share(counted.interrupts)),
    ]
}

/// Counts what a frame of a case costs viordma: events and instructions.
fn count_case(
    viordma: &Path,
    case: Case,
    baseline: &Counts,
    say: &impl Fn(String),
    figures: &mut Vec<Figure>,
    counts: &mut Counts,
) -> Result<Vec<(&'static str, f64)>> {
    say(format!("viordma: {}", case.name()));
    let mut counted = of_queues(&load::run(viordma, viordma, case.load(LENGTHS[1]))?).to_vec();
    counted.push((INSTRUCTIONS, instructions_per_frame(viordma, case)?));
    for &(event, value) in &counted {
        let name = format!("viordma, {}: {event}", case.name());
        let figure = Figure::new(name.clone(), value, unit(event));
        figures.push(baseline::limited(baseline, &name, figure));
        counts.insert(name, value);
    }
    Ok(counted)
}

fn unit(event: &str) -> Unit {
    if event == INSTRUCTIONS { Unit::Instructions } else { Unit::PerPacket }
}

/// Returns the instructions of an image for a frame.
fn instructions_per_frame(path: &Path, case: Case) -> Result<f64> {
    let [short, long] = LENGTHS.map(|count| instructions(path, case, count));
    Ok((long? - short?) as f64 / (LENGTHS[1] - LENGTHS[0]) as f64)
}

/// Adds frames per second in real time, and the CPU time of a frame, of which a busy machine changes less: those of another driver's image and of
/// viordma's. A driver with inlined functions of the kernel that change the IRQL takes a signal for each here, and none on Windows: how many
/// there are, what they take, and the ratio without their time are added, too.
fn rates(
    images: [&Path; 2],
    case: Case,
    accesses: f64,
    limit: &Limit,
    say: &impl Fn(String),
    figures: &mut Vec<Figure>,
    compared: &mut Compared,
) -> Result<()> {
    let (case_name, other) = (case.name(), name(images[0]));
    say(format!("{case_name}, in real time"));
    let mut best = [Best::default(), Best::default()];
    for _ in 0..RUNS {
        for (path, best) in images.into_iter().zip(&mut best) {
            limit.begin(format!("{}: {case_name}, in real time", name(path)));
            best.add(load::in_real_time(path, images[1], case.load(case.timed)));
            limit.end();
        }
    }
    for (path, best) in images.into_iter().zip(&best) {
        let name = format!("{}, {case_name}, real time", name(path));
        compared.omitted.extend(best.failures(&name));
        let Some(took) = best.took else { continue };
        figures.push(Figure::new(name.clone(), 1.0 / took.time, Unit::PerSecond));
        let name = format!("{name}, CPU time of all threads per frame");
        figures.push(Figure::new(name, took.cpu * 1e9, Unit::Nanoseconds));
    }
    let [Some(of_image), Some(of_viordma)] = best.map(|best| best.took) else { return Ok(()) };
    let mut ratios = vec![
        ("per second", of_image.time / of_viordma.time),
        ("per CPU time", of_image.cpu / of_viordma.cpu),
    ];
    if accesses >= 0.5 {
        let each = if let Some(each) = compared.cr8 {
            each
        } else {
            say("the time of an access to cr8".into());
            let each = kernel::irql_access(&workspace::built_test_driver()?)?;
            figures.push(Figure::new("an access to cr8, CPU time", each * 1e9, Unit::Nanoseconds));
            *compared.cr8.insert(each)
        };
        let without = (of_image.cpu - accesses * each) / of_viordma.cpu;
        ratios.push(("per CPU time without accesses to cr8", without));
        let name = format!("{other}, {case_name}: accesses to cr8 per frame");
        figures.push(Figure::new(name, accesses, Unit::PerPacket));
    }
    for (what, value) in ratios {
        let name = format!("viordma, {case_name}, against {other}: {what}");
        figures.push(Figure { goal: Some(1.0), ..Figure::new(name, value, Unit::Times) });
        if value < 1.0 {
            compared.behind.push(format!("{case_name}: {what}"));
        }
    }
    Ok(())
}

/// The fastest of several runs in real time, in which a busy machine can lose a frame.
#[derive(Default)]
struct Best {
    took: Option<Took>,
    runs: usize,
    errors: Vec<String>,
}

impl Best {
    fn add(&mut self, run: Result<Took>) {
        self.runs += 1;
        match run {
            Ok(took) => {
                let best = self.took.unwrap_or(took);
                self.took = Some(Took { time: best.time.min(took.time), cpu: best.cpu.min(took.cpu) });
            }
            Err(error) => self.errors.push(format!("{error:#}").trim_end().to_owned()),
        }
    }

    /// Returns a sentence about the runs that failed, if some did.
    fn failures(&self, name: &str) -> Option<String> {
        let first = self.errors.first()?;
        Some(format!("{name}: {} of {} runs failed: {first}", self.errors.len(), self.runs))
    }
}

fn name(path: &Path) -> String {
    path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned())
}

/// Returns the instructions of the image in a run under callgrind.
fn instructions(image: &Path, case: Case, count: u64) -> Result<u64> {
    let Case { way, chain, .. } = case;
    let work = format!("{WORK}{way}:{chain}:{count}:{}", image.display());
    let profile = callgrind::run(&callgrind::BY_INSTRUCTION, &work)?;
    let report = profile.output.lines().last().context("the run printed nothing")?;
    let counted: Counted = serde_json::from_str(report).context("the run printed no report")?;
    let instructions = profile.instructions_at(&counted.image);
    ensure!(instructions > 0, "callgrind did not see the image");
    Ok(instructions)
}

/// Runs what [`instructions`] asked for, `miniport:WAY:CHAIN:COUNT:IMAGE`, and prints the report.
///
/// # Errors
/// Another request, or the run fails.
pub fn work(request: &str) -> Result<()> {
    let request = request.strip_prefix(WORK).context("not a request for a miniport")?;
    let parts: Vec<&str> = request.splitn(4, ':').collect();
    let [way, chain, count, image] = parts[..] else { bail!("a part of the request is missing") };
    let (chain, count) = (chain.parse::<usize>()?, count.parse()?);
    let case = cases().find(|case| case.way == way && case.chain == chain);
    let case = case.with_context(|| format!("no case has chains of {chain} {way}"))?;
    let counted = load::run(Path::new(image), &workspace::image_path(), case.load(count))?;
    println!("{}", serde_json::to_string(&counted)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn run_that_loses_frames_is_counted_and_the_others_are_kept() {
        let mut best = Best::default();
        best.add(Err(anyhow!("49023 of 50000 frames arrived")));
        assert!(best.took.is_none());
        for (time, cpu) in [(3.0, 1.0), (2.0, 4.0)] {
            best.add(Ok(Took { time, cpu }));
        }
        assert_eq!(best.took.map(|took| (took.time, took.cpu)), Some((2.0, 1.0)));
        let failures = best.failures("a driver").unwrap();
        assert_eq!(failures, "a driver: 1 of 3 runs failed: 49023 of 50000 frames arrived");
        assert_eq!(Best::default().failures("a driver"), None);
    }
}
