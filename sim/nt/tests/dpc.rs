// SPDX-License-Identifier: MIT OR Apache-2.0

//! When DPCs run, and what they interrupt.
//!
//! "KeDpc" and "KeIrql" below are kernel tests of ReactOS that pass on Windows Server 2003. The rules for importance
//! and target are those of the WDK's page "Organization of DPC Queues".

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst},
};

use crate::kernel::{
    Dpc, MILLISECOND, at_dispatch_level, call_imports, clocks, cpu, host, lower, object, on_a_thread,
    on_a_thread_of, options, raise, seeds, sleep,
};
use ndk_abi::nt::{GROUP_AFFINITY, KDPC, KDPC_IMPORTANCE};
use nt_sim::{
    Irql,
    cpu::CpuId,
    current,
    guest::Guest,
    host::HostOptions,
    nt::{dpc, processor, spin_lock},
};

/// A DPC that counts its runs.
fn counter() -> (Dpc, Arc<AtomicU32>) {
    let count = Arc::new(AtomicU32::new(0));
    let of_dpc = count.clone();
    let routine = move |_, _| {
        of_dpc.fetch_add(1, SeqCst);
    };
    (Dpc::new(routine), count)
}

/// Queues a DPC below `DISPATCH_LEVEL`: on Windows it has run when KeInsertQueueDpc returns (KeDpc asserts it).
#[test]
fn dpc_queued_below_dispatch_level_has_run_when_the_call_returns() {
    for sim in clocks() {
        on_a_thread(sim, || {
            let (dpc, count) = counter();
            for level in [Irql::PASSIVE_LEVEL, Irql::APC_LEVEL] {
                let old = raise(level);
                for _ in 0..5 {
                    let before = count.load(SeqCst);
                    assert!(dpc.queue());
                    assert_eq!(count.load(SeqCst), before + 1);
                    assert_eq!(current().irql(), level);
                }
                lower(old);
            }
        });
    }
}

/// Queues a DPC at `DISPATCH_LEVEL`: it runs when the level falls below, not when it returns from a higher one to
/// `DISPATCH_LEVEL`. A second insertion fails and changes nothing. (KeDpc asserts all of it.)
#[test]
fn dpc_queued_at_dispatch_level_runs_before_the_level_falls_below() {
    for sim in clocks() {
        on_a_thread(sim, || {
            let arguments = Arc::new(Mutex::new(Vec::new()));
            let of_dpc = arguments.clone();
            let dpc = Dpc::new(move |first, second| of_dpc.lock().unwrap().push((first, second)));
            let runs = || arguments.lock().unwrap().len();
            for level in [Irql::PASSIVE_LEVEL, Irql::APC_LEVEL] {
                let outer = raise(level);
                let before = runs();
                let old = raise(Irql::DISPATCH_LEVEL);
                assert!(dpc.queue_with(0xabc, 0x123));
                assert!(!dpc.queue_with(1, 2));
                let dispatch = raise(Irql::HIGH_LEVEL);
                lower(dispatch);
                assert_eq!(runs(), before, "still at DISPATCH_LEVEL");
                lower(old);
                assert_eq!(runs(), before + 1);
                assert_eq!(arguments.lock().unwrap().last(), Some(&(0xabc, 0x123)));
                lower(outer);
            }
        });
    }
}

/// Releasing a spin lock lowers the IRQL as KeLowerIrql does.
#[test]
fn dpc_queued_under_a_spin_lock_runs_before_its_release_returns() {
    for sim in clocks() {
        on_a_thread(sim, || {
            let (dpc, count) = counter();
            let lock = object();
            spin_lock::KeInitializeSpinLock(lock);
            let old = spin_lock::KeAcquireSpinLockRaiseToDpc(lock);
            dpc.queue();
            assert_eq!(count.load(SeqCst), 0);
            spin_lock::KeReleaseSpinLock(lock, old);
            assert_eq!(count.load(SeqCst), 1);
        });
    }
}

/// KeRemoveQueueDpc says whether the DPC was queued, and a removed one does not run; both work at any level, on a DPC
/// without routine, too (KeDpc asserts it).
#[test]
fn removed_dpc_does_not_run() {
    for sim in clocks() {
        on_a_thread(sim, || {
            let (dpc, count) = counter();
            at_dispatch_level(|| {
                assert!(!dpc.remove());
                assert!(dpc.queue());
                assert!(dpc.remove());
                assert!(!dpc.remove());
            });
            assert_eq!(count.load(SeqCst), 0);
            let empty = Dpc(object());
            dpc::KeInitializeDpc(empty.0, 0, 0);
            let old = raise(Irql::HIGH_LEVEL);
            assert!(empty.queue());
            assert!(empty.remove());
            lower(old);
        });
    }
}

