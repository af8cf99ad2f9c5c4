// SPDX-License-Identifier: MIT OR Apache-2.0

//! Licenses of what is linked into the image.

use std::{fmt::Write as _, fs, path::Path};

use anyhow::{Context as _, Result, ensure};

use crate::{
    image::{Linked, Origin},
    shell,
};

/// Beginnings of names of files with licenses.
const NAMES: [&str; 5] = ["license", "licence", "copying", "copyright", "notice"];

/// Returns the texts of the licenses, each once, with the packages that are under it.
///
/// # Errors
/// A package of a registry without a text.
pub fn text(linked: &[Linked]) -> Result<String> {
    let mut texts = Vec::<(String, Vec<String>)>::new();
    let mut text = "viordma links the packages below. Each is under the license that its line names; the texts follow.\n\n".to_owned();
    for package in linked {
        let name = format!("{} {}", package.name, package.version);
        let _ = writeln!(text, "* {name}: {}", package.license);
        let files = match package.origin {
            Origin::Workspace => license_files(shell::root())?,
            Origin::Registry => license_files(&package.folder)?,
            // The compiler's own files are under the same two texts as this project.
            Origin::Library => Vec::new(),
        };
        ensure!(
            package.origin != Origin::Registry || !files.is_empty() || is_ours(&package.license),
            "{name} has no text of its license"
        );
        for file in files {
            match texts.iter_mut().find(|(other, _)| *other == file) {
                Some((_, names)) => names.push(name.clone()),
                None => texts.push((file, vec![name.clone()])),
            }
        }
    }
    for (file, names) in texts {
        let line = "=".repeat(80);
        let _ = write!(text, "\n{line}\n{}\n{line}\n\n{}\n", names.join(", "), file.trim_end());
    }
    Ok(text)
}

/// Whether the texts of this project's own licenses are those of the license, too.
fn is_ours(license: &str) -> bool {
    ["MIT OR Apache-2.0", "Apache-2.0 OR MIT", "MIT/Apache-2.0"].contains(&license)
}

fn license_files(folder: &Path) -> Result<Vec<String>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        if path.is_file() && NAMES.iter().any(|beginning| name.starts_with(beginning)) {
            paths.push(path);
        }
    }
    paths.sort();
    paths.iter().map(|path| Ok(fs::read_to_string(path)?.replace("\r\n", "\n"))).collect()
}
