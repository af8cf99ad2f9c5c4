// SPDX-License-Identifier: MIT OR Apache-2.0

//! The virtio-net device: PCI resources, registers, DMA memory, interrupts, queues.

pub mod dma;
pub mod drain;
pub mod interrupt;
pub mod pair;
pub mod poll;
pub mod port;
pub mod registers;
pub mod resources;
mod sleep;
pub mod state;
pub mod tag;
pub mod watchdog;
