// SPDX-License-Identifier: MIT OR Apache-2.0

//! Addresses and routes: IPv4 and IPv6, every scope, added and removed at run time. The hosts resolve each other by ARP
//! and neighbor discovery, through the miniport.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use lab::{
    image,
    machine::{Consumer, Machine},
    testbed::{Options, Testbed},
};
use ndis_sim::netio::Discovery;
use ndk_consumer::{
    Error,
    protocols::{
        self, Outcome, Program,
        probe::{Plan, Scenario},
    },
};

pub const TIMEOUT: Duration = Duration::from_secs(20);
pub const V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 0));
pub const ULA: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0));
pub const LINK: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0));

/// Returns options for two hosts with an address in each subnet, in this order.
pub fn options(subnets: &[IpAddr]) -> Options {
    let prefix = |&subnet: &IpAddr| (subnet, if subnet.is_ipv4() { 24 } else { 64 });
    let subnets = subnets.iter().map(prefix).collect();
    Options { subnets, discovery: Discovery::OnWire, ..Options::default() }
}

pub fn started(options: &Options) -> Option<Testbed> {
    let mut bed = Testbed::new(&image()?, options).expect("the image can be loaded");
    let outcome = bed.start();
    assert!(outcome.is_ok(), "both drivers start: {outcome:?}\n{}", bed.violations().join("\n"));
    Some(bed)
}

/// Stops both drivers. Fails if the verifier found a violation.
pub fn finish(mut bed: Testbed) {
    bed.stop().expect("both drivers stop");
    assert_eq!(bed.violations(), [""; 0]);
}

/// Returns the address of a machine in a subnet.
pub fn of(machine: &Machine, subnet: IpAddr) -> IpAddr {
    let number = u8::from(machine.host().name() == "beta") + 1;
    match subnet {
        IpAddr::V4(v4) => Ipv4Addr::from_bits(v4.to_bits() | u32::from(number)).into(),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() | u128::from(number)).into(),
    }
}

pub type Side = Consumer<Result<Outcome, Error>>;

/// Starts a program on both hosts: the server listens at `at`, the client of the first host connects from its address
/// in `subnet` to the server's.
pub fn begin(bed: &Testbed, program: &Program, at: Option<IpAddr>, subnet: IpAddr, port: u16) -> [Side; 2] {
    let [client, server] = bed.machines();
    let remote = SocketAddr::new(of(server, subnet), port);
    let local = SocketAddr::new(of(client, subnet), 0);
    let listen = SocketAddr::new(at.unwrap_or(remote.ip()), port);
    let listening = bed.event();
    let serving = {
        let (listening, program) = (listening.clone(), program.clone());
        server.consumer("server", move |adapter| {
            let outcome = protocols::serve(adapter, &program, listen, TIMEOUT, |_| listening.set());
            // Also if listening failed: the client must not wait.
            listening.set();
            outcome
        })
    };
    let program = program.clone();
    let connecting = client.consumer("client", move |adapter| {
        let _ = listening.wait(TIMEOUT);
        protocols::client(adapter, &program, local, remote)
    });
    [connecting, serving]
}

/// Waits for both sides of a program; both have to succeed.
pub fn succeed(sides: [Side; 2]) {
    let [client, server] = sides.map(|side| side.join().expect("the host lives"));
    assert!(client.is_ok() && server.is_ok(), "client: {client:?}\nserver: {server:?}");
}

pub fn probe(scenario: Scenario, length: u32, count: u32) -> Program {
    Program::Probe(Plan { scenario, length, count })
}
