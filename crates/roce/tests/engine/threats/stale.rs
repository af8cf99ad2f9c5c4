// SPDX-License-Identifier: MIT OR Apache-2.0

//! A REQ that names the queue pair of a connection, as a peer that restarted sends it, or a spoofer.

use std::time::Duration;

use roce::{CompletionStatus, ConnEvent, PostError, QpState, SendFlags, SendOperation};
use roce_testkit::{Side, pattern, spec};
use roce_wire::cm::{CmMessage, CommId, RejReason};
use roce_wire::icrc::Crc;
use roce_wire::{
    AethRepr, DethRepr, Ext, Headers, Mad, NakCode, Opcode, Packet, Path, Psn, Qpn, Syndrome, Template,
};

use super::forger::{Options, TwoHosts, frame, message};

/// Time after which a connection without answer ends, at the default ACK timeout: eight attempts.
const SILENCE_LIMIT: Duration = Duration::from_secs(10);

/// A connection on which alice (side 0) has written to bob (side 1), and her REQ.
fn connected(options: Options) -> (TwoHosts, Vec<u8>) {
    let mut hosts = TwoHosts::new(options);
    hosts.capture = Some(Vec::new());
    hosts.listen();
    hosts.connect(b"");
    hosts.run_until("a request", |hosts| hosts.sides[1].conn.is_some());
    let req = hosts.capture.take().unwrap().remove(0).1;
    hosts.accept(b"");
    hosts.run_until("a reply", |hosts| hosts.has_event(0, |e| matches!(e, ConnEvent::Replied { .. })));
    hosts.complete();
    write(&mut hosts, 0);
    (hosts, req)
}

/// Writes from one side to the other and checks that it completes.
fn write(hosts: &mut TwoHosts, from: usize) {
    let (source, target) = (hosts.sides[from].source(&pattern(100, 1)), hosts.sides[1 - from].shared(100));
    hosts.sides[from].write(1, &[source.all()], &target, 0);
    hosts.run_until("the write", |hosts| !hosts.sides[from].cq.is_empty());
    assert_eq!(hosts.sides[from].outcomes(), [(1, CompletionStatus::Success)]);
    assert_eq!(target.read(), pattern(100, 1));
}

/// Returns the REQ as one for another connection of the same queue pair.
fn another(req: &[u8], number: u32) -> Vec<u8> {
    let packet = Packet::parse(req).unwrap();
    let mad = Mad::new_checked(packet.payload()).unwrap();
    let Some(CmMessage::Req(mut req)) = CmMessage::parse(&mad) else { panic!("no REQ") };
    req.local_comm_id = CommId(req.local_comm_id.0 ^ number);
    let mut datagram = [0; Mad::LEN];
    CmMessage::Req(req).emit(77, &mut datagram);
    let (eth, mut slot) = (packet.eth(), vec![0; 512]);
    let path = Path::new(eth.source(), eth.destination(), packet.source(), packet.destination());
    let ext = Ext::Deth(DethRepr::GSI);
    let headers =
        Headers { opcode: Opcode::UD_SEND_ONLY, solicited: false, ack_req: false, psn: Psn::new(1), ext };
    let template = Template::new(&path, Qpn::GSI).unwrap();
    let mut frame = template.begin(Crc::detect(), &mut slot, &headers, datagram.len()).unwrap();
    frame.write(&datagram);
    let len = frame.finish();
    slot.truncate(len);
    slot
}

/// Returns what bob has sent since capturing began: reasons of REJs, and the number of WRITEs without data.
fn answers(hosts: &TwoHosts) -> (Vec<RejReason>, usize) {
    let frames = hosts.capture.as_ref().unwrap().iter().filter(|(from, _)| *from == 1);
    let (mut reasons, mut challenges) = (Vec::new(), 0);
    for (_, frame) in frames {
        let packet = Packet::parse(frame).unwrap();
        if let Some(CmMessage::Rej(rej)) = message(frame) {
            reasons.push(rej.reason);
        }
        challenges += usize::from(packet.bth().opcode() == Opcode::WRITE_ONLY && packet.payload().is_empty());
    }
    (reasons, challenges)
}

