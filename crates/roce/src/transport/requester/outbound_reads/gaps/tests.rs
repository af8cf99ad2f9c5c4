// SPDX-License-Identifier: MIT OR Apache-2.0

use super::*;
use crate::transport::out_of_order::tests::WORDS_COMPARED;
use std::collections::{HashMap, VecDeque};

const CHUNK: u64 = 64;
const CHUNKS: u64 = 16;

const fn at(number: u64) -> Sequence {
    Sequence::ZERO.add(number)
}

fn number(sequence: Sequence) -> u64 {
    sequence.since(Sequence::ZERO)
}

#[allow(clippy::unnecessary_wraps, reason = "as the requester's")]
fn chunk_end(sequence: Sequence) -> Option<Sequence> {
    Some(at((number(sequence) / CHUNK + 1) * CHUNK))
}

/// How a peer answers requests for parts of a READ.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Answers {
    /// With First or Only, whatever was requested before.
    AsItsOwn,
    /// With Middle and Last, and never what is before the last request for the same READ.
    AsTheRest,
}

/// A requester of [`CHUNKS`] chunks and its peer. Requests and responses arrive in order, if at all.
struct Run {
    gaps: ReadGaps,
    stored: OutOfOrder,
    una: Sequence,
    high: Sequence,
    answers: Answers,
    /// First packets of the last requests for a chunk.
    asked: HashMap<u64, Sequence>,
    responses: VecDeque<(Sequence, bool)>,
    /// Requests that may be outstanding besides one for each chunk.
    spare: u32,
    sent: u64,
    timeouts: u32,
    random: u64,
    /// In nanoseconds, as the round trip.
    now: u64,
    round_trip: u64,
}

impl Run {
    fn new(answers: Answers, seed: u64) -> Self {
        Self {
            gaps: ReadGaps::try_new(CHUNKS as u8).unwrap(),
            stored: OutOfOrder::try_new(2048).unwrap(),
            una: at(0),
            high: at(CHUNK * CHUNKS),
            answers,
            asked: HashMap::new(),
            responses: VecDeque::new(),
            spare: u32::MAX,
            sent: 0,
            timeouts: 0,
            random: seed,
            now: 0,
            round_trip: 0,
        }
    }

    fn progress(&self) -> Progress<'_> {
        Progress { una: self.una, high: self.high, stored: &self.stored }
    }

    /// Hands the next request that is wanted to `ask`, at a time in nanoseconds. Returns whether there was one.
    fn send_next(&mut self, nanos: u64, ask: impl FnOnce(&mut Self, Repeat)) -> bool {
        while self.gaps.is_wanted() {
            let next = self.gaps.next(self.progress(), self.spare);
            let repeat = match next {
                Next::Repeat(repeat) => Some(repeat),
                Next::Complete => None,
                Next::Waits => return false,
            };
            let progress = Progress { una: self.una, high: self.high, stored: &self.stored };
            self.gaps.sent(progress, repeat, Instant::from_nanos(nanos));
            if let Some(repeat) = repeat {
                ask(self, repeat);
                return true;
            }
        }
        false
    }

    fn is_lost(&mut self, per_mille: u64) -> bool {
        self.random = self.random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (self.random >> 40) % 1000 < per_mille
    }

    /// The peer gets a request for these responses.
    fn ask(&mut self, first: Sequence, end: Sequence) {
        assert!(first < end && Some(end) <= chunk_end(first), "{first:?} to {end:?}");
        let last = self.asked.insert(number(first) / CHUNK, first);
        let answered = self.answers == Answers::AsItsOwn || last.is_none_or(|last| last <= first);
        assert!(answered, "{first:?} is requested after {last:?}: this peer never answers it");
        let mut sequence = first;
        while sequence < end {
            let begins = self.answers == Answers::AsItsOwn
                && sequence == first
                && !number(first).is_multiple_of(CHUNK);
            self.responses.push_back((sequence, begins));
            self.sent += 1;
            sequence = sequence.next();
        }
    }

    fn receive(&mut self, sequence: Sequence, begins: bool) {
        if sequence < self.una || self.stored.contains(sequence) {
            return;
        }
        if sequence == self.una {
            self.una = sequence.next().add(u64::from(self.stored.take_contiguous(sequence)));
            if !self.gaps.is_active() {
                return;
            }
        } else {
            self.stored.record(sequence);
        }
        let progress = Progress { una: self.una, high: self.high, stored: &self.stored };
        let time = (Instant::from_nanos(self.now), self.round_trip);
        self.gaps.handle_response(progress, (sequence, begins), time, chunk_end);
    }

    /// Runs until everything has arrived.
    fn run(&mut self, responses_lost: u64, requests_lost: u64) {
        for chunk in 0..CHUNKS {
            self.ask(at(chunk * CHUNK), at((chunk + 1) * CHUNK));
        }
        self.asked.clear();
        while self.una < self.high {
            let ask = |run: &mut Self, Repeat { first, end, .. }| {
                if !run.is_lost(requests_lost) {
                    run.ask(first, end);
                }
            };
            while self.send_next(0, ask) {}
            if let Some((sequence, begins)) = self.responses.pop_front() {
                if !self.is_lost(responses_lost) {
                    self.receive(sequence, begins);
                }
            } else if self.una < self.high {
                self.timeouts += 1;
                self.gaps.probe(self.una, chunk_end(self.una).unwrap());
            }
        }
        assert!(self.stored.is_empty());
    }
}

