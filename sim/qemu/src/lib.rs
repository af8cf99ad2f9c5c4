// SPDX-License-Identifier: MIT OR Apache-2.0

//! QEMU's virtio-net-pci as the network device of a simulated host.
//!
//! QEMU runs without a guest: its only processor halts at the reset vector. The physical memory of the simulated host is
//! memory of the virtual machine, so that the device reads rings and buffers where the driver writes them. Register
//! accesses travel over QEMU's qtest protocol; interrupts and queue notifications are eventfds. Real time only.
//!
//! | module | responsible for |
//! | --- | --- |
//! | [`options`] | configuration of the device, and of the machine that it is in |
//! | [`qtest`] | register and configuration accesses |
//! | [`qmp`] | the monitor: settings of the device, and what happens to it |
//! | [`doorbells`] | eventfds for interrupts and notifications |
//! | [`process`] | starting QEMU, and ending it |
//! | [`pci`] | what firmware does on a PC: configuration space, BARs, the root port |
//! | [`capabilities`] | the places of the device's structures |
//! | [`common`] | the registers of the common configuration that this crate uses |
//! | [`device`] | the PCI function |
//! | [`damage`] | a ring that makes the device set NEEDS_RESET |
//! | [`dpdk`] | a vhost-user backend: the queues of two devices, and the link between them |
//! | [`tap`] | Linux's network stack as the peer, in a network namespace |
//!
//! What the device does with memory is not checked: QEMU reaches all memory of the host, mapped for the device or not.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

pub mod capabilities;
pub mod common;
pub mod damage;
pub mod device;
pub mod doorbells;
pub mod dpdk;
pub mod options;
pub mod pci;
pub mod process;
pub mod qmp;
pub mod qtest;
pub mod tap;

pub use device::QemuNic;
pub use dpdk::DpdkSwitch;
pub use options::{Backend, Identity, QemuOptions, Slot};
pub use tap::{Tap, TapNetwork};
