// SPDX-License-Identifier: MIT OR Apache-2.0

//! Statistics counters. Each is read on its own; a set of reads is not a consistent snapshot.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::cm::Ignored;
use crate::drop_reason::DropReason;
use roce_wire::DropReason as MalformedReason;

macro_rules! counters {
    ($($(#[$doc:meta])+ $name:ident),+ $(,)?) => {
        /// Counts since the engine was created.
        #[derive(Debug, Default)]
        pub struct Stats { $($(#[$doc])+ pub $name: Counter,)+ }

        impl Stats {
            /// Name and place of each counter, in the order of declaration.
            pub(crate) const COUNTERS: &[(&str, fn(&Self) -> &Counter)] =
                &[$((stringify!($name), |stats| &stats.$name),)+];

            /// Adds the counts of `other`.
            pub(crate) fn add(&self, other: &Self) {
                $(self.$name.add(other.$name.get());)+
            }

            /// Calls `see` with the name and value of each counter, in the order of declaration.
            pub fn each(&self, mut see: impl FnMut(&'static str, u64)) {
                $(see(stringify!($name), self.$name.get());)+
            }
        }
    };
}

/// A monotonic counter.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Returns the present value.
    #[inline]
    #[must_use]
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
    /// Counts a datagram to a local address.
    pub(crate) fn count_datagram(&self, handled: Result<(), Ignored>) {
        self.rx_datagrams.inc();
        let Err(why) = handled else { return };
        self.rx_datagrams_ignored.inc();
        match why {
            Ignored::NotCm => &self.cm_not_cm,
            Ignored::Unsupported => &self.cm_unsupported,
            // Such a datagram is not counted, because the network stack gets it.
            Ignored::NotLocal => return,
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
    /// RoCEv2 frames received and accepted.
    rx_frames,
    /// Payload bytes in them.
    rx_bytes,
    /// RoCEv2 frames sent.
    tx_frames,
    /// Payload bytes in them.
    tx_bytes,
    /// Frames dropped because they were shorter than their headers say.
    drop_truncated,
    /// Frames dropped because of a wrong IPv4 header checksum.
    drop_header_checksum,
    /// Frames dropped because they were fragments.
    drop_fragment,
    /// Frames dropped because of IPv4 options.
    drop_options,
    /// Frames dropped because UDP and IP disagreed on their length.
    drop_udp_length,
    /// Frames dropped because of an unknown transport header version.
    drop_version,
    /// Frames dropped because the opcode is unknown.
    drop_unknown_opcode,
    /// Frames dropped because of an invalid pad count.
    drop_pad,
    /// Frames dropped because the opcode has no payload, but the frame does.
    drop_payload,
    /// Frames dropped because of a wrong ICRC.
    drop_icrc,
    /// Frames dropped because they are to queue pair 1, but no unreliable datagrams.
    drop_datagram,
    /// Frames dropped because the destination queue pair does not exist.
    drop_no_qp,
    /// Frames dropped because their addresses are not those of the queue pair's connection.
    drop_address,
    /// Frames dropped because of their P_Key.
    drop_pkey,
    /// Frames dropped because the queue pair's state does not accept them.
    drop_state,
    /// Frames dropped because the opcode is not valid for the queue pair.
    drop_opcode,
    /// Frames dropped because their PSN is old or too new, or their length is wrong.
    drop_sequence,
    /// Duplicate request packets.
    rx_duplicates,
    /// Request packets that arrived before an earlier one.
    rx_out_of_order,
    /// Of those, stored in the stash.
    rx_stashed,
    /// Of those, executed.
    rx_stash_executed,
    /// Requests of peers that found no posted receive.
    rx_rnr,
    /// CNPs received.
    rx_cnp,
    /// Rate reductions of queue pairs after a CNP.
    rate_reductions,
    /// CNPs sent.
    tx_cnp,
    /// Frames received with ECN mark CE.
    rx_congestion_marked,
    /// Messages received (SEND).
    rx_sends,
    /// RDMA WRITEs of peers executed.
    rx_writes,
    /// RDMA READs of peers accepted.
    rx_reads,
    /// Keys invalidated by peers (SEND with Invalidate).
    rx_invalidations,
    /// Datagrams to queue pair 1 of a local address.
    rx_datagrams,
    /// Of those, without effect on a connection.
    rx_datagrams_ignored,
    /// Ignored: not a CM message.
    cm_not_cm,
    /// Ignored: a CM message that is not implemented (SIDR_REP, LAP, APR).
    cm_unsupported,
    /// Ignored: source address is not unicast.
    cm_invalid_source,
    /// Ignored: fields contradict each other or the packet.
    cm_malformed,
    /// Ignored: no such connection, or its peer has another address.
    cm_unknown,
    /// Ignored: duplicates.
    cm_duplicates,
    /// Ignored: not expected in the state of the connection.
    cm_unexpected,
    /// Ignored: refused with a REJ or SIDR_REP.
    cm_refused,
    /// Ignored: dropped, because the answer queue is full or memory is short.
    cm_no_room,
    /// CM messages sent.
    tx_datagrams,
    /// Acknowledgements sent.
    tx_acks,
    /// Sequence NAKs sent.
    tx_nak_sequence,
    /// RNR NAKs sent.
    tx_nak_rnr,
    /// NAKs for invalid requests sent.
    tx_nak_invalid,
    /// NAKs for remote access errors sent.
    tx_nak_access,
    /// NAKs for remote operational errors sent.
    tx_nak_operational,
    /// Sequence NAKs received.
    rx_nak_sequence,
    /// RNR NAKs received.
    rx_nak_rnr,
    /// Other NAKs received.
    rx_nak_fatal,
    /// Implied NAKs: losses detected from the order of responses.
    implied_naks,
    /// Request packets retransmitted.
    retransmissions,
    /// ACK timeouts.
    timeouts,
    /// Work requests completed.
    completions,
    /// Of those, without success.
    completions_failed,
    /// Of those, flushed.
    completions_flushed,
    /// Queue pairs that entered the error state.
    qp_errors,
    /// Completion queues that became unusable: overflows.
    cq_overflows,
    /// Connections established.
    connections,
    /// Connection requests refused, by either side.
    connections_refused,
    /// Connections aborted.
    connections_aborted,
    /// Peers asked whether they still have a connection, because a REQ or REP named its queue pair.
    challenges,
}
