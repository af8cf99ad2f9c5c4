// SPDX-License-Identifier: MIT OR Apache-2.0

//! Time.
//!
//! The host booted a minute before the simulation was built. The performance counter runs at 10 MHz, as on
//! Windows machines with an invariant TSC: one tick is one unit of interrupt time.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{SystemTime, UNIX_EPOCH},
};

use ndk_abi::nt::LARGE_INTEGER;

use crate::{
    guest::Guest,
    host::{Host, TimerResolution},
    imports,
    services::Slot,
    thread::{Thread, current},
};

/// Microseconds for which the drivers of a host have stalled its processors.
pub(super) static STALLED: Slot<AtomicU64> = Slot::new();

/// Nanoseconds per unit of NT time.
const UNIT: u64 = 100;
/// Units between boot and the start of the simulation.
const BOOT: u64 = 60 * 10_000_000;
/// From 1601 to 1970, in units.
const UNIX: u64 = 116_444_736_000_000_000;
/// System time at the start of a deterministic simulation: 2026-01-01, in units since 1970.
const DETERMINISTIC: u64 = 1_767_225_600 * 10_000_000;
/// Units between two ticks of the clock: 15.625 ms.
const TIME_INCREMENT: u32 = 156_250;

/// Nanoseconds between two ticks of the clock.
pub const TICK: u64 = TIME_INCREMENT as u64 * UNIT;

/// Returns the interrupt time in units since boot.
pub fn interrupt_time(me: &Thread) -> u64 {
    BOOT + me.world().now() / UNIT
}

/// Returns the system time in units since 1601.
pub fn system_time(me: &Thread) -> u64 {
    let world = me.world();
    if world.clock.is_deterministic() {
        return UNIX + DETERMINISTIC + world.now() / UNIT;
    }
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UNIX + u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX) / UNIT
}

/// Returns the time of the first clock tick after `now`, in nanoseconds of the simulation.
#[must_use]
pub fn next_tick(now: u64) -> u64 {
    (now / TICK + 1) * TICK
}

/// Returns the resolution of the host's timers in nanoseconds; 0 when they are exact.
fn resolution(me: &Thread, high: bool) -> u64 {
    match me.try_host().map(|host| host.options().timers) {
        Some(TimerResolution::Windows { high: resolution }) if high => {
            u64::try_from(resolution.as_nanos()).unwrap_or(TICK)
        }
        Some(TimerResolution::Windows { .. }) => TICK,
        _ => 0,
    }
}

/// Returns the time, or that of the last clock tick if the host's time advances with ticks. In nanoseconds.
fn tick_now(me: &Thread) -> u64 {
    let now = me.world().now();
    match resolution(me, false) {
        0 => now,
        tick => now / tick * tick,
    }
}

/// Returns the interrupt time in units since boot, as of the last clock tick.
pub fn tick_interrupt_time(me: &Thread) -> u64 {
    BOOT + tick_now(me) / UNIT
}

/// Returns the system time in units since 1601, as of the last clock tick.
pub fn tick_system_time(me: &Thread) -> u64 {
    system_time(me) - (me.world().now() - tick_now(me)) / UNIT
}

/// Returns when a timer that is due at `time` expires: at the first tick that is not before it.
pub fn expiration(me: &Thread, time: u64, high: bool) -> u64 {
    match resolution(me, high) {
        0 => time,
        resolution => time.div_ceil(resolution).saturating_mul(resolution),
    }
}

/// Converts a due time to the time at which a timer or a wait expires. It is relative when negative, else absolute system
/// time. Where time advances with ticks, a relative time counts from the last one, so that it can expire early.
pub fn deadline(me: &Thread, due: i64) -> u64 {
    expiration(me, nominal(me, due, tick_now(me)), false)
}

/// Returns the [`deadline`] of a high-resolution timer.
pub(super) fn high_resolution_deadline(me: &Thread, due: i64) -> u64 {
    expiration(me, nominal(me, due, me.world().now()), true)
}

/// Returns the [`deadline`] of a delay: it is never too short.
pub(super) fn delay_deadline(me: &Thread, due: i64) -> u64 {
    expiration(me, nominal(me, due, me.world().now()), false)
}

/// Converts a due time to the simulation's time; relative times count from `start`.
fn nominal(me: &Thread, due: i64, start: u64) -> u64 {
    let nanos = |units: u64| units.saturating_mul(UNIT);
    match u64::try_from(due) {
        Ok(0) => 0,
        Ok(absolute) => me.world().now().saturating_add(nanos(absolute.saturating_sub(system_time(me)))),
        Err(_) => start.saturating_add(nanos(due.unsigned_abs())),
    }
}

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Returns the performance counter and its frequency.
    [any]
    fn KeQueryPerformanceCounter(frequency: Guest<LARGE_INTEGER>) -> i64 {
        if !frequency.is_null() {
            frequency.write(LARGE_INTEGER { QuadPart: 10_000_000 });
        }
        interrupt_time(&current()).cast_signed()
    }

    /// Returns the interrupt time, and the performance counter it was computed from.
    [any]
    fn KeQueryInterruptTimePrecise(counter: Guest<u64>) -> u64 {
        let now = interrupt_time(&current());
        counter.write(now);
        now
    }

    /// Returns the interrupt time without the time spent asleep.
    [any]
    fn KeQueryUnbiasedInterruptTime() -> u64 {
        tick_interrupt_time(&current())
    }

    /// Returns the system time.
    [any]
    fn KeQuerySystemTimePrecise(time: Guest<LARGE_INTEGER>) {
        time.write(LARGE_INTEGER { QuadPart: system_time(&current()).cast_signed() });
    }

    /// Returns the units between two ticks of the clock.
    [any]
    fn KeQueryTimeIncrement() -> u32 {
        TIME_INCREMENT
    }

    /// Stalls the processor.
    [any]
    fn KeStallExecutionProcessor(micros: u32) {
        let me = current();
        me.host().state(&STALLED).fetch_add(micros.into(), Relaxed);
        me.stall(u64::from(micros) * 1000);
    }
}

/// Returns how long the drivers of a host have stalled its processors, in microseconds.
#[must_use]
pub fn stalled(host: &Host) -> u64 {
    host.state(&STALLED).load(Relaxed)
}

/// Blocks the calling thread for `nanos`, for imports that sleep.
pub fn sleep(nanos: u64) {
    let me = current();
    delay(&me, expiration(&me, me.world().now().saturating_add(nanos), false));
}

/// Blocks the calling thread until `deadline`.
pub(super) fn delay(me: &Thread, deadline: u64) {
    while me.world().now() < deadline {
        me.park(Some(deadline));
    }
}
