// SPDX-License-Identifier: MIT OR Apache-2.0

//! Two engines on a faulty network, over many seeds. Every request completes exactly once, in posting order,
//! with its data, and no state is left after teardown.
//!
//! `VIORDMA_SEEDS=100000` sets how many seeds each test tries, `VIORDMA_SEED=4711` tries that one alone.

mod runs;

use std::collections::HashMap;
use std::ops::Range;
use std::time::Duration;

use fallible::Arc;
use roce::{
    Access, Binding, Completion, CompletionKind, CompletionStatus, CongestionMode, KeyState, MemoryWindow,
    PostError, Qp, ReadLimits, RecvRequest, Region, Registration, SendData, SendFlags, SendOperation,
    SendRequest, Sge, Srq, SrqSpec, WindowType,
};
use roce_testkit::{Bursts, Lock, Marking, Memory, Options, Switch, TwoHosts, pattern, with_srq};
use roce_wire::PathMtu;
use runs::{Chance, for_seeds};

type Queue = Arc<Qp<Lock>>;

/// Longest pause between retransmissions: the negotiated ACK timeout.
const TIMEOUT: Duration = Duration::from_nanos(4096 << 16);

/// Time limit for requests to a dead peer to fail.
const DEAD_PEER_LIMIT: Duration = Duration::from_secs(10);

/// Completions that one side expects on one queue pair.
#[derive(Default)]
struct Expected {
    /// Contexts of requests, in order, and whether success is silent.
    sends: Vec<(u64, bool)>,
    /// Contexts and lengths of receives, in order.
    receives: Vec<(u64, u32)>,
}

/// Two hosts, their requests and the expected results.
struct Scenario {
    hosts: TwoHosts,
    chance: Chance,
    /// Queue pairs, with the completions that each side expects.
    qps: Vec<([Queue; 2], [Expected; 2])>,
    /// Registered memory of both sides.
    arenas: [Memory; 2],
    /// Bytes of the arenas in use.
    used: usize,
    /// Initial and expected final content of the arenas.
    before: [Vec<u8>; 2],
    after: [Vec<u8>; 2],
    /// Ranges of each arena that belong to a receive behind its message: their content is unspecified.
    spare: [Vec<Range<usize>>; 2],
    done: [Vec<Completion>; 2],
    /// The side whose first queue pair takes its receives from this queue.
    srq: Option<(usize, Arc<Srq<Lock>>)>,
    /// Logical addresses of the arenas.
    logical: [u64; 2],
    /// Keys for one request each, by its context, with the side that set them.
    keys: HashMap<u64, (usize, Key)>,
}

/// A key that is set for one request of the peer.
enum Key {
    /// Fast-registered pages.
    Region(Arc<Region>),
    Window(MemoryWindow),
}

impl Key {
    fn value(&self) -> u32 {
        match self {
            Self::Region(region) => region.key(),
            Self::Window(window) => window.key(),
        }
    }

    fn state(&self) -> KeyState {
        match self {
            Self::Region(region) => region.state(),
            Self::Window(window) => window.state(),
        }
    }
}

/// Bytes of each side's memory.
const ARENA: usize = 600_000;

/// The first base address of fast-registered pages.
const BASE: u64 = 0x5000_0000_0000;

