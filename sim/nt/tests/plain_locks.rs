// SPDX-License-Identifier: MIT OR Apache-2.0

//! Spin locks without the verifier, in real time: free ones are acquired and released without a change of stack and
//! without checks. What these would find must be found nevertheless.

use std::{
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use crate::kernel::{Dpc, cpu, host, object, on_a_thread_of, options, raise, violation_of};
use ndk_abi::nt::{GROUP_AFFINITY, KSPIN_LOCK};
use nt_sim::{
    BugCheck, ClockKind, Irql, Sim, current,
    delays::Moment,
    guest::Guest,
    host::HostOptions,
    nt::{processor, spin_lock},
    sim::SimBuilder,
};

fn real_time() -> SimBuilder {
    Sim::builder().clock(ClockKind::Threaded)
}

fn plain() -> HostOptions {
    HostOptions { verifier: false, ..options() }
}

fn lock() -> Guest<KSPIN_LOCK> {
    let lock = object();
    spin_lock::KeInitializeSpinLock(lock);
    lock
}

#[test]
fn locks_nest_and_return_to_the_level_before() {
    on_a_thread_of(real_time(), plain(), || {
        let [outer, inner] = [lock(), lock()];
        for level in [Irql::PASSIVE_LEVEL, Irql::APC_LEVEL] {
            let before = raise(level);
            let old = spin_lock::KeAcquireSpinLockRaiseToDpc(outer);
            assert_eq!((old, current().irql()), (level.0, Irql::DISPATCH_LEVEL));
            let nested = spin_lock::KeAcquireSpinLockRaiseToDpc(inner);
            assert_eq!((nested, current().irql()), (Irql::DISPATCH_LEVEL.0, Irql::DISPATCH_LEVEL));
            spin_lock::KeReleaseSpinLock(inner, nested);
            assert_eq!(current().irql(), Irql::DISPATCH_LEVEL);
            spin_lock::KeReleaseSpinLock(outer, old);
            assert_eq!(current().irql(), level);
            crate::kernel::lower(before);
        }
    });
}

#[test]
fn dpc_queued_under_a_lock_runs_before_its_release_returns() {
    on_a_thread_of(real_time(), plain(), || {
        let count = Arc::new(AtomicU32::new(0));
        let of_dpc = count.clone();
        let dpc = Dpc::new(move |_, _| _ = of_dpc.fetch_add(1, SeqCst));
        let lock = lock();
        for round in 1..=100 {
            let old = spin_lock::KeAcquireSpinLockRaiseToDpc(lock);
            dpc.queue();
            assert_eq!(count.load(SeqCst), round - 1);
            spin_lock::KeReleaseSpinLock(lock, old);
            assert_eq!(count.load(SeqCst), round);
        }
    });
}

/// More threads than CPUs: a thread that holds a lock owns a CPU, and only it.
#[test]
fn one_thread_holds_a_lock_and_a_cpu() {
    on_a_thread_of(real_time(), plain(), || {
        let (lock, users) = (lock(), Arc::new([const { AtomicU32::new(0) }; 2]));
        let count: Guest<u64> = object();
        count.write(0);
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let users = users.clone();
                host().spawn("contender", move || {
                    for _ in 0..5000 {
                        let other = acquire_own_lock(&users);
                        spin_lock::KeReleaseSpinLock(other.0, other.1);
                        let old = spin_lock::KeAcquireSpinLockRaiseToDpc(lock);
                        count.write(count.read() + 1);
                        spin_lock::KeReleaseSpinLock(lock, old);
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(count.read(), 20_000);
    });
}

/// Acquires a lock that no other thread has, and checks that the thread is alone on its CPU.
fn acquire_own_lock(users: &[AtomicU32; 2]) -> (Guest<KSPIN_LOCK>, u8) {
    let own = lock();
    let old = spin_lock::KeAcquireSpinLockRaiseToDpc(own);
    let here = &users[cpu() as usize];
    assert_eq!(here.fetch_add(1, SeqCst), 0, "two threads at DISPATCH_LEVEL on one CPU");
    here.fetch_sub(1, SeqCst);
    (own, old)
}

#[test]
fn misuse_is_reported() {
    type Misuse = (BugCheck, &'static str, fn());
    let all: [Misuse; 5] = [
        (BugCheck::IRQL_NOT_LESS_OR_EQUAL, "KeAcquireSpinLockRaiseToDpc was called at", || {
            raise(Irql::HIGH_LEVEL);
            spin_lock::KeAcquireSpinLockRaiseToDpc(lock());
        }),
        (BugCheck::SPIN_LOCK_ALREADY_OWNED, "by the thread that holds it already", || {
            let lock = lock();
            spin_lock::KeAcquireSpinLockRaiseToDpc(lock);
            spin_lock::KeAcquireSpinLockRaiseToDpc(lock);
        }),
        (BugCheck::SPIN_LOCK_NOT_OWNED, "a spin lock was released that is not held", || {
            raise(Irql::DISPATCH_LEVEL);
            spin_lock::KeReleaseSpinLock(lock(), 0);
        }),
        (BugCheck::IRQL_NOT_LESS_OR_EQUAL, "KeReleaseSpinLock was called at", || {
            let lock = lock();
            let old = spin_lock::KeAcquireSpinLockRaiseToDpc(lock);
            crate::kernel::lower(old);
            spin_lock::KeReleaseSpinLock(lock, old);
        }),
        (BugCheck::IRQL_NOT_LESS_OR_EQUAL, ": the new level must not be above the current one", || {
            let lock = lock();
            spin_lock::KeAcquireSpinLockRaiseToDpc(lock);
            spin_lock::KeReleaseSpinLock(lock, Irql::HIGH_LEVEL.0);
        }),
    ];
    for (code, text, misuse) in all {
        let report = violation_of(real_time(), plain(), misuse);
        assert_eq!(report.code, code, "{report}");
        assert!(report.text.contains(text), "{report}");
    }
}

#[test]
fn a_lock_that_was_waited_for_returns_the_level_before() {
    on_a_thread_of(real_time(), plain(), || {
        let lock = lock();
        let old = spin_lock::KeAcquireSpinLockRaiseToDpc(lock);
        let waiter = host().spawn("waits", move || {
            let before = cpu();
            let old = spin_lock::KeAcquireSpinLockRaiseToDpc(lock);
            spin_lock::KeReleaseSpinLock(lock, old);
            (old, current().irql(), before)
        });
        std::thread::sleep(Duration::from_millis(20));
        spin_lock::KeReleaseSpinLock(lock, old);
        let (old, level, _) = waiter.join().unwrap();
        assert_eq!((old, level), (Irql::PASSIVE_LEVEL.0, Irql::PASSIVE_LEVEL));
        // All CPUs are free.
        let threads =
            [(); 4].map(|()| host().spawn("raises", || crate::kernel::lower(raise(Irql::DISPATCH_LEVEL))));
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

/// Runs `first` at `DISPATCH_LEVEL` on CPU 0, then `second` on a thread that is bound to that CPU, which has to wait until the
/// first thread leaves it.
fn assert_cpu_is_kept(first: impl FnOnce() + Send + 'static, second: fn()) {
    on_a_thread_of(real_time(), plain(), move || {
        bind_to_cpu(0);
        let old = raise(Irql::DISPATCH_LEVEL);
        first();
        let runs = Arc::new(AtomicU32::new(0));
        let of_thread = runs.clone();
        let thread = host().spawn("bound", move || {
            bind_to_cpu(0);
            of_thread.store(1, SeqCst);
            second();
            of_thread.store(2, SeqCst);
        });
        while runs.load(SeqCst) == 0 {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(runs.load(SeqCst), 1, "two threads at DISPATCH_LEVEL on one CPU");
        crate::kernel::lower(old);
        thread.join().unwrap();
        assert_eq!(runs.load(SeqCst), 2);
    });
}

fn bind_to_cpu(number: u8) {
    let affinity: Guest<GROUP_AFFINITY> = object();
    affinity.write(GROUP_AFFINITY { Mask: 1 << number, Group: 0, Reserved: [0; 3] });
    processor::KeSetSystemGroupAffinityThread(affinity, Guest::null());
    assert_eq!(cpu(), number.into());
}

/// Acquires and releases a free lock.
fn take_free_lock() {
    let lock = lock();
    let old = spin_lock::KeAcquireSpinLockRaiseToDpc(lock);
    spin_lock::KeReleaseSpinLock(lock, old);
}

#[test]
fn a_lock_is_acquired_on_a_cpu_that_no_other_thread_has() {
    assert_cpu_is_kept(|| (), take_free_lock);
}

#[test]
fn the_release_of_a_nested_lock_keeps_the_cpu() {
    assert_cpu_is_kept(take_free_lock, || crate::kernel::lower(raise(Irql::DISPATCH_LEVEL)));
}

#[test]
fn a_wait_for_a_nested_lock_keeps_the_cpu() {
    let busy = || {
        let lock = lock();
        // As another thread has it.
        lock.cast::<usize>().write(0x1000);
        let release = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(5));
            lock.cast::<usize>().write(0);
        });
        let old = spin_lock::KeAcquireSpinLockRaiseToDpc(lock);
        spin_lock::KeReleaseSpinLockFromDpcLevel(lock);
        assert_eq!(old, Irql::DISPATCH_LEVEL.0);
        release.join().unwrap();
    };
    assert_cpu_is_kept(busy, || crate::kernel::lower(raise(Irql::DISPATCH_LEVEL)));
}

#[test]
fn a_thread_that_uses_locks_only_stops_with_its_host() {
    // Each time the host dies at another moment of the thread.
    for _ in 0..8 {
        let mut sim = real_time().build();
        let host = sim.add_host(plain());
        let count: Guest<u64> = object();
        count.write(0);
        let _endless = host.spawn("endless", move || {
            let lock = lock();
            loop {
                let old = spin_lock::KeAcquireSpinLockRaiseToDpc(lock);
                count.write(count.read() + 1);
                spin_lock::KeReleaseSpinLock(lock, old);
            }
        });
        while black_box(count).read() == 0 {
            std::thread::yield_now();
        }
        let violation = host.spawn("violation", || crate::kernel::lower(Irql::HIGH_LEVEL.0));
        assert!(violation.join().is_err());
        let before = black_box(count).read();
        std::thread::sleep(Duration::from_millis(50));
        assert!(black_box(count).read() <= before + 1, "a thread of a dead host runs");
    }
}

#[test]
fn delays_of_locks_are_kept() {
    on_a_thread_of(real_time(), plain(), || {
        for import in ["KeAcquireSpinLockRaiseToDpc", "KeReleaseSpinLock"] {
            let time = Duration::from_millis(20);
            let delay = host().delays.add(Moment::Return(import), time);
            let begin = Instant::now();
            take_free_lock();
            assert!(delay.is_reached(), "{import}");
            assert!(begin.elapsed() >= time);
        }
    });
}

#[test]
fn pageable_memory_is_not_accessible_under_a_lock() {
    let report = violation_of(real_time(), plain(), || {
        let memory = host().memory.allocate(1).unwrap();
        let pages = memory.address()..memory.address() + 4096;
        host().memory.paged.add(pages, libc::PROT_READ | libc::PROT_WRITE, "of the test".into());
        memory.write(1);
        spin_lock::KeAcquireSpinLockRaiseToDpc(lock());
        memory.write(2);
    });
    assert_eq!(report.code, BugCheck::IRQL_NOT_LESS_OR_EQUAL, "{report}");
    assert!(report.text.contains("it is pageable (of the test)"), "{report}");
}
