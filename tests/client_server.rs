// SPDX-License-Identifier: MIT OR Apache-2.0

//! The programs for Linux's tools, client and server, from one image to another. What they do against the
//! tools themselves is `cargo xtask interop`.

#![cfg(target_os = "linux")]

use std::{net::SocketAddr, time::Duration};

use device_sim::link::Faults;
use lab::{
    image,
    testbed::{Options, Testbed},
};
use ndis_sim::Keyword;
use ndk_consumer::protocols::{
    self, Outcome, Program,
    probe::{Plan, Scenario},
};

const PATIENCE: Duration = Duration::from_secs(10);

/// Runs the programs one after the other between two hosts; both halves have to see what they must, every request
/// has to complete, and the verifier has to be content.
fn converse(options: &Options, programs: &[Program]) -> Option<Vec<[Outcome; 2]>> {
    converse_on(options, [0, 1], programs)
}

/// The same, with the client and the server on these hosts.
fn converse_on(options: &Options, hosts: [usize; 2], programs: &[Program]) -> Option<Vec<[Outcome; 2]>> {
    let mut bed = Testbed::new(&image()?, options).expect("the image can be loaded");
    bed.start().expect("both drivers start");
    let told: Result<Vec<_>, String> = programs.iter().map(|program| one(&bed, hosts, program)).collect();
    bed.stop().expect("both drivers stop");
    let told = told.unwrap_or_else(|why| panic!("{why}"));
    let violations = bed.violations();
    assert!(violations.is_empty(), "{}", violations.join("\n"));
    Some(told)
}

fn one(bed: &Testbed, hosts: [usize; 2], program: &Program) -> Result<[Outcome; 2], String> {
    let [client, server] = hosts.map(|host| bed.machines()[host]);
    let (local, remote) =
        (SocketAddr::new(client.address(), 0), SocketAddr::new(server.address(), program.port()));
    let listening = bed.event();
    let serving = {
        let (listening, program) = (listening.clone(), program.clone());
        server.consumer("server", move |adapter| {
            let outcome = protocols::serve(adapter, &program, remote, PATIENCE, |_| listening.set());
            // Whoever waits for a listener that could not be made must not wait for ever.
            listening.set();
            outcome
        })
    };
    let asking = {
        let program = program.clone();
        client.consumer("client", move |adapter| {
            let _ = listening.wait(PATIENCE);
            protocols::client(adapter, &program, local, remote)
        })
    };
    let told = (asking.join(), serving.join());
    let (Ok(Ok(client)), Ok(Ok(server))) = &told else {
        let violations = bed.violations().join("\n");
        return Err(format!("{program:?}\nclient and server: {told:?}\n{violations}"));
    };
    for outcome in [client, server] {
        let total = outcome.stats.total();
        assert_eq!([total.outstanding(), outcome.stats.unexpected], [0; 2], "{program:?}");
    }
    Ok([client.clone(), server.clone()])
}

fn probe(scenario: Scenario, length: u32, count: u32) -> Program {
    Program::Probe(Plan { scenario, length, count })
}

#[test]
fn rping_and_the_messages_of_rdma_client_go_round() {
    let programs = [
        Program::Rping { rounds: 3, size: 100 },
        Program::Rping { rounds: 2, size: 10_000 },
        Program::RdmaClient,
    ];
    let Some(told) = converse(&Options::default(), &programs) else { return };
    assert!(told.iter().zip([3, 2, 1]).all(|(told, rounds)| told.iter().all(|side| side.rounds == rounds)));
}

#[test]
fn every_item_is_sent_written_and_read_at_both_mtus() {
    for path_mtu in [1024, 4096] {
        let programs = [Scenario::Send, Scenario::Write, Scenario::Read].map(|what| probe(what, 8 << 20, 1));
        let options = Options { path_mtu, ..Options::default() };
        if converse(&options, &programs).is_none() {
            return;
        }
    }
}

#[test]
fn what_the_server_refuses_is_an_error_on_both_sides() {
    let scenarios = Scenario::ALL.into_iter().filter(|scenario| scenario.is_violation());
    let mut programs: Vec<_> = scenarios.map(|scenario| probe(scenario, 4096, 1)).collect();
    programs.push(probe(Scenario::Reject, 0, 1));
    programs.push(probe(Scenario::Leave, 64, 1));
    programs.push(probe(Scenario::Invalidate, 256, 1));
    programs.push(probe(Scenario::Rnr, 64, 1));
    converse(&Options::default(), &programs);
}

#[test]
fn sixty_four_connections_live_at_once() {
    let programs = [probe(Scenario::Srq, 4097, 8), probe(Scenario::Many, 4097, 64)];
    converse(&Options::default(), &programs);
}

#[test]
fn threads_that_race_and_calls_that_pend_make_no_difference() {
    let keywords = vec![("NdkCreateCompletion", Keyword::Text("2".into()))];
    let programs = [
        Program::Rping { rounds: 3, size: 100 },
        probe(Scenario::Many, 4097, 16),
        probe(Scenario::Srq, 64, 16),
    ];
    converse(&Options { real_time: true, keywords, ..Options::default() }, &programs);
}

#[test]
fn items_arrive_over_a_wire_that_loses_two_percent() {
    let faults = Faults { loss: 0.02, ..Faults::NONE };
    let programs = [Scenario::Send, Scenario::Write, Scenario::Read].map(|what| probe(what, 1 << 20, 1));
    converse(&Options { faults, ..Options::default() }, &programs);
}

#[test]
fn a_host_speaks_with_itself() {
    let programs = [
        Program::Rping { rounds: 3, size: 10_000 },
        probe(Scenario::Write, 8 << 20, 1),
        probe(Scenario::Read, 1 << 20, 1),
        probe(Scenario::Many, 4097, 8),
        probe(Scenario::BadKey, 64, 1),
        probe(Scenario::Reject, 64, 1),
    ];
    for real_time in [false, true] {
        if converse_on(&Options { real_time, ..Options::default() }, [0, 0], &programs).is_none() {
            return;
        }
    }
}
