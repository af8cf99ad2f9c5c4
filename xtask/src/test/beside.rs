// SPDX-License-Identifier: MIT OR Apache-2.0

//! Steps that run beside others. Each is a process of its own, whose output goes to a file of `target/test/logs` and is printed when the
//! step has ended.

use std::{
    fs::{self, File},
    path::Path,
    sync::mpsc::{Receiver, channel},
    thread,
    time::Instant,
};

use anyhow::{Context as _, Result};

use super::{
    done::Done,
    part::{self, Report},
    steps::Step,
};
use crate::shell;

/// A row of steps.
pub struct Beside(Receiver<(Done, String)>);

impl Beside {
    /// Begins to run steps, one after another.
    pub fn begin(steps: Vec<&'static Step>) -> Result<Self> {
        let directory = shell::root().join("target/test/logs");
        fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
        let (sender, receiver) = channel();
        thread::spawn(move || {
            for step in steps {
                println!("\n== {} (beside)", step.name);
                let begin = Instant::now();
                let log = directory.join(step.name.replace(' ', "-")).with_extension("log");
                let result = run(step, &log);
                let output = fs::read(&log).unwrap_or_default();
                let done = Done::new(step, begin.elapsed(), result);
                // Nothing receives after a failure of the other steps.
                let _ = sender.send((done, String::from_utf8_lossy(&output).into_owned()));
            }
        });
        Ok(Self(receiver))
    }

    /// Returns the steps that have ended since the last call, after printing their output.
    pub fn ready(&self) -> Vec<Done> {
        self.0.try_iter().map(printed).collect()
    }

    /// Waits for all others, and returns them.
    pub fn rest(self) -> Vec<Done> {
        self.0.into_iter().map(printed).collect()
    }
}

fn printed((done, output): (Done, String)) -> Done {
    println!("\n== {}\n{}{}", done.step.name, output, done.line());
    done
}

/// Runs a step in a process of its own.
fn run(step: &Step, log: &Path) -> Result<Report> {
    let file = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    part::run(step, Some(file))
}