/// Whatever is lost, everything arrives; a peer that never answers what is before its last answer is never asked for it.
#[test]
fn everything_arrives_from_peers_of_both_kinds() {
    for (answers, spare) in [
        (Answers::AsItsOwn, u32::MAX),
        (Answers::AsItsOwn, 2),
        (Answers::AsItsOwn, 0),
        (Answers::AsTheRest, u32::MAX),
    ] {
        for (responses_lost, requests_lost, most_sent) in
            [(0, 0, 1.0), (1, 0, 1.1), (10, 0, 1.15), (10, 10, 1.2), (50, 50, 2.0), (300, 300, 8.0)]
        {
            let (mut sent, mut timeouts) = (0, 0);
            for seed in 0..40 {
                let mut run = Run { spare, ..Run::new(answers, seed) };
                run.run(responses_lost, requests_lost);
                (sent, timeouts) = (sent + run.sent, timeouts + run.timeouts);
            }
            let share = sent as f64 / (40 * CHUNK * CHUNKS) as f64;
            assert!(share <= most_sent, "{answers:?}, {responses_lost}: sent {share:.2} times");
            assert!(
                responses_lost > 10 || timeouts < 40,
                "{answers:?}, {responses_lost}: {timeouts} timeouts"
            );
        }
    }
}

/// The gaps of a chunk are one request for a peer that was not seen to answer otherwise, and sixteen at most.
#[test]
fn requests_for_a_chunk_are_bounded() {
    for as_gaps in [false, true] {
        let mut run = Run::new(Answers::AsItsOwn, 0);
        run.gaps.as_gaps = as_gaps;
        for sequence in (1..70).filter(|sequence| sequence % 2 == 0) {
            run.receive(at(sequence), false);
        }
        let mut requests = Vec::new();
        while run.send_next(0, |_, again| requests.push((number(again.first), number(again.end)))) {}
        let expected = if as_gaps {
            let apart = (1..15).map(|gap| (2 * gap + 1, 2 * gap + 2));
            [(0, 2)].into_iter().chain(apart).chain([(31, 64)]).collect()
        } else {
            vec![(0, 64)]
        };
        assert_eq!(requests, expected);
    }
}

/// One request for gaps that are far apart would have everything between them sent again.
#[test]
fn gaps_that_are_far_apart_wait_for_answers_if_no_more_requests_may_be_outstanding() {
    let run = |spare, missing: &[u64]| {
        let mut run = Run { spare, ..Run::new(Answers::AsItsOwn, 0) };
        run.gaps.as_gaps = true;
        for sequence in (1..140).filter(|sequence| !missing.contains(sequence)) {
            run.receive(at(sequence), false);
        }
        run
    };
    let mut rest = run(2, &[20, 40, 60, 80, 100, 120]);
    assert_eq!(send_wanted(&mut rest, 0), [0, 20, 80], "40 and 60, 100 and 120 wait");
    rest.receive(at(0), true);
    assert_eq!(send_wanted(&mut rest, 0), []);
    rest.receive(at(20), true);
    assert_eq!(send_wanted(&mut rest, 0), [40, 60]);
    rest.receive(at(80), true);
    assert_eq!(send_wanted(&mut rest, 0), [100, 120]);
    let mut chunk = run(1, &[20, 80, 100, 120]);
    assert_eq!(send_wanted(&mut chunk, 0), [0, 20], "the second chunk waits");
    chunk.receive(at(0), true);
    assert_eq!(send_wanted(&mut chunk, 0), []);
    chunk.receive(at(20), true);
    assert_eq!(send_wanted(&mut chunk, 0), [80]);
    let mut close = run(1, &[20, 80, 85, 90]);
    assert_eq!(send_wanted(&mut close, 0), [0, 20, 80], "to 90");
}

