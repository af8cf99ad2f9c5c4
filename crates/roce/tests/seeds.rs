// SPDX-License-Identifier: MIT OR Apache-2.0

//! Two engines on a hostile network, over many seeds. Whatever it does: every request completes exactly once,
//! in the order of posting, with its data; and when all is over, nothing is left.
//!
//! `VIORDMA_SEEDS=100000` sets how many seeds each test tries, `VIORDMA_SEED=4711` tries that one alone.

use std::ops::Range;
use std::time::Duration;

use fallible::Arc;
use roce::{
    Access, Completion, CompletionStatus, PostError, Qp, ReadLimits, RecvRequest, SendData, SendFlags,
    SendOperation, SendRequest, Sge,
};
use roce_testkit::{Memory, Options, Pair, pattern};
use roce_wire::PathMtu;

type Queue = Arc<Qp<roce_testkit::Lock>>;

/// Seeds per test: optimized builds do thousands in seconds.
const SEEDS: u64 = if cfg!(debug_assertions) { 60 } else { 1500 };

/// Longest pause between resends: the agreed timeout.
const TIMEOUT: Duration = Duration::from_nanos(4096 << 16);

/// Longest until requests to a peer that has died have failed.
const NOTICED: Duration = Duration::from_secs(10);

/// Runs `test` for many seeds, or for the one that was asked for.
fn for_seeds(name: &str, test: impl Fn(u64)) {
    let number = |name| std::env::var(name).ok().map(|text| text.parse().unwrap());
    let seeds = match number("VIORDMA_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("VIORDMA_SEEDS").unwrap_or(SEEDS),
    };
    for seed in seeds {
        let again = Again(name, seed);
        test(seed);
        std::mem::forget(again);
    }
}

/// Says how to see a failure again.
struct Again<'a>(&'a str, u64);

impl Drop for Again<'_> {
    fn drop(&mut self) {
        let Self(name, seed) = self;
        eprintln!("seed {seed} fails: VIORDMA_SEED={seed} cargo test -p roce --test seeds {name}");
    }
}

/// Numbers that follow from a seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    /// True once in `times`.
    fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    fn micros(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_micros(from + self.below(to - from))
    }
}

/// What one side asked for on one queue pair, and what has to come of it.
#[derive(Default)]
struct Expected {
    /// Contexts of requests, in order, and whether success is silent.
    sends: Vec<(u64, bool)>,
    /// Contexts and lengths of receives, in order.
    receives: Vec<(u64, u32)>,
}

/// Two hosts with work to do.
struct World {
    pair: Pair,
    chance: Chance,
    /// Queue pairs, and of each what the first and the second side expect.
    qps: Vec<([Queue; 2], [Expected; 2])>,
    /// Of both sides.
    arenas: [Memory; 2],
    /// How much of the arenas is in use.
    used: usize,
    /// What is in the arenas to begin with, and when all is done.
    before: [Vec<u8>; 2],
    after: [Vec<u8>; 2],
    /// Places in each that belong to a receive, behind its message: nobody says what is there.
    spare: [Vec<Range<usize>>; 2],
    done: [Vec<Completion>; 2],
}

/// Bytes of each side's memory.
const ARENA: usize = 600_000;