/// KeInitializeDpc writes type, importance, number, routine, context and DpcData, and leaves list entry and arguments
/// (KeDpc asserts it).
#[test]
fn initialization_leaves_list_entry_and_arguments() {
    on_a_thread(clocks()[1].clone(), || {
        let dpc: Guest<KDPC> = object();
        dpc.write(filled_dpc(0x5555_5555_5555_5555));
        dpc::KeInitializeDpc(dpc, 0x1000, 0x2000);
        let word = |index: usize| dpc.field::<u64>(8 * index).read();
        assert_eq!(dpc.field::<u32>(0).read(), 0x113, "number 0, medium importance, a DPC object");
        assert_eq!((word(1), word(2)), (0x5555_5555_5555_5555, 0x5555_5555_5555_5555));
        assert_eq!((word(3), word(4)), (0x1000, 0x2000));
        assert_eq!((word(5), word(6), word(7)), (0x5555_5555_5555_5555, 0x5555_5555_5555_5555, 0));
    });
}

fn filled_dpc(word: u64) -> KDPC {
    let mut dpc = std::mem::MaybeUninit::<KDPC>::uninit();
    let words = dpc.as_mut_ptr().cast::<[u64; 8]>();
    // SAFETY: a KDPC is 64 bytes without a destructor, aligned to 8.
    unsafe { words.write([word; 8]) };
    // SAFETY: initialized above; each value is valid.
    unsafe { dpc.assume_init() }
}

/// A DPC that host-side code queues on the processor of the thread runs at the thread's next call of the kernel, not at the
/// end of its turn.
#[test]
fn dpc_of_the_threads_own_processor_runs_at_its_next_call() {
    for sim in seeds() {
        on_a_thread(sim, || {
            let count = Arc::new(AtomicU32::new(0));
            for runs in 1..=20 {
                let of_dpc = count.clone();
                host().queue_dpc(current().cpu(), move || _ = of_dpc.fetch_add(1, SeqCst));
                assert_eq!(count.load(SeqCst), runs - 1);
                call_imports(1);
                assert_eq!(count.load(SeqCst), runs);
            }
        });
    }
}

/// DPCs that host-side code queues before it calls a function of an image, or while the function runs, do not wait for a call of
/// the kernel.
#[test]
fn dpc_of_the_threads_own_processor_runs_before_and_after_a_function_of_an_image() {
    for sim in seeds() {
        on_a_thread(sim, || {
            let count = Arc::new(AtomicU32::new(0));
            let queue = || {
                let of_dpc = count.clone();
                host().queue_dpc(current().cpu(), move || _ = of_dpc.fetch_add(1, SeqCst));
            };
            queue();
            nt_sim::image::call("a function of the test", || {
                assert_eq!(count.load(SeqCst), 1);
                queue();
                assert_eq!(count.load(SeqCst), 1);
            });
            assert_eq!(count.load(SeqCst), 2);
        });
    }
}

/// A thread that does not block lets another one run that waits for its processor.
#[test]
fn a_processor_is_shared_by_threads_that_do_not_block() {
    for sim in seeds() {
        on_a_thread_of(sim, HostOptions { cpus: 1, ..options() }, || {
            let ran = Arc::new(AtomicU32::new(0));
            let of_thread = ran.clone();
            let thread = host().spawn("runs", move || of_thread.store(1, SeqCst));
            for _ in 0..100_000 {
                if ran.load(SeqCst) == 1 {
                    break;
                }
                call_imports(1);
            }
            assert_eq!(ran.load(SeqCst), 1);
            thread.join().unwrap();
        });
    }
}

/// A DPC of high importance goes to the front of the queue.
#[test]
fn important_dpc_runs_before_those_queued_earlier() {
    for sim in clocks() {
        on_a_thread(sim, || {
            let order = Arc::new(Mutex::new(Vec::new()));
            let dpc = |name: &'static str| {
                let order = order.clone();
                Dpc::new(move |_, _| order.lock().unwrap().push(name))
            };
            let dpcs = [
                dpc("medium"),
                dpc("low").importance(KDPC_IMPORTANCE::LowImportance),
                dpc("high").importance(KDPC_IMPORTANCE::HighImportance),
                dpc("medium high").importance(KDPC_IMPORTANCE::MediumHighImportance),
            ];
            at_dispatch_level(|| assert!(dpcs.iter().all(|dpc| dpc.queue())));
            assert_eq!(*order.lock().unwrap(), ["high", "medium", "low", "medium high"]);
        });
    }
}

