// SPDX-License-Identifier: MIT OR Apache-2.0

//! Lines of Rust files that a check refuses.

use std::{fs, path::Path};

use crate::shell;

/// Prints the lines that `find` returns of each of these files that is one of Rust, by path and number. Returns how many there are.
pub fn print_refused<'a>(
    paths: impl IntoIterator<Item = &'a String>,
    find: impl Fn(&str) -> Vec<(usize, String)>,
) -> usize {
    let mut found = 0;
    for path in paths {
        if Path::new(path).extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        // One that is gone was just deleted.
        let Ok(text) = fs::read_to_string(shell::root().join(path)) else { continue };
        for (number, line) in find(&text) {
            println!("{path}:{number}: {line}");
            found += 1;
        }
    }
    found
}
