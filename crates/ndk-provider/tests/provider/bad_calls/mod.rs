// SPDX-License-Identifier: MIT OR Apache-2.0

//! Generated calls with arguments that the contract forbids: every function of every dispatch table, with null pointers,
//! objects of other types, of another provider and closed ones, numbers out of range, stale and forged tokens, page
//! arrays and lengths that do not fit, and objects in the wrong state.
//!
//! A call starts from valid arguments; one or two faults of the table in `faults` are applied. The status, the completion
//! of an accepted request and the report of a strict provider are those of the table. No memory is written that the
//! consumer did not give for it, each accepted request has one completion, and each call that pends one callback.
//!
//! A seed that fails is printed; `VIORDMA_SEED` runs it alone.

mod calls;
mod faults;
mod world;

use self::world::World;
use crate::support::*;
use calls::{Arguments, Function, NONE, functions};
use faults::Fault;
use ndk_provider::{Config, CreateCompletion, Mistake, MistakeReport};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Reports of one mistake that a provider makes in a period.
const REPORTS: usize = 16;

/// The faults of a call that is to be made: at most two faults, of different arguments.
struct Case {
    function: Function,
    faults: Vec<&'static Fault>,
}

impl Case {
    fn name(&self) -> String {
        let faults: Vec<_> = self.faults.iter().map(|fault| fault.what).collect();
        format!("{:?}: {}", self.function, faults.join(", "))
    }

    /// Returns the statuses that the call may have.
    fn statuses(&self) -> Vec<NTSTATUS> {
        let of = |fault: &&&'static Fault| fault.statuses(self.function);
        match self.faults.iter().filter(|fault| fault.is_refused()).collect::<Vec<_>>()[..] {
            // The order of the checks is not prescribed.
            ref refused if !refused.is_empty() => refused.iter().flat_map(of).collect(),
            _ => vec![self.function.success()],
        }
    }

    /// Returns what is wrong with the status of a call.
    fn check_status(&self, status: NTSTATUS) -> Result<(), String> {
        let expected = self.statuses();
        if expected.contains(&status) {
            return Ok(());
        }
        Err(format!("{}: status {status:#x}, expected {expected:x?}", self.name()))
    }

    /// Returns what is wrong with the reports of a call that returned `status`.
    fn check_reports(
        &self,
        reports: &[MistakeReport],
        status: NTSTATUS,
        subject: (u8, u32),
    ) -> Result<(), String> {
        let expected: Vec<Mistake> = self.faults.iter().filter_map(|fault| fault.event).collect();
        let found: Vec<Mistake> = reports.iter().map(|report| report.mistake).collect();
        let is_named = match self.faults[..] {
            [_] | [] => found == expected,
            // The fault for which the call failed is reported.
            _ => {
                let explains = |fault: &&&Fault| fault.statuses(self.function).contains(&status);
                let named = |fault: &&Fault| fault.event.is_none_or(|event| found.contains(&event));
                found.iter().all(|mistake| expected.contains(mistake))
                    && self.faults.iter().filter(explains).any(named)
            }
        };
        let names_object = reports.iter().all(|report| (report.object_type, report.object) == subject);
        if is_named && names_object {
            return Ok(());
        }
        Err(format!(
            "{}: status {status:#x}, reported {reports:x?} instead of {expected:?} of {subject:x?}",
            self.name()
        ))
    }
}

impl Function {
    /// Returns what a valid call returns, at once or by its callback.
    fn success(self) -> NTSTATUS {
        match self {
            Self::Query(_) => STATUS_NOT_SUPPORTED,
            // Nothing listens at the address.
            Self::Connect | Self::ConnectShared => STATUS_CONNECTION_REFUSED,
            Self::ReleaseLam | Self::ArmCq | Self::Flush | Self::ControlConnectEvents => NONE,
            _ => STATUS_SUCCESS,
        }
    }
}

