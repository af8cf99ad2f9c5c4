//! Counters of frames by kind of destination, both paths together: RDMA frames count too.

use core::sync::atomic::{AtomicU64, Ordering};

/// Kind of destination address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cast {
    Directed,
    Multicast,
    Broadcast,
}

impl Cast {
    /// Of a frame, from its Ethernet header on.
    pub fn of(frame: &[u8]) -> Self {
        match frame.first_chunk() {
            Some([0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF]) => Self::Broadcast,
            Some([first, _, _, _, _, _]) if first & 1 != 0 => Self::Multicast,
            _ => Self::Directed,
        }
    }
}

/// Frames and bytes.
#[derive(Default)]
pub struct Tally {
    frames: AtomicU64,
    bytes: AtomicU64,
}

impl Tally {
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

/// What the queues' own counters cannot tell: everything else is directed, RDMA included.
#[derive(Default)]
pub struct Statistics {
    pub multicast_sent: Tally,
    pub broadcast_sent: Tally,
    pub multicast_received: Tally,
    pub broadcast_received: Tally,
    send_failures: AtomicU64,
    /// Frames for NDIS that found no NET_BUFFER_LIST.
    no_buffer: AtomicU64,
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

    pub fn no_buffer(&self) -> u64 {
        self.no_buffer.load(Ordering::Relaxed)
    }
}
