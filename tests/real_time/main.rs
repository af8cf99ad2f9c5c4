// SPDX-License-Identifier: MIT OR Apache-2.0

//! Tests on the image beside something that has no virtual time: QEMU's devices, Linux and DPDK behind them, hosts outside the simulation,
//! and threads that race.
//!
//! A program of its own, so that none of them runs beside the tests of `image`, which use all processors.

#![cfg(target_os = "linux")]

mod dpdk;
mod external_host;
mod qemu;
mod qemu_tap;
mod threads;
