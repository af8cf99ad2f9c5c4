// SPDX-License-Identifier: MIT OR Apache-2.0

//! The text of a report.

use crate::on_host::on_host;
use ndk_abi::nt::POOL_FLAG_NON_PAGED;
use nt_sim::{BugCheck, ClockKind, Host, Sim, Verdict, guest::Guest, nt::pool};
use std::sync::Arc;

fn verdict(body: impl FnOnce(&Arc<Host>) + Send + 'static) -> Verdict {
    on_host(Sim::builder().clock(ClockKind::Deterministic { seed: 1 }), body)
}

#[test]
fn a_report_names_code_host_thread_processor_and_level() {
    let verdict = verdict(|_| _ = pool::ExAllocatePool2(POOL_FLAG_NON_PAGED, 8, 0));
    assert!(!verdict.is_clean());
    let expected = "*** bug check BAD_POOL_CALLER (0xc2) on host: an allocation of 8 bytes with tag '....': \
                    neither may be zero (source: WDK, bug check 0xC2)\n    thread 'host driver', CPU 0, PASSIVE_LEVEL\n";
    assert_eq!(verdict.to_string(), expected);
}

#[test]
fn a_simulation_without_a_violation_is_clean() {
    let verdict = verdict(|_| ());
    assert!(verdict.is_clean());
    assert_eq!(verdict.to_string(), "no violation");
}

#[test]
fn a_code_has_its_name_and_its_number() {
    assert_eq!(
        format!("{} {:?}", BugCheck::BAD_POOL_HEADER, BugCheck(0x1234)),
        "BAD_POOL_HEADER (0x19) 0x1234"
    );
}

#[test]
fn a_fault_outside_of_any_image_is_said_to_be_one() {
    let verdict = verdict(|_| _ = std::hint::black_box(Guest::<u8>::from_address(0x10).read()));
    let text = &verdict.violations[0].text;
    let expected = "read of 0x10 (null pointer), which is not mapped; host-side code accessed it";
    assert!(text.contains(expected), "{text}");
}
