// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask inf`: writes what is generated from the tables in `inf/`, the scripts of the package and the engine's counters:
//! `viordma.inx` and parts of documents.

use std::{fmt::Write as _, fs, path::Path, process::Command};

use anyhow::{Context as _, Result, anyhow, ensure};
use viordma_inf::{Edition, faults, inx, pages, stamp};

use crate::{
    package::contents::{DELIVERED, FOLDER},
    shell,
    wmi::{self, counters::Counter},
};

/// The date of an INF that is built outside of a clone.
const NO_COMMIT: &str = "01/01/2026";

#[derive(clap::Args, Default)]
pub struct Options {
    /// Only check that the documents are current
    #[arg(long)]
    check: bool,
}

/// Runs the command.
///
/// # Errors
/// A table with a fault, or a page that is not current.
pub fn run(options: &Options) -> Result<()> {
    faults::check().map_err(|faults| anyhow!(faults))?;
    if options.check {
        return check();
    }
    inx::write(shell::root(), Edition::Standard).context("cannot write viordma.inx")?;
    for (page, _, filled) in all()? {
        shell::write_if_changed(&shell::root().join(page), filled.as_bytes())?;
    }
    Ok(())
}

/// Checks that the pages have what the tables say.
///
/// # Errors
/// If they do not.
pub fn check() -> Result<()> {
    for (page, text, filled) in all()? {
        ensure!(text == filled, "{page} is not current: run `cargo xtask inf`");
    }
    Ok(())
}

/// The pages with parts: path, text, and text with these parts current.
fn all() -> Result<Vec<(&'static str, String, String)>> {
    let read = |file: &str| {
        fs::read_to_string(shell::root().join(file)).with_context(|| format!("cannot read {file}"))
    };
    let mut parts = pages::parts();
    parts.push(("counters of the engine", counters(&wmi::counters::all()?)));
    let mut scripts = String::new();
    for name in DELIVERED.iter().filter(|name| name.strip_suffix(".ps1").is_some()) {
        scripts.push_str(&script(name, &read(&format!("{FOLDER}/{name}"))?));
    }
    parts.push(("scripts of the package", scripts.trim_end().to_owned() + "\n"));
    let mut all = Vec::new();
    for page in pages::PAGES {
        let text = read(page)?;
        let filled = pages::filled(&text, &parts).map_err(|error| anyhow!("{page}: {error}"))?;
        all.push((page, text, filled));
    }
    let texts: Vec<String> = all.iter().map(|(_, text, _)| text.clone()).collect();
    let missing = pages::missing(&texts, &parts);
    ensure!(missing.is_empty(), "no page has the part {missing:?}");
    Ok(all)
}

/// A table of the counters.
fn counters(counters: &[Counter]) -> String {
    let mut table = "| counter | counts |\n| --- | --- |\n".to_owned();
    for (name, text) in counters {
        let _ = writeln!(table, "| `{name}` | {text} |");
    }
    table
}

/// Returns the help of a script as a section: synopsis, description and parameters.
fn script(name: &str, text: &str) -> String {
    let help = text.split("<#").nth(1).and_then(|rest| rest.split("#>").next()).unwrap_or_default();
    let mut section = format!("## {name}\n");
    let mut was_parameter = false;
    for paragraph in help.split("\n.").skip(1) {
        let (head, body) = paragraph.split_once('\n').unwrap_or((paragraph, ""));
        let body = body.trim();
        if let Some(parameter) = head.strip_prefix("PARAMETER ") {
            let gap = if was_parameter { "" } else { "\n" };
            let _ = writeln!(section, "{gap}* `-{parameter}`: {}", body.replace('\n', "\n  "));
            was_parameter = true;
        } else {
            let _ = writeln!(section, "\n{body}");
        }
    }
    section + "\n"
}

/// Writes the INF of an edition for an architecture (`amd64`, `arm64`) to `path`, whose DriverVer is the version and the date of the last commit; and `viordma.inx`
/// at the root, which is of the standard edition.
///
/// # Errors
/// A table with a fault, or a file that cannot be written.
pub fn stamp(edition: Edition, architecture: &str, path: &Path) -> Result<()> {
    faults::check().map_err(|faults| anyhow!(faults))?;
    inx::write(shell::root(), Edition::Standard).context("cannot write viordma.inx")?;
    let mut git = Command::new("git");
    git.current_dir(shell::root()).args(["log", "-1", "--format=%cd", "--date=format:%m/%d/%Y"]);
    let date = shell::output(&mut git).unwrap_or_else(|_| {
        eprintln!("there is no commit: the INF has the date {NO_COMMIT}");
        NO_COMMIT.to_owned()
    });
    let version = concat!(env!("CARGO_PKG_VERSION"), ".0");
    let text = stamp::stamped(edition, architecture, date.trim(), version).map_err(|fault| anyhow!(fault))?;
    shell::write_if_changed(path, text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn section_of_a_script_is_its_help() {
        let text = "<#\n.SYNOPSIS\nDoes.\n.DESCRIPTION\nMore\nof it.\n.PARAMETER Name\nA\nname.\n.PARAMETER Off\nOff.\n#>\ncode";
        assert_eq!(
            script("A.ps1", text),
            "## A.ps1\n\nDoes.\n\nMore\nof it.\n\n* `-Name`: A\n  name.\n* `-Off`: Off.\n\n"
        );
    }

    #[test]
    fn the_pages_are_current() {
        check().unwrap();
    }
}
