// SPDX-License-Identifier: MIT OR Apache-2.0

//! The requester without a responder: what it sends after each answer of a peer, and what completes.

use core::time::Duration;

use super::*;
use crate::drop_reason::DropReason;
use crate::transport::congestion::rate::RateLimiter;
use crate::transport::failure::{Failure, PacketError};
use crate::transport::packet::frame::Unsent;
use crate::transport::packet::placement::Placement;
use crate::transport::testing::{Host, MTU};
use crate::work::CompletionStatus::{Flushed, RemoteAccess, Success};
use crate::work::{SendData, SendFlags, SendOperation, SendRequest, Sge};
use roce_wire::{AethRepr, Ext, NakCode, Opcode, Packet, Syndrome};
use std::string::String;
use std::vec::Vec;

/// A requester with a connection.
struct Bench {
    host: Host,
    requester: Requester,
}

impl Bench {
    fn new() -> Self {
        let host = Host::new();
        let mut requester = Requester::IDLE;
        requester.initialize(&host.spec(), &host.shared.config).unwrap();
        requester.begin(&Host::peer(), &host.shared.config);
        Self { host, requester }
    }

    fn post(&mut self, context: u64, operation: SendOperation, sge: Sge) {
        let (flags, data) = (SendFlags::empty(), SendData::Sges(&[sge]));
        let request = SendRequest { context, operation, flags, data };
        self.requester.send_queue.post(&request, MTU, 1 << 31).unwrap();
    }

    /// Posts a SEND of 64 bytes, all of which are the number of the request.
    fn send(&mut self, context: u64) {
        self.host.fill(64 * context as usize, &[context as u8; 64]);
        let sge = self.host.sge(64 * context, 64);
        self.post(context, SendOperation::Send, sge);
    }

    /// Posts a READ of as many packets to the start of the memory.
    fn read(&mut self, context: u64, packets: u32) {
        let sge = self.host.sge(0, packets * MTU);
        self.post(context, SendOperation::Read { address: 0, key: 1 }, sge);
    }

    fn try_transmit(&mut self) -> Result<Option<String>, Failure> {
        let requester = &mut self.requester;
        let mut failed = Ok(());
        let frame = self.host.describe(|env, link, slot, copy| {
            if !requester.wants_to_send() {
                return None;
            }
            match requester.transmit(env, link, &RateLimiter::UNLIMITED, slot, copy) {
                Ok(len) => Some(len),
                Err(Unsent::Fatal(failure)) => {
                    failed = Err(failure);
                    None
                }
                Err(_) => None,
            }
        });
        failed.map(|()| frame)
    }

    /// Sends everything that may be sent now.
    fn transmit(&mut self) -> Vec<String> {
        core::iter::from_fn(|| self.try_transmit().unwrap()).collect()
    }

    fn receive(&mut self, frame: &[u8]) -> Result<(), PacketError> {
        let packet = Packet::parse(frame).unwrap();
        let requester = &mut self.requester;
        self.host.step(|env, _| {
            let mut placement = None;
            requester.handle_response(env, &packet, &mut placement)?;
            if let Some(placement @ Placement::Response { end, .. }) = &placement {
                let placed = placement.run(env, packet.payload());
                requester.finish_response(env, &packet, *end, placed)?;
            }
            Ok(())
        })
    }

    fn ack(&mut self, psn: u32, syndrome: Syndrome) -> Result<(), PacketError> {
        self.receive(&self.host.ack(psn, syndrome))
    }

    fn respond(&mut self, opcode: Opcode, psn: u32, payload: &[u8]) -> Result<(), PacketError> {
        let ext = match opcode {
            Opcode::READ_RESPONSE_MIDDLE => Ext::None,
            _ => Ext::Aeth(AethRepr { syndrome: Syndrome::ACK, msn: 0 }),
        };
        self.receive(&self.host.frame(opcode, psn, ext, payload))
    }

