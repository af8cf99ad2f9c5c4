// SPDX-License-Identifier: MIT OR Apache-2.0

//! Runs a case in a place, and judges it.

use std::{
    fs,
    os::unix::{fs::PermissionsExt as _, process::ExitStatusExt as _},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};

use super::{
    cases::{Case, Expected, Faults},
    place::{HOST, Kind, Place, ROOT},
    process::{self, Exited, MARK, Process, eventually},
    tests_of_python,
};
use crate::{shell, verbs::programs};

/// How long a server may take until it listens: perftest's compute for more than a second before.
const LISTENING: Duration = Duration::from_secs(5);

const AFTER_CLAIM: Duration = Duration::from_millis(50);

/// How long a transfer runs until a side is killed.
const BEFORE_KILL: Duration = Duration::from_millis(700);

/// How long a client may take to end after the death of its peer.
const AFTER_KILL: Duration = Duration::from_secs(10);

/// Of so many frames, some are lost and sent again, if 1 % is.
const MANY: u64 = 2000;

/// How long what a process had may remain after its end.
const CLEANUP: Duration = Duration::from_secs(2);

/// Where the two programs run.
pub enum Site<'a> {
    /// In a place of its own.
    Place(&'a Place),
    /// On this host, as this user, over the loopback address.
    Host,
}

/// Result of a case.
pub struct Outcome {
    /// Why it failed.
    pub fault: Option<String>,
    /// A few words about it: numbers of tests, for example.
    pub note: String,
    pub took: Duration,
    /// Output of the programs.
    pub text: String,
    /// Packets that were transmitted again.
    pub retransmissions: u64,
    pub captures: Vec<PathBuf>,
}

impl Site<'_> {
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Place(place) => place.kind,
            Self::Host => Kind::One,
        }
    }

    /// Returns how programs there see `target/verbs`.
    fn root(&self) -> PathBuf {
        match self {
            Self::Place(_) => ROOT.into(),
            Self::Host => shell::root().join("target/verbs"),
        }
    }

    /// Returns the addresses of the devices of both sides.
    fn addresses(&self) -> [&'static str; 2] {
        match self {
            Self::Place(place) => place.kind.addresses(),
            Self::Host => ["127.0.0.1"; 2],
        }
    }

    const fn tcp_host(&self) -> &'static str {
        match self {
            Self::Place(_) => HOST,
            Self::Host => "127.0.0.1",
        }
    }

    fn command(&self, side: usize) -> Command {
        match self {
            Self::Place(place) => place.unprivileged(side),
            Self::Host => {
                let mut command = Command::new("setpriv");
                command.arg("--no-new-privs");
                command
            }
        }
    }

    /// Returns what a side's namespace shows of `/proc/net`.
    fn sockets(&self, side: usize, file: &str) -> String {
        let process = match self {
            Self::Place(place) => place.process(side).to_string(),
            Self::Host => "self".to_owned(),
        };
        fs::read_to_string(format!("/proc/{process}/net/{file}")).unwrap_or_default()
    }

    /// Returns true if a program of the server's side waits for connections, over TCP or by rdma_cm.
    fn has_listener(&self) -> bool {
        let tcp = ["tcp", "tcp6"].map(|file| self.sockets(0, file));
        // State 0A is LISTEN.
        let listens =
            |text: &String| text.lines().skip(1).any(|line| line.split_whitespace().nth(3) == Some("0A"));
        let claims = self.sockets(0, "unix");
        tcp.iter().any(listens)
            || claims.lines().any(|line| line.contains("@viordma") && line.contains("/port/"))
    }

    /// Returns what is left of processes of the library: sockets with names, and shared memory.
    fn left(&self) -> Vec<String> {
        let Self::Place(place) = self else { return Vec::new() };
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
    let begin = Instant::now();
    let folder =
        format!("run/{}-{}-{}", case.name, site.kind().name(), faults.name()).replace([' ', '%'], "");
    let own = shell::root().join("target/verbs").join(&folder);
    let _ = fs::remove_dir_all(&own);
    fs::create_dir_all(&own).with_context(|| format!("cannot make {}", own.display()))?;
    // The user of the programs writes into it.
    fs::set_permissions(&own, fs::Permissions::from_mode(0o777))?;
    let job = Job { case, site, faults, seed, folder, mark: format!("{}-{}", std::process::id(), case.name) };
    let deadline = begin + Duration::from_secs(case.seconds);
    let mut server = None;
    if !case.server.is_empty() {
        let mut process = Process::start(&mut job.command(0, case.server), &own.join("server.log"))?;
        if eventually(LISTENING, || site.has_listener() || process.has_ended()) {
            // A port is claimed a moment before the program listens.
            thread::sleep(AFTER_CLAIM);
        }
        server = Some(process);
    }
    let mut client = Process::start(&mut job.command(1, case.client), &own.join("client.log"))?;
    let (mut limit, mut was_killed) = (deadline, false);
    if case.expected == Expected::ServerKilled {
        let has_ended = eventually(BEFORE_KILL, || client.has_ended());
        // Without a peer that is killed in mid-transfer, the client's end would show nothing.
        if let (Some(server), false) = (&mut server, has_ended) {
            server.kill();
            was_killed = true;
        }
        limit = Instant::now() + AFTER_KILL;
    }
    let client = client.wait(limit)?;
    // A server whose client has failed may wait for another for ever.
    let limit = if client.is_success() { deadline } else { Instant::now() + Duration::from_secs(2) };
    let server = server.map(|server| server.wait(limit.min(deadline))).transpose()?;
    let (mut fault, note) = verdict(case, server.as_ref(), &client);
    if case.expected == Expected::ServerKilled && !was_killed {
        fault = Some(format!("client: {} before its peer was killed", client.description()));
    }
    let text: String =
        [server.as_ref(), Some(&client)].into_iter().flatten().map(|exited| exited.text.as_str()).collect();
    let retransmissions = counter(&text, "retransmissions");
    if fault.is_none()
        && faults != Faults::None
        && counter(&text, "tx_frames") >= MANY
        && retransmissions == 0
    {
        fault = Some("no frame was lost".to_owned());
    }
    if fault.is_none() {
        fault = job.leftovers();
    }
    process::end(&process::marked(&job.mark));
    let took = begin.elapsed();
    Ok(Outcome { fault, note, took, text, retransmissions, captures: captures(&own)? })
}

