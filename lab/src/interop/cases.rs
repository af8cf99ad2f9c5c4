// SPDX-License-Identifier: MIT OR Apache-2.0

//! What is tried: who connects, over what, and what both do then.

use std::{fmt, time::Duration};

use device_sim::link::Faults;
use ndk_consumer::protocols::{
    Program,
    probe::{Plan, Scenario},
};

use super::addresses::{Family, guest_address, host_address};

/// One thing to try.
#[derive(Clone, Debug)]
pub struct Case {
    /// What `--only` is compared with, together with the rest of [`Case::title`].
    pub name: &'static str,
    /// Who connects. The other one listens.
    pub client: Side,
    pub work: Work,
    pub family: Family,
    /// RoCE path MTU in bytes: 1024 or 4096.
    pub mtu: u32,
    /// Of what the host sends, and of what the guest sends: frames lost of all.
    pub loss: [f64; 2],
    /// Part of the short form.
    pub short: bool,
}

/// The ends of the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    Viordma,
    Linux,
}

/// What both do.
#[derive(Clone, Debug)]
pub enum Work {
    /// A program, spoken by the image in ntsim on one side and by the guest's tool on the other.
    Image(Program),
    /// The same, until the guest is killed in the middle of it.
    GuestKilled(Program),
    /// Something NDKPI has no words for: the engine linked natively answers the guest's probe.
    Engine(Foreign),
}

/// Requests that NDKPI does not have, but peers do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Foreign {
    /// SENDs and WRITEs with immediate data arrive with it.
    Immediate,
    /// An atomic operation is refused as invalid, with the connection.
    Atomic,
}

/// Bytes of the longest item: 8 MiB.
const LONGEST: u32 = 8 << 20;
/// Connections at once.
const MANY: u32 = 64;
/// Frames lost of all in cases with loss.
const LOSS: f64 = 0.02;

impl Case {
    /// Everything that tells this case from the others.
    #[must_use]
    pub fn title(&self) -> String {
        let Self { name, family, mtu, .. } = self;
        let (client, server) = match self.client {
            Side::Viordma => (self.host(), "Linux"),
            Side::Linux => ("Linux", self.host()),
        };
        let family = match family {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
            Family::LinkLocal => "IPv6 link-local",
        };
        format!("{name}, {client} to {server}, {family}, MTU {mtu}")
    }

    /// What stands at the host's end of the wire.
    #[must_use]
    pub fn host(&self) -> &'static str {
        match self.work {
            Work::Engine(_) => "engine",
            Work::Image(_) | Work::GuestKilled(_) => "image",
        }
    }

    /// A name for its capture's file.
    #[must_use]
    pub fn file_name(&self) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
        let name: String = self.title().chars().map(plain).collect();
        name.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
    }

    #[must_use]
    pub fn faults(&self) -> [Faults; 2] {
        self.loss.map(|loss| Faults { loss, ..Faults::NONE })
    }

    /// Longest that either side may take.
    #[must_use]
    pub fn limit(&self) -> Duration {
        Duration::from_secs(if self.is_lossy() { 120 } else { 60 })
    }

    #[must_use]
    pub fn is_lossy(&self) -> bool {
        self.loss.iter().any(|loss| *loss > 0.0)
    }

    /// What the guest runs, as this case's client or server.
    #[must_use]
    pub fn guest_command(&self) -> String {
        let address = |side| {
            let (address, scope) = match side {
                Side::Viordma => (host_address(self.family), "%eth0"),
                Side::Linux => (guest_address(self.family), "%eth0"),
            };
            format!("{address}{}", if self.family == Family::LinkLocal { scope } else { "" })
        };
        // A server is told where to listen, a client where to connect.
        let serves = self.client == Side::Viordma;
        let at = address(if serves { Side::Linux } else { Side::Viordma });
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
            Work::Engine(Foreign::Immediate) => format!("probe -c {at} immediate"),
            Work::Engine(Foreign::Atomic) => format!("probe -c {at} atomic"),
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

/// What the guest's probe calls a scenario.
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

/// Every case, those of one MTU together, those that cost the guest its life at the end.
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
    for (name, foreign) in [("immediate data", Foreign::Immediate), ("atomic refused", Foreign::Atomic)] {
        cases.push(Case { short: true, ..case(name, Side::Linux, Work::Engine(foreign), 1024) });
    }
    for client in [Side::Viordma, Side::Linux] {
        let work = Work::GuestKilled(probe(Scenario::Hold, 1 << 16, 0));
        cases.push(case("guest killed half-way", client, work, 1024));
    }
    // Setting the MTU costs time.
    cases.sort_by_key(|case| (matches!(case.work, Work::GuestKilled(_)), case.mtu));
    cases
}

