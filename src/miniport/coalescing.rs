// SPDX-License-Identifier: MIT OR Apache-2.0

//! Receive segment coalescing: the device delivers TCP segments that follow each other as one frame, while the stack uses that.
//! (WDK: Overview of Receive Segment Coalescing)

use alloc::boxed::Box;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use fallible::{AllocError, try_box};
use ndk_abi::ndis::{
    NDIS_OBJECT_HEADER, NDIS_OBJECT_TYPE_DEFAULT, NDIS_RSC_STATISTICS_INFO, NDIS_RSC_STATISTICS_REVISION_1,
    NDIS_SIZEOF_RSC_STATISTICS_REVISION_1,
};
use virtio_net::{Coalesced, CoalescedHeader, Error, ReceiveCounters};

use super::task_offload::OffloadState;
use crate::nic::port::Port;

/// Coalesced frames of an adapter: which are taken, and their counters.
#[derive(Default)]
pub struct Coalescing {
    /// Bit 0: IPv4, bit 1: IPv6. Frames of other versions are dropped.
    admitted: AtomicU8,
    /// Coalesced segments, their payload in bytes, the frames that they became, those that were dropped.
    segments: AtomicU64,
    octets: AtomicU64,
    frames: AtomicU64,
    aborts: AtomicU64,
    /// Bytes of headers that the frames no longer have.
    headers: AtomicU64,
}

impl Coalescing {
    /// In a box, and not inlined: an adapter is large for a kernel stack.
    #[inline(never)]
    pub fn try_new() -> Result<Box<Self>, AllocError> {
        try_box(Self::default())
    }

    /// Checks a frame without a tag that consists of several segments, as its header says, and completes it. Returns the number of
    /// segments; `None` if it is to be dropped.
    pub fn complete(&self, frame: &mut [u8], header: CoalescedHeader, max_frame: u32) -> Option<u16> {
        let checked = Coalesced::complete(frame, header, max_frame as usize);
        let Some(frame) = checked.filter(|frame| self.admits(frame.is_ipv6)) else {
            self.aborts.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        let further = u64::from(frame.segments.saturating_sub(1));
        if further != 0 {
            self.segments.fetch_add(further.wrapping_add(1), Ordering::Relaxed);
            self.octets.fetch_add(frame.payload as u64, Ordering::Relaxed);
            self.frames.fetch_add(1, Ordering::Relaxed);
            self.headers.fetch_add(further.wrapping_mul(frame.headers as u64), Ordering::Relaxed);
        }
        Some(frame.segments)
    }

    fn admits(&self, is_ipv6: bool) -> bool {
        self.admitted.load(Ordering::Relaxed) & bits([!is_ipv6, is_ipv6]) != 0
    }

    /// Adds to `counters`, which count each coalesced frame as one, what makes them those of the wire.
    pub fn complete_counters(&self, counters: ReceiveCounters) -> ReceiveCounters {
        let further =
            self.segments.load(Ordering::Relaxed).saturating_sub(self.frames.load(Ordering::Relaxed));
        ReceiveCounters {
            frames: counters.frames.wrapping_add(further),
            bytes: counters.bytes.wrapping_add(self.headers.load(Ordering::Relaxed)),
            invalid: counters.invalid.wrapping_add(self.aborts.load(Ordering::Relaxed)),
            ..counters
        }
    }

    /// Has the device, which has started, coalesce what is in force. Before frames that it no longer coalesces are dropped,
    /// `indicate_received` has those indicated that it has received. If it refuses, frames that it coalesces nevertheless are dropped. For
    /// a device that does not run nothing is done: its start does it. Waits for the device's answer, at most two seconds.
    /// `PASSIVE_LEVEL`.
    ///
    /// # Errors
    /// The device failed.
    pub fn program(
        &self,
        port: &Port,
        offloads: &OffloadState,
        indicate_received: impl FnOnce(),
    ) -> Result<(), Error> {
        let programmed = port.with_commands(|commands| {
            // Not before: a change meanwhile is programmed by the next user of the queue.
            let wanted = offloads.coalescing();
            // What the device coalesces until it has answered, and from then on.
            let before = self.admitted.fetch_or(bits(wanted), Ordering::Relaxed);
            let programmed = commands.set_coalescing(wanted, || port.is_running());
            if programmed == Ok(true) && before & !bits(wanted) != 0 {
                indicate_received();
            }
            self.admitted.store(bits(wanted), Ordering::Relaxed);
            programmed
        });
        match programmed {
            Some(Err(error)) if port.is_running() => Err(error),
            _ => Ok(()),
        }
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
