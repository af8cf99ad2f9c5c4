// SPDX-License-Identifier: MIT OR Apache-2.0

//! The processor on which the notification callbacks of a completion queue run.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lab::{
    image,
    os::SimOs,
    testbed::{Options, Testbed},
};
use ndk_abi::ndk::NDK_RESULT_EX;
use ndk_abi::nt::GROUP_AFFINITY;
use ndk_consumer::{Adapter, Completions, Cq, Os as _, Pd, Qp, QpDepths};
use nt_sim::{current, nt::time::sleep};

pub const PROCESSORS: u32 = 4;
pub const DEPTHS: QpDepths =
    QpDepths { receives: 8, requests: 1, receive_sges: 1, request_sges: 1, inline: 0 };
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

/// Every queue is notified once per round, on a processor of its affinity if there is one, from whichever processor the
/// completion comes.
pub fn check_affinities(adapter: &Arc<Adapter<SimOs>>) {
    const ROUNDS: usize = 10;
    let pd = Pd::new(adapter).expect("a protection domain");
    let all = (1 << PROCESSORS) - 1;
    // Two queues for each processor; sets; sets with inactive processors, and without any that is active.
    let single = (0..2 * PROCESSORS).map(|number| (0, 1 << (number % PROCESSORS)));
    let sets = [(0, 0b0110), (0, 0b1_0000_1001), (0, all), (0, usize::MAX), (0, 0), (0, 1 << 63), (1, 1)];
    let affinities: Vec<(u16, usize)> = single.chain(sets).collect();
    let mut queues: Vec<Queue> =
        affinities.iter().map(|&(group, mask)| Queue::new(&pd, adapter, group, mask)).collect();
    for round in 1..=ROUNDS {
        for queue in &mut queues {
            queue.notify();
        }
        let deadline = adapter.os().now() + MOMENT;
        while queues.iter().any(|queue| queue.seen().len() < round) && adapter.os().now() < deadline {
            sleep(100_000);
        }
    }
    for (queue, (group, mask)) in queues.iter().zip(affinities) {
        let seen = queue.seen();
        assert_eq!(seen.len(), ROUNDS, "group {group}, mask {mask:#b}");
        let honored = if group == 0 && mask & all != 0 { mask & all } else { all };
        assert!(seen.iter().all(|cpu| honored >> cpu & 1 != 0), "group {group}, mask {mask:#b}: {seen:?}");
    }
}
