// SPDX-License-Identifier: MIT OR Apache-2.0

//! Expressions in code of the image that make a mutable alias of memory that others hold. clippy and rustc refuse the casts
//! with `as`; these do the same by methods.

use std::{fs, path::Path};

use anyhow::{Context as _, Result};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// Refused tokens, and what is wrong with them. `_` is any group of generic arguments.
const REFUSED: [(&[&str], &str); 5] = [
    (
        &["as_ptr", "(", ".", "cast_mut"],
        "a mutable pointer from a shared reference: use `as_mut_ptr` of a mutable one",
    ),
    (
        &["as_ptr", "(", "as", "*", "mut"],
        "a mutable pointer from a shared reference: use `as_mut_ptr` of a mutable one",
    ),
    (&["&", "mut", "*", "_", ".", "cast"], "a context that Windows also holds is only borrowed shared: `&*`"),
    (
        &["cast", "_", "(", ".", "as_mut", "("],
        "a context that Windows also holds is only borrowed shared: `as_ref`",
    ),
    (&["cast_mut", "(", ".", "as_mut", "("], "a mutable reference from a shared one"),
];

/// Lists the refused expressions of the driver and its crates, each with file and line.
pub fn refused(root: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    search(root, &root.join("src"), &mut found)?;
    for entry in fs::read_dir(root.join("crates"))? {
        search(root, &entry?.path().join("src"), &mut found)?;
    }
    found.sort();
    Ok(found)
}

fn search(root: &Path, folder: &Path, found: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() && name != "tests" {
            search(root, &path, found)?;
        } else if name.ends_with(".rs") && name != "tests.rs" && name != "testing.rs" {
            let text = fs::read_to_string(&path)?;
            let path = path.strip_prefix(root).unwrap_or(&path);
            for (line, reason) in in_text(&text).with_context(|| path.display().to_string())? {
                found.push(format!("{}:{line}: {reason}", path.display()));
            }
        }
    }
    Ok(())
}

/// The lines of refused expressions.
pub fn in_text(text: &str) -> Result<Vec<(usize, &'static str)>> {
    let tokens: TokenStream = text.parse().map_err(|error| anyhow::anyhow!("{error}"))?;
    let mut flat = Vec::new();
    flatten(tokens, &mut flat);
    let found = (0..flat.len()).filter_map(|start| {
        let refused = REFUSED.iter().find(|(pattern, _)| matches(pattern, &flat[start..]))?;
        Some((flat[start].1, refused.1))
    });
    Ok(found.collect())
}

/// The tokens in order with their lines, without those of `mod tests`. Brackets are tokens.
fn flatten(tokens: TokenStream, flat: &mut Vec<(String, usize)>) {
    for token in tokens {
        let line = token.span().start().line;
        let TokenTree::Group(group) = token else {
            flat.push((token.to_string(), line));
            continue;
        };
        if let [.., (module, _), (name, _)] = &flat[..]
            && (module.as_str(), name.as_str()) == ("mod", "tests")
        {
            continue;
        }
        let (open, close) = match group.delimiter() {
            Delimiter::Parenthesis => ("(", ")"),
            Delimiter::Brace => ("{", "}"),
            Delimiter::Bracket => ("[", "]"),
            Delimiter::None => ("", ""),
        };
        flat.push((open.to_owned(), line));
        flatten(group.stream(), flat);
        flat.push((close.to_owned(), group.span_close().start().line));
    }
}

/// Whether the tokens begin with the pattern. `_` is a name with its fields, or generic arguments; `(` is a whole call.
fn matches(pattern: &[&str], tokens: &[(String, usize)]) -> bool {
    let Some((first, pattern)) = pattern.split_first() else { return true };
    let text = |at: usize| tokens.get(at).map_or("", |token| token.0.as_str());
    let is_name = |at: usize| text(at).starts_with(|first: char| first.is_alphabetic() || first == '_');
    match *first {
        "_" if text(0) == ":" => {
            // `::<...>`
            let end = tokens.iter().position(|token| token.0 == ">");
            end.is_some_and(|end| matches(pattern, &tokens[end + 1..]))
        }
        "_" if is_name(0) => {
            let mut end = 1;
            while text(end) == "." && is_name(end + 1) && text(end + 1) != "cast" {
                end += 2;
            }
            matches(pattern, &tokens[end..])
        }
        "_" => matches(pattern, tokens),
        "(" => {
            let rest = text(0) == "(" && text(1) == ")";
            rest && (pattern.is_empty() || matches(pattern, &tokens[2..]))
        }
        token => text(0) == token && matches(pattern, &tokens[1..]),
    }
}

#[cfg(test)]
mod tests {
    use super::in_text;

    fn lines(body: &str) -> Vec<usize> {
        in_text(&format!("fn f() {{\n{body}\n}}")).unwrap().into_iter().map(|(line, _)| line).collect()
    }

    #[test]
    fn mutable_aliases_are_found() {
        for body in [
            "v.as_ptr().cast_mut();",
            "v.as_ptr() as *mut u8;",
            "unsafe { &mut *context.cast::<Adapter>() };",
            "unsafe { &mut *self.context.cast() };",
            "unsafe { context.cast::<Adapter>().as_mut() };",
            "from_ref(x).cast_mut().as_mut();",
            "call!(v.as_ptr().cast_mut());",
        ] {
            assert_eq!(lines(body), [2], "{body}");
        }
    }

    #[test]
    fn shared_borrows_and_exclusive_pointers_are_not() {
        for body in [
            "unsafe { &*context.cast::<Adapter>() };",
            "unsafe { &mut *request };",
            "unsafe { context.cast::<Adapter>().as_ref() };",
            "v.as_mut_ptr().cast();",
            "f(&mut *guard, p.cast());",
            "let x = y.as_mut();",
            "from_ref(context).cast_mut().cast();",
        ] {
            assert_eq!(lines(body), [0; 0], "{body}");
        }
        assert_eq!(in_text("mod tests { fn f() { v.as_ptr().cast_mut(); } }").unwrap(), []);
    }
}
