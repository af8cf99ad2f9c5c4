// SPDX-License-Identifier: MIT OR Apache-2.0

//! Linux's client in the guest, Samba's server behind the image.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering},
    },
};

use anyhow::{Result, bail, ensure};
use linux_guest::Guest;
use smb_consumer::gateway::Counts;

use super::{
    gateways::Gateways,
    samba::Server,
    transfer::{
        LARGE, PORT, TIMEOUT, check_rdma, check_requests, end_of, make_file, note, options, sha256,
        wait_for_transfer, wait_until, with_console,
    },
};
use crate::{
    external_host::ExternalHost,
    interop::{
        addresses::host_address,
        cases::Case,
        smb_work::{SHORT_REQUEST, SmbWork},
    },
};

/// Length of the file of each of many connections, in bytes.
const EACH: usize = 1 << 18;
/// Longest request of Linux's client on rxe in bytes: the pages of one fast registration.
const LONGEST: usize = 512 * 4096;
/// Seed, number of calls and largest length of the file of the exerciser.
const EXERCISE: &str = "1 2000 4194304";
/// Options of a mount that waits for a server that is not there.
const HARD: &str = ",hard,echo_interval=5";

/// Runs a case.
pub fn run(
    case: &Case,
    work: SmbWork,
    host: &ExternalHost,
    mut guest: Guest,
    directory: &Path,
) -> Result<Vec<String>> {
    let mut side = Side::start(case, work, host, directory)?;
    let mut notes = match work {
        SmbWork::Files(lengths) => side.files(&mut guest, lengths),
        SmbWork::LongRequests | SmbWork::Outstanding(_) => side.large_file(&mut guest),
        SmbWork::Exerciser => side.exerciser(&mut guest),
        SmbWork::Connections(count) => side.connections(&mut guest, count),
        SmbWork::ServerEnds => side.server_ends(&mut guest),
        SmbWork::ShareRemoved => side.share_removed(&mut guest),
        SmbWork::LinkDown => side.link_down(&mut guest),
        SmbWork::GuestKilled => return side.guest_killed(guest),
    }
    .map_err(|error| with_console(&error, &guest))?;
    notes.extend(side.finish(&guest)?);
    Ok(notes)
}

/// The side of the image.
struct Side<'a> {
    case: &'a Case,
    work: SmbWork,
    host: &'a ExternalHost,
    directory: &'a Path,
    /// The files of the server.
    share: PathBuf,
    server: Option<Server>,
    /// The server's port.
    port: Arc<AtomicU16>,
    gateways: Gateways,
}

impl<'a> Side<'a> {
    fn start(case: &'a Case, work: SmbWork, host: &'a ExternalHost, directory: &'a Path) -> Result<Self> {
        let share = directory.join("share");
        fs::create_dir(&share)?;
        let server = Server::start(directory, &share)?;
        let port = Arc::new(AtomicU16::new(server.port()));
        let local = SocketAddr::new(host_address(case.family), PORT);
        // The guest is slower than the server.
        let hold = if let SmbWork::Outstanding(requests) = work { requests } else { 1 };
        let gateways = Gateways::start(host, (options(work), hold), local, &port)?;
        Ok(Self { case, work, host, directory, share, server: Some(server), port, gateways })
    }

    /// Waits until the connections have ended. Returns a note about them.
    ///
    /// # Errors
    /// A connection did not end as `work` expects.
    fn finish(mut self, guest: &Guest) -> Result<Vec<String>> {
        // A client that failed may not have disconnected: the gateway then ends with the server.
        let disconnected = wait_until("the guest disconnects", TIMEOUT, || {
            self.gateways.ended() == self.gateways.accepted()
        });
        self.server = None;
        let outcomes = self.gateways.stop()?;
        disconnected.map_err(|error| with_console(&error, guest))?;
        let is_interrupted = matches!(self.work, SmbWork::ServerEnds | SmbWork::LinkDown);
        let mut sum = Counts::default();
        let mut notes = Vec::new();
        for outcome in outcomes {
            match end_of(outcome)? {
                Ok(counts) => sum += counts,
                Err(error) if is_interrupted => notes.push(format!("{error:#}")),
                Err(error) => return Err(with_console(&error, guest)),
            }
        }
        match self.work {
            SmbWork::Files(lengths) => check_rdma(&sum, lengths)?,
            _ => check_requests(self.work, &sum, LONGEST)?,
        }
        notes.push(note(&sum));
        Ok(notes)
    }

