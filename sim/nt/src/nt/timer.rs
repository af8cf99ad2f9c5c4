// SPDX-License-Identifier: MIT OR Apache-2.0

//! Timers: `KTIMER` and `EX_TIMER`.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use ndk_abi::nt::{EX_TIMER_HIGH_RESOLUTION, EXT_CALLBACK, EXT_DELETE_CALLBACK, KDPC, KTIMER, TIMER_TYPE};
use parking_lot::Mutex;

use super::{
    dispatcher::{self, DISPATCHER},
    dpc, header, time,
    waits::WAITS,
};
use crate::{
    EventId, Host, Irql,
    cpu::CpuId,
    guest::Guest,
    image::{self, Image, stack},
    imports,
    services::Slot,
    thread::{Thread, current},
    verifier::{BugCheck, violation},
};

pub(super) static TIMERS: Slot<Timers> = Slot::new();

/// The timers of a host.
#[derive(Default)]
pub struct Timers {
    generations: AtomicU64,
    /// Set `KTIMER`s, by address.
    kernel: Mutex<HashMap<usize, Set>>,
    /// `EX_TIMER`s, by handle.
    ex: Mutex<HashMap<usize, Arc<Mutex<ExTimer>>>>,
}

#[derive(Clone, Copy)]
struct Set {
    event: EventId,
    /// Number of this setting: an event that could not be cancelled belongs to an earlier one.
    generation: u64,
    setting: Setting,
}

#[derive(Clone, Copy)]
struct Setting {
    dpc: usize,
    /// Nanoseconds; 0 for a timer that fires once.
    period: u64,
    cpu: CpuId,
    /// Address of the code that set the timer.
    setter: usize,
}

struct ExTimer {
    callback: usize,
    context: usize,
    event: Option<EventId>,
    /// As in [`Set`].
    generation: u64,
    period: u64,
    high_resolution: bool,
    /// Callbacks queued or running.
    pending: u32,
    deleted: Option<Deleted>,
}

#[derive(Clone, Copy)]
struct Deleted {
    callback: usize,
    context: usize,
}

impl Timers {
    /// Returns a `KTIMER` inside `memory` that is set.
    pub fn find(&self, memory: &std::ops::Range<usize>) -> Option<usize> {
        self.kernel.lock().keys().copied().filter(|timer| memory.contains(timer)).min()
    }

    /// Returns whether a `KTIMER` is set that code of the image has set.
    pub fn is_set_by(&self, image: &Image) -> bool {
        self.kernel.lock().values().any(|set| image.contains(set.setting.setter))
    }
}

const KTIMER_DPC: usize = 48;

fn initialize(timer: Guest<KTIMER>, kind: u8) {
    let me = current();
    if me.verifies() {
        dispatcher::check_unawaited(&me, timer.address(), "KeInitializeTimer");
    }
    header::initialize(timer.address(), kind, size_of::<KTIMER>(), false);
    header::clear_timer_flags(timer.address());
}

fn set_kernel_timer(timer: Guest<KTIMER>, due: i64, period_ms: i32, dpc: Guest<KDPC>) -> bool {
    let me = current();
    let host = me.host();
    let address = timer.address();
    let was_set = cancel_kernel_timer(host, address);
    host.state(&WAITS).locked(|| header::signal_state(address).write(0));
    timer.field::<usize>(KTIMER_DPC).write(dpc.address());
    let period = u64::try_from(period_ms).unwrap_or(0) * 1_000_000;
    let setter = stack::capture_up_to(1).innermost().unwrap_or(0);
    let setting = Setting { dpc: dpc.address(), period, cpu: me.cpu(), setter };
    arm_kernel_timer(host, address, time::deadline(&me, due), setting);
    was_set
}

fn arm_kernel_timer(host: &Arc<Host>, timer: usize, deadline: u64, setting: Setting) {
    let this = host.clone();
    // Held while the event is created, so that it cannot expire before it is recorded.
    let mut timers = host.state(&TIMERS).kernel.lock();
    let generation = host.state(&TIMERS).generations.fetch_add(1, Relaxed);
    let event = host.at(deadline, move || expire_kernel_timer(&this, timer, generation, deadline));
    if let Some(older) = timers.insert(timer, Set { event, generation, setting }) {
        host.cancel(older.event);
    }
}

fn cancel_kernel_timer(host: &Host, timer: usize) -> bool {
    let set = host.state(&TIMERS).kernel.lock().remove(&timer);
    set.is_some_and(|set| host.cancel(set.event))
}