impl World {
    fn new(seed: u64) -> Self {
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
            config: |config| config.timing.rnr_limit = Duration::from_secs(300),
            ..Options::default()
        };
        let mut pair = Pair::connected(options);
        let mut qps = vec![(pair.sides.each_ref().map(|side| side.qp.clone()), Default::default())];
        for number in 0..chance.below(4) {
            qps.push((pair.connect_another(number), Default::default()));
        }
        let arenas = pair.sides.each_ref().map(|side| side.memory(ARENA, Access::all()));
        let before = [vec![0; ARENA], vec![0; ARENA]];
        let (after, spare, done) = (before.clone(), Default::default(), Default::default());
        Self { pair, chance, qps, arenas, used: 0, before, after, spare, done }
    }

    /// Lets the network do its worst from now on.
    fn be_hostile(&mut self) {
        let chance = &mut self.chance;
        let options = &mut self.pair.options;
        options.loss = [0, 1, 10, 50, 150][chance.below(5) as usize];
        options.duplication = [0, 20, 200][chance.below(3) as usize];
        options.reordering = [0, 10, 100, 500][chance.below(4) as usize];
        options.corruption = [0, 0, 5, 20][chance.below(4) as usize];
        options.faults_to = [[true, true], [true, false], [false, true]][chance.below(3) as usize];
    }

    fn heal(&mut self) {
        let options = &mut self.pair.options;
        (options.loss, options.duplication, options.reordering, options.corruption) = (0, 0, 0, 0);
        self.pair.cut = [false; 2];
    }

    /// Plans some work, and puts its data in place.
    fn plan(&mut self) -> Vec<(usize, usize, Kind)> {
        let mut plan = Vec::new();
        let largest = [200, 5000, 40_000][self.chance.below(3) as usize];
        for _ in 0..8 + self.chance.below(40) {
            let qp = self.chance.below(self.qps.len() as u64) as usize;
            let from = self.chance.below(2) as usize;
            let size = if self.chance.once_in(8) { 0 } else { self.chance.below(largest) as usize };
            // What a receive has more than its message takes, as most do.
            let spare = if self.chance.once_in(2) { 0 } else { self.chance.below(largest) as usize };
            if self.used + size + spare + 1 > ARENA || self.qps[qp].1[from].sends.len() == 60 {
                break;
            }
            let at = self.used;
            // A byte between, which nobody may touch.
            self.used += size + spare + 1;
            let context = plan.len() as u64;
            let silent = self.chance.once_in(5);
            let kind = match self.chance.below(3) {
                0 if self.qps[qp].1[1 - from].receives.len() < 60 => Kind::Send { at, size, spare },
                1 => Kind::Write { at, size },
                _ => Kind::Read { at, size },
            };
            let data = pattern(size, context ^ self.pair.options.seed << 8);
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
            plan.push((qp, from, kind));
        }
        for (arena, bytes) in self.arenas.iter().zip(&self.before) {
            arena.write(bytes);
        }
        plan
    }

    /// Posts the requests of a plan whose contexts are given, bit by bit, some receives later than the messages for
    /// them. What is refused is not expected.
    fn post(&mut self, plan: &[(usize, usize, Kind)], contexts: Range<usize>) {
        let mut late: Vec<(usize, usize, u64, Sge)> = Vec::new();
        for (context, (qp, from, kind)) in contexts.clone().map(|number| (number as u64, &plan[number])) {
            let to = 1 - from;
            let (qps, expected) = &mut self.qps[*qp];
            if let Kind::Send { at, size, spare } = *kind {
                let sge = self.arenas[to].sge(at, size + spare);
                // Once one is late, those behind it are, too: receives are used in order.
                if late.iter().any(|&(other, side, ..)| (other, side) == (*qp, to)) || self.chance.once_in(8)
                {
                    late.push((*qp, to, context, sge));
                } else {
                    let request = RecvRequest { context, sges: &[sge] };
                    self.pair.sides[to].engine.post_recv(&qps[to], &request).unwrap();
                }
            }
            let (at, size) = kind.place();
            let (near, far) = (&self.arenas[*from], &self.arenas[to]);
            let operation = match kind {
                Kind::Send { .. } => SendOperation::Send,
                Kind::Write { .. } => SendOperation::Write { address: far.address(at), key: far.key() },
                Kind::Read { .. } => SendOperation::Read { address: far.address(at), key: far.key() },
            };
            let mut flags = SendFlags::empty();
            let silent = expected[*from].sends.iter().any(|&(number, silent)| number == context && silent);
            flags.set(SendFlags::SILENT, silent);
            flags.set(SendFlags::FENCE, self.chance.once_in(6));
            flags.set(SendFlags::SOLICITED, self.chance.once_in(6));
            let cut = if size > 0 { self.chance.below(size as u64) as usize } else { 0 };
            let sges = [near.sge(at, cut), near.sge(at + cut, size - cut)];
            let request = SendRequest { context, operation, flags, data: SendData::Sges(&sges) };
            let sends = &mut expected[*from].sends;
            match self.pair.sides[*from].engine.post_send(&qps[*from], &request) {
                Ok(()) => {}
                Err(PostError::NotConnected) => sends.retain(|(number, _)| *number != context),
                Err(error) => panic!("{error:?}"),
            }
            if self.chance.once_in(3) {
                let time = self.chance.micros(1, 800);
                self.pair.run_for(time);
            }
        }
        for (qp, to, context, sge) in late {
            let time = self.chance.micros(1, 3000);
            self.pair.run_for(time);
            let request = RecvRequest { context, sges: &[sge] };
            self.pair.sides[to].engine.post_recv(&self.qps[qp].0[to], &request).unwrap();
        }
    }

    /// Longest that it may take until all is done on a network that is well: a pause, and what the work itself
    /// takes when every request waits for the one before.
    fn patience(&self) -> Duration {
        let options = &self.pair.options;
        let requests: usize = self.qps.iter().flat_map(|(_, e)| e).map(|e| e.sends.len()).sum();
        let line = Duration::from_secs_f64(self.used as f64 * 8.0 / options.rate.unwrap_or(1 << 40) as f64);
        TIMEOUT + Duration::from_millis(50) + options.latency * 8 * requests as u32 + line * 4
    }

    /// Lets the engines work until the queues of these sides are empty.
    fn finish(&mut self, sides: &[usize], limit: Duration) {
        let start = self.pair.now;
        let qps: Vec<_> = self.qps.iter().flat_map(|(qps, _)| sides.iter().map(|&side| &qps[side])).collect();
        if !self.pair.run_within(limit, |_| qps.iter().all(|qp| qp.is_drained())) {
            let left: Vec<_> = qps.iter().map(|qp| (qp.is_drained(), qp.state())).collect();
            panic!("not done after {:?}: {left:?}", self.pair.now.duration_since(start));
        }
    }

    /// Writes nothing on each queue pair of a side: who asks for nothing learns nothing.
    fn ask_each(&mut self, side: usize) {
        const CONTEXT: u64 = 1_000_000;
        for (qps, expected) in &mut self.qps {
            let operation = SendOperation::Write { address: 0, key: 0 };
            let (flags, data) = (SendFlags::empty(), SendData::Sges(&[]));
            let request = SendRequest { context: CONTEXT, operation, flags, data };
            if self.pair.sides[side].engine.post_send(&qps[side], &request).is_ok() {
                expected[side].sends.push((CONTEXT, false));
            }
        }
    }

    fn collect(&mut self) {
        for (done, side) in self.done.iter_mut().zip(&self.pair.sides) {
            done.extend(side.completions());
        }
    }

    /// Completions of sends and of receives, of one side of one queue pair.
    fn completions(&self, side: usize, qp: usize) -> (Vec<Completion>, Vec<Completion>) {
        let context = if qp == 0 { 77 } else { qp as u64 - 1 };
        let of_qp = self.done[side].iter().filter(|done| done.qp_context == context).copied();
        of_qp.partition(|done| !done.kind.is_receive())
    }

    /// Everything has succeeded, once, in order, with its data.
    fn assert_all_done(&mut self) {
        self.collect();
        for (number, (_, expected)) in self.qps.iter().enumerate() {
            for (side, expected) in expected.iter().enumerate() {
                let (sends, receives) = self.completions(side, number);
                let told: Vec<_> = sends.iter().map(|done| (done.context, done.status)).collect();
                let due: Vec<_> = expected
                    .sends
                    .iter()
                    .filter(|(_, silent)| !silent)
                    .map(|&(context, _)| (context, CompletionStatus::Success))
                    .collect();
                assert_eq!(told, due, "side {side}, queue pair {number}");
                let told: Vec<_> =
                    receives.iter().map(|done| (done.context, done.bytes, done.status)).collect();
                let due: Vec<_> = expected
                    .receives
                    .iter()
                    .map(|&(c, bytes)| (c, bytes, CompletionStatus::Success))
                    .collect();
                assert_eq!(told, due, "side {side}, queue pair {number}");
            }
        }
        for ((arena, after), spare) in self.arenas.iter().zip(&self.after).zip(&self.spare) {
            let mut is = arena.read();
            for place in spare {
                is[place.clone()].copy_from_slice(&after[place.clone()]);
            }
            let wrong = is.iter().zip(after).position(|(is, due)| is != due);
            assert_eq!(wrong, None, "the first wrong byte");
        }
    }

    /// Each request of a side has ended once, in order: some well, one badly at most, the others flushed.
    fn assert_all_ended(&mut self, side: usize) {
        self.collect();
        for (number, (_, expected)) in self.qps.iter().enumerate() {
            let (sends, receives) = self.completions(side, number);
            let mut due = expected[side].sends.iter();
            let mut failed = false;
            for done in &sends {
                // A silent one that succeeded is passed over.
                let (_, silent) = due.find(|(context, _)| *context == done.context).unwrap();
                match done.status {
                    CompletionStatus::Success => assert!(!failed && !silent),
                    CompletionStatus::Flushed => failed = true,
                    CompletionStatus::RetryExceeded => assert!(!std::mem::replace(&mut failed, true)),
                    other => panic!("{other:?}"),
                }
            }
            let rest: Vec<_> = due.filter(|(_, silent)| !silent || failed).collect();
            assert!(rest.is_empty(), "never ended: {rest:?}");
            let told: Vec<_> = receives.iter().map(|done| done.context).collect();
            let due: Vec<_> = expected[side].receives.iter().map(|&(context, _)| context).collect();
            assert_eq!(told, due, "receives of side {side}, queue pair {number}");
        }
    }

    /// Takes everything down on these sides: what remains is two engines with nothing to do.
    fn assert_nothing_is_left(&mut self, sides: &[usize]) {
        for &side in sides {
            let host = &mut self.pair.sides[side];
            // More than once for some, which is harmless.
            for (id, ..) in std::mem::take(&mut host.conn_events) {
                host.engine.release(self.pair.now, id);
            }
            for (qps, _) in &self.qps {
                host.engine.destroy_qp(&qps[side]);
            }
            assert!(host.engine.deregister(&self.arenas[side].region));
            assert!(host.completions().is_empty(), "completed twice");
        }
        // Farewells are repeated, and numbers rest for a while.
        self.pair.run_for(Duration::from_secs(120));
        for &side in sides {
            let host = &self.pair.sides[side];
            assert!(!host.engine.wants_transmit(), "side {side} has something to send");
            assert_eq!(host.engine.poll_timeout(), None, "side {side} waits for something");
            assert!(host.completions().is_empty());
        }
    }
}

