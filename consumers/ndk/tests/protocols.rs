// SPDX-License-Identifier: MIT OR Apache-2.0

//! Client and server of each program, between two natively linked providers on a simulated network.

use std::sync::mpsc::channel;
use std::time::Duration;

use ndk_consumer::Error;
use ndk_consumer::protocols::probe::{Plan, Scenario};
use ndk_consumer::protocols::{self, Outcome, Program};
use ndk_provider::CreateCompletion;

use crate::two_hosts::TwoHosts;

const TIMEOUT: Duration = Duration::from_secs(10);

type RunResult = Result<Outcome, Error>;

/// Runs both sides; returns the results of server and client.
fn run(hosts: &TwoHosts, program: &Program) -> (RunResult, RunResult) {
    hosts.with_adapters(|[serving, connecting]| {
        std::thread::scope(|scope| {
            let (ready, listening) = channel();
            let server = scope.spawn(move || {
                let ready = |address| ready.send(address).unwrap();
                protocols::serve(serving, program, hosts.address(0), TIMEOUT, ready)
            });
            let remote = listening.recv().expect("the server listens");
            let connected = protocols::client(connecting, program, hosts.address(1), remote);
            (server.join().unwrap(), connected)
        })
    })
}

/// Runs both sides and checks that they succeed and that every request has completed.
fn succeed(hosts: &TwoHosts, program: &Program) -> [Outcome; 2] {
    let outcomes = match run(hosts, program) {
        (Ok(server), Ok(client)) => [server, client],
        (server, client) => panic!("{program:?}\nserver: {server:#?}\nclient: {client:#?}"),
    };
    for outcome in &outcomes {
        let total = outcome.stats.total();
        assert_eq!([total.outstanding(), outcome.stats.unexpected], [0; 2]);
    }
    outcomes
}

fn probe(scenario: Scenario, length: u32, count: u32) -> Program {
    Program::Probe(Plan { scenario, length, count })
}

fn two_hosts() -> TwoHosts {
    TwoHosts::new(CreateCompletion::Inline, 1500, 0)
}

#[test]
fn rping_copies_texts_of_all_sizes() {
    let hosts = two_hosts();
    for size in [17, 64, 1024, 1025, 65535] {
        let outcomes = succeed(&hosts, &Program::Rping { rounds: 5, size });
        assert_eq!(outcomes.map(|outcome| (outcome.rounds, outcome.bytes)), [(5, 5 * u64::from(size)); 2]);
    }
}

#[test]
fn rdma_client_and_server_exchange_messages() {
    succeed(&TwoHosts::new(CreateCompletion::Pend, 1500, 0), &Program::RdmaClient);
}

#[test]
fn items_of_all_sizes_are_sent_written_and_read() {
    let hosts = TwoHosts::new(CreateCompletion::Inline, 4200, 0);
    for scenario in [Scenario::Send, Scenario::Write, Scenario::Read] {
        let outcomes = succeed(&hosts, &probe(scenario, 8 << 20, 1));
        assert_eq!(outcomes.map(|outcome| outcome.rounds), [13; 2]);
    }
}

#[test]
fn items_arrive_with_two_percent_frame_loss() {
    let hosts = TwoHosts::new(CreateCompletion::Inline, 1500, 20_000);
    for scenario in [Scenario::Send, Scenario::Write, Scenario::Read] {
        succeed(&hosts, &probe(scenario, 1 << 20, 1));
    }
}

#[test]
fn rejection_carries_the_private_data_of_the_server() {
    succeed(&two_hosts(), &probe(Scenario::Reject, 0, 1));
}

#[test]
fn invalid_access_fails_on_both_sides() {
    let hosts = two_hosts();
    for scenario in [
        Scenario::BadKey,
        Scenario::BadRange,
        Scenario::ReadKey,
        Scenario::ReadRange,
        Scenario::NoWrite,
        Scenario::NoRead,
    ] {
        let [_, client] = succeed(&hosts, &probe(scenario, 4096, 1));
        assert_eq!(client.notes[0], "the request: STATUS_ACCESS_VIOLATION", "{scenario:?}");
    }
}

#[test]
fn message_longer_than_its_receive_fails_on_both_sides() {
    let [server, client] = succeed(&two_hosts(), &probe(Scenario::TooLong, 1024, 1));
    assert_eq!(server.notes, ["the receive: STATUS_BUFFER_OVERFLOW"]);
    assert_eq!(client.notes[0], "the send: STATUS_REMOTE_RESOURCES");
}

#[test]
fn client_invalidates_the_key_of_the_server() {
    for pending in [CreateCompletion::Inline, CreateCompletion::Pend] {
        let outcomes = succeed(&TwoHosts::new(pending, 1500, 0), &probe(Scenario::Invalidate, 256, 1));
        let notes = outcomes.map(|outcome| outcome.notes[0].clone());
        assert_eq!(
            notes,
            [
                "the key was invalidated with the message",
                "a write with the invalidated key: STATUS_ACCESS_VIOLATION"
            ]
        );
    }
}

#[test]
fn server_may_disconnect_first() {
    let [_, client] = succeed(&two_hosts(), &probe(Scenario::Leave, 1024, 1));
    assert_eq!(client.notes.len(), 1);
}

#[test]
fn late_receive_succeeds_after_rnr_naks() {
    succeed(&two_hosts(), &probe(Scenario::Rnr, 64, 1));
}

#[test]
fn eight_connections_share_a_receive_queue() {
    let outcomes = succeed(&two_hosts(), &probe(Scenario::Srq, 4097, 8));
    assert_eq!(outcomes.map(|outcome| (outcome.connections, outcome.rounds)), [(8, 80); 2]);
}

#[test]
fn sixty_four_connections_work_concurrently() {
    let outcomes = succeed(&two_hosts(), &probe(Scenario::Many, 4097, 64));
    assert_eq!(outcomes.map(|outcome| (outcome.connections, outcome.rounds)), [(64, 64 * 20); 2]);
}

#[test]
fn both_sides_report_their_progress_after_a_link_failure() {
    let hosts = two_hosts();
    let cut = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(300));
            hosts.cut();
        });
        succeed(&hosts, &probe(Scenario::Hold, 4096, 0))
    });
    for outcome in cut {
        assert!(outcome.rounds > 0 && outcome.notes[0].contains("items"), "{outcome:?}");
    }
}

#[test]
fn server_rejects_the_client_of_another_scenario() {
    let hosts = two_hosts();
    let mismatched = hosts.with_adapters(|[serving, connecting]| {
        std::thread::scope(|scope| {
            let (ready, listening) = channel();
            let hosts = &hosts;
            let server = scope.spawn(move || {
                let ready = |address| ready.send(address).unwrap();
                let program = probe(Scenario::Send, 64, 1);
                protocols::serve(serving, &program, hosts.address(0), TIMEOUT, ready)
            });
            let remote = listening.recv().expect("the server listens");
            let connected =
                protocols::client(connecting, &probe(Scenario::Write, 64, 1), hosts.address(1), remote);
            (server.join().unwrap(), connected)
        })
    });
    let (Err(server), Err(client)) = mismatched else { panic!("{mismatched:?}") };
    assert_eq!(client.to_string(), "cannot connect: STATUS_CONNECTION_REFUSED");
    assert_eq!(server.to_string(), "the peer violated the protocol: unexpected connection request");
}