    /// Lets the time pass until the deadline, and handles it.
    fn time_out(&mut self) -> Result<bool, Failure> {
        self.host.pass_until(self.requester.deadline().unwrap());
        let requester = &mut self.requester;
        self.host.step(|env, _| requester.handle_timeout(env))
    }

    fn flush(&mut self, failure: Failure) {
        let requester = &mut self.requester;
        self.host.step(|env, _| life_cycle::flush(requester, env, failure.status()));
    }
}

#[test]
fn requests_are_sent_in_order_and_complete_when_they_are_acknowledged() {
    let mut bench = Bench::new();
    for context in 1..=3 {
        bench.send(context);
    }
    assert_eq!(bench.transmit(), ["SEND Only 0: 1 x 64", "SEND Only 1: 2 x 64", "SEND Only 2: 3 x 64"]);
    assert_eq!(bench.host.completions(), []);
    bench.ack(1, Syndrome::ACK).unwrap();
    assert_eq!(bench.host.completions(), [(1, Success), (2, Success)]);
    bench.ack(2, Syndrome::ACK).unwrap();
    assert_eq!(bench.host.completions(), [(3, Success)]);
    assert_eq!(bench.requester.deadline(), None, "nothing is awaited");
}

#[test]
fn an_answer_to_a_packet_that_was_not_sent_is_dropped() {
    let mut bench = Bench::new();
    bench.send(1);
    bench.transmit();
    assert_eq!(bench.ack(1, Syndrome::ACK), Err(PacketError::Dropped(DropReason::Sequence)));
    assert_eq!(bench.host.completions(), []);
}

#[test]
fn a_packet_that_the_peer_misses_is_sent_again() {
    let mut bench = Bench::new();
    for context in 1..=3 {
        bench.send(context);
    }
    bench.transmit();
    bench.host.pass(Duration::from_micros(100));
    bench.ack(1, Syndrome::nak(NakCode::PSN_SEQUENCE)).unwrap();
    assert_eq!(bench.host.completions(), [(1, Success)]);
    assert_eq!(bench.transmit()[0], "SEND Only 1: 2 x 64");
}

#[test]
fn a_refused_request_fails_with_the_peers_reason_and_flushes_the_others() {
    let mut bench = Bench::new();
    for context in 1..=3 {
        bench.send(context);
    }
    bench.transmit();
    let failed = bench.ack(1, Syndrome::nak(NakCode::REMOTE_ACCESS));
    assert_eq!(failed, Err(PacketError::Fatal(Failure::RemoteAccess)));
    bench.flush(Failure::RemoteAccess);
    assert_eq!(bench.host.completions(), [(1, Success), (2, RemoteAccess), (3, Flushed)]);
    assert!(!bench.requester.wants_to_send());
    assert_eq!(bench.requester.deadline(), None);
}

#[test]
fn nothing_is_sent_while_the_peer_is_not_ready() {
    let mut bench = Bench::new();
    bench.send(1);
    bench.transmit();
    bench.ack(0, Syndrome::rnr_nak(10)).unwrap();
    bench.send(2);
    assert_eq!(bench.transmit(), [""; 0]);
    assert_eq!(bench.time_out(), Ok(false), "the path is not to blame");
    assert_eq!(bench.transmit(), ["SEND Only 0: 1 x 64", "SEND Only 1: 2 x 64"]);
}

#[test]
fn a_flush_ends_the_wait_for_a_peer_that_is_not_ready() {
    let mut bench = Bench::new();
    bench.send(1);
    bench.transmit();
    bench.ack(0, Syndrome::rnr_nak(10)).unwrap();
    bench.flush(Failure::Aborted);
    assert_eq!(bench.host.completions(), [(1, Flushed)]);
    assert_eq!(bench.requester.deadline(), None);
}

#[test]
fn a_peer_that_stays_not_ready_fails_the_request() {
    let mut bench = Bench::new();
    bench.send(1);
    bench.transmit();
    bench.ack(0, Syndrome::rnr_nak(10)).unwrap();
    bench.time_out().unwrap();
    bench.transmit();
    bench.host.pass(Duration::from_millis(1));
    let failed = bench.ack(0, Syndrome::rnr_nak(10));
    assert_eq!(failed, Err(PacketError::Fatal(Failure::RnrRetryExceeded)));
}

