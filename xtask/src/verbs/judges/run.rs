// SPDX-License-Identifier: MIT OR Apache-2.0

//! Runs a case in a place.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};

use super::{
    case::{Case, Expected, Faults},
    kind::Kind,
    place::{Place, ROOT},
    process::{self, MARK, Process, eventually},
    program::Program,
    rxe::Opposite,
    scripts,
    verdict::{Ends, MANY, Verdict},
};
use crate::{shell, verbs::programs};

/// How long a server may take until it listens: perftest's compute for more than a second before.
const LISTENING: Duration = Duration::from_secs(5);

/// How often longer everything may take with a virtual machine, whose processor QEMU emulates.
const SLOWER_IN_GUEST: u32 = 4;

const AFTER_CLAIM: Duration = Duration::from_millis(50);

/// How long a transfer may take to begin, before a side is killed: perftest waits for a second at first.
const BEFORE_KILL: Duration = Duration::from_secs(8);

/// How long a transfer goes on before.
const IN_TRANSFER: Duration = Duration::from_millis(50);

/// How long a server is stopped: longer than the ACK timeout of perftest's queue pairs, 67 ms.
const STOPPED: Duration = Duration::from_millis(250);

/// How long a client may take to end after the death of its peer.
const AFTER_KILL: Duration = Duration::from_secs(10);

/// How long a program may take to end after its peer, opposite a virtual machine.
const AFTER_PEER: Duration = Duration::from_secs(15);

/// How long what a process had may remain after its end.
const CLEANUP: Duration = Duration::from_secs(2);

/// Where the two programs run.
pub enum Site<'a> {
    /// In a place of its own.
    Place(&'a Place, Kind),
    /// On this host, as this user, over the loopback address.
    Host,
    /// One of them opposite a virtual machine with the other one.
    Rxe(&'a Opposite, Kind),
}

/// Result of a case.
pub struct Outcome {
    pub verdict: Verdict,
    /// Why it is to run again: see [`Ends::reason_to_repeat`].
    pub reason_to_repeat: Option<&'static str>,
    pub took: Duration,
    /// Output of the programs.
    pub text: String,
    /// Packets that were transmitted again.
    pub retransmissions: u64,
    pub captures: Vec<PathBuf>,
}

impl Outcome {
    /// Returns that of a case whose virtual machine failed.
    pub fn failed(fault: String) -> Self {
        Self {
            verdict: Verdict { fault: Some(fault), ..Verdict::default() },
            reason_to_repeat: None,
            took: Duration::ZERO,
            text: String::new(),
            retransmissions: 0,
            captures: Vec::new(),
        }
    }
}

impl Site<'_> {
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Place(_, kind) | Self::Rxe(_, kind) => *kind,
            Self::Host => Kind::One,
        }
    }

    /// Returns where the programs on this host run, if in a place of its own.
    const fn place(&self) -> Option<&Place> {
        match self {
            Self::Place(place, _) => Some(place),
            Self::Rxe(opposite, _) => Some(opposite.place()),
            Self::Host => None,
        }
    }

    /// Returns how programs there see `target/verbs`.
    fn root(&self) -> PathBuf {
        if self.place().is_some() { ROOT.into() } else { shell::root().join("target/verbs") }
    }

    /// Returns the addresses of the devices of both sides.
    fn addresses(&self) -> [&'static str; 2] {
        if self.place().is_some() { self.kind().addresses() } else { ["127.0.0.1"; 2] }
    }

    const fn tcp_host(&self) -> &'static str {
        if self.place().is_some() { self.kind().tcp_host() } else { "127.0.0.1" }
    }

    fn command(&self, side: usize) -> Command {
        if let Some(place) = self.place() {
            return place.unprivileged(self.kind(), side);
        }
        let mut command = Command::new("setpriv");
        command.arg("--no-new-privs");
        command
    }

    /// Returns what a side's namespace shows of `/proc/net`.
    fn sockets(&self, side: usize, file: &str) -> String {
        let process = self.place().map_or_else(|| "self".to_owned(), |place| place.process(side).to_string());
        fs::read_to_string(format!("/proc/{process}/net/{file}")).unwrap_or_default()
    }

    /// Returns the sockets on the server's side that wait for connections, over TCP or by rdma_cm.
    fn listeners(&self) -> Result<BTreeSet<String>> {
        if let Self::Rxe(opposite, kind) = self
            && kind.is_in_guest(0)
        {
            return opposite.listeners();
        }
        let mut listeners = BTreeSet::new();
        for file in ["tcp", "tcp6"] {
            // The second word is the address, the fourth one the state: 0A is LISTEN.
            let sockets = self.sockets(0, file);
            let words = sockets.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
            listeners
                .extend(words.filter(|words| words.get(3) == Some(&"0A")).map(|words| words[1..2].concat()));
        }
        let claims = self.sockets(0, "unix");
        let names = claims.lines().filter_map(|line| line.split_whitespace().last());
        let is_port = |name: &&str| name.starts_with("@viordma") && name.contains("/port/");
        listeners.extend(names.filter(is_port).map(str::to_owned));
        Ok(listeners)
    }

    /// Returns how many UDP datagrams the server's side has received and sent.
    fn datagrams(&self) -> u64 {
        let of_ipv4 = self.sockets(0, "snmp");
        let names = ["Udp6InDatagrams", "Udp6OutDatagrams"];
        let of_ipv6 = self.sockets(0, "snmp6");
        // A line with names, then one with values: received, without a port, wrong, sent.
        let values = of_ipv4.lines().filter_map(|line| line.strip_prefix("Udp: ")).nth(1).unwrap_or_default();
        let values: Vec<&str> = values.split_whitespace().collect();
        let of_ipv6 = of_ipv6.lines().filter_map(|line| line.split_once(char::is_whitespace));
        let of_ipv6 = of_ipv6.filter(|(name, _)| names.contains(name)).map(|(_, value)| value.trim());
        let all = [values.first(), values.get(3)].into_iter().flatten().copied().chain(of_ipv6);
        all.filter_map(|value| value.parse::<u64>().ok()).sum()
    }

    /// Returns what is left of processes of the library: sockets with names, and shared memory.
    fn left(&self) -> Vec<String> {
        let Some(place) = self.place() else { return Vec::new() };
        let mut left = Vec::new();
        for side in 0..2 {
            let sockets = self.sockets(side, "unix");
            left.extend(sockets.lines().filter(|line| line.contains("@viordma")).map(str::to_owned));
            let mut list = place.command(side);
            let files = shell::output(list.args(["ls", "-A", "/dev/shm"])).unwrap_or_default();
            left.extend(files.lines().map(|name| format!("/dev/shm/{name}")));
        }
        left.sort();
        left.dedup();
        left
    }
}

