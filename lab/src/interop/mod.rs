// SPDX-License-Identifier: MIT OR Apache-2.0

//! Tests of the driver's image against Linux: a guest with `rdma_rxe` on the same wire.
//!
//! [`cases`] lists the test cases. [`run`] runs them, with one guest ([`linux_guest`]) for all cases and a new host with the driver
//! for each; [`smb`] runs those of SMB Direct, [`tcp`] those of Ethernet. [`native`] replaces the driver by the engine alone in cases with operations that NDKPI lacks. [`table`]
//! prints the results; [`command`] is `cargo xtask interop`. `docs/interop.md` explains how to use it.

pub mod addresses;
pub mod cases;
pub mod command;
pub mod native;
pub mod run;
mod smb;
mod smb_work;
pub mod table;
pub mod tcp;
pub mod variants;
