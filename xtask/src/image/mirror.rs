//! The mirror of the workspace in which the image is built, so that the patch of wdk-build stays out of the
//! workspace's own manifest and lock file.

use std::{
    collections::BTreeSet,
    fs,
    os::unix,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};

use super::toolchain;
use crate::shell;

/// What of the workspace the image is built from.
const SOURCES: [&str; 5] = ["build", "build.rs", "crates", "sim", "src"];

/// Driver packages beside the root package: small images that tests of the simulated kernel load.
const TEST_DRIVERS: &str = "sim";

/// Packages that the patch replaces or that only the patched one needs.
const PATCHED: &str = "wdk-build";

pub struct Mirror {
    root: PathBuf,
}

impl Mirror {
    /// Links the sources into `root`, and derives manifest and lock file from the workspace's.
    pub fn lay_out(root: &Path) -> Result<Self> {
        let workspace = shell::root();
        fs::create_dir_all(root)?;
        for name in SOURCES {
            let (from, to) = (workspace.join(name), root.join(name));
            if fs::read_link(&to).ok().as_ref() != Some(&from) {
                let _ = fs::remove_file(&to);
                unix::fs::symlink(&from, &to)
                    .or_else(|error| if to.exists() { Ok(()) } else { Err(error) })?;
            }
        }
        let manifest = fs::read_to_string(workspace.join("Cargo.toml"))?;
        shell::write_if_changed(&root.join("Cargo.toml"), mirrored(&manifest, workspace)?.as_bytes())?;
        // Cargo drops from the copy what the image does not need, and swaps the patched package.
        let lock = root.join("Cargo.lock");
        let original = fs::read(workspace.join("Cargo.lock"))?;
        let stamp = root.join("Cargo.lock.origin");
        if !lock.exists() || fs::read(&stamp).ok().as_ref() != Some(&original) {
            fs::write(&lock, &original)?;
            fs::write(&stamp, &original)?;
        }
        Ok(Self { root: root.to_path_buf() })
    }

    /// Compiler arguments that keep this machine's paths out of the image.
    pub fn remap(&self) -> Vec<String> {
        let registry = toolchain::cargo_home().unwrap_or_default().join("registry/src");
        let mut prefixes = vec![(self.root.clone(), ".".to_owned())];
        for entry in fs::read_dir(registry).into_iter().flatten().flatten() {
            prefixes.push((entry.path(), "registry".to_owned()));
        }
        prefixes
            .into_iter()
            .map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display()))
            .collect()
    }

    /// Proves that the image was built from the versions the workspace's lock file names.
    pub fn check_lock(&self) -> Result<()> {
        let locked = packages(&shell::root().join("Cargo.lock"))?;
        for package in packages(&self.root.join("Cargo.lock"))? {
            let (name, version, _) = &package;
            if name != PATCHED && !locked.contains(&package) {
                bail!(
                    "the image was built with {name} {version}, which Cargo.lock does not name: run `cargo update`"
                );
            }
        }
        Ok(())
    }
}

/// The workspace's manifest with the driver packages as its only members, and wdk-build replaced.
fn mirrored(manifest: &str, workspace: &Path) -> Result<String> {
    let mut manifest: toml::Table = manifest.parse().context("Cargo.toml is not TOML")?;
    let mut members = Vec::new();
    for entry in fs::read_dir(workspace.join(TEST_DRIVERS))? {
        let directory = entry?.path();
        if is_driver(&directory) {
            members.push(toml::Value::String(directory.strip_prefix(workspace)?.display().to_string()));
        }
    }
    let table = manifest.get_mut("workspace").and_then(toml::Value::as_table_mut);
    let table = table.context("Cargo.toml is not a workspace's")?;
    table.insert("members".into(), members.into());
    table.remove("default-members");
    let patch = toml::Table::from_iter([(
        "path".to_owned(),
        toml::Value::String(workspace.join("xtask/cross/wdk-build").display().to_string()),
    )]);
    let patches = toml::Table::from_iter([(PATCHED.to_owned(), toml::Value::Table(patch))]);
    let registries = toml::Table::from_iter([("crates-io".to_owned(), toml::Value::Table(patches))]);
    manifest.insert("patch".into(), registries.into());
    Ok(toml::to_string(&manifest)?)
}

fn is_driver(directory: &Path) -> bool {
    let manifest = fs::read_to_string(directory.join("Cargo.toml")).unwrap_or_default();
    manifest.parse::<toml::Table>().is_ok_and(|manifest| {
        manifest
            .get("lib")
            .and_then(|lib| lib.get("crate-type"))
            .and_then(|kind| kind.as_array())
            .is_some_and(|kinds| kinds.iter().any(|kind| kind.as_str() == Some("cdylib")))
    })
}

/// Name, version and checksum of every published package that a lock file names.
fn packages(lock: &Path) -> Result<BTreeSet<(String, String, String)>> {
    let text = fs::read_to_string(lock).with_context(|| format!("cannot read {}", lock.display()))?;
    let lock: toml::Table = text.parse()?;
    let packages = lock.get("package").and_then(toml::Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let field = |package: &toml::Value, name: &str| package.get(name)?.as_str().map(str::to_owned);
    Ok(packages
        .iter()
        .filter_map(|package| {
            Some((field(package, "name")?, field(package, "version")?, field(package, "checksum")?))
        })
        .collect())
}
