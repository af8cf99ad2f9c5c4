// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask rules RULE` and `cargo xtask rules FILE[:LINE]`: what rules say, and where code and tests cite them.

use anyhow::Result;

use super::{
    document::{self, Rules},
    sources::{Places, Sources},
};
use crate::shell::{self, Exit};

/// The longest line of a rule's text.
const WIDTH: usize = 100;

/// Prints each rule or section that `wanted` names, and those that files cite.
///
/// # Errors
/// A rule or file that does not exist, or that cites none.
pub fn run(rules: &Rules, sources: &Sources, wanted: &[String]) -> Result<()> {
    let sections = document::sections()?;
    for wanted in wanted {
        let name = wanted.to_uppercase();
        if rules.contains_key(&name) || sections.contains_key(wanted) {
            let name = if rules.contains_key(&name) { &name } else { wanted };
            println!("{}", statement(rules, &sections, name));
            println!("{}", places(sources.cited.get(name)));
            continue;
        }
        let (file, cited) = in_file(sources, wanted).ok_or_else(|| unknown(wanted))?;
        for (line, rule) in cited {
            println!("{file}:{line}\n{}", statement(rules, &sections, rule));
        }
    }
    Ok(())
}

fn unknown(wanted: &str) -> anyhow::Error {
    let file = wanted.split(':').next().unwrap_or_default();
    if shell::root().join(file).is_file() {
        Exit::usage(format!("{wanted} cites no rule"))
    } else {
        Exit::usage(format!(
            "{wanted} is neither a rule (such as R-CQ-7), a section (\"rocev2 §6\") nor a file"
        ))
    }
}

/// Returns number, level, source and text of a rule, or the title of a section.
fn statement(
    rules: &Rules,
    sections: &std::collections::BTreeMap<String, document::Section>,
    name: &str,
) -> String {
    if let Some(rule) = rules.get(name) {
        let parts = rule.text.replace(" *Detect:* ", "\nDetect: ").replace(" *Src:* ", "\nSource: ");
        let lines: Vec<String> = parts.lines().flat_map(wrapped).collect();
        return format!("{name} [{}] {}, {}\n{}\n", rule.letter, rule.level(), rule.place, lines.join("\n"));
    }
    match sections.get(name) {
        Some(section) => format!("{name} {}, {}\n", section.title, section.place),
        None => format!("{name}: docs/rules has no such rule\n"),
    }
}

/// Breaks a paragraph into indented lines.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.is_empty() => *line = format!("    {word}"),
            Some(line) if line.chars().count() + word.chars().count() < WIDTH => {
                *line = format!("{line} {word}");
            }
            _ => lines.push(format!("    {word}")),
        }
    }
    lines
}

/// Returns a list of the places that cite a rule.
fn places(places: Option<&Places>) -> String {
    let nothing = Places::default();
    let Places { code, tests, others } = places.unwrap_or(&nothing);
    let list = |title: &str, places: &[String]| {
        let places = if places.is_empty() { "none".to_owned() } else { places.join("\n           ") };
        format!("    {title:<7}{places}\n")
    };
    let mut text = list("code", code) + &list("tests", tests);
    if !others.is_empty() {
        text += &list("other", others);
    }
    text
}

/// Returns the file that `wanted` names, with the citations that it contains: lines and rules. With a line, those of the last block
/// of citations at or above it.
fn in_file<'a>(sources: &'a Sources, wanted: &str) -> Option<(&'a str, Vec<(usize, &'a str)>)> {
    let (file, line) = match wanted.rsplit_once(':') {
        Some((file, line)) => (file, line.parse::<usize>().ok()?),
        None => (wanted, usize::MAX),
    };
    let (file, citations) = sources.by_file.get_key_value(file.trim_start_matches("./"))?;
    let above: Vec<(usize, &str)> =
        citations.iter().filter(|(at, _)| *at <= line).map(|(at, rule)| (*at, rule.as_str())).collect();
    if line == usize::MAX {
        return Some((file, above));
    }
    let mut first = above.len().checked_sub(1)?;
    while first > 0 && above[first].0 - above[first - 1].0 <= 1 {
        first -= 1;
    }
    Some((file, above[first..].to_vec()))
}

#[cfg(test)]
mod tests {
    use super::{super::document::Rule, *};

    #[test]
    fn a_rule_is_shown_with_its_level_its_text_and_its_places() {
        let text = "Callback only after an arm. *Detect:* Count. *Src:* completion-handling.";
        let rule = Rule { letter: 'D', text: text.into(), place: "docs/rules/ndkpi.md:9".into() };
        let rules = Rules::from([("R-CQ-1".to_owned(), rule)]);
        let expected = "R-CQ-1 [D] documented, docs/rules/ndkpi.md:9\n    Callback only after an arm.\n    Detect: \
                        Count.\n    Source: completion-handling.\n";
        assert_eq!(statement(&rules, &std::collections::BTreeMap::new(), "R-CQ-1"), expected);
        let cited = Places { code: vec!["a.rs:1".into(), "b.rs:2".into()], ..Places::default() };
        assert_eq!(places(Some(&cited)), "    code   a.rs:1\n           b.rs:2\n    tests  none\n");
    }

    #[test]
    fn a_place_shows_the_block_of_citations_above_it() {
        let citations = [(3, "R-CQ-1"), (10, "R-CQ-7"), (11, "R-CQ-8"), (11, "R-CQ-9"), (30, "R-QP-1")];
        let sources = Sources {
            by_file: [("src/a.rs".to_owned(), citations.map(|(at, rule)| (at, rule.to_owned())).to_vec())]
                .into(),
            ..Sources::default()
        };
        let rules = |wanted| {
            in_file(&sources, wanted).map(|(_, cited)| cited.iter().map(|c| c.1).collect::<Vec<_>>())
        };
        assert_eq!(rules("src/a.rs:12"), Some(vec!["R-CQ-7", "R-CQ-8", "R-CQ-9"]));
        assert_eq!(rules("src/a.rs:5"), Some(vec!["R-CQ-1"]));
        assert_eq!(rules("src/a.rs:2"), None);
        assert_eq!(rules("src/a.rs").map(|all| all.len()), Some(5));
        assert_eq!(rules("src/b.rs"), None);
    }

    #[test]
    fn a_long_text_is_broken_into_lines() {
        let lines = wrapped(&"word ".repeat(60));
        assert!(lines.len() > 2 && lines.iter().all(|line| line.chars().count() <= WIDTH));
    }
}
