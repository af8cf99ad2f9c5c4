// SPDX-License-Identifier: MIT OR Apache-2.0

//! Pauses: times in which a device leaves a part of its work undone, as one whose host or back end is busy. They begin and end by the clock
//! alone; no reset of the device or of a queue ends one, and no other fault does.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use super::quirks::Quirks;

/// The ends of the pauses, and how slow the device is. Times in nanoseconds.
pub(super) struct Pauses {
    commands_until: AtomicU64,
    sending_until: AtomicU64,
    command_time: AtomicU64,
}

impl Pauses {
    /// The quirks' pauses begin at `now`.
    pub fn new(quirks: &Quirks, now: u64) -> Self {
        let end = |pause: Duration| AtomicU64::new(if pause.is_zero() { 0 } else { end(now, pause) });
        Self {
            commands_until: end(quirks.pauses_commands),
            sending_until: end(quirks.pauses_sending),
            command_time: AtomicU64::new(nanoseconds(quirks.command_time)),
        }
    }
}

impl Pauses {
    /// No command is executed from `now` on for this time.
    pub fn pause_commands(&self, now: u64, pause: Duration) {
        self.commands_until.store(end(now, pause), Relaxed);
    }

    /// No frame to send is taken from `now` on for this time.
    pub fn pause_sending(&self, now: u64, pause: Duration) {
        self.sending_until.store(end(now, pause), Relaxed);
    }

    /// Sets the time from a notification to the commands' execution.
    pub fn set_command_time(&self, time: Duration) {
        self.command_time.store(nanoseconds(time), Relaxed);
    }

    /// Returns the time from a notification to the commands' execution.
    pub fn command_time(&self) -> u64 {
        self.command_time.load(Relaxed)
    }

    /// Returns the end of the pause of commands, if there is one at `now`.
    pub fn of_commands(&self, now: u64) -> Option<u64> {
        Some(self.commands_until.load(Relaxed)).filter(|&end| now < end)
    }

    /// Returns the end of the pause of sending, if there is one at `now`.
    pub fn of_sending(&self, now: u64) -> Option<u64> {
        Some(self.sending_until.load(Relaxed)).filter(|&end| now < end)
    }

    /// Ends the pauses, and restores the speed.
    pub fn end(&self, quirks: &Quirks) {
        self.commands_until.store(0, Relaxed);
        self.sending_until.store(0, Relaxed);
        self.command_time.store(nanoseconds(quirks.command_time), Relaxed);
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn end(now: u64, pause: Duration) -> u64 {
    now.saturating_add(nanoseconds(pause))
}
