// SPDX-License-Identifier: MIT OR Apache-2.0

//! Links the libraries from the archive of `crates/verbs`.
//!
//! A compiler's `cdylib` has symbols without versions, and programs ask for versions; therefore the archive is linked here by the C
//! compiler, with a version script. Everything is in `libibverbs.so.1`. `librdmacm.so.1` has a jump for each of its functions to the
//! one in `libibverbs.so.1`, exported there as `viordma_NAME@VIORDMA_1`.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};

use super::symbols::{Library, Table};
use crate::shell;

/// The version of what only `librdmacm.so.1` imports of `libibverbs.so.1`.
const OWN_VERSION: &str = "VIORDMA_1";

/// The newest version of the C library that the libraries may need: that of Ubuntu 22.04.
const NEWEST_LIBC: [u32; 2] = [2, 35];

/// Tables of both libraries.
pub struct Tables {
    pub verbs: Table,
    pub cm: Table,
}

impl Tables {
    /// Reads the tables.
    ///
    /// # Errors
    /// One cannot be read.
    pub fn read() -> Result<Self> {
        Ok(Self { verbs: Library::Verbs.symbols()?, cm: Library::Cm.symbols()? })
    }

    /// Links both libraries from `archive` into `directory`, and compares what they export with the tables.
    ///
    /// # Errors
    /// The archive lacks a symbol that the tables list, or has one that they do not list; or the C compiler fails.
    pub fn link(&self, archive: &Path, directory: &Path) -> Result<()> {
        let defined = defined_symbols(archive)?;
        self.verbs.compare(&defined, |name| name.starts_with("ibv_"))?;
        self.cm.compare(&defined, |name| name.starts_with("rdma_"))?;
        let work = directory.join("link");
        fs::create_dir_all(&work).with_context(|| format!("cannot make {}", work.display()))?;

        let verbs = directory.join(Library::Verbs.soname());
        let mut script = self.verbs.version_script()?;
        let _ = writeln!(script, "{OWN_VERSION} {{\n global:\n  viordma_*;\n}};");
        let mut link = Self::linker(Library::Verbs, &work, &self.verbs.refusals(), &script)?;
        link.args(["-Wl,--whole-archive"]).arg(archive).args(["-Wl,--no-whole-archive"]);
        link.args(self.cm.offered().map(|name| format!("-Wl,--defsym=viordma_{name}={name}")));
        shell::run(link.args(["-lgcc_s", "-lm", "-o"]).arg(&verbs))?;

        let cm = directory.join(Library::Cm.soname());
        let source = self.cm.refusals() + &self.jumps();
        let mut link = Self::linker(Library::Cm, &work, &source, &self.cm.version_script()?)?;
        shell::run(link.arg(&verbs).arg("-o").arg(&cm))?;
        self.check(directory)
    }

    /// Compares what the libraries in `directory` export with the tables, and what they need with what systems have.
    ///
    /// # Errors
    /// A difference, by name.
    pub fn check(&self, directory: &Path) -> Result<()> {
        for (library, table) in [(Library::Verbs, &self.verbs), (Library::Cm, &self.cm)] {
            let path = directory.join(library.soname());
            let (exported, needed) = dynamic_symbols(&path)?;
            let exported: Vec<String> = exported
                .into_iter()
                .filter(|name| !name.ends_with(OWN_VERSION) || library == Library::Cm)
                .collect();
            let listed = table.exports();
            let missing: Vec<&String> = listed.iter().filter(|name| !exported.contains(name)).collect();
            let surplus: Vec<&String> = exported.iter().filter(|name| !listed.contains(name)).collect();
            ensure!(
                missing.is_empty() && surplus.is_empty(),
                "{}: exports no {missing:?}, and {surplus:?}, which its table does not list",
                path.display()
            );
            for name in &needed {
                let Some((_, version)) = name.split_once("@GLIBC_") else { continue };
                let version: Vec<u32> = version.split('.').filter_map(|part| part.parse().ok()).collect();
                ensure!(version[..] <= NEWEST_LIBC[..], "{} needs {name}", path.display());
            }
        }
        Ok(())
    }

    /// Compiles a C source, and returns a command that links it into a library: inputs and the output are to be added.
    fn linker(library: Library, work: &Path, source: &str, script: &str) -> Result<Command> {
        let name = library.soname();
        let file = |end: &str| work.join(format!("{name}.{end}"));
        let (code, map, object) = (file("c"), file("map"), file("o"));
        fs::write(&code, source)?;
        fs::write(&map, script)?;
        let mut compile = Command::new("cc");
        compile.args(["-O1", "-fPIC", "-fvisibility=hidden", "-w", "-c"]);
        shell::run(compile.arg(&code).arg("-o").arg(&object))?;
        let mut link = Command::new("cc");
        link.arg("-shared").arg(format!("-Wl,-soname,{name}"));
        link.arg(format!("-Wl,--version-script={}", map.display()));
        // A thread of the library may run when a program closes it.
        link.args(["-Wl,-z,now", "-Wl,-z,relro", "-Wl,-z,nodelete", "-Wl,-z,defs", "-Wl,--gc-sections"]);
        link.args(["-Wl,-Bsymbolic-functions", "-Wl,--build-id"]).arg(object);
        Ok(link)
    }

