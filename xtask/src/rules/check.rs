// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask rules --check`: each rule of the contract has code of the product and a test that cite it, each proposal a test or
//! a decision, and each section of the other documents code or a test. Exceptions are listed in `xtask/rules.toml` with their reasons.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, fs,
};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use super::{
    document::{self, Evidence, Rules},
    sources::Places,
};
use crate::shell;

const EXCEPTIONS: &str = "xtask/rules.toml";

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Exceptions {
    #[serde(default)]
    except: Vec<Exception>,
    #[serde(default)]
    sections: Vec<Uncited>,
}

/// Sections of a document that nothing cites.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Uncited {
    document: String,
    numbers: Vec<u32>,
    reason: String,
}

/// A rule that code cannot cite, because nothing implements it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Exception {
    rule: String,
    /// No test cites it either: what the rule is about does not arise.
    #[serde(default)]
    tests: bool,
    reason: String,
}

/// Citations that a rule lacks.
#[derive(Debug, PartialEq, Eq)]
enum Fault {
    NoCode(String),
    NoTest(String),
    Undecided(String),
    NotCited(String),
    UselessException(String),
    NoReason(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCode(rule) => write!(f, "{rule}: no code cites it"),
            Self::NoTest(rule) => write!(f, "{rule}: no test cites it"),
            Self::Undecided(rule) => {
                write!(f, "{rule}: no test cites it, and {} has no line on it", document::DECISIONS)
            }
            Self::NotCited(section) => write!(f, "{section}: neither code nor a test cites it"),
            Self::UselessException(rule) => write!(f, "{rule}: {EXCEPTIONS} excepts it without need"),
            Self::NoReason(rule) => write!(f, "{rule}: {EXCEPTIONS} excepts it without a reason"),
        }
    }
}

/// Prints what rules lack, of one area or of all.
///
/// # Errors
/// A rule that lacks something, or a list of exceptions that cannot be read.
pub fn run(rules: &Rules, cited: &BTreeMap<String, Places>, area: Option<&str>) -> Result<()> {
    let text = fs::read_to_string(shell::root().join(EXCEPTIONS))
        .with_context(|| format!("cannot read {EXCEPTIONS}"))?;
    let exceptions: Exceptions =
        toml::from_str(&text).with_context(|| format!("cannot read {EXCEPTIONS}"))?;
    let mut faults = faults(rules, cited, &document::decisions()?, &exceptions.except, area);
    if area.is_none() {
        faults.extend(section_faults(
            &document::sections()?.into_keys().collect(),
            cited,
            &exceptions.sections,
        ));
    }
    for fault in &faults {
        println!("{fault}");
    }
    let sections: usize = exceptions.sections.iter().map(|uncited| uncited.numbers.len()).sum();
    println!("{} rules and {sections} sections are excepted by {EXCEPTIONS}", exceptions.except.len());
    ensure!(faults.is_empty(), "{} rules or sections lack code, a test or a decision", faults.len());
    Ok(())
}

fn faults(
    rules: &Rules,
    cited: &BTreeMap<String, Places>,
    decisions: &BTreeSet<String>,
    exceptions: &[Exception],
    area: Option<&str>,
) -> Vec<Fault> {
    let mut faults = Vec::new();
    let nothing = Places::default();
    let concerns = |rule: &str| area.is_none_or(|area| document::area(rule) == area);
    let exception = |rule: &str| exceptions.iter().find(|except| except.rule == rule);
    for (rule, stated) in rules.iter().filter(|(rule, _)| concerns(rule)) {
        let places = cited.get(rule).unwrap_or(&nothing);
        let (code, tests) = (!places.code.is_empty(), !places.tests.is_empty());
        match stated.evidence() {
            Evidence::Contract => {
                if !code && exception(rule).is_none() {
                    faults.push(Fault::NoCode(rule.clone()));
                }
                if !tests && !exception(rule).is_some_and(|except| except.tests) {
                    faults.push(Fault::NoTest(rule.clone()));
                }
            }
            Evidence::Proposal if !tests && !decisions.contains(rule) => {
                faults.push(Fault::Undecided(rule.clone()));
            }
            Evidence::Proposal => {}
        }
    }
    for Exception { rule, tests, reason } in exceptions.iter().filter(|except| concerns(&except.rule)) {
        let places = cited.get(rule).unwrap_or(&nothing);
        let is_needed = rules.get(rule).is_some_and(|stated| stated.evidence() == Evidence::Contract)
            && places.code.is_empty()
            && (!tests || places.tests.is_empty());
        if !is_needed {
            faults.push(Fault::UselessException(rule.clone()));
        }
        if reason.trim().is_empty() {
            faults.push(Fault::NoReason(rule.clone()));
        }
    }
    faults
}

