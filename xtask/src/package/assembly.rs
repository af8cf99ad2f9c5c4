// SPDX-License-Identifier: MIT OR Apache-2.0

//! Makes a package of a build.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context as _, Result, ensure};
use viordma_inf::{diagnosis, tracing::profile};

use super::{
    catalog,
    contents::{Contents, DELIVERED, FOLDER, SBOM, STEPS},
    inf_parser::Inf,
    inf_rules, notices, sbom,
    source::Source,
};
use crate::{
    image::{self, Image, architecture::Architecture},
    shell, wmi,
};

/// Builds the image and makes the files of the package, without signatures and checksums.
///
/// # Errors
/// The build or a check fails.
pub fn build(source: &Source, architecture: Architecture, is_strict: bool) -> Result<Contents> {
    let name = if is_strict { image::STRICT } else { image::DRIVER };
    let image = image::build_for(architecture, name)?;
    let contents = make(source, architecture, name, &image)?;
    let faults = inf_rules::faults(contents.text("inf")?, name, architecture);
    ensure!(faults.is_empty(), "the INF breaks rules of InfVerif: {}", faults.join("; "));
    catalog::check(contents.file("cat")?, &contents)?;
    Ok(contents)
}

/// Makes the files of a package, without signatures and checksums.
///
/// # Errors
/// A file of the build or of the repository cannot be read.
pub fn make(source: &Source, architecture: Architecture, driver: &str, image: &Image) -> Result<Contents> {
    let version = env!("CARGO_PKG_VERSION");
    let mut files = BTreeMap::new();
    for path in [&image.sys, &image.pdb, &image.sys.with_extension("inf")] {
        let name = path.file_name().context("a file has no name")?.to_string_lossy().into_owned();
        files.insert(name, read(path)?);
    }
    for name in DELIVERED {
        let text = fs::read_to_string(shell::root().join(FOLDER).join(name));
        let text = text.with_context(|| format!("cannot read {FOLDER}/{name}"))?;
        files.insert(name.to_owned(), with_files_of(driver, &text).into_bytes());
    }
    files.insert(STEPS.to_owned(), with_files_of(driver, &diagnosis::json()).into_bytes());
    files.insert(profile::FILE.to_owned(), profile::text().into_bytes());
    files.insert(wmi::FILE.to_owned(), wmi::mof()?.into_bytes());
    let linked = image::linked(architecture, driver == image::STRICT)?;
    files.insert("LICENSES.txt".to_owned(), notices::text(&linked)?.into_bytes());
    let folder = format!("{driver}-{version}-{}", architecture.name());
    let mut contents = Contents { folder, driver: driver.to_owned(), files };
    let sbom = sbom::text(source, &contents, architecture, &linked)?;
    contents.files.insert(SBOM.to_owned(), sbom.into_bytes());
    let ids = Inf::parse(contents.text("inf")?).hardware_ids();
    let names = ["sys", "inf"].map(|extension| contents.name(extension));
    let files = [(names[0].as_str(), contents.file("sys")?), (names[1].as_str(), contents.file("inf")?)];
    let catalog = catalog::encode(files, architecture, &ids, source.time)?;
    contents.files.insert(contents.name("cat"), catalog);
    Ok(contents)
}

/// Returns a text that names files of the standard edition with those of a driver.
fn with_files_of(driver: &str, text: &str) -> String {
    ["sys", "inf", "cat", "pdb", "cer"].iter().fold(text.to_owned(), |text, extension| {
        text.replace(&format!("{}.{extension}", image::DRIVER), &format!("{driver}.{extension}"))
    })
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_the_strict_package_name_its_files() {
        for name in DELIVERED {
            let text = fs::read_to_string(shell::root().join(FOLDER).join(name)).unwrap();
            assert_eq!(with_files_of(image::DRIVER, &text), text, "{name}");
            // A name in a regular expression would not be replaced.
            assert!(!text.contains(&format!(r"{}\.", image::DRIVER)), "{name}");
            let strict = with_files_of(image::STRICT, &text);
            for extension in ["sys", "inf", "cat", "pdb", "cer"] {
                let of = |driver| format!("{driver}.{extension}");
                assert!(!strict.contains(&of(image::DRIVER)), "{name}: {extension}");
                let (before, after) = (of(image::DRIVER), of(image::STRICT));
                assert_eq!(strict.matches(&after).count(), text.matches(&before).count(), "{name}");
            }
        }
        let step = with_files_of(image::STRICT, &diagnosis::json());
        assert!(step.contains("viordma-strict.sys") && !step.contains("viordma.sys"));
    }
}