fn is_aborted(hosts: &TwoHosts, side: usize) -> bool {
    hosts.has_event(side, |e| matches!(e, ConnEvent::Aborted))
}

//= rocev2 §12
#[test]
fn a_spoofed_req_does_not_end_an_idle_connection() {
    for (idle, challenges) in [(1, 0), (6, 1), (3600, 1)] {
        let (mut hosts, req) = connected(Options::default());
        hosts.run_for(Duration::from_secs(idle));
        hosts.capture = Some(Vec::new());
        let standing = hosts.sides[1].conn;
        hosts.deliver(1, hosts.now, another(&req, 1));
        hosts.run_for(Duration::from_secs(30));
        assert_eq!(answers(&hosts), (vec![RejReason::STALE_CONNECTION], challenges), "after {idle} s");
        assert_eq!(hosts.sides[1].conn, standing, "the second REQ is rejected");
        assert_eq!(hosts.sides.each_ref().map(|side| side.qp.state()), [QpState::Rts; 2], "after {idle} s");
        assert!(!is_aborted(&hosts, 0) && !is_aborted(&hosts, 1));
        assert!(hosts.sides.iter().all(|side| side.outcomes().is_empty()), "a challenge has no completion");
        write(&mut hosts, 0);
        write(&mut hosts, 1);
    }
}

/// Neither a peer that has sent a short message, nor one that has acknowledged one.
#[test]
fn a_peer_that_was_heard_of_is_not_challenged() {
    for from in [0, 1] {
        let (mut hosts, req) = connected(Options::default());
        hosts.run_for(Duration::from_secs(60));
        let (source, sink) = (hosts.sides[from].source(b"message"), hosts.sides[1 - from].sink(7));
        hosts.sides[1 - from].recv(1, &[sink.all()]);
        hosts.sides[from].send(2, &[source.all()]);
        hosts.run_until("the message", |hosts| !hosts.sides[from].cq.is_empty());
        hosts.capture = Some(Vec::new());
        hosts.deliver(1, hosts.now, another(&req, 1));
        hosts.run_for(Duration::from_secs(1));
        assert_eq!(answers(&hosts), (vec![RejReason::STALE_CONNECTION], 0), "sent by side {from}");
    }
}

//= rocev2 §12
#[test]
fn the_connection_of_a_peer_that_restarted_ends_by_its_silence_and_the_peer_connects_again() {
    let (mut hosts, req) = connected(Options::default());
    let sink = hosts.sides[1].sink(8);
    hosts.sides[1].recv(9, &[sink.all()]);
    hosts.run_for(Duration::from_secs(60));
    // The same GUID and address, without any connection.
    hosts.sides[0] = Side::new(1, &Options { seed: 99, ..hosts.options.clone() });
    let at = hosts.now;
    hosts.deliver(1, at, another(&req, 1));
    hosts.run_until("the end", |hosts| is_aborted(hosts, 1));
    let taken = hosts.now.duration_since(at);
    assert!(taken < SILENCE_LIMIT, "{taken:?}");
    assert_eq!(hosts.sides[1].outcomes(), [(9, CompletionStatus::Flushed)], "a challenge has no completion");
    let bob = &mut hosts.sides[1];
    let old = bob.conn.take().unwrap();
    bob.engine.connections().release(hosts.now, old);
    bob.qp = bob.engine.create_qp(spec(bob.pd, &bob.cq, &hosts.options)).unwrap();
    bob.conn_events.clear();
    // As long as late packets may arrive, the queue pair of the old connection is refused.
    hosts.run_for(Duration::from_secs(5));
    hosts.deliver(1, hosts.now, another(&req, 2));
    assert!(hosts.run_within(Duration::from_secs(1), |hosts| hosts.sides[1].conn.is_some()), "a request");
    let refused = hosts.sides[1].conn.take().unwrap();
    hosts.sides[1].engine.connections().release(hosts.now, refused);
    hosts.connect(b"");
    hosts.run_until("another request", |hosts| hosts.sides[1].conn.is_some());
    hosts.accept(b"");
    hosts.run_until("a reply", |hosts| hosts.has_event(0, |e| matches!(e, ConnEvent::Replied { .. })));
    hosts.complete();
    write(&mut hosts, 0);
}

