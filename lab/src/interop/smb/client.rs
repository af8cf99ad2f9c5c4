// SPDX-License-Identifier: MIT OR Apache-2.0

//! Samba's client behind the image, ksmbd in the guest.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    path::Path,
};

use anyhow::{Result, bail, ensure};
use linux_guest::{Guest, Job};
use ndk_consumer::{Error, stats::RequestStats};
use smb_consumer::gateway::{self, Counts};

use super::{
    samba,
    stream::{self, Stream},
    transfer::{
        LARGE, Outcome, PORT, TIMEOUT, check_rdma, check_requests, end_of, make_file, note, options, sha256,
        wait_for_transfer, wait_until, with_console,
    },
};
use crate::{
    external_host::ExternalHost,
    interop::{
        addresses::{guest_address, host_address},
        cases::Case,
        smb_work::{LENGTHS, SmbWork},
    },
    machine::Consumer,
};

/// Length of the file of each of many connections, in bytes.
const EACH: usize = 1 << 18;

/// Runs a case.
pub fn run(
    case: &Case,
    work: SmbWork,
    host: &ExternalHost,
    mut guest: Guest,
    directory: &Path,
) -> Result<Vec<String>> {
    let side = Side { case, work, host, directory };
    if work == SmbWork::GuestKilled {
        return side.guest_killed(guest);
    }
    let server = guest.serve(&case.guest_command(), case.limit() * 3)?;
    if work == SmbWork::ServerEnds {
        return side.server_ends(&mut guest, &server).map_err(|error| with_console(&error, &guest));
    }
    let notes = match work {
        SmbWork::Files(lengths) => side.files(&mut guest, lengths),
        SmbWork::LongRequests | SmbWork::Outstanding(_) => side.large_file(&mut guest),
        SmbWork::Connections(count) => side.connections(&mut guest, count),
        SmbWork::ShareRemoved => side.share_removed(&mut guest),
        SmbWork::LinkDown => side.link_down(&mut guest),
        work => bail!("{work:?} is no work of Samba's client"),
    };
    let output = stop(&mut guest, &server);
    let notes = notes.or_else(|error| bail!("{error:#}\nthe guest's side: {}", output?));
    notes.map_err(|error| with_console(&error, &guest))
}

/// Ends the server in the kernel, then its helper. Returns the helper's output.
fn stop(guest: &mut Guest, server: &Job) -> Result<String> {
    guest.run("ksmbd.control -s", TIMEOUT)?;
    Ok(guest.kill(server)?.to_string())
}

/// The side of the image.
#[derive(Clone, Copy)]
struct Side<'a> {
    case: &'a Case,
    work: SmbWork,
    host: &'a ExternalHost,
    directory: &'a Path,
}

/// A running client, and its gateway.
struct Running {
    client: samba::Client,
    gateway: Consumer<Outcome>,
}

