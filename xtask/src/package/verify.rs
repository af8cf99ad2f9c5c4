// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask package --verify FILE`: builds a package again, and compares it with an archive.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use super::{
    archive, assembly, authenticode, catalog,
    contents::{CHECKSUMS, Contents, SBOM},
    source::Source,
};
use crate::{
    image::{self, architecture::Architecture},
    shell::Exit,
};

/// Runs the command.
///
/// # Errors
/// No package, or one of another commit (exit code 2); the names of files that differ.
pub fn run(file: &Path) -> Result<()> {
    let shown = file.display();
    let data = fs::read(file).map_err(|error| Exit::usage(format!("cannot read {shown}: {error}")))?;
    let mut archive = archive::read(&data).map_err(|error| Exit::usage(format!("{shown}: {error:#}")))?;
    let foreign = |reason: String| Exit::usage(format!("{shown} is no package of viordma: {reason}"));
    let Origin { commit, architecture } = Origin::of(&archive).map_err(foreign)?;
    let is_strict = archive.folder.starts_with(image::STRICT);
    (if is_strict { image::STRICT } else { image::DRIVER }).clone_into(&mut archive.driver);
    let source = Source::committed()?;
    if commit != source.commit {
        return Err(Exit::usage(format!(
            "{shown} was made of commit {commit}; this checkout is at {}: check that commit out",
            source.commit
        )));
    }
    let built = assembly::build(&source, architecture, is_strict);
    source.check_unchanged()?;
    let built = built?;
    let mut different = differences(&archive, &built);
    if archive.folder != built.folder {
        different.push(format!("the folder {}, which is {}", archive.folder, built.folder));
    }
    if !is_canonical(&data, &archive, &source)? {
        different.push("the zip file itself, which is not how its files are packed".to_owned());
    }
    if !different.is_empty() {
        bail!("{shown} differs from what this checkout builds: {}", different.join(", "));
    }
    let signed = if archive.files.contains_key(&archive.name("cer")) { ", signatures aside" } else { "" };
    println!("{shown}: its {} files are what commit {commit} builds{signed}", archive.files.len());
    Ok(())
}

/// The commit and the architecture that an archive names.
#[derive(Debug, PartialEq, Eq)]
struct Origin {
    commit: String,
    architecture: Architecture,
}

impl Origin {
    fn of(archive: &Contents) -> Result<Self, String> {
        let sbom = archive.files.get(SBOM).ok_or_else(|| format!("it has no {SBOM}"))?;
        let sbom: Value = serde_json::from_slice(sbom).map_err(|error| format!("{SBOM}: {error}"))?;
        let property = |name: &str| {
            let all = sbom["metadata"]["properties"].as_array().into_iter().flatten();
            all.filter(|property| property["name"] == name).find_map(|property| property["value"].as_str())
        };
        let commit = property("viordma:commit").ok_or("it names no commit")?.to_owned();
        let architecture = match property("viordma:architecture") {
            Some("x64") => Architecture::X64,
            Some("arm64") => Architecture::Arm64,
            _ => return Err("it names no architecture".to_owned()),
        };
        Ok(Self { commit, architecture })
    }
}

/// Returns whether a zip file has the files that were read from it, once each, and nothing else: programs differ in which of two files of
/// the same name they unpack.
fn is_canonical(data: &[u8], archive: &Contents, source: &Source) -> Result<bool> {
    Ok(archive::write(archive, source)? == data)
}

/// Returns what differs between an archive and a package without signatures and checksums.
pub fn differences(archive: &Contents, built: &Contents) -> Vec<String> {
    let mut different = Vec::new();
    let mut listed = archive.clone();
    listed.add_checksums();
    if listed.files.get(CHECKSUMS) != archive.files.get(CHECKSUMS) {
        different.push(CHECKSUMS.to_owned());
    }
    for (name, data) in &built.files {
        let Some(other) = archive.files.get(name) else {
            different.push(format!("{name} is missing"));
            continue;
        };
        let is_signed = archive.files.contains_key(&built.name("cer"));
        let is_same = if is_signed && *name == built.name("sys") {
            authenticode::digest(other).is_ok_and(|digest| authenticode::digest(data).ok() == Some(digest))
        } else if is_signed && *name == built.name("cat") {
            catalog::content(other).is_ok_and(|content| catalog::content(data).ok() == Some(content))
        } else {
            other == data
        };
        if !is_same {
            different.push(name.clone());
        }
    }
    let added = [CHECKSUMS.to_owned(), built.name("cer")];
    different.extend(
        archive
            .files
            .keys()
            .filter(|name| !built.files.contains_key(*name) && !added.contains(name))
            .map(|name| format!("{name} is none of a package")),
    );
    different
}

