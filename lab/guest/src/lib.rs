// SPDX-License-Identifier: MIT OR Apache-2.0

//! A Linux guest with `rdma_rxe` under QEMU: boots it, runs commands in it, stops it.
//!
//! `cargo xtask` builds its kernel and its file system; the first process is `init` of this folder. The guest's only network device sends
//! its Ethernet frames to a [`Network`]. Commands run in a shell on its second serial port. The kernel's console is written to a file in
//! the same directory as the sockets.

#![cfg(unix)]

use std::{
    fmt, fs,
    io::{ErrorKind, Read as _, Write as _},
    net::{Ipv4Addr, Ipv6Addr},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};

/// MAC address of the guest.
pub const MAC: [u8; 6] = [0x52, 0x54, 0, 0x77, 0, 0x02];

/// The files that a guest boots from; `cargo xtask` builds them.
#[derive(Clone, Debug)]
pub struct Image {
    pub kernel: PathBuf,
    pub initrd: PathBuf,
}

impl Image {
    /// Returns the files that `cargo xtask` builds below the root directory of the workspace.
    #[must_use]
    pub fn of_workspace(root: &Path) -> Self {
        let directory = root.join("target/guest");
        Self { kernel: directory.join("vmlinuz"), initrd: directory.join("initrd") }
    }

    /// Returns the guest that also has the kernel's client and server of SMB Direct.
    #[must_use]
    pub fn with_smb(self) -> Self {
        Self { initrd: self.initrd.with_file_name("initrd-smb"), ..self }
    }
}

/// How a guest is booted.
#[derive(Clone, Debug)]
pub struct Options {
    /// Directory for the sockets and the console file, used by this guest only. Paths of sockets are limited to
    /// 107 bytes.
    pub directory: PathBuf,
    /// MTU of its Ethernet interface in bytes; rxe uses the largest RoCE MTU that fits.
    pub mtu: u16,
    /// Its addresses: IPv4 with a prefix of 24 bits, IPv6 with one of 64.
    pub addresses: (Ipv4Addr, Ipv6Addr),
    pub network: Network,
}

/// Where the frames of the guest's network device go, and where those come from that it receives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Network {
    /// Each frame is a datagram of a Unix socket: see [`Options::host_socket`] and [`Options::guest_socket`].
    Datagrams,
    /// An existing TAP interface in the network namespace of a process. Needs root.
    Tap { interface: String, process: u32 },
}

/// Time limit of a boot: ten times the time on two cores at 2 GHz.
const BOOT_TIMEOUT: Duration = Duration::from_secs(70);
/// Time that the shell gets in addition to a command's limit. When it has passed, the guest itself is stuck.
const SHELL_TIMEOUT: Duration = Duration::from_secs(20);

/// A running guest. Drop kills it.
pub struct Guest {
    process: Child,
    directory: PathBuf,
    shell: UnixStream,
    commands: u32,
    /// From the start of QEMU until the guest was ready.
    pub boot: Duration,
}

/// The result of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Exit status; 137 if the command exceeded its time limit and was killed.
    pub status: u8,
    /// Standard output and standard error.
    pub text: String,
}

/// A command that runs in the background.
#[derive(Debug)]
pub struct Job {
    number: u32,
    command: String,
}

impl Options {
    /// Returns the path of the socket that receives frames for the guest.
    #[must_use]
    pub fn guest_socket(&self) -> PathBuf {
        self.directory.join("guest")
    }

    /// Returns the path of the socket that the guest sends frames to. Bind it before the guest boots.
    #[must_use]
    pub fn host_socket(&self) -> PathBuf {
        self.directory.join("host")
    }
}

impl Output {
    /// Returns true if the command exceeded its time limit.
    #[must_use]
    pub fn timed_out(&self) -> bool {
        self.status == 137
    }

    /// Returns the output of a command that succeeded.
    ///
    /// # Errors
    /// The exit status is not 0.
    pub fn ok(self) -> Result<Self> {
        ensure!(self.status == 0, "{self}");
        Ok(self)
    }
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = if self.timed_out() {
            "killed at its time limit".to_owned()
        } else {
            format!("exit status {}", self.status)
        };
        write!(f, "{end}")?;
        for line in self.text.lines() {
            write!(f, "\n    guest| {line}")?;
        }
        Ok(())
    }
}

