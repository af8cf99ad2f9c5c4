// SPDX-License-Identifier: MIT OR Apache-2.0

//! Copies data from one host to the other and back, over NDKPI, RoCEv2 and virtio queues. The demo and the integration
//! tests use it.

use std::{
    collections::BTreeMap,
    fs::File,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
pub use device_sim::link::Faults;
use ndis_sim::Keyword;
pub use ndk_consumer::transfer::{Phase, Progress};
use ndk_consumer::{
    Adapter, Error,
    stats::{Operation as Kind, RequestStats},
    transfer::{self, Failure, FileSource, Generated, Report},
};

use smb_consumer::FileStore;

use crate::{
    device::DeviceKind,
    os::SimOs,
    smb_driver::{self, Running, SmbDriver},
    testbed::{Options as BedOptions, Testbed, WireFigures},
    trace::{self, TracedEvent},
};

/// Port of the server.
const PORT: u16 = 5445;
/// Time that the client waits for the server to listen.
const LISTEN_TIMEOUT: Duration = Duration::from_mins(1);

/// The data to copy.
#[derive(Clone, Debug)]
pub enum Source {
    File(PathBuf),
    /// Data that the seed determines.
    Generated {
        bytes: u64,
    },
}

/// How the data are copied.
#[derive(Clone, Debug)]
pub enum Protocol {
    /// By RDMA Writes to the peer's memory, and by RDMA Reads back.
    Rdma,
    /// By SMB2 requests over SMB Direct: the peer reads and writes memory that is registered for a request.
    SmbDirect(smb_consumer::Options),
    /// The same, but client and server are in a driver, whose image this is. The data are generated, and the server is not
    /// disconnected.
    SmbDirectDriver(smb_consumer::Options, PathBuf),
}

/// Options of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    pub source: Source,
    pub protocol: Protocol,
    pub faults: Faults,
    /// Seed of generated data, of the link's faults, and of the order of events in virtual time.
    pub seed: u64,
    /// Runs in real time, with racing threads, instead of in virtual time.
    pub real_time: bool,
    /// RoCE path MTU, 256 to 4096.
    pub path_mtu: u32,
    /// Path of the capture file.
    pub capture: Option<PathBuf>,
    /// Disconnects the server from the link when this share, 0 to 1, of the transfer is done. The transfer is the data
    /// to the peer and back: at 0.5, everything has been written and nothing read back.
    pub kill_peer_at: Option<f64>,
    /// Turns the verifier on.
    pub verifier: bool,
    /// Records the driver's trace on both hosts.
    pub trace: bool,
    /// Registry values of both adapters.
    pub keywords: Vec<(&'static str, Keyword)>,
    /// The device of each host. QEMU's needs real time.
    pub device: DeviceKind,
    /// The allocation of the driver that fails: of the client's host (0) or the server's (1), counted from 0 from the
    /// driver's start on.
    pub fail_allocation: Option<(usize, u64)>,
}

impl Plan {
    /// Returns a plan for `bytes` of generated data, in virtual time, over a link without faults.
    #[must_use]
    pub fn of(bytes: u64) -> Self {
        Self {
            source: Source::Generated { bytes },
            protocol: Protocol::Rdma,
            faults: Faults::NONE,
            seed: 0,
            real_time: false,
            path_mtu: 4096,
            capture: None,
            kill_peer_at: None,
            verifier: true,
            trace: false,
            keywords: Vec::new(),
            device: DeviceKind::Simulated,
            fail_allocation: None,
        }
    }
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub name: String,
    pub bytes: u64,
    pub end: End,
    /// Durations of the completed phases, in simulated time.
    pub write: Option<Duration>,
    pub read: Option<Duration>,
    /// SHA-256 of the source, of the data that the peer received, and of the data read back.
    pub hashes: [Option<[u8; 32]>; 3],
    pub operations: BTreeMap<String, Operation>,
    pub wire: WireFigures,
    /// Sums of both drivers' counters, by name.
    pub counters: BTreeMap<String, u64>,
    /// Event log entries of both drivers: host, event number, data.
    pub events: Vec<String>,
    /// The driver's trace on both hosts, by time, if it was recorded.
    pub trace: Vec<TracedEvent>,
    /// Violations that the verifier found.
    pub violations: Vec<String>,
    /// Allocations of the driver on each host while the consumers ran.
    pub allocations: [u64; 2],
    pub capture: Option<PathBuf>,
    /// Times are in virtual time.
    pub is_virtual: bool,
    /// The seed of the plan.
    pub seed: u64,
    /// Duration of the transfer in simulated time, and of the run in real time.
    pub elapsed: Duration,
    pub real: Duration,
}

/// How a run ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// All data was copied, and both consumers closed all objects.
    Complete,
    /// The peer was disconnected after `moved` bytes of the transfer. After `noticed_after`, in simulated time, both
    /// consumers had detected the connection loss.
    PeerLost { moved: u64, noticed_after: Duration },
    /// Anything else.
    Failed(String),
}

