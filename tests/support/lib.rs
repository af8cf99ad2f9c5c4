// SPDX-License-Identifier: MIT OR Apache-2.0

//! What tests on the image share: testbeds, copies, packets, TCP, receive side scaling, devices with faults.

#![cfg(target_os = "linux")]
#![allow(clippy::must_use_candidate, reason = "a test that drops a result does not need it")]

pub mod bed;
pub mod copying;
pub mod faults;
pub mod flows;
pub mod linux;
pub mod packets;
pub mod plans;
pub mod scaling;
pub mod tcp;
