// SPDX-License-Identifier: MIT OR Apache-2.0

//! Each report of a violation of NDIS's rules says where the rule is stated, by one table for reports and page.
#![allow(unsafe_code, reason = "implements a routine of a driver")]

use std::{ffi::c_void, fs, path::Path};

use crate::common::{
    lists,
    scripted::{Script, in_initialize, verdict, verdict_while_running},
};
use ndis_sim::{runtime, sources::SOURCES};
use ndk_abi::ndis::{NDIS_HANDLE, NDIS_STATUS_FAILURE};

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

#[test]
fn reports_end_with_the_pages_of_the_rule_or_say_that_there_are_none() {
    let failed = Script { pause: Some(|_| NDIS_STATUS_FAILURE), ..Script::default() };
    let fails = verdict_while_running(failed, |_| {});
    assert!(fails.contains("MiniportPause failed: 0xc0000001 (source: WDK, MINIPORT_PAUSE)\n"), "{fails}");
    let queued = verdict(in_initialize(|handle| {
        unsafe extern "efiapi" fn nothing(_: *mut c_void, _: NDIS_HANDLE) {}
        let item = runtime::NdisAllocateIoWorkItem(handle);
        runtime::NdisQueueIoWorkItem(item, Some(nothing), 0);
        runtime::NdisFreeIoWorkItem(item);
    }));
    assert!(queued.contains("of a work item that is queued (no source was found)\n"), "{queued}");
    let zero = verdict(in_initialize(|handle| {
        let _ = lists::pool_with(handle, |parameters| parameters.PoolTag = 0);
    }));
    assert!(zero.contains("PoolTag is 0 (no source was looked for)\n"), "{zero}");
}

/// The tables have the same rows, in the same order.
#[test]
fn page_of_the_verifier_has_the_sources_of_the_table() {
    let page = fs::read_to_string(root().join("docs/verifier.md")).expect("the page");
    let (_, rest) = page.split_once("### Pages that state NDIS's rules").expect("the part of the page");
    let (part, _) = rest.split_once("\n### ").expect("the next part");
    let rows: Vec<_> = part.lines().filter(|line| line.starts_with("| ")).skip(2).collect();
    let expected = SOURCES.iter().map(|source| match source.pages {
        Some(pages) => format!("| {} | {pages} |", source.rule),
        None => format!("| none found: {} | {} |", source.rule, source.remark),
    });
    assert_eq!(rows, expected.collect::<Vec<_>>());
}

/// Each part of a report that the table names is in a check.
#[test]
fn sources_are_of_reports_that_exist() {
    let folder = root().join("sim/ndis/src");
    let files = fs::read_dir(folder).expect("the folder").map(|entry| entry.expect("a file").path());
    let code = files.filter(|path| path.is_file() && !path.ends_with("sources.rs"));
    let code: String = code.map(|path| fs::read_to_string(path).expect("a source file")).collect();
    for part in SOURCES.iter().flat_map(|source| source.reports).copied().flatten() {
        // The name of a function can be an argument.
        let [first, last] = [part.split(": ").next(), part.split(": ").last()].map(Option::unwrap_or_default);
        assert!(code.contains(part) || code.contains(first) && code.contains(last), "{part}");
    }
}
