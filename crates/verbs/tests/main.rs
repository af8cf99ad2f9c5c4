// SPDX-License-Identifier: MIT OR Apache-2.0

//! The exported functions, called as C programs call them.
#![cfg(target_os = "linux")]
#![allow(unsafe_code, reason = "calls functions with pointers, as C programs do")]

mod calls;
mod connections;
mod data;
mod devices;
mod queue_pairs;
mod regions;
mod rig;
mod unreliable;
mod work_requests;
