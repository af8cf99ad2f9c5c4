// SPDX-License-Identifier: MIT OR Apache-2.0

//! Drivers of others that import what the simulated kernel does not have: each function is named once, with its callers.

use anyhow::Result;
use nt_sim::image::Image;

use crate::exit::Exit;

/// Callers of a function that are named.
const CALLERS: usize = 3;

/// Refuses an image with such imports, unless they are `allowed`.
///
/// # Errors
/// With exit code 2.
pub fn check(image: &Image, allowed: bool) -> Result<()> {
    match sentence(image) {
        Some(sentence) if !allowed => {
            Err(Exit::usage(format!("{sentence}; with --allow-missing it runs, and a call is a bug check")))
        }
        _ => Ok(()),
    }
}

/// Returns the sentence that names the imports of an image that the simulated kernel does not have.
#[must_use]
pub fn sentence(image: &Image) -> Option<String> {
    let missing = image.missing_imports();
    let with_callers = |(number, name): (usize, &String)| {
        let callers = image.callers_of_missing(number);
        let named: Vec<_> = callers.iter().take(CALLERS).map(ToString::to_string).collect();
        match (named.as_slice(), callers.len().saturating_sub(CALLERS)) {
            ([], _) => format!("{name} (no call was found)"),
            (_, 0) => format!("{name} (used at {})", named.join(", ")),
            (_, more) => format!("{name} (used at {} and {more} more)", named.join(", ")),
        }
    };
    let names: Vec<_> = missing.iter().enumerate().map(with_callers).collect();
    (!names.is_empty()).then(|| {
        format!("{} imports what the simulated kernel does not have: {}", image.name(), names.join(", "))
    })
}
