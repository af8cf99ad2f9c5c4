// SPDX-License-Identifier: MIT OR Apache-2.0

//! Cases of SMB Direct with Linux's kernel: ksmbd as the server of Samba's `smbclient`, and Samba's `smbd` as the server of Linux's
//! cifs client.
//!
//! Samba has no RDMA: it is connected by TCP on this machine with a gateway ([`smb_consumer::gateway`]) on the host with the driver.

mod samba;
mod stream;

use std::{
    fs,
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::Command,
    sync::mpsc,
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use ndk_consumer::{Error, stats::RequestStats};
use smb_consumer::{
    Options,
    gateway::{self, Counts},
};
use smb_direct::Config;

use self::{samba::Server, stream::Stream};
use super::{
    addresses::{guest_address, host_address},
    cases::{Case, Side},
    guest::Guest,
};
use crate::{external_host::ExternalHost, process, testbed::Consumer};

/// The port of SMB Direct on RoCE.
const PORT: u16 = 445;
/// Lengths of the files, in bytes: below and above the threshold of RDMA, one and several requests.
const LENGTHS: [usize; 4] = [25, 4000, 1 << 19, 8 << 20];
/// Bytes of these lengths that go by RDMA.
const RDMA_BYTES: u64 = (1 << 19) + (8 << 20);
/// Time limit of each wait without a limit of its own.
const TIMEOUT: Duration = Duration::from_secs(30);

type Outcome = (Result<Counts, Error>, RequestStats);

/// Runs a case. `directory` is for files of this case. Returns its notes.
///
/// # Errors
/// A side failed, or data differ.
pub fn run(case: &Case, host: &ExternalHost, guest: &mut Guest, directory: &Path) -> Result<Vec<String>> {
    let directory = tempfile::tempdir_in(directory)?;
    let counts = match case.client {
        Side::Viordma => client(case, host, guest, directory.path()),
        Side::Linux => server(case, host, guest, directory.path()),
    }?;
    let Counts { messages, reads, read_bytes, writes, written_bytes, .. } = counts;
    ensure!(
        read_bytes >= RDMA_BYTES && written_bytes >= RDMA_BYTES,
        "only {read_bytes} bytes were read and {written_bytes} written by RDMA"
    );
    Ok(vec![format!("{messages} messages, {reads} reads and {writes} writes by RDMA")])
}

/// Samba's client on the share of the guest.
fn client(case: &Case, host: &ExternalHost, guest: &mut Guest, directory: &Path) -> Result<Counts> {
    let server = guest.serve(&case.guest_command(), case.limit())?;
    let outcome = run_client(case, host, directory);
    let hashes = guest.run("cd /export/share && sha256sum *", TIMEOUT);
    // The server in the kernel, then its helper.
    guest.run("ksmbd.control -s", TIMEOUT)?;
    let output = guest.kill(&server)?;
    let counts = outcome.with_context(|| format!("the guest's side: {output}"))?;
    let hashes = hashes?.ok()?.text;
    for length in LENGTHS {
        let sent = sha256(&directory.join(format!("file-{length}")))?;
        ensure!(
            sha256(&directory.join(format!("back-{length}")))? == sent,
            "{length} bytes read back differ"
        );
        ensure!(hashes.contains(&sent), "{length} bytes on the share differ");
    }
    // One of the files is on the share a second time, by another name; one was deleted.
    ensure!(hashes.lines().count() == LENGTHS.len(), "wrong files on the share:\n{hashes}");
    ensure!(hashes.contains("  renamed"), "no file was renamed:\n{hashes}");
    Ok(counts)
}

fn run_client(case: &Case, host: &ExternalHost, directory: &Path) -> Result<Counts> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let mut commands = Vec::new();
    for length in LENGTHS {
        make_file(&directory.join(format!("file-{length}")), length)?;
        commands.push(format!("put file-{length}; get file-{length} back-{length}"));
    }
    commands.push("mkdir dir; rename file-25 dir\\x; rename dir\\x renamed; rmdir dir".to_owned());
    commands.push("put file-25 deleted; del deleted; ls".to_owned());
    let mut process = samba::client(directory, listener.local_addr()?.port(), &commands.join("; "))?;
    let (plain, _) = process.wait_for(TIMEOUT, || stream::accept(&listener))?;
    let local = SocketAddr::new(host_address(case.family), 0);
    let remote = SocketAddr::new(guest_address(case.family), PORT);
    let gateway = host.machine().consumer("gateway", move |adapter| match Stream::new(plain) {
        Ok(mut plain) => gateway::client(adapter, &options(), local, remote, &mut plain),
        Err(error) => (Err(Error::Gateway(error)), RequestStats::default()),
    });
    // The gateway ends with the process, which is killed at the limit.
    let output = process.output(case.limit());
    let counts = join(gateway);
    match (output, counts) {
        (Ok(output), Ok(counts)) => {
            ensure!(!output.contains("NT_STATUS_"), "smbclient:\n{output}");
            ensure!(output.contains("renamed"), "smbclient lists no file that was renamed:\n{output}");
            Ok(counts)
        }
        (Ok(output), Err(error)) => Err(error.context(format!("smbclient:\n{output}"))),
        (Err(error), Ok(_)) => Err(error),
        (Err(error), Err(gateway)) => bail!("{error:#}\nthe gateway: {gateway:#}"),
    }
}