impl Scenario {
    /// With `may_share`, receives may come from a shared queue, which keeps them when its queue pair fails.
    fn new(seed: u64, may_share: bool) -> Self {
        let mut chance = Chance(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x5EED);
        let longest = if chance.once_in(4) { 2000 } else { 100 };
        let options = Options {
            seed,
            mtu: PathMtu::ALL[chance.below(5) as usize],
            latency: chance.micros(2, longest),
            rate: [None, Some(1_000_000_000), Some(10_000_000_000), Some(25_000_000_000)]
                [chance.below(4) as usize],
            slots: 8 + chance.below(256) as usize,
            reads: ReadLimits { inbound: 1 + chance.below(16) as u8, outbound: 1 + chance.below(16) as u8 },
            keeps_packets: [[true; 2], [true; 2], [true, false], [false, true], [false; 2]]
                [chance.below(5) as usize],
            timer_tick: [None, None, Some(500), Some(1000), Some(15_625)][chance.below(5) as usize]
                .map(Duration::from_micros),
            config: if chance.once_in(3) { reacting } else { ordinary },
            switch: chance.once_in(2).then_some(Switch {
                rate: 5_000_000_000,
                queue: 1 << 20,
                marking: Some(Marking { min: 4000, max: 100_000, most: 100 }),
            }),
            ..Options::default()
        };
        let mut hosts = TwoHosts::new(options);
        let srq = (may_share && chance.once_in(3)).then(|| {
            let side = chance.below(2) as usize;
            let spec = SrqSpec { depth: 64, sges: 4, threshold: 0, context: 900 };
            let srq = hosts.sides[side].engine.create_srq(&spec).unwrap();
            let unused = hosts.sides[side].qp.clone();
            hosts.sides[side].engine.destroy_qp(&unused);
            with_srq(&mut hosts, side, &srq);
            (side, srq)
        });
        hosts.establish();
        let mut qps = vec![(hosts.sides.each_ref().map(|side| side.qp.clone()), Default::default())];
        for number in 0..chance.below(4) {
            qps.push((hosts.connect_another(number), Default::default()));
        }
        let arenas = hosts.sides.each_ref().map(|side| side.memory(ARENA, Access::all()));
        let logical = [0, 1].map(|side| hosts.sides[side].map(&arenas[side]));
        let before = [vec![0; ARENA], vec![0; ARENA]];
        let (after, spare, done) = (before.clone(), Default::default(), Default::default());
        Self {
            hosts,
            chance,
            qps,
            arenas,
            used: 0,
            before,
            after,
            spare,
            done,
            srq,
            logical,
            keys: HashMap::new(),
        }
    }

    /// Enables random network faults.
    fn enable_faults(&mut self) {
        let chance = &mut self.chance;
        let options = &mut self.hosts.options;
        options.loss = [0, 1, 10, 50, 150][chance.below(5) as usize];
        options.duplication = [0, 20, 200][chance.below(3) as usize];
        options.reordering = [0, 10, 100, 500][chance.below(4) as usize];
        options.corruption = [0, 0, 5, 20][chance.below(4) as usize];
        options.bursts = [None, None, Some((3, 10)), Some((20, 50))][chance.below(4) as usize]
            .map(|(mean, loss)| Bursts::of_mean(mean, loss));
        options.faults_to = [[true, true], [true, false], [false, true]][chance.below(3) as usize];
    }

    /// Disables all network faults.
    fn disable_faults(&mut self) {
        let options = &mut self.hosts.options;
        (options.loss, options.duplication, options.reordering, options.corruption) = (0, 0, 0, 0);
        options.bursts = None;
        self.hosts.cut = [false; 2];
    }

    /// Plans random requests and initializes their memory.
    fn plan(&mut self) -> Vec<(usize, usize, Kind)> {
        let mut plan = Vec::new();
        let largest = [200, 5000, 40_000][self.chance.below(3) as usize];
        for _ in 0..8 + self.chance.below(40) {
            let qp = self.chance.below(self.qps.len() as u64) as usize;
            let from = self.chance.below(2) as usize;
            let size = if self.chance.once_in(8) { 0 } else { self.chance.below(largest) as usize };
            // Length by which the receive exceeds its message.
            let spare = if self.chance.once_in(2) { 0 } else { self.chance.below(largest) as usize };
            if self.used + size + spare + 1 > ARENA || self.qps[qp].1[from].sends.len() == 60 {
                break;
            }
            let at = self.used;
            // A guard byte between the ranges stays unchanged.
            self.used += size + spare + 1;
            let context = plan.len() as u64;
            let silent = self.chance.once_in(5);
            let kind = match self.chance.below(3) {
                0 if self.qps[qp].1[1 - from].receives.len() < 60 => Kind::Send { at, size, spare },
                1 => Kind::Write { at, size },
                _ => Kind::Read { at, size },
            };
            let data = pattern(size, context ^ self.hosts.options.seed << 8);
            let source = if let Kind::Read { .. } = kind { 1 - from } else { from };
            self.before[source][at..at + size].copy_from_slice(&data);
            self.after[source][at..at + size].copy_from_slice(&data);
            self.after[1 - source][at..at + size].copy_from_slice(&data);
            let expected = &mut self.qps[qp].1;
            expected[from].sends.push((context, silent));
            if let Kind::Send { .. } = kind {
                self.spare[1 - from].push(at + size..at + size + spare);
                expected[1 - from].receives.push((context, size as u32));
            }
            let to = 1 - from;
            // Some requests use a key of their own: a SEND invalidates it, the others access memory by it.
            if size > 0 && self.chance.once_in(3) {
                let key = self.set_key(qp, to, at, size, context);
                self.keys.insert(context, (to, key));
            }
            plan.push((qp, from, kind));
        }
        // The keys are set before their users are posted.
        self.hosts.run_for(Duration::from_millis(100));
        for side in &self.hosts.sides {
            for done in side.completions() {
                assert_eq!(done.status, CompletionStatus::Success, "{done:?}");
            }
        }
        for (arena, bytes) in self.arenas.iter().zip(&self.before) {
            arena.write(bytes);
        }
        plan
    }

