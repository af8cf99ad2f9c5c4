//! All targets over their seeds, and over a bounded number of generated inputs.

use roce_fuzz::generate::{Generator, hex, seeds};
use roce_fuzz::{TARGETS, Target};

/// Runs a target; a panic names the input.
fn run(target: &Target, name: &str, input: &[u8]) {
    let result = std::panic::catch_unwind(|| (target.run)(input));
    assert!(result.is_ok(), "{} does not hold over {name}: {}", target.name, hex(input));
}

#[test]
fn every_seed_holds() {
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
fn frames_of_any_bytes_come_back_or_change_nothing() {
    generated("frames", 4000);
}

#[test]
fn datagrams_in_any_order_leave_nothing_behind() {
    generated("datagrams", 1500);
}

#[test]
fn a_peer_in_any_mood_completes_every_request_once() {
    generated("sequences", 1500);
}

#[test]
fn the_seeds_are_those_made_of_the_captures() {
    for target in &TARGETS {
        let kept: std::collections::BTreeMap<_, _> = seeds(target.name).unwrap().into_iter().collect();
        assert_eq!(kept, roce_fuzz::seeds::make(target.name), "seeds of {}", target.name);
    }
}
