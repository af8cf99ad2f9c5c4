// SPDX-License-Identifier: MIT OR Apache-2.0

//! Programs of a case: started with a mark in their environment, awaited with a limit, ended by their number.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};

use crate::shell;

/// Environment variable by which the processes of a case are found, however they were started.
pub const MARK: &str = "JUDGE_OF_VIORDMA";

/// How often a process that runs is looked at.
const INTERVAL: Duration = Duration::from_millis(5);

/// A program that runs.
pub struct Process {
    child: Child,
    log: PathBuf,
}

/// How a program ended.
#[derive(Clone, Debug)]
pub struct Exited {
    /// None: it was ended after its time.
    pub status: Option<ExitStatus>,
    /// Its output.
    pub text: String,
}

impl Exited {
    pub fn is_success(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// Returns how it ended, for a person.
    pub fn description(&self) -> String {
        self.status.map_or_else(|| "no end in time".to_owned(), |status| status.to_string())
    }
}

impl Process {
    /// Starts a program whose output goes to a file.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(command: &mut Command, log: &Path) -> Result<Self> {
        let file = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().context("cannot start a program of a case")?;
        Ok(Self { child, log: log.to_owned() })
    }

    /// Ends it at once, by SIGKILL.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
    }

    /// Sends it a signal, by its name.
    ///
    /// # Errors
    /// It has ended.
    pub fn signal(&self, name: &str) -> Result<()> {
        shell::output(Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string())).map(drop)
    }

    /// Returns whether it has mapped memory that it shares with another process of the library.
    pub fn shares_memory(&self) -> bool {
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.child.id())).unwrap_or_default();
        maps.contains("/memfd:viordma")
    }

    pub fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }

    /// Waits for its end until `deadline`, then ends it.
    ///
    /// # Errors
    /// It cannot be awaited.
    pub fn wait(mut self, deadline: Instant) -> Result<Exited> {
        let mut status = self.child.try_wait()?;
        while status.is_none() && Instant::now() < deadline {
            thread::sleep(INTERVAL);
            status = self.child.try_wait()?;
        }
        if status.is_none() {
            self.child.kill()?;
            self.child.wait()?;
        }
        let text = String::from_utf8_lossy(&fs::read(&self.log)?).into_owned();
        Ok(Exited { status, text })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.has_ended() {
            self.kill();
            let _ = self.child.wait();
        }
    }
}

/// Waits until a condition holds, or until `limit`, and returns whether it does.
pub fn eventually(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    loop {
        if condition() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        thread::sleep(INTERVAL);
    }
}

/// Returns the numbers and names of the processes whose environment has this mark.
pub fn marked(mark: &str) -> Vec<(u32, String)> {
    let wanted = format!("{MARK}={mark}");
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let is_marked = |number: &u32| {
        let environment = fs::read(format!("/proc/{number}/environ")).unwrap_or_default();
        environment.split(|&byte| byte == 0).any(|variable| variable == wanted.as_bytes())
    };
    let name = |number: u32| fs::read_to_string(format!("/proc/{number}/comm")).unwrap_or_default();
    numbers.filter(is_marked).map(|number| (number, name(number).trim().to_owned())).collect()
}

/// Ends processes by their numbers.
pub fn end(processes: &[(u32, String)]) {
    let numbers: Vec<String> = processes.iter().map(|(number, _)| number.to_string()).collect();
    if !numbers.is_empty() {
        let _ = Command::new("kill").arg("-KILL").args(numbers).output();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_without_an_end_is_ended_and_its_children_are_found_by_their_mark() {
        let directory = tempfile::tempdir().unwrap();
        let mark = format!("test-{}", std::process::id());
        let mut command = Command::new("sh");
        command.args(["-c", "echo begin; sleep 50 & wait"]).env(MARK, &mark);
        let process = Process::start(&mut command, &directory.path().join("log")).unwrap();
        // The shell's child has its name until it runs the program.
        let has_child = || marked(&mark).iter().any(|(_, name)| name == "sleep");
        assert!(eventually(Duration::from_secs(10), has_child));
        let exited = process.wait(Instant::now()).unwrap();
        assert_eq!((exited.status, &*exited.text), (None, "begin\n"));
        let left = marked(&mark);
        assert_eq!(left.len(), 1, "{left:?}");
        assert_eq!(left[0].1, "sleep");
        end(&left);
        assert!(eventually(Duration::from_secs(10), || marked(&mark).is_empty()));
    }

    #[test]
    fn status_and_output_of_a_program_are_returned() {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo out; echo error >&2; exit 3"]);
        let process = Process::start(&mut command, &directory.path().join("log")).unwrap();
        let exited = process.wait(Instant::now() + Duration::from_secs(10)).unwrap();
        assert_eq!(exited.status.and_then(|status| status.code()), Some(3));
        assert_eq!(exited.text, "out\nerror\n");
        assert!(!exited.is_success());
    }
}
