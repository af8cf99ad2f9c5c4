// SPDX-License-Identifier: MIT OR Apache-2.0

//! SMB Direct ([MS-SMBD]): SMB2 messages over an RDMA connection, without I/O.
//!
//! The first two messages of a [`Connection`] negotiate sizes and credits, all others carry upper-layer messages, in fragments
//! if they are long. Each message needs a credit that its receiver has granted. A peer that breaks the protocol ends the
//! connection, for a [`Reason`] that [`ReasonCounts`] count.
//!
//! Large data do not travel in messages: one side describes memory by [`Descriptors`], the other reads or writes it by RDMA and
//! may invalidate the token with its answer.
//!
//! This crate knows neither NDKPI nor RoCE: it consumes received messages, upper-layer messages and the time, and produces
//! messages to send, upper-layer messages, events and the next deadline. It allocates fallibly, does not panic, and each call
//! takes bounded time.
//!
//! | file | |
//! | --- | --- |
//! | `wire` | the three messages |
//! | `negotiation` | sizes and credits to begin with |
//! | `credits` | who may send |
//! | `send_queue`, `reassembly` | fragments |
//! | `keepalive` | the idle timer |
//! | `state`, `connection` | how they act together |
//! | `descriptor` | memory for RDMA |
#![cfg_attr(not(test), no_std)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

extern crate alloc;

mod codec;
mod config;
mod connection;
mod credits;
mod descriptor;
mod keepalive;
mod negotiation;
mod reason;
mod reassembly;
mod send_queue;
mod state;
pub mod wire;

pub use config::{
    ACTIVE_NEGOTIATION_TIMEOUT, Config, NEGOTIATION_RECEIVE_SIZE, PASSIVE_NEGOTIATION_TIMEOUT, Parameters,
};
pub use connection::{Connection, CreateError, Event, SendError, SendErrorKind, Transmit};
pub use descriptor::{BufferDescriptor, Channel, DescriptorError, Descriptors, Token};
pub use keepalive::{KeepaliveEvent, KeepaliveState};
pub use reason::{Reason, ReasonCounts};
pub use reassembly::{Payload, Received};
pub use state::{Event as StateEvent, State};
