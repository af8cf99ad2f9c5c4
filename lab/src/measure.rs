// SPDX-License-Identifier: MIT OR Apache-2.0

//! Many operations through the image between two hosts, or bytes over TCP.

use std::{net::SocketAddr, ops::Range, path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};
use ndk_consumer::bench;
pub use ndk_consumer::bench::{BenchResult, Transfers};
use serde::{Deserialize, Serialize};

use crate::{
    cpu_time,
    machine::Machine,
    tcp_stream::{self, Connection},
    testbed::{Options, Testbed},
};

const PORT: u16 = 5446;
/// Time limit for the client to connect.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The measured operations.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// RDMA Writes.
    Writes(Transfers),
    /// RDMA Reads.
    Reads(Transfers),
    /// Sends of `size` bytes.
    Sends { count: u64, size: usize },
}

/// Counters of the first NIC of a host.
#[derive(Clone, Copy, Default, Debug, Serialize, Deserialize)]
pub struct HostCounters {
    pub sent_frames: u64,
    pub received_frames: u64,
    pub notifications: u64,
    /// Batches of frames that the device was not notified of, because it was at work.
    pub suppressed: u64,
    pub interrupts: u64,
    /// Microseconds for which the driver has stalled a processor.
    pub stalled: u64,
}

/// A host that took part.
#[derive(Clone, Debug)]
pub struct HostReport {
    /// Addresses of the driver's image.
    pub image: Range<u64>,
    pub counters: HostCounters,
}

/// A finished run.
#[derive(Clone, Debug)]
pub struct Run {
    pub result: BenchResult,
    /// CPU time of all threads of this process while the initiator ran.
    pub cpu: Duration,
    /// The initiator's host, and the target's.
    pub hosts: [HostReport; 2],
}

/// Runs the operations between two hosts with the driver `image`, in real time or in virtual time.
///
/// # Errors
/// The image cannot be loaded or started, an operation fails, or a violation is found.
pub fn run(image: &Path, work: Work, real_time: bool) -> Result<Run> {
    run_on(image, work, &Options { real_time, verifier: false, ..Options::default() })
}

/// Measures a copy on a testbed with these options and simulated NICs.
///
/// # Errors
/// As [`run`].
pub fn run_on(image: &Path, work: Work, options: &Options) -> Result<Run> {
    run_several(image, work, 1, options)
}

/// Measures copies by several consumers at once on a testbed with simulated NICs. The time is that of the slowest.
///
/// # Errors
/// As [`run`].
pub fn run_several(image: &Path, work: Work, connections: u16, options: &Options) -> Result<Run> {
    on_testbed(image, options, |bed| rdma(bed, work, connections))
}

/// Sends bytes over TCP to the target, on a testbed with these options and simulated NICs.
///
/// # Errors
/// The image cannot be loaded or started, the connection fails, or a violation is found.
pub fn run_tcp(image: &Path, bytes: u64, options: &Options) -> Result<Run> {
    on_testbed(image, options, |bed| tcp(bed, bytes))
}

/// Runs RDMA and TCP at the same time on one device of each host. The result is that of both; the second and the third returned are those
/// of RDMA and of TCP. CPU time is that of both.
///
/// # Errors
/// As [`run`] and [`run_tcp`].
pub fn run_both(
    image: &Path,
    work: Work,
    bytes: u64,
    options: &Options,
) -> Result<(Run, BenchResult, BenchResult)> {
    let mut apart = None;
    let run = on_testbed(image, options, |bed| {
        let before = cpu_time::of_process();
        let of_rdma = begin_rdma(bed, work, 1);
        let (of_tcp, _) = tcp(bed, bytes)?;
        let (of_rdma, _) = of_rdma()?;
        let cpu = cpu_time::of_process().saturating_sub(before);
        let both = BenchResult {
            operations: of_rdma.operations + of_tcp.operations,
            bytes: of_rdma.bytes + of_tcp.bytes,
            elapsed: of_rdma.elapsed.max(of_tcp.elapsed),
            ..BenchResult::default()
        };
        apart = Some((of_rdma, of_tcp));
        Ok((both, cpu))
    })?;
    let (of_rdma, of_tcp) = apart.context("nothing was measured")?;
    Ok((run, of_rdma, of_tcp))
}

