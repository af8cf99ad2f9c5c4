// SPDX-License-Identifier: MIT OR Apache-2.0

//! The scripts to run, their results, and the output of these.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    sync::Arc,
    time::Duration,
};

use anyhow::Result;

use super::{bed::Setup, options::Image, outcome::Line, script::Script};
use crate::{exit::Exit, testbed::WireFigures};

/// Scripts to run.
#[derive(Clone)]
pub struct Plan {
    pub images: Vec<Image>,
    pub scripts: Vec<Arc<Script>>,
    pub setup: Setup,
    /// Cuts the wire for good after this time.
    pub cut: Option<Duration>,
}

/// Results of a run.
#[derive(Debug)]
pub struct Report {
    /// The log of each script.
    pub lines: Vec<Vec<Line>>,
    /// Why the hosts could not be started or stopped.
    pub trouble: Option<String>,
    pub violations: Vec<String>,
    /// Faults that are tolerated.
    pub tolerated: Vec<String>,
    pub wire: WireFigures,
    /// The counters of the adapters, before they were halted.
    pub counters: BTreeMap<String, u64>,
    /// Sentences that name imports which the simulated kernel does not have.
    pub missing: BTreeSet<String>,
}

impl Report {
    /// Returns the lines that are not as the scripts say.
    pub fn failures(&self) -> impl Iterator<Item = &Line> {
        self.lines.iter().flatten().filter(|line| line.is_failure)
    }
}

/// Counters that show how much data moved.
const COUNTERS: [&str; 6] =
    ["tx_packets", "rx_packets", "tx_bytes", "rx_bytes", "retransmissions", "timeouts"];

/// Returns the report as text, with all `stacks` of tolerated faults or the innermost frame of each.
#[must_use]
pub fn text(plan: &Plan, report: &Report, stacks: bool) -> String {
    let mut text = String::new();
    let hosts = if plan.setup.one_host { "one host, two adapters" } else { "two hosts" };
    let clock = if plan.setup.real_time { "real time" } else { "virtual time" };
    let _ = writeln!(text, "{hosts}; {clock}, seed {}", plan.setup.seed);
    for sentence in &report.missing {
        let _ = writeln!(text, "{sentence}");
    }
    for (script, lines) in plan.scripts.iter().zip(&report.lines) {
        let _ = writeln!(text, "\n{}: {}", script.name, script.about);
        for line in lines {
            line_to(&mut text, line);
        }
    }
    let wire = report.wire;
    let _ = writeln!(
        text,
        "\nwire: {} frames, {} bytes; {} lost, {} late, {} twice, {} damaged",
        wire.frames, wire.bytes, wire.lost, wire.delayed, wire.duplicated, wire.corrupted
    );
    let shown = COUNTERS.iter().filter_map(|name| Some((name, report.counters.get(*name)?)));
    let shown: Vec<_> = shown.map(|(name, value)| format!("{name} {value}")).collect();
    if !shown.is_empty() {
        let _ = writeln!(text, "viordma: {}", shown.join(", "));
    }
    for (fault, count) in alike(&report.tolerated) {
        let times = if count == 1 { String::new() } else { format!(" ({count} alike)") };
        if stacks {
            let _ = writeln!(text, "\ntolerated{times}: {fault}");
        } else {
            let _ = writeln!(text, "tolerated{times}: {}", brief(fault));
        }
    }
    for violation in &report.violations {
        let _ = writeln!(text, "\n{violation}");
    }
    let (tolerated, violations) = (report.tolerated.len(), report.violations.len());
    let _ = writeln!(text, "verifier: {violations} violations, {tolerated} tolerated faults");
    text
}

/// Returns the first of the faults that differ in numbers and threads only, and how many there are of each.
fn alike(faults: &[String]) -> Vec<(&String, usize)> {
    let mut groups: Vec<(String, &String, usize)> = Vec::new();
    for fault in faults {
        // The first line says what, the second one which thread, the others where.
        let mut kind = String::new();
        for (number, line) in fault.lines().enumerate() {
            match number {
                0 => kind.extend(line.chars().filter(|character| !character.is_ascii_digit())),
                1 => {}
                _ => kind.push_str(line),
            }
        }
        match groups.iter_mut().find(|(known, ..)| *known == kind) {
            Some((.., count)) => *count += 1,
            None => groups.push((kind, fault, 1)),
        }
    }
    groups.into_iter().map(|(_, fault, count)| (fault, count)).collect()
}

/// Returns a fault in one line, with the innermost frame of its stack.
fn brief(fault: &str) -> String {
    let mut lines = fault.lines();
    let what = lines.next().unwrap_or_default().trim_start_matches("*** ");
    // Behind the thread.
    lines.nth(1).map_or_else(|| what.to_owned(), |frame| format!("{what}, at {}", frame.trim()))
}

fn line_to(text: &mut String, line: &Line) {
    let mark = if line.is_failure { "FAIL" } else { "ok  " };
    let _ = writeln!(text, "  {mark} {:>11.6} s  {:<10} {}", line.time.as_secs_f64(), line.thread, line.text);
}

/// Fails unless the scripts did what they say and the verifier found nothing. If the wire is cut, only the verifier
/// decides.
///
/// # Errors
/// With exit code 1.
pub fn verdict(plan: &Plan, report: &Report) -> Result<()> {
    let failed = |message: String| Err(Exit { code: 1, message }.into());
    let failures = report.failures().count();
    if !report.violations.is_empty() {
        return failed("the verifier found violations".to_owned());
    }
    if let Some(trouble) = &report.trouble {
        return failed(trouble.clone());
    }
    if failures != 0 && plan.cut.is_none() {
        return failed(format!("{failures} of the steps did not do what the scripts say"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{alike, brief};

    #[test]
    fn tolerated_fault_takes_one_line() {
        let fault = "*** bug check X (0xc4) on alpha: a leak\n    thread 'a', CPU 0, PASSIVE_LEVEL\n      a.sys+0x10\n      a.sys+0x20";
        assert_eq!(brief(fault), "bug check X (0xc4) on alpha: a leak, at a.sys+0x10");
        assert_eq!(brief("*** bug check X on alpha: a leak\n    thread 'a'"), "bug check X on alpha: a leak");
    }

    #[test]
    fn faults_that_differ_in_numbers_and_threads_are_counted_together() {
        let fault = |host: &str, block: u32, place: &str| {
            format!(
                "*** bug check X (0xc4) on {host}: leak of block {block}\n    thread '{block}'\n      a.sys+{place}"
            )
        };
        let faults = [
            fault("alpha", 1, "0x10"),
            fault("alpha", 22, "0x10"),
            fault("beta", 3, "0x10"),
            fault("alpha", 4, "0x20"),
        ];
        let counted = alike(&faults);
        assert_eq!(counted, [(&faults[0], 2), (&faults[2], 1), (&faults[3], 1)]);
    }
}
