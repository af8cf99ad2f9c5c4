// SPDX-License-Identifier: MIT OR Apache-2.0

//! A stamped INF: its sections and entries.

use std::collections::BTreeMap;

/// An entry: what stands before `=`, and the fields after it.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry {
    pub key: Option<String>,
    pub fields: Vec<String>,
}

/// The sections of an INF by name, with strings in place.
pub struct Inf(pub BTreeMap<String, Vec<Entry>>);

impl Inf {
    /// Parses the text of an INF. Names of sections are in lower case, since Windows does not distinguish.
    pub fn parse(text: &str) -> Self {
        let mut sections = BTreeMap::<String, Vec<Entry>>::new();
        let mut section = String::new();
        for line in text.lines() {
            let line = without_comment(line).trim();
            if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
                section = name.to_lowercase();
                sections.entry(section.clone()).or_default();
            } else if !line.is_empty() {
                sections.entry(section.clone()).or_default().push(entry(line));
            }
        }
        let strings: Vec<(String, String)> = sections
            .get("strings")
            .into_iter()
            .flatten()
            .filter_map(|entry| Some((format!("%{}%", entry.key.as_ref()?), entry.fields.first()?.clone())))
            .collect();
        for (_, entries) in sections.iter_mut().filter(|(name, _)| *name != "strings") {
            for field in entries.iter_mut().flat_map(|entry| entry.key.iter_mut().chain(&mut entry.fields)) {
                for (token, text) in &strings {
                    if field.to_lowercase().contains(&token.to_lowercase()) {
                        *field = field.replace(token, text);
                    }
                }
            }
        }
        Self(sections)
    }

    /// Returns the entries of a section.
    pub fn section(&self, name: &str) -> &[Entry] {
        self.0.get(&name.to_lowercase()).map_or(&[], Vec::as_slice)
    }

    /// Returns the fields of the entry `key = ...` of a section.
    pub fn fields(&self, section: &str, key: &str) -> &[String] {
        let is_key = |entry: &&Entry| entry.key.as_ref().is_some_and(|own| own.eq_ignore_ascii_case(key));
        self.section(section).iter().find(is_key).map_or(&[], |entry| &entry.fields)
    }

    /// Returns the first field of an entry, or an empty text.
    pub fn value(&self, section: &str, key: &str) -> &str {
        self.fields(section, key).first().map_or("", String::as_str)
    }

    /// Returns the names of models sections that `[Manufacturer]` refers to.
    pub fn models(&self) -> Vec<String> {
        let entries = self.section("Manufacturer").iter();
        entries
            .flat_map(|entry| {
                let base = entry.fields.first().cloned().unwrap_or_default();
                entry.fields.iter().skip(1).map(move |decoration| format!("{base}.{decoration}"))
            })
            .collect()
    }

    /// Returns the hardware ids of all models.
    pub fn hardware_ids(&self) -> Vec<String> {
        let models = self.models();
        let entries = models.iter().flat_map(|name| self.section(name));
        entries.filter_map(|entry| entry.fields.get(1).cloned()).collect()
    }
}

/// Removes the comment of a line: from a semicolon that is not between quotation marks.
fn without_comment(line: &str) -> &str {
    let mut is_quoted = false;
    let comment = line.find(|character| {
        is_quoted ^= character == '"';
        character == ';' && !is_quoted
    });
    comment.map_or(line, |comment| &line[..comment])
}

fn entry(line: &str) -> Entry {
    let mut is_quoted = false;
    let equals = line.find(|character| {
        is_quoted ^= character == '"';
        character == '=' && !is_quoted
    });
    let (key, rest) = match equals {
        Some(at) => (Some(line[..at].trim().to_owned()), &line[at + 1..]),
        None => (None, line),
    };
    let mut fields = vec![String::new()];
    let mut is_quoted = false;
    for character in rest.chars() {
        match character {
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => fields.push(String::new()),
            _ => fields.last_mut().expect("one field at least").push(character),
        }
    }
    for field in &mut fields {
        *field = field.trim().to_owned();
    }
    Entry { key, fields }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_end_at_commas_and_comments_at_line_ends_outside_of_quotation_marks() {
        let inf = Inf::parse(
            "[A]\nkey = \"a;b,c\", %Name% ; comment\nHKR, \"x y\", z,, 1\n[Strings]\nName = \"text\"\n",
        );
        assert_eq!(inf.fields("a", "KEY"), ["a;b,c", "text"]);
        assert_eq!(inf.section("A")[1].fields, ["HKR", "x y", "z", "", "1"]);
        assert_eq!(inf.value("A", "none"), "");
    }
}
