// SPDX-License-Identifier: MIT OR Apache-2.0

//! Virtual time and the order of threads under the deterministic clock, and what a simulation gives to its parts.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use crate::kernel::{
    Dpc, MILLISECOND, at_dispatch_level, call_imports, clocks, cpu, event, host, on_a_thread, options, seeds,
    sleep, timeout,
};
use ndk_abi::nt::{EVENT_TYPE, KDPC_IMPORTANCE, KWAIT_REASON};
use nt_sim::{
    ClockKind, Irql, Sim,
    cpu::CpuId,
    current,
    nt::{dispatcher::KeWaitForSingleObject, time},
};

const NANOS: u64 = 1_000_000;

fn now() -> u64 {
    host().world().now()
}

#[test]
fn a_thread_that_waits_without_end_is_lost_when_no_other_can_run() {
    let mut sim = Sim::builder().clock(ClockKind::Deterministic { seed: 1 }).build();
    let host = sim.add_host(options());
    let thread = host.spawn("waits", || {
        let never = event(EVENT_TYPE::NotificationEvent, false);
        KeWaitForSingleObject(never.address(), KWAIT_REASON::Executive, 0, 0, timeout(None));
    });
    assert!(!thread.is_finished());
    let lost = thread.join().expect_err("it waits without end");
    assert_eq!(
        lost.to_string(),
        "thread 'host waits' is lost: every thread of the simulation waits without a deadline"
    );
}

#[test]
fn a_thread_that_has_ended_is_finished() {
    for sim in clocks() {
        let mut sim = sim.build();
        let host = sim.add_host(options());
        let ended = sim.event();
        let thread = host.spawn("ends", || ());
        // Until the thread has ended the wait times out.
        for _ in 0..1000 {
            if thread.is_finished() {
                break;
            }
            let _ = ended.wait(MILLISECOND);
        }
        assert!(thread.is_finished());
        thread.join().unwrap();
    }
}

/// Sometimes the seed chooses another one.
#[test]
fn threads_with_the_same_deadline_wake_in_the_order_in_which_they_slept() {
    let in_order = seeds().filter(|sim| {
        let order = on_a_thread(sim.clone(), || {
            let order = Arc::new(Mutex::new(Vec::new()));
            let deadline = now() + 10 * NANOS;
            let threads = [0, 1].map(|number| {
                let order = order.clone();
                let thread = host().spawn("sleeps", move || {
                    current().park(Some(deadline));
                    order.lock().unwrap().push(number);
                });
                sleep(MILLISECOND);
                thread
            });
            for thread in threads {
                thread.join().unwrap();
            }
            order.lock().unwrap().clone()
        });
        assert_eq!(order.len(), 2);
        order == [0, 1]
    });
    assert!(in_order.count() > 12, "of 20 seeds");
}

#[test]
fn a_dpc_takes_time_of_its_own() {
    on_a_thread(clocks()[1].clone(), || {
        let ran = Arc::new(AtomicU64::new(0));
        let of_dpc = ran.clone();
        let dpc = Dpc::new(move |_, _| of_dpc.store(host().world().now(), SeqCst));
        let start = now();
        at_dispatch_level(|| dpc.queue());
        assert!(ran.load(SeqCst) >= start + 300, "{} {start}", ran.load(SeqCst));
    });
}

#[test]
fn a_dpc_on_the_threads_own_cpu_runs_at_its_next_import() {
    for sim in seeds() {
        on_a_thread(sim, || {
            let ran = Arc::new(AtomicU64::new(0));
            let of_dpc = ran.clone();
            let dpc = Dpc::new(move |_, _| _ = of_dpc.fetch_add(1, SeqCst));
            for number in 1..50 {
                assert!(dpc.target(u8::try_from(cpu()).unwrap()).queue());
                call_imports(1);
                assert_eq!(ran.load(SeqCst), number);
            }
        });
    }
}

#[test]
fn a_dpc_interrupts_a_thread_that_stalls_below_dispatch_level_only() {
    for sim in seeds() {
        on_a_thread(sim, || {
            for (level, interrupts) in [(Irql::PASSIVE_LEVEL, true), (Irql::DISPATCH_LEVEL, false)] {
                let ran = Arc::new(AtomicU64::new(0));
                let of_dpc = ran.clone();
                let dpc = Dpc::new(move |_, _| of_dpc.store(host().world().now(), SeqCst))
                    .importance(KDPC_IMPORTANCE::HighImportance);
                let target = CpuId(cpu());
                dpc.target(u8::try_from(target.0).unwrap());
                host().at(now() + 2 * NANOS, move || _ = dpc.queue());
                let old = crate::kernel::raise(level);
                let start = now();
                time::KeStallExecutionProcessor(10_000);
                assert!(now() >= start + 10 * NANOS);
                let end = now();
                crate::kernel::lower(old);
                if CpuId(cpu()) == target {
                    assert_eq!((1..end).contains(&ran.load(SeqCst)), interrupts, "at {level}");
                }
            }
        });
    }
}

#[test]
fn an_interrupt_runs_on_its_cpu_at_its_level() {
    for sim in clocks() {
        on_a_thread(sim, || {
            let (host, done) = (host(), host().event());
            let set = done.clone();
            host.interrupt(CpuId(1), Irql::DEVICE_LEVEL, move || {
                assert_eq!((current().irql(), cpu()), (Irql::DEVICE_LEVEL, 1));
                set.set();
            });
            assert!(done.wait(Duration::from_secs(10)));
            done.reset();
            assert!(!done.is_set());
        });
    }
}

#[test]
fn events_between_hosts_run_at_their_times_unless_they_are_cancelled() {
    for sim in clocks() {
        let sim = sim.build();
        let (ran, cancelled) = (sim.event(), sim.event());
        let time = sim.now() + 20 * NANOS;
        let [first, second] = [ran.clone(), cancelled.clone()].map(|event| sim.at(time, move || event.set()));
        assert_ne!(first, second);
        assert!(sim.cancel(second));
        assert!(!sim.cancel(second), "it was cancelled");
        assert!(ran.wait(Duration::from_secs(10)));
        assert!(sim.now() >= time);
        assert!(!sim.cancel(first), "it has run");
        assert!(!cancelled.is_set());
    }
}

/// FNV-1a of "foobar" is a test vector of the function's authors.
#[test]
fn random_generators_depend_on_seed_and_purpose_alone() {
    const FOOBAR: u64 = 0x8594_4171_f739_67e8;
    let sim = Sim::builder().seed(7).build();
    assert_eq!(sim.random("foobar").get_seed(), 7_u64.rotate_left(32) ^ FOOBAR);
}

#[test]
fn a_thread_whose_wait_times_out_leaves_the_others_waiting() {
    for sim in clocks() {
        on_a_thread(sim, || {
            let event = host().event();
            let [long, short] = [Duration::from_secs(20), 5 * MILLISECOND].map(|time| {
                let event = event.clone();
                let thread = host().spawn("waits", move || event.wait(time));
                sleep(MILLISECOND);
                thread
            });
            assert_eq!(short.join(), Ok(false));
            let start = now();
            event.set();
            assert_eq!(long.join(), Ok(true));
            assert!(now() - start < 10_000 * NANOS);
        });
    }
}
