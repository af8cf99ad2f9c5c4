// SPDX-License-Identifier: MIT OR Apache-2.0

//! Links of the finished book: each leads to a file, and to a place in it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::{Context as _, Result, ensure};

use super::index::source;

/// Pages of mdBook's own, whose links are those of other pages.
const SKIPPED: [&str; 2] = ["404.html", "toc.html"];

/// Checks the links of all pages in a folder, and prints the broken ones. Returns the number of pages.
///
/// # Errors
/// A broken link, or a page that cannot be read.
pub fn check(book: &Path) -> Result<usize> {
    let mut pages = BTreeMap::new();
    let mut files = BTreeSet::new();
    read(book, "", &mut pages, &mut files)?;
    let broken: Vec<String> =
        pages.iter().flat_map(|(name, text)| broken(name, text, &pages, &files)).collect();
    for line in &broken {
        println!("{line}");
    }
    ensure!(broken.is_empty(), "{} links of the book are broken", broken.len());
    Ok(pages.len())
}

/// Reads the pages below a folder, and lists all files.
fn read(
    book: &Path,
    folder: &str,
    pages: &mut BTreeMap<String, String>,
    files: &mut BTreeSet<String>,
) -> Result<()> {
    for entry in fs::read_dir(book.join(folder)).with_context(|| format!("cannot read {folder}"))? {
        let entry = entry?;
        let name = source(folder, &entry.file_name().to_string_lossy()).unwrap_or_default();
        if entry.file_type()?.is_dir() {
            read(book, &name, pages, files)?;
            continue;
        }
        if name.strip_suffix(".html").is_some() && !SKIPPED.contains(&name.as_str()) {
            pages.insert(name.clone(), fs::read_to_string(entry.path())?);
        }
        files.insert(name);
    }
    Ok(())
}

/// The broken links of a page.
fn broken(name: &str, text: &str, pages: &BTreeMap<String, String>, files: &BTreeSet<String>) -> Vec<String> {
    let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut broken = Vec::new();
    for target in values(text, "href").chain(values(text, "src")) {
        let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
        let Some(file) = source(folder, path) else { continue };
        let file = if path.is_empty() { name } else { file.as_str() };
        if !files.contains(file) {
            broken.push(format!("{name} links to {target}, and there is no {file}"));
        } else if let Some(page) = pages.get(file)
            && !anchor.is_empty()
            && !values(page, "id").any(|id| id == anchor)
        {
            broken.push(format!("{name} links to {target}, and {file} has no such place"));
        }
    }
    broken
}

/// The values of an attribute.
fn values<'a>(text: &'a str, attribute: &str) -> impl Iterator<Item = &'a str> {
    let begin = format!(" {attribute}=\"");
    let places: Vec<usize> = text.match_indices(&begin).map(|(at, found)| at + found.len()).collect();
    places.into_iter().filter_map(move |at| text.get(at..)?.split('"').next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_missing_files_and_places_are_broken() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        fs::create_dir(folder.path().join("b")).unwrap();
        write(
            "a.html",
            "<h1 id=\"x\"></h1><a href=\"b/c.html#y\"></a><a href=\"#x\"></a><a href=\"https://w\"></a>",
        );
        write("b/c.html", "<a id=\"y\" href=\"../a.html#x\"></a><img src=\"../d.svg\">");
        write("d.svg", "");
        assert_eq!(check(folder.path()).unwrap(), 2);
        for (name, text) in [("b/c.html", ""), ("a.html", ""), ("a.html", "<a href=\"#z\"></a>")] {
            let before = fs::read_to_string(folder.path().join(name)).unwrap();
            write(name, text);
            check(folder.path()).unwrap_err();
            write(name, &before);
        }
        fs::remove_file(folder.path().join("d.svg")).unwrap();
        check(folder.path()).unwrap_err();
    }
}