/// A request for a part of what a chunk misses may be lost: a later one shows that.
#[test]
fn gaps_that_wait_for_an_answer_that_is_lost_are_requested_with_it() {
    let mut run = Run { spare: 1, ..Run::new(Answers::AsItsOwn, 0) };
    run.gaps.as_gaps = true;
    for sequence in (1..140).filter(|sequence| ![20, 40, 80].contains(sequence)) {
        run.receive(at(sequence), false);
    }
    assert_eq!(send_wanted(&mut run, 0), [0, 80]);
    run.receive(at(80), true);
    assert_eq!(send_wanted(&mut run, 0), [0]);
    run.receive(at(0), true);
    assert_eq!(send_wanted(&mut run, 0), [20, 40]);
}

/// Two responses behind a chunk may have overtaken what it misses; three show the loss, and so does the last one.
#[test]
fn fewer_than_three_responses_behind_a_chunk_show_no_loss() {
    for high in [66, 67, 128] {
        let mut run = Run::new(Answers::AsItsOwn, 0);
        run.high = at(high);
        for sequence in 1..high.min(67) {
            run.receive(at(sequence), false);
            let last = sequence + 1 == high;
            assert_eq!(run.gaps.is_wanted(), sequence >= 66 || last, "{sequence} of {high}");
        }
    }
}

/// Gives all wanted requests to the peer, which answers none, at a time in nanoseconds. Returns their first packets.
fn send_wanted(run: &mut Run, nanos: u64) -> Vec<u64> {
    let mut requests = Vec::new();
    while run.send_next(nanos, |_, again| requests.push(number(again.first))) {}
    requests
}

/// A response that was stored and is forgotten, because a copy of it has other content, is missing as if it had never arrived.
#[test]
fn a_forgotten_response_is_requested_again_without_a_timeout() {
    let mut run = Run::new(Answers::AsItsOwn, 0);
    for sequence in 1..200 {
        run.receive(at(sequence), false);
    }
    assert_eq!(send_wanted(&mut run, 0), [0]);
    run.stored.forget(at(70));
    run.gaps.forget(at(64));
    run.receive(at(0), false);
    assert_eq!(run.una, at(70));
    for sequence in 200..203 {
        run.receive(at(sequence), false);
    }
    assert_eq!(send_wanted(&mut run, 0), [70]);
}

/// An answer that overtakes others shows no loss, unless those others are late by a round trip.
#[test]
fn requests_whose_answers_are_overtaken_are_not_repeated_within_a_round_trip() {
    for (nanos, expected) in [(999, &[][..]), (1000, &[3])] {
        let mut run = Run::new(Answers::AsItsOwn, 0);
        run.round_trip = 1000;
        for sequence in (0..200).filter(|sequence| ![3, 4, 70].contains(sequence)) {
            run.receive(at(sequence), false);
        }
        assert_eq!(send_wanted(&mut run, 5000), [3, 70]);
        run.now = 5000 + nanos;
        run.receive(at(70), true);
        assert_eq!(send_wanted(&mut run, 5000 + nanos), expected, "after {nanos} ns");
    }
}

/// A peer chooses which responses it sends, and may send each any number of times.
#[test]
fn a_response_is_compared_with_few_others_whatever_is_missing() {
    let mut run = Run::new(Answers::AsItsOwn, 0);
    // The last response of every chunk is missing.
    for sequence in (0..CHUNK * (CHUNKS - 1)).filter(|sequence| sequence % CHUNK != CHUNK - 1) {
        run.receive(at(sequence), false);
    }
    assert_eq!(send_wanted(&mut run, 0).len() as u64, CHUNKS - 2, "the last one may be late");
    for sequence in CHUNK * (CHUNKS - 1)..CHUNK * CHUNKS - 1 {
        let before = WORDS_COMPARED.get();
        run.receive(at(sequence), false);
        let words = WORDS_COMPARED.get() - before;
        assert!(words <= 8, "{words} words");
    }
}

/// A peer that reports the loss of the request right behind the one that was sent again has dropped it and all others.
#[test]
fn requests_behind_a_lost_one_are_sent_again_if_the_peer_drops_them() {
    let mut run = Run::new(Answers::AsItsOwn, 0);
    let nak = |run: &mut Run, chunk: u64, nanos| {
        let progress = Progress { una: run.una, high: run.high, stored: &run.stored };
        let newest = at(CHUNK * (CHUNKS - 1));
        let time = (Instant::from_nanos(nanos), 1000);
        let found = run.gaps.handle_nak(progress, [at(chunk * CHUNK), newest], time, chunk_end);
        let requests: Vec<_> = send_wanted(run, nanos).iter().map(|first| first / CHUNK).collect();
        assert_eq!(found, !requests.is_empty());
        requests
    };
    assert_eq!(nak(&mut run, 3, 10_000), [3, 15], "the lost one, and the newest");
    assert_eq!(nak(&mut run, 3, 10_999), [], "the same report again");
    assert_eq!(nak(&mut run, 3, 11_000), [3, 15], "lost again");
    assert_eq!(nak(&mut run, 7, 20_000), [7, 15], "another one");
    assert_eq!(nak(&mut run, 8, 30_000), (8..16).collect::<Vec<_>>(), "the one behind it");
    run.stored.record(at(10 * CHUNK));
    assert_eq!(nak(&mut run, 10, 40_000), [], "it was answered");
    let mut run = Run::new(Answers::AsItsOwn, 0);
    assert_eq!(nak(&mut run, 0, 10_000), [0, 15], "the first request of a connection");
}

