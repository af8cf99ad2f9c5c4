// SPDX-License-Identifier: MIT OR Apache-2.0

//! Runs the cases: one guest for all of them, booted again if it fails, and a new host for each.

use std::{
    fmt, fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::mpsc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use device_sim::link::Datagrams;
use linux_guest::{Guest, Network, Output};
use ndis_sim::LogEntry;
use ndk_abi::ndis::{
    NDIS_PACKET_TYPE_ALL_MULTICAST, NDIS_PACKET_TYPE_BROADCAST, NDIS_PACKET_TYPE_DIRECTED,
    OID_GEN_CURRENT_PACKET_FILTER,
};
use ndk_consumer::{
    Status,
    protocols::{self, Outcome, Program},
};
use tempfile::TempDir;
use viordma_inf::events::{self, Event};

use super::{
    addresses::{Family, GUEST_V4, GUEST_V6, HOST_MAC, guest_address, host_address},
    cases::{Case, Side, Work},
    native, smb,
    table::{Pass, Remark, Row},
    tcp,
};
use crate::{
    device::DeviceKind,
    event_log,
    external_host::{self, ExternalHost},
    machine::Consumer,
    trace,
};

/// Time limit for the guest to connect, and for each wait without a limit of its own.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Extension of the files with the driver's trace, which are beside the captures.
pub const TRACE: &str = "events";
/// Events of a reset, its reasons included.
const RESETS: [Event; 3] = [events::NEEDS_RESET, events::RECOVERED, events::GIVEN_UP];
/// Events of the driver's trace that are printed of a case that fails.
const LAST_EVENTS: usize = 12;
/// Frames from the guest before it is killed.
const FRAMES_BEFORE_KILL: u64 = 1000;

/// The files and directories of a run.
pub struct Setup {
    /// The driver's image.
    pub image: PathBuf,
    /// The host's network device.
    pub device: DeviceKind,
    pub guest: linux_guest::Image,
    /// Directory of the sockets and the guest's console file.
    pub directory: TempDir,
    /// Directory of the captures.
    pub captures: PathBuf,
}

/// Runs cases one after the other.
pub struct Runner {
    /// Dropped before the directory of its files is.
    guest: Option<Guest>,
    setup: Setup,
    /// MTU of the guest's interface.
    mtu: u16,
    /// Duration of each boot of a guest.
    pub boots: Vec<Duration>,
}

impl Runner {
    /// Returns a runner. The first case boots the guest.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        Self { setup, guest: None, mtu: 0, boots: Vec::new() }
    }

    /// Runs a case, then calls `check` with the path of its complete capture. An error of either fails the case.
    pub fn run(&mut self, case: &Case, check: impl Fn(&Path) -> Result<()>) -> Row {
        let capture = self.setup.captures.join(case.file_name()).with_extension("pcapng");
        let prepared = self.prepare(case);
        let start = Instant::now();
        let mut result = prepared.and_then(|()| self.attempt(case, &capture));
        if result.is_err() {
            // Its shell may respond although its network device or rxe hang: the next case boots another guest.
            let failure = self.guest.take().and_then(|guest| guest.own_failure());
            if let Some(failure) = failure {
                result = self.attempt_again(case, &capture, failure);
            }
        }
        let elapsed = start.elapsed();
        let result = result.and_then(|pass| check(&capture).context("the capture").map(|()| pass));
        let mut row = Row::new(case, elapsed, result.map_err(|error| format!("{error:#}")));
        row.capture = capture.exists().then_some(capture);
        row
    }

    /// Repeats a case once, with another guest, after `failure` of the first one. Keeps the capture of the first attempt.
    fn attempt_again(&mut self, case: &Case, capture: &Path, failure: &'static str) -> Result<Pass> {
        if capture.exists() {
            fs::rename(capture, capture.with_extension("first.pcapng"))?;
        }
        let again = self.prepare(case).and_then(|()| self.attempt(case, capture));
        if again.is_err() {
            self.guest = None;
        }
        Ok(Pass { remark: Some(Remark::SecondAttempt(failure)), ..again? })
    }

    /// Boots the guest if none runs, and sets its MTU as `case` requires.
    fn prepare(&mut self, case: &Case) -> Result<()> {
        let mtu = if case.mtu == 4096 { 9000 } else { 1500 };
        match &mut self.guest {
            Some(guest) if self.mtu != mtu => guest.set_mtu(mtu)?,
            Some(_) => {}
            None => {
                let options = self.guest_options(mtu);
                let guest = Guest::boot(&self.setup.guest, &options)?;
                self.boots.push(guest.boot);
                self.guest = Some(guest);
            }
        }
        self.mtu = mtu;
        Ok(())
    }

    fn guest_options(&self, mtu: u16) -> linux_guest::Options {
        let directory = self.setup.directory.path().to_path_buf();
        linux_guest::Options { directory, mtu, addresses: (GUEST_V4, GUEST_V6), network: Network::Datagrams }
    }

    fn attempt(&mut self, case: &Case, capture: &Path) -> Result<Pass> {
        let options = self.guest_options(self.mtu);
        let sockets = Datagrams::unix(&options.host_socket(), &options.guest_socket())?;
        match &case.work {
            Work::Engine(request) => {
                let guest = self.guest.as_mut().context("no guest")?;
                let (command, mut probe) = (case.guest_command(), None);
                let notes = native::run(case, *request, sockets, Some(capture), || {
                    probe = Some(match case.client {
                        Side::Linux => guest.start(&command, case.limit())?,
                        Side::Viordma => guest.serve(&command, case.limit())?,
                    });
                    Ok(())
                });
                let output = probe.map(|probe| guest.wait(&probe, case.limit())).transpose()?;
                combine(notes, &output.context("the guest's probe was not started")?).map(Pass::from)
            }
            Work::Image(program) | Work::GuestKilled(program) => {
                let mut host = self.host(case, capture, sockets)?;
                let result = self.run_program(case, program, &host);
                finish(&mut host, result, capture)
            }
            Work::Tcp(length) => {
                let mut host = self.host(case, capture, sockets)?;
                let guest = self.guest.as_mut().context("no guest")?;
                let result = tcp::run(case, *length, &host, guest);
                finish(&mut host, result.map(Pass::from), capture)
            }
            Work::Stopped(time) => {
                let mut host = self.host(case, capture, sockets)?;
                let guest = self.guest.as_mut().context("no guest")?;
                let result = tcp::run_around(case, &host, guest, || stop_device(&host, *time));
                finish(&mut host, result.map(Pass::from), capture)
            }
            Work::Smb(work) => {
                let mut host = self.host(case, capture, sockets)?;
                // Linux's modules may use freed memory after a disconnect: the next case boots another guest.
                let guest = self.guest.take().context("no guest")?;
                let result = smb::run(case, *work, &host, guest, self.setup.directory.path());
                finish(&mut host, result.map(Pass::from), capture)
            }
        }
    }

    /// Starts a host with the driver.
    fn host(&self, case: &Case, capture: &Path, sockets: Datagrams) -> Result<ExternalHost> {
        let prefix = |family| if family == Family::V4 { 24 } else { 64 };
        let addresses =
            [Family::V4, Family::V6, Family::LinkLocal].map(|family| (host_address(family), prefix(family)));
        let options = external_host::Options {
            mtu: self.mtu,
            path_mtu: case.mtu,
            faults: case.faults(),
            seed: 1,
            capture: Some(capture.to_owned()),
            trace: Some(trace::ORDINARY),
            device: case.variant.map_or_else(|| self.setup.device.clone(), |variant| variant.device()),
            ..external_host::Options::new(HOST_MAC, &addresses)
        };
        let mut host = ExternalHost::new(&self.setup.image, &options, sockets)?;
        host.start()?;
        Ok(host)
    }

    /// Runs the case's program on host and guest.
    fn run_program(&mut self, case: &Case, program: &Program, host: &ExternalHost) -> Result<Pass> {
        let command = case.guest_command();
        let guest = self.guest.as_mut().context("no guest")?;
        let (host_side, guest_side) = match case.client {
            Side::Viordma => {
                let server = guest.serve(&command, case.limit())?;
                (connect(case, program, host), server)
            }
            Side::Linux => {
                let (serving, listening) = serve(case, program, host);
                if listening.recv_timeout(TIMEOUT).is_err() {
                    bail!("the image does not listen: {:?}", serving.join()?);
                }
                (serving, guest.start(&command, case.limit())?)
            }
        };
        if let Work::GuestKilled(_) = case.work {
            let killed = self.kill_during_transfer(case, host);
            // The host has to detect it.
            let notes = join(host_side);
            killed?;
            return notes.map(Pass::from);
        }
        let (notes, remark) = match join(host_side) {
            // The guest passes only after it has received the last response: the case passes with it.
            Err(error) if case.client == Side::Linux && case.is_lossy() && is_timeout(&error) => {
                (Ok(Vec::new()), Some(Remark::HostTimedOut))
            }
            notes => (notes, None),
        };
        let output = match &notes {
            Ok(_) => guest.wait(&guest_side, case.limit())?,
            // The host has failed: the guest would wait until its limit.
            Err(_) => guest.kill(&guest_side)?,
        };
        combine(notes, &ignore_rping_race(program, output)).map(|notes| Pass { notes, remark })
    }

    fn kill_during_transfer(&mut self, case: &Case, host: &ExternalHost) -> Result<()> {
        let limit = Instant::now() + TIMEOUT;
        while host.wire().counters(1).sent < FRAMES_BEFORE_KILL {
            ensure!(Instant::now() < limit, "the guest does not begin {}", case.name);
            std::thread::sleep(Duration::from_millis(5));
        }
        self.guest.take().context("no guest")?.power_off()
    }
}

