// SPDX-License-Identifier: MIT OR Apache-2.0

//! Events that an engine traces.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

use roce::{
    CompletionStatus, ConnectionChange, DropReason, Ends, Ignored, QpState, Trace, TraceEvent, TraceRecord,
};
use roce_wire::{Packet, Psn, Qpn, cm::RejReason};

use crate::two_hosts::{Options, TwoHosts, pattern};

/// Declares options whose engines report to a list, by side.
macro_rules! traced {
    ($options:ident, $records:ident) => {
        static $records: Mutex<Vec<(u64, TraceRecord)>> = Mutex::new(Vec::new());
        let $options = Options {
            config: |config| {
                let sink = |side, record: &TraceRecord| $records.lock().unwrap().push((side, *record));
                config.trace = Some(Trace { sink, context: config.ca_guid & 0xFF });
            },
            ..Options::default()
        };
    };
}

#[test]
fn changes_of_state_are_reported_with_the_queue_pair_and_its_oldest_packet() {
    traced!(options, RECORDS);
    let mut hosts = TwoHosts::connected(options);
    let source = hosts.sides[0].source(b"x");
    let target = hosts.sides[1].shared(1);
    for context in 0..3 {
        hosts.sides[0].write(context, &[source.all()], &target, 0);
    }
    hosts.run_for(Duration::from_millis(10));
    hosts.sides[0].engine.flush(&hosts.sides[0].qp);
    let qpn = hosts.sides[0].qp.qpn();
    let records = RECORDS.lock().unwrap().clone();
    let is_connection = |event| matches!(event, TraceEvent::Connection(_));
    let of_side = records.iter().filter(|(side, record)| *side == 1 && !is_connection(record.event));
    let of_side: Vec<_> = of_side.map(|(_, record)| *record).collect();
    let [known, established, failed, flushed] = of_side[..] else { panic!("{of_side:?}") };
    assert!(of_side.iter().all(|record| record.qpn == qpn));
    assert_eq!(known.event, TraceEvent::State { from: QpState::Init, to: QpState::Rtr });
    assert_eq!(established.event, TraceEvent::State { from: QpState::Rtr, to: QpState::Rts });
    assert_eq!(failed.event, TraceEvent::State { from: QpState::Rts, to: QpState::Error });
    assert_eq!(failed.psn, established.psn.next().next().next(), "three packets were acknowledged");
    assert_eq!(flushed.event, TraceEvent::Flushed("closed or disconnected"));
    let text = format!("QP {:#08x}, PSN {:#08x}: Rts to Error", qpn.value(), failed.psn.value());
    assert_eq!(failed.to_string(), text);
}

#[test]
fn each_retransmission_and_timeout_is_reported() {
    traced!(options, RECORDS);
    let mut hosts = TwoHosts::connected(Options { loss: 20, ..options });
    let (source, target) = (hosts.sides[0].source(&pattern(1 << 20, 3)), hosts.sides[1].shared(1 << 20));
    hosts.capture = Some(Vec::new());
    hosts.sides[0].write(1, &[source.all()], &target, 0);
    hosts.run_until("the write", |hosts| !hosts.sides[0].cq.is_empty());
    assert_eq!(hosts.sides[0].outcomes(), [(1, CompletionStatus::Success)]);
    // A PSN that is sent again is one that was sent before.
    let mut sent = std::collections::HashSet::new();
    let frames = hosts.capture.take().unwrap();
    let packets =
        frames.iter().filter(|(from, _)| *from == 0).map(|(_, frame)| Packet::parse(frame).unwrap());
    let again: Vec<_> =
        packets.map(|packet| packet.bth().psn()).filter(|psn| !sent.insert(psn.value())).collect();
    let records = RECORDS.lock().unwrap().clone();
    let reported = |event: TraceEvent| -> Vec<Psn> {
        let of_side = records.iter().filter(|(side, record)| *side == 1 && record.event == event);
        of_side.map(|(_, record)| record.psn).collect()
    };
    assert!(!again.is_empty());
    assert_eq!(reported(TraceEvent::Retransmitted), again);
    assert_eq!(reported(TraceEvent::TimedOut).len() as u64, hosts.sides[0].stat("timeouts"));
}

