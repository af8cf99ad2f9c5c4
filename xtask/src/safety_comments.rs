// SPDX-License-Identifier: MIT OR Apache-2.0

//! SAFETY comments argue: one of a few words, such as "as above", says that something holds, not why.

use anyhow::{Result, ensure};

use crate::rust_lines;

/// The fewest words of an argument.
const FEWEST: usize = 5;

/// Prints each SAFETY comment with fewer than [`FEWEST`] words in these files. Fails if there is one.
///
/// # Errors
/// A comment that is too short.
pub fn check(paths: &[String]) -> Result<()> {
    let found = rust_lines::print_refused(paths, short);
    ensure!(
        found == 0,
        "{found} SAFETY comments have fewer than {FEWEST} words: say why the operation is sound"
    );
    Ok(())
}

/// Returns the arguments that are too short, with the numbers of their first lines.
fn short(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut lines = (1..).zip(text.lines().map(str::trim_start)).peekable();
    while let Some((number, line)) = lines.next() {
        let Some(begin) = line.strip_prefix("// SAFETY:") else { continue };
        let mut argument = begin.trim().to_owned();
        while let Some((_, line)) = lines.next_if(|(_, line)| is_continuation(line)) {
            argument.push_str(line.trim_start_matches('/'));
        }
        if argument.split_whitespace().count() < FEWEST {
            found.push((number, argument));
        }
    }
    found
}

/// Returns true for a further line of a comment.
fn is_continuation(line: &str) -> bool {
    line.starts_with("// ") && !line.starts_with("// SAFETY:")
}

#[cfg(test)]
mod tests {
    use super::{check, short};

    #[test]
    fn an_argument_of_few_words_is_refused() {
        let text = "// SAFETY: as above.\nfirst();\n    // SAFETY: the queue is\n    // alive here.\n    second();\n\
                    // SAFETY: never freed.\n// SAFETY: the caller holds the lock.\nthird();\n// as above\n";
        let expected = [(1, "as above.".to_owned()), (6, "never freed.".to_owned())];
        assert_eq!(short(text), expected);
    }

    #[test]
    fn files_of_tests_are_checked() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tests/rig.rs");
        std::fs::create_dir(path.parent().unwrap()).unwrap();
        let paths = [path.to_str().unwrap().to_owned()];
        let check_with = |argument: &str| {
            std::fs::write(&path, format!("// SAFETY: {argument}\ncall();\n")).unwrap();
            check(&paths)
        };
        assert!(check_with("never freed.").is_err());
        check_with("the test leaks the context.").unwrap();
    }
}
