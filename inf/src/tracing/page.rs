// SPDX-License-Identifier: MIT OR Apache-2.0

//! The events of the trace for people: lists for the page of administrators, and an event as a sentence.

use super::{Row, keywords::KEYWORDS, table::ROWS};

/// Returns the row of an event.
#[must_use]
pub fn row(name: &str) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.name == name)
}

/// Returns the sentence of an event, with `values` of its fields by name. Of an event that the table does not have: its name and its fields.
#[must_use]
pub fn sentence(name: &str, values: &[(String, String)]) -> String {
    let Some(row) = row(name) else {
        let fields = values.iter().map(|(name, value)| format!(" {name}={value}"));
        return fields.fold(name.to_owned(), |text, field| text + &field);
    };
    values.iter().fold(row.text.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value))
}

/// Returns sentences about the keywords, one each.
pub(crate) fn keywords() -> impl Iterator<Item = String> {
    KEYWORDS.iter().map(|keyword| format!("`{:#x}` ({}): {}", keyword.bit, keyword.name, keyword.text))
}

/// Returns sentences about the events, one each.
pub(crate) fn events() -> impl Iterator<Item = String> {
    ROWS.iter().map(|row| {
        let keyword =
            KEYWORDS.iter().find(|keyword| keyword.bit == row.keyword).map_or("", |keyword| keyword.name);
        let level = format!("{:?}", row.level).to_lowercase();
        format!("**{}** ({keyword}, {level}): {}.", row.name, row.text.replace(['{', '}'], "*"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_becomes_a_sentence() {
        let values = [("QueuePair", "17"), ("Cause", "peer does not answer")];
        let values = values.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(
            sentence("QueuePairFlushed", &values),
            "queue pair 17: requests are flushed, because: peer does not answer"
        );
        assert_eq!(sentence("Other", &values[..1]), "Other QueuePair=17");
    }
}
