// SPDX-License-Identifier: MIT OR Apache-2.0

//! The responder without a requester: what it answers to each request of a peer, and what completes.

use super::*;
use crate::transport::failure::{Failure, PacketError};
use crate::transport::packet::frame::Unsent;
use crate::transport::testing::{Host, MTU};
use crate::work::CompletionStatus::{Flushed, LocalLength, Success};
use crate::work::RecvRequest;
use roce_wire::{Ext, Opcode, Packet, RethRepr};
use std::string::String;
use std::vec::Vec;

/// A responder with a connection.
struct Bench {
    host: Host,
    responder: Responder,
}

impl Bench {
    fn new() -> Self {
        let host = Host::new();
        let mut responder = Responder::IDLE;
        responder.initialize(&host.spec(), &host.shared.config).unwrap();
        responder.begin(&Host::peer());
        Self { host, responder }
    }

    /// Posts receives of 64 bytes.
    fn with_receives(contexts: core::ops::RangeInclusive<u64>) -> Self {
        let mut bench = Self::new();
        for context in contexts {
            let request = RecvRequest { context, sges: &[bench.host.sge(64 * context, 64)] };
            bench.responder.receives.queue.post(&request, 1 << 31).unwrap();
        }
        bench
    }

    fn receive(&mut self, opcode: Opcode, psn: u32, ext: Ext, payload: &[u8]) -> Result<(), PacketError> {
        let frame = self.host.frame(opcode, psn, ext, payload);
        let packet = Packet::parse(&frame).unwrap();
        let responder = &mut self.responder;
        self.host.step(|env, _| responder.handle_request(env, &packet, &mut None))
    }

    /// Receives a SEND of eight bytes, all of which are its PSN plus one: memory is zero before.
    fn send(&mut self, psn: u32) -> Result<(), PacketError> {
        self.receive(Opcode::SEND_ONLY, psn, Ext::None, &[psn as u8 + 1; 8])
    }

    /// Receives a request of the peer to this host's memory.
    fn access(
        &mut self,
        opcode: Opcode,
        psn: u32,
        length: u32,
        key: u32,
        payload: &[u8],
    ) -> Result<(), PacketError> {
        let reth = RethRepr { address: Host::address(0), r_key: key, length };
        self.receive(opcode, psn, Ext::Reth(reth), payload)
    }

    /// Transmits for as long as the transport would.
    fn transmit(&mut self) -> Vec<String> {
        core::iter::from_fn(|| {
            let responder = &mut self.responder;
            if !responder.has_response() {
                return None;
            }
            self.host.describe(|env, link, slot, copy| match responder.transmit(env, link, slot, copy) {
                Ok(len) => Some(len),
                Err(Unsent::Idle) => None,
                Err(unsent) => panic!("{unsent:?}"),
            })
        })
        .collect()
    }

    fn flush(&mut self) {
        let responder = &mut self.responder;
        self.host.step(|env, _| responder.flush(env));
    }
}

const REFUSED: Result<(), PacketError> = Err(PacketError::Fatal(Failure::Refused));

#[test]
fn sends_fill_receives_in_order_and_one_ack_answers_them_all() {
    let mut bench = Bench::with_receives(1..=2);
    bench.send(0).unwrap();
    bench.send(1).unwrap();
    assert_eq!(bench.host.completions(), [(1, Success), (2, Success)]);
    assert_eq!((bench.host.read(64, 8), bench.host.read(128, 8)), (std::vec![1; 8], std::vec![2; 8]));
    assert_eq!(bench.transmit(), ["Acknowledge 1 Ack(31)"]);
}

#[test]
fn a_peer_that_sends_without_a_receive_gets_an_rnr_nak() {
    let mut bench = Bench::new();
    bench.send(0).unwrap();
    let sent = bench.transmit();
    assert!(sent.len() == 1 && sent[0].starts_with("Acknowledge 0 RnrNak"), "{sent:?}");
    assert_eq!(bench.host.completions(), []);
}