/// Returns the sum of a counter in the statistics that the libraries print, `viordma: 127.0.0.1: rx_frames=3 tx_frames=4`.
fn counter(text: &str, name: &str) -> u64 {
    let lines = text.lines().filter_map(|line| line.split_once("viordma: ")).map(|(_, counters)| counters);
    let values =
        lines.flat_map(str::split_whitespace).filter_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    values.filter_map(|value| value.parse::<u64>().ok()).sum()
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

impl Job<'_> {
    /// Returns a command of the case, for a side.
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
        if site.kind() == Kind::Ipv6 || matches!(site, Site::Host) {
            set("VIORDMA_ADDR", addresses[side]);
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

/// Judges how the programs ended: returns the fault, if there is one, and a note.
fn verdict(case: &Case, server: Option<&Exited>, client: &Exited) -> (Option<String>, String) {
    let sides = || {
        [("client", Some(client)), ("server", server)]
            .into_iter()
            .filter_map(|(name, exited)| Some((name, exited?)))
    };
    let signal = |exited: &Exited| exited.status.and_then(|status| status.signal());
    match case.expected {
        Expected::Pass => {
            let failed = sides().find(|(_, exited)| !exited.is_success());
            (failed.map(|(name, exited)| format!("{name}: {}", exited.description())), String::new())
        }
        Expected::Refused { text, reason } => {
            let fault = if let Some((name, exited)) = sides().find(|(_, exited)| signal(exited).is_some()) {
                Some(format!("{name}: {}", exited.description()))
            } else if client.status.is_none() {
                Some("client: no end in time".to_owned())
            } else if sides().all(|(_, exited)| exited.is_success()) {
                Some("it is not refused".to_owned())
            } else if !sides().any(|(_, exited)| exited.text.contains(text)) {
                Some(format!("no program prints {text:?}"))
            } else {
                None
            };
            (fault, format!("refused: {reason}"))
        }
        Expected::ServerKilled => {
            let fault = match client.status {
                None => Some(format!("client: no end within {} s", AFTER_KILL.as_secs())),
                Some(status) if status.success() => Some("client: it ended without an error".to_owned()),
                Some(_) if signal(client).is_some() => Some(format!("client: {}", client.description())),
                Some(_) => None,
            };
            (fault, "the client gets an error".to_owned())
        }
        Expected::Tests { passed, known } => {
            let result = tests_of_python::Results::read(&client.text);
            (result.fault(passed, known, client.status.is_some()), result.to_string())
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_all_devices_are_added() {
        let text = "a line\n65536 500 0.006viordma: 10.77.0.1: tx_frames=3 retransmissions=1\nviordma: ::1: tx_frames=4";
        assert_eq!(counter(text, "tx_frames"), 7);
        assert_eq!(counter(text, "retransmissions"), 1);
        assert_eq!(counter(text, "frames"), 0);
    }
}
