// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask verbs --package`: the libraries as a Debian package and as a tarball, in `dist`. Their bytes depend on the commit and the
//! compiler alone.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use flate2::{Compression, GzBuilder};

use super::symbols::Library;
use crate::{
    guest::debian,
    image,
    package::{notices, source::Source},
    packages,
    shell::{self, Exit},
    workspace::Workspace,
};

const NAME: &str = "viordma-verbs";
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Runs a program with the libraries, and its manual page.
const SCRIPT: &str = include_str!("../../../crates/verbs/package/viordma-verbs");
const MANUAL: &str = include_str!("../../../crates/verbs/package/viordma-verbs.1");

/// Parts of a package.
pub struct Contents {
    /// The libraries, without symbols for debuggers.
    libraries: Vec<(&'static str, Vec<u8>)>,
    /// Licenses of all that is linked.
    licenses: String,
    /// Seconds since 1970, and the date as changelogs write it.
    time: u64,
    date: String,
}

/// Returns the commit that packages are made of, after a check of the tools that make them.
///
/// # Errors
/// With exit code 2: a tool is missing, or the source is not committed.
pub fn source() -> Result<Source> {
    let missing = ["dpkg-deb", "tar", "strip"].into_iter().find(|tool| shell::find_program(tool).is_none());
    match missing {
        Some(tool) => Err(Exit::usage(format!("{tool} is missing"))),
        None => Source::committed(),
    }
}

/// Makes both packages of the libraries in `directory`, and checks the Debian package with lintian where it can be installed. Returns
/// their paths.
///
/// # Errors
/// A tool fails, or lintian finds something.
pub fn make(source: &Source, directory: &Path, package: &str) -> Result<[PathBuf; 2]> {
    let contents = Contents::read(directory, source, package)?;
    let dist = shell::root().join("dist");
    fs::create_dir_all(&dist).with_context(|| format!("cannot create {}", dist.display()))?;
    let paths = [contents.tarball(&dist)?, contents.debian(&dist)?];
    if packages::require(&packages::LINTIAN).is_ok() {
        let mut lintian = Command::new("lintian");
        lintian.args(["--allow-root", "--fail-on", "error,warning", "--tag-display-limit", "0"]);
        shell::run(lintian.arg(&paths[1]))?;
    } else {
        println!("not checked: lintian is missing");
    }
    Ok(paths)
}

impl Contents {
    /// Reads the libraries and the licenses of what the package of cargo links.
    fn read(directory: &Path, source: &Source, package: &str) -> Result<Self> {
        let strip = |library: Library| {
            let (from, to) = (directory.join(library.soname()), directory.join("link/stripped"));
            shell::run(Command::new("strip").args(["--strip-unneeded", "-o"]).arg(&to).arg(&from))?;
            Ok((library.soname(), fs::read(&to)?))
        };
        let libraries = [Library::Verbs, Library::Cm].into_iter().map(strip).collect::<Result<_>>()?;
        let text =
            shell::output(Workspace::Tools.cargo().args(["metadata", "--format-version", "1", "--offline"]))?;
        let metadata = serde_json::from_str(&text).context("cargo metadata")?;
        let lock = fs::read_to_string(Workspace::Tools.file("Cargo.lock"))?.parse()?;
        let compiler = shell::output(Command::new("rustc").arg("--version").current_dir(shell::root()))?;
        let compiler = compiler.split_whitespace().nth(1).unwrap_or_default();
        let licenses = notices::text(&image::linked_packages(&metadata, &lock, compiler, package)?)?;
        let mut date = Command::new("date");
        date.args(["--utc", "--rfc-email", &format!("--date=@{}", source.time)]);
        let date = shell::output(&mut date)?.trim().to_owned();
        Ok(Self { libraries, licenses, time: source.time, date })
    }

    /// Writes the tarball, and returns its path.
    fn tarball(&self, dist: &Path) -> Result<PathBuf> {
        let name = format!("{NAME}-{VERSION}-linux-{}", std::env::consts::ARCH);
        let work = shell::root().join("target/verbs/tarball");
        debian::empty(&work)?;
        let folder = work.join(&name);
        for (library, data) in &self.libraries {
            put(&folder.join("lib").join(library), data, 0o644)?;
        }
        put(&folder.join(NAME), SCRIPT.as_bytes(), 0o755)?;
        put(&folder.join("LICENSES.txt"), self.licenses.as_bytes(), 0o644)?;
        let page = shell::root().join("docs/verbs.md");
        put(
            &folder.join("README.md"),
            &fs::read(&page).with_context(|| format!("cannot read {}", page.display()))?,
            0o644,
        )?;
        let path = dist.join(format!("{name}.tar.gz"));
        let mut tar = Command::new("tar");
        tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--format=gnu"]);
        tar.arg(format!("--mtime=@{}", self.time)).arg("-C").arg(&work).args(["-cf", "-", &name]);
        let output = tar.output().context("cannot run tar")?;
        ensure!(output.status.success(), "tar failed: {}", String::from_utf8_lossy(&output.stderr));
        fs::write(&path, gzip(&output.stdout)?)?;
        Ok(path)
    }

