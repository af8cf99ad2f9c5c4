// SPDX-License-Identifier: MIT OR Apache-2.0

//! A mutant: a change of a file in one place.

use std::ops::Range;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use super::survivors::Key;

/// A change of a file in one place.
#[derive(Clone, Debug)]
pub struct Mutant {
    pub file: String,
    /// The change in words, with file, line and column.
    pub name: String,
    pub genre: Genre,
    /// Replacement of the text of `span`.
    pub replacement: String,
    pub span: Span,
    /// The first line of the text that is replaced, without indentation.
    pub line: String,
}

/// The kinds of changes; all but [`Self::Statement`] as cargo-mutants names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub enum Genre {
    /// A statement that is deleted.
    #[serde(skip)]
    Statement,
    /// The body of a function.
    FnValue,
    BinaryOperator,
    UnaryOperator,
    /// An arm that is removed.
    MatchArm,
    /// The guard of an arm.
    MatchArmGuard,
    /// A field that is removed from an expression with a base.
    StructField,
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
    /// Returns the range of `text`, the file's content, that is replaced.
    ///
    /// # Errors
    /// If it is not in the text.
    pub fn range(&self, text: &str) -> Result<Range<usize>> {
        let Span { start, end } = self.span;
        let offset = |position: Position| {
            offset(text, position.line, position.column)
                .with_context(|| format!("{} is not in its file", self.name))
        };
        let (start, end) = (offset(start)?, offset(end)?);
        ensure!(start <= end, "{} has no range", self.name);
        Ok(start..end)
    }

    /// Returns what identifies the mutant when lines have moved.
    pub fn key(&self) -> Key {
        // The name begins with file, line and column.
        let mutant = self.name.splitn(4, ':').nth(3).unwrap_or(&self.name).trim();
        Key { file: self.file.clone(), mutant: mutant.into(), line: self.line.clone() }
    }
}

/// Returns the byte offset of a line and a column, from 1.
pub fn offset(text: &str, line: usize, column: usize) -> Option<usize> {
    let start: usize = text.split_inclusive('\n').take(line.checked_sub(1)?).map(str::len).sum();
    let rest = text.get(start..)?;
    let column = column.checked_sub(1)?;
    rest.char_indices().map(|(at, _)| at).chain([rest.len()]).nth(column).map(|at| start + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutant(name: &str, start: (usize, usize), end: (usize, usize)) -> Mutant {
        let position = |(line, column)| Position { line, column };
        Mutant {
            file: "a.rs".into(),
            name: name.into(),
            genre: Genre::BinaryOperator,
            replacement: String::new(),
            span: Span { start: position(start), end: position(end) },
            line: "x".into(),
        }
    }

    #[test]
    fn a_range_is_found_by_characters() {
        let text = "fn f() -> u8 {\n    \"ä\"; 1 + 2\n}\n";
        assert_eq!(&text[mutant("", (2, 12), (2, 13)).range(text).unwrap()], "+");
        assert_eq!(&text[mutant("", (1, 1), (1, 3)).range(text).unwrap()], "fn");
        assert!(mutant("", (9, 1), (9, 2)).range(text).is_err());
        assert!(mutant("", (2, 13), (2, 12)).range(text).is_err());
    }

    #[test]
    fn a_mutant_keeps_its_identity_when_its_line_moves() {
        let key = |at: &str| mutant(&format!("a.rs:{at}: replace f -> A::B with C"), (1, 1), (1, 1)).key();
        assert_eq!(key("1:2"), key("30:4"));
        assert_eq!(key("1:2").mutant, "replace f -> A::B with C");
    }
}
