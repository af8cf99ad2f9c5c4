// SPDX-License-Identifier: MIT OR Apache-2.0

//! The test cases: the side that connects, the address family and MTU, and what both sides do.

use std::{fmt, time::Duration};

use device_sim::link::Faults;
use ndk_consumer::protocols::{
    Program,
    probe::{Plan, Scenario},
};

use super::{
    addresses::{Family, guest_address, host_address},
    smb_work::{LENGTHS, SHORT_LENGTHS, SmbWork},
    variants::{DEFAULT, VARIANTS, Variant},
};

/// One test case.
#[derive(Clone, Debug)]
pub struct Case {
    /// First part of [`Case::title`], which `--only` searches.
    pub name: &'static str,
    /// The side that connects. The other side listens.
    pub client: Side,
    pub work: Work,
    pub family: Family,
    /// RoCE path MTU in bytes: 1024 or 4096.
    pub mtu: u32,
    /// Share of lost frames, 0 to 1: of frames from the host, of frames from the guest.
    pub loss: [f64; 2],
    /// The host's device is this one of QEMU; `None` for the one that the command's options name.
    pub variant: Option<Variant>,
    /// Part of `cargo xtask interop --short`.
    pub short: bool,
}

/// The sides of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    Viordma,
    Linux,
}

/// Program of both sides.
#[derive(Clone, Debug)]
pub enum Work {
    /// A program: the host runs it with the image, over NDKPI; the guest runs the matching tool.
    Image(Program),
    /// The same, but the guest is killed during the transfer.
    GuestKilled(Program),
    /// Requests that NDKPI cannot express: the engine, linked natively, is the other side of the guest's probe.
    Engine(NonNdkRequest),
    /// SMB Direct: the kernel's server or client in the guest, Samba behind the image.
    Smb(SmbWork),
    /// Ping, and this number of bytes to the guest and back over TCP.
    Tcp(usize),
    /// The same before and after a time in which the process of the host's QEMU is stopped.
    Stopped(Duration),
}

/// Requests that a peer can send but NDKPI cannot express.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NonNdkRequest {
    /// SENDs and WRITEs with immediate data: each completion has to report the data.
    Immediate,
    /// An atomic operation: NAK invalid request, which ends the connection.
    Atomic,
    /// Requests of both sides on a queue pair that they connect by themselves.
    Service(Service),
}

/// Services and operations of queue pairs that their owners connect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Service {
    /// Unreliable connections (UC): SENDs and WRITEs, with and without immediate data.
    UnreliableConnection,
    /// Unreliable datagrams (UD), also with a wrong Q_Key.
    Datagrams,
    /// Atomic operations of a reliable connection.
    Atomics,
}

impl NonNdkRequest {
    /// Returns the guest probe's name of the scenario.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Immediate => "immediate",
            Self::Atomic => "atomic",
            Self::Service(Service::UnreliableConnection) => "uc",
            Self::Service(Service::Datagrams) => "ud",
            Self::Service(Service::Atomics) => "atomics",
        }
    }

    /// Returns the guest probe's number of the scenario.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::Immediate => 20,
            Self::Atomic => 21,
            Self::Service(Service::UnreliableConnection) => 22,
            Self::Service(Service::Datagrams) => 23,
            Self::Service(Service::Atomics) => 24,
        }
    }
}

/// Length of the longest item: 8 MiB.
const MAX_LENGTH: u32 = 8 << 20;
/// Simultaneous connections of the case with many.
const CONNECTIONS: u32 = 64;
/// Password of the SMB servers' user, which is `root`.
pub const PASSWORD: &str = "Passw0rd";
/// Port of the side that listens in cases of TCP.
pub const TCP_PORT: u16 = 5001;
/// Share of lost frames in cases with loss.
const LOSS: f64 = 0.02;

impl Case {
    /// Returns the unique title: name, device if the case has one of its own, direction, address family, MTU.
    #[must_use]
    pub fn title(&self) -> String {
        let Self { name, family, mtu, .. } = self;
        let device = self.variant.map_or_else(String::new, |variant| format!("{}, ", variant.name));
        let (client, server) = match self.client {
            Side::Viordma => (self.host(), "Linux"),
            Side::Linux => ("Linux", self.host()),
        };
        let family = match family {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
            Family::LinkLocal => "IPv6 link-local",
        };
        format!("{name}, {device}{client} to {server}, {family}, MTU {mtu}")
    }

