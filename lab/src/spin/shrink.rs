// SPDX-License-Identifier: MIT OR Apache-2.0

//! Shortens a script that fails, as long as it fails in the same way.

use super::{
    script::{Script, Setup},
    step::Step,
};

/// Returns a script with fewer steps, shorter waits and less setup for which `fails` still holds. `fails` is asked at most `limit`
/// times.
pub fn shrink(script: &Script, limit: usize, mut fails: impl FnMut(&Script) -> bool) -> Script {
    let mut best = script.clone();
    let mut left = limit;
    let mut attempt = |candidate: Script, best: &mut Script| {
        if left == 0 || candidate == *best {
            return false;
        }
        left -= 1;
        let better = fails(&candidate);
        if better {
            *best = candidate;
        }
        better
    };
    loop {
        let before = best.clone();
        without_ranges(&mut best, &mut attempt);
        for simplify in SIMPLIFICATIONS {
            let mut candidate = best.clone();
            simplify(&mut candidate.setup, Setup { seed: best.setup.seed, ..Setup::default() });
            attempt(candidate, &mut best);
        }
        for number in (0..best.setup.keywords.len()).rev() {
            let mut candidate = best.clone();
            candidate.setup.keywords.remove(number);
            attempt(candidate, &mut best);
        }
        for bit in (0..u64::BITS).map(|bit| 1 << bit) {
            let mut candidate = best.clone();
            candidate.setup.without &= !bit;
            attempt(candidate, &mut best);
        }
        for number in 0..best.steps.len() {
            while let Some(step) = smaller(&best.steps[number]) {
                let mut candidate = best.clone();
                candidate.steps[number] = step;
                if !attempt(candidate, &mut best) {
                    break;
                }
            }
        }
        if best == before {
            return best;
        }
    }
}

/// Leaves out ranges of steps, long ones first.
fn without_ranges(best: &mut Script, attempt: &mut impl FnMut(Script, &mut Script) -> bool) {
    let mut length = best.steps.len().div_ceil(2);
    while length > 0 {
        // From the end: what follows the failure goes at once.
        let mut end = best.steps.len();
        while end > 0 {
            let start = end.saturating_sub(length);
            let mut candidate = best.clone();
            candidate.steps.drain(start..end);
            attempt(candidate, best);
            end = start;
        }
        length /= 2;
    }
}

/// Changes of a setup towards the default one, which is the second parameter.
const SIMPLIFICATIONS: [fn(&mut Setup, Setup); 22] = [
    |setup, default| *setup = Setup { real_time: setup.real_time, ..default },
    |setup, default| setup.path_mtu = default.path_mtu,
    |setup, default| setup.processors = default.processors,
    |setup, default| setup.group_size = default.group_size,
    |setup, default| setup.pairs = default.pairs,
    |setup, default| setup.packed = default.packed,
    |setup, default| setup.without = default.without,
    |setup, default| setup.reset_millis = default.reset_millis,
    |setup, default| setup.mtu = default.mtu,
    |setup, default| setup.speed = default.speed,
    |setup, default| setup.command_micros = default.command_micros,
    |setup, default| setup.rss_limits = default.rss_limits,
    |setup, default| setup.hash_report = default.hash_report,
    |setup, default| setup.partial_checksums = default.partial_checksums,
    |setup, default| setup.large = default.large,
    |setup, default| setup.repeats = default.repeats,
    |setup, default| setup.messages = default.messages,
    |setup, default| setup.queue_sizes = default.queue_sizes,
    |setup, default| setup.insists = default.insists,
    |setup, default| setup.drops = default.drops,
    |setup, default| setup.station = default.station,
    |setup, default| setup.keywords = default.keywords,
];

/// Returns the step with half of its number.
fn smaller(step: &Step) -> Option<Step> {
    Some(match step {
        Step::Wait(micros @ 1..) => Step::Wait(micros / 2),
        Step::Copy(bytes @ 2..) => Step::Copy(bytes / 2),
        Step::Tcp(bytes @ 2..) => Step::Tcp(bytes / 2),
        Step::Later(micros @ 1.., side, act) => Step::Later(micros / 2, *side, act.clone()),
        _ => return None,
    })
}
