// SPDX-License-Identifier: MIT OR Apache-2.0

//! License headers of source files, and licenses of dependencies: read from their manifests, for machines without
//! cargo-deny.

use std::{collections::BTreeMap, fs, process::Command};

use anyhow::{Context as _, Result, ensure};
use spdx::{Expression, ParseMode};

use crate::{shell, workspace::Workspace};

/// The first line of each source file.
const HEADER: &str = "// SPDX-License-Identifier: MIT OR Apache-2.0";

/// Checks that each source file begins with its license.
///
/// # Errors
/// Files without the line.
pub fn headers() -> Result<()> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "*.rs", "*.c", "*.h"]).current_dir(shell::root());
    let mut missing = 0;
    for file in shell::output(&mut git)?.split_terminator('\0') {
        // A file that is gone was just deleted.
        let Ok(text) = fs::read_to_string(shell::root().join(file)) else { continue };
        if text.lines().next() != Some(HEADER) {
            println!("{file} does not begin with {HEADER}");
            missing += 1;
        }
    }
    ensure!(missing == 0, "{missing} files without a license");
    Ok(())
}

/// Checks that each package of the lock file, on any platform, can be used under the licenses of `deny.toml`.
///
/// # Errors
/// A package under other licenses, without one, or from a source that is not a registry.
pub fn check() -> Result<()> {
    let deny: toml::Table = fs::read_to_string(shell::root().join("deny.toml"))?.parse()?;
    let allowed = deny.get("licenses").and_then(|l| l.get("allow")).and_then(toml::Value::as_array);
    let allowed: Vec<&str> =
        allowed.context("deny.toml allows no license")?.iter().filter_map(toml::Value::as_str).collect();

    let mut packages = Vec::new();
    for workspace in Workspace::ALL {
        packages.extend(workspace.packages(&["--locked"])?);
    }
    let mut refused = BTreeMap::<&str, Vec<&str>>::new();
    for package in &packages {
        let license = package["license"].as_str().unwrap_or("no license expression");
        let registry = package["source"].as_str();
        ensure!(
            registry.is_none_or(|source| source.starts_with("registry+")),
            "{} comes from {}",
            package["name"],
            registry.unwrap_or_default()
        );
        if !is_allowed(license, &allowed) {
            refused.entry(license).or_default().push(package["name"].as_str().unwrap_or("?"));
        }
    }
    ensure!(refused.is_empty(), "licenses that deny.toml does not allow: {refused:?}");
    println!("{} packages: licenses and sources are allowed (cargo-deny is not installed)", packages.len());
    Ok(())
}

/// True if the allowed licenses satisfy an SPDX expression. `/` is the old way to write `OR`.
fn is_allowed(expression: &str, allowed: &[&str]) -> bool {
    // An exception only widens what the license permits.
    Expression::parse_mode(expression, ParseMode::LAX).is_ok_and(|expression| {
        expression
            .evaluate(|required| required.license.id().is_some_and(|license| allowed.contains(&license.name)))
    })
}

#[cfg(test)]
mod tests {
    use super::is_allowed;

    #[test]
    fn one_of_several_alternatives_is_enough() {
        assert!(is_allowed("LGPL-2.1 OR MIT", &["MIT"]));
        assert!(is_allowed("Apache-2.0/MIT", &["MIT"]));
        assert!(!is_allowed("LGPL-2.1 OR GPL-2.0", &["MIT"]));
    }

    #[test]
    fn all_of_several_conditions_are_needed() {
        assert!(is_allowed("(MIT OR Apache-2.0) AND Unicode-3.0", &["MIT", "Unicode-3.0"]));
        assert!(!is_allowed("(MIT OR Apache-2.0) AND Unicode-3.0", &["MIT"]));
        assert!(is_allowed("Apache-2.0 WITH LLVM-exception OR MIT", &["Apache-2.0"]));
    }

    #[test]
    fn an_incomplete_expression_is_refused() {
        assert!(!is_allowed("MIT OR", &["MIT"]));
        assert!(!is_allowed("(MIT", &["MIT"]));
        assert!(!is_allowed("no license expression", &["MIT"]));
    }
}
