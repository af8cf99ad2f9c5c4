// SPDX-License-Identifier: MIT OR Apache-2.0

//! A Linux guest with `rdma_rxe`, on a machine that QEMU emulates: booting it, commands in it, its end.
//!
//! The guest's only network is a wire of Ethernet frames: one datagram of a Unix socket each. Commands reach it
//! through a shell on its second serial port. What its kernel says is in a file beside the sockets.

use std::{
    fmt, fs,
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};

use crate::workspace;

/// What a guest boots from; `cargo xtask interop` makes it.
#[derive(Clone, Debug)]
pub struct Image {
    pub kernel: PathBuf,
    pub initrd: PathBuf,
}

impl Image {
    /// Returns what `cargo xtask` has made in the target directory of the workspace.
    #[must_use]
    pub fn of_workspace() -> Self {
        let directory = workspace::root().join("target/guest");
        Self { kernel: directory.join("vmlinuz"), initrd: directory.join("initrd") }
    }
}

/// How a guest is booted.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where its sockets and its console's text are: a directory of its own. Paths of sockets may have no more
    /// than 107 bytes.
    pub directory: PathBuf,
    pub mac: [u8; 6],
    /// With the prefix's length.
    pub ipv4: &'static str,
    pub ipv6: &'static str,
    /// MTU of its Ethernet interface in bytes; rxe takes the largest RoCE MTU that fits.
    pub mtu: u16,
}

/// Longest that a boot may take: ten times what it takes on two cores at 2 GHz.
const BOOT: Duration = Duration::from_secs(70);
/// Longest that the shell may take beyond what a command may: when it passes, the guest itself is at fault.
const GRACE: Duration = Duration::from_secs(20);

/// A guest that runs. It is killed when this is dropped.
pub struct Guest {
    process: Child,
    directory: PathBuf,
    shell: UnixStream,
    commands: u32,
    /// From the start of QEMU until the guest was ready.
    pub boot: Duration,
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Exit status; 137 when it was killed because its time was over.
    pub status: u8,
    /// Standard output and standard error.
    pub text: String,
}

/// A command that runs in the background of the guest.
#[derive(Debug)]
pub struct Job {
    number: u32,
    command: String,
}

impl Options {
    /// The socket to which frames for the guest are sent.
    #[must_use]
    pub fn guest_socket(&self) -> PathBuf {
        self.directory.join("guest")
    }

    /// The socket to which the guest's frames are sent: to be bound before it boots.
    #[must_use]
    pub fn host_socket(&self) -> PathBuf {
        self.directory.join("host")
    }
}

impl Output {
    #[must_use]
    pub fn timed_out(&self) -> bool {
        self.status == 137
    }

