// SPDX-License-Identifier: MIT OR Apache-2.0

//! First lines of doc comments: an API reference prints them, so they name a thing or say what a function does. A line that begins
//! with "What" or with "As" and a link does neither.

use anyhow::{Result, ensure};

use crate::rust_lines;

/// Openings that are refused.
const REFUSED: [&str; 2] = ["As [`", "What "];

/// Prints each refused first line of a doc comment in these files. Fails if there is one.
///
/// # Errors
/// A refused line.
pub fn check(paths: &[String]) -> Result<()> {
    let owned =
        |text: &str| openings(text).into_iter().map(|(number, line)| (number, line.to_owned())).collect();
    let found = rust_lines::print_refused(paths, owned);
    ensure!(
        found == 0,
        "{found} doc comments begin with {REFUSED:?}: name the thing, or what the function does"
    );
    Ok(())
}

/// Returns the refused first lines of doc comments, with their numbers.
fn openings(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut inside = false;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim_start();
        let doc = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
        if let Some(doc) = doc
            && !inside
            && REFUSED.iter().any(|refused| doc.trim_start().starts_with(refused))
        {
            found.push((number, line));
        }
        inside = doc.is_some();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::openings;

    #[test]
    fn only_the_first_line_of_a_doc_comment_is_refused() {
        let text = "//! What a module does.\n\n/// Returns a number.\n/// What is it?\nfn a() {}\n    /// As [`a`], twice.\n    fn b() {}\n// What else.\n";
        assert_eq!(openings(text), [(1, "//! What a module does."), (6, "/// As [`a`], twice.")]);
    }
}