/// Statistics of one kind of request, of both consumers.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Operation {
    pub posted: u64,
    pub succeeded: u64,
    /// Completed as STATUS_CANCELLED after the connection had failed.
    pub flushed: u64,
    pub failed: u64,
    pub p50: Option<Duration>,
    pub p99: Option<Duration>,
    /// Latency histogram: upper bound of each range, and the number of requests in it.
    pub latencies: Vec<(Duration, u64)>,
}

/// Loads the driver `image` on two hosts, copies the data, and unloads the driver. `progress` is called on simulated
/// threads.
///
/// # Errors
/// The source cannot be read, or a host cannot be created, started or stopped. A failed copy is [`End::Failed`].
pub fn run(image: &Path, plan: &Plan, progress: &Arc<dyn Fn(Progress) + Send + Sync>) -> Result<Outcome> {
    let start = Instant::now();
    let (name, bytes) = describe(&plan.source)?;
    let mut bed = Testbed::new(
        image,
        &BedOptions {
            seed: plan.seed,
            real_time: plan.real_time,
            faults: plan.faults,
            path_mtu: plan.path_mtu,
            capture: plan.capture.clone(),
            verifier: plan.verifier,
            trace: plan.trace.then_some(trace::ORDINARY),
            keywords: plan.keywords.clone(),
            device: plan.device.clone(),
            ..BedOptions::default()
        },
    )?;
    bed.start()?;
    let cut = Cut::new(plan.kill_peer_at, bytes);
    let began = bed.now();
    let asked = |bed: &Testbed| bed.machines().map(|machine| machine.host().low_resources.asked());
    let before = asked(&bed);
    if let Some((host, number)) = plan.fail_allocation {
        bed.machines()[host].host().low_resources.fail_nth(number);
    }
    let sides = match &plan.protocol {
        Protocol::SmbDirectDriver(options, driver) => run_drivers(&bed, options, driver, [plan.seed, bytes])?,
        Protocol::Rdma | Protocol::SmbDirect(_) => run_consumers(&bed, plan, &name, &cut, progress),
    };
    let ended = bed.now();
    let after = asked(&bed);
    bed.stop()?;
    let lost = cut.done.load(Relaxed).then(|| End::PeerLost {
        moved: cut.moved_at.load(Relaxed),
        noticed_after: ended.saturating_sub(Duration::from_nanos(cut.at.load(Relaxed))),
    });
    Ok(Outcome {
        name,
        bytes,
        end: end(&sides, lost),
        write: sides.copied(|report| report.write),
        read: sides.copied(|report| report.read),
        hashes: sides.hashes(),
        operations: operations(&sides),
        wire: bed.wire_figures(),
        counters: bed.counters(),
        events: bed.events(),
        trace: bed.trace(),
        violations: bed.violations(),
        allocations: [after[0] - before[0], after[1] - before[1]],
        capture: plan.capture.clone(),
        is_virtual: !plan.real_time,
        seed: plan.seed,
        elapsed: ended.saturating_sub(began),
        real: start.elapsed(),
    })
}

impl Outcome {
    /// Returns true if the data sent, received and read back is the same.
    #[must_use]
    pub fn hashes_match(&self) -> bool {
        let [sent, received, returned] = self.hashes;
        sent.is_some() && sent == received && sent == returned
    }
}

fn describe(source: &Source) -> Result<(String, u64)> {
    Ok(match source {
        Source::File(path) => {
            let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
            let metadata = path.metadata().with_context(|| format!("cannot read {}", path.display()))?;
            (name, metadata.len())
        }
        Source::Generated { bytes } => ("of generated data".into(), *bytes),
    })
}