impl Guest {
    /// Boots a guest and waits until it is ready. The guest ends with the calling thread.
    ///
    /// # Errors
    /// QEMU does not start, or the guest is not ready in time.
    pub fn boot(image: &Image, options: &Options) -> Result<Self> {
        let directory = options.directory.clone();
        let console = directory.join("console");
        let shell = directory.join("shell");
        let local = options.guest_socket();
        for stale in [&console, &shell, &local] {
            remove(stale)?;
        }
        let start = Instant::now();
        let process = Self::qemu(image, options, &console, &shell).spawn().context("cannot run QEMU")?;
        let mut guest = Started(Some(process));
        let ready = |text: &str| text.contains("GUEST: ready");
        while !ready(&fs::read_to_string(&console).unwrap_or_default()) {
            let ended = guest.process()?.try_wait()?;
            if ended.is_some() || start.elapsed() > BOOT_TIMEOUT {
                let text = fs::read_to_string(&console).unwrap_or_default();
                bail!(
                    "the guest does not boot{}:\n{text}",
                    ended.map_or(String::new(), |end| format!(" ({end})"))
                );
            }
            thread::sleep(Duration::from_millis(20));
        }
        let boot = start.elapsed();
        let shell = UnixStream::connect(&shell).context("cannot reach the guest's shell")?;
        let process = guest.0.take().context("QEMU has ended")?;
        let mut guest = Self { process, directory, shell, commands: 0, boot };
        guest.run("true", Duration::from_secs(10))?.ok()?;
        Ok(guest)
    }

    fn qemu(image: &Image, options: &Options, console: &Path, shell: &Path) -> Command {
        let unix = |path: &Path| path.display().to_string();
        let mac = MAC.map(|byte| format!("{byte:02x}")).join(":");
        // QEMU is killed when the thread that started it ends, even if that thread is killed.
        let program = ["setpriv", "--pdeathsig", "KILL", "qemu-system-x86_64"];
        let (mut qemu, netdev) = match &options.network {
            Network::Datagrams => {
                let sockets = [options.guest_socket(), options.host_socket()].map(|path| unix(&path));
                let [local, remote] = sockets;
                let netdev = format!(
                    "dgram,id=wire,local.type=unix,local.path={local},remote.type=unix,remote.path={remote}"
                );
                (Command::new(program[0]), netdev)
            }
            Network::Tap { interface, process } => {
                let mut enter = Command::new("nsenter");
                enter.arg(format!("--net=/proc/{process}/ns/net")).args(["--", program[0]]);
                (enter, format!("tap,id=wire,ifname={interface},script=no,downscript=no,vhost=off"))
            }
        };
        qemu.args(&program[1..]);
        qemu.args(["-accel", "tcg", "-cpu", "max", "-M", "pc", "-m", "512", "-smp", "1"]);
        qemu.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
        qemu.arg("-kernel").arg(&image.kernel).arg("-initrd").arg(&image.initrd);
        qemu.arg("-serial").arg(format!("file:{}", unix(console)));
        qemu.arg("-chardev").arg(format!("socket,id=shell,path={},server=on,wait=off", unix(shell)));
        qemu.args(["-serial", "chardev:shell"]);
        qemu.arg("-netdev").arg(netdev);
        qemu.arg("-device").arg(format!("virtio-net-pci,netdev=wire,mac={mac},romfile="));
        // On a busy machine, timer interrupts are too late for the kernel's check of its timer.
        qemu.arg("-append").arg(format!(
            "console=ttyS0 quiet panic=-1 mitigations=off nokaslr no_timer_check guest.ipv4={}/24 guest.ipv6={}/64 guest.mtu={}",
            options.addresses.0, options.addresses.1, options.mtu
        ));
        qemu.stdin(Stdio::null()).stdout(Stdio::null());
        qemu
    }

    /// Runs a command until it ends or is killed after `limit`.
    ///
    /// # Errors
    /// The guest does not respond. A command that fails is not an error; see [`Output::status`].
    pub fn run(&mut self, command: &str, limit: Duration) -> Result<Output> {
        self.shell(&format!("timeout -s KILL {} sh -c {}", seconds(limit), quoted(command)), limit)
    }

    /// Starts a command in the background. It is killed after `limit`.
    ///
    /// # Errors
    /// The guest does not respond.
    pub fn start(&mut self, command: &str, limit: Duration) -> Result<Job> {
        let number = self.commands + 1;
        let inner = format!("echo $$ >/tmp/{number}.pid; exec {command}");
        let outer = format!(
            "timeout -s KILL {} sh -c {} </dev/null >/tmp/{number}.out 2>&1; echo $? >/tmp/{number}.status",
            seconds(limit),
            quoted(&inner)
        );
        self.shell(&format!("setsid sh -c {} >/dev/null 2>&1 &", quoted(&outer)), SHELL_TIMEOUT)?.ok()?;
        Ok(Job { number, command: command.to_owned() })
    }

