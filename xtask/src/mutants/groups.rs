// SPDX-License-Identifier: MIT OR Apache-2.0

//! Mutants that are tested together.
//!
//! A mutant that survives has to run all tests that execute it. Several that seem to survive are active in one run of each test
//! instead; only if that fails is the group divided, to find the one that fails alone.

use std::collections::BTreeSet;

use anyhow::Result;

use super::outcome::Outcome;

/// A run of a test with some mutants.
pub struct Run {
    pub outcome: Outcome,
    /// The mutants that it executed.
    pub reached: BTreeSet<usize>,
}

/// Runs a test with the mutants of `group`, which it executes. Calls `caught` with each that fails alone. Returns the others, in groups
/// whose members pass together.
///
/// A member that is not reached together with others, because one of them changes the way there, is in another group.
pub fn settle(
    group: Vec<usize>,
    run: &mut impl FnMut(&[usize]) -> Result<Run>,
    caught: &mut impl FnMut(usize, Outcome),
) -> Result<Vec<Vec<usize>>> {
    if group.is_empty() {
        return Ok(Vec::new());
    }
    let Run { outcome, reached } = run(&group)?;
    if outcome == Outcome::Survived {
        let (passed, hidden): (Vec<_>, Vec<_>) =
            group.iter().copied().partition(|number| reached.contains(number));
        // A test that depends on time may not reach each time what it reached once.
        if hidden.is_empty() || group.len() == 1 {
            return Ok(vec![group]);
        }
        if passed.is_empty() {
            return divide(group, run, caught);
        }
        let mut groups = vec![passed];
        groups.extend(settle(hidden, run, caught)?);
        return Ok(groups);
    }
    if let [number] = group[..] {
        caught(number, outcome);
        return Ok(Vec::new());
    }
    let before = group.len();
    let halves = divide(group, run, caught)?;
    // Without the one that was caught, they may pass together; otherwise they have failed by what they do to each other.
    let others: Vec<usize> = halves.iter().flatten().copied().collect();
    Ok(if others.is_empty() || others.len() == before { halves } else { vec![others] })
}

fn divide(
    mut group: Vec<usize>,
    run: &mut impl FnMut(&[usize]) -> Result<Run>,
    caught: &mut impl FnMut(usize, Outcome),
) -> Result<Vec<Vec<usize>>> {
    let other = group.split_off(group.len() / 2);
    let mut halves = settle(group, run, caught)?;
    halves.extend(settle(other, run, caught)?);
    Ok(halves)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Settles mutants 1 to 8 by a test that fails with what `fails` says, and reaches what `reaches` says. Returns the groups, the
    /// mutants that were caught, and the number of runs.
    fn settled(
        fails: impl Fn(&[usize]) -> bool,
        reaches: impl Fn(usize, &[usize]) -> bool,
    ) -> (Vec<Vec<usize>>, Vec<usize>, usize) {
        let (mut caught, mut runs) = (Vec::new(), 0);
        let mut run = |active: &[usize]| {
            runs += 1;
            let outcome = if fails(active) { Outcome::Caught } else { Outcome::Survived };
            let executed = active.iter().copied().filter(|number| reaches(*number, active)).collect();
            Ok(Run { outcome, reached: executed })
        };
        let groups = settle((1..=8).collect(), &mut run, &mut |number, _| caught.push(number)).unwrap();
        (groups, caught, runs)
    }

    #[test]
    fn mutants_that_pass_together_take_one_run() {
        assert_eq!(settled(|_| false, |_, _| true), (vec![(1..=8).collect()], vec![], 1));
    }

    #[test]
    fn each_that_fails_alone_is_found() {
        let (groups, caught, runs) =
            settled(|active| active.contains(&3) || active.contains(&8), |_, _| true);
        assert_eq!((groups, caught), (vec![vec![1, 2, 4, 5, 6, 7]], vec![3, 8]));
        assert_eq!(runs, 11);
    }

    #[test]
    fn two_that_fail_only_together_are_in_different_groups() {
        let (groups, caught, _) = settled(|active| active.contains(&1) && active.contains(&2), |_, _| true);
        assert_eq!((groups, caught), (vec![vec![1], vec![2], vec![3, 4], vec![5, 6, 7, 8]], vec![]));
    }

    #[test]
    fn one_that_another_hides_is_tested_without_it() {
        let hides = |number: usize, active: &[usize]| !(number == 5 && active.contains(&4));
        let (groups, caught, runs) = settled(|active| active == [5], hides);
        assert_eq!((groups, caught, runs), (vec![vec![1, 2, 3, 4, 6, 7, 8]], vec![5], 2));
    }

    #[test]
    fn what_is_never_reached_again_passes() {
        let (groups, caught, _) = settled(|_| false, |_, _| false);
        assert_eq!((groups.concat(), caught), ((1..=8).collect(), vec![]));
    }
}
