// SPDX-License-Identifier: MIT OR Apache-2.0

//! Tests of the simulated device on a bench without kernel and threads.

#![cfg(target_os = "linux")]

mod bench;
mod device;
mod misbehavior;
mod offload;
mod pairs;
mod scaling;
mod tunnel;
mod wire;
