// SPDX-License-Identifier: MIT OR Apache-2.0

//! DPDK's vhost library as the backend of QEMU's devices: `dpdk-testpmd` forwards frames between two of them.
//!
//! QEMU then only configures the device. Rings are processed by DPDK, which polls them: one thread is always busy.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

/// The program.
pub const TESTPMD: &str = "/usr/bin/dpdk-testpmd";

/// Time limit of its start, which takes a second.
const START_TIMEOUT: Duration = Duration::from_secs(60);
const PORTS: usize = 2;
/// Memory for frames, in MiB, and their number, of 2 KiB each.
const MEMORY: u32 = 128;
const FRAMES: u32 = 8192;

/// A running `dpdk-testpmd` with two vhost-user sockets. What arrives on one leaves on the other. Drop kills it.
#[derive(Debug)]
pub struct DpdkSwitch {
    child: Child,
    /// For its sockets and messages.
    directory: TempDir,
    /// Number of sockets in use.
    used: AtomicUsize,
}

impl DpdkSwitch {
    /// Starts the program. It ends with the calling thread.
    ///
    /// # Errors
    /// When it cannot be started, or ends at once: the error contains its messages.
    pub fn start() -> io::Result<Self> {
        let directory = tempfile::tempdir()?;
        let messages = File::create(directory.path().join("messages"))?;
        let child = command(directory.path())
            .stdout(messages.try_clone()?)
            .stderr(messages)
            // At the end of its input it stops.
            .stdin(Stdio::piped())
            .spawn()?;
        let mut switch = Self { child, directory, used: AtomicUsize::new(0) };
        let start = Instant::now();
        while !(0..PORTS).all(|number| switch.socket(number).exists()) {
            let ended = switch.child.try_wait()?;
            if ended.is_some() || start.elapsed() > START_TIMEOUT {
                let messages =
                    fs::read_to_string(switch.directory.path().join("messages")).unwrap_or_default();
                return Err(io::Error::other(format!("{TESTPMD} does not start: {}", messages.trim())));
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(switch)
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
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(directory: &Path) -> Command {
    // It is killed when the thread that started it ends, even if that thread is killed. It yields the processor to others.
    let mut testpmd = Command::new("setpriv");
    testpmd.args(["--pdeathsig", "KILL", "nice", "-n", "10", TESTPMD]);
    // No huge pages, no devices, no files outside of the directory. One thread for commands, one for frames.
    testpmd.args(["--no-huge", "--no-pci", "--no-telemetry", "--no-shconf", "--iova-mode=va"]);
    testpmd.args(["-m", &MEMORY.to_string(), "--lcores", "0@0,1@1"]);
    for number in 0..PORTS {
        let socket = directory.join(format!("port{number}"));
        testpmd.arg("--vdev").arg(format!("net_vhost{number},iface={}", socket.display()));
    }
    // Memory of the hosts, 2 GiB each, is not locked.
    testpmd.args([
        "--",
        "--no-mlockall",
        "--forward-mode=io",
        "--auto-start",
        "--total-num-mbufs",
        &FRAMES.to_string(),
    ]);
    testpmd
}
