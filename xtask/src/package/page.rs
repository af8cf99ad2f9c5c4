// SPDX-License-Identifier: MIT OR Apache-2.0

//! Files that pages for administrators name: a reader who follows one has to find them in the archive.

use std::{collections::BTreeSet, fs};

use anyhow::{Context as _, Result};

use super::contents::Contents;
use crate::shell;

/// The pages that lead through an installation.
pub const PAGES: [&str; 2] = ["docs/proxmox.md", "docs/first-windows-run.md"];

/// Ends of the names of files in a package.
const ENDS: [&str; 11] =
    [".ps1", ".sys", ".inf", ".cat", ".pdb", ".cer", ".txt", ".json", ".js", ".mof", ".wprp"];

/// Returns the names of files of a package in a text.
pub fn files(text: &str) -> BTreeSet<String> {
    let parts = text.split('`').skip(1).step_by(2).chain(text.split_whitespace());
    let names = parts.map(|part| part.trim_matches(|c| "`.,;()\\".contains(c)));
    // The name that Windows gives an INF has a number in place of N.
    let is_file = |name: &&str| {
        !name.contains(['/', ' ']) && *name != "oemN.inf" && ENDS.iter().any(|end| name.ends_with(end))
    };
    names.filter(is_file).map(str::to_owned).collect()
}

/// Returns the files that the pages, or the README of a package, name and the package does not have.
///
/// # Errors
/// A page cannot be read.
pub fn missing(package: &Contents) -> Result<Vec<String>> {
    let readme = package.files.get("README.md").context("there is no README.md")?;
    let mut texts = vec![String::from_utf8_lossy(readme).into_owned()];
    for page in PAGES {
        texts.push(
            fs::read_to_string(shell::root().join(page)).with_context(|| format!("cannot read {page}"))?,
        );
    }
    let standard = format!("{}.", crate::image::DRIVER);
    // Pages are about the standard edition.
    let own = |name: String| match name.strip_prefix(&standard) {
        Some(extension) if extension != "js" => package.name(extension),
        _ => name,
    };
    let named: BTreeSet<String> = texts.iter().flat_map(|text| files(text)).map(own).collect();
    Ok(named.into_iter().filter(|name| !package.files.contains_key(name)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_a_package_lacks_are_named() {
        let text = "Call `.\\Install-Viordma.ps1 -Name x`, see `viordma.inf`, oemN.inf and docs/a.txt.\n";
        assert_eq!(files(text).into_iter().collect::<Vec<_>>(), ["Install-Viordma.ps1", "viordma.inf"]);
        let mut package = Contents { driver: "viordma-strict".into(), ..Contents::default() };
        missing(&package).unwrap_err();
        package.files.insert("README.md".into(), b"`viordma.js`, `viordma-strict.cer`".to_vec());
        let missing = missing(&package).unwrap();
        for name in ["viordma.js", "viordma-strict.cer", "viordma-strict.pdb", "Install-Viordma.ps1"] {
            assert!(missing.iter().any(|other| other == name), "{name}: {missing:?}");
        }
    }
}
