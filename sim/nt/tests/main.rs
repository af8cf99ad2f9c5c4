// SPDX-License-Identifier: MIT OR Apache-2.0

//! Tests of the simulated kernel: its services, its verifier, and its clocks.

#![cfg(target_os = "linux")]
#![allow(unsafe_code, reason = "calls functions of the kernel as drivers do")]

mod built_requests;
mod cancel_safe_queues;
mod checks;
mod clock;
mod common;
mod device_stacks;
mod dpc;
mod drivers;
mod endings;
mod events;
mod faults;
mod files;
mod images;
mod io;
mod kernel;
mod lifetime;
mod mutexes;
mod named_events;
mod offences;
mod on_host;
mod physical;
mod plain_locks;
mod pool;
mod regions;
mod registrations;
mod registry;
mod registry_values;
mod requests;
mod resources;
mod rules;
mod services;
mod spin_locks;
mod stacks;
mod strings;
mod threads;
mod timers;
mod tracing;
mod verdict;
mod verifier;
mod version;
