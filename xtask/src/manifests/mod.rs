// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask manifests`: the manifests of the two workspaces say the same where both say something, and the lock file of the
//! driver is derived from that of the tools.
//!
//! `xtask/Cargo.lock` is the one to update. Both lock files have the same version of a package that is in both; packages that only
//! the driver's workspace has, as dependencies of its tests, are in its lock file alone. Packages that one workspace has and the
//! other one links have a level of optimization in `.cargo/config.toml`.

mod levels;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use anyhow::{Context as _, Result, ensure};
use toml::{Table, Value};

use crate::{shell, workspace::Workspace};

/// Tables of `[workspace]` that both manifests have.
const SAME: [&str; 2] = ["package", "lints"];

#[derive(clap::Args, Default)]
pub struct Options {
    /// Change Cargo.lock to the versions of xtask/Cargo.lock
    #[arg(long)]
    lock: bool,
}

/// Runs the command.
///
/// # Errors
/// A manifest or lock file that cannot be read, or says something else than the other.
pub fn run(options: &Options) -> Result<()> {
    if options.lock {
        let path = Workspace::Driver.file("Cargo.lock");
        fs::write(&path, combined_lock()?).with_context(|| format!("cannot write {}", path.display()))?;
        // Cargo removes what the workspace does not need.
        shell::output(Workspace::Driver.cargo().args(["metadata", "--format-version", "1"]))?;
    }
    check()
}

/// Compares the manifests and the lock files, and checks the packages in the profiles.
///
/// # Errors
/// A difference.
pub fn check() -> Result<()> {
    let [driver, tools] = Workspace::ALL.map(|workspace| table(workspace, "Cargo.toml"));
    let mut differences = of_manifests(&driver?, &tools?);
    let [driver, tools] = Workspace::ALL.map(packages);
    differences.extend(of_locks(&driver?, &tools?));
    differences.extend(levels::differences(&names()?)?);
    for difference in &differences {
        println!("{difference}");
    }
    ensure!(differences.is_empty(), "{} faults in what the two workspaces share", differences.len());
    Ok(())
}

/// Differences between the two manifests: tables that should be equal, and dependencies that are in both.
fn of_manifests(driver: &Table, tools: &Table) -> Vec<String> {
    let part =
        |manifest: &Table, name: &str| manifest.get("workspace").and_then(|all| all.get(name)).cloned();
    let mut found: Vec<String> = SAME
        .iter()
        .filter(|name| part(driver, name) != part(tools, name))
        .map(|name| format!("[workspace.{name}] of Cargo.toml and of xtask/Cargo.toml differ"))
        .collect();
    let tools = dependencies(tools);
    for (name, here) in dependencies(driver) {
        if tools.get(&name).is_some_and(|there| *there != here) {
            found.push(format!("the dependency {name} of Cargo.toml and that of xtask/Cargo.toml differ"));
        }
    }
    found
}

/// Returns the dependencies that a workspace declares, with paths from the root of the repository.
pub fn dependencies(manifest: &Table) -> Table {
    let declared =
        manifest.get("workspace").and_then(|all| all.get("dependencies")).and_then(Value::as_table);
    let mut declared = declared.cloned().unwrap_or_default();
    for (_, dependency) in &mut declared {
        if let Some(Value::String(path)) = dependency.get_mut("path") {
            *path = path.strip_prefix("../").unwrap_or(path).to_owned();
        }
    }
    declared
}

/// A published package as a lock file names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Locked {
    pub name: String,
    pub version: String,
    checksum: String,
}

impl Locked {
    /// Returns the name, and the part of the version within which cargo takes one version only.
    fn line(&self) -> (&str, &str) {
        let major = self.version.split('.').next().unwrap_or_default();
        let compatible = if major == "0" {
            let end = self.version.match_indices('.').nth(1).map_or(self.version.len(), |(at, _)| at);
            self.version.get(..end).unwrap_or_default()
        } else {
            major
        };
        (&self.name, compatible)
    }
}

/// Packages of which the two lock files name versions that cargo could unify.
fn of_locks(driver: &BTreeSet<Locked>, tools: &BTreeSet<Locked>) -> Vec<String> {
    let tools: BTreeMap<_, _> = tools.iter().map(|package| (package.line(), package)).collect();
    driver
        .iter()
        .filter_map(|here| {
            let there = tools.get(&here.line()).filter(|there| **there != here)?;
            Some(format!(
                "Cargo.lock has {} {}, xtask/Cargo.lock has {}: run `cargo xtask manifests --lock`",
                here.name, here.version, there.version
            ))
        })
        .collect()
}

