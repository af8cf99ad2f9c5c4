// SPDX-License-Identifier: MIT OR Apache-2.0

//! The virtio-net device: PCI resources, registers, DMA memory, interrupts, queues.

pub mod device_state;
pub mod dma;
pub mod drain;
pub mod interrupt;
pub mod pci_resources;
pub mod poll_objects;
pub mod port;
pub mod queue_pair;
pub mod registers;
mod sleep;
pub mod transmit_watchdog;
pub mod vlan_tag;
