// SPDX-License-Identifier: MIT OR Apache-2.0

//! Every check of the simulated kernel has a test that expects its report.
//!
//! A check is a call that reports a violation with a text. A test expects a check if it compares reports with a string that is a part
//! of the check's text and contains most of its longest fixed part: that between two placeholders.

use std::{fs, path::Path, path::PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::LitStr;

/// Functions that report a violation if they return at all.
const REPORTS: [&str; 7] =
    ["violation", "broken", "require", "finding", "misuse", "undocumented", "undocumented_call"];

/// Functions whose strings are parts of reports that a test expects.
const EXPECTATIONS: [&str; 7] = [
    "assert_all_reported",
    "assert_reported",
    "assert_reported_while_running",
    "contains",
    "push",
    "starts_with",
    "violates",
];

const CHECKED: [&str; 2] = ["sim/nt/src", "sim/ndis/src"];
const TESTS: [&str; 4] = ["sim/nt/tests", "sim/ndis/tests", "sim/device/tests", "tests"];

/// The shortest text that is one of a check.
const SHORTEST: usize = 8;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the Rust files below a folder, but this one: path and tokens.
fn sources(folder: &Path) -> Vec<(PathBuf, TokenStream)> {
    let entries = fs::read_dir(folder).expect("a folder of the repository");
    let paths = entries.map(|entry| entry.expect("a readable folder").path());
    paths
        .flat_map(|path| {
            if path.is_dir() {
                sources(&path)
            } else if path.extension().is_some_and(|extension| extension == "rs")
                && !path.ends_with("checks.rs")
            {
                let text = fs::read_to_string(&path).expect("a source file");
                let tokens = text.parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                vec![(path, tokens)]
            } else {
                Vec::new()
            }
        })
        .collect()
}

/// Returns the value of a string literal.
fn string(token: &TokenTree) -> Option<String> {
    let TokenTree::Literal(literal) = token else { return None };
    syn::parse_str::<LitStr>(&literal.to_string()).ok().map(|literal| literal.value())
}

fn is_identifier(token: Option<&TokenTree>, name: &str) -> bool {
    matches!(token, Some(TokenTree::Ident(identifier)) if identifier == name)
}

/// Returns all strings in `tokens`.
fn strings(tokens: TokenStream) -> Vec<String> {
    tokens
        .into_iter()
        .flat_map(|token| match &token {
            TokenTree::Group(group) => strings(group.stream()),
            _ => string(&token).into_iter().collect(),
        })
        .collect()
}

/// Returns the texts of the checks in `tokens`, unit tests excluded: the longest string of each call that reports. Calls without a
/// string pass on the text of another one.
fn checks(tokens: TokenStream) -> Vec<String> {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut texts = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let TokenTree::Group(group) = token else { continue };
        let before = |steps: usize| at.checked_sub(steps).and_then(|at| tokens.get(at));
        let is_unit_tests = is_identifier(before(1), "tests") && is_identifier(before(2), "mod");
        if is_unit_tests {
            continue;
        }
        let reports = group.delimiter() == Delimiter::Parenthesis
            && REPORTS.iter().any(|name| is_identifier(before(1), name))
            && !is_identifier(before(2), "fn");
        if reports {
            let found = strings(group.stream()).into_iter().filter(|text| text.len() >= SHORTEST);
            texts.extend(found.max_by_key(String::len));
        }
        texts.extend(checks(group.stream()));
    }
    texts
}

/// Returns the unit tests in the tokens of a file.
fn unit_tests(path: &Path, tokens: TokenStream) -> TokenStream {
    if path.ends_with("tests.rs") {
        return tokens;
    }
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let is_tests =
        |window: &&[TokenTree]| is_identifier(window.first(), "mod") && is_identifier(window.get(1), "tests");
    let modules = tokens.windows(3).filter(is_tests);
    modules
        .filter_map(|window| match window.get(2) {
            Some(TokenTree::Group(group)) => Some(group.stream()),
            _ => None,
        })
        .collect()
}

/// Returns the strings in `tokens` that are parts of expected reports: arguments of [`EXPECTATIONS`], elements of tables, and what is
/// bound to a name. `is_expected`: `tokens` are such arguments or a table.
fn expectations(tokens: TokenStream, is_expected: bool) -> Vec<String> {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut found = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let before = |steps: usize| at.checked_sub(steps).and_then(|at| tokens.get(at));
        let is_bound = || {
            matches!(before(1), Some(TokenTree::Punct(punct)) if punct.as_char() == '=')
                && is_identifier(before(3), "let")
        };
        if let Some(text) = string(token) {
            if is_expected || is_bound() {
                found.push(text);
            }
            continue;
        }
        let TokenTree::Group(group) = token else { continue };
        let is_call = matches!(before(1), Some(TokenTree::Ident(_) | TokenTree::Punct(_)))
            && group.delimiter() == Delimiter::Parenthesis;
        let name = match before(1) {
            Some(TokenTree::Punct(punct)) if punct.as_char() == '!' => before(2),
            name => name,
        };
        let inner = match group.delimiter() {
            Delimiter::Bracket => true,
            Delimiter::Parenthesis if matches!(name, Some(TokenTree::Ident(_))) && is_call => {
                EXPECTATIONS.iter().any(|expectation| is_identifier(name, expectation))
            }
            Delimiter::Parenthesis | Delimiter::None => is_expected,
            Delimiter::Brace => false,
        };
        found.extend(expectations(group.stream(), inner));
    }
    found
}

