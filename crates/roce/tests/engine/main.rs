// SPDX-License-Identifier: MIT OR Apache-2.0

//! Tests of the engine through its public interface: two engines on a virtual network, in virtual time.

mod addresses;
mod after_gap;
mod atomics;
mod bursts;
mod congestion;
mod connect;
mod copies;
mod cq;
mod cq_changes;
mod datagrams;
mod errors;
mod fields;
mod hostile;
mod immediate;
mod keys;
mod late_packets;
mod loss;
mod memory;
mod modify;
mod next_hop;
mod notice_queues;
mod pair;
mod payload_copy;
mod placement;
mod read_gaps;
mod read_invalidation;
mod receive_batch;
mod repeated_reads;
mod requests;
mod responder;
mod rnr_ticks;
mod shard_threads;
mod shards;
mod srq;
mod tail_probe;
mod threads;
mod threats;
mod trace;
mod unbound;
mod unreliable;
mod unverified_sources;
mod usual_frames;
mod windows;
mod work_flags;
