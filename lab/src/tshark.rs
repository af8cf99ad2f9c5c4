// SPDX-License-Identifier: MIT OR Apache-2.0

//! Checks of captures by tshark, a dissector that shares no code with the engine.

use std::{collections::BTreeMap, path::Path, process::Command};

use anyhow::{Result, ensure};

use crate::process;

/// Malformed frames. tshark takes the payload of an RDMA operation for an Ethernet frame's if it begins with a known EtherType and two zeros,
/// as two bytes of a file and their padding may: what follows says nothing of the packet.
const MALFORMED: &str = "_ws.malformed && !(frame.protocols contains \"infiniband:ethertype\")";

/// Malformed frames that an error shows.
const SHOWN: usize = 5;

/// Fails if tshark finds a malformed frame in `capture`.
pub fn check_well_formed(capture: &Path) -> Result<()> {
    check_well_formed_without(capture, &[])
}

/// Fails if tshark finds a malformed frame in `capture` with these protocols disabled.
pub fn check_well_formed_without(capture: &Path, protocols: &[&str]) -> Result<()> {
    // tshark takes the payload of a short SEND for an RPC-over-RDMA header, and any datagram for Ethernet over InfiniBand, and reports what
    // does not fit as malformed.
    let disabled = ["rpcordma", "infiniband.eoib"]
        .iter()
        .chain(protocols)
        .flat_map(|protocol| ["--disable-protocol", protocol]);
    let arguments: Vec<&str> = disabled.chain(["-Y", MALFORMED]).collect();
    let malformed = dissect(capture, &arguments)?;
    let lines: Vec<&str> = malformed.lines().collect();
    let shown = lines[..lines.len().min(SHOWN)].join("\n");
    ensure!(lines.is_empty(), "{} has {} malformed frames:\n{shown}", capture.display(), lines.len());
    Ok(())
}

/// Counts the frames of `capture` by protocol and description, without the fields that differ from packet to packet.
pub fn packet_kinds(capture: &Path) -> Result<BTreeMap<String, usize>> {
    let lines = dissect(capture, &["-o", "gui.column.format:\"Protocol\",\"%p\",\"Info\",\"%i\""])?;
    let mut kinds = BTreeMap::new();
    for line in lines.lines().map(str::trim) {
        let kind = line[..line.find(" QP=").unwrap_or(line.len())].trim();
        *kinds.entry(kind.to_owned()).or_default() += 1;
    }
    Ok(kinds)
}

fn dissect(capture: &Path, arguments: &[&str]) -> Result<String> {
    // On success, standard error is dropped: tshark warns there when root runs it.
    process::output(Command::new("tshark").arg("-n").arg("-r").arg(capture).args(arguments))
}
