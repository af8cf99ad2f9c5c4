// SPDX-License-Identifier: MIT OR Apache-2.0

//! Samba's server and client on this machine, without RDMA, each with files in a directory of its own.

use std::{
    fs, io,
    net::{TcpListener, TcpStream},
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};

use crate::{interop::cases::PASSWORD, process};

/// The user of the server. Samba maps it to that of this machine, whose files it then writes.
const USER: &str = "root";

/// Time limit for the server to listen.
const START_TIMEOUT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);

/// Settings of server and client. Sessions are not signed.
const GLOBAL: [&str; 12] = [
    "server role = standalone server",
    "interfaces = lo",
    "bind interfaces only = yes",
    "disable netbios = yes",
    "server signing = disabled",
    "server min protocol = SMB3",
    "client min protocol = SMB3",
    "server smb encrypt = off",
    "client smb encrypt = off",
    "load printers = no",
    "disable spoolss = yes",
    "rpc start on demand helpers = no",
];

/// A process in a group of its own. Drop kills the group.
pub struct Process {
    child: Child,
    name: &'static str,
}

impl Process {
    /// Starts a program that reads `input` and ends with the calling thread. Its output goes to a file in `directory`.
    fn start(name: &'static str, arguments: &[&str], directory: &Path, input: &str) -> Result<Self> {
        let commands = directory.join(format!("{name}.input"));
        fs::write(&commands, input)?;
        let log = fs::File::create(directory.join(format!("{name}.log")))?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", name]).args(arguments).current_dir(directory);
        command.process_group(0).stdin(fs::File::open(commands)?).stdout(log.try_clone()?).stderr(log);
        Ok(Self { child: command.spawn().with_context(|| format!("cannot run {name}"))?, name })
    }

    /// Waits until `poll` returns a value, and the process runs.
    pub fn wait_for<T>(&mut self, limit: Duration, poll: impl Fn() -> io::Result<Option<T>>) -> Result<T> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(value) = poll()? {
                return Ok(value);
            }
            ensure!(self.child.try_wait()?.is_none(), "{} has ended", self.name);
            ensure!(Instant::now() < deadline, "{} does nothing", self.name);
            thread::sleep(POLL);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let group = format!("-{}", self.child.id());
        drop(Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status());
        drop(self.child.wait());
    }
}

/// A server with one share, `share`.
pub struct Server {
    port: u16,
    _process: Process,
}

impl Server {
    /// Starts a server of the files in `share`, and waits until it listens on the loopback address.
    pub fn start(directory: &Path, share: &Path) -> Result<Self> {
        // Free until the server takes it, or another program does.
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        configure(directory, &format!("smb ports = {port}"), share)?;
        let configuration = directory.join("smb.conf");
        let configuration = configuration.to_str().context("a path that is not text")?;
        let both = format!("printf '{PASSWORD}\\n{PASSWORD}\\n' | smbpasswd -c {configuration} -s -a {USER}");
        process::output(Command::new("sh").args(["-c", &both]))?;
        let arguments = ["--foreground", "--no-process-group", "-s", configuration];
        let mut process = Process::start("smbd", &arguments, directory, "")?;
        let listens = || Ok(TcpStream::connect(("127.0.0.1", port)).ok());
        let started = process.wait_for(START_TIMEOUT, listens).map(drop);
        started.with_context(|| log(directory, "smbd"))?;
        Ok(Self { port, _process: process })
    }

    pub fn port(&self) -> u16 {
        self.port
    }
}

/// A running client.
pub struct Client {
    process: Process,
    directory: std::path::PathBuf,
}

/// Starts a client that connects to `port` and runs `commands`, one in a line, in `directory`.
pub fn client(directory: &Path, port: u16, commands: &str) -> Result<Client> {
    configure(directory, "client signing = disabled", directory)?;
    let (port, login) = (port.to_string(), format!("{USER}%{PASSWORD}"));
    let share = "//127.0.0.1/share";
    let arguments = ["-s", "smb.conf", share, "-p", &port, "-U", &login, "-m", "SMB3"];
    let process = Process::start("smbclient", &arguments, directory, commands)?;
    Ok(Client { process, directory: directory.to_owned() })
}

impl Client {
    /// Polls until there is a result, the client has ended or `limit` has passed; see [`Process::wait_for`].
    pub fn wait_for<T>(&mut self, limit: Duration, poll: impl Fn() -> io::Result<Option<T>>) -> Result<T> {
        self.process.wait_for(limit, poll).with_context(|| log(&self.directory, "smbclient"))
    }

    /// Returns the output of the client when it has ended. Kills it after `limit`.
    pub fn output(mut self, limit: Duration) -> Result<String> {
        let deadline = Instant::now() + limit;
        let status = loop {
            if let Some(status) = self.process.child.try_wait()? {
                break status;
            }
            if Instant::now() > deadline {
                bail!("smbclient does not end:\n{}", log(&self.directory, "smbclient"));
            }
            thread::sleep(POLL);
        };
        let log = log(&self.directory, "smbclient");
        ensure!(status.success(), "smbclient failed ({status}):\n{log}");
        Ok(log)
    }
}

fn log(directory: &Path, name: &str) -> String {
    fs::read_to_string(directory.join(format!("{name}.log"))).unwrap_or_default()
}

/// Writes the configuration, in which every file is below `directory`.
fn configure(directory: &Path, line: &str, share: &Path) -> Result<()> {
    let at = directory.display();
    let kinds = ["private", "state", "cache", "lock", "pid", "ncalrpc"];
    let mut lines = vec!["[global]".to_owned(), line.to_owned()];
    for kind in kinds {
        let path = directory.join(kind);
        fs::create_dir_all(&path)?;
        let name = if kind == "private" || kind == "ncalrpc" { "dir" } else { "directory" };
        lines.push(format!("{kind} {name} = {}", path.display()));
    }
    lines.push(format!("passdb backend = tdbsam:{at}/passdb.tdb"));
    lines.push(format!("log file = {at}/samba.log"));
    lines.extend(GLOBAL.map(str::to_owned));
    lines.extend([
        "[share]".to_owned(),
        format!("path = {}", share.display()),
        "read only = no\n".to_owned(),
    ]);
    let text = lines.join("\n");
    fs::write(directory.join("smb.conf"), text)?;
    Ok(())
}
