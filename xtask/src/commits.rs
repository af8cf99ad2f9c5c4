// SPDX-License-Identifier: MIT OR Apache-2.0

//! Checks subjects of commits: their length, and that each names one change in a reader's terms.
//!
//! Older commits than [`BASE`] are not checked. The checks are heuristics for mistakes that this project has made.

use std::process::Command;

use anyhow::{Result, ensure};

use crate::shell;

/// The last commit whose subject is not checked.
const BASE: &str = "db3b2f60b02082387d916dd72891f0dec6d3c382";

/// The longest subject, in characters: `git log --oneline` shows as much in a terminal of 80 columns.
const LONGEST: usize = 72;

/// First words of subjects that are about the layout of text, which belongs to the commit that needs it.
const LAYOUT: [&str; 4] = ["Format", "Reformat", "Rewrap", "Wrap"];

/// Tools that a subject does not name: what they ask for belongs to the commit that needs it.
const TOOLS: [&str; 2] = ["clippy", "rustfmt"];

/// Returns true if this clone contains [`BASE`] and all commits since then. A shallow clone does not.
pub fn is_available() -> bool {
    shell::succeeds(git().args(["merge-base", "--is-ancestor", BASE, "HEAD"]))
}

/// Checks the subjects of all commits since [`BASE`], and prints those at fault.
///
/// # Errors
/// A subject at fault.
pub fn check() -> Result<()> {
    let log =
        shell::output(git().args(["log", "--no-merges", "--format=%h %s"]).arg(format!("{BASE}..HEAD")))?;
    let mut refused = 0;
    for line in log.lines() {
        let subject = line.split_once(' ').map_or("", |(_, subject)| subject);
        for fault in faults(subject) {
            println!("{line}: {fault}");
            refused += 1;
        }
    }
    ensure!(refused == 0, "{refused} faults in subjects of commits since {}", &BASE[..8]);
    println!(
        "{} commits since {}: their subjects are short and name one change",
        log.lines().count(),
        &BASE[..8]
    );
    Ok(())
}

/// Returns what is wrong with a subject.
fn faults(subject: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let length = subject.chars().count();
    if length > LONGEST {
        faults.push(format!("{length} characters, of {LONGEST}"));
    }
    if subject.contains("; ") || joins_two(subject) {
        faults.push("two changes: make two commits, or name what they have in common".to_owned());
    }
    let lower = subject.to_lowercase();
    let first = subject.split(' ').next().unwrap_or_default();
    if LAYOUT.contains(&first) || TOOLS.iter().any(|tool| lower.contains(tool)) {
        faults.push("layout and lints are part of the commit that needs them".to_owned());
    }
    if !subject.starts_with(char::is_uppercase) || subject.ends_with('.') {
        faults.push("a subject begins with a capital letter and has no period".to_owned());
    }
    faults
}

/// Returns true if ", and" joins two changes. In a list of three or more it follows another comma.
fn joins_two(subject: &str) -> bool {
    subject.split_once(", and ").is_some_and(|(before, _)| !before.contains(','))
}

fn git() -> Command {
    let mut git = Command::new("git");
    git.current_dir(shell::root());
    git
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_accepted(subject: &str) -> bool {
        faults(subject).is_empty()
    }

    #[test]
    fn a_subject_has_at_most_72_characters() {
        assert!(is_accepted(&format!("A{}", "ä".repeat(71))));
        assert_eq!(faults(&format!("A{}", "b".repeat(72))), ["73 characters, of 72"]);
    }

    #[test]
    fn a_subject_names_one_change() {
        assert!(!is_accepted("Trace the guest; log the host"));
        assert!(!is_accepted("Write the start once, and say less of a run"));
        assert!(is_accepted("Show messages, memory regions, and timers in the trace"));
        assert!(is_accepted("Process receives and sends on their own processors"));
    }

    #[test]
    fn layout_and_lints_are_no_commits() {
        for subject in ["Format", "Wrap a comment", "Write tests as clippy asks", "Run rustfmt"] {
            assert!(!is_accepted(subject), "{subject}");
        }
        assert!(is_accepted("Refuse a capture of an unknown format"));
    }

    #[test]
    fn a_subject_is_written_as_a_title() {
        assert!(!is_accepted("process receives"));
        assert!(!is_accepted("Process receives."));
        assert!(!is_accepted(""));
    }
}
