// SPDX-License-Identifier: MIT OR Apache-2.0

//! A QEMU process without a guest.

use std::{
    fs::{self, File},
    io,
    os::{
        fd::AsRawFd as _,
        unix::net::{UnixListener, UnixStream},
    },
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use device_sim::DmaSpace;
use tempfile::TempDir;

use crate::{
    doorbells::{Doorbells, VECTORS},
    options::{Backend, Identity, QemuOptions, Slot},
    qmp::Qmp,
    qtest::Qtest,
    tap::Tap,
};

/// Time limit of QEMU's start, which takes a fifth of a second.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a QEMU that has closed its connections may take to end.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// The file that QEMU writes its messages to.
const MESSAGES: &str = "messages";

/// Where the memory of the simulated host is in the virtual machine: at the physical addresses of the host, because most
/// devices of QEMU bypass DMA remapping. A multiple of 2 MiB, below the 40 address bits of QEMU's default processor.
pub const MEMORY: u64 = DmaSpace::PHYSICAL;
/// Memory that the machine has besides, in MiB, and the upper end of all of it, in GiB.
const OWN_MEMORY: u64 = 16;
const MAX_MEMORY: u64 = 128;

/// Device numbers on the root bus.
pub const DOORBELL_SLOT: u8 = 4;
pub const NIC_SLOT: u8 = 5;

/// Firmware: 64 KiB that end with the reset vector, where the processor halts.
const FIRMWARE: usize = 0x1_0000;
const RESET_VECTOR: usize = 0xfff0;
/// `cli; hlt; jmp` back.
const HALT: [u8; 4] = [0xfa, 0xf4, 0xeb, 0xfd];

/// Name of the network device, and of its backend, for the monitor.
pub const NIC: &str = "nic";
pub const LINK: &str = "link";

/// Connections to QEMU.
pub struct Connections {
    pub qtest: Qtest,
    pub qmp: Qmp,
    pub doorbells: Doorbells,
}

/// The sockets that QEMU connects to.
struct Listeners {
    qtest: UnixListener,
    qmp: UnixListener,
    doorbells: UnixListener,
}

/// A running QEMU. Drop kills it.
pub struct Process {
    child: Child,
    /// For its sockets and files.
    directory: TempDir,
}

impl Process {
    /// Starts QEMU with `memory`, `len` bytes, as memory of the machine at [`MEMORY`]. It ends with the calling thread.
    ///
    /// # Errors
    /// When QEMU cannot be started, or ends at once: the error contains its messages.
    pub fn start(options: &QemuOptions, memory: &File, len: usize) -> io::Result<(Self, Connections)> {
        let directory = tempfile::tempdir()?;
        let root = directory.path().to_path_buf();
        let path = |name: &str| root.join(name);
        let listen = |name: &str| UnixListener::bind(path(name));
        let listeners =
            Listeners { qtest: listen("qtest")?, qmp: listen("qmp")?, doorbells: listen("doorbells")? };
        let mut firmware = vec![HALT[1]; FIRMWARE];
        firmware[RESET_VECTOR..RESET_VECTOR + HALT.len()].copy_from_slice(&HALT);
        fs::write(path("firmware"), firmware)?;
        let messages = File::create(path(MESSAGES))?;
        let child = command(options, memory, len, &root).stderr(messages).spawn()?;
        let mut process = Self { child, directory };
        match process.connect(&listeners) {
            Ok(connections) => Ok((process, connections)),
            Err(error) => {
                Err(io::Error::other(format!("QEMU does not start: {error}: {}", process.messages())))
            }
        }
    }

    /// Returns what QEMU has reported on its error output.
    fn messages(&self) -> String {
        let messages = fs::read_to_string(self.directory.path().join(MESSAGES)).unwrap_or_default();
        messages.trim().to_owned()
    }

    /// Describes how QEMU has ended and what it reported, once it has closed its connections.
    pub fn end(&mut self) -> String {
        let start = Instant::now();
        let status = loop {
            match self.child.try_wait() {
                Ok(None) if start.elapsed() < END_TIMEOUT => thread::sleep(Duration::from_millis(1)),
                Ok(None) => break "QEMU still runs".to_owned(),
                Ok(Some(status)) => break format!("QEMU ended with {status}"),
                Err(error) => break format!("QEMU cannot be waited for: {error}"),
            }
        };
        match self.messages() {
            messages if messages.is_empty() => format!("{status}, and reported nothing"),
            messages => format!("{status}, and reported: {messages}"),
        }
    }

    /// Stops the process, or lets it go on.
    ///
    /// # Errors
    /// It has ended.
    #[allow(unsafe_code, reason = "sends a signal")]
    pub fn set_stopped(&self, stopped: bool) -> io::Result<()> {
        let signal = if stopped { libc::SIGSTOP } else { libc::SIGCONT };
        // SAFETY: a signal to a child that was not waited for, so that its number is still its own.
        match unsafe { libc::kill(self.child.id().cast_signed(), signal) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Waits for QEMU's connections.
    fn connect(&mut self, listeners: &Listeners) -> io::Result<Connections> {
        let doorbells = Doorbells::serve(self.accept(&listeners.doorbells)?, self.directory.path())?;
        let qtest = Qtest::new(self.accept(&listeners.qtest)?)?;
        let qmp = Qmp::new(self.accept(&listeners.qmp)?)?;
        Ok(Connections { qtest, qmp, doorbells })
    }

    /// Waits until QEMU has connected to `listener`.
    fn accept(&mut self, listener: &UnixListener) -> io::Result<UnixStream> {
        listener.set_nonblocking(true)?;
        let start = Instant::now();
        loop {
            match listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false)?;
                    return Ok(stream);
                }
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                Err(_) => {}
            }
            let ended = self.child.try_wait()?;
            if ended.is_some() || start.elapsed() > START_TIMEOUT {
                return Err(io::Error::other(if ended.is_some() {
                    "it ended"
                } else {
                    "it does not connect"
                }));
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails only if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(options: &QemuOptions, memory: &File, len: usize, directory: &Path) -> Command {
    let path = |name: &str| directory.join(name).display().to_string();
    // QEMU is killed when the thread that started it ends, even if that thread is killed.
    let killed = ["setpriv", "--pdeathsig", "KILL", "qemu-system-x86_64"];
    let mut qemu = if let Backend::Tap { network, .. } = &options.backend {
        let mut inside = Command::new("nsenter");
        inside.arg(format!("--net={}", network.path().display())).args(killed);
        inside
    } else {
        let mut outside = Command::new(killed[0]);
        outside.args(&killed[1..]);
        outside
    };
    qemu.args(["-machine", "q35", "-accel", "tcg", "-nodefaults", "-no-user-config", "-display", "none"]);
    qemu.arg("-bios").arg(directory.join("firmware"));
    qemu.arg("-m").arg(format!("{OWN_MEMORY}M,slots=1,maxmem={MAX_MEMORY}G"));
    let file = format!("/proc/{}/fd/{}", std::process::id(), memory.as_raw_fd());
    qemu.arg("-object").arg(format!("memory-backend-file,id=host,size={len},mem-path={file},share=on"));
    qemu.arg("-device").arg(format!("pc-dimm,memdev=host,addr={MEMORY:#x}"));
    qemu.arg("-qtest").arg(format!("unix:{}", path("qtest"))).args(["-qtest-log", "none"]);
    qemu.arg("-chardev").arg(format!("socket,id=qmp,path={}", path("qmp")));
    qemu.args(["-mon", "chardev=qmp,mode=control"]);
    qemu.arg("-chardev").arg(format!("socket,id=doorbells,path={}", path("doorbells")));
    qemu.arg("-device")
        .arg(format!("ivshmem-doorbell,chardev=doorbells,vectors={VECTORS},addr={DOORBELL_SLOT:#x}"));
    match &options.backend {
        Backend::Datagrams { local, remote } => {
            qemu.arg("-netdev").arg(format!(
                "dgram,id={LINK},local.type=unix,local.path={},remote.type=unix,remote.path={}",
                local.display(),
                remote.display()
            ));
        }
        Backend::VhostUser { socket, pairs } => {
            qemu.arg("-chardev").arg(format!("socket,id=backend,path={}", socket.display()));
            qemu.arg("-netdev").arg(format!("vhost-user,id={LINK},chardev=backend,queues={pairs}"));
        }
        Backend::Tap { tap: Tap { name, pairs }, .. } => {
            let queues = if *pairs > 1 { format!(",queues={pairs}") } else { String::new() };
            qemu.arg("-netdev").arg(format!("tap,id={LINK},ifname={name},script=no,downscript=no{queues}"));
        }
    }
    let slot = match options.slot {
        Slot::RootBus => format!("addr={NIC_SLOT:#x}"),
        Slot::RootPort => {
            qemu.arg("-device")
                .arg(format!("pcie-root-port,id=rootport,chassis=1,slot=1,addr={NIC_SLOT:#x}"));
            "bus=rootport,addr=0".to_owned()
        }
    };
    let legacy = match options.identity {
        Identity::Modern => "on",
        Identity::Transitional => "off",
    };
    let mac = options.mac.map(|byte| format!("{byte:02x}")).join(":");
    let mut nic =
        format!("virtio-net-pci,id={NIC},netdev={LINK},mac={mac},romfile=,disable-legacy={legacy},{slot}");
    if let Some(mtu) = options.mtu {
        nic = format!("{nic},host_mtu={mtu}");
    }
    if matches!(options.backend, Backend::VhostUser { pairs: 2.., .. }) {
        nic = format!("{nic},mq=on");
    }
    for property in &options.properties {
        nic = format!("{nic},{property}");
    }
    qemu.arg("-device").arg(nic);
    qemu.stdin(Stdio::null()).stdout(Stdio::null());
    qemu
}
