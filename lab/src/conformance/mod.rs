// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask conformance`: scenarios of consumers on the image, over seeds in virtual time, and with each of the driver's
//! allocations failing in turn.
//!
//! Each run ends with both drivers unloaded. Whatever fails: no rule of the verifier is violated, nothing leaks, each
//! accepted request completes, each close too, and a call fails for lack of resources or because the connection has ended,
//! for no other reason.

mod calls;
mod connection;
mod orders;
mod scenario;
mod windows;

use std::{ops::Range, time::Instant};

use anyhow::{Result, bail};
use ndis_sim::Keyword;
use ndk_consumer::{Error, Status, protocols::ROUNDS_DIFFER};
use scenario::NO_ADAPTER;
pub use scenario::Scenario;

use crate::{
    testbed::{Options as BedOptions, Testbed},
    workspace::{self, Images},
};

/// The settings that a consumer may meet: inline, pended, pended with callbacks that are held back, mistakes reported.
const SETTINGS: [&[(&str, u32)]; 4] = [
    &[],
    &[("NdkCreateCompletion", 2)],
    &[("NdkCreateCompletion", 2), ("NdkStrictDelay", 300), ("NdkStrictDelayRandom", 1)],
    &[("NdkStrictReport", 1)],
];

/// Options of the command.
#[derive(clap::Args)]
pub struct Options {
    /// Seeds of each scenario; each runs once with all allocations, and once with a few that fail at random
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Run only this scenario
    #[arg(long)]
    scenario: Option<Scenario>,
    /// Fail every n-th allocation of each scenario in turn, on both hosts, with all settings; 0: none
    #[arg(long, default_value_t = 1, value_name = "N")]
    every: u64,
}

/// Which allocations of the driver fail, counted from its start on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shortage {
    None,
    /// One, of the first host (0) or the second.
    Nth(usize, u64),
    /// This share of 1,000, on both hosts.
    PerMille(u64),
}

/// One run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    pub scenario: Scenario,
    pub seed: u64,
    pub shortage: Shortage,
}

/// A run without a defect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ended {
    /// Numbers of the allocations of each host's driver. Those of its start are only in the scenario that consists of it: they
    /// are the same in all.
    pub allocations: [Range<u64>; 2],
    /// All consumers have succeeded.
    pub complete: bool,
}

impl Run {
    /// Runs the scenario on the image of the edition that has the settings.
    ///
    /// # Errors
    /// The testbed cannot be made; or the run has shown a defect, which the error describes.
    pub fn run(&self, images: &Images) -> Result<Ended> {
        let settings = SETTINGS[self.seed as usize % SETTINGS.len()];
        let keywords = settings.iter().map(|&(name, value)| (name, Keyword::Text(value.to_string())));
        let options = BedOptions { seed: self.seed, keywords: keywords.collect(), ..BedOptions::default() };
        let mut bed = Testbed::new(images.with(&options.keywords), &options)?;
        self.begin_shortage(&bed);
        let mut defects = Vec::new();
        let (mut results, started) = (Vec::new(), bed.start());
        let has_started = started.is_ok();
        let asked = |bed: &Testbed| bed.machines().map(|machine| machine.host().low_resources.asked());
        let first = if self.scenario == Scenario::Start { [0; 2] } else { asked(&bed) };
        match started {
            Ok(()) => results = self.scenario.run(&mut bed, self.seed),
            Err(error) if self.shortage == Shortage::None => defects.push(format!("no start: {error:#}")),
            // The driver, or the adapter, does not start without memory.
            Err(_) => {}
        }
        if let Err(error) = bed.stop() {
            defects.push(format!("no stop: {error:#}"));
        }
        let [end, end_of_second] = asked(&bed);
        let allocations = [first[0]..end, first[1]..end_of_second];
        defects.extend(bed.violations());
        let may_fail = self.shortage != Shortage::None || self.scenario.is_disturbed();
        for (at, result) in results.iter().enumerate() {
            // Results come in pairs: of a client, of its server.
            let peer_failed = results.get(at ^ 1).is_some_and(Result::is_err);
            if let Err(error) = result
                && !(may_fail && self.is_expected(error, peer_failed))
            {
                defects.push(error.to_string());
            }
        }
        if !defects.is_empty() {
            bail!("{self:?}, {settings:?}\n{}", defects.join("\n"));
        }
        Ok(Ended { allocations, complete: has_started && results.iter().all(Result::is_ok) })
    }

