// SPDX-License-Identifier: MIT OR Apache-2.0

//! The settings that the control queue programs into the device: [a thread](super::settings_thread) sends the commands, one at a time, and
//! waits for the answers as long as the device needs.
//!
//! A request of NDIS's stores its value, notes that it is [wanted](Settings::want), and waits for the device only for a moment
//! ([`PATIENCE`]): a device is not broken because it is slow. Until it answers, the driver filters, hashes and steers in software. A restart
//! wants all settings again.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;

use fallible::try_box;
use nt::{Event, SpinLock};

use crate::etw::{self, table};
use crate::events;
use crate::nic::port::Port;
use crate::trace::interface_of;
use driver_states::setting::{Setting, Settings};

/// Longest time that a request, a start or a transition waits until the settings are programmed.
const PATIENCE: Duration = Duration::from_millis(500);
/// A command that takes longer is reported.
const OVERDUE: Duration = Duration::from_secs(2);
/// Shortest time between two such reports, in nanoseconds.
const REPORT_INTERVAL: u64 = 60 * 1_000_000_000;

/// Commands for a setting that take longer are traced.
const SLOW: Duration = Duration::from_millis(50);

/// The settings of a device, and the thread that programs them.
pub struct DeviceSettings {
    settings: SpinLock<Settings>,
    /// Set when the thread has something to do.
    wake: Event,
    /// Set while no setting waits for the device.
    settled: Event,
    /// Set while no thread runs.
    ended: Event,
    is_ending: AtomicBool,
    /// The device has taken longer than [`PATIENCE`], and has not caught up since: nothing waits for it.
    is_late: AtomicBool,
    /// Time of the last report of a late command, in nanoseconds; 0 if there was none.
    reported: AtomicU64,
    /// The report of the command that is pending was written.
    is_overdue: AtomicBool,
}

impl DeviceSettings {
    /// `None` without memory. Boxed and not inlined, because an adapter is large for a kernel stack. `PASSIVE_LEVEL`.
    #[inline(never)]
    pub fn try_new() -> Option<Box<Self>> {
        let (wake, settled, ended) = (Event::try_new()?, Event::try_new()?, Event::try_new()?);
        settled.set();
        ended.set();
        let this = Self {
            settings: SpinLock::new(Settings::new()),
            wake,
            settled,
            ended,
            is_ending: AtomicBool::new(false),
            is_late: AtomicBool::new(false),
            reported: AtomicU64::new(0),
            is_overdue: AtomicBool::new(false),
        };
        try_box(this).ok()
    }

    /// Notes that the device is to be programmed with the current value of a setting, without waiting. IRQL <= `DISPATCH_LEVEL`.
    pub fn want(&self, setting: Setting) {
        let mut settings = self.settings.lock();
        settings.want(setting);
        if !settings.are_settled() {
            // With the lock held, as where it is set.
            self.settled.clear();
        }
        drop(settings);
        self.wake.set();
    }

    /// Has the device programmed with the current value of a setting. Returns when it is, or the device is late, or does not run: then it is
    /// programmed when it answers, or starts. `PASSIVE_LEVEL`.
    pub fn set(&self, port: &Port, setting: Setting) {
        if port.has_commands() {
            self.want(setting);
            self.settle(port);
        }
    }

    /// Has the device, which has started, programmed with all settings that a reset undoes; see [`set`](Self::set). `PASSIVE_LEVEL`.
    pub fn set_all(&self, port: &Port) {
        if port.has_commands() {
            for setting in Setting::LOST_BY_RESET {
                self.want(setting);
            }
            self.settle(port);
        }
    }

    /// Waits until no setting waits for the device, but only for a moment.
    fn settle(&self, port: &Port) {
        if port.is_running() && !self.is_late.load(Ordering::Relaxed) && !self.settled.wait_for(PATIENCE) {
            self.is_late.store(true, Ordering::Relaxed);
        }
    }

    /// Notes that a thread begins. [`run`](Self::run) follows, or [`not_started`](Self::not_started).
    pub fn starting(&self) {
        self.ended.clear();
    }

    /// Notes that no thread was started.
    pub fn not_started(&self) {
        self.ended.set();
    }

    /// Calls `program` with each setting that is wanted while the device runs, until [`end`](Self::end). It returns whether the device was
    /// asked to the end. The last access of the thread.
    pub fn run(&self, port: &Port, mut program: impl FnMut(Setting) -> bool) {
        while !self.is_ending.load(Ordering::Acquire) {
            self.wake.wait();
            self.wake.clear();
            while let Some(setting) = self.next(port) {
                let begun = nt::time::now();
                let is_done = program(setting);
                trace_slow(port, setting, Duration::from_nanos(nt::time::now().saturating_sub(begun)));
                self.is_overdue.store(false, Ordering::Relaxed);
                if is_done {
                    self.answered(setting, || {});
                } else {
                    self.settings.lock().lose(setting);
                }
            }
        }
        self.ended.set();
    }

    /// Ends the thread, and waits for it. `PASSIVE_LEVEL`, once the device no longer runs.
    pub fn end(&self) {
        self.is_ending.store(true, Ordering::Release);
        self.wake.set();
        self.ended.wait();
    }

    /// Begins the next setting, if the device runs.
    fn next(&self, port: &Port) -> Option<Setting> {
        let mut settings = self.settings.lock();
        let may_begin = port.is_running() && !self.is_ending.load(Ordering::Acquire);
        if !may_begin || settings.are_settled() {
            // Who waits goes on, also if the device does not run: its restart wants everything again.
            self.is_late.store(false, Ordering::Relaxed);
            self.settled.set();
        }
        if may_begin { settings.begin() } else { None }
    }

    /// Returns whether to wait longer for the answer to a command, for which the device has had `waited`. Reports a late answer, at most once
    /// a minute.
    pub fn go_on(&self, port: &Port, waited: Duration) -> bool {
        if waited >= OVERDUE && !self.is_overdue.swap(true, Ordering::Relaxed) {
            let (now, last) = (nt::time::now(), self.reported.load(Ordering::Relaxed));
            if last == 0 || now.saturating_sub(last) >= REPORT_INTERVAL {
                self.reported.store(now.max(1), Ordering::Relaxed);
                events::write(port.handle(), events::table::COMMAND_LATE, [0, 0]);
            }
        }
        port.is_running()
    }

    /// Notes that the device has answered the commands for a setting. Calls `apply` if it has the value that is wanted, before another one can
    /// be.
    pub fn answered(&self, setting: Setting, apply: impl FnOnce()) {
        let mut settings = self.settings.lock();
        if settings.answer(setting) {
            apply();
        }
    }
}

/// Writes to the trace how long the device has taken for the commands of a setting, if that was long.
fn trace_slow(port: &Port, setting: Setting, taken: Duration) {
    if taken < SLOW {
        return;
    }
    etw::write(None, || table::DeviceWaited {
        interface: interface_of(port.handle()),
        wait: match setting {
            Setting::Pairs => "commands for the queue pairs",
            Setting::Scaling => "commands for receive scaling",
            Setting::Filter => "commands for the receive filter",
            Setting::Coalescing => "commands for coalescing",
            Setting::Interrupts => "commands for interrupt coalescing",
            Setting::Announcement => "command after an announcement",
        },
        milliseconds: u32::try_from(taken.as_millis()).unwrap_or(u32::MAX),
    });
}
