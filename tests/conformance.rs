// SPDX-License-Identifier: MIT OR Apache-2.0

//! Whole scenarios of consumers on the image, over many seeds in virtual time: open, create, connect, transfer, disconnect,
//! close. Each seed has its own order of events, and one allocation of the driver that fails; the seeds go through all of
//! them, on both hosts.
//!
//! `VIORDMA_SEEDS=1000` runs as many seeds; the default is the short form. `VIORDMA_SEED` runs one.

#![cfg(target_os = "linux")]

use std::sync::Arc;

use lab::{
    copy::{self, End, Outcome, Plan},
    image,
};
use ndis_sim::Keyword;

/// Seeds of the short form.
const SEEDS: u64 = 24;

/// The settings that a consumer may meet: inline, pended, pended with callbacks that are held back, mistakes reported.
const SETTINGS: [&[(&str, u32)]; 4] = [
    &[],
    &[("NdkCreateCompletion", 2)],
    &[("NdkCreateCompletion", 2), ("NdkStrictDelay", 300), ("NdkStrictDelayRandom", 1)],
    &[("NdkStrictReport", 1)],
];

fn run(seed: u64, fail_allocation: Option<(usize, u64)>) -> Option<Outcome> {
    let settings = SETTINGS[seed as usize % SETTINGS.len()];
    let keywords = settings.iter().map(|&(name, value)| (name, Keyword::Text(value.to_string()))).collect();
    let progress: Arc<dyn Fn(copy::Progress) + Send + Sync> = Arc::new(|_| {});
    let plan = Plan { seed, keywords, fail_allocation, ..Plan::of(20_000) };
    let outcome = copy::run(&image()?, &plan, &progress).expect("the run comes to its end");
    let context = format!("seed {seed}, {fail_allocation:?}, {settings:?}");
    assert!(outcome.violations.is_empty(), "{context}\n{}", outcome.violations.join("\n"));
    for (kind, operation) in &outcome.operations {
        let completed = operation.succeeded + operation.flushed + operation.failed;
        assert_eq!(operation.posted, completed, "{context}: every {kind} posted completes exactly once");
    }
    // The consumer of the project makes no mistakes, whatever fails.
    assert_eq!(outcome.events, Vec::<String>::new(), "{context}");
    match &outcome.end {
        End::Complete => assert!(outcome.hashes_match(), "{context}"),
        end => assert!(fail_allocation.is_some(), "{context}: {end:?}"),
    }
    Some(outcome)
}

//= R-CREATE-14, R-CONN-9
#[test]
fn scenario_survives_the_failure_of_each_of_its_allocations() {
    let number = |name| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let seeds = match number("VIORDMA_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("VIORDMA_SEEDS").unwrap_or(SEEDS),
    };
    let (mut complete, mut failed) = (0, 0);
    for seed in seeds.clone() {
        let Some(spared) = run(seed, None) else { return };
        let host = (seed / 4 % 2) as usize;
        let allocations = spared.allocations[host];
        assert!(allocations > 0, "seed {seed}");
        // Neighboring seeds take allocations that are far apart, so that the short form has early and late ones.
        let victim = (seed / 8).wrapping_mul(7919) % allocations;
        match run(seed, Some((host, victim))).expect("an image").end {
            End::Complete => complete += 1,
            _ => failed += 1,
        }
    }
    println!("{} seeds: with a failed allocation {complete} were complete, {failed} failed", seeds.count());
}
