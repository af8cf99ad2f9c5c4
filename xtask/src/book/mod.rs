// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask book`: makes a book of the documents, by mdBook. `docs/README.md` lists its pages by reader.
//!
//! | file | responsible for |
//! | --- | --- |
//! | `index.rs` | the order of the pages |
//! | `chapter.rs` | a page as the book shows it |
//! | `names.rs` | settings and events that pages name |
//! | `commands.rs` | commands of `cargo xtask` in pages |
//! | `site.rs` | links of the finished book |
//! | `links.rs` | links and headings of Markdown |
//! | `theme/` | style sheet |

mod chapter;
#[cfg(test)]
pub mod commands;
mod index;
pub mod links;
mod names;
mod site;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, anyhow, ensure};

use self::index::INDEX;
use crate::{shell, tools};

/// Where the book and its sources are, below the root.
const FOLDER: &str = "target/book";

const CONFIGURATION: &str = include_str!("theme/book.toml");
const STYLE: &str = include_str!("theme/viordma.css");

/// Pages whose settings and events are not this driver's alone, or not those of today: specifications, and changes.
const OF_OTHERS: [&str; 2] = ["docs/rules/", "CHANGELOG.md"];

#[derive(clap::Args)]
pub struct Options {}

/// Runs the command.
///
/// # Errors
/// A page at fault, or a tool that fails.
pub fn run(_: &Options) -> Result<()> {
    let (book, pages) = build()?;
    println!("{pages} pages: {}", book.join("index.html").display());
    Ok(())
}

/// Builds the book and checks its links. Returns its folder and the number of its pages.
///
/// # Errors
/// A page that the index does not list, an unknown setting or event, a broken link, or a tool that fails.
pub fn build() -> Result<(PathBuf, usize)> {
    let folder = shell::root().join(FOLDER);
    write_sources(&folder)?;
    let program = tools::MDBOOK.installed()?;
    // Information of mdBook is of no use here; warnings are.
    shell::run(Command::new(program).env("MDBOOK_LOG", "warn").arg("build").arg(&folder))?;
    let book = folder.join("html");
    let pages = site::check(&book)?;
    Ok((book, pages))
}

/// Writes what mdBook reads.
fn write_sources(folder: &Path) -> Result<()> {
    let Sources { files, faults } = sources(shell::root())?;
    for fault in &faults {
        println!("{fault}");
    }
    ensure!(faults.is_empty(), "{} faults in the pages of the book", faults.len());
    let sources = folder.join("src");
    if sources.exists() {
        fs::remove_dir_all(&sources)?;
    }
    for (file, data) in files {
        let path = sources.join(file);
        fs::create_dir_all(path.parent().unwrap_or(&sources))?;
        fs::write(&path, data).with_context(|| format!("cannot write {}", path.display()))?;
    }
    shell::write_if_changed(&folder.join("book.toml"), CONFIGURATION.as_bytes())?;
    shell::write_if_changed(&folder.join("viordma.css"), STYLE.as_bytes())
}

/// The sources of the book.
struct Sources {
    /// Names below the folder of sources, and contents.
    files: Vec<(String, Vec<u8>)>,
    /// A sentence for each fault of a page.
    faults: Vec<String>,
}

/// Makes the sources from the documents below `root`.
fn sources(root: &Path) -> Result<Sources> {
    let read =
        |file: &str| fs::read_to_string(root.join(file)).with_context(|| format!("cannot read {file}"));
    let parts = index::parts(&read(INDEX)?).map_err(|error| anyhow!(error))?;
    let chapters = parts.iter().flat_map(|part| &part.chapters).map(|chapter| chapter.file.clone());
    let pages: BTreeSet<String> = chapters.chain([INDEX.to_owned()]).collect();
    let mut files = vec![("SUMMARY.md".to_owned(), index::summary(&parts).into_bytes())];
    let mut faults = Vec::new();
    for file in &pages {
        let text = read(file)?;
        if !OF_OTHERS.iter().any(|other| file.starts_with(other)) {
            let unknown = names::unknown(&text).into_iter();
            faults.extend(unknown.map(|name| format!("{file} names {name}, which inf/ does not have")));
        }
        match chapter::chapter(file, &text, &pages) {
            Ok(text) => files.push((index::page(file), text.into_bytes())),
            Err(fault) => faults.push(fault),
        }
    }
    for file in documents(root, "docs")? {
        if index::is_page(&file) {
            if !pages.contains(&file) {
                faults.push(format!("{INDEX} does not list {file}"));
            }
        } else if let Some(figure) = file.strip_prefix("docs/").filter(|name| name.contains("figures/")) {
            files.push((figure.to_owned(), fs::read(root.join(&file))?));
        }
    }
    Ok(Sources { files, faults })
}

/// The files below a folder, by their paths below the root.
fn documents(root: &Path, folder: &str) -> Result<Vec<String>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let name = format!("{folder}/{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            files.extend(documents(root, &name)?);
        } else {
            files.push(name);
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where mdBook cannot be installed, this is left of the check.
    #[test]
    fn pages_of_the_book_have_no_faults() {
        assert_eq!(sources(shell::root()).unwrap().faults, [""; 0]);
    }

    #[test]
    fn faults_of_pages_are_found() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("docs")).unwrap();
        let write = |file: &str, text: &str| fs::write(root.path().join(file), text).unwrap();
        write(INDEX, "## Part\n- [A](a.md)\n- [C](../CHANGELOG.md)\n");
        write("docs/a.md", "`*Typo`, event 990\n");
        write("docs/b.md", "");
        write("CHANGELOG.md", "`*Removed`\n");
        let unlisted = "docs/README.md does not list docs/b.md";
        assert_eq!(
            sources(root.path()).unwrap().faults,
            [
                "docs/a.md names the setting *Typo, which inf/ does not have",
                "docs/a.md names event 990, which inf/ does not have",
                unlisted,
            ]
        );
        write("docs/a.md", "[b](b.md)\n");
        let fault = "docs/a.md links to docs/b.md, which docs/README.md does not list";
        assert_eq!(sources(root.path()).unwrap().faults, [fault, unlisted]);
    }
}