/// Starts the server on the host. The receiver gets a message when it listens.
fn serve(
    case: &Case,
    program: &Program,
    host: &ExternalHost,
) -> (Consumer<Result<Outcome, ndk_consumer::Error>>, mpsc::Receiver<()>) {
    let local = SocketAddr::new(host_address(case.family), program.port());
    let program = program.clone();
    let (notify, listening) = mpsc::channel();
    let serving = host.machine().consumer("server", move |adapter| {
        protocols::serve(adapter, &program, local, TIMEOUT, |_| {
            // Fails if the receiver has timed out.
            let _ = notify.send(());
        })
    });
    (serving, listening)
}

/// Starts the client on the host.
fn connect(
    case: &Case,
    program: &Program,
    host: &ExternalHost,
) -> Consumer<Result<Outcome, ndk_consumer::Error>> {
    let local = SocketAddr::new(host_address(case.family), 0);
    let remote = SocketAddr::new(guest_address(case.family), program.port());
    let program = program.clone();
    host.machine().consumer("client", move |adapter| protocols::client(adapter, &program, local, remote))
}

/// Waits for the host's side and returns its notes. Fails unless every request has completed exactly once.
fn join(side: Consumer<Result<Outcome, ndk_consumer::Error>>) -> Result<Vec<String>> {
    let outcome = side.join()?.map_err(anyhow::Error::new).context("the host's side")?;
    let total = outcome.stats.total();
    ensure!(total.outstanding() == 0, "{} requests never completed", total.outstanding());
    ensure!(outcome.stats.unexpected == 0, "{} completions without a request", outcome.stats.unexpected);
    Ok(outcome.notes)
}

