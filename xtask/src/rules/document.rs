// SPDX-License-Identifier: MIT OR Apache-2.0

//! The rules of NDKPI and of SMB Direct as the documents list them, and the decisions on proposals in `docs/decisions.md`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use anyhow::{Context as _, Result};

use super::citation;
use crate::shell;

/// The documents whose rules have numbers of their own.
pub const RULES: [&str; 2] = ["docs/rules/ndkpi.md", "docs/rules/smbd.md"];

/// The document that decides on the rules with the letter P.
pub const DECISIONS: &str = "docs/decisions.md";

/// Evidence of a rule, by the letter that the document gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// D, H, S or C: the contract.
    Contract,
    /// P: a proposal of this project.
    Proposal,
}

/// A rule as its document states it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// D, H, S, C or P.
    pub letter: char,
    /// The text behind the letter: what has to hold, how to detect it, where it comes from.
    pub text: String,
    /// File and line.
    pub place: String,
}

impl Rule {
    /// Returns what the rule needs.
    pub const fn evidence(&self) -> Evidence {
        if self.letter == 'P' { Evidence::Proposal } else { Evidence::Contract }
    }

    /// Returns what the letter stands for.
    pub const fn level(&self) -> &'static str {
        match self.letter {
            'D' => "documented",
            'H' => "follows from the headers",
            'S' => "of the sister interface NDSPI",
            'C' => "a known consumer or peer depends on it",
            _ => "proposal of this project",
        }
    }
}

/// The rules by number.
pub type Rules = BTreeMap<String, Rule>;

/// Documents that are cited by section, by the name that citations use.
pub const DOCUMENTS: [(&str, &str); 3] = [
    ("rocev2", "docs/rules/rocev2.md"),
    ("virtio", "docs/rules/virtio-net.md"),
    ("windows", "docs/rules/windows.md"),
];

/// Reads the sections of [`DOCUMENTS`]: by name and number as citations write them, title and place.
///
/// # Errors
/// A document that cannot be read.
pub fn sections() -> Result<BTreeMap<String, Section>> {
    let mut sections = BTreeMap::new();
    for (name, path) in DOCUMENTS {
        for (index, line) in read(path)?.lines().enumerate() {
            if let Some((number, title)) = line.strip_prefix("## ").and_then(|line| line.split_once(". ")) {
                let place = format!("{path}:{}", index + 1);
                sections.insert(format!("{name} §{number}"), Section { title: title.to_owned(), place });
            }
        }
    }
    Ok(sections)
}

/// A section of a document.
pub struct Section {
    pub title: String,
    /// File and line of its heading.
    pub place: String,
}

/// Reads the rules.
///
/// # Errors
/// A document that cannot be read, or a rule without a known letter.
pub fn rules() -> Result<Rules> {
    let mut rules = Rules::new();
    for document in RULES {
        add_rules(document, &read(document)?, &mut rules)?;
    }
    Ok(rules)
}

/// Reads the rules on which the document of decisions has a line.
///
/// # Errors
/// A document that cannot be read.
pub fn decisions() -> Result<BTreeSet<String>> {
    Ok(parse_decisions(&read(DECISIONS)?))
}

/// The part of a rule's number that names its area, for example CQ.
pub fn area(rule: &str) -> &str {
    rule.split('-').nth(1).unwrap_or_default()
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(shell::root().join(path)).with_context(|| format!("cannot read {path}"))
}

