//! Licences of all dependencies, read from their manifests: for machines without cargo-deny.

use std::{collections::BTreeMap, fs, process::Command};

use anyhow::{Context as _, Result, ensure};
use spdx::{Expression, ParseMode};

use crate::shell;

/// Checks that each package of the lock file, on any platform, can be used under the licences of `deny.toml`.
///
/// # Errors
/// A package under other licences, without one, or from a source that is not a registry.
pub fn check() -> Result<()> {
    let deny: toml::Table = fs::read_to_string(shell::root().join("deny.toml"))?.parse()?;
    let allowed = deny.get("licenses").and_then(|l| l.get("allow")).and_then(toml::Value::as_array);
    let allowed: Vec<&str> =
        allowed.context("deny.toml allows no licence")?.iter().filter_map(toml::Value::as_str).collect();

    let mut cargo = Command::new("cargo");
    cargo.args(["metadata", "--format-version", "1", "--locked"]).current_dir(shell::root());
    let metadata: serde_json::Value = serde_json::from_str(&shell::output(&mut cargo)?)?;
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    let mut refused = BTreeMap::<&str, Vec<&str>>::new();
    for package in packages {
        let licence = package["license"].as_str().unwrap_or("no licence expression");
        let registry = package["source"].as_str();
        ensure!(
            registry.is_none_or(|source| source.starts_with("registry+")),
            "{} comes from {}",
            package["name"],
            registry.unwrap_or_default()
        );
        if !is_allowed(licence, &allowed) {
            refused.entry(licence).or_default().push(package["name"].as_str().unwrap_or("?"));
        }
    }
    ensure!(refused.is_empty(), "licences that deny.toml does not allow: {refused:?}");
    println!("{} packages: licences and sources are allowed (cargo-deny is not installed)", packages.len());
    Ok(())
}

/// True if the allowed licences satisfy an SPDX expression. `/` is the old way to write `OR`.
fn is_allowed(expression: &str, allowed: &[&str]) -> bool {
    // An exception only widens what the licence permits.
    Expression::parse_mode(expression, ParseMode::LAX).is_ok_and(|expression| {
        expression
            .evaluate(|required| required.license.id().is_some_and(|licence| allowed.contains(&licence.name)))
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
        assert!(!is_allowed("no licence expression", &["MIT"]));
    }
}
