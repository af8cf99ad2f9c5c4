// SPDX-License-Identifier: MIT OR Apache-2.0

//! The stand-in for the Windows Driver Kit: headers and import libraries, laid out as the kit lays them out.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

use super::{architecture::Architecture, imports::Imports, link::link};
use crate::shell;

/// The version of the kit whose layout is followed. No file of it is used.
const VERSION: &str = "10.0.26100.0";
const MINGW: &str = "/usr/share/mingw-w64/include";
const LLVM: &str = "/usr/lib/llvm-19";

/// Source of the library that Control Flow Guard needs, and the name that the kit has for it.
const GUARD: &str = "xtask/cross/guard.s";
const GUARD_LIBRARY: &str = "BufferOverflowFastFailK";

pub struct Kit {
    root: PathBuf,
    architecture: Architecture,
}

impl Kit {
    /// Assembles the kit below `root`. Files whose content does not change keep their modification times.
    pub fn assemble(root: &Path, architecture: Architecture) -> Result<Self> {
        let include = root.join("Include").join(VERSION);
        let own = shell::root().join("xtask/cross/include");
        copy_headers(&Path::new(MINGW).join("ddk"), &include.join("km"))?;
        copy_headers(&own.join("km"), &include.join("km"))?;
        copy_headers(&own.join("crt"), &include.join("km/crt"))?;
        link(Path::new(MINGW), &include.join("shared"))?;
        if architecture == Architecture::Arm64 {
            copy_headers(&own.join("arm64"), &include.join("km"))?;
        }
        let libraries = root.join("Lib").join(VERSION).join("km").join(architecture.name());
        import_libraries(&libraries, architecture)?;
        guard_library(&libraries, architecture)?;
        Ok(Self { root: root.to_path_buf(), architecture })
    }

    /// Environment variables for the stand-in for wdk-build and for bindgen. A variable that bindgen reads where it is compiled itself
    /// must be the same for all architectures, or bindgen and the drivers are compiled again after a build for another one.
    pub fn environment(&self) -> [(String, String); 4] {
        // MinGW's headers need its own mode of clang; layouts are those of the msvc target.
        let target = self.architecture.clang();
        let clang = format!("--target={target} -w -idirafter {LLVM}/lib/clang/19/include");
        [
            ("WDKContentRoot".to_owned(), self.root.display().to_string()),
            ("Version_Number".to_owned(), VERSION.to_owned()),
            ("LIBCLANG_PATH".to_owned(), format!("{LLVM}/lib")),
            (format!("BINDGEN_EXTRA_CLANG_ARGS_{}", self.architecture.target()), clang),
        ]
    }
}

fn copy_headers(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let path = entry?.path();
        if let (true, Some(name)) = (path.extension().is_some_and(|e| e == "h"), path.file_name()) {
            shell::write_if_changed(&to.join(name), &fs::read(&path)?)?;
        }
    }
    Ok(())
}

/// One import library per module, with exactly the names that the image may import.
fn import_libraries(directory: &Path, architecture: Architecture) -> Result<()> {
    fs::create_dir_all(directory)?;
    for (module, names) in Imports::load(architecture)?.modules() {
        let mut definition = format!("LIBRARY {module}\nEXPORTS\n");
        for name in names {
            definition.extend([name, "\n"]);
        }
        let stem = module.split('.').next().unwrap_or(module);
        let (def, lib) =
            (directory.join(stem).with_extension("def"), directory.join(stem).with_extension("lib"));
        if lib.exists() && fs::read_to_string(&def).is_ok_and(|old| old == definition) {
            continue;
        }
        fs::write(&def, definition)?;
        let mut dlltool = Command::new("/usr/bin/llvm-dlltool-19");
        shell::run(dlltool.args(["-m", architecture.dlltool(), "-d"]).arg(&def).arg("-l").arg(&lib))?;
    }
    Ok(())
}

/// The part of the kit's `BufferOverflowFastFailK.lib` that Control Flow Guard needs.
fn guard_library(directory: &Path, architecture: Architecture) -> Result<()> {
    let text = fs::read(shell::root().join(GUARD)).with_context(|| format!("cannot read {GUARD}"))?;
    // Without their folder, which would be in the debug information of the image.
    let [source, object, library] =
        ["s", "obj", "lib"].map(|extension| format!("{GUARD_LIBRARY}.{extension}"));
    let built_from = directory.join(&source);
    if directory.join(&library).exists() && fs::read(&built_from).is_ok_and(|old| old == text) {
        return Ok(());
    }
    let mut assembler = Command::new("/usr/bin/llvm-mc-19");
    assembler.arg(format!("-triple={}", architecture.target())).arg("-filetype=obj");
    if architecture == Architecture::Arm64 {
        assembler.arg("-defsym=ARM64=1");
    }
    assembler.current_dir(directory);
    shell::run(assembler.arg(shell::root().join(GUARD)).arg("-o").arg(&object))?;
    let mut librarian = Command::new("/usr/bin/llvm-lib-19");
    librarian.current_dir(directory);
    shell::run(librarian.arg(format!("/out:{library}")).arg(&object))?;
    // Last: its presence says that the library is whole.
    Ok(fs::write(&built_from, text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_bindgen_reads_where_it_is_compiled_is_the_same_for_all_architectures() {
        // The environment variables of bindgen's build script.
        let compiled_by =
            ["LLVM_CONFIG_PATH", "LIBCLANG_PATH", "LIBCLANG_STATIC_PATH", "BINDGEN_EXTRA_CLANG_ARGS"];
        let [x64, arm64] = [Architecture::X64, Architecture::Arm64].map(|architecture| {
            let mut environment = Kit { root: PathBuf::new(), architecture }.environment().to_vec();
            environment.retain(|(name, _)| compiled_by.contains(&&**name));
            environment
        });
        assert_eq!(x64, arm64);
    }
}
