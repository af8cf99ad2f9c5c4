// SPDX-License-Identifier: MIT OR Apache-2.0

//! The mutants of the sources: those of cargo-mutants, and deleted statements.
//!
//! cargo-mutants names mutants of packages below one workspace's folder. It gets a workspace of all packages, in
//! `target/mutants/sources`: links to the sources, and manifests that name the targets only.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};
use serde::Deserialize;
use toml::{Table, Value};

use super::{
    copy,
    mutant::{Genre, Mutant, Span},
    statements,
};
use crate::{
    image::link::{link, link_package},
    shell,
    tools::CARGO_MUTANTS,
    workspace::Workspace,
};

/// Which mutants are wanted.
pub struct Selection {
    /// Files or directories.
    pub paths: Vec<String>,
    /// A revision: only lines that differ from it.
    pub changed: Option<String>,
}

/// A mutant as cargo-mutants describes it.
#[derive(Deserialize)]
struct Described {
    file: String,
    name: String,
    genre: Genre,
    replacement: String,
    span: Span,
}

/// Returns the mutants that `selection` names, in the order of files and lines. Installs cargo-mutants if needed.
pub fn mutants(selection: &Selection) -> Result<Vec<Mutant>> {
    let list = |what: &[&str]| {
        let mut command = Command::new(CARGO_MUTANTS.installed()?);
        command.current_dir(sources()?).args(["mutants", "--workspace"]).args(what);
        for path in &selection.paths {
            let is_directory = shell::root().join(path).is_dir();
            let path = path.trim_end_matches('/');
            command.arg("--file").arg(if is_directory { format!("{path}/**") } else { path.into() });
        }
        anyhow::Ok(command)
    };
    let mut described = list(&["--list", "--json"])?;
    let mut diff = None;
    if let Some(revision) = &selection.changed {
        let mut git = Command::new("git");
        let text = shell::output(git.current_dir(shell::root()).args(["diff", "--unified=0", revision]))?;
        let path = copy::directory().join("changed.diff");
        fs::create_dir_all(copy::directory())?;
        fs::write(&path, &text)?;
        described.arg("--in-diff").arg(path);
        diff = Some(text);
    }
    let output = shell::output(&mut described)?;
    // With a diff that changes no code there is no list.
    let described: Vec<Described> = if output.trim().is_empty() {
        Vec::new()
    } else {
        serde_json::from_str(&output).context("cargo-mutants' list")?
    };
    let mut mutants: Vec<Mutant> = described.into_iter().map(located).collect::<Result<_>>()?;
    for file in shell::output(&mut list(&["--list-files"])?)?.lines() {
        let text =
            fs::read_to_string(shell::root().join(file)).with_context(|| format!("cannot read {file}"))?;
        let mut deleted = statements::deleted(file, &text).with_context(|| file.to_owned())?;
        if let Some(diff) = &diff {
            let lines = statements::changed_lines(diff, file);
            deleted.retain(|mutant| {
                (mutant.span.start.line..=mutant.span.end.line).any(|line| lines.contains(&line))
            });
        }
        mutants.append(&mut deleted);
    }
    let place = |mutant: &Mutant| (mutant.span.start.line, mutant.span.start.column);
    mutants.sort_by(|a, b| (&a.file, place(a)).cmp(&(&b.file, place(b))));
    Ok(mutants)
}

/// Lays out the workspace of all packages. Returns its path.
fn sources() -> Result<PathBuf> {
    let root = copy::directory().join("sources");
    let mut members = Vec::new();
    for workspace in Workspace::ALL {
        for package in workspace.packages(&["--no-deps"])? {
            let manifest = package["manifest_path"].as_str().map(Path::new).context("no manifest")?;
            let package = manifest.parent().context("no folder")?;
            let folder = package.strip_prefix(shell::root())?;
            let linked = root.join(folder);
            if folder == Path::new("") {
                link(&package.join("src"), &root.join("src"))?;
                continue;
            }
            link_package(package, &linked)?;
            let manifest = targets(package)?;
            shell::write_if_changed(&linked.join("Cargo.toml"), toml::to_string(&manifest)?.as_bytes())?;
            members.push(Value::String(folder.display().to_string()));
        }
    }
    let mut driver = targets(shell::root())?;
    driver.insert("workspace".into(), Table::from_iter([("members".into(), members.into())]).into());
    shell::write_if_changed(&root.join("Cargo.toml"), toml::to_string(&driver)?.as_bytes())?;
    Ok(root)
}

/// Returns the part of a package's manifest that names its targets, tests excluded.
fn targets(package: &Path) -> Result<Table> {
    let text = fs::read_to_string(package.join("Cargo.toml"))?;
    let mut manifest: Table = text.parse()?;
    manifest.retain(|name, _| ["package", "lib", "bin"].contains(&name));
    if let Some(Value::Table(package)) = manifest.get_mut("package") {
        package.retain(|name, _| ["name", "build"].contains(&name));
        package.insert("edition".into(), "2024".into());
        package.insert("autotests".into(), false.into());
    }
    for program in manifest.get_mut("bin").and_then(Value::as_array_mut).into_iter().flatten() {
        program.as_table_mut().and_then(|program| program.remove("required-features"));
    }
    Ok(manifest)
}

/// Adds the text of the line.
fn located(described: Described) -> Result<Mutant> {
    let Described { file, name, genre, replacement, span } = described;
    let text =
        fs::read_to_string(shell::root().join(&file)).with_context(|| format!("cannot read {file}"))?;
    let line = text.lines().nth(span.start.line.saturating_sub(1)).unwrap_or_default().trim().into();
    Ok(Mutant { file, name, genre, replacement, span, line })
}
