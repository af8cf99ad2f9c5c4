//! `cargo xtask rules`: which rules of `docs/rules/ndkpi.md` code and tests name, and which they do not yet.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::{Context as _, Result};

use crate::shell;

const RULES: &str = "docs/rules/ndkpi.md";
const SOURCES: [&str; 6] = ["crates", "lab/src", "sim", "src", "tests", "xtask/src"];

#[derive(clap::Args, Default)]
pub struct Options {
    /// Also list the rules that nothing names
    #[arg(long)]
    missing: bool,
    /// Print only the totals
    #[arg(long)]
    quiet: bool,
    /// Only rules of this area, for example CQ
    #[arg(long, value_name = "AREA")]
    area: Option<String>,
}

/// Where a rule is named.
#[derive(Default)]
struct Citations {
    code: Vec<String>,
    tests: Vec<String>,
}

pub fn run(options: &Options) -> Result<()> {
    let rules = rules(
        &fs::read_to_string(shell::root().join(RULES)).with_context(|| format!("cannot read {RULES}"))?,
    );
    let mut cited = BTreeMap::<String, Citations>::new();
    for directory in SOURCES {
        visit(&shell::root().join(directory), &mut cited)?;
    }
    let (mut code, mut tests, mut both) = (0, 0, 0);
    for rule in rules.iter().filter(|rule| options.area.as_deref().is_none_or(|wanted| area(rule) == wanted))
    {
        match cited.get(rule) {
            Some(citations) => {
                code += usize::from(!citations.code.is_empty());
                tests += usize::from(!citations.tests.is_empty());
                both += usize::from(!citations.code.is_empty() && !citations.tests.is_empty());
                if !options.quiet {
                    println!("{rule:<12} code: {}  tests: {}", list(&citations.code), list(&citations.tests));
                }
            }
            None if options.missing => println!("{rule:<12} -"),
            None => {}
        }
    }
    println!("{} rules: {code} named in code, {tests} in tests, {both} in both", rules.len());
    refuse_unknown(&rules, &cited)
}

/// Prints the totals only. An error if something cites a rule that does not exist.
pub fn summary() -> Result<()> {
    run(&Options { quiet: true, ..Options::default() })
}

fn refuse_unknown(rules: &BTreeSet<String>, cited: &BTreeMap<String, Citations>) -> Result<()> {
    let unknown: Vec<&String> = cited.keys().filter(|rule| !rules.contains(*rule)).collect();
    for rule in &unknown {
        let Citations { code, tests } = &cited[*rule];
        println!("{rule} is named in {}{}, but is no rule", code.join(" "), tests.join(" "));
    }
    anyhow::ensure!(unknown.is_empty(), "{} citations of rules that do not exist", unknown.len());
    Ok(())
}

fn list(places: &[String]) -> String {
    if places.is_empty() { "-".into() } else { places.join(" ") }
}

/// The rules of the document: what stands between bars or stars at the beginning of a line.
fn rules(text: &str) -> BTreeSet<String> {
    let start = |line: &str| {
        let rest = line.trim_start_matches(['|', '*', '-', ' ', '`']);
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).unwrap_or(rest.len());
        is_rule(&rest[..end]).then(|| rest[..end].to_owned())
    };
    text.lines().filter_map(start).collect()
}

/// `R-`, an area in capitals, a number.
fn is_rule(text: &str) -> bool {
    let mut parts = text.split('-');
    let (kind, area, number) = (parts.next(), parts.next(), parts.next());
    kind == Some("R")
        && area.is_some_and(|a| !a.is_empty() && a.chars().all(|c| c.is_ascii_uppercase()))
        && number.is_some_and(|n| !n.is_empty() && n.chars().all(|c| c.is_ascii_digit()))
        && parts.next().is_none()
}

fn area(rule: &str) -> &str {
    rule.split('-').nth(1).unwrap_or_default()
}

fn visit(path: &Path, cited: &mut BTreeMap<String, Citations>) -> Result<()> {
    if path.is_dir() {
        for entry in fs::read_dir(path)? {
            visit(&entry?.path(), cited)?;
        }
        return Ok(());
    }
    if path.extension().is_none_or(|extension| extension != "rs") {
        return Ok(());
    }
    let text = fs::read_to_string(path)?;
    let name = path.strip_prefix(shell::root()).unwrap_or(path).display().to_string();
    let whole_file = path.components().any(|part| part.as_os_str() == "tests") || name.ends_with("tests.rs");
    let mut inside_tests = whole_file;
    for (number, line) in text.lines().enumerate() {
        // A module of unit tests stands at the end of its file.
        inside_tests |= line.trim() == "#[cfg(test)]";
        let Some((_, citation)) = line.split_once("//= ") else { continue };
        for rule in
            citation.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').filter(|word| is_rule(word))
        {
            let citations = cited.entry(rule.to_owned()).or_default();
            let list = if inside_tests { &mut citations.tests } else { &mut citations.code };
            list.push(format!("{name}:{}", number + 1));
        }
    }
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
    fn the_document_has_its_618_rules() {
        let text = fs::read_to_string(shell::root().join(RULES)).unwrap();
        assert_eq!(rules(&text).len(), 618);
    }
}
