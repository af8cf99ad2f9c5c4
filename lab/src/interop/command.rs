// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask interop`: the driver's image against a Linux guest with `rdma_rxe`.

use std::{
    collections::HashSet,
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Result, ensure};
use captures::{
    decode::{Content, Decoder},
    file,
};

use super::{
    cases::{self, Case, Work},
    run::{Runner, Setup, TRACE},
    table,
};
use crate::{decode, device::DeviceName, exit::Exit, tshark, workspace};

/// Test the image against a Linux guest with rdma_rxe, as client and as server.
///
/// Boots the guest under QEMU, runs the cases one after the other, and prints a table. The exit code is 1 if a case
/// failed, with --short also if one passed at the second attempt only.
#[derive(clap::Args, Default)]
pub struct Options {
    /// Run only the cases whose title contains this text
    #[arg(long, value_name = "TEXT")]
    pub only: Option<String>,
    /// List the titles of the cases, and run none
    #[arg(long)]
    pub list: bool,
    /// Run only the cases that are part of `cargo xtask test`
    #[arg(long)]
    pub short: bool,
    /// Network device of the host with the image: simulated, or QEMU's virtio-net-pci. Cases without the image are left
    /// out with QEMU's. Cases with a variant of QEMU's device have that one
    #[arg(long, value_name = "DEVICE", default_value = "simulated")]
    pub device: DeviceName,
    /// Keep the captures of all cases in this directory, which must not hold any yet [default: only those of failed
    /// cases, in target/interop]
    #[arg(long, value_name = "DIRECTORY")]
    pub captures: Option<PathBuf>,
}

/// Numbers of cases.
struct Count {
    passed: usize,
    failed: usize,
    /// Cases that passed with a remark.
    remarks: usize,
}

/// Runs the command.
///
/// # Errors
/// A case failed, or the cases cannot be run.
pub fn run(options: &Options) -> Result<()> {
    let cases = selected(options)?;
    if options.list {
        for case in &cases {
            println!("{} (by the {})", case.title(), case.host());
        }
        return Ok(());
    }
    let count = run_all(options, &cases)?;
    ensure!(count.failed == 0, "{} of {} cases failed", count.failed, count.passed + count.failed);
    // Those of a short run do not depend on luck. A whole run may meet a defect of Linux, which the totals show.
    let is_clean = !options.short || count.remarks == 0;
    ensure!(is_clean, "{} of {} cases passed with a remark only", count.remarks, count.passed);
    Ok(())
}

fn selected(options: &Options) -> Result<Vec<Case>> {
    let mut cases = cases::all();
    cases.retain(|case| case.short || !options.short);
    cases.retain(|case| options.device == DeviceName::Simulated || case.host() == "image");
    if let Some(text) = &options.only {
        let wanted = text.to_lowercase();
        cases.retain(|case| case.title().to_lowercase().contains(&wanted));
    }
    if cases.is_empty() {
        return Err(Exit::usage("no title contains this text; --list prints all titles"));
    }
    Ok(cases)
}

fn run_all(options: &Options, cases: &[Case]) -> Result<Count> {
    let captures = captures_directory(options)?;
    workspace::provide(&["tshark", "guest"])?;
    let image = workspace::built_image()?;
    let is_smb = |case: &&Case| matches!(case.work, Work::Smb(_));
    let has_smb = cases.iter().any(|case| is_smb(&case)) && provide_smb()?;
    let guest = linux_guest::Image::of_workspace(workspace::root());
    let guest = if has_smb { guest.with_smb() } else { guest };
    let (skipped, cases): (Vec<&Case>, Vec<&Case>) = cases.iter().partition(|case| is_smb(case) && !has_smb);
    for case in &skipped {
        println!("skip {}", case.title());
    }
    // The path of a socket is limited to 107 bytes: not below the target directory.
    let directory = tempfile::tempdir()?;
    let start = Instant::now();
    let device = options.device.kind();
    let mut runner = Runner::new(Setup { image, device, guest, directory, captures: captures.clone() });
    let mut rows = Vec::new();
    for case in cases {
        let row = runner.run(case, |capture| check(case, capture));
        println!("{row}");
        if let (true, None, Some(capture)) = (row.passed(), &options.captures, &row.capture) {
            fs::remove_file(capture)?;
            remove_if_exists(&capture.with_extension(TRACE))?;
        }
        rows.push(row);
    }
    let boots: Vec<String> = runner.boots.iter().map(|boot| format!("{:.1} s", boot.as_secs_f64())).collect();
    drop(runner);
    println!("\n{}", table::summary(&rows, skipped.len()));
    println!(
        "{:.0} s in total; boot times of the guest: {}",
        start.elapsed().as_secs_f64(),
        boots.join(", ")
    );
    if !skipped.is_empty() {
        println!("skipped: the guest's packages for SMB Direct, or Samba, cannot be had");
    }
    let failed = rows.iter().filter(|row| !row.passed()).count();
    if failed > 0 || options.captures.is_some() {
        println!("captures, and traces of the driver, are in {}", captures.display());
    }
    let remarks = rows.iter().filter(|row| row.remark().is_some()).count();
    Ok(Count { passed: rows.len() - failed, failed, remarks })
}