/// Checks that a changed byte of any file of an archive is noticed, with its name.
///
/// # Errors
/// One is not.
pub fn check_changes(archive: &Contents, built: &Contents) -> Result<()> {
    for name in built.files.keys() {
        let mut changed = archive.clone();
        let data = changed.files.get_mut(name).context("a file is missing")?;
        let middle = data.len() / 2;
        data[middle] ^= 1;
        changed.add_checksums();
        let different = differences(&changed, built);
        ensure!(different == [name.clone()], "a changed byte of {name} gives {different:?}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package() -> Contents {
        let mut package =
            Contents { folder: "viordma-1-x64".into(), driver: "viordma".into(), ..Contents::default() };
        for name in ["README.md", "viordma.inf"] {
            package.files.insert(name.into(), name.as_bytes().to_vec());
        }
        package
    }

    #[test]
    fn a_missing_a_changed_and_an_added_file_are_named() {
        let built = package();
        let mut archive = built.clone();
        archive.add_checksums();
        assert_eq!(differences(&archive, &built), [""; 0]);
        let mut changed = archive.clone();
        changed.files.insert("README.md".into(), Vec::new());
        assert_eq!(differences(&changed, &built), [CHECKSUMS, "README.md"]);
        changed.files.remove("README.md");
        changed.files.insert("other.exe".into(), Vec::new());
        changed.add_checksums();
        let expected = ["README.md is missing", "other.exe is none of a package"];
        assert_eq!(differences(&changed, &built), expected);
    }

    #[test]
    fn an_archive_says_what_it_was_made_of() {
        let origin = |properties: &str| {
            let mut archive = package();
            let text = format!("{{\"metadata\": {{\"properties\": [{properties}]}}}}");
            archive.files.insert(SBOM.into(), text.into_bytes());
            Origin::of(&archive)
        };
        let property = |name, value| format!("{{\"name\": \"viordma:{name}\", \"value\": \"{value}\"}}");
        let (commit, arm64) = (property("commit", "5e52"), property("architecture", "arm64"));
        let expected = Origin { commit: "5e52".into(), architecture: Architecture::Arm64 };
        assert_eq!(origin(&format!("{commit}, {arm64}")), Ok(expected));
        assert_eq!(origin(&arm64), Err("it names no commit".into()));
        let mips = property("architecture", "mips");
        assert_eq!(origin(&format!("{commit}, {mips}")), Err("it names no architecture".into()));
        assert!(origin("{").unwrap_err().starts_with("sbom.cdx.json: "));
        assert_eq!(Origin::of(&package()), Err("it has no sbom.cdx.json".into()));
    }

    #[test]
    fn an_archive_that_is_cut_short_is_refused() {
        let source = Source { commit: String::new(), time: 0, date: [2026, 11, 28, 0, 0, 0] };
        let data = archive::write(&package(), &source).unwrap();
        for len in [0, 1, data.len() / 2, data.len() - 1] {
            assert!(archive::read(&data[..len]).is_err(), "{len} bytes");
        }
    }

    #[test]
    fn a_zip_file_with_more_than_its_files_is_noticed() {
        let mut source = Source { commit: String::new(), time: 0, date: [2026, 11, 29, 0, 0, 0] };
        let package = package();
        let data = archive::write(&package, &source).unwrap();
        assert!(is_canonical(&data, &archive::read(&data).unwrap(), &source).unwrap());
        // A file of the same name that the directory does not list, which some programs unpack.
        let name = b"viordma-1-x64/README.md";
        let end = data.windows(4).position(|bytes| bytes == b"PK\x01\x02").unwrap();
        let first = data.windows(name.len()).position(|bytes| bytes == name).unwrap() - 30;
        let second =
            data.windows(4).skip(first + 4).position(|bytes| bytes == b"PK\x03\x04").unwrap() + first + 4;
        let mut hidden = data[..end].to_vec();
        hidden.extend(&data[first..second]);
        let moved = hidden.len() - end;
        hidden.extend(&data[end..]);
        // The end of the directory, 22 bytes, says where the directory begins.
        let at = hidden.len() - 22 + 16;
        let begin =
            u32::from_le_bytes(hidden[at..at + 4].try_into().unwrap()) + u32::try_from(moved).unwrap();
        hidden[at..at + 4].copy_from_slice(&begin.to_le_bytes());
        let read = archive::read(&hidden).unwrap();
        assert_eq!(differences(&read, &archive::read(&data).unwrap()), [CHECKSUMS]);
        assert!(!is_canonical(&hidden, &read, &source).unwrap());
        source.date[4] = 1;
        assert!(!is_canonical(&data, &archive::read(&data).unwrap(), &source).unwrap());
    }

    #[test]
    fn a_damaged_archive_is_refused_with_the_name_of_the_file() {
        let source = Source { commit: String::new(), time: 0, date: [2026, 11, 28, 0, 0, 0] };
        let mut package = package();
        package.files.insert("viordma.pdb".into(), (0..=255).cycle().take(4096).collect());
        let mut data = archive::write(&package, &source).unwrap();
        assert_eq!(data, archive::write(&package, &source).unwrap());
        let at = data.windows(11).position(|name| name == b"viordma.pdb").unwrap();
        data[at + 40] ^= 1;
        let error = archive::read(&data).err().unwrap();
        assert!(format!("{error:#}").contains("viordma.pdb"), "{error:#}");
        assert!(archive::read(b"no archive").is_err());
    }
}