/// A request, and where in both arenas its data is.
#[derive(Clone, Copy)]
enum Kind {
    /// Into a receive that is so much longer.
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
fn what_the_network_does_to_frames_is_not_seen() {
    for_seeds("what_the_network_does", |seed| {
        let mut world = World::new(seed);
        let plan = world.plan();
        world.be_hostile();
        world.post(&plan, 0..plan.len());
        let time = world.chance.micros(1, 20_000);
        world.pair.run_for(time);
        world.heal();
        world.finish(&[0, 1], world.patience());
        world.assert_all_done();
        world.assert_nothing_is_left(&[0, 1]);
    });
}

//= rocev2 §7
#[test]
fn partitions_that_end_are_survived() {
    for_seeds("partitions", |seed| {
        let mut world = World::new(seed);
        let plan = world.plan();
        if world.chance.once_in(2) {
            world.be_hostile();
        }
        let half = plan.len() / 2;
        world.pair.cut = [[true, true], [true, false], [false, true]][world.chance.below(3) as usize];
        world.post(&plan, 0..half);
        // Well within the patience of eight timeouts.
        let time = world.chance.micros(1, 900_000);
        world.pair.run_for(time);
        world.heal();
        world.post(&plan, half..plan.len());
        world.finish(&[0, 1], world.patience());
        world.assert_all_done();
        world.assert_nothing_is_left(&[0, 1]);
    });
}

//= R-QP-90
//= rocev2 §7
#[test]
fn the_death_of_a_peer_is_noticed_and_ends_everything() {
    for_seeds("the_death", |seed| {
        let mut world = World::new(seed);
        let plan = world.plan();
        if world.chance.once_in(2) {
            world.be_hostile();
        }
        let survivor = world.chance.below(2) as usize;
        let before = world.chance.below(plan.len() as u64 + 1) as usize;
        world.post(&plan, 0..before);
        world.pair.kill(1 - survivor);
        world.post(&plan, before..plan.len());
        world.ask_each(survivor);
        world.finish(&[survivor], NOTICED);
        world.assert_all_ended(survivor);
        world.assert_nothing_is_left(&[survivor]);
    });
}
