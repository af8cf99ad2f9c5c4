// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask rules`: where code and tests cite the rules of `docs/rules`, and which numbered rules they do not cite
//! yet. Checks that citations name rules that exist, and that they stand where they belong; see [`citation`]. With
//! `--check` also that no rule lacks a citation that it needs; see [`check`]. With a rule, a section or a place in a file it
//! prints what the rules say; see [`show`].

mod check;
mod citation;
mod document;
mod show;
mod sources;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};

use self::{
    document::{RULES, Rules, area},
    sources::Places,
};
use crate::shell;

#[derive(clap::Args, Default)]
pub struct Options {
    /// Print what these say and who cites them: a rule (R-AREA-NUMBER), a section ("rocev2 §6"), or the rules that a file cites
    /// (FILE), at or above a line of it (FILE:LINE)
    #[arg(value_name = "RULE|FILE[:LINE]", conflicts_with_all = ["check", "missing", "quiet", "area"])]
    what: Vec<String>,
    /// Fail unless each rule has the code, the test or the decision that it needs
    #[arg(long)]
    check: bool,
    /// Also list the rules that are not cited
    #[arg(long)]
    missing: bool,
    /// Print only the totals
    #[arg(long)]
    quiet: bool,
    /// Only rules of this area, for example CQ
    #[arg(long, value_name = "AREA")]
    area: Option<String>,
}

/// Lists rules with the places that cite them.
///
/// # Errors
/// An area that does not exist, a citation of a rule that does not exist, or one that is misplaced; with `--check` a
/// rule that lacks something.
pub fn run(options: &Options) -> Result<()> {
    let rules = document::rules()?;
    let wanted = options.area.as_deref().map(|wanted| known_area(&rules, wanted)).transpose()?;
    let sources = sources::read()?;
    if !options.what.is_empty() {
        return show::run(&rules, &sources, &options.what);
    }
    let is_quiet = options.quiet || options.check;
    let (mut all, mut code, mut tests, mut both) = (0, 0, 0, 0);
    for rule in rules.keys().filter(|rule| wanted.as_deref().is_none_or(|wanted| area(rule) == wanted)) {
        all += 1;
        match sources.cited.get(rule) {
            Some(places) => {
                code += usize::from(!places.code.is_empty());
                tests += usize::from(!places.tests.is_empty());
                both += usize::from(!places.code.is_empty() && !places.tests.is_empty());
                if !is_quiet {
                    println!("{rule:<12} code: {}  tests: {}", list(&places.code), list(&places.tests));
                }
            }
            None if options.missing => println!("{rule:<12} -"),
            None => {}
        }
    }
    println!("{all} rules: {code} cited in code of the product, {tests} in tests, {both} in both");
    refuse_unknown(&rules, &sources.cited)?;
    for fault in &sources.faults {
        println!("{fault}");
    }
    ensure!(sources.faults.is_empty(), "{} citations are misplaced", sources.faults.len());
    if options.check {
        check::run(&rules, &sources.cited, wanted.as_deref())?;
    }
    Ok(())
}

/// Prints the totals only, and checks all citations and that none is missing.
///
/// # Errors
/// As [`run`].
pub fn summary() -> Result<()> {
    run(&Options { check: true, ..Options::default() })
}

/// The area that the user names, in any case.
fn known_area(rules: &Rules, wanted: &str) -> Result<String> {
    let areas: BTreeSet<&str> = rules.keys().map(|rule| area(rule)).collect();
    let wanted = wanted.to_ascii_uppercase();
    if areas.contains(wanted.as_str()) {
        return Ok(wanted);
    }
    let areas: Vec<&str> = areas.into_iter().collect();
    Err(shell::Exit::usage(format!(
        "no rule of {} is in area {wanted}; there are {}",
        RULES.join(" and "),
        areas.join(", ")
    )))
}

fn refuse_unknown(rules: &Rules, cited: &BTreeMap<String, Places>) -> Result<()> {
    let sections = document::sections()?;
    let unknown: Vec<&String> =
        cited.keys().filter(|rule| !rules.contains_key(*rule) && !sections.contains_key(*rule)).collect();
    for rule in &unknown {
        let Places { code, tests, others } = &cited[*rule];
        let places = [code.join(" "), tests.join(" "), others.join(" ")].join(" ");
        println!("{rule} is cited in {places}, but docs/rules has no such rule");
    }
    ensure!(unknown.is_empty(), "{} citations of rules that do not exist", unknown.len());
    Ok(())
}

fn list(places: &[String]) -> String {
    if places.is_empty() { "-".into() } else { places.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::{document::Rule, *};

    #[test]
    fn an_area_is_found_in_any_case_and_an_unknown_one_is_refused_with_the_list() {
        let rules = ["R-CQ-7", "R-QP-1"]
            .map(|rule| (rule.to_owned(), Rule { letter: 'D', text: String::new(), place: String::new() }))
            .into();
        assert_eq!(known_area(&rules, "cq").unwrap(), "CQ");
        let error = known_area(&rules, "nope").unwrap_err();
        assert!(error.to_string().ends_with("there are CQ, QP"));
        assert_eq!(shell::exit_code(&error), 2);
    }
}
