// SPDX-License-Identifier: MIT OR Apache-2.0

//! A page as the book shows it: links lead to pages of the book, files of the repository are named, and a long page has a table of
//! contents.

use std::{collections::BTreeSet, fmt::Write as _};

use super::{
    index::{page, source},
    links::{headings, links},
};

/// Pages of more words have a table of contents.
const LONG: usize = 2000;

/// So have pages of more sections.
const MANY_SECTIONS: usize = 12;

/// A table of contents has at most so many lines; otherwise it has the headings of the first level only.
const MOST_LINES: usize = 40;

/// Returns the text of a page of the book.
///
/// # Errors
/// Links to pages that the book does not have.
pub fn chapter(file: &str, text: &str, files: &BTreeSet<String>) -> Result<String, String> {
    Ok(with_contents(&with_links(file, text, files)?))
}

/// Replaces the targets of links: pages of the book by their names there, other files of the repository by their paths in the text.
fn with_links(file: &str, text: &str, files: &BTreeSet<String>) -> Result<String, String> {
    let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
    let page_folder = page(file).rsplit_once('/').map_or(String::new(), |(folder, _)| folder.to_owned());
    let (mut new, mut done) = (String::new(), 0);
    for link in links(text) {
        let Some(target) = source(folder, link.target).filter(|_| !link.target.is_empty()) else { continue };
        if link.is_image && target.starts_with("docs/") {
            continue;
        }
        new.push_str(&text[done..link.range.start]);
        done = link.range.end;
        if files.contains(&target) {
            let up = "../".repeat(page_folder.split('/').filter(|part| !part.is_empty()).count());
            let _ = write!(new, "[{}]({up}{}{})", link.text, page(&target), link.anchor);
        } else if target.starts_with("docs/") && target.strip_suffix(".md").is_some() {
            return Err(format!("{file} links to {target}, which docs/README.md does not list"));
        } else if link.text.contains(&target) {
            new.push_str(link.text);
        } else {
            let _ = write!(new, "{} (`{target}`)", link.text);
        }
    }
    new.push_str(&text[done..]);
    Ok(new)
}

/// Adds a table of contents before the first section of a long page.
fn with_contents(text: &str) -> String {
    let sections: Vec<_> =
        headings(text).into_iter().filter(|heading| matches!(heading.level, 2 | 3)).collect();
    let is_long = sections.len() > MANY_SECTIONS || text.split_whitespace().count() > LONG;
    let Some(at) = text.find("\n## ").filter(|_| is_long) else {
        return text.to_owned();
    };
    let deepest = if sections.len() > MOST_LINES { 2 } else { 3 };
    let mut contents = "\n<nav class=\"contents\" aria-label=\"On this page\">\n\n".to_owned();
    for heading in sections.iter().filter(|heading| heading.level <= deepest) {
        let _ = writeln!(contents, "{}- [{}](#{})", "  ".repeat(heading.level - 2), heading.text, heading.id);
    }
    contents.push_str("\n</nav>\n");
    format!("{}{contents}{}", &text[..at], &text[at..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files() -> BTreeSet<String> {
        ["docs/a.md", "docs/objects/README.md", "lab/README.md"].map(str::to_owned).into()
    }

    #[test]
    fn links_lead_to_pages_of_the_book_or_name_a_file() {
        let text = "[a](../a.md#b) [lab](../../lab/README.md) [code](../../src/lib.rs) [`src/lib.rs`](../../src/lib.rs) [x](#x) [w](https://w) ![f](../f.svg)";
        assert_eq!(
            chapter("docs/objects/README.md", text, &files()).unwrap(),
            "[a](../a.md#b) [lab](../lab.md) code (`src/lib.rs`) `src/lib.rs` [x](#x) [w](https://w) ![f](../f.svg)"
        );
        let error = chapter("docs/a.md", "[z](objects/z.md)", &files()).unwrap_err();
        assert_eq!(error, "docs/a.md links to docs/objects/z.md, which docs/README.md does not list");
    }

    #[test]
    fn only_a_long_page_has_a_table_of_contents() {
        let short = "# T\n\nText.\n\n## A [b](https://b)\n### C\n";
        assert_eq!(chapter("docs/a.md", short, &files()).unwrap(), short);
        let long = short.to_owned() + &"word ".repeat(LONG);
        let page = chapter("docs/a.md", &long, &files()).unwrap();
        assert!(page.starts_with(
            "# T\n\nText.\n\n<nav class=\"contents\" aria-label=\"On this page\">\n\n- [A b](#a-b)\n  - [C](#c)\n\n</nav>\n\n## A"
        ), "{page}");
    }
}
