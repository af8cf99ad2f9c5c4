// SPDX-License-Identifier: MIT OR Apache-2.0

//! Linux's network stack as the peer of QEMU's devices: a network namespace with a bridge, whose ports are tap interfaces.
//!
//! Linux has addresses on the bridge. What a device sends to another device passes the bridge in the kernel, which divides
//! large packets and completes checksums if the receiving device has not accepted that. Frames never leave the namespace.
//! Needs root, or the capabilities `CAP_NET_ADMIN` and `CAP_SYS_ADMIN`.
#![allow(unsafe_code, reason = "changes the network namespace of a thread")]

use std::{
    fs::{self, File},
    io,
    net::IpAddr,
    os::fd::AsRawFd as _,
    panic::resume_unwind,
    path::PathBuf,
    process::{self, Command},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    thread,
};

/// The program that configures interfaces.
pub const IP: &str = "/usr/sbin/ip";

const TUN: &str = "/dev/net/tun";
/// Name of the bridge.
pub const BRIDGE: &str = "bridge";
/// Message of `ip` where the kernel has no bridges.
const NO_BRIDGE: [&str; 2] = ["Unknown device type", "Operation not supported"];

/// A network namespace with a bridge. It ends with its last user: this value, sockets and processes in it.
#[derive(Debug)]
pub struct TapNetwork {
    namespace: File,
    /// Number of tap interfaces.
    taps: AtomicUsize,
}

/// A port of the bridge, for a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tap {
    /// Name of the interface.
    pub name: String,
    /// Queue pairs that a device on it has.
    pub pairs: u16,
}

/// Counters of an interface, as Linux sees it: a device's frames are received. A packet that is not divided, or that was
/// coalesced, counts once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TapCounters {
    pub received: u64,
    pub received_bytes: u64,
    /// Frames that Linux refused, with wrong lengths or offsets in their virtio header among them.
    pub receive_errors: u64,
    pub sent: u64,
    pub sent_bytes: u64,
    /// Frames for which the interface's queue had no room.
    pub send_drops: u64,
}

impl TapNetwork {
    /// Creates a namespace with a bridge that has no ports.
    ///
    /// # Errors
    /// `NotFound`, `PermissionDenied` or `Unsupported` where the machine does not allow tap interfaces or namespaces, or its
    /// kernel has none; others are failures.
    pub fn new() -> io::Result<Self> {
        File::options().read(true).write(true).open(TUN).map_err(unsupported)?;
        let namespace = on_thread(|| {
            // SAFETY: the call takes no pointers. The thread, which ends with this closure, is the only one in the namespace.
            if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
                return Err(unsupported(io::Error::last_os_error()));
            }
            File::open("/proc/thread-self/ns/net")
        })?;
        let network = Self { namespace, taps: AtomicUsize::new(0) };
        // Multicast frames reach every port, without Linux asking for members of groups.
        network.ip(&["link", "add", BRIDGE, "type", "bridge", "mcast_snooping", "0"])?;
        network.ip(&["link", "set", BRIDGE, "addrgenmode", "none", "up"])?;
        Ok(network)
    }

    /// Adds a port to the bridge for a device with so many queue pairs; `mtu` is that of the device.
    ///
    /// # Errors
    /// Linux refuses it.
    pub fn add_tap(&self, pairs: u16, mtu: u16) -> io::Result<Tap> {
        let name = format!("tap{}", self.taps.fetch_add(1, Relaxed));
        let mut arguments = vec!["tuntap", "add", "dev", &name, "mode", "tap"];
        if pairs > 1 {
            arguments.push("multi_queue");
        }
        self.ip(&arguments)?;
        let mtu = mtu.to_string();
        let settings = ["addrgenmode", "none", "mtu", &mtu, "master", BRIDGE, "up"];
        self.ip(&[&["link", "set", "dev", &name][..], &settings].concat())?;
        Ok(Tap { name, pairs })
    }

    /// Gives Linux an address, with the length of the subnet's prefix.
    ///
    /// # Errors
    /// Linux refuses it.
    pub fn add_address(&self, address: IpAddr, prefix: u8) -> io::Result<()> {
        let address = format!("{address}/{prefix}");
        let mut arguments = vec!["addr", "add", &address, "dev", BRIDGE];
        if address.contains(':') {
            arguments.push("nodad");
        }
        self.ip(&arguments)
    }

    /// Returns the link address of Linux.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn address(&self) -> io::Result<[u8; 6]> {
        let mut command = Command::new(IP);
        command.args(["-brief", "link", "show", BRIDGE]);
        let output = self.run(|| command.output())??;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        // Name, state, address.
        let digits = text.split_whitespace().nth(2).unwrap_or_default().split(':');
        let bytes: Vec<u8> = digits.filter_map(|digits| u8::from_str_radix(digits, 16).ok()).collect();
        bytes.try_into().map_err(|_| io::Error::other(format!("no link address in {text:?}")))
    }

    /// Runs `body` on a thread in the namespace. A socket that it makes stays there.
    ///
    /// # Errors
    /// The thread cannot enter the namespace.
    pub fn run<T: Send>(&self, body: impl FnOnce() -> T + Send) -> io::Result<T> {
        on_thread(|| {
            // SAFETY: the call takes no pointers; the descriptor is open as long as `self` is.
            if unsafe { libc::setns(self.namespace.as_raw_fd(), libc::CLONE_NEWNET) } != 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(body())
        })
    }

    /// Returns a file that names the namespace to other processes.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", process::id(), self.namespace.as_raw_fd()).into()
    }

    /// Returns the counters of an interface.
    ///
    /// # Errors
    /// They cannot be read, or there is no such interface.
    pub fn counters(&self, tap: &str) -> io::Result<TapCounters> {
        let text = self.run(|| fs::read_to_string("/proc/thread-self/net/dev"))??;
        let mut lines = text.lines().filter_map(|line| line.split_once(':'));
        let (_, numbers) = lines.find(|(name, _)| name.trim() == tap).ok_or(io::ErrorKind::NotFound)?;
        let numbers: Vec<u64> = numbers.split_whitespace().filter_map(|number| number.parse().ok()).collect();
        let number = |at: usize| numbers.get(at).copied().ok_or(io::ErrorKind::InvalidData);
        Ok(TapCounters {
            received: number(1)?,
            received_bytes: number(0)?,
            receive_errors: number(2)?,
            sent: number(9)?,
            sent_bytes: number(8)?,
            send_drops: number(11)?,
        })
    }

    fn ip(&self, arguments: &[&str]) -> io::Result<()> {
        let mut command = Command::new(IP);
        let output = self.run(|| command.args(arguments).output())??;
        if output.status.success() {
            return Ok(());
        }
        let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        let is_known = NO_BRIDGE.iter().any(|text| message.contains(text));
        let kind = if is_known { io::ErrorKind::Unsupported } else { io::ErrorKind::Other };
        Err(io::Error::new(kind, format!("ip {}: {message}", arguments.join(" "))))
    }
}

/// Runs `body` on a thread of its own, which may change its namespace.
fn on_thread<T: Send>(body: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    thread::scope(|scope| scope.spawn(body).join()).unwrap_or_else(|panic| resume_unwind(panic))
}

/// Marks errors of a machine without tap interfaces or namespaces.
fn unsupported(error: io::Error) -> io::Error {
    const ABSENT: [i32; 4] = [libc::ENODEV, libc::ENXIO, libc::ENOSYS, libc::EINVAL];
    if error.raw_os_error().is_some_and(|number| ABSENT.contains(&number)) {
        return io::Error::new(io::ErrorKind::Unsupported, error);
    }
    error
}
