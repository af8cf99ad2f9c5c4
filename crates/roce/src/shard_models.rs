// SPDX-License-Identifier: MIT OR Apache-2.0

//! Models: every schedule of a few threads over the ready lists and timer wheels of two shards, by loom.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use core::time::Duration;

use lock_api::Mutex;
use loom::sync::Arc as Shared;
use loom::thread;
use models::ModelLock;

use crate::cq::Cq;
use crate::qp::Qp;
use crate::qp_attributes::QpAttributes;
use crate::region::access_rights::Pd;
use crate::shard::{ShardState, Shards};
use crate::time::Instant;
use crate::transport::rc_transport::RcTransport;
use fallible::Arc;
use roce_wire::Qpn;

const DEADLINE: Instant = Instant::from_nanos(1_000_000);

/// A queue pair in shard 0 of two.
struct Machine {
    shards: Shards<ModelLock>,
    qp: Arc<Qp<ModelLock>>,
    /// Frames that the queue pair has to transmit; changes under its lock.
    frames: AtomicUsize,
    /// It waits for its timer; changes under its lock.
    waits: AtomicBool,
}

impl Machine {
    fn new() -> Shared<Self> {
        let shards = Shards::try_new(2).unwrap();
        shards.reserve_for(0).unwrap();
        let cq = Cq::try_new(1, 0, 0, None).unwrap();
        let attributes = QpAttributes {
            qpn: Qpn::new(2),
            index: 0,
            pd: Pd(1),
            context: 0,
            send_sges: 0,
            send_cq: cq.clone(),
            recv_cq: cq,
            srq: None,
            relax: core::hint::spin_loop,
        };
        let qp = Arc::try_new_with(|| Qp {
            attributes,
            ready: AtomicBool::new(false),
            shard: AtomicU32::new(0),
            transport: Mutex::new(RcTransport::RESET),
        });
        let (frames, waits) = (AtomicUsize::new(0), AtomicBool::new(false));
        Shared::new(Self { shards, qp: qp.unwrap(), frames, waits })
    }

    fn shard(&self, number: u32) -> &ShardState<ModelLock> {
        self.shards.get(number).unwrap()
    }

    fn make_ready(&self, shard: &ShardState<ModelLock>) {
        if self.frames.load(Ordering::Relaxed) > 0 {
            shard.make_ready(&self.qp, || self.qp.clone());
        }
    }

    /// Posts a request, see [`crate::Engine::post_send`].
    fn post(&self) {
        let _transport = self.qp.transport.lock();
        self.frames.fetch_add(1, Ordering::Relaxed);
        self.make_ready(self.shards.of(&self.qp));
    }

    /// As the arrival of a packet by a shard. The queue pair waits for an answer from then on.
    fn receive(&self, number: u32) {
        let shard = self.shard(number);
        let mut transport = self.qp.transport.lock();
        if !shard.has(&self.qp) {
            self.shards.move_to(shard, &mut transport, &self.qp);
            self.waits.store(false, Ordering::Relaxed);
        }
        if !self.waits.swap(true, Ordering::Relaxed) {
            shard.schedule(0, DEADLINE);
        }
        self.make_ready(shard);
    }

    /// Transmits for one turn, see [`crate::Shard::poll_transmit`].
    fn transmit(&self, number: u32) {
        let shard = self.shard(number);
        let Some(qp) = shard.pop_ready() else { return };
        let _transport = qp.transport.lock();
        if shard.has(&qp) && self.frames.load(Ordering::Relaxed) > 0 {
            self.frames.fetch_sub(1, Ordering::Relaxed);
            self.make_ready(shard);
        }
    }

    /// Handles the deadline once it has passed, see [`crate::Shard::handle_timeout`].
    fn expire(&self, number: u32) {
        let shard = self.shard(number);
        let Some(index) = shard.expire(DEADLINE + Duration::from_millis(1)) else { return };
        let _transport = self.qp.transport.lock();
        if shard.has(&self.qp) {
            assert_eq!(index, 0);
            self.waits.store(false, Ordering::Relaxed);
        }
    }

    /// Checks that frames to transmit are in the list of the shard that has the queue pair, the timer in its wheel, and the other
    /// one has neither.
    fn check(&self) {
        let own = self.qp.shard();
        let [list, other_list] = [own, 1 - own].map(|number| self.shard(number).has_ready());
        let [timer, other_timer] = [own, 1 - own].map(|number| self.shard(number).deadline().is_some());
        assert!(list || self.frames.load(Ordering::Relaxed) == 0, "a frame waits in no list");
        assert_eq!(timer, self.waits.load(Ordering::Relaxed), "a timer is lost, or left");
        assert!(!other_list && !other_timer, "an entry is left in another shard");
    }
}

fn run(threads: [fn(&Machine); 2], here: fn(&Machine)) {
    loom::model(move || {
        let machine = Machine::new();
        let spawned = threads.map(|run| {
            let machine = machine.clone();
            thread::spawn(move || run(&machine))
        });
        here(&machine);
        for thread in spawned {
            thread.join().unwrap();
        }
        machine.check();
    });
}

/// A post while the queue pair moves, and while the shard that it leaves transmits: the frame is in the list of its shard.
#[test]
fn model_post_against_a_move() {
    run([Machine::post, |machine| machine.receive(1)], |machine| machine.transmit(0));
}

/// A frame is transmitted, or stays in the list, while another is posted and both shards transmit.
#[test]
fn model_two_shards_transmit_a_moving_queue_pair() {
    run([|machine| machine.transmit(0), |machine| machine.transmit(1)], |machine| {
        machine.post();
        machine.receive(1);
    });
}

/// Packets that arrive by both shards at the same time leave one timer, which may expire meanwhile.
#[test]
fn model_expiry_against_moves() {
    run([|machine| machine.receive(1), |machine| machine.expire(0)], |machine| {
        machine.receive(0);
        machine.expire(1);
    });
}
