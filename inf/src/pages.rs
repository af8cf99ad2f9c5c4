// SPDX-License-Identifier: MIT OR Apache-2.0

//! Parts of `docs/administration.md`, each between two lines `<!-- name -->` and `<!-- end -->`. `cargo xtask inf` writes them.

use std::fmt::Write as _;

use crate::{
    Edition,
    diagnosis::{STEPS, Test},
    events::MESSAGES,
    keywords::{Audience, Effect, PROPERTIES, Values},
};

const END: &str = "<!-- end -->";

/// Returns the page with the text between the lines of each part replaced.
///
/// # Errors
/// The name of a part that the page does not have.
pub fn filled(page: &str) -> Result<String, String> {
    let mut page = page.to_owned();
    for (name, text) in parts() {
        let begin = format!("<!-- {name} -->\n");
        let (before, rest) = page.split_once(&begin).ok_or_else(|| format!("no line {begin}"))?;
        let (_, after) = rest.split_once(END).ok_or_else(|| format!("no line {END} after {begin}"))?;
        page = format!("{before}{begin}\n{text}\n{END}{after}");
    }
    Ok(page)
}

fn parts() -> [(&'static str, String); 5] {
    [
        ("keywords of administrators", keywords(Audience::Administrator)),
        ("keywords of authors", keywords(Audience::ConsumerAuthor)),
        ("events of administrators", events(Audience::Administrator)),
        ("events of authors", events(Audience::ConsumerAuthor)),
        ("steps of Test-Viordma.ps1", steps()),
    ]
}

/// A table of values and defaults, then what each keyword does.
fn keywords(audience: Audience) -> String {
    let properties = || PROPERTIES.iter().filter(|property| property.audience == audience);
    let mut text = "| Keyword | Values | Default |\n| --- | --- | --- |\n".to_owned();
    for property in properties() {
        let values = match property.values {
            Values::Range { min, max } => format!("{min} to {max}"),
            Values::OneOf(choices) => {
                choices.iter().map(|choice| choice.value.to_string()).collect::<Vec<_>>().join(", ")
            }
        };
        let _ = writeln!(text, "| `{}` | {values} | {} |", property.name, property.default);
    }
    text.push('\n');
    for property in properties() {
        let effect = match property.effect {
            Effect::Restart => "",
            Effect::RestartOrEnabling => " Also read whenever Windows enables RDMA.",
        };
        let edition = match property.edition {
            Edition::Standard => "",
            Edition::Strict => " Only in `viordma-strict.sys`.",
        };
        let (name, label) = (property.name, property.label);
        item(&mut text, &format!("`{name}` ({label}): {}{effect}{edition}", property.text));
    }
    text
}

fn events(audience: Audience) -> String {
    let mut text = String::new();
    for message in MESSAGES.iter().filter(|message| message.audience == audience) {
        let kind = if message.event.is_error() { "error" } else { "warning" };
        let sentence = message.text.trim_start_matches("%2: ");
        // All mistakes of consumers have the same action, which the page says once.
        let action = match audience {
            Audience::Administrator => format!(" *{}*", message.action),
            Audience::ConsumerAuthor => String::new(),
        };
        item(&mut text, &format!("**{}** ({kind}): {sentence}{action}", message.event.number()));
    }
    text
}

/// The steps of the script for administrators, in their order.
fn steps() -> String {
    let mut text = String::new();
    for step in STEPS {
        let expected = match step.test {
            Test::Equals(value) => format!("is `{value}`"),
            Test::AtLeast(least) => format!("is {least} or more"),
        };
        item(
            &mut text,
            &format!("`{}` {expected}. If not: {} **Remedy:** {}", step.fact, step.reason, step.remedy),
        );
    }
    text
}

/// Adds an item of a list, in lines of at most 120 characters.
fn item(text: &mut String, sentence: &str) {
    let mut line = "*".to_owned();
    for word in sentence.split(' ') {
        if line.len() + 1 + word.len() > 120 {
            text.push_str(&line);
            text.push('\n');
            " ".clone_into(&mut line);
        }
        line.push(' ');
        line.push_str(word);
    }
    text.push_str(&line);
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
        let filled = filled(&page).unwrap();
        assert!(filled.starts_with("top\n<!-- keywords of administrators -->\n\n| Keyword | "));
        assert!(!filled.contains("old\n") && filled.matches("\nbetween\n").count() == 5);
        assert!(
            filled.contains("\n| `QueuePairs` | 1 to 16 | 16 |\n")
                && filled.contains("\n* **41** (warning): ")
        );
        assert_eq!(super::filled(&filled).unwrap(), filled);
        assert!(super::filled("no part").unwrap_err().contains("keywords of administrators"));
    }

    #[test]
    fn no_line_is_long() {
        for (name, text) in parts() {
            assert!(text.lines().all(|line| line.len() <= 120), "{name}");
        }
    }
}