/// Returns a call without a fault, with one, or with two: each function, and each fault, is as likely as any other.
fn case(random: &mut Random, is_strict: bool, all: &[Function]) -> Case {
    let usable: Vec<_> = faults::all().filter(|fault| is_strict || !fault.only_strict).collect();
    let (function, first) = if random.below(2) == 0 {
        let function = random.one_of(all);
        let fitting: Vec<_> = usable.iter().copied().filter(|fault| fault.fits(function)).collect();
        (function, random.one_of(&fitting))
    } else {
        let fault = random.one_of(&usable);
        let fitting: Vec<_> = all.iter().copied().filter(|function| fault.fits(*function)).collect();
        (random.one_of(&fitting), fault)
    };
    let second = random.one_of(&usable);
    let faults = match random.below(8) {
        0 => vec![],
        1..4 if second.fits(function) && first.combines(second) => vec![first, second],
        _ => vec![first],
    };
    Case { function, faults }
}

/// Returns the type and the low half of the address of the object of a call.
fn subject(arguments: &Arguments) -> (u8, u32) {
    if arguments.object.is_null() {
        return (0, 0);
    }
    // SAFETY: an object of the provider, perhaps closed: its memory is kept then.
    let header = unsafe { &*arguments.object.cast::<NDK_OBJECT_HEADER>() };
    (header.ObjectType.0.cast_unsigned() as u8, arguments.object.addr() as u32)
}

/// The cases that were made, and what was wrong with them.
#[derive(Default)]
struct Tried {
    cases: BTreeSet<String>,
    wrong: BTreeMap<String, String>,
}

/// Makes calls of one seed.
fn run(seed: u64, config: Config, is_strict: bool, calls: usize, tried: &mut Tried) {
    let mut world = World::new(seed, config, is_strict);
    let all = functions();
    let mut reported: HashMap<u8, usize> = HashMap::new();
    for _ in 0..calls {
        let case = case(&mut world.random, is_strict, &all);
        let mut arguments = world.valid(case.function);
        for fault in &case.faults {
            (fault.change)(&mut arguments, &mut world);
        }
        assert_eq!(world.a.mistakes(), [], "{}: before the call", case.name());
        let subject = subject(&arguments);
        let accepted = case.faults.iter().find(|fault| !fault.completes.is_empty());
        let completes = match (accepted, case.function) {
            (Some(fault), _) => fault.completes,
            //= R-QP-62
            (None, Function::Receive) => &[STATUS_CANCELLED],
            _ => &[STATUS_SUCCESS],
        };
        let breaks = accepted.is_some_and(|fault| fault.breaks);
        println!("{}", case.name());
        let status = world.run(case.function, &arguments, completes, breaks);
        world.check_memory();
        let reports = world.a.reports();
        assert!(is_strict || reports.is_empty());
        let checked = case
            .check_status(status)
            .and_then(|()| if is_strict { case.check_reports(&reports, status, subject) } else { Ok(()) });
        if let Err(wrong) = checked {
            tried.wrong.insert(case.name(), wrong);
        }
        for report in &reports {
            *reported.entry(report.mistake as u8).or_default() += 1;
        }
        tried.cases.insert(case.name());
        if reported.values().any(|count| *count >= REPORTS - 1) {
            // A provider does not report more of one mistake.
            break;
        }
    }
    world.finish();
}

fn seeds() -> std::ops::Range<u64> {
    match std::env::var("VIORDMA_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => seed..seed + 1,
        None => 0..std::env::var("VIORDMA_SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(60),
    }
}

/// Runs all seeds, with calls that complete inline, pend, and pend always, in turn.
fn run_seeds(is_strict: bool, calls: usize) {
    let mut tried = Tried::default();
    for seed in seeds() {
        println!("seed {seed}");
        let pending =
            [CreateCompletion::Auto, CreateCompletion::Pend, CreateCompletion::PendAll][seed as usize % 3];
        run(seed, Config { create_completion: pending, ..Config::default() }, is_strict, calls, &mut tried);
    }
    let wrong: Vec<_> = tried.wrong.into_values().collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let is_made = |fault: &Fault| tried.cases.iter().any(|case| case.ends_with(&format!(": {}", fault.what)));
    let unmade = faults::all().filter(|fault| (is_strict || !fault.only_strict) && !is_made(fault));
    let unmade: Vec<_> = unmade.map(|fault| fault.what).collect();
    assert!(seeds().count() < 60 || unmade.is_empty(), "not made: {unmade:?}");
}

#[test]
fn bad_calls_have_the_status_of_their_rule_and_lose_no_completion() {
    run_seeds(false, 250);
}

#[test]
fn bad_calls_are_reported_by_a_strict_provider_with_object_and_mistake() {
    run_seeds(true, 250);
}
