// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask fuzz`: runs the fuzz targets of `fuzz/`, by libFuzzer with the pinned compiler, or without it.
//!
//! The layout of `fuzz/` is that of cargo-fuzz, which is not needed: the compiler instruments coverage itself, and only
//! sanitizers need a nightly compiler. libFuzzer itself is C++.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    thread,
};

use anyhow::{Context as _, Result};

use crate::{packages, shell, workspace::Workspace};

/// The targets, as in `fuzz/src/lib.rs`, with the longest input of each.
const TARGETS: [(Target, u32); 6] = [
    (Target::Frames, 1200),
    (Target::Datagrams, 12 * 64),
    (Target::Sequences, 12 * 96),
    (Target::Stash, 12 * 128),
    (Target::Transports, 12 * 96),
    (Target::SmbDirect, 12 * 96),
];

/// Compiler options that instrument coverage for libFuzzer.
const COVERAGE: [&str; 7] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Ccodegen-units=1",
    "--cfg=fuzzing",
];

/// Seconds after which an input counts as a finding.
const TIMEOUT: u32 = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Target {
    /// One frame of any bytes
    Frames,
    /// Connection management: datagrams, commands, time
    Datagrams,
    /// A connected queue pair: frames of its peer and of other senders, posts, time
    Sequences,
    /// Messages of a peer whose packets are lost, repeated and reordered
    Stash,
    /// Two queue pairs of any transport, which their owners modify: posts, losses, time
    Transports,
    /// An SMB Direct connection: messages of its peer, upper-layer messages, receives, time
    SmbDirect,
}

impl Target {
    const fn name(self) -> &'static str {
        match self {
            Self::Frames => "frames",
            Self::Datagrams => "datagrams",
            Self::Sequences => "sequences",
            Self::Stash => "stash",
            Self::Transports => "transports",
            Self::SmbDirect => "smb-direct",
        }
    }
}

#[derive(clap::Args)]
pub struct Options {
    /// Only this target
    target: Option<Target>,
    /// How long each target runs
    #[arg(long, value_name = "N", default_value_t = 1.0)]
    minutes: f64,
    /// Generate inputs without libFuzzer and its coverage
    #[arg(long)]
    plain: bool,
    /// Run the target once, over the input in this file
    #[arg(long, value_name = "FILE", requires = "target")]
    input: Option<PathBuf>,
}

pub fn run(options: &Options) -> Result<()> {
    if let (Some(target), Some(input)) = (options.target, &options.input) {
        // Before anything is built.
        if !input.is_file() {
            return Err(shell::Exit::usage(format!("--input: there is no file {}", input.display())));
        }
        return shell::run(plain().arg(target.name()).arg(input));
    }
    let targets = TARGETS.iter().filter(|(target, _)| options.target.is_none_or(|only| only == *target));
    let seconds = options.minutes * 60.0;
    if seconds.is_nan() || seconds < 1.0 {
        return Err(shell::Exit::usage(format!("--minutes {} is less than a second", options.minutes)));
    }
    let means = if options.plain { Means::Plain } else { Means::best() };
    means.build()?;
    for (target, max_len) in targets {
        println!("{}", means.run(*target, *max_len, seconds)?);
    }
    Ok(())
}

/// Runs each target for `seconds`, two at a time, with the same seed every time, for `cargo xtask test`. Returns the number of
/// targets.
pub fn short(seconds: f64) -> Result<usize> {
    let means = Means::best();
    means.build()?;
    for targets in TARGETS.chunks(2) {
        let run = |&(target, max_len): &(Target, u32)| means.run(target, max_len, seconds);
        let summaries: Vec<Result<String>> = thread::scope(|scope| {
            let runs: Vec<_> = targets.iter().map(|target| scope.spawn(move || run(target))).collect();
            runs.into_iter().map(|run| run.join().expect("a run does not panic")).collect()
        });
        for summary in summaries {
            println!("{}", summary?);
        }
    }
    Ok(TARGETS.len())
}

/// How targets are run.
#[derive(Clone, Copy)]
enum Means {
    LibFuzzer,
    Plain,
}

impl Means {
    /// Chooses libFuzzer if a C++ compiler is installed or can be. Prints a line otherwise.
    fn best() -> Self {
        match packages::require(&packages::FUZZ) {
            Ok(()) => Self::LibFuzzer,
            Err(error) => {
                println!("no libFuzzer ({error:#}): generated inputs instead");
                Self::Plain
            }
        }
    }

    fn build(self) -> Result<()> {
        match self {
            Self::LibFuzzer => {
                let mut cargo = instrumented("build")?;
                for (target, _) in TARGETS {
                    cargo.args(["--bin", target.name()]);
                }
                shell::run(&mut cargo)
            }
            Self::Plain => shell::run(cargo("build").args(["--bin", "plain"])),
        }
    }