fn section_faults(
    sections: &BTreeSet<String>,
    cited: &BTreeMap<String, Places>,
    exceptions: &[Uncited],
) -> Vec<Fault> {
    let is_cited = |section: &String| {
        cited.get(section).is_some_and(|places| !places.code.is_empty() || !places.tests.is_empty())
    };
    let name = |document: &str, number: &u32| format!("{document} §{number}");
    let excepted: BTreeSet<String> = exceptions
        .iter()
        .flat_map(|uncited| uncited.numbers.iter().map(|number| name(&uncited.document, number)))
        .collect();
    let needs = |section: &&String| !is_cited(section);
    let missing = sections.iter().filter(needs).filter(|section| !excepted.contains(*section));
    let mut faults: Vec<Fault> = missing.map(|section| Fault::NotCited(section.clone())).collect();
    let useless = excepted.iter().filter(|section| !sections.contains(*section) || is_cited(section));
    faults.extend(useless.map(|section| Fault::UselessException(section.clone())));
    let unreasoned = exceptions.iter().filter(|uncited| uncited.reason.trim().is_empty());
    faults.extend(unreasoned.map(|uncited| Fault::NoReason(uncited.document.clone())));
    faults
}

#[cfg(test)]
mod tests {
    use super::{super::document::Rule, *};

    fn rule(letter: char) -> Rule {
        Rule { letter, text: String::new(), place: String::new() }
    }

    /// The faults of two rules, one of the contract and a proposal.
    fn found(cited: &[(&str, bool, bool)], decided: &[&str], excepted: &[(&str, &str)]) -> Vec<Fault> {
        let rules = [("R-CQ-1", rule('D')), ("R-QP-2", rule('P'))];
        let place = |is_cited: bool| if is_cited { vec!["file.rs:1".to_owned()] } else { Vec::new() };
        let cited = cited
            .iter()
            .map(|&(rule, code, tests)| {
                (rule.to_owned(), Places { code: place(code), tests: place(tests), ..Places::default() })
            })
            .collect();
        let exceptions: Vec<_> = excepted
            .iter()
            .map(|&(rule, reason)| {
                let tests = reason.starts_with("does not arise");
                Exception { rule: rule.to_owned(), tests, reason: reason.to_owned() }
            })
            .collect();
        faults(
            &rules.map(|(number, stated)| (number.to_owned(), stated)).into(),
            &cited,
            &decided.iter().map(|&rule| rule.to_owned()).collect(),
            &exceptions,
            None,
        )
    }

    #[test]
    fn a_rule_of_the_contract_needs_code_and_a_test() {
        let decided = ["R-QP-2"];
        assert_eq!(found(&[("R-CQ-1", true, true)], &decided, &[]), []);
        assert_eq!(found(&[("R-CQ-1", false, true)], &decided, &[]), [Fault::NoCode("R-CQ-1".into())]);
        assert_eq!(found(&[("R-CQ-1", true, false)], &decided, &[]), [Fault::NoTest("R-CQ-1".into())]);
        let both = [Fault::NoCode("R-CQ-1".into()), Fault::NoTest("R-CQ-1".into())];
        assert_eq!(found(&[], &decided, &[]), both);
        // A decision does not replace a test of the contract.
        assert_eq!(found(&[], &["R-QP-2", "R-CQ-1"], &[]), both);
    }