    /// Posts a fast registration or the bind of a window for a range of a side's arena.
    fn set_key(&mut self, qp: usize, side: usize, at: usize, len: usize, context: u64) -> Key {
        const PAGE: usize = 4096;
        let host = &self.hosts.sides[side];
        let queue = &self.qps[qp].0[side];
        let post = |operation, data| {
            let request = SendRequest { context, operation, flags: SendFlags::empty(), data };
            host.engine.post_send(queue, &request).unwrap();
        };
        if self.chance.once_in(2) {
            let window = host.engine.memory().create_window(host.pd, WindowType::Type2).unwrap();
            let arena = &self.arenas[side];
            let access = Access::REMOTE_READ | Access::REMOTE_WRITE;
            let binding =
                Binding { region: arena.key(), address: arena.address(at), length: len as u64, access };
            post(SendOperation::Bind { key: window.key() }, SendData::Binding(&binding));
            return Key::Window(window);
        }
        let logical = self.logical[side];
        let pages: Vec<_> =
            (at / PAGE..=(at + len - 1) / PAGE).map(|page| logical + (page * PAGE) as u64).collect();
        let region = host.engine.memory().allocate_region(host.pd, pages.len() as u32, true).unwrap();
        let registration = Registration {
            base: BASE + at as u64,
            offset: (at % PAGE) as u32,
            length: len as u64,
            access: Access::all(),
            pages: &pages,
        };
        post(SendOperation::FastRegister { key: region.key() }, SendData::Registration(&registration));
        Key::Region(region)
    }

    /// Returns key and address for a request to a place of a side's arena.
    fn remote(&self, context: u64, side: usize, at: usize) -> (u32, u64) {
        let arena = &self.arenas[side];
        match self.keys.get(&context) {
            None => (arena.key(), arena.address(at)),
            Some((_, key @ Key::Region(_))) => (key.value(), BASE + at as u64),
            Some((_, key @ Key::Window(_))) => (key.value(), arena.address(at)),
        }
    }

    fn post_recv(&self, qp: usize, side: usize, request: &RecvRequest<'_>) {
        let engine = &self.hosts.sides[side].engine;
        match &self.srq {
            Some((owner, srq)) if (qp, side) == (0, *owner) => engine.post_srq(srq, request).unwrap(),
            _ => engine.post_recv(&self.qps[qp].0[side], request).unwrap(),
        }
    }