#[test]
fn dropped_and_ignored_packets_are_reported_with_their_reason() {
    traced!(options, RECORDS);
    let mut hosts = TwoHosts::new(options);
    hosts.capture = Some(Vec::new());
    hosts.connect(b"");
    hosts.run_for(Duration::from_millis(1));
    let req = hosts.capture.take().unwrap().remove(0).1;
    let psn = Packet::parse(&req).unwrap().bth().psn();
    RECORDS.lock().unwrap().clear();
    let bob = &hosts.sides[1].engine;
    // There is no listener.
    bob.first_shard().handle_frame(hosts.now, &req);
    let mut corrupted = req.clone();
    *corrupted.last_mut().unwrap() ^= 1;
    bob.first_shard().handle_frame(hosts.now, &corrupted);
    bob.first_shard().handle_frame(hosts.now, &req[..req.len() - 20]);
    let record = |qpn, psn, event| (2, TraceRecord { qpn, psn, event });
    let ends =
        Ends { local: SocketAddr::new(hosts.sides[1].ip, 0), remote: SocketAddr::new(hosts.sides[0].ip, 0) };
    let dropped = |reason| TraceEvent::Dropped(DropReason::Malformed(reason));
    let expected = [
        record(Qpn::GSI, psn, TraceEvent::Refused { reason: RejReason::INVALID_SERVICE_ID, ends }),
        record(Qpn::GSI, psn, TraceEvent::Ignored(Ignored::Refused)),
        record(Qpn::GSI, psn, dropped(roce_wire::DropReason::Icrc)),
        record(Qpn::default(), Psn::default(), dropped(roce_wire::DropReason::Truncated)),
    ];
    assert_eq!(*RECORDS.lock().unwrap(), expected);
}

#[test]
fn a_connection_is_reported_from_its_request_to_its_end_with_both_addresses() {
    traced!(options, RECORDS);
    let mut hosts = TwoHosts::connected(options);
    hosts.run_for(Duration::from_millis(1));
    let conn = hosts.sides[0].conn.unwrap();
    hosts.sides[0].engine.connections().disconnect(hosts.now, conn).unwrap();
    hosts.run_for(Duration::from_millis(1));
    let conn = hosts.sides[1].conn.unwrap();
    hosts.sides[1].engine.connections().disconnect(hosts.now, conn).unwrap();
    hosts.run_for(Duration::from_secs(10));
    let records = RECORDS.lock().unwrap().clone();
    let changes = |of: u64| -> Vec<ConnectionChange> {
        let change = |record: &TraceRecord| match record.event {
            TraceEvent::Connection(change) => Some(change),
            _ => None,
        };
        records.iter().filter(|(side, _)| *side == of).filter_map(|(_, record)| change(record)).collect()
    };
    let steps = |of: u64| -> Vec<_> {
        changes(of).iter().map(|change| (change.from, change.input, change.to)).collect()
    };
    assert_eq!(
        steps(1),
        [
            ("Idle", "Connect", "ReqSent"),
            ("ReqSent", "ReceiveRep", "RepReceived"),
            ("RepReceived", "Complete", "Established"),
            ("Established", "Disconnect", "DreqSent"),
            ("DreqSent", "ReceiveDrep", "TimeWait"),
            ("TimeWait", "Expire", "Idle"),
        ]
    );
    assert_eq!(steps(2)[..2], [("Idle", "ReceiveReq", "ReqReceived"), ("ReqReceived", "Accept", "RepSent")]);
    for (of, here, there) in [(1, 0, 1), (2, 1, 0)] {
        for change in changes(of) {
            let ends = [change.ends.local, change.ends.remote];
            assert_eq!(ends.map(|end| end.ip()), [hosts.sides[here].ip, hosts.sides[there].ip]);
            assert!(change.reason.is_none());
        }
    }
    let [local, remote] = [changes(1)[0].ends, changes(2)[0].ends];
    assert_eq!([local.local, local.remote], [remote.remote, remote.local], "the same ports");
}
