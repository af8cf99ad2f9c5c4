// SPDX-License-Identifier: MIT OR Apache-2.0

//! The peers of the Linux tools, client and server, between two hosts with the driver. `cargo xtask interop` runs them
//! against the tools.

use std::time::Duration;

use device_sim::link::Faults;
use lab::testbed::Options;
use ndis_sim::Keyword;
use ndk_consumer::protocols::{Program, probe::Scenario};
use nt_sim::host::TimerResolution;
use support::client_server::{probe, run_programs, run_programs_on};

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