    /// Returns the guest's commands, in a mount of the share with these options beside the usual ones.
    fn mounted(&self, options: &str, commands: &str) -> String {
        let mount = self.case.guest_command();
        format!("set -e; {mount} {options}; trap 'umount /mnt' EXIT; {commands}")
    }

    /// Runs commands in the guest and returns their output.
    fn run(&self, guest: &mut Guest, options: &str, commands: &str) -> Result<String> {
        Ok(guest.run(&self.mounted(options, commands), self.case.limit())?.ok()?.text)
    }

    /// Checks that a file of the share has one of the hashes.
    fn compare(&self, name: &str, hashes: &str) -> Result<()> {
        let hash = sha256(&self.share.join(name))?;
        ensure!(hashes.contains(&hash), "{name} differs: {hash} is not in\n{hashes}");
        Ok(())
    }

    fn files(&self, guest: &mut Guest, lengths: &[usize]) -> Result<Vec<String>> {
        for &length in lengths {
            make_file(&self.share.join(format!("from-server-{length}")), length)?;
        }
        let list: Vec<String> = lengths.iter().map(ToString::to_string).collect();
        let hashes = self.run(guest, "", &format!("smb-files {}", list.join(" ")))?;
        for length in lengths {
            self.compare(&format!("from-server-{length}"), &hashes)?;
            self.compare(&format!("to-server-{length}"), &hashes)?;
        }
        Ok(Vec::new())
    }

    /// Copies a file by requests that are as long as possible, or of [`SHORT_REQUEST`], and not by way of the page cache.
    fn large_file(&self, guest: &mut Guest) -> Result<Vec<String>> {
        make_file(&self.share.join("from-server"), LARGE)?;
        let length = match self.work {
            SmbWork::Outstanding(_) => SHORT_REQUEST,
            _ => LARGE,
        };
        let options = format!(",cache=none,rsize={length},wsize={length}");
        let commands = "dd if=/mnt/from-server of=/tmp/copy bs=8M; dd if=/tmp/copy of=/mnt/to-server bs=8M; sha256sum /tmp/copy";
        let hashes = self.run(guest, &options, commands)?;
        self.compare("from-server", &hashes)?;
        self.compare("to-server", &hashes)?;
        Ok(Vec::new())
    }

    fn exerciser(&self, guest: &mut Guest) -> Result<Vec<String>> {
        let commands = format!("smb-tree; exerciser /mnt/exercised {EXERCISE}; sha256sum /mnt/exercised");
        let output = self.run(guest, "", &commands)?;
        self.compare("exercised", &output)?;
        Ok(Vec::new())
    }

    fn connections(&self, guest: &mut Guest, count: usize) -> Result<Vec<String>> {
        make_file(&self.share.join("from-server"), EACH)?;
        let mount = self.case.guest_command();
        let each = format!("for i in $(seq {count})");
        let commands = format!(
            "set -e; {each}; do {mount} ,nosharesock /mnt/$i; done; \
             copy() {{ cp /mnt/$1/from-server /tmp/$1.file && cp /tmp/$1.file /mnt/$1/to-server-$1; }}; \
             {each}; do copy $i & done; wait; sha256sum /tmp/*.file"
        );
        let hashes = guest.run(&commands, self.case.limit())?.ok()?.text;
        let (accepted, ended) = (self.gateways.accepted(), self.gateways.ended());
        ensure!((accepted, ended) == (count, 0), "{accepted} connections, of which {ended} have ended");
        guest.run(&format!("{each}; do umount /mnt/$i || exit; done"), TIMEOUT)?.ok()?;
        self.compare("from-server", &hashes)?;
        for number in 1..=count {
            self.compare(&format!("to-server-{number}"), &hashes)?;
        }
        Ok(vec![format!("{count} connections")])
    }

