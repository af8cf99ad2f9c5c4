// SPDX-License-Identifier: MIT OR Apache-2.0

//! The optimization of the project's own packages, in `.cargo/config.toml`.
//!
//! The profile `tool` leaves packages of others without optimization. Cargo counts among them what one workspace uses of the other one:
//! such a package needs a row of its own, with a level. What build scripts alone use needs none.

use std::{collections::BTreeSet, fs};

use anyhow::{Context as _, Result};
use serde_json::Value;
use toml::Table;

use crate::{shell, workspace::Workspace};

/// The file with the profiles.
const FILE: &str = ".cargo/config.toml";

/// A package of the repository, and those of its dependencies that are in the repository, too.
struct Local {
    name: String,
    dependencies: Vec<Dependency>,
}

struct Dependency {
    name: String,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Normal,
    Tests,
    BuildScript,
}

/// Returns the faults of the rows for packages in the profiles, where a name has to be one of `known`.
///
/// # Errors
/// A file that cannot be read, or a workspace that cargo cannot read.
pub fn differences(known: &BTreeSet<String>) -> Result<Vec<String>> {
    let path = shell::root().join(FILE);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let config = text.parse().with_context(|| format!("{} is not TOML", path.display()))?;
    let [driver, tools] = Workspace::ALL.map(locals);
    Ok(of_rows(&config, &[driver?, tools?], known))
}

/// Returns the members of a workspace.
fn locals(workspace: Workspace) -> Result<Vec<Local>> {
    let name = |value: &Value| value["name"].as_str().unwrap_or_default().to_owned();
    let dependency = |value: &Value| {
        let kind = match value["kind"].as_str() {
            Some("dev") => Kind::Tests,
            Some("build") => Kind::BuildScript,
            _ => Kind::Normal,
        };
        value["path"].is_string().then(|| Dependency { name: name(value), kind })
    };
    let packages = workspace.packages(&["--no-deps"])?;
    Ok(packages
        .iter()
        .map(|package| {
            let all = package["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default();
            Local { name: name(package), dependencies: all.iter().filter_map(dependency).collect() }
        })
        .collect())
}

/// Returns rows that are missing, have no level, or name no package.
fn of_rows(config: &Table, workspaces: &[Vec<Local>; 2], known: &BTreeSet<String>) -> Vec<String> {
    let mut found = Vec::new();
    for (profile, value) in config.get("profile").and_then(toml::Value::as_table).into_iter().flatten() {
        for (row, _) in value.get("package").and_then(toml::Value::as_table).into_iter().flatten() {
            let name = row.split('@').next().unwrap_or_default();
            if name != "*" && !known.contains(name) {
                found.push(format!("{FILE}: [profile.{profile}.package.{row}] names no package"));
            }
        }
    }
    let has_level = |name: &str| {
        let tool = config.get("profile").and_then(|all| all.get("tool")?.get("package")?.get(name));
        tool.is_some_and(|row| row.get("opt-level").is_some())
    };
    let needed: BTreeSet<&str> = workspaces.iter().flat_map(|members| foreign(members, workspaces)).collect();
    for name in needed.into_iter().filter(|name| !has_level(name)) {
        found.push(format!(
            "{FILE}: {name} is used by the other workspace, and [profile.tool.package.{name}] has no opt-level"
        ));
    }
    found
}

/// Returns the packages of the other workspace that programs of `members` link.
fn foreign<'a>(members: &'a [Local], workspaces: &'a [Vec<Local>; 2]) -> BTreeSet<&'a str> {
    let is_member = |name: &str| members.iter().any(|member| member.name == name);
    let mut reached = BTreeSet::new();
    let mut pending: Vec<&Local> = members.iter().collect();
    while let Some(package) = pending.pop() {
        for dependency in &package.dependencies {
            // Tests of packages of others are not compiled.
            let is_linked = match dependency.kind {
                Kind::Normal => true,
                Kind::Tests => is_member(&package.name),
                Kind::BuildScript => false,
            };
            if is_linked && !is_member(&dependency.name) && reached.insert(dependency.name.as_str()) {
                pending.extend(workspaces.iter().flatten().filter(|other| other.name == dependency.name));
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(name: &str, dependencies: &[(&str, Kind)]) -> Local {
        let dependencies = dependencies
            .iter()
            .map(|(name, kind)| Dependency { name: (*name).into(), kind: *kind })
            .collect();
        Local { name: name.into(), dependencies }
    }

    /// Faults of a configuration, where the tools link `wire` through `engine`, and the tests of the driver's packages `testkit`.
    fn faults(config: &str) -> Vec<String> {
        let driver = vec![
            local("driver", &[("engine", Kind::Normal), ("build", Kind::BuildScript)]),
            local("engine", &[("wire", Kind::Normal), ("testkit", Kind::Tests)]),
            local("wire", &[("untested", Kind::Tests)]),
            local("build", &[]),
            local("untested", &[]),
        ];
        let tools = vec![
            local("lab", &[("engine", Kind::Normal), ("build", Kind::BuildScript)]),
            local("testkit", &[]),
        ];
        let names = ["driver", "engine", "wire", "build", "untested", "lab", "testkit", "rand"];
        let known = names.map(str::to_owned).into();
        of_rows(&config.parse().unwrap(), &[driver, tools], &known)
    }

    /// A row for each of the packages with a level.
    fn rows(names: &[&str]) -> String {
        names
            .iter()
            .map(|name| format!("[profile.tool.package.{name}]\nopt-level = 3\n"))
            .collect::<Vec<_>>()
            .concat()
    }

    #[test]
    fn packages_that_both_workspaces_link_have_a_level() {
        assert_eq!(faults(&rows(&["engine", "wire", "testkit", "rand", "\"*\""])), Vec::<String>::new());
    }

    #[test]
    fn a_package_without_a_row_is_found() {
        let row = |name: &str| {
            format!(
                "{FILE}: {name} is used by the other workspace, and [profile.tool.package.{name}] has no opt-level"
            )
        };
        assert_eq!(faults(&rows(&["engine", "wire"])), [row("testkit")]);
        assert_eq!(faults(&rows(&["engine", "testkit"])), [row("wire")]);
        assert_eq!(
            faults(&(rows(&["wire", "testkit"]) + "[profile.tool.package.engine]\ndebug = 1\n")),
            [row("engine")]
        );
    }

    #[test]
    fn a_row_that_names_no_package_is_found() {
        let all = rows(&["engine", "wire", "testkit"]);
        let stale = "[profile.tool.package.engines]\nopt-level = 3\n[profile.measured.package.'bench@1']\nopt-level = 3\n";
        assert_eq!(
            faults(&(all + stale)),
            [
                format!("{FILE}: [profile.measured.package.bench@1] names no package"),
                format!("{FILE}: [profile.tool.package.engines] names no package"),
            ]
        );
    }
}