fn on_testbed(
    image: &Path,
    options: &Options,
    body: impl FnOnce(&Testbed) -> Result<(BenchResult, Duration)>,
) -> Result<Run> {
    let mut bed = Testbed::new(image, options)?;
    bed.start()?;
    let (result, cpu) = body(&bed)?;
    let hosts = bed.machines().map(report);
    bed.stop()?;
    let violations = bed.violations();
    ensure!(violations.is_empty(), "{}", violations.join("\n"));
    Ok(Run { result, cpu, hosts })
}

/// Sends bytes over TCP, until the target says that all have arrived.
fn tcp(bed: &Testbed, bytes: u64) -> Result<(BenchResult, Duration)> {
    let client = move |connection: &mut Connection| {
        let (start, before) = (connection.now(), cpu_time::of_process());
        connection.send_bytes(bytes)?;
        connection.receive_bytes(1)?;
        let cpu = cpu_time::of_process().saturating_sub(before);
        anyhow::Ok((connection.now().saturating_sub(start), cpu))
    };
    let server = move |connection: &mut Connection| {
        connection.receive_bytes(bytes)?;
        connection.send_bytes(1)
    };
    let (sent, received) = tcp_stream::run(bed, client, server)?;
    received.context("the target")?;
    let (elapsed, cpu) = sent.context("the initiator")?;
    Ok((BenchResult { operations: 1, bytes, elapsed, ..BenchResult::default() }, cpu))
}

/// Runs operations of NDK consumers, as many at once as there are to be connections.
fn rdma(bed: &Testbed, work: Work, connections: u16) -> Result<(BenchResult, Duration)> {
    begin_rdma(bed, work, connections)()
}

/// Starts a measured copy over RDMA. The returned function waits for its end.
fn begin_rdma(
    bed: &Testbed,
    work: Work,
    connections: u16,
) -> impl FnOnce() -> Result<(BenchResult, Duration)> + use<> {
    let [client, server] = bed.machines();
    let (local, remote) = (client.address(), server.address());
    let window = match work {
        Work::Writes(transfers) | Work::Reads(transfers) => transfers.size * transfers.outstanding as usize,
        Work::Sends { .. } => 1,
    };
    let mut consumers = Vec::new();
    for port in (PORT..).take(connections.into()) {
        let remote = SocketAddr::new(remote, port);
        let listening = bed.event();
        let serving = {
            let listening = listening.clone();
            server.consumer("server", move |adapter| {
                let outcome = bench::serve(adapter, remote, window, TIMEOUT, |_| listening.set());
                // Also if listening failed: the client must not wait.
                listening.set();
                outcome
            })
        };
        let measuring = client.consumer("client", move |adapter| {
            let _ = listening.wait(TIMEOUT);
            let local = SocketAddr::new(local, 0);
            let before = cpu_time::of_process();
            let result = match work {
                Work::Writes(transfers) => bench::writes(adapter, local, remote, transfers),
                Work::Reads(transfers) => bench::reads(adapter, local, remote, transfers),
                Work::Sends { count, size } => bench::sends(adapter, local, remote, count, size),
            };
            (result, [before, cpu_time::of_process()])
        });
        consumers.push((measuring, serving));
    }
    move || {
        let (mut total, mut cpu) = (BenchResult::default(), None);
        for (measuring, serving) in consumers {
            let (result, [before, after]) = measuring.join()?;
            serving.join()?.context("the server")?;
            let result = result?;
            total.operations += result.operations;
            total.bytes += result.bytes;
            total.elapsed = total.elapsed.max(result.elapsed);
            let [first, last] = cpu.unwrap_or([before, after]);
            cpu = Some([first.min(before), last.max(after)]);
        }
        let [before, after] = cpu.unwrap_or_default();
        Ok((total, after.saturating_sub(before)))
    }
}

fn report(machine: &Machine) -> HostReport {
    let (image, nic) = (machine.driver().image(), machine.nic().counters());
    let base = image.base() as u64;
    HostReport {
        image: base..base + image.size() as u64,
        counters: HostCounters {
            sent_frames: nic.sent_frames,
            received_frames: nic.received_frames,
            notifications: nic.notifications,
            suppressed: machine.counters().get("tx_notifications_suppressed").copied().unwrap_or(0),
            interrupts: nic.interrupts,
            stalled: nt_sim::nt::time::stalled(machine.host()),
        },
    }
}
