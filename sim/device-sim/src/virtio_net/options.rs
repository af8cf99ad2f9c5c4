// SPDX-License-Identifier: MIT OR Apache-2.0

//! Configuration of a NIC, and the numbers of its queues.

use super::{features::Features, quirks::Quirks};

/// Queue indices: one pair, then the control queue.
pub const RECEIVE: usize = 0;
pub const TRANSMIT: usize = 1;
pub const CONTROL: usize = 2;
/// Number of queues.
pub const QUEUES: usize = 3;

/// Configuration of a NIC.
#[derive(Clone, Debug)]
pub struct NicOptions {
    pub mac: [u8; 6],
    /// Largest IP packet, for the field `mtu`.
    pub mtu: u16,
    pub features: Features,
    /// MSI-X vectors.
    pub vectors: u16,
    /// Largest sizes of the receive, transmit and control queue.
    pub queue_sizes: [u16; QUEUES],
    pub quirks: Quirks,
}

impl NicOptions {
    /// Returns a NIC without quirks, with the features that QEMU offers on a tap backend (as far as they are
    /// implemented) and QEMU's queue sizes.
    #[must_use]
    pub fn new(mac: [u8; 6]) -> Self {
        Self {
            mac,
            mtu: 1500,
            features: Features::DEFAULT,
            vectors: 4,
            queue_sizes: [1024, 1024, 64],
            quirks: Quirks::default(),
        }
    }
}
