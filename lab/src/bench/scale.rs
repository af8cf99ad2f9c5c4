// SPDX-License-Identifier: MIT OR Apache-2.0

//! Cost of a packet by number of connected queue pairs, and memory of an idle queue pair.

use std::time::Duration;

use anyhow::Result;
use roce_wire::PathMtu;
use roce_wire::icrc::Crc;

use super::{
    allocations, callgrind,
    two_hosts::{Shape, TwoHosts},
};
use crate::cpu_time;

/// Numbers of connected queue pairs, in the order of measuring.
pub const COUNTS: [usize; 5] = [1, 10, 100, 1_000, 10_000];
/// Depth of each send queue and receive queue.
pub const DEPTH: u32 = 16;
/// Number of busy queue pairs, when not all are.
pub const BUSY: usize = 16;

/// The results for one number of queue pairs.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    pub queue_pairs: usize,
    /// Nanoseconds per packet, the sum of both sides, when up to [`BUSY`] queue pairs are busy.
    pub few: f64,
    /// The same when all queue pairs send one message each in turn: each packet belongs to a queue pair that was not
    /// used since the last round.
    pub all: f64,
    /// Bytes per queue pair on one side, including connection and tables.
    pub memory: f64,
}

/// Measures each point for `time`, with 64-byte SENDs.
pub fn measure(time: Duration, mut progress: impl FnMut(usize)) -> Result<Vec<Point>> {
    let (crc, mtu, depth) = (Crc::detect(), PathMtu::Bytes4096, DEPTH);
    let queue_pairs = COUNTS[COUNTS.len() - 1];
    let mut hosts = TwoHosts::new(Shape { crc, mtu, buffer: 4096, queue_pairs, depth })?;
    let empty = allocations::held();
    let mut points = Vec::new();
    let mut connected = 0;
    for count in COUNTS {
        progress(count);
        while connected < count {
            hosts.connect_one()?;
            connected += 1;
        }
        let memory = (allocations::held() - empty) as f64 / 2.0 / count as f64;
        let busy = BUSY.min(count);
        let spread: Vec<usize> = (0..busy).map(|at| at * count / busy).collect();
        let all: Vec<usize> = shuffled(count);
        let few = cost(&mut hosts, &spread, time)?;
        let all = cost(&mut hosts, &all, time)?;
        points.push(Point { queue_pairs: count, few, all, memory });
    }
    Ok(points)
}

/// Returns nanoseconds of CPU time per packet: the lowest of several rounds, which other load affected least.
fn cost(hosts: &mut TwoHosts, over: &[usize], time: Duration) -> Result<f64> {
    // Each queue pair is used at least once per round.
    let messages = 20_000.max(over.len() as u64);
    hosts.send_over(over, super::figure::SMALL, messages)?;
    let mut best = f64::INFINITY;
    let begin = cpu_time::now();
    while cpu_time::since(begin) < time {
        let (frames, start) = (hosts.frames(), cpu_time::now());
        hosts.send_over(over, super::figure::SMALL, messages)?;
        let elapsed = cpu_time::since(start).as_nanos() as f64;
        best = best.min(elapsed / (hosts.frames() - frames) as f64);
    }
    Ok(best)
}

/// Name of the workload that this program runs under callgrind.
pub const WORK: &str = "queue-pairs";

/// Messages that are counted: some of each queue pair.
const COUNTED: u64 = 20_000;

/// Sends messages over the largest number of queue pairs, all of them in turn.
pub fn work() -> Result<()> {
    let (crc, mtu, depth) = (Crc::detect(), PathMtu::Bytes4096, DEPTH);
    let queue_pairs = COUNTS[COUNTS.len() - 1];
    let mut hosts = TwoHosts::new(Shape { crc, mtu, buffer: 4096, queue_pairs, depth })?;
    for _ in 0..queue_pairs {
        hosts.connect_one()?;
    }
    let all = shuffled(queue_pairs);
    hosts.send_over(&all, super::figure::SMALL, queue_pairs as u64)?;
    counted_messages(&mut hosts, &all)
}

#[inline(never)]
fn counted_messages(hosts: &mut TwoHosts, over: &[usize]) -> Result<()> {
    hosts.send_over(over, super::figure::SMALL, COUNTED)
}

/// Counts the cache lines that both sides load for a message while all queue pairs send in turn: those that a cache of 1 MiB does
/// not have.
pub fn cache_lines() -> Result<f64> {
    let toggle = "--toggle-collect=*::bench::scale::counted_messages*";
    let options: Vec<&str> = callgrind::CACHES.into_iter().chain([toggle]).collect();
    let loaded = callgrind::run(&options, WORK)?.sum_of(&["DLmr", "DLmw"])?;
    Ok(loaded as f64 / COUNTED as f64)
}

/// Returns the numbers below `count` in pseudorandom order, which defeats prefetching.
fn shuffled(count: usize) -> Vec<usize> {
    let mut numbers: Vec<usize> = (0..count).collect();
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    for at in (1..count).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        numbers.swap(at, (state >> 33) as usize % (at + 1));
    }
    numbers
}
