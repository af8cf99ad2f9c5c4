// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask rules`: where code and tests cite the rules of `docs/rules`, and which rules of NDKPI they do not cite
//! yet. Checks that citations name rules that exist, and that they stand where they belong; see [`citation`].

mod citation;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::{Context as _, Result, ensure};

use self::citation::Citation;
use crate::shell;

/// The document whose rules have numbers of their own.
const RULES: &str = "docs/rules/ndkpi.md";

/// Documents that are cited by section, by the name that citations use.
const DOCUMENTS: [(&str, &str); 3] = [
    ("rocev2", "docs/rules/rocev2.md"),
    ("virtio", "docs/rules/virtio-net.md"),
    ("windows", "docs/rules/windows.md"),
];

const SOURCES: [&str; 7] = ["crates", "fuzz", "lab/src", "sim", "src", "tests", "xtask/src"];

#[derive(clap::Args, Default)]
pub struct Options {
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

/// The places that cite a rule.
#[derive(Default)]
struct Places {
    code: Vec<String>,
    tests: Vec<String>,
}

/// The sources as this command reads them.
#[derive(Default)]
struct Sources {
    cited: BTreeMap<String, Places>,
    /// Sentences about citations that are misplaced or malformed.
    faults: Vec<String>,
}

/// Lists rules with the places that cite them.
///
/// # Errors
/// An area that does not exist, a citation of a rule that does not exist, or one that is misplaced.
pub fn run(options: &Options) -> Result<()> {
    let text =
        fs::read_to_string(shell::root().join(RULES)).with_context(|| format!("cannot read {RULES}"))?;
    let rules = rules(&text);
    let wanted = options.area.as_deref().map(|wanted| known_area(&rules, wanted)).transpose()?;
    let mut sources = Sources::default();
    for directory in SOURCES {
        read(&shell::root().join(directory), &mut sources)?;
    }
    let (mut all, mut code, mut tests, mut both) = (0, 0, 0, 0);
    for rule in rules.iter().filter(|rule| wanted.as_deref().is_none_or(|wanted| area(rule) == wanted)) {
        all += 1;
        match sources.cited.get(rule) {
            Some(places) => {
                code += usize::from(!places.code.is_empty());
                tests += usize::from(!places.tests.is_empty());
                both += usize::from(!places.code.is_empty() && !places.tests.is_empty());
                if !options.quiet {
                    println!("{rule:<12} code: {}  tests: {}", list(&places.code), list(&places.tests));
                }
            }
            None if options.missing => println!("{rule:<12} -"),
            None => {}
        }
    }
    println!("{all} rules: {code} cited in code, {tests} in tests, {both} in both");
    refuse_unknown(&rules, &sources.cited)?;
    for fault in &sources.faults {
        println!("{fault}");
    }
    ensure!(sources.faults.is_empty(), "{} citations are misplaced", sources.faults.len());
    Ok(())
}

/// Prints the totals only, and checks all citations.
///
/// # Errors
/// As [`run`].
pub fn summary() -> Result<()> {
    run(&Options { quiet: true, ..Options::default() })
}

/// The area that the user names, in any case.
fn known_area(rules: &BTreeSet<String>, wanted: &str) -> Result<String> {
    let areas: BTreeSet<&str> = rules.iter().map(|rule| area(rule)).collect();
    let wanted = wanted.to_ascii_uppercase();
    if areas.contains(wanted.as_str()) {
        return Ok(wanted);
    }
    let areas: Vec<&str> = areas.into_iter().collect();
    Err(shell::Exit::usage(format!("no rule of {RULES} is in area {wanted}; there are {}", areas.join(", "))))
}

fn refuse_unknown(rules: &BTreeSet<String>, cited: &BTreeMap<String, Places>) -> Result<()> {
    let mut sections = BTreeSet::new();
    for (name, path) in DOCUMENTS {
        let text =
            fs::read_to_string(shell::root().join(path)).with_context(|| format!("cannot read {path}"))?;
        let numbers = text.lines().filter_map(|line| line.strip_prefix("## ")?.split_once(". "));
        sections.extend(numbers.map(|(number, _)| format!("{name} §{number}")));
    }
    let unknown: Vec<&String> =
        cited.keys().filter(|rule| !rules.contains(*rule) && !sections.contains(*rule)).collect();
    for rule in &unknown {
        let Places { code, tests } = &cited[*rule];
        println!(
            "{rule} is cited in {} {}, but docs/rules has no such rule",
            code.join(" "),
            tests.join(" ")
        );
    }
    ensure!(unknown.is_empty(), "{} citations of rules that do not exist", unknown.len());
    Ok(())
}

fn list(places: &[String]) -> String {
    if places.is_empty() { "-".into() } else { places.join(" ") }
}

/// The rules of the document: list items and table rows that begin with a rule's number.
fn rules(text: &str) -> BTreeSet<String> {
    let start = |line: &str| {
        let rest = line.trim_start_matches(['|', '*', '-', ' ', '`']);
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).unwrap_or(rest.len());
        citation::is_rule(&rest[..end]).then(|| rest[..end].to_owned())
    };
    text.lines().filter_map(start).collect()
}