    /// An error unless the command succeeded.
    pub fn ok(self) -> Result<Self> {
        ensure!(self.status == 0, "{self}");
        Ok(self)
    }
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = if self.timed_out() {
            "killed, its time was over".to_owned()
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
    /// Boots a guest and waits until it is ready. Whatever ends the thread that calls this ends the guest.
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
            if ended.is_some() || start.elapsed() > BOOT {
                let text = fs::read_to_string(&console).unwrap_or_default();
                bail!(
                    "the guest does not come up{}:\n{text}",
                    ended.map_or(String::new(), |end| format!(" ({end})"))
                );
            }
            thread::sleep(Duration::from_millis(20));
        }
        let boot = start.elapsed();
        let shell = UnixStream::connect(&shell).context("cannot reach the guest's shell")?;
        let process = guest.0.take().context("QEMU has gone")?;
        let mut guest = Self { process, directory, shell, commands: 0, boot };
        guest.run("true", Duration::from_secs(10))?.ok()?;
        Ok(guest)
    }

    fn qemu(image: &Image, options: &Options, console: &Path, shell: &Path) -> Command {
        let unix = |path: &Path| path.display().to_string();
        let mac = options.mac.map(|byte| format!("{byte:02x}")).join(":");
        // A guest must not outlive whoever wanted it, however that one ends.
        let mut qemu = Command::new("setpriv");
        qemu.args(["--pdeathsig", "KILL", "qemu-system-x86_64"]);
        qemu.args(["-accel", "tcg", "-cpu", "max", "-M", "pc", "-m", "512", "-smp", "1"]);
        qemu.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
        qemu.arg("-kernel").arg(&image.kernel).arg("-initrd").arg(&image.initrd);
        qemu.arg("-serial").arg(format!("file:{}", unix(console)));
        qemu.arg("-chardev").arg(format!("socket,id=shell,path={},server=on,wait=off", unix(shell)));
        qemu.args(["-serial", "chardev:shell"]);
        qemu.arg("-netdev").arg(format!(
            "dgram,id=wire,local.type=unix,local.path={},remote.type=unix,remote.path={}",
            unix(&options.guest_socket()),
            unix(&options.host_socket())
        ));
        qemu.arg("-device").arg(format!("virtio-net-pci,netdev=wire,mac={mac},romfile="));
        // On a busy machine, ticks come too late for what the kernel thinks of its timer.
        qemu.arg("-append").arg(format!(
            "console=ttyS0 quiet panic=-1 mitigations=off nokaslr no_timer_check guest.ipv4={} guest.ipv6={} guest.mtu={}",
            options.ipv4, options.ipv6, options.mtu
        ));
        qemu.stdin(Stdio::null()).stdout(Stdio::null());
        qemu
    }

    /// Runs a command to its end; after `limit` it is killed. An error only when the guest does not answer.
    pub fn run(&mut self, command: &str, limit: Duration) -> Result<Output> {
        self.shell(&format!("timeout -s KILL {} sh -c {}", seconds(limit), quoted(command)), limit)
    }

    /// Starts a command in the background; after `limit` it is killed.
    pub fn start(&mut self, command: &str, limit: Duration) -> Result<Job> {
        let number = self.commands + 1;
        let inner = format!("echo $$ >/tmp/{number}.pid; exec {command}");
        let outer = format!(
            "timeout -s KILL {} sh -c {} </dev/null >/tmp/{number}.out 2>&1; echo $? >/tmp/{number}.status",
            seconds(limit),
            quoted(&inner)
        );
        self.shell(&format!("setsid sh -c {} >/dev/null 2>&1 &", quoted(&outer)), GRACE)?.ok()?;
        Ok(Job { number, command: command.to_owned() })
    }

    /// Starts a server and waits until a port of rxe listens.
    pub fn serve(&mut self, command: &str, limit: Duration) -> Result<Job> {
        let job = self.start(command, limit)?;
        let n = job.number;
        let wait = format!(
            "i=0; until rdma resource show cm_id | grep -q LISTEN; do \
             [ $i -lt 100 ] && [ ! -e /tmp/{n}.status ] || exit 1; i=$((i+1)); sleep 0.05; done"
        );
        if self.run(&wait, GRACE)?.status != 0 {
            let output = self.kill(&job)?;
            bail!("the server does not listen: {output}");
        }
        Ok(job)
    }

    /// Waits until a command has ended, by itself or because its time was over.
    pub fn wait(&mut self, job: &Job, limit: Duration) -> Result<Output> {
        let n = job.number;
        let wait = format!("while [ ! -e /tmp/{n}.status ]; do sleep 0.05; done");
        let waited = self.run(&wait, limit)?;
        if waited.timed_out() {
            let output = self.kill(job)?;
            return Ok(Output { status: 137, text: output.text });
        }
        self.collect(job)
    }

    /// Ends a command, and tells what it printed.
    pub fn kill(&mut self, job: &Job) -> Result<Output> {
        let n = job.number;
        let end = format!(
            "[ -e /tmp/{n}.status ] || kill -9 $(cat /tmp/{n}.pid); while [ ! -e /tmp/{n}.status ]; do sleep 0.05; done"
        );
        ensure!(self.run(&end, GRACE)?.status == 0, "`{}` cannot be ended", job.command);
        self.collect(job)
    }

    fn collect(&mut self, job: &Job) -> Result<Output> {
        let n = job.number;
        let collect = format!("cat /tmp/{n}.out; s=$(cat /tmp/{n}.status); rm -f /tmp/{n}.*; exit $s");
        self.shell(&collect, GRACE)
    }

    /// MTU of the Ethernet interface from now on; rxe follows at once.
    pub fn set_mtu(&mut self, mtu: u16) -> Result<()> {
        self.run(&format!("ip link set eth0 mtu {mtu}"), GRACE)?.ok().map(drop)
    }

    /// Ends the guest like a power failure. Nothing it still had to say is sent.
    pub fn power_off(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        self.process.kill()?;
        self.process.wait()?;
        remove(&self.directory.join("guest"))
    }

    /// What its kernel has said so far.
    #[must_use]
    pub fn console(&self) -> String {
        fs::read_to_string(self.directory.join("console")).unwrap_or_default()
    }

    /// Lets the shell run `command` in a shell of its own, and reads what it prints up to a line that ends it.
    fn shell(&mut self, command: &str, limit: Duration) -> Result<Output> {
        self.commands += 1;
        let end = format!("end-of-{}", self.commands);
        let line = format!("( {command}\n) </dev/null 2>&1; s=$?; echo; echo {end} $s\n");
        self.shell.write_all(line.as_bytes()).context("the guest is gone")?;
        let deadline = Instant::now() + limit + GRACE;
        let mut text = Vec::new();
        loop {
            if let Some(output) = ended(&text, &end) {
                return Ok(output);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            ensure!(!left.is_zero(), "the guest does not answer to `{command}`:\n{}", self.console());
            self.shell.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
            let mut piece = [0; 4096];
            match self.shell.read(&mut piece) {
                Ok(0) => bail!("the guest is gone:\n{}", self.console()),
                Ok(n) => text.extend_from_slice(&piece[..n]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error).context("cannot read from the guest"),
            }
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // It may have ended before.
        drop(self.end());
    }
}

/// A process that is killed unless it is taken.
struct Started(Option<Child>);

impl Started {
    fn process(&mut self) -> Result<&mut Child> {
        self.0.as_mut().context("QEMU has gone")
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

/// The output of a command, if the line that ends it is there.
fn ended(text: &[u8], end: &str) -> Option<Output> {
    let text = String::from_utf8_lossy(text);
    let (before, after) = text.rsplit_once(end)?;
    let (status, _) = after.trim_start().split_once(['\r', '\n'])?;
    Some(Output { status: status.trim().parse().ok()?, text: before.trim().replace('\r', "") })
}

fn quoted(command: &str) -> String {
    format!("'{}'", command.replace('\'', r"'\''"))
}

/// Whole seconds, rounded up: what the guest's `timeout` takes.
fn seconds(limit: Duration) -> u64 {
    limit.as_millis().div_ceil(1000).try_into().unwrap_or(u64::MAX)
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_ends_with_its_line_and_not_before() {
        assert_eq!(ended(b"some text\nend-of-1", "end-of-1"), None);
        assert_eq!(ended(b"some text\nend-of-1 3", "end-of-1"), None);
        let output = ended(b"some text\n\nend-of-1 3\n", "end-of-1");
        assert_eq!(output, Some(Output { status: 3, text: "some text".to_owned() }));
    }

    #[test]
    fn quotes_survive_the_shell() {
        assert_eq!(quoted("echo 'a b'"), r"'echo '\''a b'\'''");
    }
}
