// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask replay`: replays captures, with the engine in place of either host.

use anyhow::{Result, bail};
use captures::replay::Report;

use crate::{exit::Exit, workspace};

const CAPTURES: &str = "crates/roce-wire/tests/vectors/rxe";

/// Replay captures of Linux peers, with the engine in place of either side.
///
/// The exit code is 1 if the engine sends anything else than the host did, and docs list no reason for it.
#[derive(clap::Args)]
pub struct Options {
    /// Only captures whose name contains this
    #[arg(value_name = "TEXT", default_value = "")]
    only: String,
    /// List every difference
    #[arg(long, short)]
    verbose: bool,
    /// Print docs/replay.md instead
    #[arg(long, conflicts_with_all = ["only", "verbose"])]
    markdown: bool,
}

/// Runs the command.
///
/// # Errors
/// A capture cannot be read, or its replay differs.
pub fn run(options: &Options) -> Result<()> {
    let mut report = Report::of(&workspace::root().join(CAPTURES), &options.only)?;
    if report.captures() == 0 {
        let mut names: Vec<String> = std::fs::read_dir(workspace::root().join(CAPTURES))
            .into_iter()
            .flatten()
            .filter_map(|entry| Some(entry.ok()?.path().file_stem()?.to_string_lossy().into_owned()))
            .collect();
        names.sort();
        let names = names.join(", ");
        return Err(Exit::usage(format!(
            "no capture has {:?} in its name; there are: {names}",
            options.only
        )));
    }
    report.detailed = options.verbose;
    if options.markdown {
        print!("{}", report.markdown());
    } else {
        print!("{report}");
    }
    match report.unexplained().len() {
        0 => Ok(()),
        count => bail!("{count} differences without a reason"),
    }
}
