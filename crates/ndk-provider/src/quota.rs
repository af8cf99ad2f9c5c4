//! How many objects of each type there may be: as many as the adapter advertises.
//!
//! An object is counted from before it is made until it is finished, which is before its close is
//! answered: a consumer that was told so may create the next one.

use crate::info::LIMITS;
use crate::status::Answer;
use core::mem::ManuallyDrop;
use core::sync::atomic::{AtomicU32, Ordering};
use ndk_abi::nt::STATUS_INSUFFICIENT_RESOURCES;

/// The counts of one provider, whatever adapters its objects are of.
pub struct Quotas {
    pub cqs: Quota,
    pub pds: Quota,
    pub mrs: Quota,
    pub mws: Quota,
    pub srqs: Quota,
    pub qps: Quota,
}

/// The count of one type.
pub struct Quota {
    used: AtomicU32,
    limit: u32,
}

/// Room for an object that is being made: given back unless it is [kept](Admission::keep).
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
        }
    }
}

impl Quota {
    const fn new(limit: u32) -> Self {
        Self { used: AtomicU32::new(0), limit }
    }

    /// Room for one more.
    //= R-CREATE-15
    pub fn admit(&self) -> Answer<Admission<'_>> {
        let more = |used: u32| used.checked_add(1).filter(|more| *more <= self.limit);
        match self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Ok(Admission(self)),
            Err(_) => Err(STATUS_INSUFFICIENT_RESOURCES),
        }
    }

    /// The object that an admission was kept for is finished.
    pub fn give_back(&self) {
        self.used.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Admission<'_> {
    /// There is a body whose `finish` will give the room back, whatever else fails.
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
    fn as_many_as_the_limit_and_room_again_when_one_is_finished() {
        let quota = Quota::new(2);
        quota.admit().ok().unwrap().keep();
        quota.admit().ok().unwrap().keep();
        assert_eq!(quota.admit().err(), Some(STATUS_INSUFFICIENT_RESOURCES));
        quota.give_back();
        quota.admit().ok().unwrap().keep();
        assert!(quota.admit().is_err());
    }

    #[test]
    fn what_could_not_be_made_takes_no_room() {
        let quota = Quota::new(1);
        drop(quota.admit().ok().unwrap());
        assert!(quota.admit().is_ok());
    }
}
