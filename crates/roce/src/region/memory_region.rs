//! Memory regions and windows: everything that a key can name.

use core::sync::atomic::{AtomicU32, Ordering};

use super::access_rights::{Access, KeyRange, Pd};
use super::fast_register::FastRegion;
use super::key_state::State;
use super::window::WindowState;
use crate::memory::Backing;
use fallible::Arc;

/// Memory that has a key.
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
    /// Registered until it is deregistered.
    Fixed(FixedRegion),
    /// Registered by requests.
    Fast(FastRegion),
    /// A part of another one, bound by requests.
    Window(WindowState),
}

#[derive(Debug)]
pub(super) struct FixedRegion {
    pub(super) range: KeyRange,
    pub(super) backing: Backing,
    /// Windows that are bound to it.
    pub(super) windows: AtomicU32,
}

impl Region {
    /// Names the region locally and, if its rights allow, to peers. Never 0, and not used again soon
    /// after the region is gone. The low byte of a region for fast registration is that of the last
    /// registration that had its turn, whether it is in force still or not, and 0 before the first.
    ///
    /// This and the other getters wait for nobody, and nobody waits for their callers: any IRQL. While a
    /// registration has its turn, they may tell of it or of the one before.
    #[inline]
    pub fn key(&self) -> u32 {
        match self.range().key {
            0 => self.index,
            key => key,
        }
    }

    /// Address of the first byte, for elements and peers; 0 when nothing is registered.
    #[inline]
    pub fn base(&self) -> u64 {
        self.range().base
    }

    /// In bytes; 0 when nothing is registered.
    pub fn length(&self) -> u64 {
        self.range().length
    }

    /// None when nothing is registered.
    pub fn access(&self) -> Access {
        self.range().access
    }

    /// Whether it grants anything at the moment; once it is deregistered, whether it did at last.
    pub fn state(&self) -> State {
        match &self.content {
            Content::Fixed(_) => State::Valid,
            Content::Fast(fast) => fast.slot.state(),
            Content::Window(view) => view.slot.state(),
        }
    }

    /// Windows that are bound to it. They grant nothing any more once it is deregistered.
    pub fn windows(&self) -> u32 {
        match &self.content {
            Content::Fixed(fixed) => fixed.windows.load(Ordering::Relaxed),
            _ => 0,
        }
    }

    /// What is in force; of what is not, nothing but the key that it had.
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

/// A memory window. It grants nothing until a request has bound it.
#[derive(Debug)]
pub struct MemoryWindow(pub(super) Arc<Region>);

impl MemoryWindow {
    /// Names the window to peers. The low byte is the consumer's to choose with each bind; that of the last
    /// bind that had its turn is told, whether it is in force still or not, and 0 before the first. Waits for
    /// nobody, and nobody waits for the caller. Any IRQL.
    pub fn key(&self) -> u32 {
        self.0.key()
    }

    /// Whether it grants anything at the moment. Any IRQL.
    pub fn state(&self) -> State {
        self.0.state()
    }
}
