// SPDX-License-Identifier: MIT OR Apache-2.0

//! Holds back the callbacks of a provider, as a busy processor may do.
//!
//! The events of the engine are delivered late, all that are due at once and in their order. A call that pends is
//! completed by its work item, which is queued late. IRQL <= `DISPATCH_LEVEL`.

use super::settings::{CallbackDelay, StrictSettings};
use alloc::boxed::Box;
use alloc::vec::Vec;
use fallible::try_box_or_return;
use nt::SpinLock;

type Action = Box<dyn FnOnce() + Send>;

/// The callbacks held back.
pub struct HeldCallbacks {
    setting: Option<CallbackDelay>,
    held: SpinLock<Held>,
}

struct Held {
    /// When the waiting events of the engine are delivered; `None` while none is waiting.
    events: Option<u64>,
    /// When each action is due; the action is taken out when it runs.
    actions: Vec<(u64, Option<Action>)>,
    random: u64,
}

impl HeldCallbacks {
    /// `seed` selects the random delays.
    pub const fn new(settings: StrictSettings, seed: u64) -> Self {
        // The generator's state must not be 0.
        let held = Held { events: None, actions: Vec::new(), random: seed | 1 };
        Self { setting: settings.delay, held: SpinLock::new(held) }
    }

    /// Returns whether callbacks are held back at all.
    pub const fn is_on(&self) -> bool {
        self.setting.is_some()
    }

    /// Returns whether the events that wait now are to be delivered later.
    pub fn holds_events(&self, now: u64, waiting: bool) -> bool {
        let Some(setting) = self.setting else { return false };
        let mut held = self.held.lock();
        if !waiting {
            return false;
        }
        match held.events {
            Some(due) if due <= now => {
                held.events = None;
                false
            }
            Some(_) => true,
            None => {
                held.events = Some(held.due(now, setting));
                true
            }
        }
    }

    /// Runs `action` later: when [`HeldCallbacks::run_due`] is called at or after the time returned. Runs it now, and
    /// returns `None`, if nothing is held back or pool is exhausted.
    pub fn run_later(&self, now: u64, action: impl FnOnce() + Send + 'static) -> Option<u64> {
        let Some(setting) = self.setting else {
            action();
            return None;
        };
        let action: Action = match try_box_or_return(action) {
            Ok(action) => action,
            Err(action) => {
                action();
                return None;
            }
        };
        let held = {
            let mut held = self.held.lock();
            let due = held.due(now, setting);
            fallible::vec::push_or_return(&mut held.actions, (due, Some(action))).map(|()| due)
        };
        match held {
            Ok(due) => Some(due),
            Err((_, action)) => {
                if let Some(action) = action {
                    action();
                }
                None
            }
        }
    }

    /// Runs the actions that are due. Returns when the next action or the waiting events are.
    pub fn run_due(&self, now: u64) -> Option<u64> {
        loop {
            let mut held = self.held.lock();
            let due =
                held.actions.iter_mut().filter(|(due, _)| *due <= now).find_map(|(_, action)| action.take());
            let Some(action) = due else {
                held.actions.retain(|(_, action)| action.is_some());
                let next = held.actions.iter().map(|(due, _)| *due).min();
                return next.into_iter().chain(held.events).min();
            };
            drop(held);
            action();
        }
    }
}

impl Held {
    /// Returns when a callback that is ready now is made.
    fn due(&mut self, now: u64, setting: CallbackDelay) -> u64 {
        let time = u64::try_from(setting.time.as_nanos()).unwrap_or(u64::MAX);
        if !setting.random {
            return now.saturating_add(time);
        }
        // xorshift64
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        now.saturating_add(self.random.checked_rem(time.saturating_add(1)).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn held(random: bool) -> HeldCallbacks {
        let delay = Some(CallbackDelay { time: Duration::from_nanos(100), random });
        HeldCallbacks::new(StrictSettings { delay, ..StrictSettings::default() }, 7)
    }

    #[test]
    fn events_are_delivered_when_their_delay_has_passed() {
        let held = held(false);
        assert!(!held.holds_events(10, false));
        assert!(held.holds_events(10, true));
        assert!(held.holds_events(109, true));
        assert_eq!(held.run_due(109), Some(110));
        assert!(!held.holds_events(110, true));
        assert!(held.holds_events(111, true));
    }

    #[test]
    fn actions_run_once_and_in_order_when_they_are_due() {
        let held = held(false);
        let ran = Arc::new(AtomicU32::new(0));
        for (now, digit) in [(0, 1), (5, 2)] {
            let ran = Arc::clone(&ran);
            let action = move || {
                assert_eq!(nt::irql::current(), nt::irql::PASSIVE_LEVEL, "no lock is held");
                ran.store(ran.load(Ordering::Relaxed) * 10 + digit, Ordering::Relaxed);
            };
            assert_eq!(held.run_later(now, action), Some(now + 100));
        }
        assert_eq!(held.run_due(99), Some(100));
        assert_eq!(ran.load(Ordering::Relaxed), 0);
        assert_eq!(held.run_due(100), Some(105));
        assert_eq!(ran.load(Ordering::Relaxed), 1);
        assert_eq!(held.run_due(1000), None);
        assert_eq!(ran.load(Ordering::Relaxed), 12);
    }

    #[test]
    fn random_delays_differ_and_stay_within_the_limit() {
        let held = held(true);
        let times: Vec<_> = (0..50).map(|_| held.run_later(0, || {}).unwrap()).collect();
        assert!(times.iter().all(|time| *time <= 100));
        assert!(times.iter().any(|time| *time < 50) && times.iter().any(|time| *time > 50));
    }

    #[test]
    fn nothing_is_held_back_without_the_setting() {
        let held = HeldCallbacks::new(StrictSettings::default(), 1);
        assert!(!held.holds_events(0, true));
        assert_eq!(held.run_later(0, || {}), None);
        assert_eq!(held.run_due(0), None);
    }
}
