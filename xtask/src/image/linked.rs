// SPDX-License-Identifier: MIT OR Apache-2.0

//! The packages that are linked into an image.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use serde_json::Value;

/// Where a package comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// This repository.
    Workspace,
    /// crates.io.
    Registry,
    /// The compiler's library.
    Library,
}

/// A linked package.
pub struct Linked {
    pub name: String,
    pub version: String,
    /// An SPDX expression.
    pub license: String,
    pub origin: Origin,
    /// Where its sources are.
    pub folder: PathBuf,
    /// SHA-256 of what the registry delivers.
    pub hash: Option<String>,
}

/// Packages of the compiler's library that each image has. Cargo does not list them.
const LIBRARY: [&str; 3] = ["alloc", "compiler_builtins", "core"];

/// Returns the packages that `root` links, from the output of `cargo metadata` in the mirror, its lock file, and the version of the compiler.
///
/// # Errors
/// The output is malformed.
pub fn packages(metadata: &Value, lock: &toml::Table, compiler: &str, root: &str) -> Result<Vec<Linked>> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let described: BTreeMap<String, Value> =
        list(&metadata["packages"]).into_iter().map(|package| (text(&package["id"]), package)).collect();
    let edges: BTreeMap<String, Value> = list(&metadata["resolve"]["nodes"])
        .into_iter()
        .map(|mut node| (text(&node["id"]), node["deps"].take()))
        .collect();
    let root = described.iter().find(|(_, package)| package["name"] == root).context("no such package")?.0;
    let (mut found, mut pending) = (BTreeSet::new(), vec![root.clone()]);
    while let Some(id) = pending.pop() {
        let package = described.get(&id).context("cargo metadata lists no such package")?;
        // A procedural macro is part of the compiler while it runs.
        let is_macro = list(&package["targets"])
            .iter()
            .any(|target| list(&target["kind"]).contains(&"proc-macro".into()));
        if is_macro || !found.insert(id.clone()) {
            continue;
        }
        for edge in edges.get(&id).map(list).unwrap_or_default() {
            if list(&edge["dep_kinds"]).iter().any(|kind| kind["kind"].is_null()) {
                pending.push(text(&edge["pkg"]));
            }
        }
    }
    let mut linked = Vec::new();
    for package in found.iter().filter_map(|id| described.get(id)) {
        let (name, version) = (text(&package["name"]), text(&package["version"]));
        let is_published = !package["source"].is_null();
        let folder = Path::new(&text(&package["manifest_path"])).parent().unwrap_or(Path::new("")).to_owned();
        let hash = hash(lock, &name, &version);
        let origin = if is_published { Origin::Registry } else { Origin::Workspace };
        linked.push(Linked { name, version, license: text(&package["license"]), origin, folder, hash });
    }
    linked.extend(LIBRARY.map(|name| Linked {
        name: name.to_owned(),
        version: compiler.to_owned(),
        license: "MIT OR Apache-2.0".to_owned(),
        origin: Origin::Library,
        folder: PathBuf::new(),
        hash: None,
    }));
    linked.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    Ok(linked)
}

/// Returns the checksum of a package in a lock file.
fn hash(lock: &toml::Table, name: &str, version: &str) -> Option<String> {
    let packages = lock.get("package")?.as_array()?;
    let is = |package: &&toml::Value, key: &str, value: &str| {
        package.get(key).and_then(toml::Value::as_str) == Some(value)
    };
    let package =
        packages.iter().find(|package| is(package, "name", name) && is(package, "version", version))?;
    Some(package.get("checksum")?.as_str()?.to_owned())
}