/// Provides the guest with SMB Direct, and Samba. Returns false where their packages cannot be had.
///
/// # Errors
/// The guest cannot be built from its packages.
fn provide_smb() -> Result<bool> {
    match workspace::provide(&["smb-guest", "samba"]) {
        Err(error) if error.downcast_ref::<Exit>().is_some_and(|exit| exit.code == 2) => Ok(false),
        provided => provided.map(|()| true),
    }
}

/// Returns the directory for captures. Captures in the default directory are deleted; a directory of the user must not
/// hold captures.
fn captures_directory(options: &Options) -> Result<PathBuf> {
    let directory = match &options.captures {
        Some(directory) => directory.clone(),
        None => workspace::root().join("target/interop"),
    };
    let unusable =
        |error: std::io::Error| Exit::usage(format!("cannot use {}: {error}", directory.display()));
    fs::create_dir_all(&directory).map_err(unusable)?;
    for entry in fs::read_dir(&directory).map_err(unusable)? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "pcapng") {
            if options.captures.is_some() {
                let directory = directory.display();
                return Err(Exit::usage(format!(
                    "{directory} holds captures already; name an empty directory"
                )));
            }
            fs::remove_file(&path)?;
            remove_if_exists(&path.with_extension(TRACE))?;
        }
    }
    Ok(directory)
}

/// Removes a trace, which cases of the engine alone do not have.
fn remove_if_exists(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

/// Returns the protocols of a case that tshark reports as malformed although they are not. `repeats`: a packet of a SEND was
/// transmitted again, because it was lost, or because the guest was slow.
fn unknown_to_tshark(case: &Case, repeats: bool) -> &'static [&'static str] {
    match (&case.work, case.mtu) {
        // It does not join the packets of a SEND before it joins the fragments of SMB Direct.
        (Work::Smb(_), 1024) => &["smb_direct"],
        // It joins a SEND that is repeated out of order with the data of the next one.
        (Work::Smb(_), _) if repeats || case.is_lossy() => &["smb_direct"],
        // It takes the hints in a server's first token (NegTokenInit2, [MS-SPNG] 2.2.1) for a MIC.
        (Work::Smb(_), _) => &["spnego"],
        _ => &[],
    }
}

/// Checks a capture: tshark finds no malformed frame, an independent computation agrees with every ICRC, and the CM REQ
/// has the case's MTU, unless there is no RDMA.
fn check(case: &Case, capture: &Path) -> Result<()> {
    decode::check(capture)?;
    let (mut decoder, mut sends) = (Decoder::new(), HashSet::new());
    let (mut has_req, mut repeats) = (false, false);
    for captured in file::open(capture)? {
        let frame = decoder.frame(&captured?);
        if let Content::Roce(packet) = &frame.content {
            let is_send = packet.name.starts_with("SEND");
            repeats |= is_send && !sends.insert((frame.source.clone(), packet.dest_qp, packet.psn));
        }
        if has_req {
            continue;
        }
        let text = frame.to_string();
        has_req = text.contains("CM REQ");
        ensure!(!has_req || text.contains(&format!(" mtu {} ", case.mtu)), "wrong MTU: {text}");
    }
    ensure!(has_req || matches!(case.work, Work::Tcp(_) | Work::Stopped(_)), "no CM REQ in the capture");
    tshark::check_well_formed_without(capture, unknown_to_tshark(case, repeats))
}