#[test]
fn a_silent_peer_makes_the_path_suspect_and_then_fails_the_request() {
    let mut bench = Bench::new();
    bench.send(1);
    bench.transmit();
    let mut suspected = 0;
    for _ in 0..20 {
        match bench.time_out() {
            Ok(suspect) => suspected += u32::from(suspect),
            Err(failure) => {
                assert_eq!((failure, suspected), (Failure::RetryExceeded, 2), "as many as there are retries");
                return;
            }
        }
        assert_eq!(bench.transmit(), ["SEND Only 0: 1 x 64"]);
    }
    panic!("the request is sent again and again");
}

#[test]
fn memory_that_cannot_be_read_fails_its_request_once_it_is_the_oldest() {
    let mut bench = Bench::new();
    bench.send(1);
    let sge = Sge { key: bench.host.key() ^ 1, ..bench.host.sge(0, 64) };
    bench.post(2, SendOperation::Send, sge);
    assert_eq!(bench.transmit(), ["SEND Only 0: 1 x 64"]);
    assert_eq!(bench.ack(0, Syndrome::ACK), Err(PacketError::Fatal(Failure::LocalProtection)));
    assert_eq!(bench.host.completions(), [(1, Success)]);
    // Without an older one, at once.
    let mut bench = Bench::new();
    bench.post(1, SendOperation::Send, sge);
    assert_eq!(bench.try_transmit(), Err(Failure::LocalProtection));
}

#[test]
fn a_read_completes_when_its_last_response_is_in_memory() {
    let mut bench = Bench::new();
    bench.read(1, 2);
    assert_eq!(bench.transmit(), ["RDMA READ Request 0 of 2048 bytes"]);
    bench.respond(Opcode::READ_RESPONSE_FIRST, 0, &[7; MTU as usize]).unwrap();
    assert_eq!(bench.host.completions(), []);
    bench.respond(Opcode::READ_RESPONSE_LAST, 1, &[8; MTU as usize]).unwrap();
    assert_eq!(bench.host.completions(), [(1, Success)]);
    let memory = bench.host.read(0, 2 * MTU as usize);
    assert!(memory.iter().enumerate().all(|(at, byte)| *byte == if at < MTU as usize { 7 } else { 8 }));
}

#[test]
fn a_request_behind_a_read_waits_for_the_responses() {
    let mut bench = Bench::new();
    bench.read(1, 1);
    bench.send(2);
    bench.transmit();
    bench.ack(1, Syndrome::ACK).unwrap();
    assert_eq!(bench.host.completions(), []);
    bench.respond(Opcode::READ_RESPONSE_ONLY, 0, &[7; MTU as usize]).unwrap();
    assert_eq!(bench.host.completions(), [(1, Success), (2, Success)]);
}

#[test]
fn a_response_that_is_lost_is_requested_alone() {
    let mut bench = Bench::new();
    bench.read(1, 3);
    bench.transmit();
    bench.respond(Opcode::READ_RESPONSE_FIRST, 0, &[7; MTU as usize]).unwrap();
    bench.respond(Opcode::READ_RESPONSE_LAST, 2, &[9; MTU as usize]).unwrap();
    bench.host.pass(Duration::from_micros(100));
    assert_eq!(bench.transmit(), ["RDMA READ Request 1 of 1024 bytes"]);
    bench.respond(Opcode::READ_RESPONSE_ONLY, 1, &[8; MTU as usize]).unwrap();
    assert_eq!(bench.host.completions(), [(1, Success)]);
}

#[test]
fn a_response_of_the_wrong_length_ends_the_connection() {
    let mut bench = Bench::new();
    bench.read(1, 1);
    bench.transmit();
    let failed = bench.respond(Opcode::READ_RESPONSE_ONLY, 0, &[7; 8]);
    assert_eq!(failed, Err(PacketError::Fatal(Failure::BadResponse)));
}
