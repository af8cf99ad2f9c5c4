// SPDX-License-Identifier: MIT OR Apache-2.0

//! The device's side of virtio's split and packed rings.
//!
//! | module | responsible for |
//! | --- | --- |
//! | `queue` | one queue in either format: [`DeviceQueue`] |
//! | `split` | split rings: rust-vmm's queue, and checks that it does not make |
//! | `packed` | packed rings |
//! | `chain` | a buffer that the driver made available: [`Chain`] |
//! | `ring` | size and addresses of a queue: [`RingAddresses`] |
//! | `memory` | memory as a device sees it: [`DeviceMemory`] |
//! | `violation` | violations of the rings' rules by the driver: [`Violation`] |
//! | `quirks` | used entries that no correct device writes: [`UsedQuirk`] |
//!
//! A user enables a queue with the addresses that the driver programmed, takes buffers with [`DeviceQueue::pop`], returns them with
//! [`DeviceQueue::push`], and asks [`DeviceQueue::needs_interrupt`] once after each batch. The crate knows no registers, no bus and no
//! device. A queue is used by one thread at a time; its driver may run on another one.

#![cfg(target_os = "linux")]

mod chain;
mod memory;
mod packed;
mod queue;
mod quirks;
mod ring;
mod split;
mod violation;

pub use chain::Chain;
pub use memory::DeviceMemory;
pub use queue::DeviceQueue;
pub use quirks::UsedQuirk;
pub use ring::RingAddresses;
pub use violation::Violation;
