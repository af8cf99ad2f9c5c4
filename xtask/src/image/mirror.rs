// SPDX-License-Identifier: MIT OR Apache-2.0

//! The mirror of the two workspaces in which images are built, so that the patch of wdk-build stays out of their own manifests
//! and lock files.
//!
//! The mirror is one workspace. Its members are the drivers, and it has the packages that they link. Their sources are symbolic
//! links; their manifests are derived from the originals, because cargo evaluates `cfg(windows)` of build dependencies for the
//! host, and because a package belongs to another workspace here.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};
use toml::{Table, Value};

use super::{
    link::{link, link_package},
    toolchain,
};
use crate::{manifests, shell, workspace::Workspace};

/// Sources of the root package.
const SOURCES: [&str; 2] = ["build.rs", "src"];

/// Folders of packages that are drivers, or that drivers link.
const FOLDERS: [&str; 3] = ["consumers", "crates", "drivers"];

/// A package in a folder of its own.
const INF: &str = "inf";

/// The package that drivers' build scripts call, and the root of its library where `wdk-build` compiles.
const DRIVER_BUILD: &str = "driver-build";
const DRIVER_BUILD_ROOT: &str = "src/kit/mod.rs";

/// The package that the patch replaces.
const PATCHED: &str = "wdk-build";

/// The package that replaces it.
const STAND_IN: &str = "xtask/cross/wdk-build";

pub struct Mirror {
    root: PathBuf,
}

impl Mirror {
    /// Creates or updates the mirror in `root`: links to the sources, derived manifests and lock file.
    pub fn lay_out(root: &Path) -> Result<Self> {
        let repository = shell::root();
        fs::create_dir_all(root)?;
        for name in SOURCES {
            link(&repository.join(name), &root.join(name))?;
        }
        mirror_package(&repository.join(INF), &root.join(INF))?;
        // Cargo distinguishes packages outside of the workspace by their absolute paths, and rustc orders functions by that.
        mirror_package(&repository.join(STAND_IN), &root.join(PATCHED))?;
        let mut members = Vec::new();
        for folder in FOLDERS {
            let mirrored = root.join(folder);
            if mirrored.is_symlink() {
                fs::remove_file(&mirrored)?; // left by an older layout
            }
            for entry in fs::read_dir(repository.join(folder))? {
                let package = entry?.path();
                let name = package.strip_prefix(repository)?;
                if mirror_package(&package, &root.join(name))? {
                    members.push(Value::String(name.display().to_string()));
                }
            }
        }
        let [driver, tools] = Workspace::ALL.map(|workspace| read(&workspace.file("Cargo.toml")));
        write(root, &merged_workspace(unconditional(driver?)?, &tools?, members)?)?;
        // Cargo removes from the copy what the image does not need, and swaps the patched package.
        let lock = root.join("Cargo.lock");
        let original = manifests::combined_lock()?.into_bytes();
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

    /// Fails if the image was built from a version that the lock files do not name.
    pub fn check_lock(&self) -> Result<()> {
        let [driver, tools] = Workspace::ALL.map(manifests::packages);
        let (driver, tools) = (driver?, tools?);
        for package in manifests::locked(&read(&self.root.join("Cargo.lock"))?) {
            if package.name != PATCHED && !driver.contains(&package) && !tools.contains(&package) {
                bail!(
                    "the image was built with {} {}, which no Cargo.lock names: run `cargo update`",
                    package.name,
                    package.version
                );
            }
        }
        Ok(())
    }
}

/// Mirrors a package: links to all that it has, and a manifest without dependencies for tests, which belong to no image.
/// Returns whether it is a driver.
fn mirror_package(package: &Path, mirrored: &Path) -> Result<bool> {
    if !package.join("Cargo.toml").is_file() {
        return Ok(false);
    }
    link_package(package, mirrored)?;
    let mut manifest = read(&package.join("Cargo.toml"))?;
    manifest.remove("dev-dependencies");
    if let Some(Value::Table(package)) = manifest.get_mut("package") {
        package.remove("workspace");
    }
    let is_driver = is_driver(&manifest);
    if mirrored.ends_with(DRIVER_BUILD) {
        manifest = unconditional(manifest)?;
        let library = Table::from_iter([("path".to_owned(), DRIVER_BUILD_ROOT.into())]);
        manifest.insert("lib".into(), library.into());
    } else if is_driver {
        manifest = unconditional(manifest)?;
    }
    write(mirrored, &manifest)?;
    Ok(is_driver)
}

/// Returns a manifest whose dependencies for `cfg(windows)` are unconditional.
fn unconditional(mut manifest: Table) -> Result<Table> {
    let conditional = manifest.remove("target").and_then(|mut targets| {
        let targets = targets.as_table_mut()?;
        (targets.len() == 1).then(|| targets.remove("cfg(windows)")).flatten()
    });
    let Some(Value::Table(conditional)) = conditional else {
        bail!("a driver's dependencies are not in [target.'cfg(windows)'] alone");
    };
    manifest.extend(conditional);
    Ok(manifest)
}

/// The driver's manifest with the other drivers as the only members of its workspace, the dependencies of both workspaces, and
/// wdk-build replaced.
fn merged_workspace(mut manifest: Table, tools: &Table, members: Vec<Value>) -> Result<Table> {
    let table = manifest.get_mut("workspace").and_then(Value::as_table_mut);
    let table = table.context("Cargo.toml does not declare a workspace")?;
    table.insert("members".into(), members.into());
    table.remove("default-members");
    table.remove("exclude");
    let mut dependencies = manifests::dependencies(tools);
    dependencies
        .extend(manifests::dependencies(&Table::from_iter([("workspace".into(), table.clone().into())])));
    table.insert("dependencies".into(), dependencies.into());
    let replacement = Table::from_iter([("path".to_owned(), Value::String(PATCHED.into()))]);
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

fn read(path: &Path) -> Result<Table> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    text.parse().with_context(|| format!("{} is not TOML", path.display()))
}
