// SPDX-License-Identifier: MIT OR Apache-2.0

//! Steps in processes of their own, which report what they have counted and the processor time that they used.

use std::{
    fs::{self, File},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use super::{
    count::Count,
    steps::{STEPS, Step, When},
};
use crate::{lab, shell};

/// Result of a step in a process of its own.
#[derive(Serialize, Deserialize)]
pub struct Report {
    pub count: Count,
    /// Of the process and all that it started.
    pub processors: Duration,
}

/// Runs a step in a process of its own. Its output goes to a file, or where that of this process goes.
///
/// # Errors
/// The step fails.
pub fn run(step: &Step, output: Option<File>) -> Result<Report> {
    let directory = shell::root().join("target/test/logs");
    fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let report = directory.join(step.name.replace(' ', "-")).with_extension("json");
    let _ = fs::remove_file(&report);
    let mut command = program(step.when == When::Idle)?;
    command.args(["test", "--part", step.name]).arg(&report).stdin(Stdio::null());
    if let Some(file) = output {
        command.stderr(file.try_clone()?).stdout(file);
    }
    // The reason of a failure is in the output.
    shell::run(&mut command)?;
    serde_json::from_slice(&fs::read(&report)?).context("the step has written no report")
}

/// Returns this program; if `idle`, and the system can do that, one that gets the processors that nothing else wants.
fn program(idle: bool) -> Result<Command> {
    const IDLE: [&str; 3] = ["chrt", "--idle", "0"];
    let this = lab::this_program()?;
    if !idle || !shell::succeeds(Command::new(IDLE[0]).args(&IDLE[1..]).arg("true")) {
        return Ok(Command::new(this));
    }
    let mut command = Command::new(IDLE[0]);
    command.args(&IDLE[1..]).arg(this);
    Ok(command)
}

/// Runs the step `name` in this process, for [`run`], which reads the report from a file.
///
/// # Errors
/// The step fails.
pub fn report(name: &str, file: &Path) -> Result<()> {
    let step = STEPS.iter().find(|step| step.name == name).context("there is no such step")?;
    let count = (step.run)()?;
    let report = Report { count, processors: processor_time() };
    fs::write(file, serde_json::to_string(&report)?)
        .with_context(|| format!("cannot write {}", file.display()))
}

/// Returns the processor time of this process and of those that it started and waited for; zero where the system has no `/proc`.
pub fn processor_time() -> Duration {
    fs::read_to_string("/proc/self/stat").map_or(Duration::ZERO, |stat| in_stat(&stat))
}

/// Adds up the times of `/proc/PID/stat`: fields 14 to 17, in hundredths of a second (proc(5)).
fn in_stat(stat: &str) -> Duration {
    // The second field is a name, in which there may be spaces and parentheses.
    let (_, fields) = stat.rsplit_once(')').unwrap_or_default();
    let ticks = fields.split_whitespace().skip(11).take(4).filter_map(|ticks| ticks.parse::<u64>().ok());
    Duration::from_millis(ticks.sum::<u64>() * 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_that_of_the_process_and_of_its_children() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194304 95 1200 0 0 12 30 4500 600 20 0 1 0 52 8192 88";
        assert_eq!(in_stat(stat), Duration::from_millis(51_420));
        assert_eq!(in_stat(""), Duration::ZERO);
    }
}
