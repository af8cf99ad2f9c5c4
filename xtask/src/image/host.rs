// SPDX-License-Identifier: MIT OR Apache-2.0

//! The part of the builds of images that runs on this machine: bindgen, macros, build scripts.

use std::{fs, path::Path, process::Command};

use anyhow::{Context as _, Result};

use crate::{manifests, shell};

/// Where the images are built, below the root of a checkout.
pub const MIRROR: &str = "target/cross";

/// Where cargo keeps there what it has compiled for this machine.
const COMPILED: &str = "out/release";

/// Copies what was compiled of published packages to another checkout, whose builds then compile this project's packages for this machine,
/// and all that is in an image. Without an earlier build, there is nothing to copy.
///
/// # Errors
/// A file cannot be copied or removed.
pub fn copy_published(checkout: &Path) -> Result<()> {
    let [from, to] = [shell::root(), checkout].map(|root| root.join(MIRROR));
    if !from.join(COMPILED).is_dir() {
        return Ok(());
    }
    let to = to.join(COMPILED);
    fs::create_dir_all(&to).with_context(|| format!("cannot make {}", to.display()))?;
    // With the times of the files, which cargo compares.
    shell::run(Command::new("cp").arg("--archive").arg(from.join(COMPILED).join(".")).arg(&to))?;
    let lock = from.join("Cargo.lock");
    let lock = fs::read_to_string(&lock).with_context(|| format!("cannot read {}", lock.display()))?;
    let published = manifests::locked(&lock.parse()?);
    let records = to.join(".fingerprint");
    for entry in fs::read_dir(&records).with_context(|| format!("cannot read {}", records.display()))? {
        let record = entry?.path();
        if !published.iter().any(|package| is_of(&record, &package.name)) {
            // Cargo compiles again what it has no record of.
            fs::remove_dir_all(&record).with_context(|| format!("cannot remove {}", record.display()))?;
        }
    }
    Ok(())
}

/// Returns whether a record of cargo is of the package: a folder with its name and a hash.
fn is_of(record: &Path, package: &str) -> bool {
    let name = record.file_name().and_then(|name| name.to_str());
    name.and_then(|name| name.rsplit_once('-')).is_some_and(|(name, _)| name == package)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_of_the_package_whose_whole_name_it_has() {
        let record = Path::new("out/release/.fingerprint/wdk-sys-5eb287984a4ac664");
        assert!(is_of(record, "wdk-sys"));
        assert!(!is_of(record, "wdk") && !is_of(record, "sys"));
    }
}
