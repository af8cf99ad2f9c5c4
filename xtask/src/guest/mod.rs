// SPDX-License-Identifier: MIT OR Apache-2.0

//! Builds the Linux guest from Debian packages: a kernel and an initial RAM file system in `target/guest`.
//!
//! Packages are downloaded and unpacked there. They are not installed on this machine, and their scripts do not run.
//! The file system contains the programs listed here, their shared libraries, kernel modules with their dependencies
//! in load order, `lab/guest/init` as the first process, and `lab/guest/probe.c`, compiled. It is built again only if
//! an input has changed.

mod cpio;
mod elf;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail, ensure};
use sha2::{Digest as _, Sha256};

use self::cpio::Archive;
use crate::{packages, shell};

/// The package that depends on Debian's current kernel.
const KERNEL: &str = "linux-image-amd64";

/// Packages of the programs, their libraries, and the headers for the probe.
const PACKAGES: [&str; 24] = [
    "busybox-static",
    "dash",
    "ibverbs-providers",
    "ibverbs-utils",
    "iproute2",
    "libbpf1",
    "libbsd0",
    "libc6",
    "libcap2",
    "libelf1",
    "libgcc-s1",
    "libibverbs-dev",
    "libibverbs1",
    "libmd0",
    "libmnl0",
    "libnl-3-200",
    "libnl-route-3-200",
    "librdmacm-dev",
    "librdmacm1",
    "libtirpc3",
    "rdmacm-utils",
    "zlib1g",
    "libdb5.3",
    "libselinux1",
];

/// Programs of the packages that go into the guest.
const PROGRAMS: [&str; 8] = [
    "bin/dash",
    "bin/ip",
    "usr/bin/ibv_devinfo",
    "usr/bin/rdma",
    "usr/bin/rdma_client",
    "usr/bin/rdma_server",
    "usr/bin/rping",
    "usr/bin/ucmatose",
];

/// Libraries that programs load at run time: the verbs provider of rxe, and libgcc, which thread cancellation needs.
const LOADED: [&str; 2] =
    ["usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so", "lib/x86_64-linux-gnu/libgcc_s.so.1"];

/// Applets of busybox that the guest's scripts use. Not its shell, which would use its own `ip`.
const APPLETS: [&str; 22] = [
    "cat", "cut", "echo", "grep", "head", "insmod", "kill", "ln", "mkfifo", "mount", "printf", "ps", "rm",
    "seq", "setsid", "sleep", "stty", "tail", "test", "timeout", "touch", "uname",
];

/// Modules that are loaded, after their dependencies.
const MODULES: [&str; 6] = ["virtio_pci", "virtio_net", "crc32_generic", "rdma_rxe", "ib_uverbs", "rdma_ucm"];

/// Directories of the libraries, in the packages and in the guest.
const LIBRARIES: [&str; 2] = ["lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"];

/// Parts of the kernel's package that contain the kernel and the modules.
const KERNEL_PARTS: [&str; 7] = [
    "./boot/vmlinuz-*",
    "./lib/modules/*/kernel/crypto/*",
    "./lib/modules/*/kernel/drivers/infiniband/*",
    "./lib/modules/*/kernel/drivers/net/*",
    "./lib/modules/*/kernel/drivers/virtio/*",
    "./lib/modules/*/kernel/fs/configfs/*",
    "./lib/modules/*/kernel/net/*",
];

/// Inputs from this repository. They include this code, since it determines the rest of the image.
const INIT: &[u8] = include_bytes!("../../../lab/guest/init");
const PROBE: &[u8] = include_bytes!("../../../lab/guest/probe.c");
const BUILDERS: [&[u8]; 3] = [include_bytes!("mod.rs"), include_bytes!("cpio.rs"), include_bytes!("elf.rs")];