fn expire_kernel_timer(host: &Arc<Host>, timer: usize, generation: u64, deadline: u64) {
    let set = {
        let mut timers = host.state(&TIMERS).kernel.lock();
        match timers.get(&timer).copied() {
            Some(set) if set.generation == generation => {
                timers.remove(&timer);
                set
            }
            _ => return,
        }
    };
    let me = current();
    host.state(&WAITS).signal(&me, timer, || header::signal_state(timer).write(1));
    let Setting { dpc, period, cpu, .. } = set.setting;
    if dpc != 0 {
        dpc::insert(host, cpu, Guest::from_address(dpc), Some((0, 0)));
    }
    if period != 0 {
        arm_kernel_timer(host, timer, deadline + period, set.setting);
    }
}

/// Returns the state of a timer. An unknown handle is a violation.
fn ex_timer(me: &Thread, handle: usize, function: &str) -> Arc<Mutex<ExTimer>> {
    let timer = me.host().state(&TIMERS).ex.lock().get(&handle).cloned();
    timer.unwrap_or_else(|| {
        violation(
            BugCheck::TIMER_OR_DPC_INVALID,
            format!("{function} on a timer that was not allocated or is deleted"),
        )
    })
}

/// Sets a timer; returns `true` when it was set already.
fn arm_ex_timer(
    host: &Arc<Host>,
    handle: usize,
    timer: &Arc<Mutex<ExTimer>>,
    deadline: u64,
    cpu: CpuId,
) -> bool {
    let (this, of_event) = (host.clone(), timer.clone());
    let mut timer = timer.lock();
    let was_set = timer.event.take().is_some_and(|event| host.cancel(event));
    timer.generation += 1;
    let generation = timer.generation;
    let expire = move || expire_ex_timer(&this, handle, &of_event, generation, deadline, cpu);
    timer.event = Some(host.at(deadline, expire));
    was_set
}

fn expire_ex_timer(
    host: &Arc<Host>,
    handle: usize,
    timer: &Arc<Mutex<ExTimer>>,
    generation: u64,
    deadline: u64,
    cpu: CpuId,
) {
    let (period, high_resolution) = {
        let mut state = timer.lock();
        if state.generation != generation || state.event.take().is_none() {
            return;
        }
        state.pending += 1;
        (state.period, state.high_resolution)
    };
    let (this, of_dpc) = (host.clone(), timer.clone());
    host.queue_dpc(cpu, move || {
        call_back(handle, &of_dpc);
        finish_callback(&this, handle, &of_dpc);
    });
    if period != 0 {
        let next = time::expiration(&current(), deadline + period, high_resolution);
        arm_ex_timer(host, handle, timer, next, cpu);
    }
}

fn call_back(handle: usize, timer: &Mutex<ExTimer>) {
    let (callback, context) = {
        let state = timer.lock();
        (state.callback, state.context)
    };
    if callback == 0 {
        return;
    }
    // SAFETY: what the image passed to ExAllocateTimer as its callback.
    let callback: EXT_CALLBACK = unsafe { image::function("a timer callback", callback) };
    let pointer = std::ptr::with_exposed_provenance_mut::<std::ffi::c_void>;
    // SAFETY: the arguments of an EXT_CALLBACK.
    image::call("a timer callback", || unsafe { callback(pointer(handle).cast(), pointer(context)) });
}

/// Completes a callback, which a thread that deletes the timer may wait for.
fn finish_callback(host: &Host, handle: usize, timer: &Mutex<ExTimer>) {
    let me = current();
    let deleted = host.state(&DISPATCHER).signal(&me, handle, || {
        let mut state = timer.lock();
        state.pending -= 1;
        if state.pending == 0 { state.deleted } else { None }
    });
    if let Some(deleted) = deleted {
        call_deleted(deleted);
    }
}

fn call_deleted(deleted: Deleted) {
    if deleted.callback == 0 {
        return;
    }
    // SAFETY: what the image passed to ExDeleteTimer as its callback.
    let callback: EXT_DELETE_CALLBACK =
        unsafe { image::function("a timer's delete callback", deleted.callback) };
    let context = std::ptr::with_exposed_provenance_mut(deleted.context);
    // SAFETY: the argument of an EXT_DELETE_CALLBACK.
    image::call("a timer's delete callback", || unsafe { callback(context) });
}

