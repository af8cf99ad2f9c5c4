//! The programs for Linux's tools, both halves of each, between two providers linked natively.

#[expect(dead_code, reason = "shared with the other tests on this wire")]
mod pair;

use std::sync::mpsc::channel;
use std::time::Duration;

use ndk_consumer::Error;
use ndk_consumer::interop::probe::{Plan, Scenario};
use ndk_consumer::interop::{self, Outcome, Program};
use ndk_provider::Pending;

use pair::Pair;

const PATIENCE: Duration = Duration::from_secs(10);

type Told = Result<Outcome, Error>;

/// Runs both halves; what the server and what the client have to tell.
fn converse(pair: &Pair, program: &Program) -> (Told, Told) {
    pair.with_adapters(|[serving, asking]| {
        std::thread::scope(|scope| {
            let (ready, listening) = channel();
            let server = scope.spawn(move || {
                let ready = |address| ready.send(address).unwrap();
                interop::serve(serving, program, pair.address(0), PATIENCE, ready)
            });
            let remote = listening.recv().expect("the server listens");
            let asked = interop::client(asking, program, pair.address(1), remote);
            (server.join().unwrap(), asked)
        })
    })
}

/// Both halves see what they have to see, and every request has completed.
fn agree(pair: &Pair, program: &Program) -> [Outcome; 2] {
    let told = match converse(pair, program) {
        (Ok(server), Ok(client)) => [server, client],
        (server, client) => panic!("{program:?}\nserver: {server:#?}\nclient: {client:#?}"),
    };
    for outcome in &told {
        let total = outcome.books.total();
        assert_eq!([total.outstanding(), outcome.books.unexpected], [0; 2]);
    }
    told
}

fn probe(scenario: Scenario, length: u32, count: u32) -> Program {
    Program::Probe(Plan { scenario, length, count })
}

fn pair() -> Pair {
    Pair::new(Pending::Inline, 1500, 0)
}

#[test]
fn rping_goes_round() {
    let pair = pair();
    for size in [17, 64, 1024, 1025, 65535] {
        let told = agree(&pair, &Program::Rping { rounds: 5, size });
        assert_eq!(told.map(|outcome| (outcome.rounds, outcome.bytes)), [(5, 5 * u64::from(size)); 2]);
    }
}

#[test]
fn a_message_goes_each_way() {
    agree(&Pair::new(Pending::Pend, 1500, 0), &Program::Messages);
}

#[test]
fn every_item_is_sent_written_and_read() {
    let pair = Pair::new(Pending::Inline, 4200, 0);
    for scenario in [Scenario::Send, Scenario::Write, Scenario::Read] {
        let told = agree(&pair, &probe(scenario, 8 << 20, 1));
        assert_eq!(told.map(|outcome| outcome.rounds), [13; 2]);
    }
}

#[test]
fn items_arrive_though_two_percent_of_the_frames_are_lost() {
    let pair = Pair::new(Pending::Inline, 1500, 20_000);
    for scenario in [Scenario::Send, Scenario::Write, Scenario::Read] {
        agree(&pair, &probe(scenario, 1 << 20, 1));
    }
}

#[test]
fn a_refusal_arrives_in_the_servers_words() {
    agree(&pair(), &probe(Scenario::Reject, 0, 1));
}

#[test]
fn access_that_was_not_granted_is_an_error_on_both_sides() {
    let pair = pair();
    for scenario in [
        Scenario::BadKey,
        Scenario::BadRange,
        Scenario::ReadKey,
        Scenario::ReadRange,
        Scenario::NoWrite,
        Scenario::NoRead,
    ] {
        let [_, client] = agree(&pair, &probe(scenario, 4096, 1));
        assert_eq!(client.notes[0], "the request: STATUS_ACCESS_VIOLATION", "{scenario:?}");
    }
}

#[test]
fn a_message_too_long_is_an_error_on_both_sides() {
    let [server, client] = agree(&pair(), &probe(Scenario::TooLong, 1024, 1));
    assert_eq!(server.notes, ["the receive: STATUS_BUFFER_OVERFLOW"]);
    assert_eq!(client.notes[0], "the send: STATUS_REMOTE_RESOURCES");
}

#[test]
fn the_client_takes_back_the_key_it_was_lent() {
    for pending in [Pending::Inline, Pending::Pend] {
        let told = agree(&Pair::new(pending, 1500, 0), &probe(Scenario::Invalidate, 256, 1));
        let notes = told.map(|outcome| outcome.notes[0].clone());
        assert_eq!(
            notes,
            [
                "the key was invalidated with the message",
                "a write with the key it had: STATUS_ACCESS_VIOLATION"
            ]
        );
    }
}

#[test]
fn the_server_may_leave_first() {
    let [_, client] = agree(&pair(), &probe(Scenario::Leave, 1024, 1));
    assert_eq!(client.notes.len(), 1);
}

#[test]
fn a_receive_that_is_posted_late_is_waited_for() {
    agree(&pair(), &probe(Scenario::Rnr, 64, 1));
}

#[test]
fn many_connections_share_receives() {
    let told = agree(&pair(), &probe(Scenario::Srq, 4097, 8));
    assert_eq!(told.map(|outcome| (outcome.connections, outcome.rounds)), [(8, 80); 2]);
}

#[test]
fn sixty_four_connections_live_at_once() {
    let told = agree(&pair(), &probe(Scenario::Many, 4097, 64));
    assert_eq!(told.map(|outcome| (outcome.connections, outcome.rounds)), [(64, 64 * 20); 2]);
}

#[test]
fn both_sides_tell_how_far_they_came_when_the_wire_is_cut() {
    let pair = pair();
    let cut = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(300));
            pair.cut();
        });
        agree(&pair, &probe(Scenario::Hold, 4096, 0))
    });
    for outcome in cut {
        assert!(outcome.rounds > 0 && outcome.notes[0].contains("items"), "{outcome:?}");
    }
}

#[test]
fn a_server_that_waits_for_another_program_refuses() {
    let pair = pair();
    let mismatched = pair.with_adapters(|[serving, asking]| {
        std::thread::scope(|scope| {
            let (ready, listening) = channel();
            let pair = &pair;
            let server = scope.spawn(move || {
                let ready = |address| ready.send(address).unwrap();
                let program = probe(Scenario::Send, 64, 1);
                interop::serve(serving, &program, pair.address(0), PATIENCE, ready)
            });
            let remote = listening.recv().expect("the server listens");
            let asked = interop::client(asking, &probe(Scenario::Write, 64, 1), pair.address(1), remote);
            (server.join().unwrap(), asked)
        })
    });
    let (Err(server), Err(client)) = mismatched else { panic!("{mismatched:?}") };
    assert_eq!(client.to_string(), "connecting failed: STATUS_CONNECTION_REFUSED");
    assert_eq!(server.to_string(), "the peer breaks the protocol: not the request that was to come");
}
