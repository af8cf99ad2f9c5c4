// SPDX-License-Identifier: MIT OR Apache-2.0

//! The processors on which the notification callbacks of completion queues and shared receive queues run.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lab::{
    image,
    os::SimOs,
    testbed::{Options, Testbed},
};
use ndk_abi::ndk::NDK_RESULT_EX;
use ndk_abi::nt::GROUP_AFFINITY;
use ndk_consumer::{Adapter, Completions, Cq, Os as _, Pd, Qp, QpDepths, Srq};
use nt_sim::{current, nt::time::sleep};

pub const PROCESSORS: u32 = 4;
pub const DEPTHS: QpDepths =
    QpDepths { receives: 8, requests: 1, receive_sges: 1, request_sges: 1, inline: 0 };
/// The mask of all processors.
const ALL: usize = (1 << PROCESSORS) - 1;
pub const MOMENT: Duration = Duration::from_secs(1);

/// A completion queue of an affinity, with a queue pair whose receives are canceled.
pub struct Queue {
    pub completions: Completions<SimOs>,
    pub qp: Qp<SimOs>,
    /// The processors of its notifications.
    pub seen: Arc<Mutex<Vec<u32>>>,
}

impl Queue {
    pub fn new(pd: &Arc<Pd<SimOs>>, adapter: &Arc<Adapter<SimOs>>, group: u16, mask: usize) -> Self {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let record = Arc::clone(&seen);
        let handler = Box::new(move || record.lock().unwrap().push(current().cpu().0));
        let affinity = GROUP_AFFINITY { Mask: mask, Group: group, Reserved: [0; 3] };
        let (cq, completions) = Cq::with_affinity(adapter, 8, affinity, handler).expect("a queue");
        let qp = Qp::new(pd, &cq, &cq, 0, &DEPTHS).expect("a queue pair");
        Self { completions, qp, seen }
    }

    /// Arms the queue and completes a receive.
    pub fn notify(&mut self) {
        let mut results = [NDK_RESULT_EX::zeroed(); 8];
        while self.completions.poll(&mut results).expect("completions") != 0 {}
        self.completions.arm().expect("arming");
        self.qp.receive(0, &[]).expect("a receive");
        self.qp.flush().expect("a flush");
    }

    pub fn seen(&self) -> Vec<u32> {
        self.seen.lock().unwrap().clone()
    }
}

pub fn run(options: Options, body: impl FnOnce(&Arc<Adapter<SimOs>>) + Send + 'static) {
    let Some(image) = image() else { return };
    let options = Options { processors: PROCESSORS, ..options };
    let mut bed = Testbed::new(&image, &options).expect("the image can be loaded");
    bed.start().expect("both drivers start");
    let [machine, _] = bed.machines();
    let done = machine.consumer("consumer", move |adapter| body(adapter)).join();
    assert!(bed.violations().is_empty(), "{}", bed.violations().join("\n"));
    done.expect("the consumer ends");
    bed.stop().expect("both drivers stop");
    assert!(bed.violations().is_empty(), "{}", bed.violations().join("\n"));
}

/// Affinities: two for each processor; sets; sets with inactive processors, and without any that is active.
fn affinities() -> Vec<(u16, usize)> {
    let single = (0..2 * PROCESSORS).map(|number| (0, 1 << (number % PROCESSORS)));
    let sets = [(0, 0b0110), (0, 0b1_0000_1001), (0, ALL), (0, usize::MAX), (0, 0), (0, 1 << 63), (1, 1)];
    single.chain(sets).collect()
}

/// Notifies each queue once per round and checks that each was notified once per round, on a processor of its affinity if
/// there is one, from whichever processor the event comes.
fn check_rounds(
    adapter: &Arc<Adapter<SimOs>>,
    affinities: Vec<(u16, usize)>,
    mut notify: impl FnMut(usize),
    seen: impl Fn(usize) -> Vec<u32>,
) {
    const ROUNDS: usize = 10;
    for round in 1..=ROUNDS {
        (0..affinities.len()).for_each(&mut notify);
        let deadline = adapter.os().now() + MOMENT;
        while (0..affinities.len()).any(|queue| seen(queue).len() < round) && adapter.os().now() < deadline {
            sleep(100_000);
        }
    }
    for (queue, (group, mask)) in affinities.into_iter().enumerate() {
        let seen = seen(queue);
        assert_eq!(seen.len(), ROUNDS, "group {group}, mask {mask:#b}");
        let honored = if group == 0 && mask & ALL != 0 { mask & ALL } else { ALL };
        assert!(seen.iter().all(|cpu| honored >> cpu & 1 != 0), "group {group}, mask {mask:#b}: {seen:?}");
    }
}

/// Every completion queue is notified once per round, on a processor of its affinity if there is one.
pub fn check_affinities(adapter: &Arc<Adapter<SimOs>>) {
    let pd = Pd::new(adapter).expect("a protection domain");
    let affinities = affinities();
    let queues: Vec<Mutex<Queue>> =
        affinities.iter().map(|&(group, mask)| Mutex::new(Queue::new(&pd, adapter, group, mask))).collect();
    let notify = |queue: usize| queues[queue].lock().unwrap().notify();
    check_rounds(adapter, affinities, notify, |queue| queues[queue].lock().unwrap().seen());
}

/// The same of shared receive queues. They hold no receive, so that a new threshold notifies.
pub fn check_affinities_of_shared_queues(adapter: &Arc<Adapter<SimOs>>) {
    let pd = Pd::new(adapter).expect("a protection domain");
    let affinities = affinities();
    let queues: Vec<_> = affinities
        .iter()
        .map(|&(group, mask)| {
            let seen = Arc::new(Mutex::new(Vec::new()));
            let record = Arc::clone(&seen);
            let handler = Box::new(move || record.lock().unwrap().push(current().cpu().0));
            let affinity = GROUP_AFFINITY { Mask: mask, Group: group, Reserved: [0; 3] };
            (Srq::with_affinity(&pd, 8, affinity, handler).expect("a queue"), seen)
        })
        .collect();
    let notify = |queue: usize| queues[queue].0.notify_below(1).expect("a threshold");
    check_rounds(adapter, affinities, notify, |queue| queues[queue].1.lock().unwrap().clone());
}