    /// Posts the requests of a plan with these contexts over time, some receives later than their messages.
    /// Requests that fail when posted are removed from the expected completions.
    fn post(&mut self, plan: &[(usize, usize, Kind)], contexts: Range<usize>) {
        let mut late: Vec<(usize, usize, u64, Sge)> = Vec::new();
        for (context, (qp, from, kind)) in contexts.clone().map(|number| (number as u64, &plan[number])) {
            let to = 1 - from;
            if let Kind::Send { at, size, spare } = *kind {
                let sge = self.arenas[to].sge(at, size + spare);
                // Receives behind a late one are late, too: receives are used in posting order.
                if late.iter().any(|&(other, side, ..)| (other, side) == (*qp, to)) || self.chance.once_in(8)
                {
                    late.push((*qp, to, context, sge));
                } else {
                    self.post_recv(*qp, to, &RecvRequest { context, sges: &[sge] });
                }
            }
            let (at, size) = kind.place();
            let near = &self.arenas[*from];
            let (key, address) = self.remote(context, to, at);
            let operation = match kind {
                Kind::Send { .. } if self.keys.contains_key(&context) => {
                    SendOperation::SendInvalidate { key }
                }
                Kind::Send { .. } => SendOperation::Send,
                Kind::Write { .. } => SendOperation::Write { address, key },
                Kind::Read { .. } => SendOperation::Read { address, key },
            };
            let (qps, expected) = &mut self.qps[*qp];
            let mut flags = SendFlags::empty();
            let silent = expected[*from].sends.iter().any(|&(number, silent)| number == context && silent);
            flags.set(SendFlags::SILENT, silent);
            flags.set(SendFlags::FENCE, self.chance.once_in(6));
            flags.set(SendFlags::SOLICITED, self.chance.once_in(6));
            let cut = if size > 0 { self.chance.below(size as u64) as usize } else { 0 };
            let sges = [near.sge(at, cut), near.sge(at + cut, size - cut)];
            let request = SendRequest { context, operation, flags, data: SendData::Sges(&sges) };
            let sends = &mut expected[*from].sends;
            match self.hosts.sides[*from].engine.post_send(&qps[*from], &request) {
                Ok(()) => {}
                Err(PostError::NotConnected) => sends.retain(|(number, _)| *number != context),
                Err(error) => panic!("{error:?}"),
            }
            if self.chance.once_in(3) {
                let time = self.chance.micros(1, 800);
                self.hosts.run_for(time);
            }
        }
        for (qp, to, context, sge) in late {
            let time = self.chance.micros(1, 3000);
            self.hosts.run_for(time);
            self.post_recv(qp, to, &RecvRequest { context, sges: &[sge] });
        }
    }

    /// Returns the time limit for all requests on a network without faults: one timeout, and the transfer
    /// time if the requests run one after the other.
    fn time_limit(&self) -> Duration {
        let options = &self.hosts.options;
        let requests: usize = self.qps.iter().flat_map(|(_, e)| e).map(|e| e.sends.len()).sum();
        let line = Duration::from_secs_f64(self.used as f64 * 8.0 / options.rate.unwrap_or(1 << 40) as f64);
        TIMEOUT + Duration::from_millis(50) + options.latency * 8 * requests as u32 + line * 4
    }

    /// Runs until the queue pairs of these sides are drained.
    fn finish(&mut self, sides: &[usize], limit: Duration) {
        let start = self.hosts.now;
        let qps: Vec<_> = self.qps.iter().flat_map(|(qps, _)| sides.iter().map(|&side| &qps[side])).collect();
        if !self.hosts.run_within(limit, |_| qps.iter().all(|qp| qp.is_drained())) {
            let left: Vec<_> = qps.iter().map(|qp| (qp.is_drained(), qp.state())).collect();
            panic!("not done after {:?}: {left:?}", self.hosts.now.duration_since(start));
        }
    }

    /// Posts a zero-length WRITE on each queue pair of a side: an idle side does not detect a dead peer.
    fn probe_peer(&mut self, side: usize) {
        const CONTEXT: u64 = 1_000_000;
        for (qps, expected) in &mut self.qps {
            let operation = SendOperation::Write { address: 0, key: 0 };
            let (flags, data) = (SendFlags::empty(), SendData::Sges(&[]));
            let request = SendRequest { context: CONTEXT, operation, flags, data };
            if self.hosts.sides[side].engine.post_send(&qps[side], &request).is_ok() {
                expected[side].sends.push((CONTEXT, false));
            }
        }
    }

    fn collect(&mut self) {
        for (done, side) in self.done.iter_mut().zip(&self.hosts.sides) {
            done.extend(side.completions());
        }
    }

    /// Returns the requester and the receive completions of one side of a queue pair.
    fn completions(&self, side: usize, qp: usize) -> (Vec<Completion>, Vec<Completion>) {
        let context = if qp == 0 { 77 } else { qp as u64 - 1 };
        let of_qp = self.done[side].iter().filter(|done| done.qp_context == context).copied();
        of_qp.partition(|done| !done.kind.is_receive())
    }

