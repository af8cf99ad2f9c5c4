// SPDX-License-Identifier: MIT OR Apache-2.0

//! Connection management as librdmacm has it: identifiers that resolve addresses, listen and connect, and channels of events.
//!
//! Queue pairs are not changed here: [`CmId::qp_attributes`] says what to set.

mod binding;
mod connection;
mod event;
mod id;
mod of_engine;
mod ports;

pub use connection::ConnectParameters;
pub use event::{CmEvent, CmEventKind, Parameters};
pub use id::{CmId, EventChannel, PortSpace};
