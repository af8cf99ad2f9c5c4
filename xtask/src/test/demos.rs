// SPDX-License-Identifier: MIT OR Apache-2.0

//! The demo, as a user runs it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Result, bail, ensure};

use super::{capture_folder, count::Count};
use crate::{lab, shell};

/// Runs the demo, with its capture among those that are checked, and its report beside it.
pub fn run(name: &str, arguments: &[&str]) -> Result<PathBuf> {
    let capture = capture_folder::directory()?.join(name).with_extension("pcapng");
    let mut command = lab::command("demo", arguments)?;
    command.arg("--pcap").arg(&capture);
    command.arg("--json").arg(capture.with_extension("json"));
    shell::run(&mut command)?;
    Ok(capture)
}

/// Equal seeds give equal captures, and different seeds do not.
pub fn replay() -> Result<Count> {
    let first = run("seed-7-first", &["--quick", "--seed", "7", "--loss", "0.5%"])?;
    let second = run("seed-7-second", &["--quick", "--seed", "7", "--loss", "0.5%"])?;
    same(&first, &second)?;
    let other = run("seed-8", &["--quick", "--seed", "8", "--loss", "0.5%"])?;
    ensure!(same(&first, &other).is_err(), "another seed gave the same capture");
    Ok(Count::WHOLE)
}

pub fn under_loss() -> Result<Count> {
    run("loss", &["--quick", "--loss", "5%"])?;
    Ok(Count::WHOLE)
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
