// SPDX-License-Identifier: MIT OR Apache-2.0

//! The command line of `cargo xtask`: what is refused, with which exit code, before anything is built.

use assert_cmd::Command;
use predicates::{
    prelude::*,
    str::{contains, is_empty},
};

fn xtask(arguments: &[&str]) -> Command {
    let mut command = Command::cargo_bin("xtask").unwrap();
    command.args(arguments);
    command
}

/// The arguments must be refused with one line on standard error.
fn refuses(arguments: &[&str], reason: &str) {
    let one_line = predicate::function(|text: &str| text.lines().count() == 1);
    xtask(arguments).assert().code(2).stdout(is_empty()).stderr(contains(reason).and(one_line));
}

#[test]
fn mistyped_commands_get_a_suggestion_and_the_usage() {
    xtask(&["tset"]).assert().code(2).stderr(contains("'test'").and(contains("Usage: cargo xtask")));
    xtask(&[]).assert().code(2).stderr(contains("Usage: cargo xtask"));
}

#[test]
fn names_that_do_not_exist_are_refused_with_those_that_do() {
    refuses(&["test", "--only", "typo"], "the steps are: formatting, ");
    refuses(&["rules", "--area", "xyz"], "there are CLOSE, CONN, CONSUMER, CQ, ");
    xtask(&["rules", "--area", "cq"]).assert().success().stdout(contains("R-CQ-7"));
}

#[test]
fn inputs_that_do_not_exist_are_refused_before_anything_is_built() {
    refuses(&["fuzz", "frames", "--input", "/no/such/input"], "there is no file /no/such/input");
    refuses(&["fuzz", "--minutes", "0"], "less than a second");
    refuses(&["image", "--check", "--image", "/no/such.sys"], "cannot read /no/such.sys");
}

#[test]
fn packages_that_cannot_be_read_or_signed_are_refused_before_anything_is_built() {
    refuses(&["package", "--verify", "/no/such.zip"], "cannot read /no/such.zip");
    refuses(&["package", "--verify", "Cargo.toml"], "no zip file");
    // Not on a checkout with changes, which is refused first.
    let reason = contains("cannot read the key /no/such.pem").or(contains("a package is made of a commit"));
    xtask(&["package", "--sign", "/no/such.pem"]).assert().code(2).stdout(is_empty()).stderr(reason);
}

#[test]
fn rules_are_checked_by_area() {
    let checked = contains("29 rules: ").and(contains("are excepted"));
    xtask(&["rules", "--check", "--area", "oidndk"]).assert().success().stdout(checked);
}

#[test]
fn rules_are_shown_by_number_and_by_place() {
    let shown =
        contains("R-CQ-7 [D] documented").and(contains("Source: ndk_fn_arm_cq.")).and(contains("tests"));
    xtask(&["rules", "r-cq-7"]).assert().success().stdout(shown);
    xtask(&["rules", "crates/roce/src/cq.rs"]).assert().success().stdout(contains("R-CQ-8 [D]"));
    refuses(&["rules", "nix"], "nor a file");
}