/// Sets the exit status to 0 if rping failed only because of a race of its own: one thread closes the event channel
/// that another one reads, and the program ends in error. All rounds have completed then, and rping has compared the data.
fn ignore_rping_race(program: &Program, output: Output) -> Output {
    let Program::Rping { rounds, .. } = program else { return output };
    let is_raced = output.text.contains("rdma_get_cm_event: Bad file descriptor");
    let returned = output.text.matches("ping data: rdma-ping-").count();
    let is_complete = returned == *rounds as usize && !output.text.contains("mismatch");
    if is_raced && is_complete { Output { status: 0, ..output } } else { output }
}

/// Returns true if the connection failed because the peer did not respond.
fn is_timeout(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(ndk_consumer::Error::Connection(Status::IO_TIMEOUT)))
}

/// Returns the host's notes if both sides succeeded.
fn combine(notes: Result<Vec<String>>, output: &Output) -> Result<Vec<String>> {
    match (notes, output.status) {
        (Ok(notes), 0) => Ok(notes),
        (Ok(_), _) => bail!("the guest's side: {output}"),
        (Err(error), _) => bail!("{error:#}\nthe guest's side: {output}"),
    }
}

/// Stops the process of the host's QEMU for a time, in which the driver has a command for its device. The driver does not reset the device.
fn stop_device(host: &ExternalHost, time: Duration) -> Result<()> {
    let adapter = host.machine().adapters().first().context("no adapter")?;
    let miniport = adapter.miniport().context("no miniport")?;
    let is_reset = |entry: &LogEntry| RESETS.iter().any(|event| event.number() == event_log::number(entry));
    let resets = || host.machine().event_log().into_iter().filter(is_reset).collect::<Vec<_>>();
    let before = resets().len();
    adapter.qemu().set_process_stopped(true)?;
    let filter = NDIS_PACKET_TYPE_DIRECTED | NDIS_PACKET_TYPE_BROADCAST | NDIS_PACKET_TYPE_ALL_MULTICAST;
    let outcome = miniport.set(OID_GEN_CURRENT_PACKET_FILTER, &filter.to_le_bytes());
    std::thread::sleep(time);
    adapter.qemu().set_process_stopped(false)?;
    outcome.map_err(|error| anyhow::anyhow!("the packet filter: {error}"))?;
    if let Some(event) = resets().get(before) {
        bail!("the driver has reset the device: {}", event_log::text(event));
    }
    Ok(())
}

