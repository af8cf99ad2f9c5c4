//! The engine in the place of either side of every capture.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use captures::{
    file::{self, Captured},
    replay::{self, Difference, Report, SCRIPTS},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

static REPORT: LazyLock<Report> =
    LazyLock::new(|| Report::of(&root().join("crates/roce-wire/tests/vectors/rxe"), "").unwrap());

#[test]
fn the_engine_says_what_linux_said_or_there_is_a_reason() {
    let unexplained: Vec<String> = REPORT
        .unexplained()
        .iter()
        .map(|(side, found)| format!("{} {}: {found}", side.capture, ["a", "b"][side.side]))
        .collect();
    assert!(unexplained.is_empty(), "{}", unexplained.join("\n"));
    assert_eq!(REPORT.captures(), 55);
}

#[test]
fn every_reason_is_still_needed() {
    assert_eq!(REPORT.idle_reasons(), [""; 0]);
}

#[test]
fn every_difference_is_known() {
    let mut detailed = Report::of(&root().join("crates/roce-wire/tests/vectors/rxe"), "").unwrap();
    detailed.detailed = true;
    insta::assert_snapshot!(detailed.to_string());
}

#[test]
fn the_book_has_the_report() {
    let book = fs::read_to_string(root().join("docs/replay.md")).unwrap_or_default();
    assert!(
        book == REPORT.markdown(),
        "`cargo xtask replay --markdown > docs/replay.md` writes another page"
    );
}

/// The differences of both sides of rping's capture after `change` was done to its frames.
fn after(change: impl Fn(&mut Vec<Captured>)) -> Vec<Difference> {
    let directory = root().join("crates/roce-wire/tests/vectors/rxe");
    let mut frames = file::read(&directory.join("rping_v4.pcap")).unwrap();
    change(&mut frames);
    let played = replay::play_frames(&frames, &SCRIPTS[0]).unwrap();
    played.into_iter().flat_map(|side| side.differences).collect()
}

/// Where the BTH begins.
const BTH: usize = 14 + 20 + 8;
const ACKNOWLEDGE: u8 = 0x11;

fn acknowledgements(frames: &mut [Captured]) -> impl Iterator<Item = &mut Captured> {
    frames.iter_mut().filter(|frame| frame.data.get(BTH) == Some(&ACKNOWLEDGE))
}

#[test]
fn a_host_that_said_something_else_is_noticed() {
    assert_eq!(after(|_| ()), []);
    let msn = after(|frames| acknowledgements(frames).next().unwrap().data[BTH + 15] ^= 1);
    assert!(matches!(&msn[..], [Difference::Changed { fields, .. }] if fields == &["msn"]), "{msn:?}");
    let silent = after(|frames| {
        let last = frames.iter().rposition(|frame| frame.data.get(BTH) == Some(&ACKNOWLEDGE)).unwrap();
        frames.remove(last);
    });
    assert!(silent.iter().any(|found| matches!(found, Difference::Extra(_))), "{silent:?}");
}
