// SPDX-License-Identifier: MIT OR Apache-2.0

//! States of a miniport adapter and of its device, each declared as one table.
//!
//! The driver keeps both states and applies the events. The tables are here so that a program of the build machine can
//! print them, too.
#![no_std]

pub mod adapter;
pub mod device;