/// Linux's client on the share of a server on this machine.
fn server(case: &Case, host: &ExternalHost, guest: &mut Guest, directory: &Path) -> Result<Counts> {
    let share = directory.join("share");
    fs::create_dir(&share)?;
    for length in LENGTHS {
        make_file(&share.join(format!("from-server-{length}")), length)?;
    }
    let server = Server::start(directory, &share)?;
    let port = server.port();
    let local = SocketAddr::new(host_address(case.family), PORT);
    let (notify, listening) = mpsc::channel();
    let gateway = host.machine().consumer("gateway", move |adapter| {
        let ready = |_| {
            // Fails if the receiver has timed out.
            let _ = notify.send(());
        };
        let accepted = ndk_consumer::endpoint::listen_for_one(adapter, local, TIMEOUT, ready);
        let plain = || TcpStream::connect(("127.0.0.1", port)).and_then(Stream::new).map_err(Error::Gateway);
        match accepted.and_then(|connector| Ok((connector, plain()?))) {
            Ok((connector, mut plain)) => gateway::server(adapter, &options(), connector, &mut plain),
            Err(error) => (Err(error), RequestStats::default()),
        }
    });
    if listening.recv_timeout(TIMEOUT).is_err() {
        bail!("the image does not listen: {:?}", join(gateway));
    }
    let output = guest.run(&case.guest_command(), case.limit());
    let is_done = output.as_ref().is_ok_and(|output| output.status == 0);
    // A client that failed may not have disconnected: the gateway then ends with the server.
    let server = is_done.then_some(server);
    let counts = join(gateway);
    drop(server);
    let output = output?;
    let console = |error: anyhow::Error| error.context(format!("{output}\n{}", guest.console()));
    let counts = counts.map_err(console)?;
    let hashes = output.clone().ok().map_err(console)?.text;
    for name in
        LENGTHS.iter().flat_map(|length| [format!("from-server-{length}"), format!("to-server-{length}")])
    {
        let line = format!("{}  {name}", sha256(&share.join(&name))?);
        ensure!(hashes.contains(&line), "{name} differs: {line} is not in\n{hashes}");
    }
    Ok(counts)
}

fn options() -> Options {
    let chunk = 1 << 20;
    let config = Config { max_read_write_size: chunk, ..Config::default() };
    Options { config, chunk: chunk as usize, outstanding: 16, ..Options::default() }
}

/// Waits for the gateway. Fails unless every request has completed exactly once.
fn join(gateway: Consumer<Outcome>) -> Result<Counts> {
    let (counts, stats) = gateway.join()?;
    let counts = counts.map_err(anyhow::Error::new).context("the gateway")?;
    let outstanding = stats.total().outstanding();
    ensure!(outstanding == 0, "{outstanding} requests never completed");
    ensure!(stats.unexpected == 0, "{} completions without a request", stats.unexpected);
    Ok(counts)
}

/// Writes a file of bytes that depend on their place and on the length.
fn make_file(path: &Path, length: usize) -> Result<PathBuf> {
    let mut state = length as u64;
    let mut byte = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    fs::write(path, (0..length).map(|_| byte()).collect::<Vec<_>>())?;
    Ok(path.to_owned())
}

/// Returns the SHA-256 of a file, as digits.
fn sha256(path: &Path) -> Result<String> {
    let output = process::output(Command::new("sha256sum").arg(path))?;
    Ok(output.split(' ').next().unwrap_or_default().to_owned())
}
