// SPDX-License-Identifier: MIT OR Apache-2.0

//! The resolution of timers, and the DPC watchdog.
//!
//! WDK, "Timer Accuracy" and "High-Resolution Timers": time advances with the ticks of the clock, every 15.625 ms; a timer
//! expires at the first tick after its due time, and a relative one counts from the last tick. KeDelayExecutionThread
//! counts from the exact time since Windows 8.

use std::time::Duration;

use crate::kernel::{
    Dpc, MILLISECOND, at_dispatch_level, call_imports, host, object, on_a_thread_of, options, relative,
    seeds, sleep, timeout, timer, violation_of,
};
use ndk_abi::nt::{
    EVENT_TYPE, EX_TIMER_HIGH_RESOLUTION, KDPC_WATCHDOG_INFORMATION, KWAIT_REASON, STATUS_SUCCESS,
    STATUS_UNSUCCESSFUL, TIMER_TYPE,
};
use nt_sim::{
    BugCheck, current,
    guest::Guest,
    host::{HostOptions, TimerResolution},
    nt::{dispatcher::KeWaitForSingleObject, dpc, processor, time, timer as imports},
};

const TICK: u64 = 15_625_000;

fn windows() -> HostOptions {
    HostOptions { timers: TimerResolution::Windows { high: MILLISECOND }, ..options() }
}

fn now() -> u64 {
    host().world().now()
}

/// Returns whether the thread runs at a multiple of `period`, less the time that it took to wake up.
fn is_at(period: u64) -> bool {
    now() % period < 100_000
}

#[test]
fn waits_delays_and_timers_end_at_clock_ticks() {
    for sim in seeds() {
        on_a_thread_of(sim, windows(), || {
            sleep(3 * MILLISECOND);
            assert!(is_at(TICK), "a delay ended at {}", now());
            current().stall(10_000_000);
            let start = now();
            sleep(10 * MILLISECOND);
            assert!(is_at(TICK) && now() >= start + 10_000_000, "a delay is never too short");
            let event = crate::kernel::event(EVENT_TYPE::NotificationEvent, false);
            let wait = timeout(Some(20 * MILLISECOND));
            KeWaitForSingleObject(event.address(), KWAIT_REASON::Executive, 0, 0, wait);
            assert!(is_at(TICK), "a wait ended at {}", now());
            // 10 ms after the last tick a timer of 1 ms expires at the next one, 5.6 ms later.
            current().stall(10_000_000);
            let (start, timer) = (now(), timer(TIMER_TYPE::NotificationTimer));
            imports::KeSetTimer(timer, relative(MILLISECOND), Guest::null());
            KeWaitForSingleObject(timer.address(), KWAIT_REASON::Executive, 0, 0, Guest::null());
            assert!(is_at(TICK) && now() - start < 6_000_000, "a timer expired at {}", now());
        });
    }
}

#[test]
fn high_resolution_timer_expires_at_its_own_resolution() {
    extern "efiapi" fn expired(_: usize, event: usize) {
        nt_sim::nt::dispatcher::KeSetEvent(Guest::from_address(event), 0, 0);
    }
    on_a_thread_of(seeds().next().unwrap(), windows(), || {
        let event = crate::kernel::event(EVENT_TYPE::SynchronizationEvent, false);
        let callback = expired as *const () as usize;
        for (attributes, resolution) in [(0, TICK), (EX_TIMER_HIGH_RESOLUTION, 1_000_000)] {
            let timer = imports::ExAllocateTimer(callback, event.address(), attributes);
            current().stall(300_000);
            let start = now();
            imports::ExSetTimer(timer, relative(MILLISECOND * 5 / 2), 0, 0);
            KeWaitForSingleObject(event.address(), KWAIT_REASON::Executive, 0, 0, Guest::null());
            assert!(is_at(resolution), "{resolution}: {}", now());
            assert!(now() - start < 2_500_000 + resolution + 100_000);
            imports::ExDeleteTimer(timer, 1, 1, Guest::null());
        }
    });
}

#[test]
fn time_advances_with_ticks_and_the_performance_counter_is_exact() {
    on_a_thread_of(seeds().next().unwrap(), windows(), || {
        sleep(MILLISECOND);
        let times = || (time::KeQueryUnbiasedInterruptTime(), time::KeQueryPerformanceCounter(Guest::null()));
        let before = times();
        current().stall(1_000_000);
        let after = times();
        assert_eq!(before.0, after.0, "no tick passed");
        assert!(after.1 - before.1 >= 10_000);
        current().stall(TICK);
        assert_eq!(times().0 - after.0, TICK / 100);
    });
}

/// A DPC that runs too long is bug check 0x133 with parameter 0, and too long a time at `DISPATCH_LEVEL` the same with
/// parameter 1, here by a DPC that queues itself without end. Windows' limits are 0x500 and 0x1e00 ticks (crash dumps).
#[test]
fn watchdog_reports_long_dpcs_and_long_times_at_dispatch_level() {
    type Misuse = fn();
    let cases: [(Misuse, &str); 3] = [
        (
            || {
                let dpc = Dpc::new(|_, _| (0..21).for_each(|_| time::KeStallExecutionProcessor(1_000_000)));
                dpc.queue();
            },
            "0x0: a DPC or interrupt service routine took longer than 20s",
        ),
        (
            || {
                let dpc = Dpc::new(move |first, _| {
                    time::KeStallExecutionProcessor(1_000_000);
                    dpc::KeInsertQueueDpc(Guest::from_address(first), first, 0);
                });
                dpc.queue_with(dpc.0.address(), 0);
            },
            "0x1: more than 120s",
        ),
        (
            || {
                at_dispatch_level(|| {
                    for _ in 0..130 {
                        time::KeStallExecutionProcessor(1_000_000);
                    }
                });
            },
            "0x1: more than 120s",
        ),
    ];
    for (misuse, text) in cases {
        let violation = violation_of(seeds().next().unwrap(), options(), misuse);
        assert_eq!(violation.code, BugCheck::DPC_WATCHDOG_VIOLATION);
        assert!(violation.text.contains(text), "{violation}");
    }
}

