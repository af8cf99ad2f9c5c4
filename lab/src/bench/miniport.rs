// SPDX-License-Identifier: MIT OR Apache-2.0

//! A miniport driver of others beside viordma, on the simulated device and opposite viordma: what a frame of 1514 bytes costs each
//! way. In virtual time, so that the figures do not depend on the load of the machine; except for the frames per second, which the two
//! drivers are measured for by turns.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use super::{
    baseline::{self, Counts},
    callgrind,
    figure::{Figure, Unit},
    kernel,
};
use crate::{
    miniport::load::{self, Counted, Direction, Load, Took},
    workspace,
};

/// Prefix of the counted runs' names.
pub const WORK: &str = "miniport:";

/// The lengths of the two runs that are subtracted.
const LENGTHS: [u64; 2] = [400, 1000];

/// Frames of a run in real time, and runs of each driver, of which the fastest counts.
const TIMED: u64 = 50_000;
const RUNS: usize = 5;

/// Frames per chain, and sends at a time.
const PATTERNS: [(&str, usize, usize); 2] = [("one at a time", 1, 1), ("chains of 16, 64 at a time", 16, 64)];

const DIRECTIONS: [(&str, Direction); 2] =
    [("transmitted", Direction::Transmit), ("received", Direction::Receive)];

const BASELINE: &str = "miniport.toml";

/// Measures the driver `image` and viordma, by turns. Returns what was counted of viordma, and what could not be counted, with the reason.
///
/// # Errors
/// A run fails.
pub fn measure(
    image: &Path,
    say: &impl Fn(String),
    figures: &mut Vec<Figure>,
) -> Result<(Counts, Vec<String>)> {
    let viordma = workspace::built_image()?;
    let baseline = baseline::read(BASELINE)?;
    let (mut counts, mut omitted) = (Counts::new(), Vec::new());
    for (way, direction) in DIRECTIONS {
        let mut accesses = 0.0;
        for (pattern, chain, outstanding) in PATTERNS {
            let load = Load { direction, count: LENGTHS[1], chain, outstanding };
            say(format!("{}: frames {way}, {pattern}", name(image)));
            let counted = load::run(image, &viordma, load)?;
            for (event, value) in of_queues(&counted) {
                let name = format!("{}, frames {way}, {pattern}: {event}", name(image));
                figures.push(Figure::new(name, value, Unit::PerPacket));
            }
            accesses = counted.irql_accesses as f64 / counted.frames as f64;
            say(format!("viordma: frames {way}, {pattern}"));
            for (event, value) in of_queues(&load::run(&viordma, &viordma, load)?) {
                let name = format!("viordma, frames {way}, {pattern}: {event}");
                let figure = Figure::new(name.clone(), value, Unit::PerPacket);
                figures.push(baseline::limited(&baseline, &name, figure));
                counts.insert(name, value);
            }
        }
        omitted.extend(rates(image, &viordma, (way, direction), accesses, say, figures)?);
        let name = format!("{}, {}", name(image), instructions_name(way));
        say(name.clone());
        match per_frame(image, way) {
            Ok(value) => figures.push(Figure::new(name, value, Unit::Instructions)),
            Err(error) => omitted.push(format!("{name}: not counted: {error:#}")),
        }
        figures.push(of_viordma(&viordma, way, &baseline, say, &mut counts)?);
    }
    Ok((counts, omitted))
}

