// SPDX-License-Identifier: MIT OR Apache-2.0

//! A miniport driver of others beside viordma, on the simulated device and opposite viordma: what a frame of 1514 bytes costs each
//! way. In virtual time, so that the figures do not depend on the load of the machine; except for the frames per second, which the two
//! drivers are measured for by turns.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use super::{
    callgrind,
    figure::{Figure, Unit},
};
use crate::{
    miniport::load::{self, Counted, Direction, Load},
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

/// Measures the driver `image` and viordma, by turns. Returns what could not be counted, with the reason.
///
/// # Errors
/// A run fails.
pub fn measure(image: &Path, say: &impl Fn(String), figures: &mut Vec<Figure>) -> Result<Vec<String>> {
    let viordma = workspace::built_image()?;
    let mut omitted = Vec::new();
    for (way, direction) in DIRECTIONS {
        for (pattern, chain, outstanding) in PATTERNS {
            for path in [image, &viordma] {
                let name = name(path);
                say(format!("{name}: frames {way}, {pattern}"));
                let load = Load { direction, count: LENGTHS[1], chain, outstanding };
                let counted = load::run(path, &viordma, load)?;
                for (event, count) in
                    [("notifications", counted.notifications), ("interrupts", counted.interrupts)]
                {
                    let value = 1000.0 * count as f64 / counted.frames.max(1) as f64;
                    let name = format!("{name}, frames {way}, {pattern}: {event} per 1000 frames");
                    figures.push(Figure::new(name, value, Unit::PerPacket));
                }
            }
        }
        rates(image, &viordma, (way, direction), say, figures)?;
        for path in [image, &viordma] {
            let name = name(path);
            say(format!("{name}: instructions of frames {way}"));
            let name = format!("{name}, instructions of the image per frame {way}, chains of 16");
            match LENGTHS.map(|count| instructions(path, way, count)) {
                [Ok(short), Ok(long)] => {
                    let value = (long - short) as f64 / (LENGTHS[1] - LENGTHS[0]) as f64;
                    figures.push(Figure::new(name, value, Unit::Instructions));
                }
                [Err(error), _] | [_, Err(error)] => omitted.push(format!("{name}: not counted: {error:#}")),
            }
        }
    }
    Ok(omitted)
}

/// Adds the frames per second in real time, and their ratio.
fn rates(
    image: &Path,
    viordma: &Path,
    (way, direction): (&str, Direction),
    say: &impl Fn(String),
    figures: &mut Vec<Figure>,
) -> Result<()> {
    say(format!("frames {way} in real time"));
    let (pattern, chain, outstanding) = PATTERNS[1];
    let load = Load { direction, count: TIMED, chain, outstanding };
    let mut best = [0.0_f64; 2];
    for _ in 0..RUNS {
        for (path, best) in [image, viordma].into_iter().zip(&mut best) {
            *best = best.max(load::rate(path, viordma, load)?);
        }
    }
    for (path, rate) in [image, viordma].into_iter().zip(best) {
        let name = format!("{}, frames {way}, {pattern}, real time", name(path));
        figures.push(Figure::new(name, rate, Unit::PerSecond));
    }
    let [of_image, of_viordma] = best;
    let name = format!("viordma, frames {way} per second, against {}", name(image));
    figures.push(Figure { goal: Some(1.0), ..Figure::new(name, of_viordma / of_image, Unit::Times) });
    Ok(())
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
