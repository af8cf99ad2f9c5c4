// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask inf`: writes what is generated from the tables in `inf/`: `viordma.inx` and parts of documents.

use std::{fs, path::Path, process::Command};

use anyhow::{Context as _, Result, anyhow, ensure};
use viordma_inf::{Edition, faults, inx, pages};

use crate::shell;

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
    let mut all = Vec::new();
    for page in pages::PAGES {
        let text =
            fs::read_to_string(shell::root().join(page)).with_context(|| format!("cannot read {page}"))?;
        let filled = pages::filled(&text).map_err(|error| anyhow!("{page}: {error}"))?;
        all.push((page, text, filled));
    }
    let texts: Vec<String> = all.iter().map(|(_, text, _)| text.clone()).collect();
    let missing = pages::missing(&texts);
    ensure!(missing.is_empty(), "no page has the part {missing:?}");
    Ok(all)
}

/// Writes the INF of an edition for an architecture (`amd64`, `arm64`) to `path`, stamped with the version and the date of the last commit; and `viordma.inx`
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
    let text = inx::stamped(edition, architecture, date.trim(), version).map_err(|fault| anyhow!(fault))?;
    shell::write_if_changed(path, text.as_bytes())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_pages_are_current() {
        super::check().unwrap();
    }
}
