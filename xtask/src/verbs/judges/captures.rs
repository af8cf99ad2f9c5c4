// SPDX-License-Identifier: MIT OR Apache-2.0

//! Captures of the programs' frames, decoded by tshark, their ICRCs computed by a program that shares no code with the engine.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};

use crate::shell;

/// The program that computes ICRCs.
const ICRC: &str = include_str!("icrc.py");

/// Filter for frames with which tshark finds fault.
const WRONG: &str = "_ws.malformed || _ws.expert.severity == error || !(infiniband || arp || icmpv6)";

/// Checks all frames of captures, and returns how many there are.
///
/// # Errors
/// A frame has a wrong ICRC, or tshark cannot decode it; or there is no frame.
pub fn check(files: &[PathBuf], folder: &Path) -> Result<u64> {
    ensure!(!files.is_empty(), "no capture was written");
    let script = folder.join("icrc.py");
    shell::write_if_changed(&script, ICRC.as_bytes())?;
    let text = shell::output(Command::new("/usr/bin/python3").arg(&script).args(files))?;
    let counts: Vec<u64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [good, bad, _] = counts[..] else { anyhow::bail!("no counts of ICRCs: {text}") };
    ensure!(bad == 0, "{bad} of {} frames have a wrong ICRC", good + bad);
    ensure!(good > 0, "the captures have no frame");
    for file in files {
        let mut tshark = Command::new("tshark");
        // A capture has no checksum where IPv6 needs one: the kernel computes it.
        tshark
            .args(["-n", "-o", "udp.check_checksum:TRUE", "-o", "udp.ignore_ipv6_zero_checksum:TRUE", "-r"])
            .arg(file)
            .args(["-Y", WRONG]);
        let wrong = shell::output(&mut tshark)?;
        let first = wrong.lines().next();
        ensure!(first.is_none(), "tshark: {}: {}", file.display(), first.unwrap_or_default());
    }
    Ok(good)
}

/// Deletes captures, which are large.
///
/// # Errors
/// One cannot be deleted.
pub fn remove(files: &[PathBuf]) -> Result<()> {
    files.iter().try_for_each(|file| {
        fs::remove_file(file).with_context(|| format!("cannot delete {}", file.display()))
    })
}
