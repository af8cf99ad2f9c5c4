// SPDX-License-Identifier: MIT OR Apache-2.0

//! Captures that the tests and demos of a run leave.

use std::{fs, path::PathBuf, thread};

use anyhow::{Context as _, Result, ensure};

use super::{capture_folder::directory, count::Count, demos};
use crate::{jobs, lab, packages, shell};

/// Packets that every transfer contains, as tshark names them: connection management by attribute, RC transport by
/// opcode.
const EXPECTED: [&str; 9] = [
    "ConnectRequest",
    "ConnectReply",
    "ReadyToUse",
    "DisconnectRequest",
    "DisconnectReply",
    "RC Send Only",
    "RC RDMA Write",
    "RC RDMA Read Request",
    "RC Acknowledge",
];

/// Checks every capture of the steps before, by a dissector and an ICRC computation that share no code with the engine. Each one
/// counts as a test.
pub fn are_sound() -> Result<Count> {
    packages::require(&packages::CAPTURE)?;
    let quick = demos::run("quick", &["--quick", "--seed", "1"])?;
    let captures = all()?;
    for (capture, report) in captures.iter().zip(decoded(&captures)?) {
        println!("  {}\n{report}", capture.display());
        if *capture == quick {
            let missing: Vec<&str> = EXPECTED.into_iter().filter(|name| !report.contains(name)).collect();
            ensure!(missing.is_empty(), "tshark names no {} in {}", missing.join(", "), capture.display());
        }
    }
    let names: Vec<_> = captures.iter().filter_map(|capture| capture.file_stem()?.to_str()).collect();
    println!("{} captures: {}", names.len(), names.join(", "));
    Ok(Count::passed(captures.len()))
}

/// Returns what `decode` prints about each capture. As many run at a time as there are processors.
fn decoded(captures: &[PathBuf]) -> Result<Vec<String>> {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    jobs::each(&vec![(); processors], captures, |(), capture| {
        shell::output(lab::command("decode", &["--quiet", "--tshark"])?.arg(capture))
    })
}

fn all() -> Result<Vec<PathBuf>> {
    let directory = directory()?;
    let entries = fs::read_dir(&directory).with_context(|| format!("cannot read {}", directory.display()))?;
    let mut captures = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "pcapng" || extension == "pcap") {
            captures.push(path);
        }
    }
    captures.sort();
    Ok(captures)
}