    #[test]
    fn a_proposal_needs_a_test_or_a_decision() {
        let contract = ("R-CQ-1", true, true);
        assert_eq!(found(&[contract, ("R-QP-2", false, true)], &[], &[]), []);
        assert_eq!(found(&[contract], &["R-QP-2"], &[]), []);
        let undecided = [Fault::Undecided("R-QP-2".into())];
        assert_eq!(found(&[contract, ("R-QP-2", true, false)], &[], &[]), undecided);
    }

    #[test]
    fn an_exception_replaces_code_alone_and_needs_a_reason_and_a_use() {
        let decided = ["R-QP-2"];
        let excepted = [("R-CQ-1", "the header says it")];
        assert_eq!(found(&[("R-CQ-1", false, true)], &decided, &excepted), []);
        assert_eq!(found(&[], &decided, &excepted), [Fault::NoTest("R-CQ-1".into())]);
        let absent = [("R-CQ-1", "does not arise")];
        assert_eq!(found(&[], &decided, &absent), []);
        let useless = [Fault::UselessException("R-CQ-1".into())];
        assert_eq!(found(&[("R-CQ-1", false, true)], &decided, &absent), useless);
        assert_eq!(found(&[("R-CQ-1", true, true)], &decided, &excepted), useless);
        let contract = ("R-CQ-1", true, true);
        for rule in ["R-QP-2", "R-MR-9"] {
            let useless = [Fault::UselessException(rule.into())];
            assert_eq!(found(&[contract], &decided, &[(rule, "why")]), useless);
        }
        let unreasoned = [Fault::NoReason("R-CQ-1".into())];
        assert_eq!(found(&[("R-CQ-1", false, true)], &decided, &[("R-CQ-1", " ")]), unreasoned);
    }

    #[test]
    fn a_fault_fails_the_command() {
        let rules = [("R-CQ-1", rule('H'))].map(|(number, stated)| (number.to_owned(), stated));
        assert!(run(&rules.into(), &BTreeMap::new(), None).is_err());
    }

    #[test]
    fn an_area_is_checked_alone() {
        let rules = [("R-CQ-1", rule('S')), ("R-QP-2", rule('C'))];
        let rules = rules.map(|(number, stated)| (number.to_owned(), stated)).into();
        let found = faults(&rules, &BTreeMap::new(), &BTreeSet::new(), &[], Some("QP"));
        assert_eq!(found, [Fault::NoCode("R-QP-2".into()), Fault::NoTest("R-QP-2".into())]);
    }

    #[test]
    fn a_section_needs_code_a_test_or_a_reason() {
        let sections = BTreeSet::from(["rocev2 §1".to_owned(), "rocev2 §18".to_owned()]);
        let place = || vec!["file.rs:1".to_owned()];
        let cited =
            |code, tests, others| BTreeMap::from([("rocev2 §1".to_owned(), Places { code, tests, others })]);
        let sources = |numbers, reason: &str| {
            [Uncited { document: "rocev2".to_owned(), numbers, reason: reason.to_owned() }]
        };
        let code = cited(place(), Vec::new(), Vec::new());
        assert_eq!(section_faults(&sections, &code, &sources(vec![18], "sources")), []);
        let tests = cited(Vec::new(), place(), Vec::new());
        assert_eq!(section_faults(&sections, &tests, &[]), [Fault::NotCited("rocev2 §18".into())]);
        let others = cited(Vec::new(), Vec::new(), place());
        let missing = [Fault::NotCited("rocev2 §1".into())];
        assert_eq!(section_faults(&sections, &others, &sources(vec![18], "sources")), missing);
        let useless = ["rocev2 §1", "rocev2 §19"].map(|section| Fault::UselessException(section.into()));
        assert_eq!(section_faults(&sections, &code, &sources(vec![1, 18, 19], "sources")), useless);
        assert_eq!(
            section_faults(&sections, &code, &sources(vec![18], " ")),
            [Fault::NoReason("rocev2".into())]
        );
    }
}