    /// Starts commands of the shell in the background, as [`Self::start`] does.
    ///
    /// # Errors
    /// The guest does not respond.
    pub fn start_shell(&mut self, commands: &str, limit: Duration) -> Result<Job> {
        self.start(&format!("sh -c {}", quoted(commands)), limit)
    }

    /// Starts a server and waits until the guest has a listening RDMA CM ID.
    ///
    /// # Errors
    /// The server does not listen in time, or the guest does not respond.
    pub fn serve(&mut self, command: &str, limit: Duration) -> Result<Job> {
        let job = self.start(command, limit)?;
        let n = job.number;
        let wait = format!(
            "i=0; until rdma resource show cm_id | grep -q LISTEN; do \
             [ $i -lt 100 ] && [ ! -e /tmp/{n}.status ] || exit 1; i=$((i+1)); sleep 0.05; done"
        );
        if self.run(&wait, SHELL_TIMEOUT)?.status != 0 {
            let output = self.kill(&job)?;
            bail!("the server does not listen: {output}");
        }
        Ok(job)
    }

    /// Returns whether a command has ended.
    ///
    /// # Errors
    /// The guest does not respond.
    pub fn has_ended(&mut self, job: &Job) -> Result<bool> {
        Ok(self.run(&format!("test -e /tmp/{}.status", job.number), SHELL_TIMEOUT)?.status == 0)
    }

    /// Waits until a command has ended. Kills it after `limit`.
    ///
    /// # Errors
    /// The guest does not respond.
    pub fn wait(&mut self, job: &Job, limit: Duration) -> Result<Output> {
        let n = job.number;
        let wait = format!("while [ ! -e /tmp/{n}.status ]; do sleep 0.05; done");
        let waited = self.run(&wait, limit)?;
        if waited.timed_out() {
            // On the console: where tasks of the kernel are blocked.
            self.shell("dmesg -n 7; echo w >/proc/sysrq-trigger; sleep 1; dmesg -n 4", SHELL_TIMEOUT)?;
            let output = self.kill(job)?;
            return Ok(Output { status: 137, text: output.text });
        }
        self.collect(job)
    }

    /// Kills a command, unless it has ended, and returns its output.
    ///
    /// # Errors
    /// The command cannot be killed, or the guest does not respond.
    pub fn kill(&mut self, job: &Job) -> Result<Output> {
        let n = job.number;
        let end = format!(
            "[ -e /tmp/{n}.status ] || kill -9 $(cat /tmp/{n}.pid); while [ ! -e /tmp/{n}.status ]; do sleep 0.05; done"
        );
        ensure!(self.run(&end, SHELL_TIMEOUT)?.status == 0, "`{}` cannot be killed", job.command);
        self.collect(job)
    }

    fn collect(&mut self, job: &Job) -> Result<Output> {
        let n = job.number;
        let collect = format!("cat /tmp/{n}.out; s=$(cat /tmp/{n}.status); rm -f /tmp/{n}.*; exit $s");
        self.shell(&collect, SHELL_TIMEOUT)
    }

    /// Sets the MTU of the Ethernet interface; rxe adapts its RoCE MTU immediately.
    ///
    /// # Errors
    /// The guest refuses the MTU, or does not respond.
    pub fn set_mtu(&mut self, mtu: u16) -> Result<()> {
        self.run(&format!("ip link set eth0 mtu {mtu}"), SHELL_TIMEOUT)?.ok().map(drop)
    }

    /// Kills the guest, as a power failure would: it sends nothing more.
    ///
    /// # Errors
    /// QEMU cannot be killed.
    pub fn power_off(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        self.process.kill()?;
        self.process.wait()?;
        remove(&self.directory.join("guest"))
    }

    /// Returns the output of the kernel's console so far.
    #[must_use]
    pub fn console(&self) -> String {
        fs::read_to_string(self.directory.join("console")).unwrap_or_default()
    }