    /// Runs a target and returns its summary. A finding is an error.
    fn run(self, target: Target, max_len: u32, seconds: f64) -> Result<String> {
        match self {
            Self::LibFuzzer => lib_fuzzer(target, max_len, seconds),
            Self::Plain => {
                let output = shell::output(plain().args([target.name(), &seconds.to_string()]))?;
                Ok(format!("{} (without libFuzzer)", output.trim()))
            }
        }
    }
}

fn cargo(command: &str) -> Command {
    let mut cargo = Workspace::Tools.cargo();
    cargo.args([command, "--quiet", "--package", "roce-fuzz", "--profile", "fuzz"]);
    cargo
}

/// Returns the command that runs targets without libFuzzer, without its arguments.
fn plain() -> Command {
    let mut cargo = cargo("run");
    cargo.args(["--bin", "plain", "--"]);
    cargo
}

/// Returns a cargo command that instruments the targets, but not build scripts.
fn instrumented(command: &str) -> Result<Command> {
    let version = shell::output(Command::new("rustc").arg("-vV").current_dir(shell::root()))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc names no host")?;
    let mut cargo = cargo(command);
    cargo.args(["--features", "libfuzzer", "--target", host]).env("RUSTFLAGS", COVERAGE.join(" "));
    Ok(cargo)
}

fn lib_fuzzer(target: Target, max_len: u32, seconds: f64) -> Result<String> {
    let name = target.name();
    let directory = directory();
    let corpus = directory.join("corpus").join(name);
    fs::create_dir_all(&corpus)?;
    let log = directory.join(name).with_extension("log");
    let findings = directory.join(format!("{name}-"));
    let mut cargo = instrumented("run")?;
    cargo.args(["--bin", name, "--"]).arg(&corpus).arg(shell::root().join("fuzz/seeds").join(name));
    cargo.arg(format!("-max_total_time={}", seconds.ceil()));
    cargo.arg(format!("-artifact_prefix={}", findings.display()));
    cargo.args([
        format!("-max_len={max_len}"),
        format!("-timeout={TIMEOUT}"),
        "-print_final_stats=1".into(),
        "-seed=1".into(),
    ]);
    let file = fs::File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    cargo.stdout(Stdio::null()).stderr(file);
    let status = cargo.status().context("cannot run cargo")?;
    let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
    no_finding(target, status, &text, &log)?;
    Ok(format!(
        "{name}: {} inputs in {seconds} s by libFuzzer, {} places covered, no finding",
        last_number(&text, "stat::number_of_executed_units:").context("libFuzzer counted no inputs")?,
        last_number(&text, " cov:").unwrap_or(0),
    ))
}

fn no_finding(target: Target, status: ExitStatus, log: &str, path: &Path) -> Result<()> {
    if status.success() {
        return Ok(());
    }
    for line in log.lines().filter(|line| !line.starts_with('#')).take(40) {
        println!("  {line}");
    }
    let written = log.lines().find_map(|line| line.split_once("Test unit written to ")).map(|(_, file)| file);
    let again =
        written.map(|file| format!("; to repeat it: cargo xtask fuzz {} --input {file}", target.name()));
    anyhow::bail!("{}: a finding, see {}{}", target.name(), path.display(), again.unwrap_or_default())
}

/// The directory of corpora, findings and logs.
fn directory() -> PathBuf {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| shell::root().join("target"), PathBuf::from);
    shell::root().join(target).join("fuzz-runs")
}

/// Returns the number after the last `label`.
fn last_number(text: &str, label: &str) -> Option<u64> {
    let (_, rest) = text.rsplit_once(label)?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_from_the_output_of_libfuzzer() {
        let text = "#2\tINITED cov: 12 ft: 13\n#9\tNEW    cov: 2180 ft: 4 corp: 3/1b\n\
                    stat::number_of_executed_units: 13412\nstat::average_exec_per_sec:     1490\n";
        assert_eq!(last_number(text, " cov:"), Some(2180));
        assert_eq!(last_number(text, "stat::number_of_executed_units:"), Some(13412));
        assert_eq!(last_number(text, "stat::peak_rss_mb:"), None);
    }

    #[test]
    fn every_target_has_seeds() {
        for (target, max_len) in TARGETS {
            let seeds = shell::root().join("fuzz/seeds").join(target.name());
            for seed in fs::read_dir(seeds).unwrap() {
                assert!(seed.unwrap().metadata().unwrap().len() <= u64::from(max_len));
            }
        }
    }
}
