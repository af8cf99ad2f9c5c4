// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory regions registered by `NdkFastRegister` requests: the engine allocates a region, and each request
//! supplies its pages.
//!
//! The engine tracks whether the region is registered. Its token is the same over all registrations: consumers
//! read it once and send it to peers.
//!
//! Close does not wait for queued requests that name the region: the engine's region is released at once and such a
//! request fails when it is executed. It accesses no memory, because every access looks the region up.
//= R-CLOSE-28, R-MR-29, R-MR-30

use crate::base::limits::LIMITS;
use crate::base::status::{self, NtResult};
use crate::objects::pd::Pd;
use fallible::Arc;
use ndk_abi::nt::{
    STATUS_IMPLEMENTATION_LIMIT, STATUS_INVALID_DEVICE_REQUEST, STATUS_INVALID_DEVICE_STATE,
    STATUS_INVALID_PARAMETER,
};
use nt::SpinLock;
use roce::{KeyState, Region};
use state_table::state_table;

state_table! {
    /// Life cycle of a fast-register region.
    pub enum State {
        /// As created.
        Uninitialized,
        /// An initialization is in progress.
        Initializing,
        /// Requests may register pages with it.
        Ready,
    }
    /// Events of the life cycle.
    pub enum Event {
        Initialize: Uninitialized | Ready => Initializing;
        Done: Initializing => Ready;
        Failed: Initializing => Uninitialized;
    }
}

/// A fast-register region.
pub struct Fast {
    inner: SpinLock<Inner>,
}

struct Inner {
    state: State,
    region: Option<Arc<Region>>,
}

impl Fast {
    pub fn new() -> Self {
        Self { inner: SpinLock::new(Inner { state: State::Uninitialized, region: None }) }
    }

    /// Begins an initialization, which [`Fast::initialize`] completes. Fails while memory is registered.
    //= R-MR-25, R-MR-26, R-MR-28
    pub fn begin_initialize(&self, pages: u32) -> NtResult {
        if pages == 0 {
            return Err(STATUS_INVALID_PARAMETER);
        }
        if pages > LIMITS.fast_pages {
            return Err(STATUS_IMPLEMENTATION_LIMIT);
        }
        let mut inner = self.inner.lock();
        if inner.region.as_ref().is_some_and(|region| region.state() != KeyState::Free) {
            return Err(STATUS_INVALID_DEVICE_STATE);
        }
        inner.state = inner.state.on(Event::Initialize).map_err(|_| STATUS_INVALID_DEVICE_STATE)?;
        Ok(())
    }

    /// Completes an initialization.
    //= R-MR-5, R-MR-27, R-MR-31
    pub fn initialize(&self, pd: &Pd, pages: u32, remote: bool) -> NtResult {
        let engine = &pd.provider().engine;
        let outcome = engine.memory().allocate_region(pd.domain(), pages, remote).map_err(status::create);
        let event = if outcome.is_ok() { Event::Done } else { Event::Failed };
        let (answer, region) = match outcome {
            Ok(region) => (Ok(()), Some(region)),
            Err(status) => (Err(status), None),
        };
        let previous = {
            let mut inner = self.inner.lock();
            inner.state = inner.state.on(event).unwrap_or(inner.state);
            core::mem::replace(&mut inner.region, region)
        };
        release(pd, previous);
        answer
    }

    /// Returns the region's key.
    pub fn key(&self) -> NtResult<u32> {
        let inner = self.inner.lock();
        inner.region.as_ref().map(|region| region.key()).ok_or(STATUS_INVALID_DEVICE_REQUEST)
    }

    pub fn token(&self) -> u32 {
        self.key().unwrap_or(0)
    }

    pub fn finish(&self, pd: &Pd) {
        let region = self.inner.lock().region.take();
        release(pd, region);
    }
}

/// Releases the engine's region. Queued requests that name it will fail.
fn release(pd: &Pd, region: Option<Arc<Region>>) {
    if let Some(region) = region {
        pd.provider().engine.memory().deregister(&region);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fast_register_region_lifecycle() {
        insta::assert_snapshot!(State::table());
    }

    //= R-MR-25, R-MR-26
    #[test]
    fn page_counts_up_to_the_limit_are_accepted() {
        for (pages, answer) in [
            (0, Err(STATUS_INVALID_PARAMETER)),
            (1, Ok(())),
            (LIMITS.fast_pages, Ok(())),
            (LIMITS.fast_pages + 1, Err(STATUS_IMPLEMENTATION_LIMIT)),
            (u32::MAX, Err(STATUS_IMPLEMENTATION_LIMIT)),
        ] {
            assert_eq!(Fast::new().begin_initialize(pages), answer, "{pages} pages");
        }
    }

    #[test]
    fn concurrent_initialization_is_refused() {
        let fast = Fast::new();
        assert_eq!(fast.begin_initialize(1), Ok(()));
        assert_eq!(fast.begin_initialize(1), Err(STATUS_INVALID_DEVICE_STATE));
    }
}
