// SPDX-License-Identifier: MIT OR Apache-2.0

//! Checks that files named in documents exist, and the tests named in these files; and that tables can be read: no cell is longer
//! than a few lines, and none names a test, which belongs in a list below the table.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use anyhow::{Result, ensure};

use crate::shell;

/// Folders whose paths are checked.
const FOLDERS: [&str; 10] =
    ["inf/", "consumers/", "crates/", "docs/", "drivers/", "fuzz/", "lab/", "sim/", "src/", "tests/"];

/// The longest cell of a table, in characters that are shown.
const LONGEST_CELL: usize = 220;

/// Documents whose tables are not checked: contents of captures, and restated specifications.
const OTHER_TABLES: [&str; 2] = ["crates/roce-wire/tests/vectors/", "docs/rules/"];

/// Checks the documents: paths, tests and links that they name, and their tables.
///
/// # Errors
/// A path or test that does not exist, or a cell that is too long or names a test.
pub fn check() -> Result<()> {
    check_paths()?;
    check_tables()
}

/// Checks the cells of all tables.
fn check_tables() -> Result<()> {
    let tests: BTreeSet<String> = tracked("*.rs")?
        .iter()
        .flat_map(|(_, text)| tests(text).map(str::to_owned).collect::<Vec<_>>())
        .collect();
    let mut refused = 0;
    for (name, text) in tracked("*.md")? {
        if OTHER_TABLES.iter().any(|other| name.starts_with(other)) {
            continue;
        }
        for (line, cell) in table_cells(&text) {
            let length = shown(cell).chars().count();
            if length > LONGEST_CELL {
                println!(
                    "{name}:{line}: a cell of {length} characters: {}",
                    cell.chars().take(60).collect::<String>()
                );
                refused += 1;
            }
            let words = cell.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            if let Some(test) = words.filter(|word| word.contains('_')).find(|word| tests.contains(*word)) {
                println!("{name}:{line}: a cell names the test {test}: write it into a list below the table");
                refused += 1;
            }
        }
    }
    ensure!(
        refused == 0,
        "{refused} cells of tables are longer than {LONGEST_CELL} characters or name a test"
    );
    Ok(())
}

/// Names and texts of the files that git tracks, by a pattern.
pub fn tracked(pattern: &str) -> Result<Vec<(String, String)>> {
    let mut git = Command::new("git");
    let list = shell::output(git.args(["ls-files", "-z", "--", pattern]).current_dir(shell::root()))?;
    let read = |name: &str| Some((name.to_owned(), fs::read_to_string(shell::root().join(name)).ok()?));
    Ok(list.split_terminator('\0').filter_map(read).collect())
}

/// The names of the tests of a source file.
fn tests(text: &str) -> impl Iterator<Item = &str> {
    text.split("#[test]").skip(1).filter_map(|rest| {
        let (_, function) = rest.split_once("fn ")?;
        function.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next()
    })
}

/// Line and text of each cell of the tables, which are not in blocks of code.
fn table_cells(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    let rows = text.lines().enumerate().filter(move |(_, line)| {
        in_code ^= line.starts_with("```");
        !in_code && line.starts_with('|')
    });
    rows.flat_map(|(index, line)| {
        line.trim_matches('|').split(" | ").map(move |cell| (index + 1, cell.trim()))
    })
}

/// A text without the targets of its links.
fn shown(text: &str) -> String {
    let mut parts = text.split("](");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| all + part.split_once(')').map_or(part, |(_, rest)| rest))
}

/// Checks every path and test between backquotes and every relative link of the documents at the root and in `docs`.
///
/// # Errors
/// A path that does not exist, or a test that is not in its file.
fn check_paths() -> Result<()> {
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
    fn cells_are_those_of_tables_outside_of_code() {
        let text = "| a | [b](docs/b.md) |\n| --- | --- |\ntext | x\n```\n| code |\n```\n|  | c |\n";
        let cells: Vec<_> = table_cells(text).collect();
        let expected = [(1, "a"), (1, "[b](docs/b.md)"), (2, "---"), (2, "---"), (7, ""), (7, "c")];
        assert_eq!(cells, expected);
        assert_eq!(shown("[b](docs/b.md) and [c](d), e"), "[b and [c, e");
    }

    #[test]
    fn tests_of_a_file_are_found_by_their_attribute() {
        let text = "fn helper() {}\n#[test]\n#[ignore]\nfn it_works() {}\n#[test]\nfn other<T>() {}\n";
        assert_eq!(tests(text).collect::<Vec<_>>(), ["it_works", "other"]);
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
