// SPDX-License-Identifier: MIT OR Apache-2.0

//! The short form of `cargo xtask conformance`: scenarios of consumers on the image in virtual time, over a few seeds, and with
//! some of the driver's allocations failing, each in a run of its own.

use lab::{
    conformance::{Run, Scenario, Shortage},
    images,
};

/// Seeds of each scenario: one for each setting of the driver.
const SEEDS: u64 = 4;

/// Runs of each scenario with one allocation that fails.
const SHORTAGES: u64 = 12;

//= R-CREATE-14, R-CONN-9
#[test]
fn scenarios_survive_the_failure_of_their_allocations() {
    let Some(images) = images() else { return };
    let run = |scenario, seed, shortage| {
        let run = Run { scenario, seed, shortage };
        run.run(&images).unwrap_or_else(|error| panic!("{error:#}"))
    };
    for scenario in Scenario::ALL {
        let mut failed = 0;
        for seed in 0..SEEDS {
            let spared = run(scenario, seed, Shortage::None);
            assert!(spared.complete || scenario.is_disturbed());
            run(scenario, seed, Shortage::PerMille(20));
            // Early and late allocations, on both hosts.
            for number in 0..SHORTAGES / SEEDS {
                let (host, of) = ((seed + number) as usize % 2, number * SEEDS + seed);
                let numbers = &spared.allocations[host];
                let victim = numbers.start + of * (numbers.end - numbers.start) / SHORTAGES;
                failed += u64::from(!run(scenario, seed, Shortage::Nth(host, victim)).complete);
            }
        }
        assert!(failed != 0, "{scenario}: no allocation mattered");
    }
}

/// Two processors deliver events of a connection: the end of the disconnect before the abort that preceded it.
//= R-CONN-81
#[test]
fn a_disconnect_during_the_report_of_an_abort_does_not_time_out() {
    let Some(images) = images() else { return };
    for seed in [16, 17, 73, 89] {
        let run = Run { scenario: Scenario::FastRegistration, seed, shortage: Shortage::None };
        run.run(&images).unwrap_or_else(|error| panic!("{error:#}"));
    }
}
