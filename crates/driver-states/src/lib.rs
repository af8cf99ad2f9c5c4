// SPDX-License-Identifier: MIT OR Apache-2.0

//! States of a miniport adapter, of its device, and of the device's settings, each declared as one table, the limit of its events, and when
//! it resets its device.
//!
//! The driver keeps the states and applies the events. The tables are here so that a program of the build machine can
//! print them, too.
#![no_std]

pub mod adapter;
pub mod device;
pub mod rate_limit;
pub mod reset_history;
pub mod setting;
