// SPDX-License-Identifier: MIT OR Apache-2.0

//! The peers of the Linux tools, client and server, between two hosts with the driver. `cargo xtask interop` runs them
//! against the tools.

use std::{net::SocketAddr, time::Duration};

use lab::{
    image,
    testbed::{Options, Testbed},
};
use ndk_consumer::protocols::{
    self, Outcome, Program,
    probe::{Plan, Scenario},
};

pub const TIMEOUT: Duration = Duration::from_secs(10);

/// Runs the programs one after the other between two hosts. Both sides have to succeed, every request has to complete,
/// and the verifier must not find a violation.
pub fn run_programs(options: &Options, programs: &[Program]) -> Option<Vec<[Outcome; 2]>> {
    run_programs_on(options, [0, 1], programs)
}

/// The same as [`run_programs`], with the client and the server on `hosts`.
pub fn run_programs_on(
    options: &Options,
    hosts: [usize; 2],
    programs: &[Program],
) -> Option<Vec<[Outcome; 2]>> {
    let mut bed = Testbed::new(&image()?, options).expect("the image can be loaded");
    bed.start().expect("both drivers start");
    let outcomes: Result<Vec<_>, String> = programs.iter().map(|program| one(&bed, hosts, program)).collect();
    if let Err(error) = bed.stop() {
        panic!("both drivers stop: {error}\n{}", bed.violations().join("\n"));
    }
    let outcomes = outcomes.unwrap_or_else(|error| panic!("{error}"));
    let violations = bed.violations();
    assert!(violations.is_empty(), "{}", violations.join("\n"));
    Some(outcomes)
}

pub fn one(bed: &Testbed, hosts: [usize; 2], program: &Program) -> Result<[Outcome; 2], String> {
    let [client, server] = hosts.map(|host| bed.machines()[host]);
    let (local, remote) =
        (SocketAddr::new(client.address(), 0), SocketAddr::new(server.address(), program.port()));
    let listening = bed.event();
    let serving = {
        let (listening, program) = (listening.clone(), program.clone());
        server.consumer("server", move |adapter| {
            let outcome = protocols::serve(adapter, &program, remote, TIMEOUT, |_| listening.set());
            // Also if listening failed: the client must not wait.
            listening.set();
            outcome
        })
    };
    let connecting = {
        let program = program.clone();
        client.consumer("client", move |adapter| {
            let _ = listening.wait(TIMEOUT);
            protocols::client(adapter, &program, local, remote)
        })
    };
    let results = (connecting.join(), serving.join());
    let (Ok(Ok(client)), Ok(Ok(server))) = &results else {
        let violations = bed.violations().join("\n");
        return Err(format!("{program:?}\nclient and server: {results:?}\n{violations}"));
    };
    for outcome in [client, server] {
        let total = outcome.stats.total();
        assert_eq!([total.outstanding(), outcome.stats.unexpected], [0; 2], "{program:?}");
    }
    Ok([client.clone(), server.clone()])
}

pub fn probe(scenario: Scenario, length: u32, count: u32) -> Program {
    Program::Probe(Plan { scenario, length, count })
}