/// Disconnects the server after a share of the transfer.
struct Cut {
    /// Bytes, written and read back, after which the server is disconnected.
    after: Option<u64>,
    moved: [AtomicU64; 2],
    done: AtomicBool,
    /// Time of the disconnect in simulated nanoseconds; 0 before.
    at: AtomicU64,
    /// Bytes transferred before the disconnect.
    moved_at: AtomicU64,
}

impl Cut {
    fn new(share: Option<f64>, bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            after: share.map(|share| of(share, 2 * bytes)),
            moved: Default::default(),
            done: AtomicBool::new(false),
            at: AtomicU64::new(0),
            moved_at: AtomicU64::new(0),
        })
    }

    /// Records progress. Returns true exactly once, when the share is reached.
    fn is_due(&self, progress: Progress) -> bool {
        self.moved[progress.phase as usize].store(progress.done, Relaxed);
        let moved = self.moved.iter().map(|bytes| bytes.load(Relaxed)).sum::<u64>();
        let is_due = self.after.is_some_and(|after| moved >= after) && !self.done.swap(true, Relaxed);
        if is_due {
            self.moved_at.store(moved, Relaxed);
        }
        is_due
    }
}

/// Returns a share, 0 to 1, of `bytes`.
#[expect(clippy::cast_sign_loss, reason = "neither is negative")]
fn of(share: f64, bytes: u64) -> u64 {
    (share * bytes as f64) as u64
}

type Side = Result<Report, Box<Failure>>;

impl Protocol {
    fn serve(
        &self,
        adapter: &Arc<Adapter<SimOs>>,
        local: SocketAddr,
        ready: impl FnOnce(SocketAddr),
    ) -> Side {
        match self {
            Self::Rdma => transfer::serve(adapter, &transfer::Options::default(), local, ready, &|_| {}),
            Self::SmbDirect(options) | Self::SmbDirectDriver(options, _) => {
                let file = tempfile::tempfile().map_err(|error| {
                    Box::new(Failure { error: Error::ReadSource(error.into()), report: Report::default() })
                })?;
                smb_consumer::serve(adapter, options, local, &mut FileStore::new(file), ready, &|_| {})
            }
        }
    }

    fn copy(
        &self,
        adapter: &Arc<Adapter<SimOs>>,
        local: SocketAddr,
        remote: SocketAddr,
        name: &str,
        source: &dyn transfer::Source,
        progress: &dyn Fn(Progress),
    ) -> Side {
        match self {
            Self::Rdma => {
                let options = transfer::Options::default();
                transfer::copy(adapter, &options, local, remote, name, source, progress)
            }
            Self::SmbDirect(options) | Self::SmbDirectDriver(options, _) => {
                smb_consumer::copy(adapter, options, local, remote, name, source, progress)
            }
        }
    }
}

/// Results of both consumers. The outer result is an error if the consumer did not return.
struct Sides {
    copying: Result<Side>,
    serving: Result<Side>,
}

fn run_consumers(
    bed: &Testbed,
    plan: &Plan,
    name: &str,
    cut: &Arc<Cut>,
    progress: &Arc<dyn Fn(Progress) + Send + Sync>,
) -> Sides {
    let [client, server] = bed.machines();
    let address = SocketAddr::new(server.address(), PORT);
    let listening = bed.event();
    let serving = {
        let (listening, protocol) = (listening.clone(), plan.protocol.clone());
        server.consumer("server", move |adapter| {
            let outcome = protocol.serve(adapter, address, |_| listening.set());
            // Also if listening failed: the client must not wait.
            listening.set();
            outcome
        })
    };
    let copying = {
        let (source, seed, name) = (plan.source.clone(), plan.seed, name.to_owned());
        let protocol = plan.protocol.clone();
        let (cut, progress, local) = (cut.clone(), progress.clone(), SocketAddr::new(client.address(), 0));
        let wire = bed.wire().clone();
        client.consumer("client", move |adapter| {
            let _ = listening.wait(LISTEN_TIMEOUT);
            let world = nt_sim::current().world().clone();
            let watch = |at: Progress| {
                progress(at);
                if cut.is_due(at) {
                    cut.at.store(world.now(), Relaxed);
                    wire.cut(1);
                }
            };
            let copy =
                |source: &dyn transfer::Source| protocol.copy(adapter, local, address, &name, source, &watch);
            match source {
                Source::Generated { bytes } => copy(&Generated { seed, bytes }),
                Source::File(path) => match File::open(path).and_then(FileSource::new) {
                    Ok(file) => copy(&file),
                    Err(error) => {
                        let report = Report::default();
                        Err(Box::new(Failure { error: Error::ReadSource(error.into()), report }))
                    }
                },
            }
        })
    };
    Sides { copying: copying.join(), serving: serving.join() }
}

