// SPDX-License-Identifier: MIT OR Apache-2.0

//! The state that all objects of one provider share.
//!
//! | module | contents |
//! | --- | --- |
//! | `provider_state` | engine, environment and what follows, in one structure |
//! | `scheduler` | the timer and the deferred routines |
//! | `affinity` | the processor that makes a queue's notifications |
//! | `transmit`, `loopback` | outgoing frames, and those from the adapter to itself |
//! | `memory` | registration of the consumer's memory with the engine |
//! | `ports`, `quota`, `counters`, `config` | one table each |

pub mod affinity;
pub mod config;
pub mod counters;
pub mod loopback;
#[allow(unsafe_code, reason = "vouches for the consumer's memory")]
pub mod memory;
pub mod ports;
pub mod provider_state;
pub mod quota;
pub mod scheduler;
pub mod transmit;