    /// Asserts that every request succeeded once, in order, with its data.
    fn assert_all_done(&mut self) {
        self.collect();
        for (number, (_, expected)) in self.qps.iter().enumerate() {
            for (side, expected) in expected.iter().enumerate() {
                let (sends, receives) = self.completions(side, number);
                let actual: Vec<_> = sends.iter().map(|done| (done.context, done.status)).collect();
                let due: Vec<_> = expected
                    .sends
                    .iter()
                    .filter(|(_, silent)| !silent)
                    .map(|&(context, _)| (context, CompletionStatus::Success))
                    .collect();
                assert_eq!(actual, due, "side {side}, queue pair {number}");
                let actual: Vec<_> =
                    receives.iter().map(|done| (done.context, done.bytes, done.status)).collect();
                let due: Vec<_> = expected
                    .receives
                    .iter()
                    .map(|&(c, bytes)| (c, bytes, CompletionStatus::Success))
                    .collect();
                assert_eq!(actual, due, "side {side}, queue pair {number}");
                for done in receives {
                    let expected = match self.keys.get(&done.context) {
                        Some((_, key)) => {
                            assert_eq!(key.state(), KeyState::Free, "invalidated");
                            CompletionKind::ReceiveInvalidate { key: key.value() }
                        }
                        None => CompletionKind::Receive,
                    };
                    assert_eq!(done.kind, expected, "side {side}, queue pair {number}");
                }
            }
        }
        for ((arena, after), spare) in self.arenas.iter().zip(&self.after).zip(&self.spare) {
            let mut is = arena.read();
            for place in spare {
                is[place.clone()].copy_from_slice(&after[place.clone()]);
            }
            let wrong = is.iter().zip(after).position(|(is, due)| is != due);
            assert_eq!(wrong, None, "index of the first wrong byte");
        }
    }

    /// Asserts that each request of a side ended once, in order: at most one failed and those behind it were
    /// flushed.
    fn assert_all_ended(&mut self, side: usize) {
        self.collect();
        for (number, (_, expected)) in self.qps.iter().enumerate() {
            let (sends, receives) = self.completions(side, number);
            let mut due = expected[side].sends.iter();
            let mut failed = false;
            for done in &sends {
                // Successful silent requests have no completion.
                let (_, silent) = due.find(|(context, _)| *context == done.context).unwrap();
                match done.status {
                    CompletionStatus::Success => assert!(!failed && !silent),
                    CompletionStatus::Flushed => failed = true,
                    CompletionStatus::RetryExceeded => assert!(!std::mem::replace(&mut failed, true)),
                    other => panic!("{other:?}"),
                }
            }
            let rest: Vec<_> = due.filter(|(_, silent)| !silent || failed).collect();
            assert!(rest.is_empty(), "requests without completion: {rest:?}");
            let actual: Vec<_> = receives.iter().map(|done| done.context).collect();
            let due: Vec<_> = expected[side].receives.iter().map(|&(context, _)| context).collect();
            assert_eq!(actual, due, "receives of side {side}, queue pair {number}");
        }
    }

    /// Destroys keys and memory of these sides. The keys go first: windows refer to the memory.
    fn release_keys(&mut self, sides: &[usize]) {
        for (_, (side, key)) in self.keys.drain() {
            let engine = &self.hosts.sides[side].engine;
            if sides.contains(&side) {
                match key {
                    Key::Region(region) => assert!(engine.memory().deregister(&region)),
                    Key::Window(window) => assert!(engine.memory().destroy_window(&window)),
                }
            }
        }
        for &side in sides {
            assert!(self.hosts.sides[side].engine.memory().deregister(&self.arenas[side].region));
        }
    }

