// SPDX-License-Identifier: MIT OR Apache-2.0

//! A virtio-net PCI device in software, and the Ethernet link it is plugged into.
//!
//! | module | responsible for |
//! | --- | --- |
//! | [`registers`] | register accesses, and misuse of a device by its driver |
//! | [`bus`] | what a device needs of the machine it is plugged into |
//! | [`function`] | a network device as the system of its machine uses it |
//! | [`checksum`] | checksums of TCP and UDP packets |
//! | [`toeplitz`] | hashes of addresses and ports |
//! | [`pci`] | configuration space, capabilities, BARs, the MSI-X table |
//! | [`dma`] | the device's view of memory: only what was mapped for it |
//! | [`mmio`] | trapped register accesses: instructions are decoded and forwarded to the device |
//! | [`virtio_net`] | registers, rings and the network device itself |
//! | [`link`] | the point-to-point link with its faults, captures, and a tunnel to the outside |
//!
//! The crate knows no kernel, no NDIS and no scheduler. The machine implements [`Bus`]; the link has no
//! clock and no thread of its own (the tunnel, which waits for a socket, is the exception).

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

pub mod bus;
pub mod checksum;
pub mod dma;
pub mod function;
pub mod link;
pub mod mmio;
pub mod pci;
pub mod registers;
pub mod toeplitz;
pub mod virtio_net;

pub use bus::Bus;
pub use dma::DmaSpace;
pub use function::PciFunction;
pub use registers::{Misuse, MisuseKind, Registers};
pub use virtio_net::{Nic, NicCounters, NicOptions, Quirks};
