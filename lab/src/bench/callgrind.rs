// SPDX-License-Identifier: MIT OR Apache-2.0

//! Runs this program under callgrind, to count instructions. Counts do not depend on the load of the machine, only on the
//! compiler and on the features of the processor.

use std::{fs, ops::Range, process::Command};

use anyhow::{Context as _, Result, ensure};

use crate::{process, workspace};

/// The profile of a run, and what the program printed.
pub struct Profile {
    text: String,
    pub output: String,
}

/// Runs `bench --under-callgrind work` under callgrind with `options`.
///
/// # Errors
/// valgrind cannot be installed, or the run fails.
pub fn run(options: &[&str], work: &str) -> Result<Profile> {
    workspace::provide(&["valgrind"])?;
    let program = std::env::current_exe().context("cannot find this program")?;
    let directory = workspace::root().join("target");
    fs::create_dir_all(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
    // Several may run at once.
    let out = directory.join(format!("callgrind.out.{}", work.replace([':', '/'], "-")));
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--quiet"]).args(options);
    valgrind.arg(format!("--callgrind-out-file={}", out.display()));
    valgrind.arg(&program).args(["bench", "--under-callgrind", work]);
    let output = process::output(&mut valgrind)?;
    let text = fs::read_to_string(&out).with_context(|| format!("cannot read {}", out.display()))?;
    fs::remove_file(&out).with_context(|| format!("cannot remove {}", out.display()))?;
    Ok(Profile { text, output })
}

impl Profile {
    /// Returns the number of instructions that were counted.
    ///
    /// # Errors
    /// None were.
    pub fn total(&self) -> Result<u64> {
        let total = total(&self.text).context("the profile has no total")?;
        ensure!(total > 0, "callgrind did not see what it was to count");
        Ok(total)
    }

    /// Returns the sum of the counts of some events. The profile has to have them ([`CACHES`]).
    ///
    /// # Errors
    /// It does not have them.
    pub fn sum_of(&self, events: &[&str]) -> Result<u64> {
        sum_of(&self.text, events).context("the profile does not have the events")
    }

    /// Returns the number of instructions that were executed at `addresses`. The profile has to be by instruction, with
    /// absolute positions ([`BY_INSTRUCTION`]).
    pub fn instructions_at(&self, addresses: &Range<u64>) -> u64 {
        self.at(addresses).map(|(_, count)| count).sum()
    }

    /// Returns the addresses of a range that were executed, and how often, as [`Self::instructions_at`] counts them. An address may
    /// occur several times.
    pub fn at(&self, addresses: &Range<u64>) -> impl Iterator<Item = (u64, u64)> {
        by_address(&self.text).filter(|(address, _)| addresses.contains(address))
    }

    /// Returns the addresses in this program's file that were executed, and how often; no address for instructions of other files, its
    /// libraries. The profile has to be by instruction ([`BY_INSTRUCTION`]).
    ///
    /// # Errors
    /// The system does not name this program.
    pub fn of_this_program(&self) -> Result<impl Iterator<Item = (Option<u64>, u64)>> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let counts: Vec<_> = by_address_in(&self.text, &program.to_string_lossy()).collect();
        Ok(counts.into_iter())
    }
}

/// Returns the addresses in `file` and how often their instructions were executed; no address for those of other files.
fn by_address_in(profile: &str, file: &str) -> impl Iterator<Item = (Option<u64>, u64)> {
    let (mut of_callee, mut is_in) = (false, false);
    profile.lines().filter_map(move |line| {
        if let Some(object) = line.strip_prefix("ob=") {
            is_in = object == file;
        }
        let skip = of_callee;
        of_callee = line.starts_with("calls=");
        let (address, count) = line.strip_prefix("0x").filter(|_| !skip)?.split_once(' ')?;
        let address = u64::from_str_radix(address, 16).ok()?;
        Some((is_in.then_some(address), count.parse().ok()?))
    })
}

