//! The engine in the place of either side of every capture.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use captures::replay::Report;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

static REPORT: LazyLock<Report> =
    LazyLock::new(|| Report::of(&root().join("crates/roce/tests/vectors/rxe"), "").unwrap());

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
    let mut detailed = Report::of(&root().join("crates/roce/tests/vectors/rxe"), "").unwrap();
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
