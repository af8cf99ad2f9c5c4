// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask spin`: random changes of the adapters' and the devices' state beside traffic, under the verifier, in virtual time or
//! in real time.
//!
//! A seed determines a [script](script::Script): restarts, removals, power states, OIDs, link flaps, failures and misbehavior of the
//! device and of its queues, allocations that fail. Each script runs in a process of its own. One that fails is shortened and printed; `--script` runs it again.

mod host;
mod misbehavior;
pub mod plan;
mod reasons;
mod requests;
pub mod run;
pub mod script;
mod shrink;
mod silence;
pub mod step;
#[cfg(test)]
mod tests;
mod traffic;

use std::{
    fs,
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use script::Script;

use crate::{
    exit::Exit,
    process,
    workspace::{self, Images},
};

/// Real time that a script may take: a driver that waits in a loop without calls is ended then.
const LIMIT: Duration = Duration::from_secs(600);
/// Scripts that are run to shorten one.
const ATTEMPTS: usize = 400;
/// Likewise in real time, and how often each is run.
const REAL_TIME_ATTEMPTS: (usize, usize) = (60, 3);
/// Scripts of `--minutes` have the seeds from this multiple of `--seed` on.
const STRIDE: u64 = 1 << 20;

/// Options of the command.
#[derive(clap::Args)]
pub struct Options {
    /// Run scripts for this time; otherwise one
    #[arg(long, value_name = "N")]
    minutes: Option<f64>,
    /// Seed of the script; with --minutes, of the seeds of all scripts
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Steps of each script
    #[arg(long, value_name = "N", default_value_t = 60)]
    steps: usize,
    /// Run this script
    #[arg(long, value_name = "FILE", conflicts_with_all = ["minutes", "seed", "steps"])]
    script: Option<PathBuf>,
    /// Print the script without running it
    #[arg(long, conflicts_with_all = ["minutes", "script"])]
    print: bool,
    /// Run with racing threads in real time. What fails need not fail again: each attempt to shorten is repeated
    #[arg(long)]
    real_time: bool,
}

impl Options {
    fn script(&self, seed: u64) -> Script {
        let mut script = plan::script(seed, self.steps);
        script.setup.real_time = self.real_time;
        script
    }
}

/// Runs the command.
///
/// # Errors
/// With exit code 2, if the script cannot be read; with exit code 1, if a script has failed.
pub fn run(options: &Options) -> Result<()> {
    if options.print {
        print!("{}", options.script(options.seed));
        return Ok(());
    }
    if let Some(path) = &options.script {
        let text = fs::read_to_string(path);
        let text = text.map_err(|error| Exit::usage(format!("{}: {error}", path.display())))?;
        let mut script: Script =
            text.parse().map_err(|error| Exit::usage(format!("{}: {error:#}", path.display())))?;
        script.setup.real_time |= options.real_time;
        println!("{}", run::run(&workspace::built_images()?, &script)?);
        return Ok(());
    }
    let images = workspace::built_images()?;
    let (began, mut failed, mut runs) = (Instant::now(), 0, 0);
    let first = if options.minutes.is_some() { options.seed.wrapping_mul(STRIDE) } else { options.seed };
    let limit = Duration::from_secs_f64(options.minutes.unwrap_or_default().max(0.0) * 60.0);
    loop {
        let seed = first.wrapping_add(runs);
        let script = options.script(seed);
        runs += 1;
        match in_a_process(&images, &script) {
            Ok(summary) => println!("seed {seed}: {}", summary.trim_end()),
            Err(error) => {
                failed += 1;
                let real_time = if options.real_time { " --real-time" } else { "" };
                println!("FAILED  --seed {seed} --steps {}{real_time}\n{error:#}", options.steps);
                println!("{}", shortened(&images, &script, &format!("{error:#}")));
            }
        }
        if began.elapsed() >= limit {
            break;
        }
    }
    println!("{runs} scripts, {failed} failed, {:.0} s", began.elapsed().as_secs_f64());
    if failed == 0 { Ok(()) } else { bail!("{failed} of {runs} scripts failed") }
}

/// Returns the shortened script and how it fails, as text to be printed.
fn shortened(images: &Images, script: &Script, error: &str) -> String {
    let kind = signature(error);
    let mut last = error.to_owned();
    // In real time a script that has a defect may pass.
    let (attempts, runs) = if script.setup.real_time { REAL_TIME_ATTEMPTS } else { (ATTEMPTS, 1) };
    let mut fails_alike = |candidate: &Script| match in_a_process(images, candidate) {
        Err(error) if signature(&format!("{error:#}")) == kind => {
            last = format!("{error:#}");
            true
        }
        _ => false,
    };
    let short = shrink::shrink(script, attempts, |candidate| (0..runs).any(|_| fails_alike(candidate)));
    format!("shortened; run it by `cargo xtask spin --script FILE`:\n\n{short}\n{last}")
}

/// Returns the first line of an error without its numbers: what stays the same if steps are left out.
fn signature(error: &str) -> String {
    let line = error.lines().next().unwrap_or_default();
    line.chars().filter(|c| !c.is_ascii_hexdigit()).collect()
}

/// Runs a script in a process of its own. Returns what it printed.
fn in_a_process(images: &Images, script: &Script) -> Result<String> {
    let directory = tempfile::tempdir().context("cannot make a directory for a script")?;
    let path = directory.path().join("script");
    fs::write(&path, script.to_string()).context("cannot write a script")?;
    let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
    command.arg("spin").arg("--script").arg(&path).env(workspace::IMAGE, &images.standard);
    command.env(workspace::STRICT_IMAGE, &images.strict);
    process::output_within(&mut command, LIMIT)
}