/// Builds the guest's kernel and file system in `target/guest`, unless they are up to date.
pub fn make() -> Result<()> {
    packages::require(&packages::GUEST)?;
    let directory = shell::root().join("target/guest");
    let fetched = fetch(&directory.join("packages"))?;
    let key = key(&fetched);
    let made = directory.join("key");
    if fs::read_to_string(&made).is_ok_and(|old| old == key) {
        return Ok(());
    }
    eprintln!("building the guest from {} packages", fetched.len());
    let root = directory.join("root");
    match fs::remove_dir_all(&root) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => fs::create_dir_all(&root)?,
    }
    for package in &fetched {
        unpack(package, &root)?;
    }
    let probe = compile_probe(&directory, &root)?;
    let kernel = only(&root.join("boot"), "vmlinuz-")?;
    fs::copy(&kernel, directory.join("vmlinuz"))?;
    let mut archive = Archive::new(std::io::BufWriter::new(fs::File::create(directory.join("initrd"))?));
    fill(&mut archive, &Root(root), &probe)?;
    archive.finish()?;
    fs::write(&made, key)?;
    Ok(())
}

/// Returns the packages' files in `directory`. Downloads them if they are missing, in Debian's current version; they
/// stay until the directory is deleted.
fn fetch(directory: &Path) -> Result<Vec<PathBuf>> {
    let list = directory.join("list");
    let wanted = format!("{KERNEL} {}\n", PACKAGES.join(" "));
    if !fs::read_to_string(&list).is_ok_and(|old| old == wanted) {
        fs::create_dir_all(directory)?;
        for old in fs::read_dir(directory)? {
            fs::remove_file(old?.path())?;
        }
        let mut names = vec![packages::dependency(KERNEL, "linux-image-")?];
        names.extend(PACKAGES.map(str::to_owned));
        eprintln!("fetching {} Debian packages for the guest", names.len());
        packages::download(&names, directory)?;
        fs::write(&list, wanted)?;
    }
    let mut files: Vec<PathBuf> = fs::read_dir(directory)?
        .map(|entry| Ok(entry?.path()))
        .filter(|path| path.as_ref().is_ok_and(|path| path.extension().is_some_and(|end| end == "deb")))
        .collect::<Result<_>>()?;
    files.sort();
    ensure!(
        files.len() == PACKAGES.len() + 1,
        "{} does not hold the packages it should",
        directory.display()
    );
    Ok(files)
}

/// Returns a hash of all inputs of the image. The file names of packages include their versions.
fn key(packages: &[PathBuf]) -> String {
    let mut hash = Sha256::new();
    for name in packages.iter().filter_map(|path| path.file_name()) {
        hash.update(name.as_encoded_bytes());
        hash.update([0]);
    }
    for content in [INIT, PROBE].iter().chain(&BUILDERS) {
        hash.update(content.len().to_le_bytes());
        hash.update(content);
    }
    let digits =
        |byte: &u8| [byte >> 4, byte & 15].map(|digit| char::from(b"0123456789abcdef"[usize::from(digit)]));
    hash.finalize().iter().flat_map(digits).collect()
}

/// Unpacks a package below `root`; of the kernel's package, only [`KERNEL_PARTS`].
fn unpack(package: &Path, root: &Path) -> Result<()> {
    let name = package.file_name().unwrap_or_default().to_string_lossy();
    if !name.starts_with("linux-image-") {
        return shell::run(Command::new("dpkg-deb").arg("-x").arg(package).arg(root));
    }
    let mut contents = Command::new("dpkg-deb");
    contents.arg("--fsys-tarfile").arg(package).stdout(std::process::Stdio::piped());
    let mut contents = contents.spawn().context("cannot run dpkg-deb")?;
    let mut tar = Command::new("tar");
    tar.arg("-x").arg("-C").arg(root).arg("--wildcards").args(KERNEL_PARTS);
    tar.stdin(contents.stdout.take().context("no output")?);
    let taken = shell::run(&mut tar);
    let status = contents.wait()?;
    taken?;
    ensure!(status.success(), "{} cannot be unpacked", package.display());
    Ok(())
}

fn compile_probe(directory: &Path, root: &Path) -> Result<PathBuf> {
    let (source, program) = (directory.join("probe.c"), directory.join("probe"));
    fs::write(&source, PROBE)?;
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-I"]).arg(root.join("usr/include"));
    gcc.arg("-o").arg(&program).arg(&source);
    for libraries in LIBRARIES {
        gcc.arg("-L").arg(root.join(libraries));
    }
    // The dependencies of those libraries are in the guest.
    gcc.args(["-lrdmacm", "-libverbs", "-Wl,--allow-shlib-undefined"]);
    shell::run(&mut gcc)?;
    Ok(program)
}

