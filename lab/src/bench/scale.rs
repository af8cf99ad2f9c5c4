// SPDX-License-Identifier: MIT OR Apache-2.0

//! What a packet costs while more and more queue pairs are connected, and what a queue pair costs that does nothing.

use std::time::Duration;

use anyhow::Result;
use roce_wire::PathMtu;
use roce_wire::icrc::Crc;

use super::{
    allocations, clock,
    pair::{Pair, Shape},
};

/// How many queue pairs are connected, one after the other.
pub const COUNTS: [usize; 5] = [1, 10, 100, 1_000, 10_000];
/// Requests and receives that each of them holds.
pub const DEPTH: u32 = 16;
/// Queue pairs that are busy in turn, when not all are.
pub const BUSY: usize = 16;

/// What was found with so many queue pairs connected.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    pub queue_pairs: usize,
    /// Nanoseconds per packet, both sides together, when few queue pairs are busy, wherever they lie.
    pub few: f64,
    /// The same when all are, one message at a time each: every packet finds a queue pair that was not touched
    /// since the last round.
    pub all: f64,
    /// Bytes of one side for each queue pair, connection and tables included.
    pub memory: f64,
}

/// Measures each point for so long, over 64-byte SENDs.
pub fn measure(time: Duration, mut progress: impl FnMut(usize)) -> Result<Vec<Point>> {
    let (crc, mtu, depth) = (Crc::detect(), PathMtu::Bytes4096, DEPTH);
    let queue_pairs = COUNTS[COUNTS.len() - 1];
    let mut pair = Pair::new(Shape { crc, mtu, buffer: 4096, queue_pairs, depth })?;
    let empty = allocations::held();
    let mut points = Vec::new();
    let mut connected = 0;
    for count in COUNTS {
        progress(count);
        while connected < count {
            pair.connect_one()?;
            connected += 1;
        }
        let memory = (allocations::held() - empty) as f64 / 2.0 / count as f64;
        let busy = BUSY.min(count);
        let spread: Vec<usize> = (0..busy).map(|at| at * count / busy).collect();
        let all: Vec<usize> = shuffled(count);
        let few = cost(&mut pair, &spread, time)?;
        let all = cost(&mut pair, &all, time)?;
        points.push(Point { queue_pairs: count, few, all, memory });
    }
    Ok(points)
}

/// Nanoseconds of processor time per packet: the lowest of several rounds, which the machine's other work disturbed
/// least.
fn cost(pair: &mut Pair, over: &[usize], time: Duration) -> Result<f64> {
    // Each queue pair is used at least once per round.
    let messages = 20_000.max(over.len() as u64);
    pair.send_over(over, super::figure::SMALL, messages)?;
    let mut best = f64::INFINITY;
    let begin = clock::now();
    while clock::since(begin) < time {
        let (frames, start) = (pair.frames(), clock::now());
        pair.send_over(over, super::figure::SMALL, messages)?;
        let spent = clock::since(start).as_nanos() as f64;
        best = best.min(spent / (pair.frames() - frames) as f64);
    }
    Ok(best)
}

/// The numbers below `count`, in an order that no prefetcher knows.
fn shuffled(count: usize) -> Vec<usize> {
    let mut numbers: Vec<usize> = (0..count).collect();
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    for at in (1..count).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        numbers.swap(at, (state >> 33) as usize % (at + 1));
    }
    numbers
}
