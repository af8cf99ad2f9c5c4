// SPDX-License-Identifier: MIT OR Apache-2.0

//! Configuration of a NIC, and the numbers of its queues.

use super::{features::Features, quirks::Quirks};

/// Queue indices of the first pair, and of the control queue unless MQ was accepted.
pub const RECEIVE: usize = 0;
pub const TRANSMIT: usize = 1;
pub const CONTROL: usize = 2;

/// Purpose of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// The receive queue of a pair, from 0 on.
    Receive(usize),
    /// The transmit queue of a pair.
    Transmit(usize),
    Control,
}

impl Role {
    /// Returns the purpose of queue `index` of a device with `pairs` pairs, which are those of its configuration if MQ was
    /// accepted, otherwise one; `None` if it has no such queue. (virtio 5.1.2)
    #[must_use]
    pub const fn of(index: usize, pairs: usize) -> Option<Self> {
        match index {
            _ if index > 2 * pairs => None,
            _ if index == 2 * pairs => Some(Self::Control),
            _ if index.is_multiple_of(2) => Some(Self::Receive(index / 2)),
            _ => Some(Self::Transmit(index / 2)),
        }
    }
}

/// Returns the index of the receive queue of a pair.
pub(super) const fn receive_index(pair: usize) -> usize {
    2 * pair
}

/// Returns the index of the transmit queue of a pair.
pub(super) const fn transmit_index(pair: usize) -> usize {
    2 * pair + 1
}

/// Configuration of a NIC.
#[derive(Clone, Debug)]
pub struct NicOptions {
    pub mac: [u8; 6],
    /// Largest IP packet, for the field `mtu`.
    pub mtu: u16,
    /// With [`ACCESS_PLATFORM`](Features::ACCESS_PLATFORM), the system remaps the device's DMA.
    pub features: Features,
    /// Queue pairs, which a driver can use if the NIC offers [`MQ`](Features::MQ), otherwise only the first.
    pub pairs: u16,
    /// MSI-X vectors.
    pub vectors: u16,
    /// Largest sizes of the receive queues, of the transmit queues and of the control queue.
    pub queue_sizes: [u16; 3],
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
            pairs: 1,
            vectors: 4,
            queue_sizes: [256, 256, 64],
            quirks: Quirks::default(),
        }
    }

    /// Returns a NIC that offers `pairs` queue pairs, with an MSI-X vector for each queue.
    #[must_use]
    pub fn with_pairs(mac: [u8; 6], pairs: u16) -> Self {
        let options = Self::new(mac);
        Self { features: options.features | Features::MQ, pairs, vectors: 2 * pairs + 2, ..options }
    }

    /// Returns the number of queues.
    pub(super) fn queues(&self) -> usize {
        2 * usize::from(self.pairs) + 1
    }
}
