// SPDX-License-Identifier: MIT OR Apache-2.0

//! The places in the sources that cite rules: in code of the product, in tests, or in what surrounds the product.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::Result;

use super::citation::{self, Citation};
use crate::shell;

/// Files and folders with sources of this project.
const SOURCES: [&str; 11] = [
    "consumers",
    "crates",
    "drivers",
    "fuzz",
    "inf",
    "lab/guest/src",
    "lab/src",
    "sim",
    "src",
    "tests",
    "xtask/src",
];

/// The product: what the image contains, and SMB Direct, whose rules have code of their own.
const PRODUCT: [&str; 11] = [
    "consumers/smb-direct",
    "crates/fallible",
    "crates/ndk-abi",
    "crates/ndk-provider",
    "crates/nt",
    "crates/roce",
    "crates/roce-wire",
    "crates/state-table",
    "crates/virtio-net",
    "inf",
    "src",
];

/// Folders whose tests are of the simulated machine itself and say nothing about the product, except those of the image.
const MACHINE: [&str; 2] = ["sim", "drivers"];

/// How the path of tests of the image ends.
const TESTS_OF_THE_IMAGE: &str = "tests/viordma.rs";

/// The places that cite a rule.
#[derive(Default)]
pub struct Places {
    /// Code of the product.
    pub code: Vec<String>,
    pub tests: Vec<String>,
    /// Consumers, the simulated machine and tools, with their tests. They are no evidence for a rule.
    pub others: Vec<String>,
}

/// The sources as this command reads them.
#[derive(Default)]
pub struct Sources {
    /// By rule or section.
    pub cited: BTreeMap<String, Places>,
    /// Sentences about citations that are misplaced or malformed.
    pub faults: Vec<String>,
    /// By file: line and rule of each citation, in their order.
    pub by_file: BTreeMap<String, Vec<(usize, String)>>,
}

/// Reads all sources.
///
/// # Errors
/// A file that cannot be read.
pub fn read() -> Result<Sources> {
    let mut files = BTreeMap::new();
    for path in SOURCES {
        let path = shell::root().join(path);
        if path.exists() {
            add(&path, &mut files)?;
        }
    }
    Ok(sources(&files))
}

/// Adds the text of a file, or of the files of a directory.
fn add(path: &Path, files: &mut BTreeMap<String, String>) -> Result<()> {
    if path.is_dir() {
        for entry in fs::read_dir(path)? {
            add(&entry?.path(), files)?;
        }
        return Ok(());
    }
    let extensions = ["rs", "inx", "in"];
    if path.extension().is_some_and(|extension| extensions.iter().any(|known| extension == *known)) {
        let name = path.strip_prefix(shell::root()).unwrap_or(path).display().to_string();
        files.insert(name, fs::read_to_string(path)?);
    }
    Ok(())
}

/// Sorts the citations of files, which are texts by path.
fn sources(files: &BTreeMap<String, String>) -> Sources {
    let test_modules: BTreeSet<String> =
        files.iter().flat_map(|(name, text)| test_modules(name, text)).collect();
    let mut sources = Sources::default();
    for (name, text) in files {
        let is_test = name.split('/').any(|part| part == "tests")
            || name.ends_with("tests.rs")
            || test_modules.iter().any(|module| {
                name.strip_prefix(module.as_str()).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
            });
        let tests_from = inline_tests(text);
        let begins = |roots: &[&str]| roots.iter().any(|root| Path::new(name).starts_with(root));
        let is_machine = begins(&MACHINE) && !name.ends_with(TESTS_OF_THE_IMAGE);
        let (citations, faults) = citation::read(text);
        for Citation { rule, line } in citations {
            sources.by_file.entry(name.clone()).or_default().push((line, rule.clone()));
            let places = sources.cited.entry(rule).or_default();
            let list = if (is_test || line > tests_from) && !is_machine {
                &mut places.tests
            } else if begins(&PRODUCT) && !is_test && line <= tests_from {
                &mut places.code
            } else {
                &mut places.others
            };
            list.push(format!("{name}:{line}"));
        }
        sources.faults.extend(faults.into_iter().map(|(line, fault)| format!("{name}:{line}: {fault}")));
    }
    sources
}

