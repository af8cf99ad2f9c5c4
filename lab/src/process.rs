// SPDX-License-Identifier: MIT OR Apache-2.0

//! Running other programs.

use std::{
    io::Read,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

use crate::exit::{Exit, UNUSABLE_INPUT};

/// Runs a command and returns its standard output.
///
/// # Errors
/// If the command cannot be run or fails; the error shows the command and its standard error.
pub fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot run {name}"))?;
    if !output.status.success() {
        let arguments = command.get_args().map(|argument| format!(" {}", argument.to_string_lossy()));
        let reason = String::from_utf8_lossy(&output.stderr);
        bail!("{name}{} failed ({}): {}", arguments.collect::<String>(), output.status, reason.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a command, which is ended after `limit`, and returns its standard output.
///
/// # Errors
/// If the command cannot be run, fails, or is ended; the error has what it printed, and the exit code of a command that cannot use its
/// input.
pub fn output_within(command: &mut Command, limit: Duration) -> Result<String> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(Stdio::null());
    let mut child =
        command.spawn().with_context(|| format!("cannot run {}", command.get_program().display()))?;
    // A pipe that is not read stops the command when it is full.
    let [text, errors] = [read_all(child.stdout.take()), read_all(child.stderr.take())];
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if began.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            break None;
        }
        thread::sleep(Duration::from_millis(20));
    };
    let [text, errors] = [text, errors].map(|reader| reader.join().unwrap_or_default());
    match status {
        Some(status) if status.success() => Ok(text),
        Some(status) if status.code() == Some(UNUSABLE_INPUT.into()) => {
            Err(Exit::usage(errors.trim_start_matches("error: ").trim_end()))
        }
        Some(_) => bail!("{text}{}", errors.trim_end()),
        None => bail!("it was ended after {} s: {text}{}", limit.as_secs(), errors.trim_end()),
    }
}

fn read_all(from: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut text = String::new();
        let _ = from.map(|mut from| from.read_to_string(&mut text));
        text
    })
}