    /// Returns the failure of the guest's kernel or device that the console reports, if there is one.
    #[must_use]
    pub fn own_failure(&self) -> Option<&'static str> {
        own_failure(&self.console())
    }

    /// Runs `command` in a subshell and reads its output up to the line that marks its end.
    fn shell(&mut self, command: &str, limit: Duration) -> Result<Output> {
        self.commands += 1;
        let end = format!("end-of-{}", self.commands);
        let line = format!("( {command}\n) </dev/null 2>&1; s=$?; echo; echo {end} $s\n");
        self.shell.write_all(line.as_bytes()).context("the guest has ended")?;
        let deadline = Instant::now() + limit + SHELL_TIMEOUT;
        let mut text = Vec::new();
        loop {
            if let Some(output) = parse_output(&text, &end) {
                return Ok(output);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            ensure!(!left.is_zero(), "the guest does not respond to `{command}`:\n{}", self.console());
            self.shell.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
            let mut piece = [0; 4096];
            match self.shell.read(&mut piece) {
                Ok(0) => bail!("the guest has ended:\n{}", self.console()),
                Ok(n) => text.extend_from_slice(&piece[..n]),
                // A wait with a timeout is also interrupted when the process goes on after it was stopped.
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) => return Err(error).context("cannot read from the guest"),
            }
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // An error means that it has ended already.
        drop(self.end());
    }
}

/// Failures that are the guest's own: what its kernel's console says of them, and what they are.
const OWN_FAILURES: [(&str, &str); 2] = [
    ("BUG: ", "the guest's kernel failed"),
    // Frames that it cannot send go to a socket of this process, so that only its QEMU can keep them.
    ("NETDEV WATCHDOG", "the guest's network device stopped transmitting"),
];

/// Returns the guest's own failure that its kernel's console reports.
fn own_failure(console: &str) -> Option<&'static str> {
    OWN_FAILURES.iter().find(|(text, _)| console.contains(text)).map(|&(_, failure)| failure)
}

/// A process that is killed on drop, unless it was taken.
struct Started(Option<Child>);

impl Started {
    fn process(&mut self) -> Result<&mut Child> {
        self.0.as_mut().context("QEMU has ended")
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Some(process) = &mut self.0 {
            drop(process.kill());
            drop(process.wait());
        }
    }
}

/// Returns the output of a command, if the text contains the line that marks its end.
fn parse_output(text: &[u8], end: &str) -> Option<Output> {
    let text = String::from_utf8_lossy(text);
    let (before, after) = text.rsplit_once(end)?;
    let (status, _) = after.trim_start().split_once(['\r', '\n'])?;
    Some(Output { status: status.trim().parse().ok()?, text: before.trim().replace('\r', "") })
}

/// Returns `command` as one quoted word of the shell.
fn quoted(command: &str) -> String {
    format!("'{}'", command.replace('\'', r"'\''"))
}

/// Returns whole seconds, rounded up, for the guest's `timeout`.
fn seconds(limit: Duration) -> u64 {
    limit.as_millis().div_ceil(1000).try_into().unwrap_or(u64::MAX)
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

impl Guest {
    /// Returns a guest without QEMU, for tests of callers. Its shell reports success for each command.
    ///
    /// # Panics
    /// The system starts no process, or has no sockets.
    #[must_use]
    pub fn fake(directory: &Path) -> Self {
        let process = Command::new("sleep").arg("600").spawn().expect("a process");
        let (shell, other) = UnixStream::pair().expect("two sockets");
        thread::spawn(move || {
            let mut reply = other.try_clone().expect("a socket");
            for line in std::io::BufRead::lines(std::io::BufReader::new(other)).map_while(Result::ok) {
                if let Some((_, end)) = line.rsplit_once("echo ") {
                    let _ = writeln!(reply, "\n{}", end.replace("$s", "0"));
                }
            }
        });
        Self { process, directory: directory.to_owned(), shell, commands: 0, boot: Duration::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_complete_at_the_end_marker() {
        assert_eq!(parse_output(b"some text\nend-of-1", "end-of-1"), None);
        assert_eq!(parse_output(b"some text\nend-of-1 3", "end-of-1"), None);
        let output = parse_output(b"some text\n\nend-of-1 3\n", "end-of-1");
        assert_eq!(output, Some(Output { status: 3, text: "some text".to_owned() }));
    }

    #[test]
    fn failures_of_the_guest_are_found_on_its_console() {
        assert_eq!(own_failure("GUEST: ready\nCIFS: VFS: rdma_connect failed port=5445\n"), None);
        let oops = "[   26.231718] BUG: kernel NULL pointer dereference, address: 0000000000000508\n";
        assert_eq!(own_failure(oops), Some("the guest's kernel failed"));
        let stalled = "[   31.2] NETDEV WATCHDOG: eth0 (virtio_net): transmit queue 0 timed out\n";
        assert_eq!(own_failure(stalled), Some("the guest's network device stopped transmitting"));
    }

    #[test]
    fn single_quotes_are_escaped_for_the_shell() {
        assert_eq!(quoted("echo 'a b'"), r"'echo '\''a b'\'''");
    }
}
