// SPDX-License-Identifier: MIT OR Apache-2.0

//! Linux's `rdma_rxe` as the other side: the virtual machine of `cargo xtask interop`, at a TAP interface of a network namespace.

use std::{
    cell::{RefCell, RefMut},
    collections::BTreeSet,
    fs::{self, File},
    net::{Ipv4Addr, Ipv6Addr},
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::ExitStatus,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use linux_guest::{Guest, Image, Job, Network, Options};
use tempfile::TempDir;

use super::{
    kind::{Kind, Rxe},
    place::Place,
    process::{Exited, eventually},
};
use crate::{guest, shell};

/// MTU of both ends, with which a packet has 4096 bytes of payload.
const MTU: u16 = 9000;

/// Addresses of the virtual machine: those of [`Kind::addresses`].
const ADDRESSES: (Ipv4Addr, Ipv6Addr) =
    (Ipv4Addr::new(10, 77, 0, 2), Ipv6Addr::new(0xFD77, 0, 0, 0, 0, 0, 0, 2));

/// Time limit of commands that look at the virtual machine.
const LOOK: Duration = Duration::from_secs(10);

/// How long a program of the virtual machine may go on after its case has failed.
const AFTER_FAILURE: Duration = Duration::from_secs(2);

/// Prints what the virtual machine counts, of a program that does not end.
const COUNTERS: &str = "grep . /sys/class/infiniband/rxe0/ports/1/hw_counters/*; grep Udp /proc/net/snmp /proc/net/snmp6; cat /proc/net/dev";

/// Prints [`REPEATS`] if requests are sent again in the virtual machine, of which one takes 67 ms.
const LOOK_FOR_REPEATS: &str = "f=/sys/class/infiniband/rxe0/ports/1/hw_counters/completer_retry_err; a=$(cat $f); sleep 1; test $(cat $f) -gt $a && echo rxe sends requests again; true";

/// Printed of a program that does not end, and whose requests are sent again.
pub const REPEATS: &str = "rxe sends requests again";

/// A network namespace with the virtual machine at its interface.
pub struct Opposite {
    place: Place,
    directory: TempDir,
    machine: RefCell<Option<Machine>>,
}

/// The virtual machine while it runs.
struct Machine {
    guest: Guest,
    /// Indices of the GIDs of IPv4 and IPv6.
    gids: [usize; 2],
}

/// A program in the virtual machine.
pub struct GuestProgram<'a> {
    opposite: &'a Opposite,
    job: Job,
    log: PathBuf,
}

impl Opposite {
    /// Makes the namespace, and builds what the virtual machine boots from. It boots when it is needed.
    ///
    /// # Errors
    /// There can be no TAP interface, no QEMU, or no packages for the virtual machine.
    pub fn make(folder: &Path) -> Result<Self> {
        File::options().read(true).write(true).open("/dev/net/tun").context("no TAP interfaces")?;
        guest::make()?;
        let place = Place::make(Kind::Rxe(Rxe::ALL[0]), false, folder)?;
        Ok(Self { place, directory: tempfile::tempdir()?, machine: RefCell::new(None) })
    }

    /// Returns where the program on this host runs.
    pub const fn place(&self) -> &Place {
        &self.place
    }

    /// Boots the virtual machine unless it runs.
    ///
    /// # Errors
    /// It does not boot.
    pub fn boot(&self) -> Result<()> {
        self.machine().map(drop)
    }

