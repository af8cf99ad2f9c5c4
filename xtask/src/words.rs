// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask words`: words that the project's text and names do not use, by the list in `xtask/words.toml`, first lines of doc
//! comments that an API reference cannot print, and SAFETY comments without an argument.

use std::{collections::BTreeMap, fs, process::Command};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::{doc_openings, safety_comments, shell};

const LIST: &str = "xtask/words.toml";

/// Files without text of ours.
const SKIPPED: [&str; 4] = ["Cargo.lock", "LICENSE-APACHE", "LICENSE-MIT", "fuzz/seeds"];

#[derive(clap::Args, Default)]
pub struct Options {
    /// Only files whose path begins with this
    #[arg(value_name = "PATH")]
    path: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    word: Vec<Avoided>,
    except: Vec<Exception>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Avoided {
    avoid: Vec<String>,
    instead: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Exception {
    /// The files: all that begin with this path. All files if it is missing.
    #[serde(default)]
    path: String,
    /// The words are allowed inside this phrase. Anywhere if it is missing.
    phrase: Option<String>,
    reason: String,
}

/// Prints each use of a word of the list. Fails if there is one.
///
/// # Errors
/// An avoided word, an exception without a reason or without a use, or a file that cannot be read.
pub fn run(options: &Options) -> Result<()> {
    let text = fs::read_to_string(shell::root().join(LIST)).with_context(|| format!("cannot read {LIST}"))?;
    let list: List = toml::from_str(&text).with_context(|| format!("cannot read {LIST}"))?;
    ensure!(list.except.iter().all(|except| !except.reason.is_empty()), "{LIST}: an exception has no reason");
    let mut used = vec![false; list.except.len()];
    let (mut files, mut found) = (0, 0);
    let mut folders = BTreeMap::<String, usize>::new();
    let tracked = tracked()?;
    if options.path.is_none() {
        doc_openings::check(&tracked)?;
        safety_comments::check(&tracked)?;
    }
    for path in tracked {
        if options.path.as_deref().is_some_and(|wanted| !path.starts_with(wanted)) {
            continue;
        }
        // A file that is not UTF-8 is no text; one that is gone was just deleted.
        let Ok(text) = fs::read_to_string(shell::root().join(&path)) else { continue };
        files += 1;
        for hit in hits(&list.word, &text) {
            let line = text.lines().nth(hit.line - 1).unwrap_or_default();
            let excepted = list.except.iter().position(|except| {
                path.starts_with(&except.path)
                    && except.phrase.as_deref().is_none_or(|phrase| line.contains(phrase))
            });
            if let Some(index) = excepted {
                used[index] = true;
                continue;
            }
            println!("{path}:{}: \"{}\": write {}", hit.line, hit.word, hit.instead);
            *folders.entry(folder(&path)).or_default() += 1;
            found += 1;
        }
    }
    if folders.len() > 1 {
        println!();
        for (folder, count) in &folders {
            println!("{count:>5} in {folder}");
        }
    }
    println!("{files} files: {found} uses of words that {LIST} lists");
    if options.path.is_none() {
        let unused = list.except.iter().zip(used).find(|(_, used)| !used);
        ensure!(
            unused.is_none(),
            "{LIST}: nothing needs the exception {:?} {:?}",
            unused.map_or("", |(except, _)| &except.path),
            unused.and_then(|(except, _)| except.phrase.as_deref()).unwrap_or_default()
        );
    }
    ensure!(found == 0, "{found} uses of words to avoid");
    Ok(())
}

/// Paths of the files that git tracks.
fn tracked() -> Result<Vec<String>> {
    let list = shell::output(Command::new("git").args(["ls-files", "-z"]).current_dir(shell::root()))?;
    let is_ours = |path: &&str| !path.is_empty() && !SKIPPED.iter().any(|skipped| path.starts_with(skipped));
    Ok(list.split('\0').filter(is_ours).map(str::to_owned).collect())
}

/// The first folder of a path; of crates, the crate.
fn folder(path: &str) -> String {
    let is_deep = ["consumers/", "crates/", "drivers/", "sim/"].iter().any(|parent| path.starts_with(parent));
    let depth = if is_deep { 2 } else { 1 };
    path.split('/').take(depth).collect::<Vec<_>>().join("/")
}

/// The use of an avoided word.
struct Hit<'a> {
    line: usize,
    word: &'a str,
    instead: &'a str,
}

/// The uses in a text, in its order.
fn hits<'a>(list: &'a [Avoided], text: &str) -> Vec<Hit<'a>> {
    let words = words(text);
    let is_here = |at: usize, avoided: &str| {
        avoided.split(' ').enumerate().all(|(offset, part)| {
            words.get(at + offset).is_some_and(|word| word.text == part && (offset == 0 || word.continues))
        })
    };
    let mut hits = Vec::new();
    for (at, word) in words.iter().enumerate() {
        for avoided in list {
            let uses = avoided.avoid.iter().filter(|avoided| is_here(at, avoided));
            hits.extend(uses.map(|word_| Hit { line: word.line, word: word_, instead: &avoided.instead }));
        }
    }
    hits
}

struct Word {
    /// In lower case.
    text: String,
    line: usize,
    /// True if only space, comment signs or an underscore stand between it and the word before.
    continues: bool,
}

/// The words of a text. CamelCase and snake_case names are several; numbers and escapes are none.
fn words(text: &str) -> Vec<Word> {
    let mut words = Vec::<Word>::new();
    let mut line = 1;
    let mut continues = false;
    let mut characters = text.chars().peekable();
    while let Some(first) = characters.next() {
        if first.is_ascii_digit() {
            // The rest of a number such as 0xdeed.
            while characters.next_if(char::is_ascii_alphanumeric).is_some() {}
            continues = false;
        } else if first == '\\' {
            characters.next_if(char::is_ascii_alphabetic);
            continues = false;
        } else if first.is_ascii_alphabetic() {
            let mut word = String::from(first.to_ascii_lowercase());
            let mut last = first;
            while let Some(&next) = characters.peek() {
                // `aB` is two words; `AB` may be an abbreviation.
                if !next.is_ascii_alphabetic() || (last.is_ascii_lowercase() && next.is_ascii_uppercase()) {
                    break;
                }
                word.push(next.to_ascii_lowercase());
                last = next;
                characters.next();
            }
            words.push(Word { text: word, line, continues });
            continues = true;
        } else {
            line += usize::from(first == '\n');
            continues &= first.is_whitespace() || "/!*#>_".contains(first);
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(usize, String)> {
        let list = [Avoided {
            avoid: ["owes", "deed", "any more"].map(str::to_owned).to_vec(),
            instead: String::new(),
        }];
        hits(&list, text).into_iter().map(|hit| (hit.line, hit.word.to_owned())).collect()
    }

    #[test]
    fn whole_words_are_found_in_any_case() {
        assert_eq!(found("It owes one.\nOWES it."), [(1, "owes".into()), (2, "owes".into())]);
        assert!(found("Indeed, he flowes 0xdeed \\deed").is_empty());
    }

    #[test]
    fn parts_of_names_are_words() {
        assert_eq!(found("fn owes_ack() {}").len(), 1);
        assert_eq!(found("struct PeerOwes;").len(), 1);
        assert_eq!(found("const DEED: u8;").len(), 1);
    }

    #[test]
    fn phrases_are_found_across_lines_of_a_comment() {
        assert_eq!(found("/// not any\n    /// more of it"), [(1, "any more".into())]);
        assert_eq!(found("is_not_any_more").len(), 1);
        assert!(found("if any, more of it").is_empty());
    }
}