/// Without the verifier, nothing is watched.
#[test]
fn watchdog_is_part_of_the_verifier() {
    on_a_thread_of(seeds().next().unwrap(), HostOptions { verifier: false, ..options() }, || {
        at_dispatch_level(|| {
            current().stall(Duration::from_secs(121).as_nanos() as u64);
            call_imports(1000);
        });
    });
}

/// The time at `DISPATCH_LEVEL` begins anew when the level falls, and the limits are those of the host.
#[test]
fn watchdog_begins_anew_below_dispatch_level() {
    let limits = nt_sim::host::WatchdogLimits { cumulative: MILLISECOND, ..Default::default() };
    on_a_thread_of(seeds().next().unwrap(), HostOptions { watchdog: limits, ..options() }, || {
        for _ in 0..10 {
            at_dispatch_level(|| current().stall(900_000));
        }
        call_imports(1);
    });
    let violation =
        violation_of(seeds().next().unwrap(), HostOptions { watchdog: limits, ..options() }, || {
            at_dispatch_level(|| {
                current().stall(1_100_000);
                call_imports(1);
            });
        });
    assert!(violation.text.contains("more than 1ms"), "{violation}");
}

/// KeQueryDpcWatchdogInformation returns limits and what is left in ticks; it fails below `DISPATCH_LEVEL` (WDK).
#[test]
fn watchdog_reports_what_is_left() {
    on_a_thread_of(seeds().next().unwrap(), options(), || {
        let information: Guest<KDPC_WATCHDOG_INFORMATION> = object();
        assert_eq!(processor::KeQueryDpcWatchdogInformation(information), STATUS_UNSUCCESSFUL);
        at_dispatch_level(|| {
            assert_eq!(processor::KeShouldYieldProcessor(), 0);
            current().stall(Duration::from_secs(61).as_nanos() as u64);
            assert_eq!(processor::KeQueryDpcWatchdogInformation(information), STATUS_SUCCESS);
            let result = information.read();
            assert_eq!((result.DpcTimeLimit, result.DpcWatchdogLimit), (0x500, 0x1e00));
            assert!((3770..=3776).contains(&result.DpcWatchdogCount), "{result:?}");
            assert_ne!(processor::KeShouldYieldProcessor(), 0);
        });
    });
}

/// A periodic timer counts from when it was due (WDK, KeSetTimerEx).
#[test]
fn periodic_timers_expire_at_the_multiples_of_their_period() {
    extern "efiapi" fn expired(_: usize, counter: usize) {
        let counter: Guest<u32> = Guest::from_address(counter);
        counter.write(counter.read() + 1);
    }
    on_a_thread_of(seeds().next().unwrap(), options(), || {
        let counter: Guest<u32> = object();
        let millisecond = i64::try_from(MILLISECOND.as_nanos() / 100).unwrap();
        let ex = imports::ExAllocateTimer(expired as *const () as usize, counter.address(), 0);
        let kernel = timer(TIMER_TYPE::SynchronizationTimer);
        let dpc = Dpc::new(move |_, _| counter.write(counter.read() + 1));
        for kind in 0..2 {
            counter.write(0);
            if kind == 0 {
                imports::KeSetTimerEx(kernel, relative(2 * MILLISECOND), 3, dpc.0);
            } else {
                imports::ExSetTimer(ex, relative(2 * MILLISECOND), 3 * millisecond, 0);
            }
            // At 2, 5, 8 and 11 ms.
            sleep(Duration::from_micros(12_500));
            assert_eq!(counter.read(), 4, "{kind}");
            imports::KeCancelTimer(kernel);
            imports::ExCancelTimer(ex, 0);
        }
        imports::ExDeleteTimer(ex, 1, 1, Guest::null());
    });
}

/// The callback of a timer's deletion runs when no callback of the timer does (WDK, ExDeleteTimer).
#[test]
fn delete_callback_follows_the_callback_that_deletes_its_timer() {
    extern "efiapi" fn deletes_itself(timer: usize, order: usize) {
        let order: Guest<u32> = Guest::from_address(order);
        let parameters: Guest<usize> = order.add(2).cast();
        imports::ExDeleteTimer(timer, 1, 0, parameters.cast());
        assert_eq!(order.read(), 0);
        order.write(1);
    }
    extern "efiapi" fn deleted(order: usize) {
        let order: Guest<u32> = Guest::from_address(order);
        assert_eq!(order.read(), 1);
        order.write(2);
    }
    on_a_thread_of(seeds().next().unwrap(), options(), || {
        let order = object::<[u32; 16]>().cast::<u32>();
        order.write(0);
        let parameters: Guest<usize> = order.add(2).cast();
        parameters.write(0);
        parameters.add(1).write(deleted as *const () as usize);
        parameters.add(2).write(order.address());
        let timer = imports::ExAllocateTimer(deletes_itself as *const () as usize, order.address(), 0);
        imports::ExSetTimer(timer, relative(MILLISECOND), 0, 0);
        sleep(5 * MILLISECOND);
        assert_eq!(order.read(), 2);
        // Without a callback there is nothing to call.
        let timer = imports::ExAllocateTimer(0, 0, 0);
        imports::ExDeleteTimer(timer, 1, 0, Guest::null());
    });
}
