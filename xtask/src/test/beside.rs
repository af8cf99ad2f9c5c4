// SPDX-License-Identifier: MIT OR Apache-2.0

//! Steps that run beside others. Each is a process of its own, whose output goes to a file of `target/test/logs` and is printed when the
//! step has ended.

use std::{
    collections::VecDeque,
    fs::{self, File},
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, channel},
    },
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
pub struct Beside {
    left: Left,
    ended: Receiver<(Done, String)>,
}

/// The steps that have not begun.
#[derive(Clone)]
struct Left(Arc<Mutex<VecDeque<&'static Step>>>);

impl Left {
    fn take(
        &self,
        end: impl FnOnce(&mut VecDeque<&'static Step>) -> Option<&'static Step>,
    ) -> Option<&'static Step> {
        end(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Beside {
    /// Begins to run steps, one after another.
    pub fn begin(steps: Vec<&'static Step>) -> Result<Self> {
        let directory = shell::root().join("target/test/logs");
        fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
        let left = Left(Arc::new(Mutex::new(steps.into())));
        let (sender, ended) = channel();
        let row = left.clone();
        thread::spawn(move || {
            while let Some(step) = row.take(VecDeque::pop_front) {
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
        Ok(Self { left, ended })
    }

    /// Takes the last step that has not begun out of the row, for a row that has ended.
    pub fn take_last(&self) -> Option<&'static Step> {
        self.left.take(VecDeque::pop_back)
    }

    /// Returns the steps that have ended since the last call, after printing their output.
    pub fn ready(&self) -> Vec<Done> {
        self.ended.try_iter().map(printed).collect()
    }

    /// Waits for all others, and returns them.
    pub fn rest(self) -> Vec<Done> {
        self.ended.into_iter().map(printed).collect()
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

#[cfg(test)]
mod tests {
    use super::{super::steps::STEPS, *};

    #[test]
    fn two_rows_take_each_step_once_from_both_ends() {
        let left = Left(Arc::new(Mutex::new(STEPS[..3].iter().collect())));
        let names = [
            left.take(VecDeque::pop_back),
            left.take(VecDeque::pop_front),
            left.clone().take(VecDeque::pop_back),
            left.take(VecDeque::pop_front),
        ];
        let [first, second, third, ..] = &STEPS;
        let expected = [Some(third.name), Some(first.name), Some(second.name), None];
        assert_eq!(names.map(|step| step.map(|step| step.name)), expected);
    }
}
