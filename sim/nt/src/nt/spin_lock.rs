// SPDX-License-Identifier: MIT OR Apache-2.0

//! Spin locks.
//!
//! A lock word contains 0, or the number of the thread that owns it plus one, which reveals recursive
//! acquisition and release by another thread at no cost. With the verifier on, each thread also lists the locks it
//! holds, and the order in which locks nest is recorded: two locks that nest both ways can deadlock, whether or
//! not they ever did.

use std::sync::atomic::{AtomicUsize, Ordering};

use ndk_abi::nt::{KLOCK_QUEUE_HANDLE, KSPIN_LOCK};

use super::lock_order::Order;
use crate::{
    Irql,
    clock::Clock,
    guest::Guest,
    imports,
    services::Slot,
    thread::{
        current::{Current, HeldLock, Thread, current, try_current},
        quick_level::QuickLevel,
    },
    verifier::{BugCheck, broken, rules, violation},
};

/// A lock that is not acquired in this time, in nanoseconds, is considered never released.
const FOREVER: u64 = 30_000_000_000;

/// The limit of [`FOREVER`] in turns of other threads, where time is virtual.
const FOREVER_TURNS: u32 = 2_000_000;

pub(super) static LOCK_ORDER: Slot<Order> = Slot::new();

fn word(lock: Guest<KSPIN_LOCK>) -> &'static AtomicUsize {
    // SAFETY: the image passes a resident, aligned KSPIN_LOCK, or faults, which is reported; the
    // reference does not outlive the import.
    unsafe { AtomicUsize::from_ptr(lock.as_ptr()) }
}

/// Exchanges a word of the image as its interlocked instructions do; returns the old value.
pub(super) fn exchange(word: Guest<usize>, value: usize) -> usize {
    // SAFETY: an aligned word of memory that is mapped while its owner uses it.
    unsafe { AtomicUsize::from_ptr(word.as_ptr()) }.swap(value, Ordering::SeqCst)
}

fn owner(me: &Thread) -> usize {
    me.id().0 as usize + 1
}

#[inline]
fn try_acquire(me: &Thread, lock: Guest<KSPIN_LOCK>) -> Result<(), usize> {
    word(lock).compare_exchange(0, owner(me), Ordering::Acquire, Ordering::Relaxed).map(drop)
}

/// Acquires a lock at `DISPATCH_LEVEL` or above.
#[inline]
pub(super) fn acquire(me: Current, lock: Guest<KSPIN_LOCK>) {
    if me.verifies() {
        check_order(me, lock);
    }
    if let Err(holder) = try_acquire(&me, lock) {
        contend(me, lock, holder);
    }
    if me.verifies() {
        me.locks.borrow_mut().push(HeldLock { address: lock.address() });
    }
}

#[cold]
fn contend(me: Current, lock: Guest<KSPIN_LOCK>, holder: usize) {
    if holder == owner(&me) {
        violation(
            BugCheck::SPIN_LOCK_ALREADY_OWNED,
            "a spin lock was acquired by the thread that holds it already: deadlock",
        );
    }
    if u32::try_from(holder).is_err() {
        violation(
            BugCheck::SPIN_LOCK_NOT_OWNED,
            format!("a spin lock with the value {holder:#x} was acquired; call KeInitializeSpinLock first"),
        );
    }
    let clock = &me.world().clock;
    let start = clock.now();
    for turn in 0_u32.. {
        if clock.is_deterministic() {
            me.yield_now();
        } else {
            for _ in 0..64 {
                if word(lock).load(Ordering::Relaxed) == 0 {
                    break;
                }
                std::hint::spin_loop();
            }
            if turn > 4 {
                me.yield_now();
            }
        }
        if try_acquire(&me, lock).is_ok() {
            return;
        }
        if turn.is_multiple_of(1024) && is_forever(clock, turn, clock.now().saturating_sub(start)) {
            let holder = word(lock).load(Ordering::Relaxed);
            violation(
                BugCheck::DPC_WATCHDOG_VIOLATION,
                format!(
                    "a spin lock was not released by thread {} within the time limit",
                    holder.wrapping_sub(1)
                ),
            );
        }
    }
}

/// Returns whether a lock that was asked for in so many turns, during `waited` nanoseconds, is considered never released.
fn is_forever(clock: &Clock, turn: u32, waited: u64) -> bool {
    if clock.is_deterministic() { turn > FOREVER_TURNS } else { waited > FOREVER }
}

fn check_order(me: Current, lock: Guest<KSPIN_LOCK>) {
    let host = me.host();
    let clash = {
        let held = me.locks.borrow();
        held.iter().any(|outer| {
            outer.address != lock.address() && !host.state(&LOCK_ORDER).note(outer.address, lock.address())
        })
    };
    if clash {
        broken(
            rules::LOCK_ORDER,
            BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
            "lock order: this spin lock was acquired while another is held that was acquired inside it before; the two can deadlock",
        );
    }
}

/// Releases a lock that the calling thread must hold.
#[inline]
pub(super) fn release(me: Current, lock: Guest<KSPIN_LOCK>) {
    let holder = word(lock).load(Ordering::Relaxed);
    if holder != owner(&me) {
        let text = match holder {
            0 => "a spin lock was released that is not held".to_owned(),
            other => format!("a spin lock was released that thread {} holds", other.wrapping_sub(1)),
        };
        violation(BugCheck::SPIN_LOCK_NOT_OWNED, text);
    }
    if me.verifies() {
        let mut locks = me.locks.borrow_mut();
        if let Some(index) = locks.iter().rposition(|held| held.address == lock.address()) {
            locks.remove(index);
        }
    }
    word(lock).store(0, Ordering::Release);
}