/// A case between healthy ends on a good wire, over IPv4.
fn case(name: &'static str, client: Side, work: Work, mtu: u32) -> Case {
    Case { name, client, work, family: Family::V4, mtu, loss: [0.0; 2], short: false }
}

fn probe(scenario: Scenario, length: u32, count: u32) -> Program {
    Program::Probe(Plan { scenario, length, count })
}

fn at_any_mtu(client: Side, mtu: u32) -> Vec<Case> {
    let case = |name, program| case(name, client, Work::Image(program), mtu);
    vec![
        Case { short: true, ..case("rping", Program::Rping { rounds: 10, size: 100 }) },
        case("rping, long texts", Program::Rping { rounds: 5, size: 30_000 }),
        Case {
            family: Family::V6,
            short: true,
            ..case("rping", Program::Rping { rounds: 10, size: 10_000 })
        },
        Case { short: true, ..case("send, 0 B to 8 MiB", probe(Scenario::Send, LONGEST, 0)) },
        Case { short: true, ..case("write, 0 B to 8 MiB", probe(Scenario::Write, LONGEST, 0)) },
        Case { short: true, ..case("read, 0 B to 8 MiB", probe(Scenario::Read, LONGEST, 0)) },
        Case { family: Family::V6, ..case("send, 0 B to 1 MiB", probe(Scenario::Send, 1 << 20, 0)) },
    ]
}

fn at_one_mtu(client: Side, mtu: u32) -> Vec<Case> {
    let case = |name, program| case(name, client, Work::Image(program), mtu);
    let violation = |name, scenario| case(name, probe(scenario, 4096, 0));
    // Linux waits 2.3 s for each response to a READ that was lost.
    let longest = |scenario| match (client, scenario) {
        (Side::Linux, Scenario::Read) => 1 << 16,
        _ => 1 << 20,
    };
    let lossy = |name, scenario, loss| Case { loss, ..case(name, probe(scenario, longest(scenario), 0)) };
    vec![
        Case { family: Family::LinkLocal, ..case("rping", Program::Rping { rounds: 3, size: 100 }) },
        Case { short: true, ..case("rdma_client", Program::RdmaClient) },
        Case { family: Family::V6, ..case("rdma_client", Program::RdmaClient) },
        case("shared receive queue, 8 connections", probe(Scenario::Srq, 1 << 16, 8)),
        Case { short: true, ..case("send with invalidate", probe(Scenario::Invalidate, 4096, 0)) },
        Case { short: true, ..case("reject", probe(Scenario::Reject, 4096, 0)) },
        Case { short: true, ..violation("write, wrong key", Scenario::BadKey) },
        violation("write, out of range", Scenario::BadRange),
        violation("write, no right", Scenario::NoWrite),
        violation("read, wrong key", Scenario::ReadKey),
        violation("read, out of range", Scenario::ReadRange),
        violation("read, no right", Scenario::NoRead),
        violation("send, too long", Scenario::TooLong),
        case("server disconnects", probe(Scenario::Leave, 4096, 0)),
        case("receive posted late", probe(Scenario::Rnr, 4096, 0)),
        Case { short: true, ..case("64 connections at once", probe(Scenario::Many, 4096, MANY)) },
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
    fn no_two_cases_have_one_title_or_one_capture() {
        let cases = all();
        for of in [Case::title, Case::file_name] {
            let names: BTreeSet<String> = cases.iter().map(of).collect();
            assert_eq!(names.len(), cases.len());
        }
    }

    #[test]
    fn the_guest_runs_the_other_side_of_each_case() {
        for case in all() {
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
