// SPDX-License-Identifier: MIT OR Apache-2.0

//! Pageable memory: blocks of paged pool, and sections of images whose names begin with `PAGE`.
//!
//! It is handled as Driver Verifier's Force IRQL Checking does it: when a thread raises its IRQL to `DISPATCH_LEVEL` or
//! above, all pageable memory is trimmed, which here removes access to it. An access below that level faults, and makes
//! the range accessible again; an access at it is a bug check. Memory that no code touched since the last trim needs no
//! work, and a host without pageable memory checks one flag.
//!
//! The protection is one for all CPUs of a host. What a thread below `DISPATCH_LEVEL` makes accessible is trimmed again
//! when a thread at that level returns from an import. Under the deterministic clock, where threads change in imports
//! only, no access is missed; under the threaded clock one can be, as with the real verifier.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::atomic::{
        AtomicBool,
        Ordering::{Relaxed, SeqCst},
    },
};

use parking_lot::Mutex;

use super::addresses;

/// The pageable memory of one host.
#[derive(Default)]
pub struct Paged {
    /// Some range may be accessible.
    is_resident: AtomicBool,
    /// Some range exists.
    is_used: AtomicBool,
    /// By first address. Never locked while memory of the host is accessed: [`Paged::page_in`] runs in a signal handler.
    ranges: Mutex<BTreeMap<usize, Pages>>,
}

struct Pages {
    end: usize,
    /// Access that the range allows while it is resident.
    protection: i32,
    is_resident: bool,
    /// E.g. "paged pool".
    name: String,
}

impl Paged {
    /// Makes whole pages pageable. `protection` is the access that they allow, as `mprotect` takes it.
    pub fn add(&self, range: Range<usize>, protection: i32, name: String) {
        protect(&range, libc::PROT_NONE);
        let pages = Pages { end: range.end, protection, is_resident: false, name };
        self.ranges.lock().insert(range.start, pages);
        self.is_used.store(true, SeqCst);
    }

    /// Makes the range that starts at `start` accessible at any IRQL; returns `false` when there is none.
    pub fn remove(&self, start: usize) -> bool {
        if !self.is_used.load(Relaxed) {
            return false;
        }
        let Some(pages) = self.ranges.lock().remove(&start) else { return false };
        protect(&(start..pages.end), pages.protection);
        true
    }

    /// Returns whether [`Paged::trim`] may have something to do.
    #[inline]
    pub fn is_resident(&self) -> bool {
        self.is_resident.load(Relaxed)
    }

    /// Removes access to all pageable memory: some thread of the host is at `DISPATCH_LEVEL` or above.
    #[inline]
    pub fn trim(&self) {
        if self.is_resident.load(SeqCst) {
            self.trim_resident();
        }
    }

    #[cold]
    fn trim_resident(&self) {
        let mut ranges = self.ranges.lock();
        for (&start, pages) in ranges.iter_mut().filter(|(_, pages)| pages.is_resident) {
            pages.is_resident = false;
            protect(&(start..pages.end), libc::PROT_NONE);
        }
        self.is_resident.store(false, SeqCst);
    }

    /// Makes the range around an address accessible, for an access below `DISPATCH_LEVEL` that faulted. Returns `false`
    /// when it faulted for another reason.
    pub fn page_in(&self, address: usize, write: bool) -> bool {
        if !self.is_used.load(Relaxed) {
            return false;
        }
        let mut ranges = self.ranges.lock();
        let Some((&start, pages)) = ranges.range_mut(..=address).next_back() else { return false };
        if address >= pages.end || write && pages.protection & libc::PROT_WRITE == 0 {
            return false;
        }
        self.is_resident.store(true, SeqCst);
        pages.is_resident = true;
        protect(&(start..pages.end), pages.protection);
        true
    }

    /// Names the pageable memory at an address; `None` when it is not pageable.
    #[must_use]
    pub fn explain(&self, address: usize) -> Option<String> {
        if !self.is_used.load(Relaxed) {
            return None;
        }
        let ranges = self.ranges.lock();
        let (_, pages) = ranges.range(..=address).next_back()?;
        (address < pages.end).then(|| pages.name.clone())
    }
}

/// Changes the access to a range. When Linux has no mapping left, it stays as it was.
fn protect(range: &Range<usize>, protection: i32) {
    let _ = addresses::protect(range.start, range.len(), protection);
}
