// SPDX-License-Identifier: MIT OR Apache-2.0

//! Connectors: one connection each, from either side.
//!
//! | module | contents |
//! | --- | --- |
//! | [`object`] | the connector object and its callbacks |
//! | [`state`] | the table of states and events |
//! | [`connect`] | the active side: `NdkConnect`, `NdkCompleteConnect` |
//! | [`accept`] | the passive side: the connect event, `NdkAccept`, `NdkReject` |
//! | [`disconnect`] | `NdkDisconnect` |
//! | [`events`] | the engine's events: replies, refusals, disconnects, aborts |
//! | [`path`] | link addresses of next hops that change |
//! | [`connection_data`] | read limits and private data |

mod accept;
mod connect;
mod connection_data;
mod disconnect;
mod events;
mod object;
mod path;
mod state;

pub use accept::on_request;
pub use connect::Source;
pub use connection_data::ConnectParameters;
pub use object::Connector;
