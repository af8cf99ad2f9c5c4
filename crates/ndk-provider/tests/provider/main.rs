// SPDX-License-Identifier: MIT OR Apache-2.0

//! Tests of the provider through its dispatch tables, as a consumer calls them, and through the driver's interface.
//!
//! | modules | contents |
//! | --- | --- |
//! | `objects`, `create_calls`, `lifetime`, `closing`, `instances`, `limits` | creating, closing, limits |
//! | `connections`, `establishment`, `connectors`, `disconnect`, `addresses`, `next_hop` | connections |
//! | `traffic`, `requests`, `queues`, `registration` | data transfer, queues, memory |
//! | `callbacks`, `levels`, `rounds` | callbacks, IRQL, the deferred routine |
//! | `consumers` | what known consumers depend on |
//! | `driver` | the driver's calls |
//! | `out_of_memory` | exhausted pool |
//! | `bad_calls` | generated calls with wrong arguments |
//! | `strict`, `mistakes`, `connection_mistakes` | the strict provider |
//! | `support` | two hosts on a wire, a consumer, records of its calls |
#![allow(
    unsafe_code,
    reason = "calls the provider as consumers do, through tables of functions and pointers"
)]
#![allow(clippy::large_types_passed_by_value, reason = "a configuration, once for each test")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "a consumer's call through a table is several")]
#![allow(clippy::macro_metavars_in_unsafe, reason = "a test's call is unsafe as a whole")]

mod addresses;
mod bad_calls;
mod callbacks;
mod closing;
mod connection_mistakes;
mod connections;
mod connectors;
mod consumers;
mod create_calls;
mod disconnect;
mod driver;
mod establishment;
mod instances;
mod levels;
mod lifetime;
mod limits;
mod mistakes;
mod next_hop;
mod objects;
mod out_of_memory;
mod queues;
mod registration;
mod requests;
mod rounds;
mod strict;
mod support;
mod traffic;
