//! Registration by requests: the engine holds a region ready, whose pages come with each request.
//!
//! Whether it grants anything is the engine's to know. Its token is the same over all registrations: it is
//! read once by consumers, and sent to peers (R-MR-29, R-MR-30).
//!
//! A close does not wait for requests that name it and are still queued, as R-CLOSE-28 \[P\] would have it:
//! the engine's region goes at once, and such a request fails when its turn comes. No memory is touched then,
//! for every access looks the region up.
//= R-MR-29, R-MR-30

use crate::info::LIMITS;
use crate::machine::machine;
use crate::pd::Pd;
use crate::status::{self, Answer};
use ndk_abi::nt::{
    STATUS_IMPLEMENTATION_LIMIT, STATUS_INVALID_DEVICE_REQUEST, STATUS_INVALID_DEVICE_STATE,
    STATUS_INVALID_PARAMETER,
};
use nt::SpinLock;
use roce::{Arc, KeyState, Region};

machine! {
    /// The life of a region for fast registration.
    pub enum State {
        /// As created.
        Blank,
        /// It is being initialized.
        Initializing,
        /// Requests may register pages with it.
        Ready,
    }
    /// What happens in it.
    pub enum Event {
        Initialize,
        Done,
        Failed,
    }
    Blank + Initialize => Initializing,
    Initializing + Done => Ready,
    Initializing + Failed => Blank,
    Ready + Initialize => Initializing,
}

/// What is special to it.
pub struct Fast {
    inner: SpinLock<Inner>,
}

struct Inner {
    state: State,
    region: Option<Arc<Region>>,
}

impl Fast {
    pub fn new() -> Self {
        Self { inner: SpinLock::new(Inner { state: State::Blank, region: None }) }
    }

    /// Begins an initialization; [`Fast::initialize`] ends it. Not while something is registered.
    //= R-MR-25, R-MR-26, R-MR-28
    pub fn begin_initialize(&self, pages: u32) -> Answer {
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
        inner.state = inner.state.on(Event::Initialize).ok_or(STATUS_INVALID_DEVICE_STATE)?;
        Ok(())
    }

    //= R-MR-5, R-MR-27, R-MR-31
    pub fn initialize(&self, pd: &Pd, pages: u32, remote: bool) -> Answer {
        let engine = &pd.core().engine;
        let outcome = engine.allocate_region(pd.domain(), pages, remote).map_err(status::create);
        let event = if outcome.is_ok() { Event::Done } else { Event::Failed };
        let (answer, region) = match outcome {
            Ok(region) => (Ok(()), Some(region)),
            Err(status) => (Err(status), None),
        };
        let before = {
            let mut inner = self.inner.lock();
            inner.state = inner.state.on(event).unwrap_or(inner.state);
            core::mem::replace(&mut inner.region, region)
        };
        release(pd, before);
        answer
    }

    /// The key that requests name it by.
    pub fn key(&self) -> Answer<u32> {
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

/// Requests that still name it fail.
fn release(pd: &Pd, region: Option<Arc<Region>>) {
    if let Some(region) = region {
        pd.core().engine.deregister(&region);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_life_of_a_region_for_fast_registration() {
        insta::assert_snapshot!(crate::machine::print(State::TABLE));
    }

    //= R-MR-25, R-MR-26
    #[test]
    fn page_counts_up_to_the_limit_are_taken() {
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
    fn two_initializations_do_not_run_at_once() {
        let fast = Fast::new();
        assert_eq!(fast.begin_initialize(1), Ok(()));
        assert_eq!(fast.begin_initialize(1), Err(STATUS_INVALID_DEVICE_STATE));
    }
}
