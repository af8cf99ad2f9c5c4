//! What tshark says about a capture.

use std::{collections::BTreeMap, path::Path, process::Command};

use anyhow::{Result, bail, ensure};

use crate::shell;

/// Packets that every transfer contains: connection management by attribute, RC transport by opcode.
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

/// Malformed frames that an error names.
const NAMED: usize = 5;

/// Fails if tshark finds a malformed frame.
pub fn finds_nothing_malformed(capture: &Path) -> Result<()> {
    // It takes the bytes of any short SEND for a header of RPC-over-RDMA, and what does not fit for malformed.
    let malformed = tshark(capture, &["--disable-protocol", "rpcordma", "-Y", "_ws.malformed"])?;
    let lines: Vec<&str> = malformed.lines().collect();
    let named = lines[..lines.len().min(NAMED)].join("\n");
    ensure!(lines.is_empty(), "{} has {} malformed frames:\n{named}", capture.display(), lines.len());
    Ok(())
}

/// Prints what tshark calls the packets of a capture, and fails if it misses what a transfer consists of.
pub fn names_a_transfer(capture: &Path) -> Result<()> {
    let lines = tshark(capture, &["-o", "gui.column.format:\"Protocol\",\"%p\",\"Info\",\"%i\""])?;
    let mut kinds = BTreeMap::<String, usize>::new();
    for line in lines.lines() {
        *kinds.entry(kind(line)).or_default() += 1;
    }
    for (kind, count) in &kinds {
        println!("  {count:>7} {kind}");
    }
    let missing: Vec<&str> =
        EXPECTED.into_iter().filter(|wanted| !kinds.keys().any(|kind| kind.contains(wanted))).collect();
    if missing.is_empty() {
        Ok(())
    } else {
        bail!("tshark names no {} in {}", missing.join(", "), capture.display())
    }
}

/// A line of tshark's with what differs from packet to packet cut off.
fn kind(line: &str) -> String {
    let line = line.trim();
    line[..line.find(" QP=").unwrap_or(line.len())].trim().to_owned()
}

fn tshark(capture: &Path, arguments: &[&str]) -> Result<String> {
    // tshark warns about running as root on standard error; that is not about the capture.
    shell::output(Command::new("tshark").arg("-n").arg("-r").arg(capture).args(arguments))
}