/// Runs a case, and judges what its programs did.
///
/// # Errors
/// The programs cannot be started.
pub fn run(case: &Case, site: &Site<'_>, faults: Faults, seed: u32) -> Result<Outcome> {
    let mut slower = 1;
    if let Site::Rxe(opposite, _) = site {
        opposite.boot()?;
        slower = SLOWER_IN_GUEST;
    }
    let begin = Instant::now();
    let folder =
        format!("run/{}-{}-{}", case.name, site.kind().name(), faults.name()).replace([' ', '%', ','], "");
    let own = shell::root().join("target/verbs").join(&folder);
    let _ = fs::remove_dir_all(&own);
    fs::create_dir_all(&own).with_context(|| format!("cannot make {}", own.display()))?;
    // The user of the programs writes into it.
    fs::set_permissions(&own, fs::Permissions::from_mode(0o777))?;
    let job = Job { case, site, faults, seed, folder, mark: format!("{}-{}", std::process::id(), case.name) };
    let deadline = begin + Duration::from_secs(case.seconds) * slower;
    let mut server = None;
    if !case.server.is_empty() {
        let before = site.listeners()?;
        let mut program = job.start(0, case.server, &own.join("server.log"), deadline)?;
        let listens = || site.listeners().is_ok_and(|listeners| listeners != before);
        if eventually(LISTENING * slower, || listens() || program.has_ended()) {
            // A port is claimed a moment before the program listens.
            thread::sleep(AFTER_CLAIM);
        }
        server = Some(program);
    }
    let datagrams = site.datagrams();
    let mut client = job.start(1, case.client, &own.join("client.log"), deadline)?;
    let (mut limit, mut untimely) = (deadline, None);
    if let (Expected::ServerKilled | Expected::ServerStopped, Some(server)) = (case.expected, &mut server) {
        // The first frames make them share memory.
        let transfers = |server: &Program<'_>| site.datagrams() > datagrams + MANY || server.shares_memory();
        eventually(BEFORE_KILL, || transfers(server) || client.has_ended());
        thread::sleep(IN_TRANSFER);
        // Without a peer that is killed or stopped in mid-transfer, the client's end would show nothing.
        if client.has_ended() || !transfers(server) {
            untimely = Some("there was no transfer when the server was to be killed or stopped".to_owned());
        } else if case.expected == Expected::ServerStopped {
            server.stop(STOPPED)?;
        } else {
            server.kill();
            limit = Instant::now() + AFTER_KILL;
        }
    }
    if let (Site::Rxe(..), Some(server)) = (site, &mut server) {
        let left = limit.saturating_duration_since(Instant::now());
        eventually(left, || client.has_ended() || server.has_ended());
        limit = limit.min(Instant::now() + AFTER_PEER);
    }
    let client = client.wait(limit)?;
    let whole = if let Site::Rxe(..) = site { limit.max(Instant::now()) } else { deadline };
    // A server whose client has failed may wait for another for ever.
    let limit = if client.is_success() { whole } else { Instant::now() + Duration::from_secs(2) };
    let server = server.map(|server| server.wait(limit.min(deadline))).transpose()?;
    let ends = Ends { server: server.as_ref(), client: &client };
    let mut verdict = ends.verdict(case, faults);
    let reason_to_repeat = verdict.fault.as_ref().and_then(|_| ends.reason_to_repeat(case, faults));
    let left = job.leftovers();
    process::end(&process::marked(&job.mark));
    verdict.fault = untimely.or(verdict.fault).or(left).or_else(|| ends.fault_of_link(case, site.kind()));
    Ok(Outcome {
        verdict,
        reason_to_repeat,
        took: begin.elapsed(),
        retransmissions: ends.counter("retransmissions"),
        text: server.iter().chain([&client]).map(|exited| exited.text.as_str()).collect(),
        captures: captures(&own)?,
    })
}