/// Counts what frames cost viordma, in virtual time, without another driver. The baseline is that of [`measure`]. Returns the counts.
///
/// # Errors
/// A run fails.
pub fn count_viordma(say: &impl Fn(String), figures: &mut Vec<Figure>) -> Result<Counts> {
    let viordma = workspace::built_image()?;
    let baseline = baseline::read(BASELINE)?;
    let mut counts = Counts::new();
    for (way, direction) in DIRECTIONS {
        for (pattern, chain, outstanding) in PATTERNS {
            let load = Load { direction, count: LENGTHS[1], chain, outstanding };
            for (event, value) in of_queues(&load::run(&viordma, &viordma, load)?) {
                let name = format!("viordma, frames {way}, {pattern}: {event}");
                let figure = Figure::new(name.clone(), value, Unit::PerPacket);
                figures.push(baseline::limited(&baseline, &name, figure));
                counts.insert(name, value);
            }
        }
        figures.push(of_viordma(&viordma, way, &baseline, say, &mut counts)?);
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

fn instructions_name(way: &str) -> String {
    format!("instructions of the image per frame {way}, chains of 16")
}

/// Counts the instructions of viordma's image per frame.
fn of_viordma(
    viordma: &Path,
    way: &str,
    baseline: &Counts,
    say: &impl Fn(String),
    counts: &mut Counts,
) -> Result<Figure> {
    let name = format!("viordma, {}", instructions_name(way));
    say(name.clone());
    let value = per_frame(viordma, way)?;
    counts.insert(name.clone(), value);
    Ok(baseline::limited(baseline, &name, Figure::new(name.clone(), value, Unit::Instructions)))
}

/// Returns the instructions of an image for a frame.
fn per_frame(path: &Path, way: &str) -> Result<f64> {
    let [short, long] = LENGTHS.map(|count| instructions(path, way, count));
    Ok((long? - short?) as f64 / (LENGTHS[1] - LENGTHS[0]) as f64)
}

/// Adds frames per second in real time, and the CPU time of a frame, of which a busy machine changes less. A driver with inlined functions of
/// the kernel that change the IRQL takes a signal for each here, and none on Windows: how many there are, what they take, and the ratio
/// without their time are added, too. Returns which runs have failed: where another one succeeded, that one counts.
fn rates(
    image: &Path,
    viordma: &Path,
    (way, direction): (&str, Direction),
    accesses: f64,
    say: &impl Fn(String),
    figures: &mut Vec<Figure>,
) -> Result<Vec<String>> {
    say(format!("frames {way} in real time"));
    let (pattern, chain, outstanding) = PATTERNS[1];
    let load = Load { direction, count: TIMED, chain, outstanding };
    let mut best = [Best::default(), Best::default()];
    for _ in 0..RUNS {
        for (path, best) in [image, viordma].into_iter().zip(&mut best) {
            best.add(load::in_real_time(path, viordma, load));
        }
    }
    let failed = [image, viordma].into_iter().zip(&best).filter_map(|(path, best)| {
        best.failures(&format!("{}, frames {way}, {pattern}, real time", name(path)))
    });
    let failed: Vec<_> = failed.collect();
    for (path, best) in [image, viordma].into_iter().zip(&best) {
        let Some(took) = best.took else { continue };
        let name = format!("{}, frames {way}, {pattern}, real time", name(path));
        figures.push(Figure::new(name.clone(), 1.0 / took.time, Unit::PerSecond));
        let name = format!("{name}, CPU time of all threads per frame");
        figures.push(Figure::new(name, took.cpu * 1e9, Unit::Nanoseconds));
    }
    let [Some(of_image), Some(of_viordma)] = best.map(|best| best.took) else { return Ok(failed) };
    let mut against = |what: &str, value| {
        let name = format!("viordma, frames {way}, against {}: {what}", name(image));
        figures.push(Figure { goal: Some(1.0), ..Figure::new(name, value, Unit::Times) });
    };
    against("per second", of_image.time / of_viordma.time);
    against("per CPU time", of_image.cpu / of_viordma.cpu);
    if accesses < 0.5 {
        return Ok(failed);
    }
    say("the time of an access to cr8".into());
    let each = kernel::irql_access(&workspace::built_test_driver()?)?;
    against("per CPU time without accesses to cr8", (of_image.cpu - accesses * each) / of_viordma.cpu);
    let name = format!("{}, frames {way}: accesses to cr8 per frame", name(image));
    figures.push(Figure::new(name, accesses, Unit::PerPacket));
    figures.push(Figure::new("an access to cr8, CPU time", each * 1e9, Unit::Nanoseconds));
    Ok(failed)
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
fn instructions(image: &Path, way: &str, count: u64) -> Result<u64> {
    let work = format!("{WORK}{way}:{count}:{}", image.display());
    let profile = callgrind::run(&callgrind::BY_INSTRUCTION, &work)?;
    let report = profile.output.lines().last().context("the run printed nothing")?;
    let counted: Counted = serde_json::from_str(report).context("the run printed no report")?;
    let instructions = profile.instructions_at(&counted.image);
    ensure!(instructions > 0, "callgrind did not see the image");
    Ok(instructions)
}

/// Runs what [`instructions`] asked for, `miniport:WAY:COUNT:IMAGE`, and prints the report.
///
/// # Errors
/// Another request, or the run fails.
pub fn work(request: &str) -> Result<()> {
    let request = request.strip_prefix(WORK).context("not a request for a miniport")?;
    let (way, rest) = request.split_once(':').context("no direction")?;
    let (count, image) = rest.split_once(':').context("no count")?;
    let found = DIRECTIONS.iter().find(|(name, _)| *name == way);
    let (_, direction) = found.with_context(|| format!("no direction is named {way}"))?;
    let (_, chain, outstanding) = PATTERNS[1];
    let load = Load { direction: *direction, count: count.parse()?, chain, outstanding };
    let counted = load::run(Path::new(image), &workspace::image_path(), load)?;
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
