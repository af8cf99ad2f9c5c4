// SPDX-License-Identifier: MIT OR Apache-2.0

//! Frame counters by kind of destination address. RDMA frames are counted, too.

use core::sync::atomic::{AtomicU64, Ordering};

use virtio_net::ReceiveCounters;

/// Kind of destination address, in NDIS's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cast {
    Directed,
    Multicast,
    Broadcast,
}

impl Cast {
    /// Returns the kind of a frame that starts with its Ethernet header.
    pub fn of(frame: &[u8]) -> Self {
        match frame.first_chunk() {
            Some([0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF]) => Self::Broadcast,
            Some([first, _, _, _, _, _]) if first & 1 != 0 => Self::Multicast,
            _ => Self::Directed,
        }
    }
}

/// A counter of frames and of their bytes.
#[derive(Default)]
pub struct FrameCounter {
    frames: AtomicU64,
    bytes: AtomicU64,
}

impl FrameCounter {
    fn add(&self, len: usize) {
        self.frames.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(len as u64, Ordering::Relaxed);
    }

    pub fn frames(&self) -> u64 {
        self.frames.load(Ordering::Relaxed)
    }

    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// Counters that the queues do not keep. Frames that are neither multicast nor broadcast count as directed.
#[derive(Default)]
pub struct Statistics {
    pub multicast_sent: FrameCounter,
    pub broadcast_sent: FrameCounter,
    pub multicast_received: FrameCounter,
    pub broadcast_received: FrameCounter,
    send_failures: AtomicU64,
    /// Received frames that were dropped because no NET_BUFFER_LIST was free.
    no_buffer: AtomicU64,
    too_long: FrameCounter,
}

impl Statistics {
    pub fn sent(&self, cast: Cast, len: usize) {
        match cast {
            Cast::Directed => {}
            Cast::Multicast => self.multicast_sent.add(len),
            Cast::Broadcast => self.broadcast_sent.add(len),
        }
    }

    pub fn received(&self, cast: Cast, len: usize) {
        match cast {
            Cast::Directed => {}
            Cast::Multicast => self.multicast_received.add(len),
            Cast::Broadcast => self.broadcast_received.add(len),
        }
    }

    pub fn send_failed(&self) {
        self.send_failures.fetch_add(1, Ordering::Relaxed);
    }

    pub fn send_failures(&self) -> u64 {
        self.send_failures.load(Ordering::Relaxed)
    }

    pub fn received_without_buffer(&self) {
        self.no_buffer.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a received frame that is dropped because it is longer than the MTU allows.
    pub fn received_too_long(&self, len: usize) {
        self.too_long.add(len);
    }

    /// Returns what of the receive counters of the queues was dropped as invalid afterwards.
    pub fn complete_counters(&self, of_queues: ReceiveCounters) -> ReceiveCounters {
        let (frames, bytes) = (self.too_long.frames(), self.too_long.bytes());
        ReceiveCounters {
            frames: of_queues.frames.saturating_sub(frames),
            bytes: of_queues.bytes.saturating_sub(bytes),
            invalid: of_queues.invalid.saturating_add(frames),
            ..of_queues
        }
    }

    pub fn no_buffer(&self) -> u64 {
        self.no_buffer.load(Ordering::Relaxed)
    }
}