/// The directory of the unpacked packages.
struct Root(PathBuf);

impl Root {
    fn read(&self, path: &str) -> Result<Vec<u8>> {
        fs::read(self.0.join(path)).with_context(|| format!("the packages hold no {path}"))
    }

    /// Returns a library's path below the root.
    fn library(&self, name: &str) -> Result<String> {
        let places = LIBRARIES.map(|directory| format!("{directory}/{name}"));
        let found = places.into_iter().find(|path| self.0.join(path).exists());
        found.with_context(|| format!("no package of the guest's holds {name}"))
    }
}

fn fill<W: std::io::Write>(archive: &mut Archive<W>, root: &Root, probe: &Path) -> Result<()> {
    for directory in ["dev", "proc", "sys", "tmp", "var/run"] {
        archive.directory(directory)?;
    }
    archive.program("init", INIT)?;
    archive.program("bin/busybox", &root.read("bin/busybox")?)?;
    for applet in APPLETS {
        archive.link(&format!("bin/{applet}"), "busybox")?;
    }
    archive.link("bin/sh", "dash")?;
    archive.file("etc/libibverbs.d/rxe.driver", &root.read("etc/libibverbs.d/rxe.driver")?)?;
    // Name resolution reads these even for a numeric address.
    archive.file("etc/hosts", b"127.0.0.1 localhost\n::1 localhost\n")?;
    archive.file("etc/nsswitch.conf", b"hosts: files\n")?;

    let mut libraries = BTreeSet::new();
    let mut waiting = Vec::new();
    for path in PROGRAMS {
        let content = root.read(path)?;
        archive.program(path, &content)?;
        waiting.push(content);
    }
    let content = fs::read(probe)?;
    archive.program("usr/bin/probe", &content)?;
    waiting.push(content);
    let mut add = |path: String| -> Result<Option<Vec<u8>>> {
        if !libraries.insert(path.clone()) {
            return Ok(None);
        }
        let content = root.read(&path)?;
        archive.program(&path, &content)?;
        Ok(Some(content))
    };
    for path in LOADED {
        waiting.extend(add(path.to_owned())?);
    }
    while let Some(content) = waiting.pop() {
        if let Some(loader) = elf::loader(&content)? {
            add(loader.trim_start_matches('/').to_owned())?;
        }
        for name in elf::libraries(&content)? {
            waiting.extend(add(root.library(&name)?)?);
        }
    }
    add_modules(archive, root)
}

fn add_modules<W: std::io::Write>(archive: &mut Archive<W>, root: &Root) -> Result<()> {
    let mut files = Vec::new();
    collect_modules(&root.0.join("lib/modules"), &mut files)?;
    let mut order = Vec::new();
    for name in MODULES {
        load(name, &files, &mut order)?;
    }
    let mut list = String::new();
    for (path, content) in &order {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let place = format!("lib/modules/{name}");
        archive.file(&place, content)?;
        list.extend(["/", &place, "\n"]);
    }
    archive.file("etc/modules", list.as_bytes())?;
    Ok(())
}

/// Appends a module to `order`, after its dependencies.
fn load(name: &str, files: &[PathBuf], order: &mut Vec<(PathBuf, Vec<u8>)>) -> Result<()> {
    let is =
        |path: &Path| path.file_stem().is_some_and(|stem| stem.to_string_lossy().replace('-', "_") == name);
    if order.iter().any(|(path, _)| is(path)) {
        return Ok(());
    }
    let Some(path) = files.iter().find(|path| is(path)) else {
        bail!("the kernel's package has no module {name}")
    };
    let content = fs::read(path)?;
    for needed in elf::modules(path, &content)? {
        load(&needed.replace('-', "_"), files, order)?;
    }
    order.push((path.clone(), content));
    Ok(())
}

fn collect_modules(directory: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            collect_modules(&path, files)?;
        } else if path.extension().is_some_and(|end| end == "ko") {
            files.push(path);
        }
    }
    Ok(())
}

/// Returns the only file in `directory` whose name begins with `prefix`.
fn only(directory: &Path, prefix: &str) -> Result<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            found.push(entry.path());
        }
    }
    match found.as_slice() {
        [one] => Ok(one.clone()),
        _ => bail!("{} of {prefix}* in {}", found.len(), directory.display()),
    }
}
