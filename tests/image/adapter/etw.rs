// SPDX-License-Identifier: MIT OR Apache-2.0

//! The trace to ETW on the image: the simulated kernel reads the events back, and refuses malformed ones.

use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

use device_sim::Quirks;
use lab::{
    testbed::{Options, Testbed},
    trace::{self, TracedEvent},
};
use ndk_abi::{ndis::OID_GEN_VENDOR_ID, nt::STATUS_NO_MEMORY};
use ndk_consumer::transfer;
use nt_sim::nt::trace_sessions::Session;
use support::{
    bed::{finish, miniport, started, started_with},
    copying::{copy, try_copy},
    traces::send_to_unknown,
};
use viordma_inf::tracing::{keywords, table::ROWS};

fn traced(session: Session) -> Option<Testbed> {
    started_with(&Options { trace: Some(session), ..Options::default() })
}

fn names(events: &[TracedEvent]) -> BTreeSet<&str> {
    events.iter().map(TracedEvent::name).collect()
}

fn of<'a>(events: &'a [TracedEvent], host: &str, name: &str) -> Vec<&'a TracedEvent> {
    events.iter().filter(|event| event.host == host && event.name() == name).collect()
}

#[test]
fn a_connection_is_traced_from_request_to_end_with_addresses_and_one_activity() {
    let Some(mut bed) = traced(trace::ORDINARY) else { return };
    for end in try_copy(&bed, 1 << 16, |_| {}) {
        end.expect("the data is copied");
    }
    bed.stop().expect("both drivers stop");
    let events = bed.trace();
    for (host, local, remote) in [("alpha", "10.0.0.1:", "10.0.0.2:"), ("beta", "10.0.0.2:", "10.0.0.1:")] {
        let changes = of(&events, host, "ConnectionChanged");
        assert!(changes.iter().all(|change| {
            change.field("Local").starts_with(local) && change.field("Remote").starts_with(remote)
        }));
        assert_eq!(changes.last().unwrap().field("To"), "TimeWait", "{changes:?}");
        let queue_pairs = of(&events, host, "QueuePairChanged");
        let activity = queue_pairs[0].event.activity.expect("a connection has an activity").to_u128();
        let of_queue_pair = changes.iter().filter(|change| change.field("QueuePair") != "0");
        for event in of_queue_pair.chain(&queue_pairs) {
            assert_eq!(event.event.activity.map(|activity| activity.to_u128()), Some(activity), "{event:?}");
        }
        assert_eq!(of(&events, host, "QueuePairFlushed").len(), 1);
        let states: Vec<_> = queue_pairs.iter().map(|event| event.field("To")).collect();
        assert_eq!(states, ["Rtr", "Rts", "Error"]);
        assert_eq!(of(&events, host, "NdkAdapterOpened").len(), 1);
        assert_eq!(of(&events, host, "NdkAdapterClosed").len(), 1);
        let adapter: Vec<_> =
            of(&events, host, "AdapterChanged").iter().map(|event| event.field("Change")).collect();
        assert_eq!(adapter.first().map(String::as_str), Some("started"));
        assert_eq!(adapter.last().map(String::as_str), Some("halt"));
        assert!(!of(&events, host, "OidCompleted").is_empty());
    }
    let steps: Vec<_> = of(&events, "alpha", "ConnectionChanged")
        .iter()
        .map(|event| (event.field("From"), event.field("To")))
        .collect();
    let expected = [("Idle", "ReqSent"), ("ReqSent", "RepReceived"), ("RepReceived", "Established")];
    assert_eq!(steps[..3], expected.map(|(from, to)| (from.to_owned(), to.to_owned())));
    finish(bed);
}

