// SPDX-License-Identifier: MIT OR Apache-2.0

//! Replays every capture with the engine in place of either side.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use captures::{
    file::{self, Captured},
    replay::{self, Difference, Report, SETUPS},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

static REPORT: LazyLock<Report> =
    LazyLock::new(|| Report::of(&root().join("crates/roce-wire/tests/vectors/rxe"), "").unwrap());

#[test]
fn every_difference_from_linux_has_a_reason() {
    let unexplained: Vec<String> = REPORT
        .unexplained()
        .iter()
        .map(|(side, found)| format!("{} {}: {found}", side.capture, ["a", "b"][side.side]))
        .collect();
    assert!(unexplained.is_empty(), "{}", unexplained.join("\n"));
    assert_eq!(REPORT.captures(), 55);
}

#[test]
fn every_reason_covers_a_difference() {
    assert_eq!(REPORT.unused_reasons(), [""; 0]);
}

#[test]
fn differences_are_those_of_the_snapshot() {
    let mut detailed = Report::of(&root().join("crates/roce-wire/tests/vectors/rxe"), "").unwrap();
    detailed.detailed = true;
    insta::assert_snapshot!(detailed.to_string());
}

#[test]
fn page_in_docs_is_up_to_date() {
    let page = fs::read_to_string(root().join("docs/replay.md")).unwrap_or_default();
    assert!(
        page == REPORT.markdown(),
        "`cargo xtask replay --markdown > docs/replay.md` writes another page"
    );
}

/// Returns the differences of both sides of the capture of rping after `change`.
fn differences_after(change: impl Fn(&mut Vec<Captured>)) -> Vec<Difference> {
    let directory = root().join("crates/roce-wire/tests/vectors/rxe");
    let mut frames = file::read(&directory.join("rping_v4.pcap")).unwrap();
    change(&mut frames);
    let results = replay::play_frames(&frames, &SETUPS[0]).unwrap();
    results.into_iter().flat_map(|side| side.differences).collect()
}

/// Offset of the BTH.
const BTH: usize = 14 + 20 + 8;
const ACKNOWLEDGE: u8 = 0x11;

fn acknowledgements(frames: &mut [Captured]) -> impl Iterator<Item = &mut Captured> {
    frames.iter_mut().filter(|frame| frame.data.get(BTH) == Some(&ACKNOWLEDGE))
}

#[test]
fn changed_frames_of_the_host_are_differences() {
    assert_eq!(differences_after(|_| ()), []);
    let msn = differences_after(|frames| acknowledgements(frames).next().unwrap().data[BTH + 15] ^= 1);
    assert!(matches!(&msn[..], [Difference::Changed { fields, .. }] if fields == &["msn"]), "{msn:?}");
    let silent = differences_after(|frames| {
        let last = frames.iter().rposition(|frame| frame.data.get(BTH) == Some(&ACKNOWLEDGE)).unwrap();
        frames.remove(last);
    });
    assert!(silent.iter().any(|found| matches!(found, Difference::Extra(_))), "{silent:?}");
}
