// SPDX-License-Identifier: MIT OR Apache-2.0

//! Where the programs of a case run: network namespaces with mounts of their own, which end with the process that holds them.

use std::{
    io::{BufRead, BufReader, Write as _},
    path::Path,
    process::{Child, Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};

use super::kind::Kind;
use crate::shell;

/// Frames that wait for a virtual machine, at most: the sender of datagrams does not wait for it.
const TAP_QUEUE: u32 = 16384;

/// Where places see `target/verbs`. A user without rights may not be able to reach that folder by its own path.
pub const ROOT: &str = "/mnt";

/// Makes the mounts and the loopback interface of a namespace. `$1`: the folder that becomes [`ROOT`]; `$2`: whether there is a
/// character device, as `docker --device /dev/null:/dev/infiniband/uverbs0` makes it for UCX, which looks for one.
const PREPARE: &str = r#"
set -e
mount -t sysfs sysfs /sys
if [ "$2" = node ]; then
    mount -t tmpfs -o mode=755 tmpfs /mnt
    for name in null zero full random urandom; do
        : > "/mnt/$name"
        mount --bind "/dev/$name" "/mnt/$name"
    done
    mkdir /mnt/shm /mnt/infiniband
    : > /mnt/infiniband/uverbs0
    mount --bind /dev/null /mnt/infiniband/uverbs0
    ln -s /proc/self/fd /mnt/fd
    mount --move /mnt /dev
fi
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount --bind "$1" /mnt
ip link set lo up
echo ready
read -r line
eval "$line"
echo connected
exec cat
"#;

/// A place. Its namespaces end when it is dropped.
pub struct Place {
    kind: Kind,
    holders: Vec<Holder>,
}

/// A process that holds a namespace as long as its standard input is open.
struct Holder(Child);

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Place {
    /// Makes a place.
    ///
    /// # Errors
    /// The system has no namespaces for this user.
    pub fn make(kind: Kind, has_node: bool, folder: &Path) -> Result<Self> {
        let node = if has_node { "node" } else { "none" };
        let count = if matches!(kind, Kind::One | Kind::Rxe(_)) { 1 } else { 2 };
        let mut holders = Vec::new();
        for _ in 0..count {
            let mut command = Command::new("unshare");
            command.args(["--net", "--mount", "--propagation", "private", "sh", "-c", PREPARE, "sh"]);
            command.arg(folder).arg(node).stdin(Stdio::piped()).stdout(Stdio::piped());
            holders.push(Holder(command.spawn().context("cannot run unshare")?));
        }
        let mut place = Self { kind, holders };
        place.connect().context("cannot make a network namespace")?;
        Ok(place)
    }

    /// Gives the namespaces an interface with addresses: the ends of a veth pair, or the TAP interface of a virtual machine.
    fn connect(&mut self) -> Result<()> {
        let addresses = |end: u32| {
            format!("ip addr add 10.77.0.{end}/24 dev v{end}; ip addr add fd77::{end}/64 dev v{end} nodad")
        };
        let settings = if self.kind == Kind::Plain4 { "mtu 4200 gso_max_segs 1" } else { "mtu 9000" };
        let up = |end: u32| format!("{}; ip link set v{end} {settings} up", addresses(end));
        let pair = "ip link add v1 type veth peer name v2";
        let [first, second] = match &self.holders[..] {
            [_] if matches!(self.kind, Kind::Rxe(_)) => {
                let tap = format!("ip tuntap add v1 mode tap; ip link set v1 txqueuelen {TAP_QUEUE}");
                [format!("{tap}; {}", up(1)), String::new()]
            }
            [_] => [format!("{pair}; ip link set v2 up; {}", up(1)), String::new()],
            [_, other] => [format!("{pair}; ip link set v2 netns {}; {}", other.0.id(), up(1)), up(2)],
            _ => [String::new(), String::new()],
        };
        let mut outputs = Vec::new();
        for holder in &mut self.holders {
            let mut output = BufReader::new(holder.0.stdout.take().context("no output")?);
            expect(&mut output, "ready")?;
            outputs.push(output);
        }
        // The second end exists after the first line.
        for ((holder, output), line) in self.holders.iter_mut().zip(&mut outputs).zip([first, second]) {
            let input = holder.0.stdin.as_mut().context("no input")?;
            writeln!(input, "{line}")?;
            expect(output, "connected")?;
        }
        Ok(())
    }

    /// Returns a command that runs in the namespace of the server (0) or of the client (1), as a user without any capability but that for
    /// packet sockets, if the side uses them.
    pub fn unprivileged(&self, kind: Kind, side: usize) -> Command {
        let mut command = self.command(side);
        let capabilities = if kind.interface(side).is_some() { "-all,+net_raw" } else { "-all" };
        command.args(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"]);
        for set in ["--bounding-set", "--inh-caps", "--ambient-caps"] {
            command.arg(format!("{set}={capabilities}"));
        }
        command
    }

    /// Returns a command that runs in the namespace of the server (0) or of the client (1).
    pub fn command(&self, side: usize) -> Command {
        let holder = self.process(side);
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{holder}/ns/net")).arg(format!("--mount=/proc/{holder}/ns/mnt"));
        command.arg("--");
        command
    }

    /// Returns the process that holds the namespace of a side.
    pub fn process(&self, side: usize) -> u32 {
        self.holders[side.min(self.holders.len() - 1)].0.id()
    }
}

fn expect(output: &mut impl BufRead, expected: &str) -> Result<()> {
    let mut line = String::new();
    output.read_line(&mut line)?;
    ensure!(line.trim() == expected, "it was not prepared: {line}");
    Ok(())
}

/// Returns why there can be no places, if so: they need root, and tools.
pub fn obstacle() -> Option<String> {
    let is_root = shell::output(Command::new("id").arg("-u")).is_ok_and(|user| user.trim() == "0");
    if !is_root {
        return Some("network namespaces need root".to_owned());
    }
    if let Some(tool) =
        ["unshare", "nsenter", "setpriv", "ip"].into_iter().find(|tool| shell::find_program(tool).is_none())
    {
        return Some(format!("there is no {tool}"));
    }
    if !shell::succeeds(Command::new("unshare").args(["--net", "--mount", "true"])) {
        return Some("this system makes no network namespaces".to_owned());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_connects_its_sides_and_leaves_nothing() {
        if let Some(obstacle) = obstacle() {
            eprintln!("skipped: {obstacle}");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("file"), "").unwrap();
        for kind in Kind::DATAGRAMS {
            let place = Place::make(kind, true, directory.path()).unwrap();
            let text = "test -f /mnt/file -a -c /dev/infiniband/uverbs0 && exec ip -brief addr show";
            let addresses =
                |side| shell::output(place.unprivileged(kind, side).args(["sh", "-c", text])).unwrap();
            for (side, address) in kind.addresses().into_iter().enumerate() {
                assert!(addresses(side).contains(&format!(" {address}/")), "{}", addresses(side));
            }
            let holder = place.process(0);
            drop(place);
            assert!(!Path::new(&format!("/proc/{holder}")).exists());
        }
    }
}
