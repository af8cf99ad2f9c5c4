// SPDX-License-Identifier: MIT OR Apache-2.0

//! Runs of a test over many seeds, and the random numbers of one.

use std::time::Duration;

/// Seeds per test: optimized builds do thousands in seconds.
const SEEDS: u64 = if cfg!(debug_assertions) { 60 } else { 1500 };

/// Runs `test` for many seeds, or for the one in `VIORDMA_SEED`.
pub fn for_seeds(name: &str, test: impl Fn(u64)) {
    let number = |name| std::env::var(name).ok().map(|text| text.parse().unwrap());
    let seeds = match number("VIORDMA_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("VIORDMA_SEEDS").unwrap_or(SEEDS),
    };
    for seed in seeds {
        let reproduction = Reproduction(name, seed);
        test(seed);
        std::mem::forget(reproduction);
    }
}

/// Prints how to reproduce a failure.
struct Reproduction<'a>(&'a str, u64);

impl Drop for Reproduction<'_> {
    fn drop(&mut self) {
        let Self(name, seed) = self;
        eprintln!("seed {seed} fails: VIORDMA_SEED={seed} cargo test -p roce --test simulation {name}");
    }
}

/// Random numbers from a seed.
pub struct Chance(pub u64);

impl Chance {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    /// Returns true with a probability of 1 / `times`.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub fn micros(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_micros(from + self.below(to - from))
    }
}