    /// Returns the implementation on the host: "image" or "engine".
    #[must_use]
    pub fn host(&self) -> &'static str {
        match self.work {
            Work::Engine(_) => "engine",
            Work::Image(_) | Work::GuestKilled(_) | Work::Smb(_) | Work::Tcp(_) | Work::Stopped(_) => "image",
        }
    }

    /// Returns the name of the capture file, without extension: lowercase letters, digits, hyphens.
    #[must_use]
    pub fn file_name(&self) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
        let name: String = self.title().chars().map(plain).collect();
        name.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
    }

    /// Returns the link's faults: of frames from the host, of frames from the guest.
    #[must_use]
    pub fn faults(&self) -> [Faults; 2] {
        self.loss.map(|loss| Faults { loss, ..Faults::NONE })
    }

    /// Returns the time limit for each side.
    #[must_use]
    pub fn limit(&self) -> Duration {
        let is_smb = matches!(self.work, Work::Smb(_));
        Duration::from_secs(if self.is_lossy() || is_smb { 120 } else { 60 })
    }

    /// Returns true if the link loses frames.
    #[must_use]
    pub fn is_lossy(&self) -> bool {
        self.loss.iter().any(|loss| *loss > 0.0)
    }

    /// Returns the command that the guest runs, as client or as server.
    #[must_use]
    pub fn guest_command(&self) -> String {
        // A server takes its own address, a client the server's.
        let serves = self.client == Side::Viordma;
        let at = if serves { guest_address(self.family) } else { host_address(self.family) };
        let at = format!("{at}{}", if self.family == Family::LinkLocal { "%eth0" } else { "" });
        match &self.work {
            Work::Image(program) | Work::GuestKilled(program) => match program {
                Program::Rping { rounds, size } => {
                    let role = if serves { "-s" } else { "-c -V" };
                    format!("rping {role} -a {at} -C {rounds} -S {size} -v")
                }
                Program::RdmaClient if serves => format!("rdma_server -s {at}"),
                Program::RdmaClient => format!("rdma_client -s {at}"),
                Program::Probe(plan) if serves => format!("probe -s {at} -n {}", plan.connections()),
                Program::Probe(plan) => {
                    let connections = plan.connections();
                    format!(
                        "probe -c {at} -l {} -j {connections} {}",
                        plan.length,
                        scenario_name(plan.scenario)
                    )
                }
            },
            Work::Smb(work) if serves => format!("smb-server {PASSWORD} {}", work.largest_request()),
            Work::Smb(_) => format!("smb-mount {at} {PASSWORD}"),
            Work::Tcp(_) | Work::Stopped(_) if serves => format!("nc -l -p {TCP_PORT} -e cat"),
            Work::Tcp(_) | Work::Stopped(_) => format!("nc {at} {TCP_PORT} -e cat"),
            Work::Engine(_) if serves => format!("probe -s {at}"),
            Work::Engine(request) => format!("probe -c {at} {}", request.name()),
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Viordma => "viordma",
            Self::Linux => "Linux",
        })
    }
}

/// Returns the guest probe's name of a scenario.
fn scenario_name(scenario: Scenario) -> &'static str {
    match scenario {
        Scenario::Send => "send",
        Scenario::Write => "write",
        Scenario::Read => "read",
        Scenario::Invalidate => "invalidate",
        Scenario::Reject => "reject",
        Scenario::BadKey => "badkey",
        Scenario::BadRange => "badrange",
        Scenario::ReadKey => "readkey",
        Scenario::ReadRange => "readrange",
        Scenario::Leave => "leave",
        Scenario::Rnr => "rnr",
        Scenario::Srq => "srq",
        Scenario::Many => "many",
        Scenario::Hold => "hold",
        Scenario::NoWrite => "nowrite",
        Scenario::NoRead => "noread",
        Scenario::TooLong => "toolong",
    }
}

/// Returns all cases, sorted by MTU; the cases that kill the guest come last.
#[must_use]
pub fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    for mtu in [1024, 4096] {
        for client in [Side::Viordma, Side::Linux] {
            cases.extend(at_any_mtu(client, mtu));
            if mtu == 1024 {
                cases.extend(at_one_mtu(client, mtu));
            }
        }
    }
    for (name, request) in
        [("immediate data", NonNdkRequest::Immediate), ("atomic refused", NonNdkRequest::Atomic)]
    {
        cases.push(Case { short: true, ..case(name, Side::Linux, Work::Engine(request), 1024) });
    }
    for client in [Side::Viordma, Side::Linux] {
        cases.extend(of_services(client));
        let work = Work::GuestKilled(probe(Scenario::Hold, 1 << 16, 0));
        cases.push(case("guest killed during transfer", client, work, 1024));
    }
    cases.extend(of_tcp());
    cases.extend(of_stopped_devices());
    cases.extend(of_variants());
    cases.extend(of_smb());
    // Changing the MTU takes time, and those at the end need a guest of their own.
    let rank = |work: &Work| match work {
        Work::Image(_) | Work::Engine(_) | Work::Tcp(_) | Work::Stopped(_) => 0,
        Work::GuestKilled(_) => 1,
        Work::Smb(_) => 2,
    };
    cases.sort_by_key(|case| (rank(&case.work), case.mtu));
    cases
}

