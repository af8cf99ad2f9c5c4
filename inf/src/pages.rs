// SPDX-License-Identifier: MIT OR Apache-2.0

//! Parts of documents, each between two lines `<!-- name -->` and `<!-- end -->`. `cargo xtask inf` writes them.

use std::fmt::Write as _;

use crate::{
    Edition,
    diagnosis::{STEPS, Test},
    events::{MESSAGES, Severity},
    keywords::{Audience, Effect, PROPERTIES, Values},
    tracing::page,
};

const END: &str = "<!-- end -->";

/// The documents with such parts, below the root.
pub const PAGES: [&str; 5] =
    ["docs/administration.md", "docs/diagnosis.md", "docs/events.md", "docs/scripts.md", "docs/settings.md"];

/// A part: its name, and its text.
pub type Part = (&'static str, String);

/// Returns the page with the text of each of these parts that it has replaced.
///
/// # Errors
/// A part without an end.
pub fn filled(page: &str, parts: &[Part]) -> Result<String, String> {
    let mut page = page.to_owned();
    for (name, text) in parts {
        let begin = begin(name);
        let Some((before, rest)) = page.split_once(&begin) else { continue };
        let (_, after) = rest.split_once(END).ok_or_else(|| format!("no line {END} after {begin}"))?;
        page = format!("{before}{begin}\n{text}\n{END}{after}");
    }
    Ok(page)
}

/// Returns the names of the parts that none of these pages has.
#[must_use]
pub fn missing(pages: &[String], parts: &[Part]) -> Vec<&'static str> {
    let is_missing = |name: &&str| !pages.iter().any(|page| page.contains(&begin(name)));
    parts.iter().map(|&(name, _)| name).filter(is_missing).collect()
}

/// The line before a part.
fn begin(name: &str) -> String {
    format!("<!-- {name} -->\n")
}

/// Returns the parts that come from the tables of this crate.
#[must_use]
pub fn parts() -> Vec<Part> {
    vec![
        ("keywords of administrators", keywords(Audience::Administrator)),
        ("keywords of authors", keywords(Audience::ConsumerAuthor)),
        ("events of administrators", events(Audience::Administrator)),
        ("events of authors", events(Audience::ConsumerAuthor)),
        ("steps of Test-Viordma.ps1", steps()),
        ("keywords of the trace", items(page::keywords())),
        ("events of the trace", items(page::events())),
    ]
}

/// A card for each keyword: what it does, and its type, default and values.
fn keywords(audience: Audience) -> String {
    let mut text = String::new();
    let all = (1..).zip(PROPERTIES);
    for (number, property) in all.filter(|(_, property)| property.audience == audience) {
        let (kind, values) = match property.values {
            Values::Range { min, max } => ("number", format!("{min} to {max}")),
            Values::OneOf(choices) => {
                let choices = choices.iter().map(|choice| {
                    let value = choice.value.to_string();
                    if choice.text == value { value } else { format!("{value} {}", choice.text) }
                });
                ("choice", choices.collect::<Vec<_>>().join(", "))
            }
        };
        let effect = match property.effect {
            Effect::Restart => "when the adapter starts",
            Effect::RestartOrEnabling => "when the adapter starts, and when Windows enables RDMA",
        };
        let edition = match property.edition {
            Edition::Standard => "",
            Edition::Strict => " Only in `viordma-strict.sys`.",
        };
        let _ = write!(text, "### `{}`\n\n", property.name);
        wrapped(&mut text, "", &format!("*{}.* {}{edition}", property.label, property.text));
        let default = property.default;
        text.push('\n');
        wrapped(
            &mut text,
            "> ",
            &format!(
                "**Type:** {kind}. **Default:** {default}. **Values:** {values}. **Takes effect:** {effect}. \
                 **Number:** {number}."
            ),
        );
        text.push('\n');
    }
    text.trim_end().to_owned() + "\n"
}

/// A section for each event of administrators. All mistakes of consumers have the same action, which the page says once: a list.
fn events(audience: Audience) -> String {
    let mut text = String::new();
    for message in MESSAGES.iter().filter(|message| message.audience == audience) {
        let kind = match message.event.severity() {
            Severity::Information => "information",
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        let number = message.event.number();
        let sentence = message.text.trim_start_matches("%2: ");
        match audience {
            Audience::Administrator => {
                let _ = write!(text, "### Event {number}\n\n");
                wrapped(&mut text, "", &format!("{}: {sentence}", capitalized(kind)));
                text.push('\n');
                wrapped(&mut text, "", &format!("**Action:** {}", message.action));
                text.push('\n');
            }
            Audience::ConsumerAuthor => item(&mut text, &format!("**{number}** ({kind}): {sentence}")),
        }
    }
    text.trim_end().to_owned() + "\n"
}

fn capitalized(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// The steps of the script for administrators, in their order: a numbered list.
fn steps() -> String {
    let mut text = String::new();
    for (number, step) in (1..).zip(STEPS) {
        let expected = match step.test {
            Test::Equals(value) => format!("`{value}`"),
            Test::AtLeast(least) => format!("{least} or more"),
        };
        let sentence = format!(
            "`{}` must be {expected}. Otherwise: {} **Remedy:** {}",
            step.fact, step.reason, step.remedy
        );
        wrapped(&mut text, &format!("{number}. "), &sentence);
    }
    text
}

/// Returns a list.
fn items(sentences: impl Iterator<Item = String>) -> String {
    let mut text = String::new();
    sentences.for_each(|sentence| item(&mut text, &sentence));
    text
}

/// Adds an item of a list.
fn item(text: &mut String, sentence: &str) {
    wrapped(text, "* ", sentence);
}

/// Adds a paragraph in lines of at most 120 characters. `mark` begins the first one. The others begin with it, too, if it is that of a
/// quotation, otherwise with as many spaces.
fn wrapped(text: &mut String, mark: &str, sentence: &str) {
    let next = if mark == "> " { mark.to_owned() } else { " ".repeat(mark.len()) };
    let mut line = mark.to_owned();
    for word in sentence.split(' ') {
        if line.len() + word.len() > 120 {
            text.push_str(line.trim_end());
            text.push('\n');
            line.clone_from(&next);
        }
        line.push_str(word);
        line.push(' ');
    }
    text.push_str(line.trim_end());
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_is_replaced_and_what_is_around_it_stays() {
        let page: String = parts().iter().fold("top\n".to_owned(), |page, (name, _)| {
            page + &format!("<!-- {name} -->\nold\n<!-- end -->\nbetween\n")
        });
        let filled = filled(&page, &parts()).unwrap();
        assert!(filled.starts_with(
            "top\n<!-- keywords of administrators -->\n\n### `*JumboPacket`\n\n*Jumbo Packet.* "
        ));
        assert!(!filled.contains("old\n") && filled.matches("\nbetween\n").count() == 7);
        assert!(
            filled.contains(
                "\n> **Type:** number. **Default:** 16. **Values:** 1 to 16. **Takes effect:** when "
            ) && filled.contains("\n### Event 41\n\nWarning: ")
        );
        assert_eq!(super::filled(&filled, &parts()).unwrap(), filled);
        assert_eq!(missing(&[filled], &parts()), [""; 0]);
        assert_eq!(missing(&["no part".to_owned()], &parts()).len(), parts().len());
        super::filled("<!-- keywords of administrators -->\n", &parts()).unwrap_err();
    }

    #[test]
    fn no_line_is_long() {
        for (name, text) in parts() {
            assert!(text.lines().all(|line| line.len() <= 120), "{name}");
        }
    }
}
