// SPDX-License-Identifier: MIT OR Apache-2.0

//! Statistics counters. Each is read on its own; a set of reads is not a consistent snapshot.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::cm::Ignored;
use crate::drop_reason::DropReason;
use roce_wire::DropReason as MalformedReason;

macro_rules! counters {
    ($($(#[$doc:meta])+ $name:ident),+ $(,)?) => {
        /// Counts since the engine was made.
        #[derive(Debug, Default)]
        pub struct Stats { $($(#[$doc])+ pub $name: Counter,)+ }

        impl Stats {
            /// Every counter with its name, in the order of declaration.
            pub fn each(&self, mut see: impl FnMut(&'static str, u64)) {
                $(see(stringify!($name), self.$name.get());)+
            }
        }
    };
}

/// A number that only rises.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn inc(&self) {
        self.add(1);
    }
}

impl Stats {
    pub(crate) fn count_drop(&self, reason: DropReason) {
        match reason {
            DropReason::Malformed(MalformedReason::Truncated) => &self.drop_truncated,
            DropReason::Malformed(MalformedReason::HeaderChecksum) => &self.drop_header_checksum,
            DropReason::Malformed(MalformedReason::Fragment) => &self.drop_fragment,
            DropReason::Malformed(MalformedReason::Options) => &self.drop_options,
            DropReason::Malformed(MalformedReason::UdpLength) => &self.drop_udp_length,
            DropReason::Malformed(MalformedReason::Version) => &self.drop_version,
            DropReason::Malformed(MalformedReason::Opcode) => &self.drop_unknown_opcode,
            DropReason::Malformed(MalformedReason::Pad) => &self.drop_pad,
            DropReason::Malformed(MalformedReason::Payload) => &self.drop_payload,
            DropReason::Malformed(MalformedReason::Icrc) => &self.drop_icrc,
            DropReason::Datagram => &self.drop_datagram,
            DropReason::NoQp => &self.drop_no_qp,
            DropReason::Address => &self.drop_address,
            DropReason::PKey => &self.drop_pkey,
            DropReason::State => &self.drop_state,
            DropReason::Opcode => &self.drop_opcode,
            DropReason::Sequence => &self.drop_sequence,
        }
        .inc();
    }
}

impl Stats {
    pub(crate) fn count_ignored(&self, why: Ignored) {
        self.rx_datagrams_ignored.inc();
        match why {
            Ignored::NotCm => &self.cm_not_cm,
            Ignored::Unsupported => &self.cm_unsupported,
            Ignored::NotLocal => &self.cm_not_local,
            Ignored::InvalidSource => &self.cm_invalid_source,
            Ignored::Malformed => &self.cm_malformed,
            Ignored::Unknown => &self.cm_unknown,
            Ignored::Duplicate => &self.cm_duplicates,
            Ignored::Unexpected => &self.cm_unexpected,
            Ignored::Refused => &self.cm_refused,
            Ignored::NoRoom => &self.cm_no_room,
        }
        .inc();
    }
}

counters! {
    /// RoCEv2 frames taken in and acted upon.
    rx_frames,
    /// Payload bytes in them.
    rx_bytes,
    /// RoCEv2 frames built.
    tx_frames,
    /// Payload bytes in them.
    tx_bytes,
    /// Frames dropped because they were shorter than their headers say.
    drop_truncated,
    /// Frames dropped because of their IPv4 header checksum.
    drop_header_checksum,
    /// Frames dropped because they were fragments.
    drop_fragment,
    /// Frames dropped because of IPv4 options.
    drop_options,
    /// Frames dropped because UDP and IP disagreed on their length.
    drop_udp_length,
    /// Frames dropped because of their transport version.
    drop_version,
    /// Frames dropped because nobody knows their opcode.
    drop_unknown_opcode,
    /// Frames dropped because of their pad bytes.
    drop_pad,
    /// Frames dropped because they had a payload where there is none.
    drop_payload,
    /// Frames dropped because of their ICRC.
    drop_icrc,
    /// Frames dropped because they are to connection management, and no datagrams of it.
    drop_datagram,
    /// Frames dropped because there is no such queue pair.
    drop_no_qp,
    /// Frames dropped because the queue pair has another peer.
    drop_address,
    /// Frames dropped because of their partition key.
    drop_pkey,
    /// Frames dropped because the queue pair is not in a state to take them.
    drop_state,
    /// Frames dropped because their opcode has no business here.
    drop_opcode,
    /// Frames dropped because their sequence number is old or too new, or their length is wrong.
    drop_sequence,
    /// Request packets seen again.
    rx_duplicates,
    /// Request packets that came before an earlier one.
    rx_out_of_order,
    /// Requests of peers that found no receive.
    rx_rnr,
    /// Congestion notifications received from peers.
    rx_cnp,
    /// Times that a queue pair slowed down after one.
    rate_reductions,
    /// Congestion notifications sent.
    tx_cnp,
    /// Frames with a congestion mark received.
    rx_congestion_marked,
    /// Messages received (SEND).
    rx_sends,
    /// RDMA WRITEs of peers done.
    rx_writes,
    /// RDMA READs of peers taken.
    rx_reads,
    /// Keys that peers invalidated.
    rx_invalidations,
    /// Messages of connection management received.
    rx_datagrams,
    /// Of those, without effect.
    rx_datagrams_ignored,
    /// Of those: no message of connection management.
    cm_not_cm,
    /// Of those: about datagram services and other paths.
    cm_unsupported,
    /// Of those: to an address that is not the adapter's.
    cm_not_local,
    /// Of those: from an address that no single host can have.
    cm_invalid_source,
    /// Of those: contradicting themselves.
    cm_malformed,
    /// Of those: about a connection that is not known, or to another peer.
    cm_unknown,
    /// Of those: seen before.
    cm_duplicates,
    /// Of those: not expected in the state of the connection.
    cm_unexpected,
    /// Of those: refused.
    cm_refused,
    /// Of those: without room for an answer.
    cm_no_room,
    /// Messages of connection management sent.
    tx_datagrams,
    /// Acknowledgements sent.
    tx_acks,
    /// Sequence NAKs sent.
    tx_nak_sequence,
    /// RNR NAKs sent.
    tx_nak_rnr,
    /// NAKs for invalid requests sent.
    tx_nak_invalid,
    /// NAKs for refused accesses sent.
    tx_nak_access,
    /// NAKs for operations that failed here sent.
    tx_nak_operational,
    /// Sequence NAKs received.
    rx_nak_sequence,
    /// RNR NAKs received.
    rx_nak_rnr,
    /// Other NAKs received.
    rx_nak_fatal,
    /// Losses told from the order of responses.
    implied_naks,
    /// Request packets sent again.
    retransmissions,
    /// Times that an answer did not come in time.
    timeouts,
    /// Requests of consumers completed.
    completions,
    /// Of those, without success.
    completions_failed,
    /// Of those, flushed.
    completions_flushed,
    /// Queue pairs that went into error.
    qp_errors,
    /// Completion queues that overflowed.
    cq_overflows,
    /// Connections established.
    connections,
    /// Connection requests refused, by either side.
    connections_refused,
    /// Connections that broke.
    connections_aborted,
}
