// SPDX-License-Identifier: MIT OR Apache-2.0

//! Doing what the cases say: one guest for all of them, as long as it lives, and a new host for each.

use std::{
    fmt, fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::mpsc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use device_sim::link::Datagrams;
use ndk_consumer::{
    Status,
    protocols::{self, Outcome, Program},
};

use super::{
    addresses::{Family, GUEST_MAC, HOST_MAC, guest_address, host_address},
    cases::{Case, Side, Work},
    guest::{self, Guest, Output},
    native,
    table::Row,
};
use crate::{
    external_host::{self, ExternalHost},
    testbed::Consumer,
};

/// Longest that the driver's side waits for the guest to connect.
const PATIENCE: Duration = Duration::from_secs(30);
/// Frames of the guest's that a host has received when the guest is half-way.
const HALF_WAY: u64 = 1000;

/// What the cases are tried with.
pub struct Setting {
    /// The driver's image.
    pub image: PathBuf,
    pub guest: guest::Image,
    /// Where sockets and the guest's console are.
    pub directory: PathBuf,
    /// Where captures are written.
    pub captures: PathBuf,
}

/// Tries cases, one after the other.
pub struct Runner {
    setting: Setting,
    guest: Option<Guest>,
    /// MTU of the guest's interface.
    mtu: u16,
    /// Times that a guest was booted, and how long the last time took.
    pub boots: Vec<Duration>,
}

impl Runner {
    /// Nothing runs yet: the guest is booted for the first case.
    #[must_use]
    pub fn new(setting: Setting) -> Self {
        Self { setting, guest: None, mtu: 0, boots: Vec::new() }
    }

    /// Tries a case. Its capture is complete when this returns; what it says about the case is up to `check`.
    pub fn run(&mut self, case: &Case, check: impl Fn(&Path) -> Result<()>) -> Row {
        let capture = self.setting.captures.join(case.file_name()).with_extension("pcapng");
        let prepared = self.prepare(case);
        let start = Instant::now();
        let result = prepared.and_then(|()| self.attempt(case, &capture));
        let took = start.elapsed();
        let result = result.and_then(|notes| check(&capture).context("its capture").map(|()| notes));
        let mut row = Row::new(case, took, result.map_err(|error| format!("{error:#}")));
        row.capture = capture.exists().then_some(capture);
        row
    }

    /// A guest that lives, with the MTU that the case wants.
    fn prepare(&mut self, case: &Case) -> Result<()> {
        let mtu = if case.mtu == 4096 { 9000 } else { 1500 };
        match &mut self.guest {
            Some(guest) if self.mtu != mtu => guest.set_mtu(mtu)?,
            Some(_) => {}
            None => {
                let options = self.guest_options(mtu);
                let guest = Guest::boot(&self.setting.guest, &options)?;
                self.boots.push(guest.boot);
                self.guest = Some(guest);
            }
        }
        self.mtu = mtu;
        Ok(())
    }

    fn guest_options(&self, mtu: u16) -> guest::Options {
        guest::Options {
            directory: self.setting.directory.clone(),
            mac: GUEST_MAC,
            ipv4: "192.168.77.2/24",
            ipv6: "fd77::2/64",
            mtu,
        }
    }

    fn attempt(&mut self, case: &Case, capture: &Path) -> Result<Vec<String>> {
        let options = self.guest_options(self.mtu);
        let sockets = Datagrams::unix(&options.host_socket(), &options.guest_socket())?;
        let result = match &case.work {
            Work::Engine(foreign) => {
                let guest = self.guest.as_mut().context("no guest")?;
                let mut client = None;
                let seen = native::serve(*foreign, sockets, Some(capture), || {
                    client = Some(guest.start(&case.guest_command(), case.limit())?);
                    Ok(())
                });
                let told = client.map(|client| guest.wait(&client, case.limit())).transpose()?;
                both(seen, &told.context("the guest's client was not started")?)
            }
            Work::Image(program) | Work::GuestKilled(program) => {
                let mut host = self.host(case, capture, sockets)?;
                let result = self.converse(case, program, &host);
                finish(&mut host, result)
            }
        };
        if result.is_err() && self.guest.as_mut().is_some_and(|guest| guest.run("true", PATIENCE).is_err()) {
            // The next case gets one that answers.
            self.guest = None;
        }
        result
    }

    /// A host with the driver on it.
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
            ..external_host::Options::new(HOST_MAC, &addresses)
        };
        let mut host = ExternalHost::new(&self.setting.image, &options, sockets)?;
        host.start()?;
        Ok(host)
    }

    fn converse(&mut self, case: &Case, program: &Program, host: &ExternalHost) -> Result<Vec<String>> {
        let command = case.guest_command();
        let guest = self.guest.as_mut().context("no guest")?;
        let (ours, theirs) = match case.client {
            Side::Viordma => {
                let server = guest.serve(&command, case.limit())?;
                (connect(case, program, host), server)
            }
            Side::Linux => {
                let (serving, listening) = serve(case, program, host);
                if listening.recv_timeout(PATIENCE).is_err() {
                    bail!("the image does not listen: {:?}", serving.join()?);
                }
                (serving, guest.start(&command, case.limit())?)
            }
        };
        if let Work::GuestKilled(_) = case.work {
            let killed = self.kill_half_way(case, host);
            // The host has to notice by itself.
            let seen = join(ours);
            killed?;
            return seen;
        }
        let seen = match join(ours) {
            // The guest's verdict counts: it does not pass before it has the last answer.
            Err(error) if case.client == Side::Linux && case.is_lossy() && is_silence(&error) => {
                Ok(vec!["the guest's goodbye was lost".to_owned()])
            }
            seen => seen,
        };
        let told = match &seen {
            Ok(_) => guest.wait(&theirs, case.limit())?,
            // Whatever it waits for will not come.
            Err(_) => guest.kill(&theirs)?,
        };
        both(seen, &pardon(program, told))
    }

    fn kill_half_way(&mut self, case: &Case, host: &ExternalHost) -> Result<()> {
        let limit = Instant::now() + PATIENCE;
        while host.wire().counters(1).sent < HALF_WAY {
            ensure!(Instant::now() < limit, "the guest does not even begin {}", case.name);
            std::thread::sleep(Duration::from_millis(5));
        }
        self.guest.take().context("no guest")?.power_off()
    }
}

