// SPDX-License-Identifier: MIT OR Apache-2.0

//! The peers of the Linux tools, client and server, between two hosts with the driver. `cargo xtask interop` runs them
//! against the tools.

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
use nt_sim::host::TimerResolution;

const TIMEOUT: Duration = Duration::from_secs(10);

/// Runs the programs one after the other between two hosts. Both sides have to succeed, every request has to complete,
/// and the verifier must not find a violation.
fn run_programs(options: &Options, programs: &[Program]) -> Option<Vec<[Outcome; 2]>> {
    run_programs_on(options, [0, 1], programs)
}

/// The same as [`run_programs`], with the client and the server on `hosts`.
fn run_programs_on(options: &Options, hosts: [usize; 2], programs: &[Program]) -> Option<Vec<[Outcome; 2]>> {
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

fn one(bed: &Testbed, hosts: [usize; 2], program: &Program) -> Result<[Outcome; 2], String> {
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

fn probe(scenario: Scenario, length: u32, count: u32) -> Program {
    Program::Probe(Plan { scenario, length, count })
}

#[test]
fn rping_and_rdma_client_complete() {
    let programs = [
        Program::Rping { rounds: 3, size: 100 },
        Program::Rping { rounds: 2, size: 10_000 },
        Program::RdmaClient,
    ];
    let Some(outcomes) = run_programs(&Options::default(), &programs) else { return };
    assert!(
        outcomes.iter().zip([3, 2, 1]).all(|(sides, rounds)| sides.iter().all(|side| side.rounds == rounds))
    );
}

#[test]
fn every_message_size_is_sent_written_and_read_with_both_mtus() {
    for path_mtu in [1024, 4096] {
        let programs = [Scenario::Send, Scenario::Write, Scenario::Read].map(|what| probe(what, 8 << 20, 1));
        let options = Options { path_mtu, ..Options::default() };
        if run_programs(&options, &programs).is_none() {
            return;
        }
    }
}

#[test]
fn violations_and_rejections_are_errors_on_both_sides() {
    let scenarios = Scenario::ALL.into_iter().filter(|scenario| scenario.is_violation());
    let mut programs: Vec<_> = scenarios.map(|scenario| probe(scenario, 4096, 1)).collect();
    programs.push(probe(Scenario::Reject, 0, 1));
    programs.push(probe(Scenario::Leave, 64, 1));
    programs.push(probe(Scenario::Invalidate, 256, 1));
    programs.push(probe(Scenario::Rnr, 64, 1));
    run_programs(&Options::default(), &programs);
}

#[test]
fn sixty_four_connections_run_at_once() {
    let programs = [probe(Scenario::Srq, 4097, 8), probe(Scenario::Many, 4097, 64)];
    run_programs(&Options::default(), &programs);
}

#[test]
fn programs_complete_with_racing_threads_and_pending_calls() {
    let keywords = vec![("NdkCreateCompletion", Keyword::Text("2".into()))];
    let programs = [
        Program::Rping { rounds: 3, size: 100 },
        probe(Scenario::Many, 4097, 16),
        probe(Scenario::Srq, 64, 16),
    ];
    run_programs(&Options { real_time: true, keywords, ..Options::default() }, &programs);
}

#[test]
fn messages_arrive_over_a_link_with_two_percent_loss() {
    let faults = Faults { loss: 0.02, ..Faults::NONE };
    let programs = [Scenario::Send, Scenario::Write, Scenario::Read].map(|what| probe(what, 1 << 20, 1));
    run_programs(&Options { faults, ..Options::default() }, &programs);
}

#[test]
fn host_connects_to_itself() {
    let programs = [
        Program::Rping { rounds: 3, size: 10_000 },
        probe(Scenario::Write, 8 << 20, 1),
        probe(Scenario::Read, 1 << 20, 1),
        probe(Scenario::Many, 4097, 8),
        probe(Scenario::BadKey, 64, 1),
        probe(Scenario::Reject, 64, 1),
    ];
    for real_time in [false, true] {
        if run_programs_on(&Options { real_time, ..Options::default() }, [0, 0], &programs).is_none() {
            return;
        }
    }
}

/// With Windows' clock: timers and timeouts expire every 15.625 ms, high-resolution timers every millisecond.
#[test]
fn messages_arrive_with_the_timers_of_windows() {
    let programs =
        [Scenario::Send, Scenario::Write, Scenario::Read].map(|scenario| probe(scenario, 10_000, 50));
    for loss in [0.0, 0.02] {
        let options = Options {
            timers: TimerResolution::Windows { high: Duration::from_millis(1) },
            faults: Faults { loss, ..Faults::NONE },
            ..Options::default()
        };
        if run_programs(&options, &programs).is_none() {
            return;
        }
    }
}
