// SPDX-License-Identifier: MIT OR Apache-2.0

//! The order of the book: the lists of `docs/README.md`, by reader. Its headings are the parts of the book, and its links the chapters.

use std::{collections::BTreeSet, fmt::Write as _};

use super::links::{Link, links};

/// The page that lists all others, below the root.
pub const INDEX: &str = "docs/README.md";

/// A page of the book.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chapter {
    /// Its name in the list of chapters.
    pub title: String,
    /// The file, below the root.
    pub file: String,
    /// How many chapters it is below.
    depth: usize,
}

/// The chapters for one reader.
#[derive(Debug, PartialEq, Eq)]
pub struct Part {
    title: String,
    pub chapters: Vec<Chapter>,
}

/// Reads the parts and chapters of the index.
///
/// # Errors
/// A page that is listed twice, or before any heading.
pub fn parts(index: &str) -> Result<Vec<Part>, String> {
    let mut parts = Vec::<Part>::new();
    let mut seen = BTreeSet::new();
    for line in index.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            parts.push(Part { title: title.to_owned(), chapters: Vec::new() });
        }
        let item = line.trim_start();
        if !item.starts_with("- ") {
            continue;
        }
        for Link { text, target, .. } in links(line) {
            let Some(file) = source("docs", target).filter(|file| is_page(file)) else { continue };
            if !seen.insert(file.clone()) {
                return Err(format!("{INDEX} lists {file} twice"));
            }
            let depth = (line.len() - item.len()) / 2;
            let part = parts.last_mut().ok_or_else(|| format!("{INDEX} lists {file} before a heading"))?;
            part.chapters.push(Chapter { title: text.replace('`', ""), file, depth });
        }
    }
    Ok(parts)
}

/// Returns `SUMMARY.md`, from which mdBook takes the chapters.
pub fn summary(parts: &[Part]) -> String {
    let mut text = format!("# Summary\n\n[Documents]({})\n", page(INDEX));
    for Part { title, chapters } in parts {
        let _ = write!(text, "\n# {title}\n\n");
        for chapter in chapters {
            let indent = "  ".repeat(chapter.depth);
            let _ = writeln!(text, "{indent}- [{}]({})", chapter.title, page(&chapter.file));
        }
    }
    text
}

/// Returns whether the file becomes a page.
pub fn is_page(file: &str) -> bool {
    file.strip_suffix(".md").is_some()
}

/// Returns the file of a page in the book: that of `docs/nic.md` is `nic.md`, of `lab/README.md` `lab.md`.
pub fn page(file: &str) -> String {
    if let Some(inside) = file.strip_prefix("docs/") {
        return inside
            .strip_suffix("README.md")
            .map_or(inside.to_owned(), |folder| format!("{folder}index.md"));
    }
    let name = file.strip_suffix("/README.md").or_else(|| file.strip_suffix(".md")).unwrap_or(file);
    format!("{}.md", name.to_lowercase().replace('/', "-"))
}

/// Returns the file below the root that a link of a file in `folder` leads to. `None`: it leaves the repository.
pub fn source(folder: &str, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let mut path: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            ".." => drop(path.pop()?),
            "." | "" => {}
            part => path.push(part),
        }
    }
    Some(path.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_and_lists_of_the_index_become_parts_and_chapters() {
        let index = "# Documents\n\n## For **one**\n\n- [A `page`](a.md): text, [b](b.toml), [x](https://x.md)\n  - [C](objects/README.md)\n\
                     ## Others\n- [D](../lab/README.md)\n";
        let parts = parts(index).unwrap();
        assert_eq!(
            summary(&parts),
            "# Summary\n\n[Documents](index.md)\n\n# For **one**\n\n- [A page](a.md)\n  - [C](objects/index.md)\n\n# Others\n\n- [D](lab.md)\n"
        );
        assert_eq!(parts[1].chapters[0].file, "lab/README.md");
    }

    #[test]
    fn page_that_is_listed_twice_is_refused() {
        let error = parts("## A\n- [a](a.md)\n- [b](./a.md)\n").unwrap_err();
        assert_eq!(error, "docs/README.md lists docs/a.md twice");
        assert!(parts("- [a](a.md)\n").is_err());
    }

    #[test]
    fn links_that_leave_the_repository_have_no_source() {
        assert_eq!(source("docs/objects", "../rules/ndkpi.md").unwrap(), "docs/rules/ndkpi.md");
        assert_eq!(source("", "a.md").unwrap(), "a.md");
        assert_eq!(source("docs", "../../a.md"), None);
        assert_eq!(source("docs", "https://a/b.md"), None);
        assert_eq!(page("CONTRIBUTING.md"), "contributing.md");
    }
}
