// SPDX-License-Identifier: MIT OR Apache-2.0

//! Checks that files named in documents exist.

use std::{fs, path::Path};

use anyhow::{Result, ensure};

use crate::shell;

/// Folders whose paths are checked.
const FOLDERS: [&str; 8] = ["build/", "crates/", "docs/", "fuzz/", "lab/", "sim/", "src/", "tests/"];

/// Checks every path between backquotes and every relative link of the documents at the root and in `docs`.
///
/// # Errors
/// A path that does not exist.
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
                let quoted =
                    quoted(&text).into_iter().filter(|path| !Path::new(shell::root()).join(path).exists());
                missing.extend(quoted.map(|path| format!("{name} names {path}")));
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

/// Paths between backquotes, without the test that may follow.
fn quoted(text: &str) -> Vec<&str> {
    let words = text.split('`').skip(1).step_by(2);
    let paths = words.map(|word| word.split_once("::").map_or(word, |(file, _)| file));
    let is_path = |path: &&str| {
        FOLDERS.iter().any(|folder| path.starts_with(folder)) && !path.contains(['*', ' ', '{', '<', '\n'])
    };
    paths.filter(is_path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_quoted_paths_are_found() {
        let text =
            "See [a](docs/a.md#part), [b](https://b) and `src/lib.rs::test`, `cargo test`, `crates/*`.";
        assert_eq!(links(text), ["docs/a.md"]);
        assert_eq!(quoted(text), ["src/lib.rs"]);
    }
}