    /// Writes the Debian package, and returns its path.
    fn debian(&self, dist: &Path) -> Result<PathBuf> {
        let root = shell::root().join("target/verbs/deb");
        debian::empty(&root)?;
        let (architecture, triplet) = if cfg!(target_arch = "aarch64") {
            ("arm64", "aarch64-linux-gnu")
        } else {
            ("amd64", "x86_64-linux-gnu")
        };
        let document = |name: &str| root.join(format!("usr/share/doc/{NAME}/{name}"));
        for (library, data) in &self.libraries {
            put(&root.join(format!("usr/lib/{triplet}/viordma")).join(library), data, 0o644)?;
        }
        put(&root.join("usr/bin").join(NAME), SCRIPT.as_bytes(), 0o755)?;
        put(&root.join(format!("usr/share/man/man1/{NAME}.1.gz")), &gzip(MANUAL.as_bytes())?, 0o644)?;
        let changelog = format!(
            "{NAME} ({VERSION}) unstable; urgency=medium\n\n  * A build of the project; see its CHANGELOG.md.\n\n -- {MAINTAINER}  {}\n",
            self.date
        );
        put(&document("changelog.gz"), &gzip(changelog.as_bytes())?, 0o644)?;
        put(&document("copyright"), Self::copyright()?.as_bytes(), 0o644)?;
        put(&document("LICENSES.txt.gz"), &gzip(self.licenses.as_bytes())?, 0o644)?;
        let sums = shell::output(
            Command::new("sh")
                .current_dir(&root)
                .args(["-c", "find usr -type f | LC_ALL=C sort | xargs md5sum"]),
        )?;
        let size = self.libraries.iter().map(|(_, data)| data.len() / 1024 + 8).sum::<usize>();
        put(&root.join("DEBIAN/md5sums"), sums.as_bytes(), 0o644)?;
        put(
            &root.join("DEBIAN/control"),
            format!(
                "Package: {NAME}\nVersion: {VERSION}\nArchitecture: {architecture}\nMaintainer: {MAINTAINER}\n\
                 Installed-Size: {size}\nDepends: libc6 (>= 2.35), libgcc-s1\nEnhances: ibverbs-utils, perftest, rdmacm-utils\n\
                 Section: net\nPriority: optional\nDescription: {DESCRIPTION}"
            )
            .as_bytes(),
            0o644,
        )?;
        let path = dist.join(format!("{NAME}_{VERSION}_{architecture}.deb"));
        let mut build = Command::new("dpkg-deb");
        build.env("SOURCE_DATE_EPOCH", self.time.to_string()).args(["--root-owner-group", "-Zxz", "--build"]);
        shell::output(build.arg(&root).arg(&path))?;
        Ok(path)
    }

    /// Returns Debian's form of the licenses.
    fn copyright() -> Result<String> {
        let path = shell::root().join("LICENSE-MIT");
        let mit = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let body: String = mit
            .lines()
            .skip_while(|line| !line.starts_with("Permission"))
            .map(|line| if line.is_empty() { " .\n".to_owned() } else { format!(" {line}\n") })
            .collect();
        Ok(format!(
            "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: viordma\n\n\
             Files: *\nCopyright: 2026 The viordma authors\nLicense: MIT or Apache-2.0\n\
             Comment: The libraries link packages of crates.io and of Rust's library; LICENSES.txt names them, with their licenses.\n\n\
             License: MIT\n{body}\n\
             License: Apache-2.0\n On Debian systems, the license is in /usr/share/common-licenses/Apache-2.0.\n"
        ))
    }
}

const MAINTAINER: &str = "The viordma authors <noreply@viordma.invalid>";

const DESCRIPTION: &str = "RDMA without an RDMA device, in the process
 Drop-in libibverbs and librdmacm that implement RoCEv2 in software, in the
 process that uses them: no RDMA device, kernel module or privilege is needed.
 .
 They are in a folder of their own, beside those of the system. The program
 viordma-verbs runs a program with them. They are for tests of RDMA programs,
 in containers for example; they are not fast.
";

/// Writes a file with its folders.
fn put(path: &Path, data: &[u8], mode: u32) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
    }
    fs::write(path, data).with_context(|| format!("cannot write {}", path.display()))?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    Ok(())
}

/// Compresses without a name and a time.
fn gzip(data: &[u8]) -> Result<Vec<u8>> {
    let mut writer = GzBuilder::new().write(Vec::new(), Compression::best());
    writer.write_all(data)?;
    Ok(writer.finish()?)
}
