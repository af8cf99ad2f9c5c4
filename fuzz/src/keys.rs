// SPDX-License-Identifier: MIT OR Apache-2.0

//! Keys that requests of the consumer make valid: of a region for fast registration and of a memory window, both of which give
//! the peer parts of [`Zone::Windowed`].

use fallible::Arc;
use roce::{Access, Binding, MemoryWindow, Region, Registration, SendData, SendOperation, WindowType};

use crate::arena::{ZONE, Zone};
use crate::endpoint::{Endpoint, base};
use crate::record::Record;

/// A multiple of the page size.
const FAST_BASE: u64 = 0x6000_0000;

/// A region for fast registration, a window, and the page of the region's registrations.
pub struct Keys {
    fast: Arc<Region>,
    window: MemoryWindow,
    page: u64,
    /// Key and first address of the last registration that was posted.
    registered: (u32, u64),
    /// Key of the last bind that was posted.
    bound: u32,
}

/// Which key a record is about.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Which {
    Fast,
    Window,
}

/// The requests of a record.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// Fast registration, or bind.
    Grant,
    Invalidate,
}

impl Keys {
    pub fn new(endpoint: &Endpoint) -> Self {
        let backing = endpoint.arena.backing(Zone::Windowed);
        // SAFETY: the arena outlives the engine.
        #[allow(unsafe_code, reason = "the contract of the mapping")]
        let page = unsafe { endpoint.engine.memory().map_logical(0, backing) }.expect("room for a mapping");
        let fast = endpoint.engine.memory().allocate_region(endpoint.pd, 1, true).expect("room for a region");
        let window = endpoint
            .engine
            .memory()
            .create_window(endpoint.pd, WindowType::Type2)
            .expect("room for a window");
        let (registered, bound) = ((fast.key(), FAST_BASE), window.key());
        Self { fast, window, page, registered, bound }
    }

    /// Returns the key and the first address that the peer uses.
    pub fn granted(&self, which: Which) -> (u32, u64) {
        match which {
            Which::Fast => self.registered,
            Which::Window => (self.bound, base(Zone::Windowed)),
        }
    }

    /// Calls `post` with a request. If that accepts it, the engine may write what it grants.
    pub fn post(
        &mut self,
        endpoint: &mut Endpoint,
        which: Which,
        request: Request,
        record: &Record,
        post: impl FnOnce(&Endpoint, SendOperation, SendData<'_>) -> bool,
    ) {
        let (from, length) = (record.word(3) % (ZONE as u16 + 8), record.word(5) % (ZONE as u16 + 8));
        let access = Access::from_bits_truncate(record.byte(7));
        // Usually the key of the object, with any lowest byte.
        let own = if which == Which::Fast { self.fast.key() } else { self.window.key() };
        let key = if record.byte(8) < 240 { own & !0xFF | u32::from(record.byte(9)) } else { own ^ 0x100 };
        let accepted = match (request, which) {
            (Request::Invalidate, _) => {
                let (granted, _) = self.granted(which);
                let key = if record.byte(8) < 240 { granted } else { key };
                post(endpoint, SendOperation::Invalidate { key }, SendData::Sges(&[]));
                return;
            }
            (Request::Grant, Which::Fast) => {
                let base = FAST_BASE + u64::from(from);
                // Rarely an address within a page, or more pages than the region has.
                let pages = [self.page | u64::from(record.byte(10) >> 7), self.page];
                let count = if record.byte(8) % 16 == 15 { 2 } else { 1 };
                let registration = Registration {
                    base,
                    offset: u32::from(from),
                    length: u64::from(length),
                    access,
                    pages: &pages[..count],
                };
                let data = SendData::Registration(&registration);
                let accepted = post(endpoint, SendOperation::FastRegister { key }, data);
                if accepted {
                    self.registered = (key, base);
                }
                accepted
            }
            (Request::Grant, Which::Window) => {
                let zone = if record.byte(10) < 240 { Zone::Windowed } else { Zone::Foreign };
                let region = endpoint.regions[zone as usize].as_ref().map_or(0x4321, |region| region.key());
                let address = base(zone) + u64::from(from);
                let binding = Binding { region, address, length: u64::from(length), access };
                let accepted = post(endpoint, SendOperation::Bind { key }, SendData::Binding(&binding));
                if accepted {
                    self.bound = key;
                }
                accepted && zone == Zone::Windowed
            }
        };
        if accepted && access.contains(Access::REMOTE_WRITE) {
            let end = usize::from(from + length).min(ZONE);
            endpoint.arena.allow(
                Zone::Windowed,
                usize::from(from).min(ZONE),
                end.saturating_sub(usize::from(from)),
            );
        }
    }

    /// Frees the objects.
    pub fn free(&self, endpoint: &Endpoint) {
        assert!(endpoint.engine.memory().deregister(&self.fast), "the region is not registered");
        assert!(endpoint.engine.memory().destroy_window(&self.window), "the window does not exist");
        assert!(endpoint.engine.memory().unmap_logical(self.page), "the page is not mapped");
    }
}