/// Stops the driver, and leaves its trace beside the capture. Adds violations that the verifier found to the result, and to an error the
/// events of the log and the last of the trace.
fn finish(host: &mut ExternalHost, result: Result<Pass>, capture: &Path) -> Result<Pass> {
    let stopped = host.stop();
    let events = host.trace();
    let file = capture.with_extension(TRACE);
    fs::write(&file, trace::text(&events, &file))
        .with_context(|| format!("cannot write {}", file.display()))?;
    let violations = host.violations();
    let result = match (result, violations.is_empty()) {
        (Ok(pass), true) => stopped.map(|()| pass),
        (Ok(_), false) => Err(anyhow!("the verifier: {}", violations.join("\n"))),
        (Err(error), true) => Err(error),
        (Err(error), false) => Err(anyhow!("{error:#}\nthe verifier: {}", violations.join("\n"))),
    };
    result.map_err(|error| {
        let log: Vec<_> = host.machine().event_log().iter().map(event_log::text).collect();
        anyhow!("{error:#}\n{}{}", log.join("\n"), trace::last_lines(&events, LAST_EVENTS))
    })
}

impl fmt::Debug for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runner").field("boots", &self.boots).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{interop::cases, workspace};

    #[test]
    fn guest_of_a_case_that_failed_is_not_used_again() {
        let directory = tempfile::tempdir().expect("a directory");
        let guest = Guest::fake(directory.path());
        let captures = directory.path().to_owned();
        let setup = Setup {
            image: captures.join("none"),
            device: DeviceKind::Simulated,
            guest: linux_guest::Image::of_workspace(workspace::root()),
            directory,
            captures,
        };
        let mut runner = Runner { guest: Some(guest), mtu: 1500, ..Runner::new(setup) };
        let case = cases::all().into_iter().find(|case| case.mtu == 1024).expect("a case");
        assert!(!runner.run(&case, |_| Ok(())).passed(), "there is no image");
        assert!(runner.guest.is_none());
    }

    #[test]
    fn only_the_race_of_rping_is_ignored() {
        let program = Program::Rping { rounds: 2, size: 100 };
        let output = |text: &str| Output { status: 255, text: text.to_owned() };
        let rounds = "ping data: rdma-ping-0: A\nping data: rdma-ping-1: B\n";
        let race = "client DISCONNECT EVENT...\nrdma_get_cm_event: Bad file descriptor\n";
        let status = |text: &str| ignore_rping_race(&program, output(text)).status;
        assert_eq!(status(&format!("{race}{rounds}")), 0);
        assert_eq!(status(rounds), 255);
        assert_eq!(status(&format!("{race}ping data: rdma-ping-0: A\n")), 255);
        assert_eq!(status(&format!("{race}{rounds}data mismatch!\n")), 255);
        assert_eq!(ignore_rping_race(&Program::RdmaClient, output(&format!("{race}{rounds}"))).status, 255);
    }
}
