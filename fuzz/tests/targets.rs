// SPDX-License-Identifier: MIT OR Apache-2.0

//! Runs all targets with their seeds and with a bounded number of generated inputs.

use roce_fuzz::generate::{Generator, hex, seeds};
use roce_fuzz::{TARGETS, Target};

/// Runs a target; reports the input on a panic.
fn run(target: &Target, name: &str, input: &[u8]) {
    let result = std::panic::catch_unwind(|| (target.run)(input));
    assert!(result.is_ok(), "{} fails with {name}: {}", target.name, hex(input));
}

#[test]
fn targets_hold_for_every_seed() {
    for target in &TARGETS {
        let seeds = seeds(target.name).unwrap();
        assert!(seeds.len() >= 10, "{} has {} seeds", target.name, seeds.len());
        for (name, input) in seeds {
            assert!(input.len() <= target.max_len, "{name} is too long");
            run(target, &name, &input);
        }
    }
}

fn generated(name: &str, count: usize) {
    let target = Target::by_name(name).unwrap();
    let seeds = seeds(target.name).unwrap().into_iter().map(|(_, bytes)| bytes).collect();
    let mut generator = Generator::new(17, seeds, target.max_len);
    for number in 0..count {
        run(&target, &format!("input {number}"), &generator.input());
    }
}

#[test]
fn frames_holds_for_generated_inputs() {
    generated("frames", 4000);
}

#[test]
fn datagrams_holds_for_generated_inputs() {
    generated("datagrams", 1500);
}

#[test]
fn sequences_holds_for_generated_inputs() {
    generated("sequences", 1500);
}

#[test]
fn stash_holds_for_generated_inputs() {
    generated("stash", 5000);
}

#[test]
fn transports_holds_for_generated_inputs() {
    generated("transports", 2000);
}

#[test]
fn smb_direct_holds_for_generated_inputs() {
    generated("smb-direct", 20_000);
}

#[test]
fn seeds_are_those_of_the_captures() {
    for target in &TARGETS {
        let kept: std::collections::BTreeMap<_, _> = seeds(target.name).unwrap().into_iter().collect();
        assert_eq!(kept, roce_fuzz::seeds::make(target.name), "seeds of {}", target.name);
    }
}
