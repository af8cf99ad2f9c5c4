// SPDX-License-Identifier: MIT OR Apache-2.0

//! The packets and completions of the endpoint of target `sequences`, checked against what it was asked for.

use std::collections::VecDeque;

use roce::CompletionStatus;
use roce_wire::icrc::Crc;
use roce_wire::{Class, Operation, Packet, Psn, Syndrome};

use crate::endpoint::{MTU, Output, PEER, PEER_QPN};
use crate::forge;

/// A request that was accepted and has not completed.
pub(super) struct Posted {
    pub(super) context: u64,
    pub(super) silent: bool,
}

/// A request of the endpoint that needs a response.
#[derive(Clone, Copy)]
pub(super) struct PendingRequest {
    pub(super) psn: Psn,
    /// Number of PSNs.
    pub(super) packets: u32,
    /// Length of a READ in bytes.
    pub(super) read: Option<u32>,
}

/// Counts of requests to the endpoint and of its responses.
#[derive(Default)]
pub(super) struct ResponseCounts {
    pub(super) requests: u64,
    pub(super) request_bytes: u64,
    pub(super) read_packets: u64,
    pub(super) marks: u64,
    acks: u64,
    ack_bytes: u64,
    responses: u64,
    cnps: u64,
}

/// The packets and completions that the requests to the endpoint and of its consumer allow.
pub(super) struct Expected {
    /// The next PSN of a correct peer.
    pub(super) next: Psn,
    /// Requests of the endpoint without a response, oldest first.
    pub(super) pending_requests: VecDeque<PendingRequest>,
    pub(super) sends: VecDeque<Posted>,
    pub(super) receives: VecDeque<Posted>,
    failed: bool,
    /// A request of the send queue has failed or was flushed.
    sends_failed: bool,
    pub(super) counts: ResponseCounts,
}

impl Expected {
    /// Of a new connection. `next` is the first PSN of the peer.
    pub(super) fn of(next: Psn) -> Self {
        Self {
            next,
            pending_requests: VecDeque::new(),
            sends: VecDeque::new(),
            receives: VecDeque::new(),
            failed: false,
            sends_failed: false,
            counts: ResponseCounts::default(),
        }
    }

    /// Removes the requests up to `psn`, which the peer has acknowledged.
    pub(super) fn acknowledged(&mut self, psn: Psn) {
        while let Some(oldest) = self.pending_requests.front()
            && psn.distance_from(oldest.psn.add(oldest.packets - 1)) >= 0
        {
            self.pending_requests.pop_front();
        }
    }

    /// Returns the correct length of the packet `psn` of a READ response.
    pub(super) fn correct_response_length(&self, psn: Psn) -> usize {
        let rest = self.pending_requests.iter().find_map(|request| {
            let into =
                u32::try_from(psn.distance_from(request.psn)).ok().filter(|&into| into < request.packets)?;
            Some((request.read? as usize).saturating_sub(into as usize * MTU.bytes()))
        });
        rest.unwrap_or_default().min(MTU.bytes())
    }

    /// Checks the outputs of the endpoint: frames and completions.
    pub(super) fn observe(&mut self, frames: &[Vec<u8>], outputs: &[Output]) {
        for bytes in frames {
            let packet = Packet::parse(bytes).expect("frames of the endpoint are valid");
            assert!(packet.icrc_valid(Crc::table()), "a frame of the endpoint with a wrong ICRC");
            let (ip, mac) = forge::address(PEER);
            assert_eq!(
                (packet.destination(), packet.eth().destination()),
                (ip, mac),
                "the destination is not the peer"
            );
            if packet.bth().dest_qp() == PEER_QPN {
                self.observe_packet(&packet, bytes.len() as u64);
            }
        }
        let counts = &self.counts;
        assert!(
            counts.acks <= counts.requests,
            "{} requests, {} acknowledgments",
            counts.requests,
            counts.acks
        );
        // An ACK is four bytes longer than the shortest request.
        let cost = counts.request_bytes + 4 * counts.requests;
        assert!(
            counts.ack_bytes <= cost,
            "{cost} bytes of requests, {} bytes of acknowledgments",
            counts.ack_bytes
        );
        assert!(counts.responses <= counts.read_packets, "more READ responses than requested");
        assert!(counts.cnps <= counts.marks, "more CNPs than marks");
        for output in outputs {
            self.completed(output);
        }
    }

    fn observe_packet(&mut self, packet: &Packet<'_>, len: u64) {
        let psn = packet.bth().psn();
        match (packet.info().class, packet.info().operation) {
            (Class::Congestion, _) => self.counts.cnps += 1,
            (Class::Response, Operation::Read) => self.counts.responses += 1,
            (Class::Response, _) => {
                self.counts.acks += 1;
                self.counts.ack_bytes += len;
                if packet.aeth().is_some_and(|aeth| aeth.syndrome() != Syndrome::ACK) {
                    // A correct peer continues from there.
                    self.next = psn;
                }
            }
            (_, operation) => {
                let read = packet.reth().filter(|_| operation == Operation::Read).map(|reth| reth.length());
                let packets = read.map_or(1, |length| length.div_ceil(MTU.bytes() as u32).max(1));
                // A retransmission.
                self.pending_requests.retain(|request| psn.distance_from(request.psn) > 0);
                self.pending_requests.push_back(PendingRequest { psn, packets, read });
            }
        }
    }

    /// Checks a completion: it is that of the oldest request of its queue, and none succeeds after a failure.
    fn completed(&mut self, output: &Output) {
        let Output::Completion(completion) = output else { return };
        let success = completion.status == CompletionStatus::Success;
        let queue = if completion.kind.is_receive() { &mut self.receives } else { &mut self.sends };
        while let Some(oldest) = queue.pop_front() {
            if oldest.context == completion.context {
                assert!(!(oldest.silent && success), "a silent request completed with success");
                assert!(!(self.failed && success), "success after failure");
                if !completion.kind.is_receive() {
                    assert!(!self.failed || completion.status == CompletionStatus::Flushed, "two failures");
                    self.sends_failed |= !success;
                }
                self.failed |= !success;
                return;
            }
            // Silent requests that have succeeded before.
            assert!(
                oldest.silent && !self.sends_failed,
                "request {} did not complete in order",
                oldest.context
            );
        }
        panic!("{completion:?} belongs to no request");
    }
}