/// Returns the cases of services and operations of the engine that NDKPI does not have.
fn of_services(client: Side) -> Vec<Case> {
    let of = |(name, service)| {
        let work = Work::Engine(NonNdkRequest::Service(service));
        let case = |mtu| case(name, client, work.clone(), mtu);
        [Case { short: true, ..case(1024) }, case(4096)]
    };
    let services = [
        ("unreliable connection", Service::UnreliableConnection),
        ("datagrams", Service::Datagrams),
        ("atomic operations", Service::Atomics),
    ];
    services.into_iter().flat_map(of).collect()
}

/// Returns the cases of Ethernet.
fn of_tcp() -> Vec<Case> {
    let of = |client| {
        let case = move |length, mtu| case("ping and TCP", client, Work::Tcp(length), mtu);
        [
            Case { short: true, ..case(1 << 20, 1024) },
            Case { family: Family::V6, ..case(1 << 20, 1024) },
            case(16 << 20, 4096),
        ]
    };
    [Side::Viordma, Side::Linux].into_iter().flat_map(of).collect()
}

/// Returns the cases of a QEMU whose process does not run for a while.
fn of_stopped_devices() -> Vec<Case> {
    let of = |(name, seconds)| Case {
        variant: Some(DEFAULT),
        short: seconds == 3,
        ..case(name, Side::Linux, Work::Stopped(Duration::from_secs(seconds)), 1024)
    };
    [("stopped for 3 s", 3), ("stopped for 10 s", 10), ("stopped for 60 s", 60)].map(of).to_vec()
}

/// Returns the cases with variants of QEMU's device: Ethernet, and data by RDMA to the guest and from it.
fn of_variants() -> Vec<Case> {
    let of = |variant: Variant| {
        let write = Work::Image(probe(Scenario::Write, MAX_LENGTH, 0));
        let at = |mtu| {
            let case = |name, client, work| Case { variant: Some(variant), ..case(name, client, work, mtu) };
            [
                case("ping and TCP", Side::Linux, Work::Tcp(1 << 20)),
                case("write", Side::Viordma, write.clone()),
                case("write", Side::Linux, write.clone()),
            ]
        };
        let mut cases = at(1024).to_vec();
        if variant.depends_on_mtu {
            cases.extend(at(4096));
        }
        for case in &mut cases {
            case.short = variant.short && case.mtu == 1024 && matches!(case.work, Work::Image(_));
        }
        cases
    };
    VARIANTS.into_iter().flat_map(of).collect()
}

/// Returns the cases of SMB Direct.
fn of_smb() -> Vec<Case> {
    let mut cases = Vec::new();
    for client in [Side::Viordma, Side::Linux] {
        let case = |name, work, mtu| case(name, client, Work::Smb(work), mtu);
        for mtu in [1024, 4096] {
            let files =
                |family| Case { family, ..case("SMB, files to 8 MiB", SmbWork::Files(&LENGTHS), mtu) };
            cases.push(Case { short: mtu == 1024, ..files(Family::V4) });
            cases.push(files(Family::V6));
        }
        let short = SmbWork::Files(&SHORT_LENGTHS);
        cases.extend([
            Case { loss: [0.01; 2], ..case("SMB, files to 512 KiB, 1 % loss", short, 1024) },
            Case { loss: [0.05; 2], ..case("SMB, files to 512 KiB, 5 % loss", short, 4096) },
            case("SMB, longest requests", SmbWork::LongRequests, 4096),
            case("SMB, 64 requests outstanding", SmbWork::Outstanding(64), 1024),
            case("SMB, 24 connections at once", SmbWork::Connections(24), 1024),
            case("SMB, guest killed during transfer", SmbWork::GuestKilled, 1024),
            case("SMB, server ends and starts again", SmbWork::ServerEnds, 1024),
            case("SMB, share removed and restored", SmbWork::ShareRemoved, 1024),
            case("SMB, link down and up again", SmbWork::LinkDown, 1024),
        ]);
    }
    cases.push(case("SMB, exerciser", Side::Linux, Work::Smb(SmbWork::Exerciser), 4096));
    cases
}

/// Returns a case without faults, over IPv4.
fn case(name: &'static str, client: Side, work: Work, mtu: u32) -> Case {
    Case { name, client, work, family: Family::V4, mtu, loss: [0.0; 2], variant: None, short: false }
}