/// `EXT_DELETE_PARAMETERS`: version, reserved, callback, context.
fn delete_parameters(parameters: Guest<u8>) -> Deleted {
    if parameters.is_null() {
        return Deleted { callback: 0, context: 0 };
    }
    Deleted { callback: parameters.field(8).read(), context: parameters.field(16).read() }
}

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Initializes a notification timer.
    [<= DISPATCH_LEVEL]
    fn KeInitializeTimer(timer: Guest<KTIMER>) {
        initialize(timer, header::NOTIFICATION_TIMER);
    }

    /// Initializes a timer.
    [<= DISPATCH_LEVEL]
    fn KeInitializeTimerEx(timer: Guest<KTIMER>, kind: TIMER_TYPE) {
        let kind = header::NOTIFICATION_TIMER + u8::try_from(kind.0).unwrap_or(0);
        initialize(timer, kind);
    }

    /// Sets a timer; returns `TRUE` when it was set already.
    [<= DISPATCH_LEVEL]
    fn KeSetTimer(timer: Guest<KTIMER>, due: i64, dpc: Guest<KDPC>) -> u8 {
        set_kernel_timer(timer, due, 0, dpc).into()
    }

    /// Sets a timer that fires again every `period` milliseconds; returns `TRUE` when it was set already.
    [<= DISPATCH_LEVEL]
    fn KeSetTimerEx(timer: Guest<KTIMER>, due: i64, period: i32, dpc: Guest<KDPC>) -> u8 {
        set_kernel_timer(timer, due, period, dpc).into()
    }

    /// Sets a timer as [`KeSetTimerEx`] does; the tolerable delay is not used.
    [<= DISPATCH_LEVEL]
    fn KeSetCoalescableTimer(timer: Guest<KTIMER>, due: i64, period: u32, delay: u32, dpc: Guest<KDPC>) -> u8 {
        let _ = delay;
        set_kernel_timer(timer, due, period.cast_signed(), dpc).into()
    }

    /// Cancels a timer; returns `TRUE` when it was set.
    [<= DISPATCH_LEVEL]
    fn KeCancelTimer(timer: Guest<KTIMER>) -> u8 {
        cancel_kernel_timer(current().host(), timer.address()).into()
    }

    /// Returns whether a timer is signaled.
    [<= DISPATCH_LEVEL]
    fn KeReadStateTimer(timer: Guest<KTIMER>) -> u8 {
        (header::signal_state(timer.address()).read() != 0).into()
    }

    /// Allocates a timer; returns null when resources run low.
    [<= DISPATCH_LEVEL]
    fn ExAllocateTimer(callback: usize, context: usize, attributes: u32) -> usize {
        let high_resolution = attributes & EX_TIMER_HIGH_RESOLUTION != 0;
        let me = current();
        let host = me.host();
        if host.low_resources.fails() {
            return 0;
        }
        let handle = host.new_handle();
        let timer =
            ExTimer { callback, context, event: None, generation: 0, period: 0, high_resolution, pending: 0, deleted: None };
        host.state(&TIMERS).ex.lock().insert(handle, Arc::new(Mutex::new(timer)));
        host.objects.add("ExAllocateTimer", handle);
        handle
    }

    /// Sets a timer; returns `TRUE` when it was set already. `due` is relative when negative.
    [<= DISPATCH_LEVEL]
    fn ExSetTimer(handle: usize, due: i64, period: i64, parameters: usize) -> u8 {
        let _ = parameters;
        let me = current();
        let timer = ex_timer(&me, handle, "ExSetTimer");
        let high_resolution = {
            let mut timer = timer.lock();
            timer.period = u64::try_from(period).unwrap_or(0) * 100;
            timer.high_resolution
        };
        let deadline =
            if high_resolution { time::high_resolution_deadline(&me, due) } else { time::deadline(&me, due) };
        arm_ex_timer(me.host(), handle, &timer, deadline, me.cpu()).into()
    }

    /// Cancels a timer; returns `TRUE` when it was set.
    [<= DISPATCH_LEVEL]
    fn ExCancelTimer(handle: usize, parameters: usize) -> u8 {
        let _ = parameters;
        let me = current();
        let timer = ex_timer(&me, handle, "ExCancelTimer");
        let event = timer.lock().event.take();
        event.is_some_and(|event| me.host().cancel(event)).into()
    }

    /// Deletes a timer; cancels it and waits for its callback if requested. Returns `TRUE` when it was cancelled.
    [<= DISPATCH_LEVEL]
    fn ExDeleteTimer(handle: usize, cancel: u8, wait: u8, parameters: Guest<u8>) -> u8 {
        let me = current();
        let host = me.host();
        if wait != 0 && (cancel == 0 || me.irql() > Irql::APC_LEVEL) {
            violation(
                BugCheck::IRQL_NOT_LESS_OR_EQUAL,
                format!("ExDeleteTimer with Wait = TRUE was called at {} or without Cancel; it needs Cancel = TRUE and IRQL <= APC_LEVEL", me.irql()),
            );
        }
        let timer = ex_timer(&me, handle, "ExDeleteTimer");
        let event = if cancel == 0 { None } else { timer.lock().event.take() };
        let cancelled = event.is_some_and(|event| host.cancel(event));
        host.state(&TIMERS).ex.lock().remove(&handle);
        let _ = host.objects.remove("ExAllocateTimer", handle);
        if wait != 0 {
            host.state(&DISPATCHER).wait(&me, handle, || timer.lock().pending == 0);
        }
        let parameters = delete_parameters(parameters);
        let now = {
            let mut state = timer.lock();
            state.deleted = Some(parameters);
            state.pending == 0
        };
        if now && parameters.callback != 0 {
            let old = me.raise(Irql::DISPATCH_LEVEL);
            call_deleted(parameters);
            me.lower(old);
        }
        cancelled.into()
    }
}

