//! Memory windows of type 2: a part of a region, with rights of its own, for the peer of one queue pair.

use core::sync::atomic::{AtomicU32, Ordering};

use super::life::State;
use super::switch::{Place, SharedRange, Switch};
use super::{Access, Range, Region};
use crate::arc::Arc;
use roce_wire::Qpn;

/// A memory window. It grants nothing until a request has bound it.
#[derive(Debug)]
pub struct Window(pub(super) Arc<Region>);

impl Window {
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

/// What a bind makes of a window: `length` bytes of a region, under the region's own addresses.
#[derive(Clone, Copy, Debug)]
pub struct Binding {
    /// Key of the region, which was registered by [`crate::Engine::register`].
    pub region: u32,
    pub address: u64,
    /// In bytes, at least 1.
    pub length: u64,
    /// [`Access::REMOTE_READ`], [`Access::REMOTE_WRITE`] or both.
    pub access: Access,
}

/// What is special to a window.
#[derive(Debug)]
pub(super) struct View {
    pub(super) switch: Switch<Bound>,
}

/// A binding that is in force, or was, or will be.
#[derive(Debug, Default)]
pub(super) struct Bound {
    pub(super) range: SharedRange,
    region: AtomicU32,
    qpn: AtomicU32,
}

impl View {
    pub(super) fn new() -> Self {
        Self { switch: Switch::new([Bound::default(), Bound::default()]) }
    }
}

impl Place for Bound {
    fn range(&self) -> &SharedRange {
        &self.range
    }
}

impl Bound {
    pub(super) fn set(&self, key: u32, qpn: Qpn, asked: &Binding) {
        let Binding { region, address, length, access } = *asked;
        self.range.set(&Range { key, base: address, length, access });
        self.region.store(region, Ordering::Relaxed);
        self.qpn.store(qpn.value(), Ordering::Relaxed);
    }

    pub(super) fn asked(&self) -> Binding {
        let Range { base, length, access, .. } = self.range.get();
        Binding { region: self.region(), address: base, length, access }
    }

    #[inline]
    pub(super) fn region(&self) -> u32 {
        self.region.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn qpn(&self) -> u32 {
        self.qpn.load(Ordering::Relaxed)
    }
}
