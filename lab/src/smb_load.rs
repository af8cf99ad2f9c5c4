// SPDX-License-Identifier: MIT OR Apache-2.0

//! Requests of SMB Direct through the image between two hosts with the verifier off, RDMA alone with the same lengths, and the same
//! requests over TCP. Neither side looks at the data.

use std::{
    net::SocketAddr,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Result, ensure};
use device_sim::virtio_net::Features;
use ndk_consumer::transfer::{Phase, Progress};
use smb_consumer::{NoStore, Options};

use crate::{
    cpu_time,
    measure::{self, Transfers, Work},
    smb_tcp::Messages,
    tcp_stream::{self, Connection},
    testbed::{self, Testbed},
};

const PORT: u16 = 445;
const TIMEOUT: Duration = Duration::from_secs(10);

/// Requests of one length.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Bytes of a request.
    pub size: u32,
    /// Requests in flight.
    pub outstanding: u32,
    /// Requests in all, in each direction.
    pub count: u32,
}

/// Result of one direction of a transfer.
#[derive(Clone, Copy, Default, Debug)]
pub struct Costs {
    /// Duration of all requests.
    pub elapsed: Duration,
    /// CPU time of all threads during `bytes` of them.
    pub cpu: Duration,
    pub bytes: u64,
}

impl Load {
    fn bytes(&self) -> u64 {
        u64::from(self.size) * u64::from(self.count)
    }

    fn options(&self) -> Options {
        Options {
            chunk: self.size as usize,
            outstanding: self.outstanding as usize,
            timeout: TIMEOUT,
            ..Options::default()
        }
    }
}

impl Costs {
    /// Returns the CPU time of all threads per GiB, in seconds.
    #[must_use]
    pub fn seconds_per_gib(&self) -> f64 {
        self.cpu.as_secs_f64() / (self.bytes as f64 / f64::from(1 << 30))
    }
}

/// Transfers the same by RDMA alone, in two runs: by the operation that carries the data of WRITE requests, which the server reads, and
/// of READ requests, which it writes. As many buffers take turns as SMB Direct has. Returns the costs of either.
///
/// # Errors
/// As [`measure::run`].
pub fn rdma(image: &Path, load: &Load, real_time: bool) -> Result<[Costs; 2]> {
    let transfers = Transfers {
        count: load.count.into(),
        size: load.size as usize,
        outstanding: load.outstanding,
        buffers: load.outstanding,
    };
    let costs = |work| {
        let run = measure::run(image, work, real_time)?;
        anyhow::Ok(Costs { elapsed: run.result.elapsed, cpu: run.cpu, bytes: run.result.bytes })
    };
    Ok([costs(Work::Reads(transfers))?, costs(Work::Writes(transfers))?])
}

/// Writes and reads by SMB Direct. Returns the costs of either.
///
/// # Errors
/// The image cannot be loaded or started, a request fails, or a violation is found.
pub fn smb_direct(image: &Path, load: &Load, real_time: bool) -> Result<[Costs; 2]> {
    let bed_options = testbed::Options { real_time, verifier: false, ..testbed::Options::default() };
    let mut bed = Testbed::new(image, &bed_options)?;
    bed.start()?;
    let [client, server] = bed.machines();
    let (local, remote) = (SocketAddr::new(client.address(), 0), SocketAddr::new(server.address(), PORT));
    let options = load.options();
    let bytes = load.bytes();
    let listening = bed.event();
    let serving = {
        let (listening, options) = (listening.clone(), options.clone());
        server.consumer("server", move |adapter| {
            let mut store = NoStore::default();
            let outcome =
                smb_consumer::serve(adapter, &options, remote, &mut store, |_| listening.set(), &|_| {});
            // Also if listening failed: the client must not wait.
            listening.set();
            outcome
        })
    };
    let meter: Arc<[Meter; 2]> = Arc::default();
    let measuring = {
        let meter = meter.clone();
        client.consumer("client", move |adapter| {
            let _ = listening.wait(TIMEOUT);
            let progress = |progress: Progress| meter[progress.phase as usize].record(progress);
            smb_consumer::measure(adapter, &options, local, remote, bytes, &progress)
        })
    };
    let (measured, outcome) = (measuring.join()?, serving.join()?);
    let report = ended(measured.map_err(|failure| failure.error), outcome.map_err(|failure| failure.error))?;
    bed.stop()?;
    let violations = bed.violations();
    ensure!(violations.is_empty(), "{}", violations.join("\n"));
    let costs = |phase: Phase, elapsed| Costs { elapsed, ..meter[phase as usize].costs() };
    Ok([costs(Phase::Write, report.write), costs(Phase::Read, report.read)])
}

/// Writes and reads by the same requests over TCP, with the data in the messages, through the same driver on NICs with or without
/// checksum and segmentation offload. Returns the costs of either.
///
/// # Errors
/// As [`smb_direct()`].
pub fn smb_over_tcp(image: &Path, load: &Load, real_time: bool, has_offloads: bool) -> Result<[Costs; 2]> {
    let without = if has_offloads { Features::default() } else { Features::OFFLOADS };
    let features = Features::DEFAULT.without(without);
    let bed_options =
        testbed::Options { real_time, features, verifier: false, ..testbed::Options::default() };
    let mut bed = Testbed::new(image, &bed_options)?;
    bed.start()?;
    let (options, bytes) = (load.options(), load.bytes());
    let meter: Arc<[Meter; 2]> = Arc::default();
    let client = {
        let (meter, options) = (meter.clone(), options.clone());
        move |connection: &mut Connection| {
            let progress = |progress: Progress| meter[progress.phase as usize].record(progress);
            smb_consumer::measure_over(&mut Messages::new(connection), &options, bytes, &progress)
        }
    };
    let serve = move |connection: &mut Connection| {
        smb_consumer::serve_over(&mut Messages::new(connection), &options, &mut NoStore::default(), &|_| {})
    };
    let (measured, served) = tcp_stream::run(&bed, client, serve)?;
    let report = ended(measured.map_err(|failure| failure.error), served.map_err(|failure| failure.error))?;
    bed.stop()?;
    let violations = bed.violations();
    ensure!(violations.is_empty(), "{}", violations.join("\n"));
    let costs = |phase: Phase, elapsed| Costs { elapsed, ..meter[phase as usize].costs() };
    Ok([costs(Phase::Write, report.write), costs(Phase::Read, report.read)])
}

/// Returns what the client reports, or why either failed: the cause may be at the other end.
fn ended<T>(
    client: Result<T, impl Into<anyhow::Error>>,
    server: Result<impl Sized, impl Into<anyhow::Error>>,
) -> Result<T> {
    match (client.map_err(Into::into), server.map_err(Into::into)) {
        (Ok(report), Ok(_)) => Ok(report),
        (Ok(_), Err(server)) => Err(server.context("the server")),
        (Err(client), Ok(_)) => Err(client.context("the client")),
        (Err(client), Err(server)) => Err(client.context(format!("the server: {server:#}; the client"))),
    }
}

/// CPU time between the first and the last request of a phase.
#[derive(Default)]
struct Meter(Mutex<Option<[(Duration, u64); 2]>>);

impl Meter {
    fn record(&self, progress: Progress) {
        let now = (cpu_time::of_process(), progress.done);
        let mut span = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let first = span.map_or(now, |[first, _]| first);
        *span = Some([first, now]);
    }

    fn costs(&self) -> Costs {
        let span = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let [first, last] = span.unwrap_or_default();
        let (cpu, bytes) = (last.0.saturating_sub(first.0), last.1 - first.1);
        Costs { cpu, bytes, ..Costs::default() }
    }
}