/// Options of a profile by instruction, of a program that corrects the registers of a trapped access.
pub const BY_INSTRUCTION: [&str; 5] = [
    "--dump-instr=yes",
    "--dump-line=no",
    "--compress-pos=no",
    "--compress-strings=no",
    "--vex-iropt-register-updates=allregs-at-mem-access",
];

/// Options of a profile with a simulation of caches: 32 KiB, and 1 MiB as the last level. Prefetching has no effect on it.
pub const CACHES: [&str; 4] = ["--cache-sim=yes", "--I1=32768,8,64", "--D1=32768,8,64", "--LL=1048576,16,64"];

/// Returns the sum of the totals of some events.
fn sum_of(profile: &str, events: &[&str]) -> Option<u64> {
    let names: Vec<&str> =
        profile.lines().find_map(|line| line.strip_prefix("events:"))?.split_whitespace().collect();
    let totals: Vec<&str> =
        profile.lines().find_map(|line| line.strip_prefix("totals:"))?.split_whitespace().collect();
    let of = |event: &&str| {
        let at = names.iter().position(|name| name == event)?;
        // Zeros at the end are left out.
        totals.get(at).map_or(Some(0), |total| total.parse::<u64>().ok())
    };
    events.iter().map(of).sum()
}

/// Returns the total at the end of a profile.
fn total(profile: &str) -> Option<u64> {
    let line =
        profile.lines().find_map(|line| line.strip_prefix("summary:").or(line.strip_prefix("totals:")))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Returns addresses and how often their instructions were executed. An address may occur several times.
fn by_address(profile: &str) -> impl Iterator<Item = (u64, u64)> {
    let mut of_callee = false;
    profile.lines().filter_map(move |line| {
        // The line behind a call is the cost of the callee.
        let skip = of_callee;
        of_callee = line.starts_with("calls=");
        let (address, count) = line.strip_prefix("0x").filter(|_| !skip)?.split_once(' ')?;
        Some((u64::from_str_radix(address, 16).ok()?, count.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn total_of_a_profile_is_parsed() {
        let profile = "version: 1\nevents: Ir\nfn=(1) main\n12 7\nsummary: 1651180\n";
        assert_eq!(total(profile), Some(1_651_180));
        assert_eq!(total("events: Ir\ntotals: 5\n"), Some(5));
        assert_eq!(total("events: Ir\n"), None);
    }

    #[test]
    fn events_are_summed_by_name() {
        let profile = "events: Ir DLmr DLmw\nfn=(1) main\n12 7 1\ntotals: 50 4 3\n";
        assert_eq!(sum_of(profile, &["DLmr", "DLmw"]), Some(7));
        assert_eq!(sum_of("events: Ir DLmr DLmw\ntotals: 50 4\n", &["DLmr", "DLmw"]), Some(4));
        assert_eq!(sum_of("events: Ir\ntotals: 50\n", &["DLmr"]), None);
    }

    #[test]
    fn instructions_of_libraries_have_no_address_in_the_program() {
        let text = "ob=/lib/libc.so\nfn=f\n0x10 2\nob=/bin/lab\nfn=g\n0x10 3\ncob=/lib/libc.so\ncfn=f\ncalls=1 0x10\n0x14 2\n0x18 1\n";
        let counts: Vec<_> = by_address_in(text, "/bin/lab").collect();
        assert_eq!(counts, [(None, 2), (Some(0x10), 3), (Some(0x18), 1)]);
    }

    #[test]
    fn instructions_of_callees_are_counted_once() {
        let text = "positions: instr\nfn=0x1000\n0x1000 3\n0x1004 3\ncalls=3 0x2000\n0x1004 30\nfn=0x2000\n0x2000 30\n";
        let profile = Profile { text: text.into(), output: String::new() };
        assert_eq!(profile.instructions_at(&(0x1000..0x2000)), 6);
        assert_eq!(profile.instructions_at(&(0x2000..0x2001)), 30);
    }
}
