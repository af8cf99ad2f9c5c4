// SPDX-License-Identifier: MIT OR Apache-2.0

//! The event loop of the engines of all hosts: frames, timers, and a clock that steps from one event to the next.

use std::time::Duration;

use roce::{Instant, Verdict};
use roce_wire::Packet;

use crate::link::{Link, Slots, Steering};
use crate::options::Options;
use crate::side::Side;

/// Maximum frame length: the largest path MTU and all headers.
const SLOT: usize = 4096 + 200;

/// Frames per call of [`Wire::transmit`].
const BUDGET: usize = 64;

/// The network and the hosts' timers.
pub(crate) struct Wire {
    pub(crate) link: Link,
    pub(crate) steering: Option<Steering>,
    /// Hosts that are stopped.
    dead: Vec<bool>,
    slot: Box<[u8]>,
}

impl Wire {
    pub(crate) fn new(hosts: usize, seed: u64) -> Self {
        Self {
            link: Link::new(hosts, seed),
            steering: None,
            dead: vec![false; hosts],
            slot: vec![0xEE; SLOT].into(),
        }
    }

    /// Stops a host without notice to its peers. Frames in flight still arrive.
    pub(crate) fn kill(&mut self, host: usize) {
        self.dead[host] = true;
    }

    pub(crate) fn is_dead(&self, host: usize) -> bool {
        self.dead[host]
    }

    /// Returns frames that a host's engine has to transmit, and whether there may be more.
    pub(crate) fn transmit(
        &mut self,
        host: usize,
        side: &Side,
        now: Instant,
        options: &Options,
    ) -> (Vec<Vec<u8>>, bool) {
        let free = self.link.free(host, now, options);
        let mut slots = Slots { slot: &mut self.slot, free, frames: Vec::new() };
        let mut more = false;
        for shard in side.engine.shards() {
            // As a driver does with each post.
            if shard.wants_transmit() {
                shard.handle_due(now);
            }
            more |= shard.poll_transmit(now, &mut slots, BUDGET) == BUDGET;
        }
        (slots.frames, more)
    }

    fn alive<'a>(&self, sides: &'a [Side]) -> impl Iterator<Item = (usize, &'a Side)> {
        sides.iter().enumerate().filter(|&(host, _)| !self.dead[host])
    }

    pub(crate) fn next_event(&self, sides: &[Side], options: &Options) -> Option<Instant> {
        let timers = self.alive(sides).filter_map(|(host, side)| expiry(host, side, options));
        let slots = self
            .alive(sides)
            .filter(|(_, side)| side.engine.shards().any(|shard| shard.wants_transmit()))
            .filter_map(|(host, _)| self.link.next_free(host, options));
        timers.chain(slots).chain(self.link.next_arrival()).min()
    }

    /// Advances time to the next event and processes it. Returns `false` if there is none.
    pub(crate) fn step(&mut self, sides: &[Side], now: &mut Instant, options: &Options) -> bool {
        let Some(next) = self.next_event(sides, options) else { return false };
        *now = next.max(*now);
        while let Some(frame) = self.link.arrived(*now, options) {
            if self.dead[frame.to] {
                continue;
            }
            let engine = &sides[frame.to].engine;
            let number = self.steering.as_mut().map_or(0, |steering| steering(frame.to, &frame.frame));
            let shard = engine.shard(number).expect("a shard of the engine");
            let verdict = shard.handle_frame(*now, &frame.frame);
            // As a driver does with each batch.
            shard.handle_due(*now);
            let foreign =
                || roce_wire::destination(&frame.frame).is_some_and(|ip| !engine.connections().is_local(ip));
            assert!(
                verdict != Verdict::NotOurs || self.link.has_corrupted || foreign(),
                "engine returned NotOurs for {:?}",
                Packet::parse(&frame.frame)
            );
        }
        for (host, side) in self.alive(sides) {
            if expiry(host, side, options).is_some_and(|at| at <= *now) {
                for shard in side.engine.shards() {
                    shard.handle_timeout(*now);
                }
            }
        }
        true
    }
}

/// Returns when the timer of a host expires.
fn expiry(host: usize, side: &Side, options: &Options) -> Option<Instant> {
    let due = side.engine.shards().filter_map(|shard| shard.poll_timeout()).min()?;
    Some(options.timer_tick.map_or(due, |tick| next_tick(due, tick, host, options.seed)))
}

/// Returns the first tick of a host's timer that is not before `due`.
fn next_tick(due: Instant, tick: Duration, host: usize, seed: u64) -> Instant {
    let tick = tick.as_nanos() as u64;
    let phase = (seed.wrapping_add(1 + host as u64)).wrapping_mul(0x9E37_79B9_7F4A_7C15) % tick;
    let after = due.as_nanos().saturating_sub(phase);
    Instant::from_nanos(after.div_ceil(tick) * tick + phase)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coarse_timers_expire_at_the_next_tick_and_hosts_have_other_ticks() {
        let tick = Duration::from_micros(500);
        let mut phases = Vec::new();
        for host in 0..4 {
            let first = next_tick(Instant::from_nanos(1), tick, host, 1);
            assert_eq!(next_tick(first, tick, host, 1), first);
            assert_eq!(next_tick(first + Duration::from_nanos(1), tick, host, 1), first + tick);
            phases.push(first);
        }
        phases.sort_unstable();
        phases.dedup();
        assert_eq!(phases.len(), 4);
    }
}
