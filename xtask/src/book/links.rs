// SPDX-License-Identifier: MIT OR Apache-2.0

//! Links and headings of Markdown, outside of blocks of code.

use std::ops::Range;

/// A link in a text.
#[derive(Debug, PartialEq, Eq)]
pub struct Link<'a> {
    pub text: &'a str,
    /// The target without its anchor; empty if the link leads to a place of the same page.
    pub target: &'a str,
    /// The anchor with its `#`.
    pub anchor: &'a str,
    /// The bytes of the whole link in the text.
    pub range: Range<usize>,
    pub is_image: bool,
}

/// Lists the links of a text with their places.
pub fn links(text: &str) -> Vec<Link<'_>> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("](") {
        let inside = text.get(at + 2..).and_then(|rest| rest.find(')')).map(|end| at + 2..at + 2 + end);
        let (Some(begin), Some(inside)) = (opening(text, at), inside) else { continue };
        let target = &text[inside.clone()];
        if target.contains(char::is_whitespace) || is_code(text, begin) {
            continue;
        }
        let (target, anchor) = target.split_at(target.find('#').unwrap_or(target.len()));
        let is_image = text[..begin].ends_with('!');
        found.push(Link {
            text: &text[begin + 1..at],
            target,
            anchor,
            range: begin..inside.end + 1,
            is_image,
        });
    }
    found
}

/// The place of the bracket that the one at `at` closes.
fn opening(text: &str, at: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (place, character) in text[..at].char_indices().rev() {
        match character {
            ']' => depth += 1,
            '[' if depth == 0 => return Some(place),
            '[' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Whether a place of a text is in a block of code, or between backquotes of its line.
fn is_code(text: &str, place: usize) -> bool {
    let line = text[..place].rfind('\n').map_or(0, |end| end + 1);
    let fences = text[..line].lines().filter(|line| line.starts_with("```")).count();
    fences % 2 == 1 || text[line..place].matches('`').count() % 2 == 1
}

/// A heading, with the identifier that mdBook and Git forges give it.
#[derive(Debug, PartialEq, Eq)]
pub struct Heading {
    /// 1 for the title of the page.
    pub level: usize,
    pub text: String,
    pub id: String,
}

/// Lists the headings of a page.
pub fn headings(page: &str) -> Vec<Heading> {
    let mut found = Vec::<Heading>::new();
    let mut is_code = false;
    for line in page.lines() {
        is_code ^= line.starts_with("```");
        let Some((marks, text)) = line.split_once(' ').filter(|(marks, _)| !is_code && is_marks(marks))
        else {
            continue;
        };
        let text = plain(text);
        let id = identifier(&text);
        let same = found.iter().filter(|other| identifier(&other.text) == id).count();
        let id = if same == 0 { id } else { format!("{id}-{same}") };
        found.push(Heading { level: marks.len(), text, id });
    }
    found
}

fn is_marks(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte == b'#')
}

/// Returns a text with the texts of its links in place of these.
pub fn plain(text: &str) -> String {
    let mut plain = text.to_owned();
    for link in links(text).into_iter().rev() {
        plain.replace_range(link.range.clone(), link.text);
    }
    plain
}

/// The identifier of a heading with this text, if it is the first one.
fn identifier(text: &str) -> String {
    let kept = text.chars().filter_map(|character| match character {
        ' ' => Some('-'),
        '-' | '_' => Some(character),
        _ if character.is_alphanumeric() => Some(character.to_ascii_lowercase()),
        _ => None,
    });
    kept.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_have_texts_targets_and_anchors() {
        let text = "a [b [c]](d.md#e), `[f](g)` ![h](i.svg)\n```\n[j](k)\n```\n[l](#m)";
        let found: Vec<_> = links(text)
            .into_iter()
            .map(|link| (link.text, link.target, link.anchor, link.is_image))
            .collect();
        assert_eq!(found, [("b [c]", "d.md", "#e", false), ("h", "i.svg", "", true), ("l", "", "#m", false)]);
        assert_eq!(&text[links(text)[0].range.clone()], "[b [c]](d.md#e)");
    }

    #[test]
    fn equal_headings_have_different_identifiers() {
        let ids: Vec<_> = headings("# A `b`: [c, d](e)\n## E\n```\n# F\n```\n### E\n#G\n")
            .into_iter()
            .map(|heading| (heading.level, heading.id))
            .collect();
        assert_eq!(ids, [(1, "a-b-c-d".to_owned()), (2, "e".to_owned()), (3, "e-1".to_owned())]);
    }
}
