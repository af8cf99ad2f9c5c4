// SPDX-License-Identifier: MIT OR Apache-2.0

//! The processors on which the notification callbacks of completion queues and shared receive queues run.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use lab::{image, testbed::Options};
use ndk_consumer::Pd;
use nt_sim::nt::time::sleep;
use support::affinity::{PROCESSORS, Queue, check_affinities, check_affinities_of_shared_queues, run};

//= R-CREATE-23
#[test]
fn notifications_run_on_the_processors_of_the_affinity() {
    for seed in 0..4 {
        run(Options { seed, ..Options::default() }, check_affinities);
    }
}

//= R-SRQ-19
#[test]
fn notifications_of_shared_queues_run_on_the_processors_of_the_affinity() {
    for seed in 0..4 {
        run(Options { seed, ..Options::default() }, check_affinities_of_shared_queues);
    }
}

//= R-CREATE-23
#[test]
fn notifications_run_on_the_processors_of_the_affinity_in_real_time() {
    run(Options { real_time: true, ..Options::default() }, check_affinities);
}

/// One processor would do the work of all.
//= R-CREATE-23
#[test]
fn queues_of_one_affinity_are_spread_over_its_processors() {
    run(Options::default(), |adapter| {
        let pd = Pd::new(adapter).expect("a protection domain");
        // Queues for any processor between them take no turn.
        let mut queues: Vec<Queue> = (0..6)
            .map(|number| Queue::new(&pd, adapter, 0, if number % 2 == 0 { 0b0111 } else { 0 }))
            .collect();
        for queue in &mut queues {
            queue.notify();
        }
        sleep(10_000_000);
        let used: BTreeSet<u32> = queues.iter().step_by(2).flat_map(Queue::seen).collect();
        assert_eq!(used, BTreeSet::from([0, 1, 2]));
    });
}

/// Queues are closed while the DPC that notifies them is queued on another processor. Then the adapter is closed, and the
/// driver stopped.
//= R-CLOSE-5
#[test]
fn closed_queue_is_not_notified_on_its_processor() {
    static LATE: AtomicUsize = AtomicUsize::new(0);
    for seed in 0..8 {
        run(Options { seed, ..Options::default() }, |adapter| {
            let pd = Pd::new(adapter).expect("a protection domain");
            for round in 0..8 {
                let mut queues: Vec<Queue> =
                    (0..PROCESSORS).map(|cpu| Queue::new(&pd, adapter, 0, 1 << cpu)).collect();
                for queue in &mut queues {
                    queue.notify();
                }
                // Some rounds leave time for none, others for some of the DPCs.
                sleep(round * 100);
                let seen: Vec<_> = queues.iter().map(|queue| Arc::clone(&queue.seen)).collect();
                drop(queues);
                let before: Vec<_> = seen.iter().map(|seen| seen.lock().unwrap().len()).collect();
                sleep(1_000_000);
                for (seen, before) in seen.iter().zip(before) {
                    assert_eq!(seen.lock().unwrap().len(), before, "notified after the close was complete");
                    LATE.fetch_add(usize::from(before == 0), Ordering::Relaxed);
                }
            }
        });
    }
    if image().is_some() {
        assert_ne!(LATE.load(Ordering::Relaxed), 0, "every queue was notified before its close");
    }
}