#[test]
fn a_duplicate_is_acknowledged_and_fills_no_receive() {
    let mut bench = Bench::with_receives(1..=2);
    bench.send(0).unwrap();
    bench.transmit();
    bench.send(0).unwrap();
    assert_eq!(bench.host.completions(), [(1, Success)]);
    assert_eq!(bench.transmit(), ["Acknowledge 0 Ack(31)"]);
}

#[test]
fn a_send_longer_than_its_receive_ends_the_connection() {
    let mut bench = Bench::with_receives(1..=2);
    assert_eq!(bench.receive(Opcode::SEND_ONLY, 0, Ext::None, &[5; 65]), REFUSED);
    bench.flush();
    assert_eq!(bench.host.completions(), [(1, LocalLength), (2, Flushed)]);
    assert!(bench.responder.fatal_nak().is_some());
    assert_eq!(bench.transmit(), ["Acknowledge 0 Nak(invalid request)"]);
    assert!(bench.responder.fatal_nak().is_none());
}

#[test]
fn a_write_without_the_right_key_ends_the_connection() {
    let mut bench = Bench::new();
    let key = bench.host.key() ^ 1;
    assert_eq!(bench.access(Opcode::WRITE_ONLY, 0, 8, key, &[9; 8]), REFUSED);
    assert_eq!(bench.transmit(), ["Acknowledge 0 Nak(remote access error)"]);
    assert_eq!(bench.host.read(0, 8), [0; 8]);
}

#[test]
fn a_read_is_answered_from_memory_before_a_later_ack() {
    let mut bench = Bench::with_receives(1..=1);
    bench.host.fill(0, &[6; 8]);
    let key = bench.host.key();
    bench.access(Opcode::READ_REQUEST, 0, 8, key, &[]).unwrap();
    bench.send(1).unwrap();
    assert_eq!(bench.transmit(), ["RDMA READ Response Only 0 Ack(31): 6 x 8", "Acknowledge 1 Ack(31)"]);
}

#[test]
fn a_missing_packet_is_reported_once() {
    let mut bench = Bench::with_receives(1..=4);
    bench.send(0).unwrap();
    assert_eq!(bench.transmit(), ["Acknowledge 0 Ack(31)"]);
    bench.send(2).unwrap();
    assert_eq!(bench.transmit(), ["Acknowledge 1 Nak(PSN sequence error)"]);
    bench.send(3).unwrap();
    assert_eq!(bench.transmit(), [""; 0]);
    assert_eq!(bench.host.completions(), [(1, Success)]);
}

#[test]
fn packets_after_a_gap_are_executed_in_order_once_another_one_follows() {
    let mut bench = Bench::with_receives(1..=4);
    bench.send(1).unwrap();
    bench.send(2).unwrap();
    bench.send(0).unwrap();
    assert_eq!(bench.host.completions(), [(1, Success)]);
    bench.send(3).unwrap();
    assert_eq!(bench.host.completions(), [(2, Success), (3, Success), (4, Success)]);
    let received: Vec<_> = (1..=4).map(|context| bench.host.read(64 * context, 1)[0]).collect();
    assert_eq!(received, [1, 2, 3, 4]);
    assert_eq!(bench.transmit(), ["Acknowledge 3 Ack(31)"]);
}

#[test]
fn a_stored_packet_that_fails_ends_the_connection_with_its_own_nak() {
    let mut bench = Bench::with_receives(1..=4);
    bench.receive(Opcode::SEND_ONLY, 1, Ext::None, &[5; 65]).unwrap();
    bench.send(0).unwrap();
    assert_eq!(bench.send(2), REFUSED);
    bench.flush();
    assert_eq!(bench.transmit(), ["Acknowledge 1 Nak(invalid request)"]);
    assert_eq!(bench.host.completions(), [(1, Success), (2, LocalLength), (3, Flushed), (4, Flushed)]);
}

