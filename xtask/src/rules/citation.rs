// SPDX-License-Identifier: MIT OR Apache-2.0

//! Citations of rules in source files: lines of their own, below a doc comment and above what they are about.
//!
//! Such a line is the mark `//=`, a space, and either numbered rules, separated by commas, or one section of another
//! document: its name, a space, and the section's number behind a `§`.
//!
//! In an INF file the mark is `;=`.
//!
//! A citation below the header of a file is about the whole file. Citations are not in doc comments, where API
//! references would show them.

/// How a citation begins in Rust.
const MARK: &str = concat!("//", "= ");

/// How a citation begins in an INF file.
const INF_MARK: &str = concat!(";", "= ");

pub struct Citation {
    /// A rule's number, or a document's name and section.
    pub rule: String,
    pub line: usize,
}

/// The citations of a source file, and what is wrong with which lines.
pub fn read(text: &str) -> (Vec<Citation>, Vec<(usize, &'static str)>) {
    let (mut citations, mut faults) = (Vec::new(), Vec::new());
    let mut in_header = false;
    let mut lines = text.lines().map(str::trim).enumerate().peekable();
    while let Some((index, line)) = lines.next() {
        let number = index + 1;
        let Some(cited) = line.strip_prefix(MARK).or_else(|| line.strip_prefix(INF_MARK)) else {
            in_header = line.starts_with("//!");
            if line.contains(MARK) {
                faults.push((number, "a citation is a line of its own"));
            } else if line.starts_with("//") && names_rule(line) {
                faults.push((number, "a rule is cited on a line of its own, not in a comment"));
            }
            continue;
        };
        let rules: Vec<&str> = cited.split(", ").collect();
        if rules.iter().all(|rule| is_rule(rule)) || (rules.len() == 1 && is_section(cited)) {
            citations.extend(rules.iter().map(|&rule| Citation { rule: rule.to_owned(), line: number }));
        } else {
            faults.push((
                number,
                "a citation is numbered rules with commas between them, or one section such as rocev2 §9",
            ));
        }
        match lines.peek() {
            Some((_, next)) if next.starts_with("///") => {
                faults.push((number, "a citation is below the doc comment"));
            }
            None | Some((_, "")) if !in_header => {
                faults.push((number, "a citation is directly above what it is about"));
            }
            _ => {}
        }
    }
    (citations, faults)
}

/// `R-`, an area in capitals, a number.
pub fn is_rule(text: &str) -> bool {
    let mut parts = text.split('-');
    let (kind, area, number) = (parts.next(), parts.next(), parts.next());
    kind == Some("R")
        && area.is_some_and(|a| !a.is_empty() && a.chars().all(|c| c.is_ascii_uppercase()))
        && number.is_some_and(is_number)
        && parts.next().is_none()
}

/// The name of a document and a section's number.
fn is_section(text: &str) -> bool {
    text.split_once(" §").is_some_and(|(document, number)| {
        !document.is_empty() && document.chars().all(|c| c.is_ascii_alphanumeric()) && is_number(number)
    })
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_digit())
}

fn names_rule(line: &str) -> bool {
    line.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').any(is_rule)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rules cited and lines at fault. `@` stands for the mark.
    fn reading(text: &str) -> (Vec<String>, Vec<usize>) {
        let text = text.replace('@', MARK);
        let (citations, faults) = read(&text);
        (
            citations.into_iter().map(|citation| citation.rule).collect(),
            faults.into_iter().map(|f| f.0).collect(),
        )
    }

    #[test]
    fn rules_and_sections_are_read() {
        let (rules, faults) = reading("/// Doc.\n@R-CQ-7, R-CQ-8\n@rocev2 §9\nfn f() {}\n");
        assert_eq!(rules, ["R-CQ-7", "R-CQ-8", "rocev2 §9"]);
        assert!(faults.is_empty());
    }

    #[test]
    fn citations_in_inf_files_have_their_mark() {
        assert_eq!(reading(";\u{3d} R-OPEN-33\nHKR, Ndi\n").0, ["R-OPEN-33"]);
    }

    #[test]
    fn a_citation_below_the_header_of_a_file_may_stand_alone() {
        assert!(reading("//! Header.\n@R-CQ-7\n\nuse x;\n").1.is_empty());
        assert_eq!(reading("use x;\n@R-CQ-7\n\nuse y;\n").1, [2]);
    }

    #[test]
    fn other_places_and_forms_are_refused() {
        assert_eq!(reading("let x = 1; @R-CQ-7\n").1, [1]);
        assert_eq!(reading("@R-CQ-7,\nfn f() {}\n").1, [1]);
        assert_eq!(reading("@R-CQ-7 because\nfn f() {}\n").1, [1]);
        assert_eq!(reading("@R-CQ-7\n/// Doc.\nfn f() {}\n").1, [1]);
        assert_eq!(reading("/// Doc (R-CQ-7).\nfn f() {}\n").1, [1]);
        assert_eq!(reading("/// @R-CQ-7\nfn f() {}\n").1, [1]);
    }
}
