// SPDX-License-Identifier: MIT OR Apache-2.0

//! A modern virtio-net device, device side: registers, rings, frames. (virtio)
//!
//! | module | responsible for |
//! | --- | --- |
//! | [`features`] | feature bits and the device status register |
//! | [`quirks`] | injected misbehavior of the device |
//! | [`misbehavior`] | misbehavior that begins while a driver uses the device |
//! | `pauses` | times in which a part of its work is left undone |
//! | [`options`] | configuration of a NIC; queue numbers |
//! | `common` | common and device configuration |
//! | `filter` | receive filters |
//! | `line` | the interrupt status of a device without MSI-X |
//! | `scaling` | receive side scaling and hash reports, as the driver sets them |
//! | `steering` | queue pairs in use, and the pair that a received frame belongs to |
//! | `offload` | the header before every frame: checksums and segmentation |
//! | `coalescing` | received TCP segments that are delivered as one frame |
//! | [`interrupt_coalescing`] | interrupts that wait for others |
//! | `interrupts` | whether a queue interrupts |
//! | `device` | the state that the queues share |
//! | `transmit`, `receive`, `control` | the queues |
//! | [`nic`] | the PCI function: registers in, events out |

mod coalescing;
mod common;
mod control;
mod device;
pub mod features;
mod filter;
pub mod interrupt_coalescing;
mod interrupts;
mod line;
pub mod misbehavior;
pub mod nic;
mod offload;
pub mod options;
mod pauses;
pub mod quirks;
mod receive;
mod scaling;
mod steering;
mod transmit;

pub use device::{Device, NicCounters, PairCounters};
pub use features::{Features, Status};
pub use misbehavior::Misbehavior;
pub use nic::Nic;
pub use options::{CONTROL, NicOptions, RECEIVE, Role, TRANSMIT};
pub use quirks::{LargeQuirk, Quirks, UsedQuirk};
pub use scaling::RssLimits;
