// SPDX-License-Identifier: MIT OR Apache-2.0

//! DPDK's vhost library as the backend of QEMU's devices: `dpdk-testpmd` forwards frames between two of them.
//!
//! QEMU then only configures the device. Rings are processed by DPDK, which polls them: one thread is always busy.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tempfile::TempDir;

/// The program.
pub const TESTPMD: &str = "/usr/bin/dpdk-testpmd";

/// Time limit of its start, which takes a second.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Time limit of its end.
const END_TIMEOUT: Duration = Duration::from_secs(20);
const PORTS: usize = 2;
/// Memory for frames, in MiB, and their number, of 2 KiB each.
const MEMORY: u32 = 128;
const FRAMES: u32 = 8192;

/// A running `dpdk-testpmd` with two vhost-user sockets. What a queue pair of one sends, the pair with the same number of the other
/// receives. Drop kills it.
#[derive(Debug)]
pub struct DpdkSwitch {
    child: Mutex<Child>,
    /// Queue pairs of each socket.
    pairs: u16,
    /// For its sockets and messages.
    directory: TempDir,
    /// Number of sockets in use.
    used: AtomicUsize,
}

/// Frames of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Forwarded {
    /// The socket whose device has sent them, 0 or 1, in the order of [`DpdkSwitch::next_socket`].
    pub from: usize,
    /// Number of the pair.
    pub pair: u16,
    /// Frames that the other device has received.
    pub delivered: u64,
}

impl DpdkSwitch {
    /// Starts the program with so many queue pairs, at least 1, on each socket. It ends with the calling thread.
    ///
    /// # Errors
    /// When it cannot be started, or ends at once: the error contains its messages.
    pub fn start(pairs: u16) -> io::Result<Self> {
        let directory = tempfile::tempdir()?;
        let messages = File::create(directory.path().join("messages"))?;
        let child = command(directory.path(), pairs)
            .stdout(messages.try_clone()?)
            .stderr(messages)
            // At the end of its input it stops.
            .stdin(Stdio::piped())
            .spawn()?;
        let switch = Self { child: Mutex::new(child), pairs, directory, used: AtomicUsize::new(0) };
        let start = Instant::now();
        while !(0..PORTS).all(|number| switch.socket(number).exists()) {
            let ended = switch.child.lock().try_wait()?;
            if ended.is_some() || start.elapsed() > START_TIMEOUT {
                let messages = fs::read_to_string(switch.messages()).unwrap_or_default();
                return Err(io::Error::other(format!("{TESTPMD} does not start: {}", messages.trim())));
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(switch)
    }

    /// Returns the number of queue pairs of each socket.
    #[must_use]
    pub const fn pairs(&self) -> u16 {
        self.pairs
    }

    /// Returns the socket of the next device; `None` when both are in use.
    #[must_use]
    pub fn next_socket(&self) -> Option<PathBuf> {
        let number = self.used.fetch_add(1, Relaxed);
        (number < PORTS).then(|| self.socket(number))
    }

    /// Returns the features that drivers have negotiated with DPDK so far.
    ///
    /// # Errors
    /// When its messages cannot be read.
    pub fn negotiated(&self) -> io::Result<Vec<u64>> {
        let messages = fs::read_to_string(self.messages())?;
        let features = |line: &str| {
            let (_, hex) = line.split_once("negotiated Virtio features: 0x")?;
            u64::from_str_radix(hex.trim(), 16).ok()
        };
        Ok(messages.lines().filter_map(features).collect())
    }

    /// Waits until all queues of both sockets are enabled, which a driver's command is not: frames are lost before.
    ///
    /// # Errors
    /// When they are not within a minute, or the program's messages cannot be read.
    pub fn await_queues(&self) -> io::Result<()> {
        let start = Instant::now();
        let all = PORTS * 2 * usize::from(self.pairs);
        while enabled(&fs::read_to_string(self.messages())?) < all {
            if start.elapsed() > START_TIMEOUT {
                return Err(io::Error::other(format!("{TESTPMD} does not use all queues")));
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Ends the program. Returns what each of several queue pairs has forwarded, without those that have received nothing.
    ///
    /// # Errors
    /// When it does not end by itself, or its messages cannot be read.
    pub fn end(&self) -> io::Result<Vec<Forwarded>> {
        let mut child = self.child.lock();
        drop(child.stdin.take());
        let start = Instant::now();
        while child.try_wait()?.is_none() {
            if start.elapsed() > END_TIMEOUT {
                return Err(io::Error::other(format!("{TESTPMD} does not end")));
            }
            thread::sleep(Duration::from_millis(10));
        }
        let messages = fs::read_to_string(self.messages())?;
        let streams = messages.split("Forward Stats for RX Port=").skip(1);
        Ok(streams.filter_map(stream).collect())
    }

    fn messages(&self) -> PathBuf {
        self.directory.path().join("messages")
    }

    fn socket(&self, number: usize) -> PathBuf {
        self.directory.path().join(format!("port{number}"))
    }
}

impl Drop for DpdkSwitch {
    fn drop(&mut self) {
        // Fails only if it has ended.
        let child = self.child.get_mut();
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Returns the number of queues that are enabled: `(SOCKET) set queue enable: 1 to qp idx: 5`.
fn enabled(messages: &str) -> usize {
    let mut states = BTreeMap::new();
    for (before, after) in messages.lines().filter_map(|line| line.split_once(" set queue enable: ")) {
        if let Some((state, queue)) = after.split_once(" to qp idx: ") {
            states.insert((before, queue), state);
        }
    }
    states.values().filter(|&&state| state == "1").count()
}

/// Reads the statistics of a stream: ` 0/Queue= 1 -> TX Port= 1/Queue= 1`, and on the next line `TX-packets: 5`.
fn stream(text: &str) -> Option<Forwarded> {
    let number = |text: &str| {
        let text = text.trim_start();
        text.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u64>().ok()
    };
    let (from, rest) = text.split_once("/Queue=")?;
    let (_, delivered) = rest.split_once("TX-packets:")?;
    Some(Forwarded {
        from: number(from)? as usize,
        pair: number(rest)? as u16,
        delivered: number(delivered)?,
    })
}

fn command(directory: &Path, pairs: u16) -> Command {
    // It is killed when the thread that started it ends, even if that thread is killed. It yields the processor to others.
    let mut testpmd = Command::new("setpriv");
    testpmd.args(["--pdeathsig", "KILL", "nice", "-n", "10", TESTPMD]);
    // No huge pages, no devices, no files outside of the directory. One thread for commands, one for frames.
    testpmd.args(["--no-huge", "--no-pci", "--no-telemetry", "--no-shconf", "--iova-mode=va"]);
    testpmd.args(["-m", &MEMORY.to_string(), "--lcores", "0@0,1@1"]);
    for number in 0..PORTS {
        let socket = directory.join(format!("port{number}"));
        testpmd.arg("--vdev").arg(format!("net_vhost{number},iface={},queues={pairs}", socket.display()));
    }
    // Memory of the hosts, 2 GiB each, is not locked.
    testpmd.args([
        "--",
        "--no-mlockall",
        "--forward-mode=io",
        "--auto-start",
        "--total-num-mbufs",
        &FRAMES.to_string(),
        &format!("--rxq={pairs}"),
        &format!("--txq={pairs}"),
    ]);
    testpmd
}
