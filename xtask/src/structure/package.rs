// SPDX-License-Identifier: MIT OR Apache-2.0

//! The packages of both workspaces, as `cargo metadata` describes them.

use std::{collections::BTreeSet, path::PathBuf};

use anyhow::Result;

use crate::workspace::Workspace;

/// A package of the workspace.
pub struct Package {
    pub name: String,
    /// Root files of its libraries and programs, tests and examples excluded.
    pub roots: Vec<PathBuf>,
    /// Names of the packages that it depends on, development dependencies excluded.
    pub dependencies: BTreeSet<String>,
}

/// The packages of both workspaces.
pub fn all() -> Result<Vec<Package>> {
    let mut result = Vec::new();
    for workspace in Workspace::ALL {
        result.extend(workspace.packages(&["--no-deps"])?.iter().map(package));
    }
    result.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(result)
}

fn package(value: &serde_json::Value) -> Package {
    let list = |name: &str| value[name].as_array().map(Vec::as_slice).unwrap_or_default();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let ships = |target: &&serde_json::Value| {
        let kinds = target["kind"].as_array().map(Vec::as_slice).unwrap_or_default();
        !kinds.iter().any(|kind| ["test", "bench", "example"].map(Some).contains(&kind.as_str()))
    };
    Package {
        name: text(&value["name"]),
        roots: list("targets")
            .iter()
            .filter(ships)
            .map(|target| PathBuf::from(text(&target["src_path"])))
            .collect(),
        dependencies: list("dependencies")
            .iter()
            .filter(|dependency| dependency["kind"] != "dev")
            .map(|dependency| text(&dependency["name"]))
            .collect(),
    }
}
