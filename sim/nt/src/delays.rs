// SPDX-License-Identifier: MIT OR Apache-2.0

//! Threads delayed at chosen moments, so that a test decides what runs meanwhile.

use std::{
    sync::{
        Arc,
        atomic::{
            AtomicBool,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::Duration,
};

use parking_lot::Mutex;

/// A moment in the execution of an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moment {
    /// Before the kernel calls a function of the image, named as in reports: "a DPC routine", "a timer callback". A DPC is in no
    /// queue then, and a timer is not set.
    Call(&'static str),
    /// When the named import is called, before it does anything.
    Enter(&'static str),
    /// Before the named import returns to a thread of the image.
    Return(&'static str),
    /// Before the named import returns to a DPC of the image.
    ReturnToDpc(&'static str),
}

/// A delay that was requested with [`Delays::add`].
#[derive(Debug)]
pub struct Delay {
    moment: Moment,
    nanos: u64,
    reached: AtomicBool,
}

impl Delay {
    /// Whether a thread has come to the moment: it is delayed, or was.
    #[must_use]
    pub fn is_reached(&self) -> bool {
        self.reached.load(SeqCst)
    }
}

/// The delays of a host that no thread has reached.
#[derive(Default)]
pub struct Delays {
    any: AtomicBool,
    list: Mutex<Vec<Arc<Delay>>>,
}

impl Delays {
    /// Delays the next thread that comes to `moment` for `time` of the simulation's clock. At `DISPATCH_LEVEL` it keeps its CPU.
    pub fn add(&self, moment: Moment, time: Duration) -> Arc<Delay> {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let delay = Arc::new(Delay { moment, nanos, reached: AtomicBool::new(false) });
        let mut list = self.list.lock();
        list.push(delay.clone());
        self.any.store(true, SeqCst);
        delay
    }

    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.any.load(Relaxed)
    }

    /// Returns the nanoseconds of the first delay whose moment `is_now`: the calling thread has reached it.
    pub(crate) fn take(&self, is_now: impl Fn(Moment) -> bool) -> Option<u64> {
        let mut list = self.list.lock();
        let index = list.iter().position(|delay| is_now(delay.moment))?;
        let delay = list.remove(index);
        self.any.store(!list.is_empty(), SeqCst);
        delay.reached.store(true, SeqCst);
        Some(delay.nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_taken_once_at_its_moment() {
        let delays = Delays::default();
        assert!(!delays.any());
        let [first, second] = [Moment::Call("a DPC routine"), Moment::Return("KeSetEvent")]
            .map(|moment| delays.add(moment, Duration::from_nanos(7)));
        assert!(delays.any());
        let is_call = |moment: Moment| matches!(moment, Moment::Call(_));
        assert_eq!(delays.take(is_call), Some(7));
        assert_eq!((first.is_reached(), second.is_reached()), (true, false));
        assert!(delays.any());
        assert_eq!(delays.take(is_call), None);
        assert_eq!(delays.take(|_| true), Some(7));
        assert!(second.is_reached() && !delays.any());
    }
}
