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

/// Pages whose words are those of specifications and of other drivers: their settings and events are not this driver's alone.
const OF_OTHERS: [&str; 1] = ["docs/rules/"];

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
    let read = |file: &str| {
        fs::read_to_string(shell::root().join(file)).with_context(|| format!("cannot read {file}"))
    };
    let parts = index::parts(&read(INDEX)?).map_err(|error| anyhow!(error))?;
    let chapters = parts.iter().flat_map(|part| &part.chapters).map(|chapter| chapter.file.clone());
    let files: BTreeSet<String> = chapters.chain([INDEX.to_owned()]).collect();
    let sources = folder.join("src");
    if sources.exists() {
        fs::remove_dir_all(&sources)?;
    }
    let write = |file: &str, data: &[u8]| {
        let path = sources.join(file);
        fs::create_dir_all(path.parent().unwrap_or(&sources))?;
        fs::write(&path, data).with_context(|| format!("cannot write {}", path.display()))
    };
    let mut faults = Vec::new();
    for file in &files {
        let text = read(file)?;
        if !OF_OTHERS.iter().any(|folder| file.starts_with(folder)) {
            faults.extend(
                names::unknown(&text)
                    .into_iter()
                    .map(|name| format!("{file} names {name}, which inf/ does not have")),
            );
        }
        match chapter::chapter(file, &text, &files) {
            Ok(text) => write(&index::page(file), text.as_bytes())?,
            Err(fault) => faults.push(fault),
        }
    }
    for file in documents("docs")? {
        if index::is_page(&file) {
            if !files.contains(&file) {
                faults.push(format!("{INDEX} does not list {file}"));
            }
        } else if let Some(figure) = file.strip_prefix("docs/").filter(|name| name.contains("figures/")) {
            write(figure, &fs::read(shell::root().join(&file))?)?;
        }
    }
    for fault in &faults {
        println!("{fault}");
    }
    ensure!(faults.is_empty(), "{} faults in the pages of the book", faults.len());
    write("SUMMARY.md", index::summary(&parts).as_bytes())?;
    shell::write_if_changed(&folder.join("book.toml"), CONFIGURATION.as_bytes())?;
    shell::write_if_changed(&folder.join("viordma.css"), STYLE.as_bytes())
}

/// The files below a folder, by their paths below the root.
fn documents(folder: &str) -> Result<Vec<String>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(shell::root().join(folder))? {
        let entry = entry?;
        let name = format!("{folder}/{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            files.extend(documents(&name)?);
        } else {
            files.push(name);
        }
    }
    files.sort();
    Ok(files)
}
