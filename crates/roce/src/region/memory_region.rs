// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory regions and windows: everything that a key can name.

use core::sync::atomic::{AtomicU32, Ordering};

use super::access_rights::{Access, KeyRange, Pd};
use super::fast_register::FastRegion;
use super::key_state::State;
use super::window::WindowState;
use crate::error::ReregisterError;
use crate::memory::Backing;
use fallible::Arc;

/// A memory region.
#[derive(Debug)]
pub struct Region {
    /// The key's upper 24 bits, the lower 8 being 0.
    pub(super) index: u32,
    pub(super) pd: Pd,
    pub(super) content: Content,
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "each in an allocation of its own")]
pub(super) enum Content {
    /// Registered by a command, until it is deregistered.
    Fixed(FixedRegion),
    /// Registered by work requests (fast registration).
    Fast(FastRegion),
    /// A memory window, bound by work requests.
    Window(WindowState),
}

#[derive(Debug)]
pub(super) struct FixedRegion {
    pub(super) range: KeyRange,
    pub(super) backing: Backing,
    /// Number of windows bound to it.
    pub(super) windows: AtomicU32,
}

impl Region {
    /// Returns the key, local (L_Key) and remote (R_Key). Never 0, and not reused soon after deregistration. The low
    /// byte of a region for fast registration is that of the last executed registration, valid or not, and 0
    /// before the first.
    ///
    /// This and the other getters do not wait: any IRQL. While a registration executes, they may return the
    /// values before or after it.
    #[inline]
    #[must_use]
    pub fn key(&self) -> u32 {
        match self.range().key {
            0 => self.index,
            key => key,
        }
    }

    /// Returns the address of the first byte; 0 when nothing is registered.
    #[inline]
    pub fn base(&self) -> u64 {
        self.range().base
    }

    /// Returns the length in bytes; 0 when nothing is registered.
    pub fn length(&self) -> u64 {
        self.range().length
    }

    /// Returns the access rights; none when nothing is registered.
    pub fn access(&self) -> Access {
        self.range().access
    }

    /// Returns the state of the key; after deregistration, the last one.
    #[must_use]
    pub fn state(&self) -> State {
        match &self.content {
            Content::Fixed(_) => State::Valid,
            Content::Fast(fast) => fast.slot.state(),
            Content::Window(view) => view.slot.state(),
        }
    }

    /// Returns the number of windows bound to the region. They grant no access once it is deregistered.
    pub fn windows(&self) -> u32 {
        match &self.content {
            Content::Fixed(fixed) => fixed.windows.load(Ordering::Relaxed),
            _ => 0,
        }
    }

    /// Checks that no window is bound to the region.
    pub(super) fn check_unbound(&self) -> Result<(), ReregisterError> {
        if self.windows() == 0 { Ok(()) } else { Err(ReregisterError::Bound) }
    }

    /// Returns the current range; of a free key only the key value it had.
    #[inline]
    fn range(&self) -> KeyRange {
        let state = self.state();
        let range = match &self.content {
            Content::Fixed(fixed) => fixed.range,
            Content::Fast(fast) => fast.slot.snapshot(),
            Content::Window(view) => view.slot.snapshot(),
        };
        match state {
            State::Valid => range,
            State::Free => KeyRange { key: range.key, ..KeyRange::NONE },
        }
    }
}

/// A memory window. It grants no access until a work request has bound it.
#[derive(Debug)]
pub struct MemoryWindow(pub(super) Arc<Region>);

impl MemoryWindow {
    /// Returns the R_Key. The consumer chooses the low byte with each bind; it is that of the last executed bind of some bytes,
    /// valid or not, and 0 before the first. Does not wait. Any IRQL.
    #[must_use]
    pub fn key(&self) -> u32 {
        self.0.key()
    }

    /// Returns the state of the key. Any IRQL.
    #[must_use]
    pub fn state(&self) -> State {
        self.0.state()
    }
}
