// SPDX-License-Identifier: MIT OR Apache-2.0

//! Spin locks: their order, and threads that wait for one.

use std::{hint::black_box, thread, time::Duration};

use crate::kernel::{
    at_dispatch_level, call_imports, clocks, host, lower, object, on_a_thread, options, raise, violation_of,
};
use ndk_abi::nt::{KLOCK_QUEUE_HANDLE, KSPIN_LOCK, POOL_FLAG_NON_PAGED};
use nt_sim::{
    BugCheck, Irql, Violation, current,
    guest::Guest,
    nt::{
        irql::KeGetCurrentIrql,
        pool::{ExAllocatePool2, ExFreePool},
        spin_lock,
    },
};

type Lock = Guest<KSPIN_LOCK>;

fn lock() -> Lock {
    let lock = object();
    spin_lock::KeInitializeSpinLock(lock);
    lock
}

/// Acquires and releases locks, each inside the one before.
fn nested(locks: &[Lock]) {
    at_dispatch_level(|| {
        for &lock in locks {
            spin_lock::KeAcquireSpinLockAtDpcLevel(lock);
        }
        for &lock in locks.iter().rev() {
            spin_lock::KeReleaseSpinLockFromDpcLevel(lock);
        }
    });
}

fn violation(body: impl FnOnce() + Send + 'static) -> Violation {
    violation_of(clocks()[1].clone(), options(), body)
}

#[test]
fn locks_may_be_nested_in_one_order() {
    on_a_thread(clocks()[1].clone(), || {
        let [a, b, c, d] = [0; 4].map(|_| lock());
        nested(&[a, b, c]);
        nested(&[a, b, c]);
        nested(&[a, c]);
        nested(&[b, d]);
        nested(&[c, d]);
    });
}

#[test]
fn the_opposite_order_of_locks_is_reported() {
    type Orders = fn([Lock; 3]) -> [Vec<Lock>; 3];
    let orders: [Orders; 2] = [
        |[a, b, c]| [vec![a, b], vec![a, c], vec![b, a]],
        // Through another lock.
        |[a, b, c]| [vec![a, b], vec![b, c], vec![c, a]],
    ];
    for orders in orders {
        let report = violation(move || {
            for locks in orders([0; 3].map(|_| lock())) {
                nested(&locks);
            }
        });
        assert_eq!(report.code, BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION, "{report}");
        assert!(report.text.contains("lock order: this spin lock was acquired while another is held that was acquired inside it before; the two can deadlock"), "{report}");
    }
}

#[test]
fn locks_keep_their_order_when_other_memory_is_freed() {
    let report = violation(|| {
        let [a, b] = [lock(), lock()];
        nested(&[a, b]);
        let block = ExAllocatePool2(POOL_FLAG_NON_PAGED, 8, 1);
        ExFreePool(block);
        nested(&[b, a]);
    });
    assert!(report.text.contains("lock order"), "{report}");
}

#[test]
fn a_lock_that_another_thread_holds_is_waited_for() {
    for sim in clocks() {
        on_a_thread(sim, || {
            let (lock, waits): (Lock, Guest<u32>) = (lock(), object());
            waits.write(0);
            let old = spin_lock::KeAcquireSpinLockRaiseToDpc(lock);
            let thread = host().spawn("waits", move || {
                let old = raise(Irql::DISPATCH_LEVEL);
                waits.write(1);
                spin_lock::KeAcquireSpinLockAtDpcLevel(lock);
                waits.write(2);
                spin_lock::KeReleaseSpinLockFromDpcLevel(lock);
                lower(old);
            });
            while black_box(waits).read() == 0 {
                call_imports(1);
            }
            // It asks for the lock again and again.
            call_imports(20_000);
            assert_eq!(black_box(waits).read(), 1);
            spin_lock::KeReleaseSpinLock(lock, old);
            thread.join().unwrap();
            assert_eq!(black_box(waits).read(), 2);
        });
    }
}

/// In real time the waiting thread finds out by itself that its host is dead.
#[test]
fn a_thread_that_waits_for_a_lock_stops_with_its_host() {
    let mut sim = clocks()[0].clone().build();
    let host = sim.add_host(options());
    let (lock, waits): (Lock, Guest<u32>) = (object(), object());
    lock.cast::<usize>().write(0);
    waits.write(0);
    let holder = host.spawn("holds", move || {
        spin_lock::KeAcquireSpinLockRaiseToDpc(lock);
        let thread = nt_sim::current().host().spawn("waits", move || {
            raise(Irql::DISPATCH_LEVEL);
            waits.write(1);
            spin_lock::KeAcquireSpinLockAtDpcLevel(lock);
        });
        while black_box(waits).read() == 0 {
            call_imports(1);
        }
        thread::sleep(Duration::from_millis(20));
        // A violation.
        lower(Irql::HIGH_LEVEL.0);
        let _ = thread.join();
    });
    assert!(holder.join().is_err());
    thread::sleep(Duration::from_millis(500));
    lock.cast::<usize>().write(0);
    thread::sleep(Duration::from_millis(20));
    assert_eq!(black_box(lock).cast::<usize>().read(), 0, "a thread of a dead host acquired it");
}

#[test]
fn the_release_of_another_threads_lock_is_reported_with_its_holder() {
    let holder: Guest<u32> = object();
    let report = violation(move || {
        let lock = lock();
        let acquire = move || {
            holder.write(current().id().0);
            raise(Irql::DISPATCH_LEVEL);
            spin_lock::KeAcquireSpinLockAtDpcLevel(lock);
            // It is the release that is reported, not that this thread ends at a raised level.
            call_imports(1000);
        };
        let thread = host().spawn("holds", acquire);
        while lock.cast::<usize>().read() == 0 {
            call_imports(1);
        }
        raise(Irql::DISPATCH_LEVEL);
        spin_lock::KeReleaseSpinLock(lock, 0);
        let _ = thread.join();
    });
    assert_eq!(report.code, BugCheck::SPIN_LOCK_NOT_OWNED, "{report}");
    let expected = format!("a spin lock was released that thread {} holds", holder.read());
    assert!(report.text.contains(&expected), "{report}");
}

#[test]
fn a_lock_may_be_held_while_the_level_falls_to_dispatch_level() {
    on_a_thread(clocks()[1].clone(), || {
        let lock = lock();
        let old = spin_lock::KeAcquireSpinLockRaiseToDpc(lock);
        for level in [Irql(5), Irql::DISPATCH_LEVEL] {
            let before = raise(level);
            lower(before);
        }
        spin_lock::KeReleaseSpinLock(lock, old);
        lower(raise(Irql::APC_LEVEL));
    });
}

#[test]
fn a_queued_lock_is_released_by_its_handle() {
    on_a_thread(clocks()[1].clone(), || {
        let (lock, handle): (Lock, Guest<KLOCK_QUEUE_HANDLE>) = (lock(), object());
        for _ in 0..2 {
            spin_lock::KeAcquireInStackQueuedSpinLock(lock, handle);
            assert_eq!(KeGetCurrentIrql(), Irql::DISPATCH_LEVEL.0);
            assert_ne!(lock.cast::<usize>().read(), 0);
            spin_lock::KeReleaseInStackQueuedSpinLock(handle);
            assert_eq!((KeGetCurrentIrql(), lock.cast::<usize>().read()), (Irql::PASSIVE_LEVEL.0, 0));
        }
        at_dispatch_level(|| {
            spin_lock::KeAcquireInStackQueuedSpinLockAtDpcLevel(lock, handle);
            spin_lock::KeReleaseInStackQueuedSpinLockFromDpcLevel(handle);
        });
    });
}
