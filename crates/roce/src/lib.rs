// SPDX-License-Identifier: MIT OR Apache-2.0

//! RoCEv2 without a network, a clock or a kernel: reliable connections, memory regions and connection
//! management of one adapter.
//!
//! [`Engine`] does no I/O: its driver passes in frames, requests and the time, and takes out frames,
//! completions, events and the next deadline. The same input gives the same output. Nothing here
//! waits, reads a clock, allocates on the way of a packet, or trusts a peer. Every method takes `&self`
//! and may be called from any thread; no lock is held by the caller, and none of the engine's is held when
//! a call returns.
//!
//! # How to drive it
//!
//! The methods are of four kinds:
//!
//! * **Commands** of the consumer: [`Engine::create_cq`] and the like, [`MemoryCommands::register`],
//!   [`Engine::post_send`], [`Engine::post_recv`], [`Engine::arm_cq`], [`Engine::flush`],
//!   [`ConnectionCommands::connect`] and the like. They answer at once.
//! * **Input**: [`Shard::handle_frame`] for each frame received, in place, or a [`Receiver`] for a batch of them. While a
//!   batch exists, its thread destroys no object. [`Shard::handle_timeout`] when the time has come.
//! * **Output**: [`Shard::poll_transmit`] writes frames into free slots of a transmit queue,
//!   [`Engine::poll_event`] tells what happened, [`Shard::poll_timeout`] when to call
//!   [`Shard::handle_timeout`] next.
//! * **Getters**: [`Cq::poll`], [`Engine::stats`] and the like.
//!
//! Input and output except events are per [`Shard`], of which there is one for each queue pair of the NIC
//! ([`Config::shards`]): a connection is transmitted by the shard by which its packets arrive. A driver with one queue pair of the
//! NIC has [`Engine::first_shard`].
//!
//! After any command or any batch of input, in this order: call `poll_transmit` until it returns less than
//! its budget, then `poll_event` until it returns `None`, then `poll_timeout` to set the one timer.
//! `handle_frame` leaves acknowledgements pending: a batch of frames is answered by one ACK,
//! so do not transmit in between. When the transmit queue runs full, what is left waits for the next
//! `poll_transmit`.
//!
//! # Locks
//!
//! In this order: the driver's transmit queue, connection management, a queue pair, a shared receive
//! queue, a completion queue; then, each for an instant and nothing below it, a shard's ready list, the event
//! list, the timer wheels, the free lists of tables. The locks that most packets take are those of their queue pair, of
//! its completion queue, and of their shard.
//! `R` is the lock to use: in a kernel, a spin lock that raises to `DISPATCH_LEVEL`. Input and output are to
//! be called at that level there (except [`Shard::poll_timeout`]), so that no thread is preempted that uses an
//! object of a table: destroying and invalidating spin until it is released, at
//! `DISPATCH_LEVEL` too. Elsewhere such a thread may be preempted, and [`Config::relax`] gives it the processor. Commands and getters are for that level and below.
//!
//! # Memory
//!
//! Objects are allocated, fallibly, when they are created, with all the room that they will ever need.
//! Memory of consumers is touched in one module, `memory`, and only inside of what they registered. A
//! received payload is copied there after the ICRC of its frame was checked; a payload to send is copied
//! into its frame in the pass that computes the ICRC.
#![cfg_attr(not(test), no_std)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

extern crate alloc;

mod cm;
mod config;
mod congestion;
mod conn;
mod cq;
mod cq_faults;
mod drop_reason;
mod engine;
mod error;
mod event_queue;
mod held_notices;
mod ignored;
mod memory;
#[cfg(test)]
mod models;
mod moderation;
mod notices;
mod number_prefix;
pub mod object_sizes;
mod object_table;
mod prefetch;
mod qp;
mod qp_attributes;
mod qp_change;
mod random;
mod ready_list;
mod recv_queue;
mod region;
mod reports;
mod sge_cursor;
mod shard;
#[cfg(test)]
mod shard_models;
mod shared;
mod srq;
mod stats;
#[cfg(test)]
mod testing;
mod time;
mod timer_wheel;
mod trace;
mod transport;
mod work;

pub use cm::{LocalQp, PeerQp};
pub use config::{Config, MOST_PACKETS, StashLimits};
pub use congestion::{CongestionConfig, CongestionMode, DcqcnConfig};
pub use conn::{
    AcceptSpec, ConnEvent, ConnId, ConnRequest, ConnectSpec, DisconnectOutcome, ListenSpec, ListenerId,
    PrivateData, ReadLimits, RejectReason, Timing,
};
pub use cq::{Arm, Cq, CqFault, DestroyResult};
pub use drop_reason::DropReason;
pub use engine::connect::ConnectionCommands;
pub use engine::events::{CqNotice, EngineEvent, SrqNotice};
pub use engine::memory::MemoryCommands;
pub use engine::receive::{Receiver, Verdict};
pub use engine::shard::Shard;
pub use engine::transmit::Transmit;
pub use engine::{Engine, Objects};
pub use error::{ConnError, CreateError, ModifyError, PostError, QpChangeError, ReregisterError};
pub use ignored::Ignored;
pub use memory::Backing;
pub use moderation::Moderation;
pub use number_prefix::NumberPrefix;
pub use qp::Qp;
pub use qp_attributes::QpSpec;
pub use qp_change::{DatagramSpec, PeerSpec, QpChange, QpFault, QpUpdate, RequesterSpec, UnreliableSpec};
pub use region::access_rights::{Access, PRIVILEGED_KEY, Pd};
pub use region::fast_register::Registration;
pub use region::key_state::{Event as KeyEvent, State as KeyState};
pub use region::memory_region::{MemoryWindow, Region};
pub use region::window::{Binding, WindowType};
pub use srq::{Srq, SrqSpec};
pub use stats::{Counter, Stats};
pub use time::Instant;
pub use trace::{ConnectionChange, Ends, Trace, TraceEvent, TraceRecord, reason_text};
pub use transport::state::{Event as QpEvent, State as QpState};
pub use work::{
    AtomicOperation, AtomicRequest, Completion, CompletionKind, CompletionStatus, DatagramRequest,
    RecvRequest, SendData, SendFlags, SendOperation, SendRequest, Sge,
};