    /// Returns whether an error is the lack of a resource, or of the connection because of it.
    fn is_expected(&self, error: &Error, peer_failed: bool) -> bool {
        match error {
            _ if is_loss(error) => true,
            // The client has left before the last round.
            Error::Protocol(ROUNDS_DIFFER) => peer_failed,
            Error::Protocol(text) => self.scenario.is_disturbed() && *text == NO_ADAPTER,
            _ => false,
        }
    }

    fn begin_shortage(&self, bed: &Testbed) {
        let machines = bed.machines();
        match self.shortage {
            Shortage::None => {}
            Shortage::Nth(host, number) => machines[host].host().low_resources.fail_nth(number),
            Shortage::PerMille(share) => {
                for machine in machines {
                    machine.host().low_resources.fail_per_mille(share);
                }
            }
        }
    }
}

/// Returns whether an error is the lack of a resource, or the loss of the connection or the device.
#[must_use]
pub fn is_loss(error: &Error) -> bool {
    match error {
        Error::Call(_, status) | Error::Connect(status) | Error::Connection(status) => {
            *status == Status::INSUFFICIENT_RESOURCES || ENDED.contains(status)
        }
        Error::NoConnection | Error::PeerDisconnected | Error::PeerSilent => true,
        _ => false,
    }
}

/// Statuses that a call or a request may return once the connection, or the device, is gone.
const ENDED: [Status; 7] = [
    Status::CONNECTION_REFUSED,
    Status::CONNECTION_ABORTED,
    Status::CONNECTION_INVALID,
    Status::IO_TIMEOUT,
    Status::CANCELLED,
    Status::DEVICE_REMOVED,
    Status::HOST_UNREACHABLE,
];

/// Runs the command.
///
/// # Errors
/// There is no image, or runs have shown defects.
pub fn run(options: &Options) -> Result<()> {
    let images = workspace::built_images()?;
    let (start, mut defects) = (Instant::now(), 0);
    for scenario in Scenario::ALL {
        if options.scenario.is_some_and(|wanted| wanted != scenario) {
            continue;
        }
        let (began, mut runs, mut complete) = (Instant::now(), 0_u64, 0_u64);
        let mut make = |seed, shortage| {
            runs += 1;
            match (Run { scenario, seed, shortage }).run(&images) {
                Ok(ended) => {
                    complete += u64::from(ended.complete);
                    Some(ended)
                }
                Err(error) => {
                    println!("{error:#}");
                    defects += 1;
                    None
                }
            }
        };
        for seed in options.first..options.first.saturating_add(options.seeds) {
            make(seed, Shortage::None);
            make(seed, Shortage::PerMille(5));
        }
        let mut allocations = 0;
        for seed in 0..if options.every == 0 { 0 } else { SETTINGS.len() as u64 } {
            let Some(spared) = make(seed, Shortage::None) else { continue };
            for (host, numbers) in spared.allocations.into_iter().enumerate() {
                for number in numbers.step_by(options.every as usize) {
                    make(seed, Shortage::Nth(host, number));
                    allocations += 1;
                }
            }
        }
        println!(
            "{scenario}: {runs} runs, {complete} complete, {allocations} allocations failed in turn, {:.1} s",
            began.elapsed().as_secs_f64()
        );
    }
    println!("{:.1} s", start.elapsed().as_secs_f64());
    if defects != 0 {
        bail!("{defects} runs have shown defects");
    }
    Ok(())
}