/// Events of a timer that had begun to fire when it was set again or cancelled.
#[cfg(test)]
mod tests {
    use super::{super::dpc::KeFlushQueuedDpcs, *};
    use crate::{host::HostOptions, sim::Sim};

    const SECOND: i64 = -10_000_000;

    fn on_a_thread(body: impl FnOnce(&Arc<Host>) + Send + 'static) {
        let mut sim = Sim::builder().clock(crate::ClockKind::Deterministic { seed: 1 }).build();
        let host = sim.add_host(HostOptions { memory: 64 << 20, ..HostOptions::new("host") });
        let this = host.clone();
        host.spawn("test", move || body(&this)).join().unwrap();
        assert!(sim.verdict().is_clean(), "{}", sim.verdict());
    }

    #[test]
    fn a_late_event_of_a_kernel_timer_leaves_the_later_setting_as_it_is() {
        on_a_thread(|host| {
            let timer: Guest<KTIMER> = host.memory.allocate(1).unwrap().cast();
            KeInitializeTimerEx(timer, TIMER_TYPE::NotificationTimer);
            let set = || {
                KeSetTimer(timer, SECOND, Guest::null());
                host.state(&TIMERS).kernel.lock()[&timer.address()].generation
            };
            let first = set();
            set();
            expire_kernel_timer(host, timer.address(), first, 0);
            assert_eq!(header::signal_state(timer.address()).read(), 0);
            assert_eq!(KeCancelTimer(timer), 1, "it is set");
            expire_kernel_timer(host, timer.address(), first, 0);
            assert_eq!(header::signal_state(timer.address()).read(), 0);
        });
    }

    /// `DISPATCHER_HEADER` of wdm.h: the fourth byte of a timer has its flags, such as Inserted.
    #[test]
    fn a_kernel_timer_is_initialized_with_no_flags() {
        on_a_thread(|host| {
            let timer: Guest<KTIMER> = host.memory.allocate(1).unwrap().cast();
            timer.cast::<u8>().fill(0xff, size_of::<KTIMER>());
            KeInitializeTimerEx(timer, TIMER_TYPE::SynchronizationTimer);
            assert_eq!(timer.cast::<u8>().add(3).read(), 0);
        });
    }

    /// KeSetTimer: "sets the timer object to a not-signaled state". (WDK)
    #[test]
    fn a_kernel_timer_that_is_set_again_is_not_signaled() {
        on_a_thread(|host| {
            let timer: Guest<KTIMER> = host.memory.allocate(1).unwrap().cast();
            KeInitializeTimerEx(timer, TIMER_TYPE::NotificationTimer);
            KeSetTimer(timer, -1, Guest::null());
            time::sleep(50_000_000);
            assert_eq!(KeReadStateTimer(timer), 1);
            KeSetTimer(timer, SECOND, Guest::null());
            assert_eq!(KeReadStateTimer(timer), 0, "set again");
            KeCancelTimer(timer);
        });
    }

    extern "efiapi" fn counts(_: usize, calls: usize) {
        let calls: Guest<u32> = Guest::from_address(calls);
        calls.write(calls.read() + 1);
    }

    #[test]
    fn a_late_event_of_an_ex_timer_calls_nothing() {
        on_a_thread(|host| {
            let calls: Guest<u32> = host.memory.allocate(1).unwrap().cast();
            let handle = ExAllocateTimer(counts as *const () as usize, calls.address(), 0);
            let timer = ex_timer(&current(), handle, "the test");
            let set = || {
                ExSetTimer(handle, SECOND, 0, 0);
                timer.lock().generation
            };
            let expire = |generation| {
                expire_ex_timer(host, handle, &timer, generation, 0, current().cpu());
                KeFlushQueuedDpcs();
                calls.read()
            };
            let (first, second) = (set(), set());
            assert_eq!(expire(first), 0);
            assert_eq!(ExCancelTimer(handle, 0), 1, "it is set");
            assert_eq!(expire(second), 0);
            let third = set();
            assert_eq!(expire(third), 1, "in time");
            ExDeleteTimer(handle, 1, 1, Guest::null());
        });
    }
}