/// Rules are list items: a number in bold type, and a letter in brackets.
fn add_rules(document: &str, text: &str, rules: &mut Rules) -> Result<()> {
    for (index, line) in text.lines().enumerate() {
        let Some((rule, rest)) = line.strip_prefix("- **").and_then(|line| line.split_once("**")) else {
            continue;
        };
        if !citation::is_rule(rule) {
            continue;
        }
        let (letter, text) = match rest.get(..4) {
            Some(" [D]") => ('D', &rest[4..]),
            Some(" [H]") => ('H', &rest[4..]),
            Some(" [S]") => ('S', &rest[4..]),
            Some(" [C]") => ('C', &rest[4..]),
            Some(" [P]") => ('P', &rest[4..]),
            _ => anyhow::bail!("{document}: {rule} has no letter of D, H, S, C and P"),
        };
        let stated =
            Rule { letter, text: text.trim().to_owned(), place: format!("{document}:{}", index + 1) };
        anyhow::ensure!(rules.insert(rule.to_owned(), stated).is_none(), "{document}: {rule} is there twice");
    }
    Ok(())
}

/// Decisions are table rows that begin with a rule's number.
fn parse_decisions(text: &str) -> BTreeSet<String> {
    let rule = |line: &str| line.strip_prefix("| ")?.split_once(' ').map(|(rule, _)| rule.to_owned());
    text.lines().filter_map(rule).filter(|rule| citation::is_rule(rule)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_rules(text: &str) -> Result<Rules> {
        let mut rules = Rules::new();
        add_rules("document", text, &mut rules)?;
        Ok(rules)
    }

    #[test]
    fn rules_are_list_items_with_a_letter() {
        let rules =
            parse_rules("- **R-CQ-7** [D] text R-CQ-8\n- **R-QP-1** [P] text\ntext R-MR-1\n").unwrap();
        let found: Vec<_> = rules.iter().map(|(rule, stated)| (rule.as_str(), stated.evidence())).collect();
        assert_eq!(found, [("R-CQ-7", Evidence::Contract), ("R-QP-1", Evidence::Proposal)]);
        assert_eq!(
            (rules["R-CQ-7"].text.as_str(), rules["R-CQ-7"].place.as_str()),
            ("text R-CQ-8", "document:1")
        );
        assert!(parse_rules("- **R-CQ-7** [X] text\n").is_err());
        assert!(parse_rules("- **R-CQ-7** [D] text\n- **R-CQ-7** [D] text\n").is_err());
    }

    #[test]
    fn sections_are_headings_with_a_number() {
        let sections = sections().unwrap();
        assert_eq!(sections["rocev2 §6"].title, "Responder");
        assert!(sections["virtio §5"].place.starts_with("docs/rules/virtio-net.md:"));
    }

    #[test]
    fn decisions_are_rows_of_tables() {
        let text = "| R-CQ-7 | kept | why |\ntext R-QP-1\n| rule | | R-MR-1 |\n";
        assert_eq!(parse_decisions(text), BTreeSet::from(["R-CQ-7".to_owned()]));
    }

    /// The table of counts in each document is the sum of its rules.
    #[test]
    fn each_document_counts_its_rules() {
        for document in RULES {
            let text = read(document).unwrap();
            let rules = parse_rules(&text).unwrap();
            let proposals = rules.values().filter(|rule| rule.evidence() == Evidence::Proposal).count();
            let total = text.lines().find(|line| line.starts_with("| **total**")).unwrap();
            let cells: Vec<&str> = total.split('|').map(|cell| cell.trim_matches([' ', '*'])).collect();
            assert_eq!(cells[2], rules.len().to_string(), "{document}");
            assert_eq!(cells[7], proposals.to_string(), "{document}");
        }
    }

    #[test]
    fn no_rule_is_in_two_documents() {
        let mut rules = parse_rules("- **R-CQ-7** [D] text\n").unwrap();
        assert!(add_rules("another", "- **R-CQ-7** [D] text\n", &mut rules).is_err());
        assert!(add_rules("another", "- **R-SMBD-7** [D] text\n", &mut rules).is_ok());
    }

    #[test]
    fn every_proposal_has_a_decision() {
        let rules = rules().unwrap();
        let proposals = rules.iter().filter(|(_, rule)| rule.evidence() == Evidence::Proposal);
        assert_eq!(decisions().unwrap(), proposals.map(|(rule, _)| rule.clone()).collect());
    }
}