/// Returns the published packages of a workspace's lock file.
///
/// # Errors
/// A lock file that cannot be read.
pub fn packages(workspace: Workspace) -> Result<BTreeSet<Locked>> {
    Ok(locked(&table(workspace, "Cargo.lock")?))
}

/// Returns the published packages of a lock file.
pub fn locked(lock: &Table) -> BTreeSet<Locked> {
    entries(lock).iter().filter_map(package).collect()
}

/// Returns a lock file with the packages of both workspaces, of which cargo removes what a workspace does not need.
///
/// # Errors
/// A lock file that cannot be read.
pub fn combined_lock() -> Result<String> {
    let mut lock = table(Workspace::Tools, "Cargo.lock")?;
    let driver = table(Workspace::Driver, "Cargo.lock")?;
    let tools = locked(&lock);
    let lines: BTreeSet<_> = tools.iter().map(Locked::line).collect();
    let is_missing = |entry: &&Value| package(entry).is_some_and(|package| !lines.contains(&package.line()));
    let mut all = entries(&lock).to_vec();
    all.extend(entries(&driver).iter().filter(is_missing).cloned());
    lock.insert("package".to_owned(), Value::Array(all));
    Ok(toml::to_string(&lock)?)
}

fn entries(lock: &Table) -> &[Value] {
    lock.get("package").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Returns the names of all packages of both lock files.
fn names() -> Result<BTreeSet<String>> {
    let [driver, tools] = Workspace::ALL.map(|workspace| table(workspace, "Cargo.lock"));
    let (driver, tools) = (driver?, tools?);
    let all = entries(&driver).iter().chain(entries(&tools));
    Ok(all.filter_map(|entry| Some(entry.get("name")?.as_str()?.to_owned())).collect())
}

/// A package of the repository itself has no checksum.
fn package(entry: &Value) -> Option<Locked> {
    let field = |name: &str| entry.get(name)?.as_str().map(str::to_owned);
    Some(Locked { name: field("name")?, version: field("version")?, checksum: field("checksum")? })
}

fn table(workspace: Workspace, name: &str) -> Result<Table> {
    let path = workspace.file(name);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    text.parse().with_context(|| format!("{} is not TOML", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn locked(name: &str, version: &str) -> Locked {
        Locked { name: name.into(), version: version.into(), checksum: version.into() }
    }

    #[test]
    fn the_manifests_and_the_lock_files_agree() {
        check().unwrap();
    }

    #[test]
    fn a_version_that_only_one_lock_file_has_is_found() {
        let driver = [locked("a", "1.2.3"), locked("b", "0.4.1"), locked("c", "2.0.0"), locked("d", "1.0.0")];
        let tools = [locked("a", "1.2.4"), locked("b", "0.4.2"), locked("b", "0.5.0"), locked("d", "1.0.0")];
        let found = of_locks(&driver.into(), &tools.into());
        assert_eq!(found.len(), 2);
        assert!(found[0].starts_with("Cargo.lock has a 1.2.3, xtask/Cargo.lock has 1.2.4"));
        assert!(found[1].starts_with("Cargo.lock has b 0.4.1, xtask/Cargo.lock has 0.4.2"));
    }

    #[test]
    fn another_lint_and_another_version_of_a_dependency_are_found() {
        let manifest = |lint: &str, version: &str, path: &str| -> Table {
            format!(
                "[workspace.lints.clippy]\npedantic = '{lint}'\n\
                 [workspace.dependencies]\na = '{version}'\nroce = {{ path = '{path}' }}"
            )
            .parse()
            .unwrap()
        };
        let driver = manifest("warn", "1", "crates/roce");
        assert!(of_manifests(&driver, &manifest("warn", "1", "../crates/roce")).is_empty());
        let found = of_manifests(&driver, &manifest("deny", "2", "../crates/other"));
        assert_eq!(found.len(), 3);
        assert!(found[0].starts_with("[workspace.lints]"));
        assert!(found[1].starts_with("the dependency a "));
    }
}
