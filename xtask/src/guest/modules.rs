// SPDX-License-Identifier: MIT OR Apache-2.0

//! Kernel modules of the guest, in the order in which they are loaded.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Result, bail};

use super::{cpio::Archive, elf};

/// A module: its file, and the content.
pub type Module = (PathBuf, Vec<u8>);

/// Returns the modules of these names, each after its dependencies. Of several files with a name, the first is taken.
pub fn in_order<'a>(directories: impl Iterator<Item = &'a Path>, names: &[&str]) -> Result<Vec<Module>> {
    let mut files = Vec::new();
    for directory in directories {
        collect(directory, &mut files)?;
    }
    let mut order = Vec::new();
    for name in names {
        load(name, &files, &mut order)?;
    }
    Ok(order)
}

/// Adds modules, and their list at `list` for `insmod`.
pub fn add<W: std::io::Write>(archive: &mut Archive<W>, modules: &[Module], list: &str) -> Result<()> {
    let mut lines = String::new();
    for (path, content) in modules {
        let place = place(path);
        archive.file(&place, content)?;
        lines.extend(["/", &place, "\n"]);
    }
    archive.file(list, lines.as_bytes())?;
    Ok(())
}

/// Returns where the guest has a module.
pub fn place(path: &Path) -> String {
    format!("lib/modules/{}", path.file_name().unwrap_or_default().to_string_lossy())
}

/// Appends a module to `order`, after its dependencies.
fn load(name: &str, files: &[PathBuf], order: &mut Vec<Module>) -> Result<()> {
    let is =
        |path: &Path| path.file_stem().is_some_and(|stem| stem.to_string_lossy().replace('-', "_") == name);
    if order.iter().any(|(path, _)| is(path)) {
        return Ok(());
    }
    let Some(path) = files.iter().find(|path| is(path)) else {
        bail!("the kernel's package has no module {name}")
    };
    let content = fs::read(path)?;
    for needed in elf::modules(path, &content)? {
        load(&needed.replace('-', "_"), files, order)?;
    }
    order.push((path.clone(), content));
    Ok(())
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|end| end == "ko") {
            files.push(path);
        }
    }
    Ok(())
}
