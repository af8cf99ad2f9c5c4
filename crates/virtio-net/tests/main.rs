// SPDX-License-Identifier: MIT OR Apache-2.0

//! Tests of the driver's side on a device in the place of a machine.

#[cfg(target_os = "linux")]
mod bring_up;
#[cfg(target_os = "linux")]
mod capabilities;
#[cfg(target_os = "linux")]
mod coalesced;
#[cfg(target_os = "linux")]
mod configuration;
#[cfg(target_os = "linux")]
mod control_queue;
#[cfg(target_os = "linux")]
mod fake;
mod hash;
#[cfg(target_os = "linux")]
mod merged;
#[cfg(target_os = "linux")]
mod offload;
#[cfg(target_os = "linux")]
mod pairs;
#[cfg(target_os = "linux")]
mod queue_reset;
#[cfg(target_os = "linux")]
mod queues;
#[cfg(target_os = "linux")]
mod reset;
#[cfg(target_os = "linux")]
mod scaling;
#[cfg(target_os = "linux")]
mod threads;
