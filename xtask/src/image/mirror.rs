// SPDX-License-Identifier: MIT OR Apache-2.0

//! The mirror of the workspace in which the image is built, so that the patch of wdk-build stays out of the
//! workspace's own manifest and lock file.
//!
//! The mirror has the driver packages only: the root package, and test drivers. Their sources are symbolic links; their
//! manifests are derived from the originals, because cargo evaluates `cfg(windows)` of build dependencies for the host.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};
use toml::{Table, Value};

use super::{link::link, toolchain};
use crate::shell;

/// Sources of the root package, and of the crates that driver packages depend on.
const SOURCES: [&str; 4] = ["build", "consumers", "crates", "src"];

/// Holds driver packages beside the root package: small images that tests of the simulated kernel load.
const TEST_DRIVERS: &str = "drivers";

/// Sources of a test driver.
const TEST_DRIVER_SOURCES: [&str; 2] = ["build", "src"];

/// The build script of a driver package. `build.rs` does nothing on Linux.
const BUILD_SCRIPT: &str = "build/driver.rs";

/// The package that the patch replaces.
const PATCHED: &str = "wdk-build";

pub struct Mirror {
    root: PathBuf,
}

impl Mirror {
    /// Creates or updates the mirror in `root`: links to the sources, derived manifests and lock file.
    pub fn lay_out(root: &Path) -> Result<Self> {
        let workspace = shell::root();
        fs::create_dir_all(root)?;
        for name in SOURCES {
            link(&workspace.join(name), &root.join(name))?;
        }
        let mut members = Vec::new();
        let test_drivers = root.join(TEST_DRIVERS);
        if test_drivers.is_symlink() {
            fs::remove_file(&test_drivers)?; // left by an older layout
        }
        for entry in fs::read_dir(workspace.join(TEST_DRIVERS))? {
            let package = entry?.path();
            let manifest = fs::read_to_string(package.join("Cargo.toml")).unwrap_or_default();
            let Ok(manifest) = manifest.parse::<Table>() else { continue };
            let name = package.strip_prefix(workspace)?;
            let mirrored = root.join(name);
            if !is_driver(&manifest) {
                fs::create_dir_all(root.join(TEST_DRIVERS))?;
                link(&package, &mirrored)?; // a dev-dependency of the crates
                continue;
            }
            fs::create_dir_all(&mirrored)?;
            for source in TEST_DRIVER_SOURCES {
                link(&package.join(source), &mirrored.join(source))?;
            }
            write(&mirrored, &driver_package(manifest)?)?;
            members.push(Value::String(name.display().to_string()));
        }
        let manifest = fs::read_to_string(workspace.join("Cargo.toml"))?;
        let manifest = manifest.parse::<Table>().context("Cargo.toml is not TOML")?;
        write(root, &patched_workspace(driver_package(manifest)?, members, workspace)?)?;
        // Cargo removes from the copy what the image does not need, and swaps the patched package.
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

    /// Fails if the image was built from a version that the workspace's lock file does not name.
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

/// A driver package's manifest whose dependencies for `cfg(windows)` are unconditional.
fn driver_package(mut manifest: Table) -> Result<Table> {
    let conditional = manifest.remove("target").and_then(|mut targets| {
        let targets = targets.as_table_mut()?;
        (targets.len() == 1).then(|| targets.remove("cfg(windows)")).flatten()
    });
    let Some(Value::Table(conditional)) = conditional else {
        bail!("a driver's dependencies are not in [target.'cfg(windows)'] alone");
    };
    manifest.extend(conditional);
    let package = manifest.get_mut("package").and_then(Value::as_table_mut).context("not a package")?;
    package.insert("build".into(), BUILD_SCRIPT.into());
    Ok(manifest)
}

/// The workspace's manifest with the test drivers as its only members beside the root package, and wdk-build replaced.
fn patched_workspace(mut manifest: Table, members: Vec<Value>, workspace: &Path) -> Result<Table> {
    let table = manifest.get_mut("workspace").and_then(Value::as_table_mut);
    let table = table.context("Cargo.toml does not declare a workspace")?;
    table.insert("members".into(), members.into());
    table.remove("default-members");
    let path = workspace.join("xtask/cross/wdk-build").display().to_string();
    let replacement = Table::from_iter([("path".to_owned(), Value::String(path))]);
    let replaced = Table::from_iter([(PATCHED.to_owned(), Value::Table(replacement))]);
    let registries = Table::from_iter([("crates-io".to_owned(), Value::Table(replaced))]);
    manifest.insert("patch".into(), registries.into());
    Ok(manifest)
}

fn write(directory: &Path, manifest: &Table) -> Result<()> {
    shell::write_if_changed(&directory.join("Cargo.toml"), toml::to_string(manifest)?.as_bytes())
}

/// Whether the package builds a driver: its library is a `cdylib`.
fn is_driver(manifest: &Table) -> bool {
    let kinds = manifest.get("lib").and_then(|lib| lib.get("crate-type")).and_then(Value::as_array);
    kinds.is_some_and(|kinds| kinds.iter().any(|kind| kind.as_str() == Some("cdylib")))
}

/// Name, version and checksum of every published package that a lock file names.
fn packages(lock: &Path) -> Result<BTreeSet<(String, String, String)>> {
    let text = fs::read_to_string(lock).with_context(|| format!("cannot read {}", lock.display()))?;
    let lock: Table = text.parse()?;
    let packages = lock.get("package").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let field = |package: &Value, name: &str| package.get(name)?.as_str().map(str::to_owned);
    Ok(packages
        .iter()
        .filter_map(|package| {
            Some((field(package, "name")?, field(package, "version")?, field(package, "checksum")?))
        })
        .collect())
}