/// As `KeAcquireSpinLockRaiseToDpc` of a free lock, where the verifier is off and time is real. Benchmarks of an image would
/// otherwise measure mostly this call.
#[inline]
fn acquire_quickly(lock: Guest<KSPIN_LOCK>) -> Option<u8> {
    let me = try_current()?;
    let level = QuickLevel::of(&me)?;
    let old = level.raise()?;
    if try_acquire(&me, lock).is_ok() {
        return Some(old.0);
    }
    level.undo_raise(old);
    None
}

/// As `KeReleaseSpinLock` of a lock that the thread holds, where the verifier is off and time is real.
#[inline]
fn release_quickly(lock: Guest<KSPIN_LOCK>, new: u8) -> Option<()> {
    let me = try_current()?;
    if word(lock).load(Ordering::Relaxed) != owner(&me) {
        return None;
    }
    QuickLevel::of(&me)?.lower(Irql(new), || word(lock).store(0, Ordering::Release))
}

/// `KLOCK_QUEUE_HANDLE`: the lock, and the level to return to.
fn handle_lock(handle: Guest<KLOCK_QUEUE_HANDLE>) -> Guest<Guest<KSPIN_LOCK>> {
    handle.field(std::mem::offset_of!(KLOCK_QUEUE_HANDLE, LockQueue.Lock))
}

fn handle_irql(handle: Guest<KLOCK_QUEUE_HANDLE>) -> Guest<u8> {
    handle.field(std::mem::offset_of!(KLOCK_QUEUE_HANDLE, OldIrql))
}

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Initializes a spin lock.
    [any]
    fn KeInitializeSpinLock(lock: Guest<KSPIN_LOCK>) {
        lock.write(0);
    }

    /// Raises to `DISPATCH_LEVEL` and acquires; returns the old level.
    [<= DISPATCH_LEVEL]
    quick(acquire_quickly(lock))
    fn KeAcquireSpinLockRaiseToDpc(lock: Guest<KSPIN_LOCK>) -> u8 {
        let me = current();
        let old = me.raise(Irql::DISPATCH_LEVEL);
        acquire(me, lock);
        old.0
    }

    /// Releases and lowers to the level before the acquisition.
    [== DISPATCH_LEVEL]
    quick(release_quickly(lock, new))
    fn KeReleaseSpinLock(lock: Guest<KSPIN_LOCK>, new: u8) {
        let me = current();
        release(me, lock);
        me.lower(Irql(new));
    }

    /// Acquires at `DISPATCH_LEVEL`.
    [>= DISPATCH_LEVEL]
    fn KeAcquireSpinLockAtDpcLevel(lock: Guest<KSPIN_LOCK>) {
        acquire(current(), lock);
    }

    /// Releases and stays at `DISPATCH_LEVEL`.
    [>= DISPATCH_LEVEL]
    fn KeReleaseSpinLockFromDpcLevel(lock: Guest<KSPIN_LOCK>) {
        release(current(), lock);
    }

    /// Acquires at `DISPATCH_LEVEL` unless another thread holds the lock.
    [>= DISPATCH_LEVEL]
    fn KeTryToAcquireSpinLockAtDpcLevel(lock: Guest<KSPIN_LOCK>) -> u8 {
        let me = current();
        let acquired = try_acquire(&me, lock).is_ok();
        if acquired && me.verifies() {
            me.locks.borrow_mut().push(HeldLock { address: lock.address() });
        }
        acquired.into()
    }

    /// Returns whether the lock is free.
    [any]
    fn KeTestSpinLock(lock: Guest<KSPIN_LOCK>) -> u8 {
        (word(lock).load(Ordering::Relaxed) == 0).into()
    }

    /// Raises to `DISPATCH_LEVEL` and acquires.
    [<= DISPATCH_LEVEL]
    fn KeAcquireInStackQueuedSpinLock(lock: Guest<KSPIN_LOCK>, handle: Guest<KLOCK_QUEUE_HANDLE>) {
        let me = current();
        let old = me.raise(Irql::DISPATCH_LEVEL);
        acquire(me, lock);
        handle_lock(handle).write(lock);
        handle_irql(handle).write(old.0);
    }

    /// Releases and lowers to the level before the acquisition.
    [== DISPATCH_LEVEL]
    fn KeReleaseInStackQueuedSpinLock(handle: Guest<KLOCK_QUEUE_HANDLE>) {
        let me = current();
        release(me, handle_lock(handle).read());
        me.lower(Irql(handle_irql(handle).read()));
    }

    /// Acquires at `DISPATCH_LEVEL`.
    [>= DISPATCH_LEVEL]
    fn KeAcquireInStackQueuedSpinLockAtDpcLevel(lock: Guest<KSPIN_LOCK>, handle: Guest<KLOCK_QUEUE_HANDLE>) {
        acquire(current(), lock);
        handle_lock(handle).write(lock);
    }

    /// Releases and stays at `DISPATCH_LEVEL`.
    [== DISPATCH_LEVEL]
    fn KeReleaseInStackQueuedSpinLockFromDpcLevel(handle: Guest<KLOCK_QUEUE_HANDLE>) {
        release(current(), handle_lock(handle).read());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ClockKind;

    #[test]
    fn a_lock_is_waited_for_up_to_the_limit_of_the_clock() {
        let [real, turns] = [ClockKind::Threaded, ClockKind::Deterministic { seed: 1 }].map(Clock::new);
        assert!(!is_forever(&real, u32::MAX, FOREVER) && is_forever(&real, 0, FOREVER + 1));
        assert!(!is_forever(&turns, FOREVER_TURNS, u64::MAX) && is_forever(&turns, FOREVER_TURNS + 1, 0));
    }
}
