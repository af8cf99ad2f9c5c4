// SPDX-License-Identifier: MIT OR Apache-2.0

//! The state of transmit slots whose frames request an offload: a virtio-net header that is not zero, or a buffer for packets that the
//! device segments.

use alloc::boxed::Box;
use alloc::vec::Vec;

use fallible::{try_box, vec};

use crate::buffers::{Buffers, MAX_HEADER_LEN};
use crate::error::Error;
use crate::hal::Hal;

/// Longest LSO or USO packet from its Ethernet header on, in bytes: with the longest virtio-net header it fills a block of 64 KiB.
pub const MAX_LARGE_FRAME: usize = (64 * 1024) - MAX_HEADER_LEN;

/// Use of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// Its own buffer, and a virtio-net header of zeros.
    Plain,
    /// Its own buffer, and a virtio-net header that requests an offload.
    Header,
    /// The large buffer with this number, instead of its own buffer.
    Large(u16),
}

/// Packets that the device segments (LSO, USO).
#[derive(Debug, Clone, Copy)]
pub(crate) struct LargeFrames {
    /// Number of buffers for them.
    pub(crate) buffers: u16,
    /// The virtio-net header states whether the TCP flag CWR is set (HOST_ECN).
    pub(crate) has_ecn: bool,
}

/// Use of each slot, and the large buffers.
#[derive(Debug)]
pub(crate) struct OffloadSlots<H: Hal> {
    pub(crate) large: Buffers<H>,
    pub(crate) has_ecn: bool,
    /// Large buffers that are not outstanding.
    free: Vec<u16>,
    /// By slot.
    uses: Vec<Use>,
    /// Number of slots that are not plain.
    special: u16,
    /// The last request for a large buffer found none free.
    waits: bool,
}

impl<H: Hal> OffloadSlots<H> {
    /// Allocates the large buffers for a queue of `slots` slots. Not inlined: together with the caller's, its stack frame is too large for
    /// a kernel stack.
    #[inline(never)]
    pub(crate) fn boxed(
        hal: &H,
        slots: u16,
        frames: LargeFrames,
        has_hash: bool,
    ) -> Result<Box<Self>, Error> {
        let LargeFrames { buffers: count, has_ecn } = frames;
        let mut free = vec::with_capacity(usize::from(count))?;
        for id in (0..count).rev() {
            vec::push_within_capacity(&mut free, id)?;
        }
        let uses = vec::filled(usize::from(slots), Use::Plain)?;
        let large = Buffers::new(hal, count, MAX_LARGE_FRAME, has_hash)?;
        Ok(try_box(Self { large, has_ecn, free, uses, special: 0, waits: false })?)
    }

    /// Returns a free large buffer.
    pub(crate) fn free_large(&mut self) -> Option<u16> {
        let id = self.free.last().copied();
        self.waits = id.is_none();
        id
    }

    /// Whether the last request for a large buffer found none free, and still none is free.
    pub(crate) fn waits(&self) -> bool {
        self.waits && self.free.is_empty()
    }

    /// Whether any slot is not plain.
    pub(crate) fn any(&self) -> bool {
        self.special != 0
    }

    /// Sets the use of a plain slot. A large buffer is the one that [`free_large`](Self::free_large) returned.
    pub(crate) fn set(&mut self, id: u16, to: Use) {
        if let Some(slot) = self.uses.get_mut(usize::from(id)) {
            *slot = to;
            self.special = self.special.wrapping_add(1);
            if matches!(to, Use::Large(_)) {
                self.free.pop();
            }
        }
    }

    /// Makes a slot plain again. The slot is not outstanding. Returns its previous use.
    pub(crate) fn clear(&mut self, id: u16) -> Use {
        let was = self
            .uses
            .get_mut(usize::from(id))
            .map_or(Use::Plain, |slot| core::mem::replace(slot, Use::Plain));
        if was != Use::Plain {
            self.special = self.special.wrapping_sub(1);
        }
        if let Use::Large(large) = was {
            // There is capacity for every buffer.
            let _ = vec::push_within_capacity(&mut self.free, large);
        }
        was
    }
}
