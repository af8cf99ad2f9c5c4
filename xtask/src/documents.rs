// SPDX-License-Identifier: MIT OR Apache-2.0

//! Checks that files named in documents exist, and the tests named in these files.

use std::{fs, path::Path};

use anyhow::{Result, ensure};

use crate::shell;

/// Folders whose paths are checked.
const FOLDERS: [&str; 10] =
    ["inf/", "consumers/", "crates/", "docs/", "drivers/", "fuzz/", "lab/", "sim/", "src/", "tests/"];

/// Checks every path and test between backquotes and every relative link of the documents at the root and in `docs`.
///
/// # Errors
/// A path that does not exist, or a test that is not in its file.
pub fn check() -> Result<()> {
    let mut missing = Vec::new();
    for folder in [shell::root().to_owned(), shell::root().join("docs")] {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "md") {
                let text = fs::read_to_string(&path)?;
                let name = path.strip_prefix(shell::root()).unwrap_or(&path).display().to_string();
                let links = links(&text).into_iter().filter(|link| !folder.join(link).exists());
                missing.extend(links.map(|link| format!("{name} links to {link}")));
                for (path, item) in quoted(&text) {
                    if !exists(&shell::root().join(path), item) {
                        missing.push(format!("{name} names {path}{}", item.unwrap_or_default()));
                    }
                }
            }
        }
    }
    for line in &missing {
        println!("{line}, which does not exist");
    }
    ensure!(missing.is_empty(), "{} paths in documents do not exist", missing.len());
    Ok(())
}

/// Targets of relative links, without their anchors.
fn links(text: &str) -> Vec<&str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    let files = targets.map(|target| target.split_once('#').map_or(target, |(file, _)| file));
    files.filter(|file| !file.is_empty() && !file.contains("://")).collect()
}

/// Paths between backquotes, each with what follows it, such as `::test`.
fn quoted(text: &str) -> Vec<(&str, Option<&str>)> {
    let words = text.split('`').skip(1).step_by(2);
    let paths = words.map(|word| match word.find("::").and_then(|at| word.split_at_checked(at)) {
        Some((file, item)) => (file, Some(item)),
        None => (word, None),
    });
    let is_path = |(path, _): &(&str, Option<&str>)| {
        FOLDERS.iter().any(|folder| path.starts_with(folder)) && !path.contains(['*', ' ', '{', '<', '\n'])
    };
    paths.filter(is_path).collect()
}

/// Returns whether the path exists and the file contains the item: `::module::test` names the last one.
fn exists(path: &Path, item: Option<&str>) -> bool {
    let Some((_, name)) = item.and_then(|item| item.rsplit_once("::")) else { return path.exists() };
    let definitions = [format!("fn {name}("), format!("fn {name}<"), format!("mod {name}")];
    let is_defined = |text: String| definitions.iter().any(|definition| text.contains(definition));
    name.contains('*') && path.exists() || fs::read_to_string(path).is_ok_and(is_defined)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_quoted_paths_are_found() {
        let text =
            "See [a](docs/a.md#part), [b](https://b) and `src/lib.rs::test`, `cargo test`, `crates/*`.";
        assert_eq!(links(text), ["docs/a.md"]);
        assert_eq!(quoted(text), [("src/lib.rs", Some("::test"))]);
    }

    #[test]
    fn a_test_that_is_not_in_its_file_is_missing() {
        let file = shell::root().join("xtask/src/documents.rs");
        for (item, expected) in
            [(None, true), (Some("::tests::exists"), true), (Some("::exist"), false), (Some("::ex*"), true)]
        {
            assert_eq!(exists(&file, item), expected, "{item:?}");
        }
        assert!(!exists(&file.with_extension("txt"), None));
    }
}