/// A DPC of low importance does not start the processing of the queue. It runs with the next one that does, when the
/// processor is idle, and not later than at the next clock tick.
#[test]
fn unimportant_dpc_waits() {
    for sim in clocks() {
        on_a_thread(sim, || {
            let (low, count) = counter();
            let low = low.importance(KDPC_IMPORTANCE::LowImportance);
            assert!(low.queue());
            if host().world().clock.is_deterministic() {
                assert_eq!(count.load(SeqCst), 0, "nothing started the queue");
                let (medium, _) = counter();
                medium.queue();
                assert_eq!(count.load(SeqCst), 1);
                assert!(low.queue());
                sleep(MILLISECOND / 10);
                assert_eq!(count.load(SeqCst), 2, "the processor was idle");
                assert!(low.queue());
                // The clock interrupts a processor that does not become idle.
                while count.load(SeqCst) == 2 {
                    at_dispatch_level(|| current().stall(100_000));
                    assert!(host().world().now() < 100_000_000);
                }
            }
            sleep(20 * MILLISECOND);
            dpc::KeFlushQueuedDpcs();
            assert!(count.load(SeqCst) > 0);
        });
    }
}

/// A queue that becomes long is processed, whatever the importance of its DPCs.
#[test]
fn long_queue_of_unimportant_dpcs_is_processed() {
    on_a_thread(clocks()[1].clone(), || {
        let dpcs = [(); 5].map(|()| counter());
        for (dpc, _) in &dpcs {
            dpc.importance(KDPC_IMPORTANCE::LowImportance).queue();
        }
        assert_eq!(dpcs.iter().map(|(_, count)| count.load(SeqCst)).sum::<u32>(), 5);
    });
}

/// A DPC runs on the CPU that KeSetTargetProcessorDpcEx named. One of medium importance does not interrupt another
/// CPU; that CPU runs it at its next clock tick.
#[test]
fn targeted_dpc_runs_on_its_processor() {
    for sim in clocks() {
        on_a_thread(sim, || {
            for (importance, waits) in [
                (KDPC_IMPORTANCE::MediumImportance, true),
                (KDPC_IMPORTANCE::MediumHighImportance, false),
                (KDPC_IMPORTANCE::HighImportance, false),
            ] {
                let ran_on = Arc::new(AtomicUsize::new(usize::MAX));
                let of_dpc = ran_on.clone();
                let dpc = Dpc::new(move |_, _| of_dpc.store(cpu() as usize, SeqCst)).importance(importance);
                let target = 1 - cpu();
                let dpc = dpc.target(target as u8);
                assert!(dpc.queue());
                if host().world().clock.is_deterministic() {
                    sleep(MILLISECOND / 2);
                    assert_eq!(ran_on.load(SeqCst) == usize::MAX, waits, "{importance:?}");
                }
                sleep(40 * MILLISECOND);
                assert_eq!(ran_on.load(SeqCst), target as usize);
            }
            let (dpc, _) = counter();
            assert_eq!(
                dpc.set_target(2),
                ndk_abi::nt::STATUS_INVALID_PARAMETER,
                "there is no such processor"
            );
        });
    }
}

/// KeFlushQueuedDpcs returns after the DPCs of all CPUs, also those that did not start their queue.
#[test]
fn flush_waits_for_the_dpcs_of_all_processors() {
    for sim in clocks() {
        on_a_thread(sim, || {
            let dpcs = [0, 1].map(|cpu| {
                let (dpc, count) = counter();
                assert!(dpc.target(cpu).importance(KDPC_IMPORTANCE::LowImportance).queue());
                count
            });
            dpc::KeFlushQueuedDpcs();
            assert!(dpcs.iter().all(|count| count.load(SeqCst) == 1));
        });
    }
}

/// A DPC that another CPU or a device queues runs on top of the thread of its CPU, which does not go on before the DPC
/// has ended: DPCs of a CPU precede its threads.
#[test]
fn thread_does_not_go_on_while_a_dpc_runs_on_its_processor() {
    let mut interrupted = 0;
    for sim in seeds() {
        interrupted += on_a_thread_of(sim, HostOptions { cpus: 1, ..options() }, || {
            let steps = Arc::new(AtomicU32::new(0));
            let during = Arc::new(Mutex::new(Vec::new()));
            let (of_dpc, seen) = (steps.clone(), during.clone());
            let dpc = Dpc::new(move |_, _| {
                let before = of_dpc.load(SeqCst);
                // Longer than several turns of the clock.
                call_imports(2000);
                seen.lock().unwrap().push((before, of_dpc.load(SeqCst)));
            });
            // As a device does.
            for round in 1..20 {
                let host = host();
                host.at(host.world().now() + round * 3000, move || {
                    current().interrupt(CpuId(0), Irql::DEVICE_LEVEL, || dpc.queue());
                });
            }
            for _ in 0..5000 {
                call_imports(1);
                steps.fetch_add(1, SeqCst);
            }
            dpc::KeFlushQueuedDpcs();
            let during = during.lock().unwrap();
            assert!(during.iter().all(|(before, after)| before == after), "{during:?}");
            during.iter().filter(|(before, _)| (1..5000).contains(before)).count()
        });
    }
    assert!(interrupted > 20, "the DPCs interrupted the thread {interrupted} times");
}