/// The part of a rule's number that names its area, for example CQ.
fn area(rule: &str) -> &str {
    rule.split('-').nth(1).unwrap_or_default()
}

/// Reads the source files of a directory.
fn read(path: &Path, sources: &mut Sources) -> Result<()> {
    if path.is_dir() {
        for entry in fs::read_dir(path)? {
            read(&entry?.path(), sources)?;
        }
        return Ok(());
    }
    if path.extension().is_none_or(|extension| extension != "rs") {
        return Ok(());
    }
    let text = fs::read_to_string(path)?;
    let name = path.strip_prefix(shell::root()).unwrap_or(path).display().to_string();
    let only_tests = path.components().any(|part| part.as_os_str() == "tests") || name.ends_with("tests.rs");
    // A module of unit tests is at the end of its file.
    let tests_from = text.lines().position(|line| line.trim() == "#[cfg(test)]").unwrap_or(usize::MAX);
    let (citations, faults) = citation::read(&text);
    for Citation { rule, line } in citations {
        let places = sources.cited.entry(rule).or_default();
        let list = if only_tests || line > tests_from { &mut places.tests } else { &mut places.code };
        list.push(format!("{name}:{line}"));
    }
    sources.faults.extend(faults.into_iter().map(|(line, fault)| format!("{name}:{line}: {fault}")));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_from_list_items_and_tables() {
        let text = "- **R-CQ-7** (D) text R-CQ-8\n| R-QP-1 | text |\ntext R-MR-1\n";
        assert_eq!(rules(text), BTreeSet::from(["R-CQ-7".to_owned(), "R-QP-1".to_owned()]));
    }

    #[test]
    fn the_document_has_its_640_rules() {
        let text = fs::read_to_string(shell::root().join(RULES)).unwrap();
        assert_eq!(rules(&text).len(), 640);
    }

    #[test]
    fn every_proposal_has_a_decision() {
        let read = |path| fs::read_to_string(shell::root().join(path)).unwrap();
        let (text, decisions) = (read(RULES), read("docs/decisions.md"));
        let rule =
            |line: &str| line.split(['*', ' ']).find(|word| citation::is_rule(word)).map(str::to_owned);
        let proposals: BTreeSet<_> =
            text.lines().filter(|line| line.contains("** [P] ")).filter_map(rule).collect();
        let decided = decisions.lines().filter(|line| line.starts_with("| R-")).filter_map(rule);
        assert_eq!(decided.collect::<BTreeSet<_>>(), proposals);
    }

    #[test]
    fn an_area_is_found_in_any_case_and_an_unknown_one_is_refused_with_the_list() {
        let rules = BTreeSet::from(["R-CQ-7".to_owned(), "R-QP-1".to_owned()]);
        assert_eq!(known_area(&rules, "cq").unwrap(), "CQ");
        let error = known_area(&rules, "nope").unwrap_err();
        assert!(error.to_string().ends_with("there are CQ, QP"));
        assert_eq!(shell::exit_code(&error), 2);
    }
}