#[test]
fn a_refused_connection_is_traced_on_both_sides_with_its_reason() {
    let Some(bed) = traced(Session::ALL) else { return };
    let [client, server] = bed.machines();
    let (local, address) = (SocketAddr::new(client.address(), 0), SocketAddr::new(server.address(), 5445));
    let connecting = client.consumer("client", move |adapter| {
        let data = transfer::Generated { seed: 0, bytes: 1 };
        transfer::copy(adapter, &transfer::Options::default(), local, address, "data", &data, &|_| {})
            .map(drop)
    });
    connecting.join().expect("the client ends").expect_err("there is no listener");
    let events = bed.trace();
    let only = |host, name| match of(&events, host, name)[..] {
        [event] => event.sentence(),
        _ => panic!("{name}: {events:?}"),
    };
    let refused = only("alpha", "ConnectionRefused");
    assert!(refused.ends_with("refused, invalid service id (ReceiveRej)"), "{refused}");
    let refused = only("beta", "RequestRefused");
    assert!(refused.ends_with("refused: invalid service id"), "{refused}");
    assert_eq!(only("beta", "MessageIgnored"), "message of connection management ignored: cm_refused");
    finish(bed);
}

#[test]
fn a_dropped_frame_is_traced_and_its_sequence_number_only_if_the_session_names_that_keyword() {
    let sessions = [
        (Session::ALL, false),
        (Session { level: 5, any: keywords::DROP, all: 0 }, false),
        (Session { level: 5, any: keywords::DROP | keywords::SEQUENCE, all: 0 }, true),
    ];
    for (session, has_sequence) in sessions {
        let Some(bed) = traced(session) else { return };
        send_to_unknown(&bed, 7..8);
        let events = bed.trace();
        let dropped = of(&events, "beta", "FrameDropped");
        assert_eq!(dropped.len(), 1, "{events:?}");
        assert_eq!(dropped[0].field("Reason"), "drop_no_qp");
        assert_eq!(dropped[0].field("QueuePair"), 0x12_3456.to_string());
        let numbers: Vec<_> =
            of(&events, "beta", "SequenceNumber").iter().map(|event| event.field("Psn")).collect();
        assert_eq!(numbers, if has_sequence { vec!["7".to_owned()] } else { Vec::new() });
        let others = events.iter().filter(|event| event.event.keyword & session.any == 0).count();
        assert_eq!(others, 0);
        finish(bed);
    }
}

#[test]
fn losses_are_traced_as_retransmissions_and_without_a_session_nothing_is() {
    let faults = device_sim::link::Faults { loss: 0.02, ..device_sim::link::Faults::NONE };
    let session = Session { level: 4, any: keywords::RETRANSMISSION, all: 0 };
    let options = Options { trace: Some(session), faults, seed: 3, ..Options::default() };
    let Some(mut bed) = started_with(&options) else { return };
    copy(&bed);
    bed.stop().expect("both drivers stop");
    let events = bed.trace();
    let traced = events.iter().filter(|event| event.name() == "Retransmitted").count() as u64;
    assert!(traced > 0);
    assert_eq!(traced, bed.counters()["retransmissions"]);
    assert!(names(&events).is_subset(&BTreeSet::from(["Retransmitted", "TimedOut"])));
    finish(bed);

    let Some(bed) = started_with(&Options { trace: None, ..options }) else { return };
    copy(&bed);
    assert!(bed.trace().is_empty());
    finish(bed);
}

#[test]
fn a_shutdown_is_traced() {
    let Some(bed) = traced(trace::ORDINARY) else { return };
    miniport(bed.machines()[0]).shut_down().unwrap();
    let events = bed.trace();
    let changes = of(&events, "alpha", "AdapterChanged");
    assert_eq!(changes.last().expect("it has started").field("Change"), "shutdown");
    finish(bed);
}