    /// Destroys all objects on these sides and asserts that the engines are idle.
    fn assert_nothing_is_left(&mut self, sides: &[usize]) {
        for &side in sides {
            let host = &mut self.hosts.sides[side];
            // Some connections are released more than once, which has no effect.
            for (id, ..) in std::mem::take(&mut host.conn_events) {
                host.engine.connections().release(self.hosts.now, id);
            }
            for (qps, _) in &self.qps {
                host.engine.destroy_qp(&qps[side]);
            }
            if let Some((owner, srq)) = &self.srq
                && *owner == side
            {
                host.engine.destroy_srq(srq);
            }
            assert!(host.completions().is_empty(), "completed twice");
        }
        self.release_keys(sides);
        // DREQs are repeated, and TIME_WAIT lasts a while.
        self.hosts.run_for(Duration::from_secs(120));
        for &side in sides {
            let host = &self.hosts.sides[side];
            assert!(!host.engine.first_shard().wants_transmit(), "side {side} has something to send");
            assert_eq!(host.engine.first_shard().poll_timeout(), None, "side {side} waits for something");
            assert!(host.completions().is_empty());
        }
    }
}

fn ordinary(config: &mut roce::Config) {
    config.timing.rnr_limit = Duration::from_secs(300);
}

/// Configures an engine as [`ordinary`] does, with DCQCN.
fn reacting(config: &mut roce::Config) {
    ordinary(config);
    config.congestion.mode = CongestionMode::React;
    config.congestion.reaction.line_rate = 10_000_000_000;
    config.congestion.reaction.min_rate = 100_000_000;
}

/// A request, and the place of its data in both arenas.
#[derive(Clone, Copy)]
enum Kind {
    /// The receive is `spare` bytes longer than the message.
    Send {
        at: usize,
        size: usize,
        spare: usize,
    },
    Write {
        at: usize,
        size: usize,
    },
    Read {
        at: usize,
        size: usize,
    },
}

impl Kind {
    fn place(self) -> (usize, usize) {
        let (Self::Send { at, size, .. } | Self::Write { at, size } | Self::Read { at, size }) = self;
        (at, size)
    }
}

//= R-QP-2
//= rocev2 §6
//= rocev2 §7
#[test]
fn network_faults_are_invisible_to_consumers() {
    for_seeds("network_faults", |seed| {
        let mut scenario = Scenario::new(seed, true);
        let plan = scenario.plan();
        scenario.enable_faults();
        scenario.post(&plan, 0..plan.len());
        let time = scenario.chance.micros(1, 20_000);
        scenario.hosts.run_for(time);
        scenario.disable_faults();
        scenario.finish(&[0, 1], scenario.time_limit());
        scenario.assert_all_done();
        scenario.assert_nothing_is_left(&[0, 1]);
    });
}

//= rocev2 §7
#[test]
fn connections_survive_temporary_partitions() {
    for_seeds("partitions", |seed| {
        let mut scenario = Scenario::new(seed, true);
        let plan = scenario.plan();
        if scenario.chance.once_in(2) {
            scenario.enable_faults();
        }
        let half = plan.len() / 2;
        scenario.hosts.cut = [[true, true], [true, false], [false, true]][scenario.chance.below(3) as usize];
        scenario.post(&plan, 0..half);
        // Well below eight timeouts.
        let time = scenario.chance.micros(1, 900_000);
        scenario.hosts.run_for(time);
        scenario.disable_faults();
        scenario.post(&plan, half..plan.len());
        scenario.finish(&[0, 1], scenario.time_limit());
        scenario.assert_all_done();
        scenario.assert_nothing_is_left(&[0, 1]);
    });
}

//= R-QP-90
//= rocev2 §7
#[test]
fn a_dead_peer_is_detected_and_all_requests_end() {
    for_seeds("a_dead_peer", |seed| {
        let mut scenario = Scenario::new(seed, false);
        let plan = scenario.plan();
        if scenario.chance.once_in(2) {
            scenario.enable_faults();
        }
        let survivor = scenario.chance.below(2) as usize;
        let before = scenario.chance.below(plan.len() as u64 + 1) as usize;
        scenario.post(&plan, 0..before);
        scenario.hosts.kill(1 - survivor);
        scenario.post(&plan, before..plan.len());
        scenario.probe_peer(survivor);
        scenario.finish(&[survivor], DEAD_PEER_LIMIT);
        scenario.assert_all_ended(survivor);
        scenario.assert_nothing_is_left(&[survivor]);
    });
}