    /// Returns C source with a jump for each function of `librdmacm.so.1`.
    fn jumps(&self) -> String {
        let jump = if cfg!(target_arch = "aarch64") { "b" } else { "jmp" };
        let plt = if cfg!(target_arch = "aarch64") { "" } else { "@PLT" };
        let mut source = String::from("__asm__(\".text\\n\"\n");
        for name in self.cm.offered() {
            let _ = writeln!(
                source,
                "\".globl {name}\\n.type {name}, %function\\n{name}: {jump} viordma_{name}{plt}\\n.size {name}, .-{name}\\n\""
            );
        }
        source + ");\n"
    }
}

/// Returns the global symbols that the members of an archive define.
fn defined_symbols(archive: &Path) -> Result<Vec<String>> {
    let mut nm = Command::new("nm");
    // Without plugins: one of an LLVM older than that of rustc takes an object for bitcode that it cannot read, and shows no symbols.
    nm.args(["--plugin", "/dev/null"]);
    nm.args(["--quiet", "--extern-only", "--defined-only", "--format=posix"]).arg(archive);
    let text = shell::output(&mut nm)?;
    // Lines with the name of a member have one word.
    let names = text.lines().filter_map(|line| line.split_once(' ')).map(|(name, _)| name.to_owned());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names.dedup();
    Ok(names)
}

/// Returns the symbols that a library exports, sorted, and those that it imports, all with their versions.
fn dynamic_symbols(library: &Path) -> Result<(Vec<String>, Vec<String>)> {
    let mut nm = Command::new("nm");
    nm.args(["--dynamic", "--with-symbol-versions", "--format=posix"]).arg(library);
    let text = shell::output(&mut nm)?;
    let (mut exported, mut needed) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (Some(name), Some(kind)) = (words.next(), words.next()) else { continue };
        match kind {
            "U" | "w" | "v" => needed.push(name.to_owned()),
            // The names of versions.
            "A" => {}
            _ => exported.push(name.to_owned()),
        }
    }
    exported.sort();
    Ok((exported, needed))
}

/// Returns where the libraries are linked.
pub fn directory() -> PathBuf {
    shell::root().join("target/verbs/lib")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes an archive that defines functions, each of which returns the number of its place.
    fn archive(directory: &Path, names: impl Iterator<Item = String>) -> PathBuf {
        let lines =
            names.enumerate().map(|(place, name)| format!("int {name}(void) {{ return {place}; }}\n"));
        let (code, object, archive) =
            (directory.join("a.c"), directory.join("a.o"), directory.join("liba.a"));
        fs::write(&code, lines.collect::<String>()).unwrap();
        shell::run(Command::new("cc").args(["-fPIC", "-w", "-c"]).arg(&code).arg("-o").arg(&object)).unwrap();
        shell::run(Command::new("ar").arg("rc").arg(&archive).arg(&object)).unwrap();
        archive
    }

    /// Returns small tables, with a version that succeeds another.
    fn tables() -> Tables {
        let verbs =
            "ibv_close_device IBVERBS_1.0\nibv_open_device IBVERBS_1.1\nibv_cmd_x IBVERBS_PRIVATE_34 errno";
        let cm = "rdma_connect RDMACM_1.0\nrsocket RDMACM_1.0 minus-one";
        Tables { verbs: verbs.parse().unwrap(), cm: cm.parse().unwrap() }
    }

    fn offered(tables: &Tables) -> Vec<String> {
        [&tables.verbs, &tables.cm].into_iter().flat_map(Table::offered).map(str::to_owned).collect()
    }

    #[test]
    fn libraries_export_what_the_tables_list_and_a_program_runs_with_them() {
        let (tables, directory) = (tables(), tempfile::tempdir().unwrap());
        let offered = offered(&tables);
        let place = |name: &str| offered.iter().position(|other| other == name).unwrap();
        let archive = archive(directory.path(), offered.iter().cloned());
        tables.link(&archive, directory.path()).unwrap();
        // A function of each library, one that is refused, and the same by dlvsym, as some programs load them.
        let source = directory.path().join("p.c");
        fs::write(
            &source,
            format!(
                "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <errno.h>\n\
                 int ibv_open_device(void), rdma_connect(void), rsocket(void);\n\
                 int main(void) {{ int (*f)(void) = dlvsym(dlopen(\"librdmacm.so.1\", RTLD_NOW), \"rdma_connect\", \"RDMACM_1.0\");\n\
                 if (!f || f() != {connect}) return 3;\n\
                 if (rsocket() != -1 || errno != EOPNOTSUPP) return 2;\n\
                 return ibv_open_device() != {open} || rdma_connect() != {connect}; }}\n",
                open = place("ibv_open_device"),
                connect = place("rdma_connect"),
            ),
        )
        .unwrap();
        let program = directory.path().join("p");
        let mut compile = Command::new("cc");
        compile.arg("-w").arg(&source).arg("-o").arg(&program);
        compile.args([Library::Verbs, Library::Cm].map(|library| directory.path().join(library.soname())));
        shell::run(&mut compile).unwrap();
        shell::run(Command::new(&program).env("LD_LIBRARY_PATH", directory.path())).unwrap();
    }

    #[test]
    fn an_archive_without_a_listed_function_is_refused_with_its_name() {
        let (tables, directory) = (tables(), tempfile::tempdir().unwrap());
        let all = offered(&tables).into_iter().filter(|name| name != "ibv_open_device");
        let error = tables.link(&archive(directory.path(), all), directory.path()).unwrap_err().to_string();
        assert!(error.starts_with("ibv_open_device is in crates/verbs/symbols"), "{error}");
    }
}