#[test]
fn each_ndk_object_is_traced_from_creation_to_its_end() {
    let Some(mut bed) = traced(Session { level: 5, any: keywords::NDK, all: 0 }) else { return };
    copy(&bed);
    bed.stop().expect("both drivers stop");
    let events = bed.trace();
    for host in ["alpha", "beta"] {
        let changes = of(&events, host, "NdkObjectChanged");
        let mut open = std::collections::BTreeMap::new();
        let mut kinds = BTreeSet::new();
        for change in changes {
            let object = (change.field("Object"), change.field("Address"));
            kinds.insert(object.0.clone());
            let expected = match open.get(&object).map(String::as_str) {
                None => "created",
                Some("created") => "closing",
                _ => "closed",
            };
            assert_eq!(change.field("Change"), expected, "{object:?}");
            if expected == "closed" {
                open.remove(&object)
            } else {
                open.insert(object, expected.to_owned())
            };
        }
        assert!(open.is_empty(), "{host}: {open:?}");
        for kind in ["queue pair", "completion queue", "protection domain", "memory region", "connector"] {
            assert!(kinds.contains(kind), "{host}: {kinds:?}");
        }
    }
    finish(bed);
}

#[test]
fn commands_that_take_the_device_long_are_traced_with_their_time() {
    let quirks = Quirks { command_time: Duration::from_secs(1), ..Quirks::default() };
    let session = Session { level: 4, any: keywords::DEVICE, all: 0 };
    let options = Options { trace: Some(session), quirks, ..Options::default() };
    let Some(bed) = started_with(&options) else { return };
    let _ = bed.event().wait(Duration::from_secs(30));
    let events = bed.trace();
    let waits = of(&events, "alpha", "DeviceWaited");
    let filter = waits.iter().find(|wait| wait.field("Wait") == "commands for the receive filter");
    let filter = filter.unwrap_or_else(|| panic!("{events:?}"));
    assert!(filter.field("Milliseconds").parse::<u32>().unwrap() >= 1000, "{filter:?}");
    assert!(of(&events, "beta", "DeviceWaited").is_empty(), "a device that answers at once");
    finish(bed);
}

/// Sessions begin and end while the driver runs.
#[test]
fn a_session_that_starts_later_gets_the_events_from_then_on_until_it_ends() {
    let Some(bed) = started(&[]) else { return };
    let machine = bed.machines()[1];
    let query = || miniport(machine).query(OID_GEN_VENDOR_ID, 4).map(drop).unwrap();
    let on_host = |run: fn(&nt_sim::Host)| {
        let host = machine.host().clone();
        machine.host().spawn("trace session", move || run(&host)).join().unwrap();
    };
    query();
    on_host(|host| host.start_trace(trace::provider(), Session { level: 0, any: 0, all: 0 }));
    query();
    on_host(|host| host.stop_trace(trace::provider()));
    query();
    let events = bed.trace();
    assert_eq!(names(&events), BTreeSet::from(["OidCompleted"]));
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].sentence(), format!("query of OID {OID_GEN_VENDOR_ID:#x}: status 0x00000000"));
    finish(bed);
}

#[test]
fn a_registration_that_is_refused_is_an_event_and_the_driver_works() {
    let Some(image) = lab::image() else { return };
    let mut bed = Testbed::new(&image, &Options { trace: Some(Session::ALL), ..Options::default() }).unwrap();
    // The first allocation of `DriverEntry`.
    bed.machines()[1].host().low_resources.fail_nth(0);
    bed.start().expect("both drivers start");
    let log = bed.machines()[1].event_log();
    let refused: Vec<_> = log.iter().filter(|entry| entry.code & 0xFFFF == 50).collect();
    assert_eq!(refused.len(), 1, "{log:?}");
    assert_eq!(refused[0].data[0], STATUS_NO_MEMORY.cast_unsigned());
    copy(&bed);
    let events = bed.trace();
    assert!(events.iter().all(|event| event.host == "alpha") && !events.is_empty());
    finish(bed);
}

/// Each event that can be had without a fault of the device occurs in some test of the image; others are in the table.
#[test]
fn each_traced_event_is_one_of_the_table_with_its_level_and_keyword() {
    let Some(mut bed) = traced(Session::ALL) else { return };
    copy(&bed);
    bed.stop().expect("both drivers stop");
    for event in bed.trace() {
        let row = ROWS.iter().find(|row| row.name == event.name()).expect("a row of the table");
        assert_eq!((event.event.level, event.event.keyword), (row.level as u8, row.keyword));
        assert!(!event.sentence().contains('{'), "{}", event.sentence());
    }
    finish(bed);
}