/// Runs both sides in drivers, which are started before and unloaded after.
fn run_drivers(
    bed: &Testbed,
    options: &smb_consumer::Options,
    driver: &Path,
    data: [u64; 2],
) -> Result<Sides> {
    let driver = SmbDriver::start(bed, driver)?;
    let [client, server] = bed.machines();
    let (local, address) = (SocketAddr::new(client.address(), 0), SocketAddr::new(server.address(), PORT));
    let serving = Running::serve(server, &smb_driver::order(server, options, [address, local], data));
    Running::await_listening(server)?;
    let copying = Running::copy(client, &smb_driver::order(client, options, [local, address], data));
    let sides = Sides { copying: copying.join(), serving: serving.join() };
    driver.stop()?;
    Ok(sides)
}

impl Sides {
    fn report(side: &Result<Side>) -> Option<&Report> {
        match side {
            Ok(Ok(report)) => Some(report),
            Ok(Err(failure)) => Some(&failure.report),
            Err(_) => None,
        }
    }

    /// Returns a duration of the copying side, if it has completed.
    fn copied(&self, time: impl Fn(&Report) -> Duration) -> Option<Duration> {
        match &self.copying {
            Ok(Ok(report)) => Some(time(report)),
            _ => None,
        }
    }

    fn hashes(&self) -> [Option<[u8; 32]>; 3] {
        // The copying side hashes what it reads from the source and what it reads back, and fails when they differ.
        let copying = Self::report(&self.copying).and_then(|report| report.digest);
        let returned = copying.filter(|_| matches!(self.copying, Ok(Ok(_))));
        [copying, Self::report(&self.serving).and_then(|report| report.digest), returned]
    }
}

fn end(sides: &Sides, lost: Option<End>) -> End {
    match (&sides.copying, &sides.serving) {
        (Ok(Ok(_)), Ok(Ok(_))) => End::Complete,
        (Ok(Err(copying)), Ok(Err(serving)))
            if copying.error.is_connection_loss() && serving.error.is_connection_loss() =>
        {
            lost.unwrap_or_else(|| End::Failed(format!("{}; at the peer: {}", copying.error, serving.error)))
        }
        (copying, serving) => {
            let describe = |side: &Result<Side>| match side {
                Ok(Ok(_)) => "completed".to_owned(),
                Ok(Err(failure)) => failure.error.to_string(),
                Err(error) => format!("{error:#}"),
            };
            End::Failed(format!("{}; at the peer: {}", describe(copying), describe(serving)))
        }
    }
}

fn operations(sides: &Sides) -> BTreeMap<String, Operation> {
    let stats: Vec<&RequestStats> = [&sides.copying, &sides.serving]
        .into_iter()
        .filter_map(Sides::report)
        .map(|report| &report.stats)
        .collect();
    let sum = |kind: Kind| {
        let mut sum = Operation::default();
        let mut latency = ndk_consumer::latency::LatencyHistogram::default();
        for tally in stats.iter().map(|stats| stats.of(kind)) {
            sum.posted += tally.posted;
            sum.succeeded += tally.succeeded;
            sum.flushed += tally.flushed;
            sum.failed += tally.failed;
            latency.merge(&tally.latency);
        }
        if latency.count() > 0 {
            sum.p50 = Some(latency.quantile(0.5));
            sum.p99 = Some(latency.quantile(0.99));
            sum.latencies = latency.by_power_of_two();
        }
        sum
    };
    let sums = Kind::ALL.into_iter().map(|kind| (kind, sum(kind)));
    let is_shown = |kind: &Kind, sum: &Operation| Kind::DATA_TRANSFERS.contains(kind) || sum.posted != 0;
    sums.filter(|(kind, sum)| is_shown(kind, sum)).map(|(kind, sum)| (kind.to_string(), sum)).collect()
}