/// The programs of a case in a site.
struct Job<'a> {
    case: &'a Case,
    site: &'a Site<'a>,
    faults: Faults,
    seed: u32,
    /// Where the programs run, below `target/verbs`.
    folder: String,
    mark: String,
}

impl<'a> Job<'a> {
    /// Starts a program of the case on its side.
    fn start(&self, side: usize, text: &str, log: &Path, deadline: Instant) -> Result<Program<'a>> {
        if let Site::Rxe(opposite, kind) = self.site
            && kind.is_in_guest(side)
        {
            let limit = deadline.saturating_duration_since(Instant::now());
            return opposite.start(*kind, text, limit, log).map(Program::InGuest);
        }
        Process::start(&mut self.command(side, text), log).map(Program::Here)
    }

    /// Returns a command of the case, for a side on this host.
    fn command(&self, side: usize, text: &str) -> Command {
        let Self { case, site, .. } = self;
        let root = site.root();
        let (programs, directory) = (root.join("programs"), root.join(&self.folder));
        let libraries: Vec<String> = [root.join("lib")]
            .into_iter()
            .chain(programs::LIBRARIES.map(|folder| programs.join(folder)))
            .map(|folder| folder.display().to_string())
            .collect();
        let addresses = site.addresses();
        let mut command = site.command(side);
        command.args(["env", "-C"]).arg(&directory);
        let mut set = |name: &str, value: &str| {
            command.arg(format!("{name}={value}"));
        };
        set("LD_LIBRARY_PATH", &libraries.join(":"));
        set("PYTHONPATH", &format!("{}/usr/lib/python3/dist-packages", programs.display()));
        set("OPAL_PREFIX", &format!("{}/usr", programs.display()));
        set("HOME", &directory.display().to_string());
        set("TMPDIR", "/tmp");
        set(MARK, &self.mark);
        set("VIORDMA_STATS", "1");
        // The first address of the host is right but for a host with IPv6 beside IPv4.
        if site.kind().is_ipv6() || matches!(site, Site::Host) {
            set("VIORDMA_ADDR", addresses[side]);
        }
        if let Some(interface) = site.kind().interface(side) {
            set("VIORDMA_INTERFACE", interface);
        }
        if let Some(faults) = self.faults.setting(self.seed) {
            set("VIORDMA_FAULTS", &faults);
        } else if case.is_captured {
            set("VIORDMA_PCAP", &format!("{}/{{pid}}.pcap", directory.display()));
        }
        for (name, value) in case.environment {
            set(name, value);
        }
        let text = text
            .replace("{addr}", addresses[0])
            .replace("{host}", site.tcp_host())
            .replace("{gid}", "0")
            .replace("{scripts}", &root.join(scripts::FOLDER).display().to_string())
            .replace("{programs}", &programs.display().to_string());
        for (place, word) in text.split_whitespace().enumerate() {
            if place == 0 && !word.starts_with('/') {
                command.arg(programs.join("usr/bin").join(word));
            } else {
                command.arg(word);
            }
        }
        command
    }

    /// Returns what the processes of the case left behind, if anything.
    fn leftovers(&self) -> Option<String> {
        if !eventually(CLEANUP, || process::marked(&self.mark).is_empty()) {
            return Some(format!("processes are left: {:?}", process::marked(&self.mark)));
        }
        if !eventually(CLEANUP, || self.site.left().is_empty()) {
            return Some(format!("left behind: {}", self.site.left().join(", ")));
        }
        None
    }
}

/// Returns the captures in a folder.
fn captures(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "pcap" || end == "pcapng") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
