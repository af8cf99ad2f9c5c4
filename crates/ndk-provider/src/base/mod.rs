// SPDX-License-Identifier: MIT OR Apache-2.0

//! The layer below the objects: object lifetime, tables, and the state that objects share. Names no object type.
//!
//! | module | contents |
//! | --- | --- |
//! | `object` | header, references, close |
//! | `unchecked` | an object pointer before it is checked |
//! | `pended_call` | create, request and close calls that return `STATUS_PENDING` |
//! | `needed_memory` | whether a call completes inline at the caller's IRQL |
//! | `closed` | objects whose close callback is due |
//! | `callback` | the consumer's callbacks |
//! | `affinity` | the processor that makes a queue's notifications |
//! | `registry` | from the engine's context numbers to objects |
//! | `removal` | objects to abort when the device is removed |
//! | `shared` | engine, environment, timer and deferred routines |
//! | `strict` | the settings for authors of consumers |
//! | `environment` | the trait of what the provider needs from its driver |
//! | `ports`, `quota`, `limits`, `version`, `status`, `address`, `counters`, `config` | one table each |
//! | `transmit`, `loopback` | outgoing frames, and those from the adapter to itself |
//! | `memory` | registration of the consumer's memory with the engine |

pub mod address;
pub mod affinity;
#[allow(unsafe_code, reason = "calls the consumer's functions")]
pub mod callback;
#[allow(unsafe_code, reason = "links objects without references")]
pub mod closed;
pub mod config;
pub mod counters;
pub mod environment;
#[allow(unsafe_code, reason = "shares static structures that contain pointers")]
pub mod limits;
pub mod loopback;
#[allow(unsafe_code, reason = "vouches for the consumer's memory")]
pub mod memory;
pub mod needed_memory;
#[allow(unsafe_code, reason = "one allocation behind the consumer's pointer and the references")]
pub mod object;
pub mod pended_call;
pub mod ports;
pub mod quota;
#[allow(unsafe_code, reason = "turns the engine's numbers into references to objects")]
pub mod registry;
pub mod removal;
pub mod shared;
pub mod status;
pub mod strict;
pub mod transmit;
#[cfg(feature = "strict")]
#[allow(unsafe_code, reason = "reads the head of an object of any type")]
pub mod unchecked;
pub mod version;
