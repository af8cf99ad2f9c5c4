// SPDX-License-Identifier: MIT OR Apache-2.0

//! Devices in one process, over sockets of the loopback interface.
#![cfg(target_os = "linux")]
#![allow(unsafe_code, reason = "registers memory")]

mod connections;
mod devices;
mod messages;
mod rig;