/// Stored packets are executed 512 at a time. While some are left, a packet in order ends the connection: its NAK is sent, not the
/// report of a gap among those that are left.
#[test]
fn a_failure_while_stored_packets_are_left_ends_the_connection_with_its_own_nak() {
    let mut bench = Bench::new();
    let key = bench.host.key();
    let empty = |bench: &mut Bench, psn| bench.access(Opcode::WRITE_ONLY, psn, 0, 0, &[]).unwrap();
    let middle = |bench: &mut Bench, psn| {
        bench.receive(Opcode::WRITE_MIDDLE, psn, Ext::None, &[5; MTU as usize]).unwrap();
    };
    (1..1020).for_each(|psn| empty(&mut bench, psn));
    bench.access(Opcode::WRITE_FIRST, 1020, 10 * MTU, key, &[5; MTU as usize]).unwrap();
    (1021..=1025).for_each(|psn| middle(&mut bench, psn));
    empty(&mut bench, 0);
    // Each of these has up to 512 executed. The second one is placed in the memory of the WRITE that has begun.
    (1027..=1028).for_each(|psn| middle(&mut bench, psn));
    assert_eq!(bench.send(1025), REFUSED);
    bench.flush();
    assert_eq!(bench.transmit(), ["Acknowledge 1025 Nak(invalid request)"]);
}

/// A READ response acknowledges everything before the first gap. The packets that are missing behind it are named all the same.
#[test]
fn a_packet_that_is_missing_is_named_after_a_read_response() {
    let mut bench = Bench::with_receives(1..=2);
    bench.responder.peer_repeats_selectively = true;
    let key = bench.host.key();
    bench.access(Opcode::READ_REQUEST, 0, 8, key, &[]).unwrap();
    assert_eq!(bench.transmit().len(), 1);
    for psn in [2, 3, 5] {
        bench.send(psn).unwrap();
    }
    let sent = bench.transmit();
    assert!(!sent.is_empty() && sent.iter().all(|nak| nak.starts_with("Acknowledge 1 Nak")), "{sent:?}");
    for psn in [6, 7] {
        bench.send(psn).unwrap();
    }
    assert!(bench.responder.hints.is_wanted());
    // The peer has lost the response.
    bench.access(Opcode::READ_REQUEST, 0, 8, key, &[]).unwrap();
    let sent = bench.transmit();
    assert!(sent.len() == 2 && sent[1].starts_with("Acknowledge 0 Ack"), "{sent:?}");
    assert!(!bench.responder.hints.is_wanted());
}

/// Nothing is named to a peer of which no packet is awaited from now on.
#[test]
fn no_packet_is_named_after_the_end_of_a_connection() {
    let ends: [fn(&mut Bench); 2] = [|bench| bench.responder.stop(), Bench::flush];
    for end in ends {
        let mut bench = Bench::with_receives(1..=2);
        bench.responder.peer_repeats_selectively = true;
        for psn in [1, 2, 4] {
            bench.send(psn).unwrap();
        }
        bench.transmit();
        for psn in [5, 6] {
            bench.send(psn).unwrap();
        }
        assert!(bench.responder.hints.is_wanted());
        end(&mut bench);
        assert!(!bench.responder.hints.is_wanted());
    }
}

/// A few packets with large gaps between them are answered by as few acknowledgements, however many had arrived after a gap that is filled.
#[test]
fn no_more_packets_are_named_than_have_arrived() {
    let mut bench = Bench::with_receives(1..=4);
    bench.responder.peer_repeats_selectively = true;
    for psn in [1, 2, 3, 0, 1, 2, 3] {
        bench.send(psn).unwrap();
    }
    assert_eq!(bench.transmit(), ["Acknowledge 3 Ack(31)"]);
    let mut acknowledgements = 0;
    for (arrived, psn) in (1..).zip([5, 30, 50, 70]) {
        bench.send(psn).unwrap();
        acknowledgements += bench.transmit().len();
        // The NAK is sent twice.
        assert!(acknowledgements <= arrived + 1, "{acknowledgements} for {arrived}");
    }
    assert_eq!(acknowledgements, 5);
}