#[test]
fn a_flood_of_spoofed_reqs_draws_one_challenge_in_five_seconds() {
    let (mut hosts, req) = connected(Options::default());
    hosts.run_for(Duration::from_secs(60));
    hosts.capture = Some(Vec::new());
    for number in 1..=1000 {
        hosts.deliver(1, hosts.now, another(&req, number));
        hosts.run_for(Duration::from_millis(10));
    }
    assert_eq!(answers(&hosts).1, 2, "in ten seconds");
    // While the peer does not answer, the first challenge is repeated.
    let (mut hosts, req) = connected(Options::default());
    hosts.run_for(Duration::from_secs(60));
    hosts.capture = Some(Vec::new());
    hosts.cut[0] = true;
    let before = hosts.sides[1].stat("retransmissions");
    for number in 1..=1000 {
        hosts.deliver(1, hosts.now, another(&req, number));
        hosts.run_for(Duration::from_millis(1));
    }
    let repeated = hosts.sides[1].stat("retransmissions") - before;
    assert_eq!(answers(&hosts).1 as u64, 1 + repeated);
    assert!(repeated < 12, "{repeated}");
}

#[test]
fn a_challenge_takes_no_entry_of_the_send_queue() {
    for answers in [true, false] {
        let (mut hosts, req) = connected(Options { send_depth: 2, ..Options::default() });
        hosts.run_for(Duration::from_secs(60));
        hosts.cut[0] = true;
        hosts.deliver(1, hosts.now, another(&req, 1));
        hosts.run_for(Duration::from_millis(1));
        let (source, target) = (hosts.sides[1].source(&pattern(100, 1)), hosts.sides[0].shared(100));
        let operation = SendOperation::Write { address: target.address(0), key: target.key() };
        let post = |hosts: &TwoHosts, context| {
            hosts.sides[1].post(context, operation, SendFlags::empty(), &[source.all()])
        };
        for _ in 0..2 {
            assert_eq!(post(&hosts, 1), Ok(()));
            assert_eq!(post(&hosts, 2), Ok(()));
            assert_eq!(post(&hosts, 3), Err(PostError::QueueFull));
            hosts.cut[0] = !answers;
            hosts.run_for(SILENCE_LIMIT);
            let expected = if answers {
                [(1, CompletionStatus::Success), (2, CompletionStatus::Success)]
            } else {
                [(1, CompletionStatus::RetryExceeded), (2, CompletionStatus::Flushed)]
            };
            assert_eq!(hosts.sides[1].outcomes(), expected);
            assert_eq!(is_aborted(&hosts, 1), !answers);
            if !answers {
                break;
            }
        }
    }
}

#[test]
fn a_nak_of_a_challenge_flushes_the_requests_behind_it() {
    let (mut hosts, req) = connected(Options::default());
    hosts.run_for(Duration::from_secs(60));
    hosts.cut[0] = true;
    hosts.capture = Some(Vec::new());
    hosts.deliver(1, hosts.now, another(&req, 1));
    hosts.run_for(Duration::from_millis(1));
    let (source, target) = (hosts.sides[1].source(b"x"), hosts.sides[0].shared(1));
    hosts.sides[1].write(1, &[source.all()], &target, 0);
    hosts.run_for(Duration::from_millis(1));
    let sent = hosts.capture.take().unwrap();
    let mut sent = sent.iter().map(|(_, frame)| Packet::parse(frame).unwrap());
    let psn = sent.find(|packet| packet.bth().opcode() == Opcode::WRITE_ONLY).unwrap().bth().psn();
    let ext = Ext::Aeth(AethRepr { syndrome: Syndrome::nak(NakCode::INVALID_REQUEST), msn: 0 });
    let nak = frame(&hosts.path(0), hosts.sides[1].qp.qpn(), Opcode::ACKNOWLEDGE, psn, ext, &[]);
    hosts.deliver(1, hosts.now, nak);
    hosts.run_for(Duration::from_millis(1));
    assert_eq!(hosts.sides[1].outcomes(), [(1, CompletionStatus::Flushed)]);
    assert!(is_aborted(&hosts, 1));
}