    fn guest_killed(mut self, mut guest: Guest) -> Result<Vec<String>> {
        make_file(&self.share.join("from-server"), LARGE)?;
        let commands = "while :; do dd if=/mnt/from-server of=/dev/null bs=1M; done";
        guest.start_shell(&self.mounted(",cache=none", commands), self.case.limit())?;
        wait_for_transfer(self.host)?;
        guest.power_off()?;
        let ended = wait_until("the gateway ends", TIMEOUT, || self.gateways.ended() == 1);
        self.server = None;
        let outcomes = self.gateways.stop()?;
        ended?;
        let mut notes = Vec::new();
        for outcome in outcomes {
            match end_of(outcome)? {
                Ok(_) => bail!("the gateway did not notice that the guest has ended"),
                Err(error) => notes.push(format!("{error:#}")),
            }
        }
        Ok(notes)
    }

    fn server_ends(&mut self, guest: &mut Guest) -> Result<Vec<String>> {
        self.interrupted(guest, |side| {
            side.server = None;
            side.wait_for_end()?;
            let server = Server::start(side.directory, &side.share)?;
            side.port.store(server.port(), Ordering::Release);
            side.server = Some(server);
            Ok(())
        })
    }

    fn link_down(&mut self, guest: &mut Guest) -> Result<Vec<String>> {
        self.interrupted(guest, |side| {
            side.host.set_link(false);
            side.wait_for_end()?;
            side.host.set_link(true);
            Ok(())
        })
    }

    /// Requests fail while there is no directory, the connection remains, and the same mount is used when there is one again.
    fn share_removed(&self, guest: &mut Guest) -> Result<Vec<String>> {
        make_file(&self.share.join("from-server"), LARGE)?;
        let commands = "while dd if=/mnt/from-server of=/dev/null bs=1M; do :; done; touch /tmp/failed
            until dd if=/mnt/from-server of=/tmp/copy bs=1M; do sleep 0.1; done
            dd if=/tmp/copy of=/mnt/to-server bs=1M; sha256sum /tmp/copy";
        let limit = self.case.limit();
        let copy = guest.start_shell(&self.mounted(",cache=none", commands), limit)?;
        wait_for_transfer(self.host)?;
        let removed = self.directory.join("removed");
        fs::rename(&self.share, &removed)?;
        guest.run("until [ -e /tmp/failed ]; do sleep 0.05; done", TIMEOUT)?.ok()?;
        fs::rename(&removed, &self.share)?;
        let hashes = guest.wait(&copy, limit)?.ok()?.text;
        ensure!(self.gateways.accepted() == 1, "the client connected again");
        self.compare("from-server", &hashes)?;
        self.compare("to-server", &hashes)?;
        Ok(Vec::new())
    }

    /// Waits until the first connection has ended.
    fn wait_for_end(&self) -> Result<()> {
        wait_until("the gateway ends", TIMEOUT, || self.gateways.ended() == 1)
    }

    /// Copies a file, to which `interrupt` happens. The guest connects again and goes on.
    fn interrupted(
        &mut self,
        guest: &mut Guest,
        interrupt: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<Vec<String>> {
        make_file(&self.share.join("from-server"), LARGE)?;
        let commands =
            "dd if=/mnt/from-server of=/tmp/copy bs=1M; cp /tmp/copy /mnt/to-server; sha256sum /tmp/copy";
        let limit = self.case.limit();
        let copy = guest.start_shell(&self.mounted(HARD, commands), limit)?;
        wait_for_transfer(self.host)?;
        interrupt(self)?;
        let hashes = guest.wait(&copy, limit)?.ok()?.text;
        let accepted = self.gateways.accepted();
        ensure!(accepted > 1, "the copy was complete before the interruption");
        self.compare("from-server", &hashes)?;
        self.compare("to-server", &hashes)?;
        Ok(vec![format!("{accepted} connections")])
    }
}
