//! `cargo xtask replay`: the engine in the place of either host of every capture.

use anyhow::{Result, bail};
use captures::replay::Report;

use crate::{exit::Exit, workspace};

const CAPTURES: &str = "crates/roce-wire/tests/vectors/rxe";

/// Ends with 1 if the engine says anything else than the host of a capture without a reason that is listed.
#[derive(clap::Args)]
pub struct Options {
    /// Only captures whose name contains this
    #[arg(value_name = "TEXT", default_value = "")]
    only: String,
    /// List every difference
    #[arg(long, short)]
    verbose: bool,
    /// Print the page of the book instead
    #[arg(long, conflicts_with_all = ["only", "verbose"])]
    markdown: bool,
}

pub fn run(options: &Options) -> Result<()> {
    let mut report = Report::of(&workspace::root().join(CAPTURES), &options.only)?;
    if report.captures() == 0 {
        return Err(Exit::usage(format!("no capture in {CAPTURES} has {:?} in its name", options.only)));
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