fn probe(scenario: Scenario, length: u32, count: u32) -> Program {
    Program::Probe(Plan { scenario, length, count })
}

fn at_any_mtu(client: Side, mtu: u32) -> Vec<Case> {
    let case = |name, program| case(name, client, Work::Image(program), mtu);
    vec![
        Case { short: true, ..case("rping", Program::Rping { rounds: 10, size: 100 }) },
        case("rping, long messages", Program::Rping { rounds: 5, size: 30_000 }),
        Case {
            family: Family::V6,
            short: true,
            ..case("rping", Program::Rping { rounds: 10, size: 10_000 })
        },
        Case { short: true, ..case("send, 0 B to 8 MiB", probe(Scenario::Send, MAX_LENGTH, 0)) },
        Case { short: true, ..case("write, 0 B to 8 MiB", probe(Scenario::Write, MAX_LENGTH, 0)) },
        Case { short: true, ..case("read, 0 B to 8 MiB", probe(Scenario::Read, MAX_LENGTH, 0)) },
        Case { family: Family::V6, ..case("send, 0 B to 1 MiB", probe(Scenario::Send, 1 << 20, 0)) },
    ]
}

fn at_one_mtu(client: Side, mtu: u32) -> Vec<Case> {
    let case = |name, program| case(name, client, Work::Image(program), mtu);
    let violation = |name, scenario| case(name, probe(scenario, 4096, 0));
    // rxe repeats a READ only after its timeout, 2.3 s, when a response is lost.
    let length = |scenario| match (client, scenario) {
        (Side::Linux, Scenario::Read) => 1 << 16,
        _ => 1 << 20,
    };
    let lossy = |name, scenario, loss| Case { loss, ..case(name, probe(scenario, length(scenario), 0)) };
    vec![
        Case { family: Family::LinkLocal, ..case("rping", Program::Rping { rounds: 3, size: 100 }) },
        Case { short: true, ..case("rdma_client", Program::RdmaClient) },
        Case { family: Family::V6, ..case("rdma_client", Program::RdmaClient) },
        case("shared receive queue, 8 connections", probe(Scenario::Srq, 1 << 16, 8)),
        Case { short: true, ..case("send with invalidate", probe(Scenario::Invalidate, 4096, 0)) },
        Case { short: true, ..case("reject", probe(Scenario::Reject, 4096, 0)) },
        Case { short: true, ..violation("write, wrong key", Scenario::BadKey) },
        violation("write, out of range", Scenario::BadRange),
        violation("write, no access right", Scenario::NoWrite),
        violation("read, wrong key", Scenario::ReadKey),
        violation("read, out of range", Scenario::ReadRange),
        violation("read, no access right", Scenario::NoRead),
        violation("send, too long", Scenario::TooLong),
        case("server disconnects", probe(Scenario::Leave, 4096, 0)),
        case("receive posted late", probe(Scenario::Rnr, 4096, 0)),
        Case { short: true, ..case("64 connections at once", probe(Scenario::Many, 4096, CONNECTIONS)) },
        lossy("write, 2 % loss to Linux", Scenario::Write, [LOSS, 0.0]),
        lossy("write, 2 % loss from Linux", Scenario::Write, [0.0, LOSS]),
        lossy("send, 2 % loss to Linux", Scenario::Send, [LOSS, 0.0]),
        lossy("send, 2 % loss from Linux", Scenario::Send, [0.0, LOSS]),
        lossy("read, 2 % loss to Linux", Scenario::Read, [LOSS, 0.0]),
        lossy("read, 2 % loss from Linux", Scenario::Read, [0.0, LOSS]),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn titles_and_capture_names_are_unique() {
        let cases = all();
        for name_of in [Case::title, Case::file_name] {
            let names: BTreeSet<String> = cases.iter().map(name_of).collect();
            assert_eq!(names.len(), cases.len());
        }
    }

    #[test]
    fn guest_command_is_the_opposite_side_of_the_host() {
        let is_of_programs =
            |case: &Case| matches!(case.work, Work::Image(_) | Work::GuestKilled(_) | Work::Engine(_));
        for case in all().into_iter().filter(is_of_programs) {
            let command = case.guest_command();
            let (listens, address) = match case.client {
                Side::Viordma => (true, guest_address(case.family)),
                Side::Linux => (false, host_address(case.family)),
            };
            assert!(command.contains(&address.to_string()), "{command}");
            let program = command.split(' ').next().unwrap_or_default();
            assert_eq!(
                listens,
                program == "rdma_server"
                    || command.contains(&format!("{program} -s")) && program != "rdma_client",
                "{command}"
            );
        }
    }
}
