// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory windows (IBTA Volume 1, section 10.6): a part of a region, with its own rights, for the peer of one queue pair (type 2), or
//! for the peers of all queue pairs of its protection domain (type 1).

use core::sync::atomic::{AtomicU32, Ordering};

use super::access_rights::{Access, KeyRange};
use super::binding_slot::{BindingSlot, Place, SharedRange};
use roce_wire::Qpn;

/// Parameters of a bind: `length` bytes of a region, under the region's own addresses.
#[derive(Clone, Copy, Debug)]
pub struct Binding {
    /// Key of the region, which was registered by [`crate::MemoryCommands::register`].
    pub region: u32,
    pub address: u64,
    /// In bytes, at least 1; 0 for a window of type 1 that is not to be bound any longer.
    pub length: u64,
    /// Rights of peers: [`Access::REMOTE_READ`], [`Access::REMOTE_WRITE`], both or none.
    pub access: Access,
}

/// Type of a memory window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowType {
    /// For the peers of all queue pairs of its protection domain. A bind replaces the one before, and ends it if its length is 0. No
    /// request invalidates it.
    Type1,
    /// For the peer of the queue pair that has bound it. It is invalidated before it is bound again.
    Type2,
}

/// State of a window.
#[derive(Debug)]
pub(super) struct WindowState {
    pub(super) window_type: WindowType,
    pub(super) slot: BindingSlot<WindowBinding>,
}

/// A binding: current, last or staged.
#[derive(Debug, Default)]
pub(super) struct WindowBinding {
    pub(super) range: SharedRange,
    region: AtomicU32,
    qpn: AtomicU32,
}

impl WindowState {
    pub(super) fn new(window_type: WindowType, relax: fn()) -> Self {
        let slot = BindingSlot::new([WindowBinding::default(), WindowBinding::default()], relax);
        Self { window_type, slot }
    }

    /// Returns whether the peer of a queue pair may use the window as it is bound.
    #[inline]
    pub(super) fn is_for(&self, bound: &WindowBinding, qpn: Qpn) -> bool {
        self.window_type == WindowType::Type1 || bound.qpn() == qpn.value()
    }
}

impl Place for WindowBinding {
    fn range(&self) -> &SharedRange {
        &self.range
    }
}

impl WindowBinding {
    pub(super) fn set(&self, key: u32, qpn: Qpn, asked: &Binding) {
        let Binding { region, address, length, access } = *asked;
        self.range.set(&KeyRange { key, base: address, length, access });
        self.region.store(region, Ordering::Relaxed);
        self.qpn.store(qpn.value(), Ordering::Relaxed);
    }

    pub(super) fn asked(&self) -> Binding {
        let KeyRange { base, length, access, .. } = self.range.get();
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
