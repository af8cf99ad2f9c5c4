// SPDX-License-Identifier: MIT OR Apache-2.0

//! The virtio-net device: PCI resources, registers, DMA memory, interrupts, queues.
//!
//! | file | responsible for |
//! | --- | --- |
//! | [`pci_resources`], [`registers`], [`dma`] | what the system gives the device: BARs and messages, mapped registers, shared memory |
//! | [`interrupt`], [`message_processor`], [`poll_objects`] | messages and their DPCs, the processor of a message, NDIS polling |
//! | [`port`], [`reset_wait`] | the initialized device: start, stop, restart, control queue; resets that take long |
//! | [`queue_pair`], [`rdma_slots`], [`vlan_tag`] | a receive and a transmit queue, their locks and senders; tags of frames |
//! | [`transmit_progress`], [`transmit_watchdog`] | whether the device returns transmit slots |
//! | [`queue_resets`] | resets of single queues |
#![allow(unsafe_code, reason = "memory, registers and interrupts from NDIS")]

pub mod dma;
pub mod drain;
pub mod interrupt;
mod message_processor;
pub mod pci_resources;
pub mod poll_objects;
pub mod port;
pub mod queue_pair;
pub mod queue_resets;
pub mod rdma_slots;
pub mod registers;
pub mod reset_wait;
pub mod sleep;
pub mod transmit_progress;
pub mod transmit_watchdog;
pub mod vlan_tag;
