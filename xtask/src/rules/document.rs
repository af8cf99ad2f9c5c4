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

/// The rules by number.
pub type Rules = BTreeMap<String, Evidence>;

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
    for line in text.lines() {
        let Some((rule, rest)) = line.strip_prefix("- **").and_then(|line| line.split_once("**")) else {
            continue;
        };
        if !citation::is_rule(rule) {
            continue;
        }
        let evidence = match rest.get(..4) {
            Some(" [D]" | " [H]" | " [S]" | " [C]") => Evidence::Contract,
            Some(" [P]") => Evidence::Proposal,
            _ => anyhow::bail!("{document}: {rule} has no letter of D, H, S, C and P"),
        };
        anyhow::ensure!(
            rules.insert(rule.to_owned(), evidence).is_none(),
            "{document}: {rule} is there twice"
        );
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
        let expected = [("R-CQ-7", Evidence::Contract), ("R-QP-1", Evidence::Proposal)];
        assert_eq!(rules, expected.map(|(rule, evidence)| (rule.to_owned(), evidence)).into());
        assert!(parse_rules("- **R-CQ-7** [X] text\n").is_err());
        assert!(parse_rules("- **R-CQ-7** [D] text\n- **R-CQ-7** [D] text\n").is_err());
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
            let proposals = rules.values().filter(|&&evidence| evidence == Evidence::Proposal).count();
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
        let proposals = rules.iter().filter(|(_, evidence)| **evidence == Evidence::Proposal);
        assert_eq!(decisions().unwrap(), proposals.map(|(rule, _)| rule.clone()).collect());
    }
}
