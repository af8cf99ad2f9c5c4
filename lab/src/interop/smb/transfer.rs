// SPDX-License-Identifier: MIT OR Apache-2.0

//! Files, limits and results that both directions have in common.

use std::{
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow, ensure};
use linux_guest::Guest;
use ndk_consumer::{Error, stats::RequestStats};
use smb_consumer::{Options, gateway::Counts};
use smb_direct::Config;

use crate::{external_host::ExternalHost, interop::smb_work::SmbWork, process};

/// The port of SMB Direct on RoCE.
pub const PORT: u16 = 445;
/// Length of a file whose transfer is interrupted, or made by many requests, in bytes.
pub const LARGE: usize = 32 << 20;
/// Requests from this length on go by RDMA, at the latest.
const RDMA_LENGTH: usize = 1 << 16;
/// Time limit of each wait without a limit of its own.
pub const TIMEOUT: Duration = Duration::from_secs(60);
pub const POLL: Duration = Duration::from_millis(20);
/// Frames from the guest after which a transfer has begun.
const FRAMES: u64 = 500;

/// How a gateway ended, and the statistics of its requests.
pub type Outcome = (Result<Counts, Error>, RequestStats);

/// Returns the options of the gateways.
pub fn options(work: SmbWork) -> Options {
    let chunk = work.largest_request();
    let config = Config { max_read_write_size: chunk as u32, ..Config::default() };
    Options { config, chunk, outstanding: work.outstanding(), ..Options::default() }
}

/// Returns how a gateway ended. Fails unless every request has completed exactly once.
pub fn end_of((counts, stats): Outcome) -> Result<Result<Counts>> {
    let outstanding = stats.total().outstanding();
    ensure!(outstanding == 0, "{outstanding} requests never completed");
    ensure!(stats.unexpected == 0, "{} completions without a request", stats.unexpected);
    Ok(counts.map_err(|error| anyhow!("the gateway: {error}")))
}

/// Checks that files of these lengths went by RDMA in both directions where they are long enough.
pub fn check_rdma(counts: &Counts, lengths: &[usize]) -> Result<()> {
    let bytes: usize = lengths.iter().filter(|length| **length >= RDMA_LENGTH).sum();
    let Counts { read_bytes, written_bytes, .. } = counts;
    ensure!(
        *read_bytes >= bytes as u64 && *written_bytes >= bytes as u64,
        "only {read_bytes} bytes were read and {written_bytes} written by RDMA"
    );
    Ok(())
}

/// Checks that the requests were as long and as many at one time as `work` requires.
pub fn check_requests(work: SmbWork, counts: &Counts, longest: usize) -> Result<()> {
    match work {
        SmbWork::LongRequests => ensure!(
            counts.longest as usize == longest,
            "the longest request has {} bytes instead of {longest}",
            counts.longest
        ),
        SmbWork::Outstanding(requests) => ensure!(
            counts.outstanding >= requests,
            "no more than {} requests were outstanding at one time",
            counts.outstanding
        ),
        _ => {}
    }
    Ok(())
}

/// Returns the note of a case.
pub fn note(counts: &Counts) -> String {
    let Counts { messages, reads, writes, longest, outstanding, .. } = counts;
    format!(
        "{messages} messages, {reads} reads and {writes} writes by RDMA of up to {longest} bytes, up to {outstanding} at one time"
    )
}

/// Waits until `is_done` returns true.
pub fn wait_until(what: &str, limit: Duration, mut is_done: impl FnMut() -> bool) -> Result<()> {
    let deadline = Instant::now() + limit;
    while !is_done() {
        ensure!(Instant::now() < deadline, "{what}: not within {} s", limit.as_secs());
        std::thread::sleep(POLL);
    }
    Ok(())
}

/// Waits until the guest has sent as many frames as a transfer in progress does.
pub fn wait_for_transfer(host: &ExternalHost) -> Result<()> {
    let sent = || host.wire().counters(1).sent;
    let before = sent();
    wait_until("a transfer begins", TIMEOUT, || sent() >= before + FRAMES)
}

/// Adds the output of the guest's kernel to an error.
pub fn with_console(error: &anyhow::Error, guest: &Guest) -> anyhow::Error {
    anyhow!("{error:#}\nthe guest's console:\n{}", guest.console())
}

/// Writes a file of bytes that depend on their place and on the length.
pub fn make_file(path: &Path, length: usize) -> Result<()> {
    let mut state = length as u64;
    let mut byte = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    fs::write(path, (0..length).map(|_| byte()).collect::<Vec<_>>())?;
    Ok(())
}

/// Returns the SHA-256 of a file, as digits.
pub fn sha256(path: &Path) -> Result<String> {
    let output = process::output(Command::new("sha256sum").arg(path))?;
    Ok(output.split(' ').next().unwrap_or_default().to_owned())
}
