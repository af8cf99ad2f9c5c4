// SPDX-License-Identifier: MIT OR Apache-2.0

//! Statistics counters. Each is read on its own; a set of reads is not a consistent snapshot.

use core::cell::Cell;
use core::ops::Deref;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::drop_reason::DropReason;
use crate::ignored::Ignored;
use roce_wire::DropReason as MalformedReason;

macro_rules! counters {
    ($($(#[$doc:meta])+ $name:ident),+ $(,)?) => {
        /// Counts since the engine was created.
        #[derive(Debug, Default)]
        pub struct Stats { $($(#[$doc])+ pub $name: Counter,)+ }

        impl Stats {
            /// Name and place of each counter, in the order of declaration.
            pub(crate) const COUNTERS: &[Entry] = &[$(entry!($name),)+];

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

/// Statistics of a shard with counts that are kept beside them, and added when this is dropped: a locked addition takes as long
/// as a part of a packet's processing.
#[derive(Debug)]
pub(crate) struct StatsBatch<'a> {
    stats: &'a Stats,
    pub(crate) rx_frames: Count,
    pub(crate) rx_bytes: Count,
    pub(crate) rx_sends: Count,
    pub(crate) completions: Count,
    pub(crate) tx_frames: Count,
    pub(crate) tx_bytes: Count,
}

impl<'a> StatsBatch<'a> {
    #[inline]
    pub(crate) fn new(stats: &'a Stats) -> Self {
        Self {
            stats,
            rx_frames: Count::default(),
            rx_bytes: Count::default(),
            rx_sends: Count::default(),
            completions: Count::default(),
            tx_frames: Count::default(),
            tx_bytes: Count::default(),
        }
    }
}

/// The other counters.
impl Deref for StatsBatch<'_> {
    type Target = Stats;

    #[inline]
    fn deref(&self) -> &Stats {
        self.stats
    }
}

impl Drop for StatsBatch<'_> {
    #[inline]
    fn drop(&mut self) {
        // Read before the first addition, which the compiler takes for a change of any of them.
        let Self { stats, .. } = *self;
        let (rx_frames, rx_bytes) = (self.rx_frames.get(), self.rx_bytes.get());
        let (rx_sends, completions) = (self.rx_sends.get(), self.completions.get());
        let (tx_frames, tx_bytes) = (self.tx_frames.get(), self.tx_bytes.get());
        // Frames are received or sent, seldom both.
        if rx_frames != 0 {
            stats.rx_frames.add(rx_frames);
            add(&stats.rx_bytes, rx_bytes);
        }
        if completions != 0 {
            stats.completions.add(completions);
            // A SEND ends with a completion.
            add(&stats.rx_sends, rx_sends);
        }
        if tx_frames != 0 {
            stats.tx_frames.add(tx_frames);
            add(&stats.tx_bytes, tx_bytes);
        }
    }
}

/// Adds a count that is often zero.
#[inline]
fn add(counter: &Counter, count: u64) {
    if count != 0 {
        counter.add(count);
    }
}

/// A count of a [`StatsBatch`].
#[derive(Debug, Default)]
pub(crate) struct Count(Cell<u64>);

impl Count {
    #[inline]
    fn get(&self) -> u64 {
        self.0.get()
    }

    #[inline]
    pub(crate) fn add(&self, count: u64) {
        self.0.set(self.0.get().wrapping_add(count));
    }

    #[inline]
    pub(crate) fn inc(&self) {
        self.add(1);
    }
}

/// Name and place of a counter.
type Entry = (&'static str, fn(&Stats) -> &Counter);

macro_rules! entry {
    ($name:ident) => {
        (stringify!($name), |stats: &Stats| &stats.$name)
    };
}

/// Returns the counter of frames that are dropped for `reason`.
fn of_drop(reason: DropReason) -> Entry {
    match reason {
        DropReason::Malformed(MalformedReason::Truncated) => entry!(drop_truncated),
        DropReason::Malformed(MalformedReason::HeaderChecksum) => entry!(drop_header_checksum),
        DropReason::Malformed(MalformedReason::Fragment) => entry!(drop_fragment),
        DropReason::Malformed(MalformedReason::Options) => entry!(drop_options),
        DropReason::Malformed(MalformedReason::UdpLength) => entry!(drop_udp_length),
        DropReason::Malformed(MalformedReason::Version) => entry!(drop_version),
        DropReason::Malformed(MalformedReason::Opcode) => entry!(drop_unknown_opcode),
        DropReason::Malformed(MalformedReason::Pad) => entry!(drop_pad),
        DropReason::Malformed(MalformedReason::Payload) => entry!(drop_payload),
        DropReason::Malformed(MalformedReason::Icrc) => entry!(drop_icrc),
        DropReason::Datagram => entry!(drop_datagram),
        DropReason::NoQp => entry!(drop_no_qp),
        DropReason::Address => entry!(drop_address),
        DropReason::PKey => entry!(drop_pkey),
        DropReason::QKey => entry!(drop_qkey),
        DropReason::NoReceive => entry!(drop_no_receive),
        DropReason::Access => entry!(drop_access),
        DropReason::State => entry!(drop_state),
        DropReason::Opcode => entry!(drop_opcode),
        DropReason::Sequence => entry!(drop_sequence),
    }
}

/// Returns the counter of datagrams that are ignored for `reason`; `None` for those that the network stack gets.
fn of_ignored(reason: Ignored) -> Option<Entry> {
    Some(match reason {
        Ignored::NotLocal => return None,
        Ignored::NotCm => entry!(cm_not_cm),
        Ignored::Unsupported => entry!(cm_unsupported),
        Ignored::InvalidSource => entry!(cm_invalid_source),
        Ignored::Malformed => entry!(cm_malformed),
        Ignored::Unknown => entry!(cm_unknown),
        Ignored::Duplicate => entry!(cm_duplicates),
        Ignored::Unexpected => entry!(cm_unexpected),
        Ignored::Refused => entry!(cm_refused),
        Ignored::NoRoom => entry!(cm_no_room),
    })
}

/// Returns the name of the counter of frames that are dropped for `reason`.
pub(crate) fn drop_name(reason: DropReason) -> &'static str {
    of_drop(reason).0
}

/// Returns the name of the counter of datagrams that are ignored for `reason`.
pub(crate) fn ignored_name(reason: Ignored) -> &'static str {
    of_ignored(reason).map_or("cm_not_local", |(name, _)| name)
}

impl Stats {
    pub(crate) fn count_drop(&self, reason: DropReason) {
        of_drop(reason).1(self).inc();
    }

    /// Counts a datagram to a local address.
    pub(crate) fn count_datagram(&self, handled: Result<(), Ignored>) {
        self.rx_datagrams.inc();
        let Err(why) = handled else { return };
        self.rx_datagrams_ignored.inc();
        if let Some((_, counter)) = of_ignored(why) {
            counter(self).inc();
        }
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
    /// Datagrams with a wrong Q_Key.
    drop_qkey,
    /// Datagrams, and messages of unreliable connections, without a receive.
    drop_no_receive,
    /// WRITEs of unreliable connections that may not access the memory.
    drop_access,
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
    /// Atomic operations of peers executed.
    rx_atomics,
    /// Keys invalidated by peers (SEND with Invalidate).
    rx_invalidations,
    /// Datagrams to queue pair 1 of a local address.
    rx_datagrams,
    /// Of those, without effect on a connection.
    rx_datagrams_ignored,
    /// Ignored: not a CM message.
    cm_not_cm,
    /// Ignored: a CM message that is not implemented (LAP, APR).
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
    /// Times without an answer after which the newest packet was sent again, or missing responses were requested again, to have a
    /// loss reported: from [`Timing::min_probe`](crate::Timing::min_probe) on.
    tail_probes,
    /// Times without an answer after which the oldest packet was sent again: from [`Timing::min_resend`](crate::Timing::min_resend) on. Those
    /// of an ACK timeout count as retries.
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
