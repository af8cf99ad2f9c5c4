// SPDX-License-Identifier: MIT OR Apache-2.0

//! Limits the number of objects of each type to what the adapter reports, and the number of resolutions.
//!
//! An object is counted from before its creation until it is finished. That is before its close completes, so a
//! consumer may create the next object as soon as the close has completed.

use crate::base::limits::{LIMITS, NEXT_HOP_THREADS, RESOLUTIONS};
use crate::base::status::NtResult;
use core::mem::ManuallyDrop;
use core::sync::atomic::{AtomicU32, Ordering};
use ndk_abi::nt::STATUS_INSUFFICIENT_RESOURCES;

/// The counts of one provider, over all its NDK adapters.
pub struct Quotas {
    pub cqs: Quota,
    pub pds: Quota,
    pub mrs: Quota,
    pub mws: Quota,
    pub srqs: Quota,
    pub qps: Quota,
    /// Connects whose neighbor is being resolved.
    pub resolutions: Quota,
    /// Threads that resolve next hops of connections anew.
    pub next_hop_threads: Quota,
}

/// The count of one object type.
pub struct Quota {
    used: AtomicU32,
    limit: u32,
}

/// Admits one object that is being created. Given back when dropped, unless it is [kept](Admission::keep).
pub struct Admission<'a>(&'a Quota);

impl Quotas {
    pub const fn new() -> Self {
        Self {
            cqs: Quota::new(LIMITS.cqs),
            pds: Quota::new(LIMITS.pds),
            mrs: Quota::new(LIMITS.mrs),
            mws: Quota::new(LIMITS.mws),
            srqs: Quota::new(LIMITS.srqs),
            qps: Quota::new(LIMITS.qps),
            resolutions: Quota::new(RESOLUTIONS),
            next_hop_threads: Quota::new(NEXT_HOP_THREADS),
        }
    }
}

impl Quota {
    const fn new(limit: u32) -> Self {
        Self { used: AtomicU32::new(0), limit }
    }

    /// Admits one more object.
    ///
    /// # Errors
    /// `STATUS_INSUFFICIENT_RESOURCES` at the limit.
    //= R-CREATE-15
    pub fn admit(&self) -> NtResult<Admission<'_>> {
        let more = |used: u32| used.checked_add(1).filter(|more| *more <= self.limit);
        match self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Ok(Admission(self)),
            Err(_) => Err(STATUS_INSUFFICIENT_RESOURCES),
        }
    }

    /// Ends the admission of an object that is finished.
    pub fn give_back(&self) {
        self.used.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Admission<'_> {
    /// Keeps the object admitted until [`Quota::give_back`], which the object's `on_finish` calls.
    pub fn keep(self) {
        let _ = ManuallyDrop::new(self);
    }
}

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    //= R-CREATE-15
    #[test]
    fn objects_are_admitted_up_to_the_limit_and_again_after_one_is_finished() {
        let quota = Quota::new(2);
        quota.admit().ok().unwrap().keep();
        quota.admit().ok().unwrap().keep();
        assert_eq!(quota.admit().err(), Some(STATUS_INSUFFICIENT_RESOURCES));
        quota.give_back();
        quota.admit().ok().unwrap().keep();
        assert!(quota.admit().is_err());
    }

    #[test]
    fn failed_creation_is_not_counted() {
        let quota = Quota::new(1);
        drop(quota.admit().ok().unwrap());
        assert!(quota.admit().is_ok());
    }
}
