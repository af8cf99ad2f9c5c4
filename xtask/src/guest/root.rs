// SPDX-License-Identifier: MIT OR Apache-2.0

//! Files of unpacked packages, and their copies in the guest: programs with their libraries.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

use super::{cpio::Archive, elf};

/// Directories of the libraries, in the packages and in the guest.
pub const LIBRARIES: [&str; 2] = ["lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"];

/// The directories of unpacked packages. A file is that of the first directory that holds it.
pub struct Root(pub Vec<PathBuf>);

impl Root {
    pub fn read(&self, path: &str) -> Result<Vec<u8>> {
        let file = self.0.iter().map(|directory| directory.join(path)).find(|file| file.exists());
        let file = file.with_context(|| format!("the packages hold no {path}"))?;
        fs::read(&file).with_context(|| format!("cannot read {}", file.display()))
    }

    /// Returns the directories.
    pub fn directories(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().map(PathBuf::as_path)
    }

    /// Returns a library's path below the root.
    fn library(&self, name: &str) -> Result<String> {
        let mut places = LIBRARIES.iter().map(|directory| format!("{directory}/{name}"));
        let found = places.find(|path| self.0.iter().any(|directory| directory.join(path).exists()));
        found.with_context(|| format!("no package of the guest's holds {name}"))
    }
}

/// Adds programs, libraries that programs load at run time (`loaded`), and the libraries that these and the programs in
/// `added` are linked with.
pub fn add_programs<W: std::io::Write>(
    archive: &mut Archive<W>,
    root: &Root,
    programs: &[&str],
    loaded: &[&str],
    added: Vec<Vec<u8>>,
) -> Result<()> {
    let mut libraries = BTreeSet::new();
    let mut waiting = added;
    for path in programs {
        let content = root.read(path)?;
        archive.program(path, &content)?;
        waiting.push(content);
    }
    let mut add = |path: String| -> Result<Option<Vec<u8>>> {
        if !libraries.insert(path.clone()) {
            return Ok(None);
        }
        let content = root.read(&path)?;
        archive.program(&path, &content)?;
        Ok(Some(content))
    };
    for path in loaded {
        waiting.extend(add((*path).to_owned())?);
    }
    while let Some(content) = waiting.pop() {
        if let Some(loader) = elf::loader(&content)? {
            add(loader.trim_start_matches('/').to_owned())?;
        }
        for name in elf::libraries(&content)? {
            waiting.extend(add(root.library(&name)?)?);
        }
    }
    Ok(())
}