/// Modules of a file that only tests have: their paths without `.rs`.
fn test_modules(name: &str, text: &str) -> Vec<String> {
    let path = name.strip_suffix(".rs").unwrap_or(name);
    let directory = match path.rsplit_once('/') {
        Some((directory, "lib" | "main" | "mod")) => directory,
        _ => path,
    };
    items_of_tests(text)
        .filter_map(|(_, item)| item.strip_prefix("mod ")?.strip_suffix(';'))
        .map(|module| format!("{directory}/{module}"))
        .collect()
}

/// The line of the attribute of the module of tests that is in the file itself, at its end.
fn inline_tests(text: &str) -> usize {
    let is_module = |(_, item): &(usize, &str)| item.starts_with("mod ") && item.ends_with('{');
    items_of_tests(text).find(is_module).map_or(usize::MAX, |(line, _)| line)
}

/// The items of a text that only tests have: the line of the attribute, and the first line behind the attributes.
fn items_of_tests(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let is_attribute = |line: &&str| line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(all(test");
    let found: Vec<usize> =
        lines.iter().enumerate().filter(|(_, line)| is_attribute(line)).map(|(index, _)| index).collect();
    found.into_iter().filter_map(move |index| {
        let item =
            lines.iter().skip(index + 1).find(|line| !line.starts_with("#[") && !line.starts_with("//"))?;
        let item = item.strip_prefix("pub ").or_else(|| item.strip_prefix("pub(crate) ")).unwrap_or(item);
        Some((index + 1, item))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sorts the citations of two rules in files that are named; `@` stands for the mark.
    fn sorted(files: &[(&str, &str)]) -> Sources {
        let files = files.iter().map(|(name, text)| ((*name).to_owned(), text.replace('@', "//\u{3d} ")));
        sources(&files.collect())
    }

    #[test]
    fn tests_are_recognized_by_their_path_and_by_the_module_that_they_are_in() {
        let text = "@R-CQ-7\nfn f() {}\n#[cfg(test)]\nmod tests {\n@R-CQ-8\nfn g() {}\n}\n";
        let sources = sorted(&[("src/b.rs", text), ("tests/b.rs", text), ("src/tests.rs", text)]);
        assert_eq!(sources.cited["R-CQ-7"].code, ["src/b.rs:1"]);
        assert_eq!(sources.cited["R-CQ-7"].tests, ["src/tests.rs:1", "tests/b.rs:1"]);
        assert!(sources.cited["R-CQ-8"].code.is_empty());
    }

    #[test]
    fn modules_that_only_tests_have_are_tests_and_code_behind_their_declaration_is_code() {
        let library = "#[cfg(test)]\nmod models;\n@R-CQ-7\nfn f() {}\n";
        let module = "@R-CQ-8\nfn g() {}\n#[cfg(all(test, loom))]\n#[path = \"x.rs\"]\nmod inner;\n";
        let sources = sorted(&[
            ("src/lib.rs", library),
            ("src/models.rs", module),
            ("src/models/inner.rs", "@R-CQ-8\nfn g() {}\n"),
            ("src/models_of_others.rs", "@R-CQ-9\nfn g() {}\n"),
        ]);
        assert_eq!(sources.cited["R-CQ-7"].code, ["src/lib.rs:3"]);
        assert_eq!(sources.cited["R-CQ-8"].tests, ["src/models.rs:1", "src/models/inner.rs:1"]);
        assert_eq!(sources.cited["R-CQ-9"].code, ["src/models_of_others.rs:1"]);
    }

    #[test]
    fn what_surrounds_the_product_is_no_evidence_but_tests_of_consumers_are() {
        let text = "@R-CQ-7\nfn f() {}\n";
        let sources = sorted(&[
            ("consumers/ndk/src/cq.rs", text),
            ("consumers/ndk/tests/cq.rs", text),
            ("sim/nt/src/cq.rs", text),
            ("sim/nt/tests/cq.rs", text),
            ("sim/nt/tests/viordma.rs", text),
            ("crates/roce-testkit/src/cq.rs", text),
        ]);
        let places = &sources.cited["R-CQ-7"];
        assert!(places.code.is_empty());
        assert_eq!(places.tests, ["consumers/ndk/tests/cq.rs:1", "sim/nt/tests/viordma.rs:1"]);
        assert_eq!(places.others.len(), 4);
        assert_eq!(sources.by_file["sim/nt/src/cq.rs"], [(1, "R-CQ-7".to_owned())]);
    }
}
