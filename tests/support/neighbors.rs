// SPDX-License-Identifier: MIT OR Apache-2.0

//! The driver's requests to the IP stack, which it may have to wait for: link addresses of neighbors, and notifications of address
//! changes.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use lab::{
    image,
    machine::{Consumer, Machine},
    testbed::{Options, Testbed},
};
use ndis_sim::netio::Discovery;
use ndk_abi::nt::STATUS_HOST_UNREACHABLE;
use ndk_consumer::{
    Error, Status,
    protocols::{self, Outcome, Program},
};

/// Port of the servers.
pub const PORT: u16 = 7471;
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// Time after which the IP stack gives up a neighbor that does not answer.
pub const RESOLUTION: Duration = Duration::from_secs(3);

pub fn loaded() -> Option<Testbed> {
    let options = Options { discovery: Discovery::OnWire, ..Options::default() };
    Some(Testbed::new(&image()?, &options).expect("the image can be loaded"))
}

pub fn started() -> Option<Testbed> {
    let mut bed = loaded()?;
    bed.start().expect("both drivers start");
    Some(bed)
}

pub fn finish(mut bed: Testbed) {
    let stopped = bed.stop();
    assert_eq!(bed.violations(), [""; 0]);
    stopped.expect("both drivers stop");
}

pub fn wait(bed: &Testbed, time: Duration) {
    let _ = bed.event().wait(time);
}

pub type Side = Consumer<Result<Outcome, Error>>;

/// Connects a client of `machine` to `remote`.
pub fn connect(machine: &Machine, remote: IpAddr) -> Side {
    let (local, remote) = (SocketAddr::new(machine.address(), 0), SocketAddr::new(remote, PORT));
    machine.consumer("client", move |adapter| protocols::client(adapter, &Program::RdmaClient, local, remote))
}

/// Connects a client to an address that no host has.
pub fn connect_to_no_host(machine: &Machine, number: u8) -> Side {
    connect(machine, Ipv4Addr::new(10, 0, 0, 100 + number).into())
}

/// Waits for a client of [`connect`].
pub fn serve(bed: &Testbed, machine: &Machine) -> Side {
    let (listening, local) = (bed.event(), SocketAddr::new(machine.address(), PORT));
    let serving = {
        let listening = listening.clone();
        machine.consumer("server", move |adapter| {
            protocols::serve(adapter, &Program::RdmaClient, local, TIMEOUT, |_| listening.set())
        })
    };
    assert!(listening.wait(TIMEOUT));
    serving
}

pub fn is_unreachable(side: Side) -> bool {
    let outcome = side.join().expect("the host lives");
    matches!(outcome, Err(Error::Connect(Status(STATUS_HOST_UNREACHABLE))))
}
