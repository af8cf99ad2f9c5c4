// SPDX-License-Identifier: MIT OR Apache-2.0

//! A mutant: a change of a file in one place.

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use super::survivors::Key;

/// A change of a file in one place.
#[derive(Clone, Debug)]
pub struct Mutant {
    pub file: String,
    /// The change in words, with file, line and column.
    pub name: String,
    /// What replaces the text of `span`.
    pub replacement: String,
    pub span: Span,
    /// The first line of the text that is replaced, without indentation.
    pub line: String,
}

/// A range of a file, lines and columns from 1, the end exclusive.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Span {
    pub start: Position,
    pub end: Position,
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Position {
    pub line: usize,
    pub column: usize,
}

impl Mutant {
    /// Returns the text of the file with the change.
    pub fn apply(&self, text: &str) -> Result<String> {
        let start =
            offset(text, self.span.start).with_context(|| format!("{} is not in its file", self.name))?;
        let end = offset(text, self.span.end).with_context(|| format!("{} is not in its file", self.name))?;
        ensure!(start <= end, "{} has no range", self.name);
        Ok([&text[..start], &self.replacement, &text[end..]].concat())
    }

    /// Returns what identifies the mutant when lines have moved.
    pub fn key(&self) -> Key {
        // The name begins with file, line and column.
        let mutant = self.name.splitn(4, ':').nth(3).unwrap_or(&self.name).trim();
        Key { file: self.file.clone(), mutant: mutant.into(), line: self.line.clone() }
    }
}

/// Returns the byte offset of a position.
fn offset(text: &str, position: Position) -> Option<usize> {
    let line: usize = text.split_inclusive('\n').take(position.line.checked_sub(1)?).map(str::len).sum();
    let rest = text.get(line..)?;
    let column = position.column.checked_sub(1)?;
    rest.char_indices().map(|(at, _)| at).chain([rest.len()]).nth(column).map(|at| line + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutant(name: &str, start: (usize, usize), end: (usize, usize), replacement: &str) -> Mutant {
        let position = |(line, column)| Position { line, column };
        let span = Span { start: position(start), end: position(end) };
        Mutant {
            file: "a.rs".into(),
            name: name.into(),
            replacement: replacement.into(),
            span,
            line: "x".into(),
        }
    }

    #[test]
    fn the_text_of_the_span_is_replaced() {
        let text = "fn f() -> u8 {\n    \"ä\"; 1 + 2\n}\n";
        assert_eq!(mutant("", (2, 12), (2, 13), "-").apply(text).unwrap(), text.replace('+', "-"));
        assert_eq!(mutant("", (1, 15), (3, 1), "0").apply(text).unwrap(), "fn f() -> u8 {0}\n");
        assert!(mutant("", (9, 1), (9, 2), "").apply(text).is_err());
        assert!(mutant("", (2, 13), (2, 12), "").apply(text).is_err());
    }

    #[test]
    fn a_mutant_keeps_its_identity_when_its_line_moves() {
        let key =
            |at: &str| mutant(&format!("a.rs:{at}: replace f -> A::B with C"), (1, 1), (1, 1), "").key();
        assert_eq!(key("1:2"), key("30:4"));
        assert_eq!(key("1:2").mutant, "replace f -> A::B with C");
    }
}
