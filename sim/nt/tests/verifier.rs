// SPDX-License-Identifier: MIT OR Apache-2.0

//! The verifier reports the one violation that a test driver commits.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use crate::common::{Outcome, TEST_DRIVER, run};
use nt_sim::{BugCheck, ClockKind, Violation, sim::SimBuilder};

/// A violation of the test driver, its bug check, text of the report, and a function in its stack.
type Case = (&'static str, BugCheck, &'static str, &'static str);

const CRASHES: &[Case] = &[
    (
        "double free",
        BugCheck::BAD_POOL_CALLER,
        "block 0 of 24 bytes, tag 'tsdr' was freed twice",
        "double_free",
    ),
    (
        "overrun",
        BugCheck::DRIVER_PAGE_FAULT_BEYOND_END_OF_ALLOCATION,
        "0 bytes beyond the end of block 0 of 48 bytes, tag 'tsdr'",
        "overrun",
    ),
    ("underrun", BugCheck::BAD_POOL_HEADER, "memory 1 bytes before block 0 of 48 bytes", "underrun"),
    (
        "use after free",
        BugCheck::DRIVER_PAGE_FAULT_IN_FREED_SPECIAL_POOL,
        "offset 0 of block 0 of 48 bytes, tag 'tsdr', which was freed",
        "use_after_free",
    ),
    ("wrong tag", BugCheck::BAD_POOL_CALLER, "tag 'tsdr' was freed with tag 'rdts'", "wrong_tag"),
    (
        "passive function at dispatch",
        BugCheck::IRQL_NOT_LESS_OR_EQUAL,
        "EtwRegister was called at DISPATCH_LEVEL; allowed: == PASSIVE_LEVEL",
        "passive_function_at_dispatch",
    ),
    (
        "wait at dispatch",
        BugCheck::IRQL_NOT_LESS_OR_EQUAL,
        "with a timeout that is not zero; waiting requires IRQL <= APC_LEVEL",
        "wait_at_dispatch",
    ),
    (
        "lower to higher",
        BugCheck::IRQL_NOT_LESS_OR_EQUAL,
        "KeLowerIrql to DISPATCH_LEVEL at PASSIVE_LEVEL: the new level must not be above the current one",
        "lower_to_higher",
    ),
    (
        "dpc leaves irql raised",
        BugCheck::IRQL_UNEXPECTED_VALUE,
        "a DPC routine was called at DISPATCH_LEVEL and returned at IRQL 5; it must return at the same IRQL",
        "",
    ),
    (
        "lock twice",
        BugCheck::SPIN_LOCK_ALREADY_OWNED,
        "a spin lock was acquired by the thread that holds it already: deadlock",
        "lock_twice",
    ),
    ("release unheld", BugCheck::SPIN_LOCK_NOT_OWNED, "not held", "release_unheld"),
    (
        "lower with lock held",
        BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
        "the IRQL was lowered to PASSIVE_LEVEL while 1 spin lock(s) are held; release them first",
        "lower_with_lock_held",
    ),
    ("lock order", BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION, "lock order", "lock_order"),
    (
        "return with lock held",
        BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
        "a DPC routine was called with 0 spin locks held and returned with 1; it must release what it acquires",
        "",
    ),
    ("null read", BugCheck::SYSTEM_THREAD_EXCEPTION_NOT_HANDLED, "read of 0x0 (null pointer)", "null_read"),
    (
        "null call",
        BugCheck::SYSTEM_THREAD_EXCEPTION_NOT_HANDLED,
        "call of 0x0 (null pointer), which is not mapped",
        "null_call",
    ),
    ("null event", BugCheck::SYSTEM_THREAD_EXCEPTION_NOT_HANDLED, "(null pointer)", "null_event"),
    ("null mdl", BugCheck::SYSTEM_THREAD_EXCEPTION_NOT_HANDLED, "(null pointer)", "null_mdl"),
    (
        "null dpc routine",
        BugCheck::DRIVER_IRQL_NOT_LESS_OR_EQUAL,
        "call of a DPC routine, which is a null pointer",
        "",
    ),
    (
        "unlisted call",
        BugCheck::KERNEL_SECURITY_CHECK_FAILURE,
        "by its address, which the image does not list for Control Flow Guard",
        "unlisted_call",
    ),
    (
        "unlisted dpc routine",
        BugCheck::KERNEL_SECURITY_CHECK_FAILURE,
        ", which its image does not list for Control Flow Guard",
        "",
    ),
    ("wild call", BugCheck::ATTEMPTED_EXECUTE_OF_NOEXECUTE_MEMORY, "which is not executable", "wild_call"),
    ("division by zero", BugCheck::KMODE_EXCEPTION_NOT_HANDLED, "division by zero", "division_by_zero"),
    (
        "illegal instruction",
        BugCheck::KMODE_EXCEPTION_NOT_HANDLED,
        "illegal instruction",
        "illegal_instruction",
    ),
    (
        "write to constant",
        BugCheck::ATTEMPTED_WRITE_TO_READONLY_MEMORY,
        "in a read-only section of test-driver.sys",
        "write_to_constant",
    ),
    ("endless recursion", BugCheck::UNEXPECTED_KERNEL_MODE_TRAP, "kernel stack overflow", "recurse"),
    ("deep stack", BugCheck::UNEXPECTED_KERNEL_MODE_TRAP, "a kernel stack has 24576", "deep_stack"),
    ("deep leaf", BugCheck::UNEXPECTED_KERNEL_MODE_TRAP, "a kernel stack has 24576", "deep_leaf"),
    (
        "free armed timer",
        BugCheck::TIMER_OR_DPC_INVALID,
        "freed memory contains a timer that is set; call KeCancelTimer first",
        "free_armed_timer",
    ),
    (
        "free contiguous memory with a timer",
        BugCheck::TIMER_OR_DPC_INVALID,
        "contains a timer that is set",
        "free_contiguous_memory_with_a_timer",
    ),
    (
        "free queued work item",
        BugCheck::WORKER_INVALID,
        "freed memory contains a work item that is queued",
        "free_queued_work_item",
    ),
    (
        "queue executive work item twice",
        BugCheck::WORKER_INVALID,
        "ExQueueWorkItem of a work item that is queued already",
        "queue_executive_work_item_twice",
    ),
    (
        "uninitialized event",
        BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
        "KeSetEvent on an object that is not an initialized event",
        "uninitialized_event",
    ),
    (
        "lock an mdl of nonpaged pool",
        BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
        "MmProbeAndLockPages of an MDL that MmBuildMdlForNonPagedPool built",
        "lock_an_mdl_of_nonpaged_pool",
    ),
    ("free mapped mdl", BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION, "still mapped", "free_mapped_mdl"),
    (
        "use after unmap",
        BugCheck::PAGE_FAULT_IN_NONPAGED_AREA,
        "offset 0x0 of a mapping that was removed",
        "use_after_unmap",
    ),
    (
        "paged pool at dispatch",
        BugCheck::DRIVER_IRQL_NOT_LESS_OR_EQUAL,
        "it is pageable (paged pool, block 0 of 100 bytes, tag 'tsdr')",
        "pool_at_dispatch",
    ),
    (
        "paged pool in an import at dispatch",
        BugCheck::IRQL_NOT_LESS_OR_EQUAL,
        "at DISPATCH_LEVEL: it is pageable (paged pool",
        "pool_in_an_import",
    ),
    (
        "paged pool freed at dispatch",
        BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
        "paged pool was freed at DISPATCH_LEVEL; allowed: <= APC_LEVEL",
        "pool_freed_at_dispatch",
    ),
    (
        "paged pool as nonpaged in an mdl",
        BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
        "MmBuildMdlForNonPagedPool of pageable memory",
        "pool_in_an_mdl",
    ),
    (
        "pageable data at dispatch",
        BugCheck::DRIVER_IRQL_NOT_LESS_OR_EQUAL,
        "(section PAGEDATA of test-driver.sys)",
        "data_at_dispatch",
    ),
    (
        "pageable code at dispatch",
        BugCheck::DRIVER_IRQL_NOT_LESS_OR_EQUAL,
        "(section PAGE of test-driver.sys)",
        "code_at_dispatch",
    ),
    ("bug check", BugCheck(0x1234), "0x1, 0x2, 0x3, 0x4", "bug_check"),
    (
        "failed assertion",
        BugCheck::KMODE_EXCEPTION_NOT_HANDLED,
        "an assertion of the image failed",
        "failed_assertion",
    ),
    (
        "no unload routine",
        BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
        "the driver cannot be unloaded: DriverUnload is not set",
        "",
    ),
    (
        "write shared time",
        BugCheck::ATTEMPTED_WRITE_TO_READONLY_MEMORY,
        "KUSER_SHARED_DATA, which is read-only",
        "write_shared_time",
    ),
];

const LEAKS: &[Case] = &[
    (
        "pool leak",
        BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION,
        "block 0 of 123 bytes, tag 'tsdr'",
        "pool_leak",
    ),
    (
        "write to a freed block through a mapping",
        BugCheck::DRIVER_VERIFIER_DMA_VIOLATION,
        "block 0 of 4096 bytes, tag 'tsdr'",
        "",
    ),
    ("timer leak", BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION, "ExAllocateTimer", "timer_leak"),
    ("work item leak", BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION, "IoAllocateWorkItem", "work_item_leak"),
    (
        "unload with armed timer",
        BugCheck::DRIVER_UNLOADED_WITHOUT_CANCELLING_PENDING_OPERATIONS,
        "the driver unloaded with a timer that is set",
        "",
    ),
];

#[test]
fn leaks_beyond_sixteen_are_counted() {
    let Some(_) = TEST_DRIVER.as_ref() else { return };
    let (_, verdict) = run(nt_sim::Sim::builder(), "many leaks");
    assert_eq!(verdict.violations.len(), 17, "{verdict}");
    let rest = &verdict.violations[16].text;
    assert!(rest.contains("pool leak: 20 blocks in all, 1000 bytes"), "{rest}");
}

/// Cases in which the test driver is correct, each beside a violation of the same kind.
const CORRECT: &[&str] = &["good", "stack in an mdl", "pageable memory at passive level"];

fn clocks() -> [SimBuilder; 2] {
    [ClockKind::Threaded, ClockKind::Deterministic { seed: 1 }]
        .map(|clock| nt_sim::Sim::builder().clock(clock))
}

/// Commits a violation and checks the first report; returns how the driver ended, and the report.
fn check((name, code, text, function): Case, sim: SimBuilder) -> (Outcome, Violation) {
    let (outcome, verdict) = run(sim, name);
    let report = verdict.violations.first().unwrap_or_else(|| panic!("'{name}' was not reported"));
    assert_eq!(report.code, code, "{report}");
    assert!(report.text.contains(text), "{report}");
    if !function.is_empty() {
        let named = report.stack.iter().any(|frame| frame.to_string().contains(function));
        assert!(named, "{function} is not in the stack: {report}");
    }
    (outcome, report.clone())
}

#[test]
fn every_violation_crashes_the_host_and_is_reported() {
    let Some(_) = TEST_DRIVER.as_ref() else { return };
    for &case in CRASHES {
        for sim in clocks() {
            assert_eq!(check(case, sim).0, Outcome::Crashed, "'{}'", case.0);
        }
    }
}

/// Nothing of the image runs when it has called an address without code; the stack is that of the caller.
#[test]
fn the_stack_of_a_wild_call_reaches_the_drivers_entry() {
    let Some(_) = TEST_DRIVER.as_ref() else { return };
    let [_, deterministic] = clocks();
    for name in ["wild call", "null call"] {
        let case = *CRASHES.iter().find(|case| case.0 == name).expect("a case");
        let (_, report) = check(case, deterministic.clone());
        let last = report.stack.last().map(ToString::to_string).unwrap_or_default();
        assert!(last.contains("driver_entry"), "{report}");
    }
}

#[test]
fn a_fault_of_an_image_is_not_attributed_to_the_simulation() {
    let Some(_) = TEST_DRIVER.as_ref() else { return };
    let [_, deterministic] = clocks();
    for &case in CRASHES {
        let (_, report) = check(case, deterministic.clone());
        assert!(!report.text.contains("host-side code"), "{report}");
    }
}

#[test]
fn every_leak_is_reported_with_its_allocation() {
    let Some(_) = TEST_DRIVER.as_ref() else { return };
    for &case in LEAKS {
        for sim in clocks() {
            assert_eq!(check(case, sim).0, Outcome::Unloaded, "'{}'", case.0);
        }
    }
}

#[test]
fn correct_driver_is_not_reported() {
    let Some(_) = TEST_DRIVER.as_ref() else { return };
    for name in CORRECT {
        for sim in clocks() {
            let (outcome, verdict) = run(sim, name);
            assert!(verdict.is_clean(), "'{name}': {verdict}");
            assert_eq!(outcome, Outcome::Unloaded, "'{name}'");
        }
    }
}

/// The I/O manager holds a reference to the object of an I/O work item until its routine has returned (documentation
/// of `IoQueueWorkItem`).
#[test]
fn a_driver_stays_loaded_until_its_io_work_items_have_returned() {
    let Some(_) = TEST_DRIVER.as_ref() else { return };
    for sim in clocks() {
        let (outcome, verdict) = run(sim, "work item that runs at unload");
        assert!(verdict.is_clean(), "{verdict}");
        assert_eq!(outcome, Outcome::Unloaded);
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let Some(_) = TEST_DRIVER.as_ref() else { return };
    let time_of = |seed| {
        let sim = nt_sim::Sim::builder().clock(ClockKind::Deterministic { seed });
        crate::common::run_for(sim, "good", |sim| sim.now()).2
    };
    assert_eq!(time_of(7), time_of(7));
}

/// Returns the Rust files below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder of the repository");
    let paths = entries.map(|entry| entry.expect("a readable folder").path());
    paths
        .flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect()
}

/// Returns the names that follow `BugCheck::` in a text.
fn codes(text: &str) -> impl Iterator<Item = &str> {
    let name = |rest: &str| rest.find(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'));
    text.split("BugCheck::").skip(1).map(move |rest| &rest[..name(rest).unwrap_or(rest.len())])
}

#[test]
fn page_lists_every_code_and_every_violation_of_the_test_driver() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/verifier.md")).expect("the page");
    let mut missing = BTreeSet::new();
    for folder in ["sim/nt/src", "sim/ndis/src"] {
        for path in sources(&root.join(folder)) {
            let source = fs::read_to_string(&path).expect("a source file");
            let used = codes(&source).filter(|code| code.len() > 1 && !page.contains(&format!("`{code}`")));
            missing.extend(used.map(ToOwned::to_owned));
        }
    }
    let cases = CRASHES.iter().chain(LEAKS).map(|(name, ..)| *name);
    missing.extend(cases.filter(|name| !page.contains(&format!("\"{name}\""))).map(ToOwned::to_owned));
    assert!(missing.is_empty(), "docs/verifier.md does not list {missing:?}");
    let tests: String = ["sim/nt", "sim/ndis", "sim/device", "lab/tests"]
        .iter()
        .flat_map(|folder| sources(&root.join(folder)))
        .map(|path| fs::read_to_string(path).expect("a source file"))
        .collect();
    // The list of tests: what is caught, and the tests behind a colon.
    for line in page.lines().filter(|line| line.starts_with("- ")) {
        let tested_by = line.rsplit(": ").next().unwrap_or_default();
        for name in tested_by.split('`').skip(1).step_by(2).filter(|name| name.contains('_')) {
            assert!(tests.contains(&format!("fn {name}(")), "there is no test {name}");
        }
        for name in tested_by.split('"').skip(1).step_by(2) {
            assert!(
                CRASHES.iter().chain(LEAKS).any(|(known, ..)| *known == name),
                "there is no case \"{name}\""
            );
        }
    }
}