/// Lets the image's side serve; the receiver is told when it listens.
fn serve(
    case: &Case,
    program: &Program,
    host: &ExternalHost,
) -> (Consumer<Result<Outcome, ndk_consumer::Error>>, mpsc::Receiver<()>) {
    let local = SocketAddr::new(host_address(case.family), program.port());
    let program = program.clone();
    let (tell, listening) = mpsc::channel();
    let serving = host.machine().consumer("server", move |adapter| {
        protocols::serve(adapter, &program, local, PATIENCE, |_| {
            // Nobody waits any more if it took too long.
            let _ = tell.send(());
        })
    });
    (serving, listening)
}

/// Lets the image's side connect to the guest.
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

/// What the image's side has seen: that every request has completed once is part of it.
fn join(side: Consumer<Result<Outcome, ndk_consumer::Error>>) -> Result<Vec<String>> {
    let outcome = side.join()?.map_err(anyhow::Error::new).context("the image's side")?;
    let total = outcome.stats.total();
    ensure!(total.outstanding() == 0, "{} requests never completed", total.outstanding());
    ensure!(outcome.stats.unexpected == 0, "{} completions of no request", outcome.stats.unexpected);
    Ok(outcome.notes)
}

/// rping's client ends in a race with its own thread, which finds the channel of events closed and then ends the
/// program in error. It has done all it had to if every round has come back: it compares them.
fn pardon(program: &Program, told: Output) -> Output {
    let Program::Rping { rounds, .. } = program else { return told };
    let is_raced = told.text.contains("rdma_get_cm_event: Bad file descriptor");
    let returned = told.text.matches("ping data: rdma-ping-").count();
    let is_whole = returned == *rounds as usize && !told.text.contains("mismatch");
    if is_raced && is_whole { Output { status: 0, ..told } } else { told }
}

/// Whether the peer was taken for dead.
fn is_silence(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(ndk_consumer::Error::Connection(Status::IO_TIMEOUT)))
}

/// Both sides have to be content.
fn both(seen: Result<Vec<String>>, told: &Output) -> Result<Vec<String>> {
    match (seen, told.status) {
        (Ok(notes), 0) => Ok(notes),
        (Ok(_), _) => bail!("the guest's side: {told}"),
        (Err(error), _) => bail!("{error:#}\nthe guest's side: {told}"),
    }
}

/// Stops the driver; the verifier has to be content, too, whatever else was wrong.
fn finish(host: &mut ExternalHost, result: Result<Vec<String>>) -> Result<Vec<String>> {
    let stopped = host.stop();
    let violations = host.violations();
    match (result, violations.is_empty()) {
        (Ok(notes), true) => stopped.map(|()| notes),
        (Ok(_), false) => bail!("the verifier: {}", violations.join("\n")),
        (Err(error), true) => Err(error),
        (Err(error), false) => bail!("{error:#}\nthe verifier: {}", violations.join("\n")),
    }
}

impl fmt::Debug for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runner").field("boots", &self.boots).finish_non_exhaustive()
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.guest = None;
        drop(fs::remove_dir_all(&self.setting.directory));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rpings_own_race_is_pardoned() {
        let program = Program::Rping { rounds: 2, size: 100 };
        let told = |text: &str| Output { status: 255, text: text.to_owned() };
        let rounds = "ping data: rdma-ping-0: A\nping data: rdma-ping-1: B\n";
        let race = "client DISCONNECT EVENT...\nrdma_get_cm_event: Bad file descriptor\n";
        let status = |text: &str| pardon(&program, told(text)).status;
        assert_eq!(status(&format!("{race}{rounds}")), 0);
        assert_eq!(status(rounds), 255);
        assert_eq!(status(&format!("{race}ping data: rdma-ping-0: A\n")), 255);
        assert_eq!(status(&format!("{race}{rounds}data mismatch!\n")), 255);
        assert_eq!(pardon(&Program::RdmaClient, told(&format!("{race}{rounds}"))).status, 255);
    }
}
