// SPDX-License-Identifier: MIT OR Apache-2.0

//! The demo, as a user runs it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Result, bail, ensure};

use super::{capture_folder, count::Count};
use crate::{lab, shell};

/// The page that explains the trace of the demo with seed 7.
const PAGE: &str = "docs/lossy-demo.md";

/// Runs the demo, with its capture among those that are checked, and its report beside it.
pub fn run(name: &str, arguments: &[&str]) -> Result<PathBuf> {
    let capture = capture_folder::directory()?.join(name).with_extension("pcapng");
    let mut command = lab::command("demo", arguments)?;
    command.arg("--pcap").arg(&capture);
    command.arg("--json").arg(capture.with_extension("json"));
    command.arg("--events").arg(capture.with_extension("events"));
    shell::run(&mut command)?;
    Ok(capture)
}

/// Equal seeds give equal captures, and different seeds do not. The trace is as its page says.
pub fn replay() -> Result<Count> {
    let first = run("seed-7-first", &["--quick", "--seed", "7", "--loss", "0.5%"])?;
    let second = run("seed-7-second", &["--quick", "--seed", "7", "--loss", "0.5%"])?;
    same(&first, &second)?;
    let (page, trace) = (shell::root().join(PAGE), first.with_extension("events"));
    has_quoted_lines(&fs::read_to_string(page)?, &fs::read_to_string(trace)?)?;
    let other = run("seed-8", &["--quick", "--seed", "8", "--loss", "0.5%"])?;
    ensure!(same(&first, &other).is_err(), "another seed gave the same capture");
    Ok(Count::passed(2))
}

pub fn under_loss() -> Result<Count> {
    run("loss", &["--quick", "--loss", "5%"])?;
    Ok(Count::WHOLE)
}

/// Checks that a trace has the lines that a page quotes from it, in this order. Their numbers may differ: they change with the driver.
fn has_quoted_lines(page: &str, trace: &str) -> Result<()> {
    let quoted = page.lines().filter(|line| line.contains(" ms  "));
    let mut events = trace.lines();
    for line in quoted {
        let found = events.any(|event| without_numbers(event) == without_numbers(line));
        ensure!(found, "{PAGE}: the trace does not have, in this place: {line}");
    }
    Ok(())
}

/// Replaces each number in a line by `#`, and spaces in a row by one.
fn without_numbers(line: &str) -> String {
    let mut masked = String::new();
    for character in line.trim().chars() {
        let character = if character.is_ascii_digit() { '#' } else { character };
        if !(matches!(character, '#' | ' ') && masked.ends_with(character)) {
            masked.push(character);
        }
    }
    masked
}

fn same(a: &Path, b: &Path) -> Result<()> {
    let (left, right) = (fs::read(a)?, fs::read(b)?);
    let differs = left.iter().zip(&right).position(|(x, y)| x != y);
    match differs {
        Some(at) => bail!("{} and {} differ at byte {at}", a.display(), b.display()),
        None => ensure!(left.len() == right.len(), "{} and {} differ in length", a.display(), b.display()),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "  0.1 ms  alpha  adapter: started\n 10.25 ms  alpha  queue pair 12: Init to Rtr\n";

    #[test]
    fn a_page_quotes_lines_of_the_trace_in_their_order_with_any_numbers() {
        let lines = ["   3.1 ms  alpha  adapter: started", "  9.1 ms  alpha  queue pair 7: Init to Rtr"];
        for (page, is_right) in [
            (format!("Text 1.\n{}\nmore\n{}\n", lines[0], lines[1]), true),
            (lines[1].to_owned(), true),
            (format!("{}\n{}\n", lines[1], lines[0]), false),
            (format!("{}\n{}\n", lines[0], lines[0]), false),
            (lines[0].replace("alpha", "beta"), false),
        ] {
            assert_eq!(has_quoted_lines(&page, TRACE).is_ok(), is_right, "{page}");
        }
    }
}