    /// Ends the virtual machine, and returns its own failure if its console reports one.
    pub fn abandon(&self) -> Option<&'static str> {
        self.machine.borrow_mut().take()?.guest.own_failure()
    }

    /// Returns what waits for connections in the virtual machine, over TCP or by rdma_cm.
    ///
    /// # Errors
    /// It does not respond.
    pub fn listeners(&self) -> Result<BTreeSet<String>> {
        // The fourth word of a socket of TCP is its state: 0A is LISTEN.
        let text = "grep -h ' 0A ' /proc/net/tcp /proc/net/tcp6 | cut -d: -f2,3; rdma resource show cm_id | grep LISTEN; true";
        let output = self.machine()?.guest.run(text, LOOK)?.ok()?;
        Ok(output.text.lines().map(str::to_owned).collect())
    }

    /// Starts a program of a case. Its output is written to `log` when it has ended.
    ///
    /// # Errors
    /// The virtual machine does not respond.
    pub fn start(&self, kind: Kind, text: &str, limit: Duration, log: &Path) -> Result<GuestProgram<'_>> {
        let [server, _] = kind.addresses();
        let mut machine = self.machine()?;
        let command = command(text, server, kind.tcp_host(), machine.gids[usize::from(kind.is_ipv6())]);
        let job = machine.guest.start(&command, limit)?;
        Ok(GuestProgram { opposite: self, job, log: log.to_owned() })
    }

    fn machine(&self) -> Result<RefMut<'_, Machine>> {
        let mut machine = self.machine.borrow_mut();
        if machine.is_none() {
            *machine = Some(self.booted()?);
        }
        RefMut::filter_map(machine, Option::as_mut).ok().context("no virtual machine")
    }

    fn booted(&self) -> Result<Machine> {
        let options = Options {
            directory: self.directory.path().to_owned(),
            mtu: MTU,
            addresses: ADDRESSES,
            network: Network::Tap { interface: "v1".to_owned(), process: self.place.process(0) },
        };
        let mut guest = Guest::boot(&Image::of_workspace(shell::root()), &options)?;
        let list = guest.run("cd /sys/class/infiniband/rxe0/ports/1/gids && cat 0 1 2 3", LOOK)?.ok()?.text;
        let index = |address: Ipv6Addr| {
            let gid = address.segments().map(|word| format!("{word:04x}")).join(":");
            list.lines()
                .position(|line| line == gid)
                .with_context(|| format!("rxe has no GID {gid}:\n{list}"))
        };
        // Both ends know each other then: a kernel keeps few packets of datagrams until it knows a neighbor.
        for host in [Kind::Ipv4, Kind::Ipv6].map(|kind| kind.addresses()[0]) {
            guest.run(&format!("ping -c 1 {host}"), LOOK)?.ok()?;
        }
        let gids = [index(ADDRESSES.0.to_ipv6_mapped())?, index(ADDRESSES.1)?];
        Ok(Machine { guest, gids })
    }
}

/// Returns a command of a case as the virtual machine runs it.
fn command(text: &str, server: &str, tcp_host: &str, gid: usize) -> String {
    let gid = gid.to_string();
    let text = text.replace("{addr}", server).replace("{host}", tcp_host).replace("{gid}", &gid);
    // rxe has several GIDs, of which perftest takes one of IPv4.
    if text.starts_with("ib_") && !text.contains(" -R") { format!("{text} -x {gid}") } else { text }
}

impl GuestProgram<'_> {
    /// Returns whether it has ended.
    ///
    /// # Errors
    /// The virtual machine does not respond.
    pub fn has_ended(&self) -> Result<bool> {
        self.opposite.machine()?.guest.has_ended(&self.job)
    }

    /// Waits for its end until `deadline`, then ends it.
    ///
    /// # Errors
    /// The virtual machine does not respond.
    pub fn wait(self, deadline: Instant) -> Result<Exited> {
        let left = deadline.saturating_duration_since(Instant::now()).max(AFTER_FAILURE);
        let ends = eventually(left, || self.has_ended().unwrap_or(true));
        let repeats = if ends {
            String::new()
        } else {
            self.opposite.machine()?.guest.run(LOOK_FOR_REPEATS, LOOK)?.text
        };
        let output = self.opposite.machine()?.guest.wait(&self.job, AFTER_FAILURE)?;
        let counters = if output.timed_out() {
            self.opposite.machine()?.guest.run(COUNTERS, LOOK)?.text
        } else {
            String::new()
        };
        let text = format!("{}\n{repeats}", output.text);
        fs::write(&self.log, format!("{text}\n{counters}"))?;
        let status = (!output.timed_out()).then(|| ExitStatus::from_raw(i32::from(output.status) << 8));
        Ok(Exited { status, text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_name_the_server_and_the_gid_of_the_guest() {
        let of = |text| command(text, "fd77::1", "10.77.0.1", 2);
        assert_eq!(of("rping -c -a {addr} -C 10"), "rping -c -a fd77::1 -C 10");
        assert_eq!(of("ibv_rc_pingpong -g {gid} {host}"), "ibv_rc_pingpong -g 2 10.77.0.1");
        assert_eq!(of("ib_send_bw -F {host}"), "ib_send_bw -F 10.77.0.1 -x 2");
    }

    #[test]
    fn the_guest_has_the_addresses_of_the_kinds() {
        for rxe in Rxe::ALL {
            let kind = Kind::Rxe(rxe);
            let address = kind.addresses()[rxe.side()];
            let expected = if kind.is_ipv6() { ADDRESSES.1.to_string() } else { ADDRESSES.0.to_string() };
            assert_eq!(address, expected, "{}", kind.name());
            let is_host = kind.tcp_host() == ADDRESSES.0.to_string();
            assert_eq!(is_host, !rxe.has_client, "{}", kind.name());
        }
    }
}