/// An interrupt service routine stops the thread of its processor, and waits while that thread is at a device level.
#[test]
fn thread_does_not_go_on_while_its_processor_is_interrupted() {
    for sim in seeds() {
        on_a_thread_of(sim, HostOptions { cpus: 1, ..options() }, || {
            let steps = Arc::new(AtomicU32::new(0));
            let raised = Arc::new(AtomicU32::new(0));
            let wrong = Arc::new(AtomicU32::new(0));
            let host = host();
            for round in 1..10 {
                let (steps, raised, wrong) = (steps.clone(), raised.clone(), wrong.clone());
                let at = host.world().now() + round * 10_000;
                host.at(at, move || {
                    current().interrupt(CpuId(0), Irql::DEVICE_LEVEL, || {
                        let before = steps.load(SeqCst);
                        call_imports(1000);
                        wrong.fetch_add(steps.load(SeqCst) - before + raised.load(SeqCst), SeqCst);
                    });
                });
            }
            for _ in 0..3000 {
                call_imports(1);
                steps.fetch_add(1, SeqCst);
                let old = raise(Irql::DEVICE_LEVEL);
                raised.store(1, SeqCst);
                call_imports(1);
                raised.store(0, SeqCst);
                lower(old);
            }
            assert_eq!(wrong.load(SeqCst), 0);
        });
    }
}

/// Two threads that could run never share a processor, and more of them than processors take turns.
#[test]
fn processor_runs_one_thread_at_a_time() {
    for sim in seeds() {
        on_a_thread(sim, || {
            let running = Arc::new(Mutex::new(vec![0_u32; 2]));
            let threads: Vec<_> = (0..4)
                .map(|number| {
                    let running = running.clone();
                    host().spawn("runs", move || {
                        for _ in 0..300 {
                            at_dispatch_level(|| {
                                let cpu = cpu() as usize;
                                let other = std::mem::replace(&mut running.lock().unwrap()[cpu], number + 1);
                                assert_eq!(other, 0, "thread {other} is on CPU {cpu}");
                                call_imports(10);
                                running.lock().unwrap()[cpu] = 0;
                            });
                        }
                    })
                })
                .collect();
            for thread in threads {
                thread.join().unwrap();
            }
        });
    }
}

/// KeSetSystemGroupAffinityThread moves the thread before it returns (WDK), and returns what was set before.
#[test]
fn thread_runs_on_the_processors_of_its_affinity() {
    for sim in clocks() {
        on_a_thread(sim, || {
            let (set, before) = (object::<GROUP_AFFINITY>(), object::<GROUP_AFFINITY>());
            for cpu_number in [1, 0, 1] {
                set.write(GROUP_AFFINITY { Mask: 1 << cpu_number, Group: 0, Reserved: [0; 3] });
                processor::KeSetSystemGroupAffinityThread(set, before);
                assert_eq!(cpu(), cpu_number);
                assert_eq!(at_dispatch_level(cpu), cpu_number);
            }
            assert_eq!(before.read().Mask, 1);
            before.write(GROUP_AFFINITY { Mask: 0, Group: 0, Reserved: [0; 3] });
            processor::KeRevertToUserGroupAffinityThread(before);
            processor::KeSetSystemGroupAffinityThread(set, before);
            assert_eq!(before.read().Mask, 0);
        });
    }
}

/// Raising to each level and back leaves the thread where it was, whatever the level; raising or lowering to the current
/// level has no effect (KeIrql asserts it).
#[test]
fn every_level_can_be_raised_to() {
    for sim in clocks() {
        on_a_thread(sim, || {
            for level in 0..=15 {
                assert_eq!(raise(Irql(level)), 0);
                assert_eq!(current().irql(), Irql(level));
                assert_eq!(raise(Irql(level)), level);
                lower(level);
                lower(0);
                assert_eq!(current().irql(), Irql::PASSIVE_LEVEL);
            }
        });
    }
}
