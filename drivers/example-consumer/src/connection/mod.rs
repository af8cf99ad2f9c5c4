// SPDX-License-Identifier: MIT OR Apache-2.0

//! A connection: queue pair, completion queues, message buffers and credits. Both sides use it; what they do with
//! messages and completions is their [`Protocol`].
//!
//! All state of a connection is behind one spin lock. Posts are made with the lock held, which serializes them as NDKPI
//! demands. The provider's callbacks enter through [`channel::Channel`]; the owner holds a [`Connection`].

mod channel;
mod establish;
mod limits;
mod message;
mod messages;
mod queue;

pub use channel::Protocol;
pub use establish::{Connection, refuse};
pub use limits::Limits;
pub use message::{Hello, Kind, LEAST_CREDITS, Message, REQUESTS};
pub use queue::{Queue, Work};