impl Side<'_> {
    /// Starts a client that runs `commands` in `directory`.
    fn start(&self, directory: &Path, commands: &str) -> Result<Running> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let mut client = samba::client(directory, listener.local_addr()?.port(), commands)?;
        let (plain, _) = client.wait_for(TIMEOUT, || stream::accept(&listener))?;
        let local = SocketAddr::new(host_address(self.case.family), 0);
        let remote = SocketAddr::new(guest_address(self.case.family), PORT);
        let options = options(self.work);
        let gateway = self.host.machine().consumer("gateway", move |adapter| match Stream::new(plain) {
            Ok(mut plain) => gateway::client(adapter, &options, local, remote, &mut plain),
            Err(error) => (Err(Error::Gateway(error.into())), RequestStats::default()),
        });
        Ok(Running { client, gateway })
    }

    /// Waits until a client has run its commands.
    fn finish(&self, running: Running) -> Result<(String, Counts)> {
        // The gateway ends with the client, which is killed at the limit.
        let output = running.client.output(self.case.limit());
        let counts = end_of(running.gateway.join()?)?;
        match (output, counts) {
            (Ok(output), Ok(counts)) => {
                ensure!(!output.contains("NT_STATUS_"), "smbclient:\n{output}");
                Ok((output, counts))
            }
            (Ok(output), Err(error)) => Err(error.context(format!("smbclient:\n{output}"))),
            (Err(error), Ok(_)) => Err(error),
            (Err(error), Err(gateway)) => bail!("{error:#}\n{gateway:#}"),
        }
    }

    /// Waits until a client whose connection was lost has ended. Returns how its gateway ended.
    fn fail(&self, running: Running) -> Result<String> {
        let end = end_of(running.gateway.join()?)?;
        match running.client.output(self.case.limit()) {
            Ok(output) => {
                ensure!(
                    output.contains("NT_STATUS_"),
                    "smbclient lost its connection and succeeded:\n{output}"
                );
            }
            Err(error) if error.to_string().contains("does not end") => return Err(error),
            Err(_) => {}
        }
        Ok(match end {
            Ok(_) => "the peer disconnected".to_owned(),
            Err(error) => format!("{error:#}"),
        })
    }

    fn files(&self, guest: &mut Guest, lengths: &[usize]) -> Result<Vec<String>> {
        let directory = self.directory;
        let mut commands = Vec::new();
        for &length in lengths {
            make_file(&directory.join(format!("file-{length}")), length)?;
            commands.push(format!("put file-{length}\nget file-{length} back-{length}"));
        }
        commands.push("mkdir dir\nrename file-25 dir\\x\nrename dir\\x renamed\nrmdir dir".to_owned());
        commands.push("put file-25 deleted\ndel deleted\nls".to_owned());
        let (output, counts) = self.finish(self.start(directory, &commands.join("\n"))?)?;
        ensure!(output.contains("renamed"), "smbclient lists no file that was renamed:\n{output}");
        let hashes = guest.run("cd /export/share && sha256sum *", TIMEOUT)?.ok()?.text;
        for length in lengths {
            compare(directory, &format!("file-{length}"), &format!("back-{length}"), &hashes)?;
        }
        // One of the files has another name; one was deleted.
        ensure!(hashes.lines().count() == lengths.len(), "wrong files on the share:\n{hashes}");
        ensure!(hashes.contains("  renamed"), "no file was renamed:\n{hashes}");
        check_rdma(&counts, lengths)?;
        Ok(vec![note(&counts)])
    }

    fn large_file(&self, guest: &mut Guest) -> Result<Vec<String>> {
        make_file(&self.directory.join("file"), LARGE)?;
        let (_, counts) = self.finish(self.start(self.directory, "put file\nget file back")?)?;
        let hashes = guest.run("cd /export/share && sha256sum *", TIMEOUT)?.ok()?.text;
        compare(self.directory, "file", "back", &hashes)?;
        check_rdma(&counts, &[LARGE])?;
        check_requests(self.work, &counts, self.work.largest_request())?;
        Ok(vec![note(&counts)])
    }

    fn connections(&self, guest: &mut Guest, count: usize) -> Result<Vec<String>> {
        let name = |number: usize| format!("client-{number}");
        let wait = "touch connected; until [ -e ../go ]; do sleep 0.1; done";
        let mut clients = Vec::new();
        for number in 0..count {
            let directory = self.directory.join(name(number));
            fs::create_dir(&directory)?;
            make_file(&directory.join("file"), EACH + number)?;
            fs::write(directory.join("wait"), wait)?;
            let name = name(number);
            let commands = format!("!sh ./wait\nput file {name}\nget {name} back");
            clients.push(self.start(&directory, &commands)?);
        }
        wait_until("all clients are connected", self.case.limit(), || {
            (0..count).all(|number| self.directory.join(name(number)).join("connected").exists())
        })?;
        fs::write(self.directory.join("go"), "")?;
        let mut messages = 0;
        for client in clients {
            let (_, counts) = self.finish(client)?;
            check_rdma(&counts, &[EACH])?;
            messages += counts.messages;
        }
        let hashes = guest.run("cd /export/share && sha256sum *", TIMEOUT)?.ok()?.text;
        for number in 0..count {
            compare(&self.directory.join(name(number)), "file", "back", &hashes)?;
        }
        ensure!(hashes.lines().count() == count, "wrong files on the share:\n{hashes}");
        Ok(vec![format!("{messages} messages")])
    }

    /// Starts a client that copies a file to the server, and returns when the copy has begun.
    fn start_large(&self) -> Result<Running> {
        let directory = self.directory.join("interrupted");
        fs::create_dir(&directory)?;
        make_file(&directory.join("file"), LARGE)?;
        let running = self.start(&directory, "put file\nget file back\nput file\nget file back")?;
        wait_for_transfer(self.host)?;
        Ok(running)
    }

    fn guest_killed(&self, mut guest: Guest) -> Result<Vec<String>> {
        drop(guest.serve(&self.case.guest_command(), self.case.limit())?);
        let running = self.start_large()?;
        guest.power_off()?;
        Ok(vec![self.fail(running)?])
    }

    fn server_ends(&self, guest: &mut Guest, server: &Job) -> Result<Vec<String>> {
        let running = self.start_large()?;
        let output = stop(guest, server);
        let mut notes = vec![self.fail(running)?];
        output?;
        clear(guest)?;
        let server = guest.serve(&self.case.guest_command(), self.case.limit())?;
        notes.extend(self.files(guest, &LENGTHS)?);
        stop(guest, &server)?;
        Ok(notes)
    }

    /// Requests of the client fail while there is no directory, and its connection remains. The next client succeeds.
    fn share_removed(&self, guest: &mut Guest) -> Result<Vec<String>> {
        let running = self.start_large()?;
        guest.run("rm -r /export/share", TIMEOUT)?.ok()?;
        let output = running.client.output(self.case.limit())?;
        ensure!(output.contains("NT_STATUS_"), "smbclient succeeded without a share:\n{output}");
        end_of(running.gateway.join()?)??;
        guest.run("mkdir /export/share", TIMEOUT)?.ok()?;
        self.files(guest, &LENGTHS)
    }

    fn link_down(&self, guest: &mut Guest) -> Result<Vec<String>> {
        let running = self.start_large()?;
        self.host.set_link(false);
        let mut notes = vec![self.fail(running)?];
        self.host.set_link(true);
        clear(guest)?;
        notes.extend(self.files(guest, &LENGTHS)?);
        Ok(notes)
    }
}

/// Removes the file of the client that was interrupted.
fn clear(guest: &mut Guest) -> Result<()> {
    guest.run("rm -f /export/share/*", TIMEOUT)?.ok().map(drop)
}

/// Checks that a file, its copy that was read back, and that on the share are the same.
fn compare(directory: &Path, sent: &str, back: &str, hashes: &str) -> Result<()> {
    let wanted = sha256(&directory.join(sent))?;
    ensure!(sha256(&directory.join(back))? == wanted, "{sent}: what was read back differs");
    ensure!(hashes.contains(&wanted), "{sent}: the file on the share differs");
    Ok(())
}