/// The answer to a request shows by its last response what of it was lost.
#[test]
fn what_is_missing_before_the_last_response_that_was_requested_is_lost_again() {
    let mut run = Run::new(Answers::AsItsOwn, 0);
    for sequence in (0..200).filter(|sequence| ![3, 6].contains(sequence)) {
        run.receive(at(sequence), false);
    }
    assert_eq!(send_wanted(&mut run, 0), [3]);
    run.receive(at(6), false);
    assert_eq!(send_wanted(&mut run, 0), [3]);
}

/// Only the answer to what was requested tells how the peer answers.
#[test]
fn a_response_that_was_not_requested_again_does_not_tell_how_the_peer_answers() {
    let mut run = Run::new(Answers::AsItsOwn, 0);
    for sequence in (0..200).filter(|sequence| *sequence != 3) {
        run.receive(at(sequence), false);
    }
    assert_eq!(send_wanted(&mut run, 0), [3]);
    run.stored.forget(at(4));
    run.receive(at(4), true);
    assert!(!run.gaps.as_gaps);
    run.receive(at(3), true);
    assert!(run.gaps.as_gaps);
}

/// An acknowledgement of a later request shows that all that is missing before it was lost, for the first time or again.
#[test]
fn an_acknowledgement_behind_reads_shows_what_is_missing() {
    let mut run = Run::new(Answers::AsItsOwn, 0);
    run.high = at(2 * CHUNK);
    for _ in 0..2 {
        let progress = Progress { una: run.una, high: run.high, stored: &run.stored };
        assert!(run.gaps.handle_ack(progress, at(2 * CHUNK + 1), |at| {
            Some(at).filter(|&at| at < run.high).and_then(chunk_end)
        }));
        assert_eq!(send_wanted(&mut run, 0), [0, CHUNK]);
    }
}

#[test]
fn nothing_is_known_of_gaps_after_everything_was_requested_again() {
    let mut run = Run::new(Answers::AsItsOwn, 0);
    for _ in 0..2 {
        for sequence in 1..70 {
            run.stored.forget(at(sequence));
            run.receive(at(sequence), false);
        }
        assert!(run.gaps.is_wanted() && run.gaps.is_active());
        run.gaps.clear();
        assert!(!run.gaps.is_wanted() && !run.gaps.is_active());
    }
}

/// Chunks that are complete are forgotten; of the others one makes room for the oldest.
#[test]
fn chunks_that_miss_nothing_are_forgotten() {
    let chunks = |run: &Run| run.gaps.active().map(|chunk| number(chunk.first) / CHUNK).collect::<Vec<_>>();
    let mut run = Run::new(Answers::AsItsOwn, 0);
    assert_eq!(run.progress().missing(at(0), at(0)), None);
    run.una = at(CHUNK);
    assert_eq!(run.progress().missing(at(0), at(CHUNK)), None);
    run.gaps.want(at(0), at(CHUNK), false);
    run.gaps.want(at(CHUNK), at(2 * CHUNK), false);
    run.receive(at(CHUNK + 5), false);
    assert_eq!(chunks(&run), [1]);

    let mut run = Run::new(Answers::AsItsOwn, 0);
    run.gaps.want(at(0), at(CHUNK), false);
    run.gaps.want(at(3 * CHUNK), at(4 * CHUNK), false);
    run.gaps.probe(at(CHUNK), at(2 * CHUNK));
    assert_eq!(chunks(&run), [3, 1]);
    for chunk in 4..18 {
        run.gaps.want(at(chunk * CHUNK), at((chunk + 1) * CHUNK), false);
    }
    run.gaps.probe(at(CHUNK), at(2 * CHUNK));
    assert_eq!(run.gaps.count, CHUNKS as usize);
    assert_eq!(chunks(&run).last(), Some(&17));
    run.gaps.probe(at(2 * CHUNK), at(3 * CHUNK));
    assert_eq!(chunks(&run).last(), Some(&2));
}