/// Returns whether `common` is most of `fixed`: 60 % of its characters, and of those that are no identifiers of an interface.
fn is_most(common: &str, fixed: &str) -> bool {
    fn words(text: &str) -> usize {
        let words = text.split(|character: char| !character.is_alphanumeric() && character != '_');
        let is_plain = |word: &&str| !word.contains('_') && !word.chars().skip(1).any(char::is_uppercase);
        words.filter(is_plain).map(str::len).sum()
    }
    let is_enough = |part: usize, whole: usize| 10 * part >= 6 * whole;
    is_enough(common.len(), fixed.len()) && is_enough(words(common), words(fixed))
}

/// Returns whether `expected` is a part of the text with placeholders that `check` is, and has most of its longest fixed part.
fn is_part(expected: &str, check: &str) -> bool {
    let parts = check.split('{').enumerate();
    let parts: Vec<&str> = parts
        .map(
            |(number, part)| {
                if number == 0 { part } else { part.split_once('}').map_or(part, |(_, fixed)| fixed) }
            },
        )
        .collect();
    let longest = parts.iter().enumerate().max_by_key(|(_, part)| part.trim().len());
    let Some((number, &part)) = longest else { return false };
    let (expected, fixed) = (expected.trim(), part.trim());
    if fixed.is_empty() {
        return false;
    }
    let begins_after_placeholder = number > 0;
    let ends_before_placeholder = number + 1 < parts.len();
    expected.contains(fixed)
        || part.contains(expected) && is_most(expected, fixed)
        || begins_after_placeholder && is_most(overlap(expected, part), fixed)
        || ends_before_placeholder && is_most(overlap(part, expected), fixed)
}

/// Returns the longest end of `left` with which `right` begins.
fn overlap<'a>(left: &'a str, right: &str) -> &'a str {
    let ends = left.char_indices().map(|(at, _)| &left[at..]);
    ends.filter(|end| right.starts_with(end)).max_by_key(|end| end.len()).unwrap_or_default()
}

/// Returns the texts of all checks, and the strings of all tests that are parts of expected reports.
fn checks_and_expectations() -> (Vec<String>, Vec<String>) {
    let in_folders = |folders: &[&str]| -> Vec<(PathBuf, TokenStream)> {
        folders.iter().flat_map(|folder| sources(&root().join(folder))).collect()
    };
    let (mut texts, mut expected) = (Vec::new(), Vec::new());
    for (path, tokens) in in_folders(&CHECKED) {
        expected.extend(expectations(unit_tests(&path, tokens.clone()), false));
        if !path.ends_with("tests.rs") {
            texts.extend(checks(tokens));
        }
    }
    for (_, tokens) in in_folders(&TESTS) {
        expected.extend(expectations(tokens, false));
    }
    expected.retain(|text| text.len() >= SHORTEST);
    (texts, expected)
}

#[test]
fn every_check_is_expected_by_a_test() {
    let (all, expected) = checks_and_expectations();
    assert!(all.len() > 150, "{} checks are found", all.len());
    let is_expected = |check: &String| expected.iter().any(|text| is_part(text, check));
    let missing: Vec<&String> = all.iter().filter(|check| !is_expected(check)).collect();
    assert!(missing.is_empty(), "no test expects {missing:#?}");
}

#[test]
fn check_that_was_made_up_is_expected_by_no_test() {
    let (_, expected) = checks_and_expectations();
    for check in
        ["the adapter is not painted blue", "the consumer sings", "NdisMFreeSharedMemory of a rainbow"]
    {
        let found: Vec<&String> = expected.iter().filter(|text| is_part(text, check)).collect();
        assert!(found.is_empty(), "{check} is expected by {found:?}");
    }
}

#[test]
fn expectation_has_most_of_the_longest_fixed_part() {
    let check = "freed memory at {address:#x} contains a DPC that is queued; flush it first";
    for (expected, is_enough) in [
        ("contains a DPC that is queued; flush it first", true),
        ("memory at 0x1000 contains a DPC that is queued; flush it", true),
        ("contains a DPC that is queued", true),
        ("contains a DPC", false),
        ("freed memory at 0x1000", false),
        ("contains a timer that is queued; flush it first", false),
    ] {
        assert_eq!(is_part(expected, check), is_enough, "{expected}");
    }
}

#[test]
fn strings_that_are_no_expectations_do_not_count() {
    let tokens = r#"
        fn test() {
            let expected = "bound to a name";
            println!("printed");
            file.expect("message of a failure");
            assert!(verdict.contains("part of a report"), "message of an assertion");
            assert_reported(&[(|handle| call(handle, "an argument"), "in a table")]);
        }
    "#;
    let found = expectations(tokens.parse().expect("tokens"), false);
    assert_eq!(found, ["bound to a name", "part of a report", "in a table"]);
}
