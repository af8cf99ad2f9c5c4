// SPDX-License-Identifier: MIT OR Apache-2.0

//! Receive segment coalescing (RSC): checks and counts coalesced frames. While the stack has this enabled, the device delivers consecutive
//! TCP segments of a flow as one frame. A device that has not answered yet, or refuses to stop, does so although the stack does not want it:
//! its frames are divided. (WDK: Overview of Receive Segment Coalescing)

use alloc::boxed::Box;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use fallible::{AllocError, try_box};
use ndk_abi::ndis::{
    NDIS_OBJECT_HEADER, NDIS_OBJECT_TYPE_DEFAULT, NDIS_RSC_STATISTICS_INFO, NDIS_RSC_STATISTICS_REVISION_1,
    NDIS_SIZEOF_RSC_STATISTICS_REVISION_1,
};
use virtio_net::{Coalesced, CoalescedHeader, ReceiveCounters};

/// Coalesced frames of an adapter: the IP versions for which they are accepted, and their counters.
#[derive(Default)]
pub struct Coalescing {
    /// Bit 0: IPv4, bit 1: IPv6. Coalesced frames of a version whose bit is clear are divided.
    admitted: AtomicU8,
    /// A frame was divided.
    has_divided: AtomicBool,
    /// Counters: coalesced segments, their payload in bytes, the coalesced frames, the frames that were dropped.
    segments: AtomicU64,
    octets: AtomicU64,
    frames: AtomicU64,
    aborts: AtomicU64,
    /// Frames on the wire that the device did not deliver as frames of their own, and the bytes of their headers.
    further: AtomicU64,
    headers: AtomicU64,
}

/// A frame that the device has delivered as several segments.
pub enum Segments {
    /// It is indicated as one frame.
    Coalesced(Coalesced),
    /// Each segment is indicated as a frame of its own.
    Divided(Coalesced),
}

impl Coalescing {
    /// Boxed and not inlined, because an adapter is large for a kernel stack.
    #[inline(never)]
    pub fn try_new() -> Result<Box<Self>, AllocError> {
        try_box(Self::default())
    }

    /// Checks an untagged frame that consists of several segments according to its virtio-net header, and completes the checksum of a single
    /// one. `None` if the frame must be dropped.
    pub fn complete(&self, frame: &mut [u8], header: CoalescedHeader, max_frame: u32) -> Option<Segments> {
        let Some(frame) = Coalesced::complete(frame, header, max_frame as usize) else {
            self.aborts.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        let further = u64::from(frame.segments.saturating_sub(1));
        let is_admitted = self.admits(frame.is_ipv6);
        if further != 0 {
            self.further.fetch_add(further, Ordering::Relaxed);
            self.headers.fetch_add(further.wrapping_mul(frame.headers as u64), Ordering::Relaxed);
            if is_admitted {
                self.segments.fetch_add(further.wrapping_add(1), Ordering::Relaxed);
                self.octets.fetch_add(frame.payload as u64, Ordering::Relaxed);
                self.frames.fetch_add(1, Ordering::Relaxed);
            } else {
                self.has_divided.store(true, Ordering::Relaxed);
            }
        }
        Some(if is_admitted { Segments::Coalesced(frame) } else { Segments::Divided(frame) })
    }

    /// Whether a frame was divided since the adapter was started.
    pub fn has_divided(&self) -> bool {
        self.has_divided.load(Ordering::Relaxed)
    }

    fn admits(&self, is_ipv6: bool) -> bool {
        self.admitted.load(Ordering::Relaxed) & bits([!is_ipv6, is_ipv6]) != 0
    }

    /// Converts `counters`, which count a frame of several segments once, to wire counts: one frame for each segment, and its
    /// headers.
    pub fn complete_counters(&self, counters: ReceiveCounters) -> ReceiveCounters {
        ReceiveCounters {
            frames: counters.frames.wrapping_add(self.further.load(Ordering::Relaxed)),
            bytes: counters.bytes.wrapping_add(self.headers.load(Ordering::Relaxed)),
            invalid: counters.invalid.wrapping_add(self.aborts.load(Ordering::Relaxed)),
            ..counters
        }
    }

    /// Begins a change to the IP versions in `wanted` (IPv4, IPv6): admits these and those admitted before, whose coalesced frames may still
    /// arrive. Returns whether the change revokes a version. One caller at a time.
    pub fn begin_change(&self, wanted: [bool; 2]) -> bool {
        let before = self.admitted.fetch_or(bits(wanted), Ordering::Relaxed);
        before & !bits(wanted) != 0
    }

    /// Completes the change: admits the IP versions in `wanted` alone.
    pub fn complete_change(&self, wanted: [bool; 2]) {
        self.admitted.store(bits(wanted), Ordering::Relaxed);
    }

    /// `OID_TCP_RSC_STATISTICS`.
    pub fn statistics(&self) -> NDIS_RSC_STATISTICS_INFO {
        NDIS_RSC_STATISTICS_INFO {
            Header: NDIS_OBJECT_HEADER {
                Type: NDIS_OBJECT_TYPE_DEFAULT,
                Revision: NDIS_RSC_STATISTICS_REVISION_1,
                Size: NDIS_SIZEOF_RSC_STATISTICS_REVISION_1,
            },
            CoalescedPkts: self.segments.load(Ordering::Relaxed),
            CoalescedOctets: self.octets.load(Ordering::Relaxed),
            CoalesceEvents: self.frames.load(Ordering::Relaxed),
            Aborts: self.aborts.load(Ordering::Relaxed),
        }
    }
}

fn bits([v4, v6]: [bool; 2]) -> u8 {
    u8::from(v4) | u8::from(v6) << 1
}
