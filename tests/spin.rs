// SPDX-License-Identifier: MIT OR Apache-2.0

//! The short form of `cargo xtask spin`: scripts of a few seeds on the image in virtual time.

#![cfg(target_os = "linux")]

use lab::{
    image,
    spin::{plan, run, script::Script},
};

const STEPS: usize = 40;

fn play(script: &Script) -> Option<run::Summary> {
    let played = run::run(&image()?, script);
    Some(played.unwrap_or_else(|error| panic!("{script}\n{error:#}")))
}

#[test]
fn adapters_work_after_random_changes_of_their_state() {
    let mut transfers = 0;
    for seed in 0..6 {
        let Some(summary) = play(&plan::script(seed, STEPS)) else { return };
        assert_eq!(summary.steps + summary.skipped, STEPS);
        transfers += summary.complete;
    }
    assert!(transfers >= 12, "a copy and a connection at the end of each script");
}

#[test]
fn script_runs_the_same_each_time() {
    let Some(first) = play(&plan::script(3, STEPS)) else { return };
    assert_eq!(play(&plan::script(3, STEPS)), Some(first));
    assert_ne!(play(&plan::script(4, STEPS)), Some(first));
}
