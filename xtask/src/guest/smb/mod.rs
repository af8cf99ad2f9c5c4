// SPDX-License-Identifier: MIT OR Apache-2.0

//! Adds SMB Direct to the guest: Linux's cifs client and its ksmbd server.
//!
//! The file system in `target/guest/initrd-smb` is that of the guest, followed by a second archive, which the kernel unpacks over
//! the first. Debian builds neither module with SMB Direct, and its `rdma_rxe` fails with SMB Direct on a link with loss, hence
//! [`kernel_build`].

mod kernel_build;

use std::{fs, path::Path, process::Command};

use anyhow::{Context as _, Result};

use self::kernel_build::Kernel;
use super::{
    cpio::Archive,
    debian, modules,
    root::{Root, add_programs},
};
use crate::{
    packages,
    shell::{self, Exit},
};

/// Packages of the programs and their libraries.
const PACKAGES: [&str; 4] = ["ksmbd-tools", "libglib2.0-0", "libnl-genl-3-200", "libpcre2-8-0"];

const PROGRAMS: [&str; 1] = ["usr/libexec/ksmbd.tools"];

/// The converter with which `ksmbd.adduser` computes the hash of a password.
const LOADED: [&str; 1] = ["usr/lib/x86_64-linux-gnu/gconv/UTF-16.so"];
const CONVERTERS: &str = "usr/lib/x86_64-linux-gnu/gconv/gconv-modules";

/// Names of `ksmbd.tools`, which does what its name says.
const TOOLS: [&str; 3] = ["adduser", "control", "mountd"];

/// Applets of busybox beside those of the guest.
const APPLETS: [&str; 17] = [
    "cmp",
    "cp",
    "dd",
    "dmesg",
    "find",
    "ls",
    "mkdir",
    "mv",
    "rmdir",
    "sed",
    "sha256sum",
    "sort",
    "stat",
    "sync",
    "tr",
    "umount",
    "wc",
];

/// Modules of the guest itself, which `etc/modules` loads.
const LOADED_MODULES: [&str; 6] = super::MODULES;

/// Modules that are loaded for a case, after their dependencies.
const MODULES: [&str; 10] =
    ["crc32c_generic", "nls_utf8", "ecb", "cmac", "ctr", "ccm", "gcm", "sha512_generic", "cifs", "ksmbd"];

/// Parts of the kernel's package with modules that the guest does not have.
const KERNEL_PARTS: [&str; 3] =
    ["./lib/modules/*/kernel/arch/*", "./lib/modules/*/kernel/fs/*", "./lib/modules/*/kernel/lib/*"];

/// Scripts of this repository.
const SCRIPTS: [(&str, &[u8]); 5] = [
    ("bin/smb-files", include_bytes!("../../../../lab/guest/smb-files")),
    ("bin/smb-modules", include_bytes!("../../../../lab/guest/smb-modules")),
    ("bin/smb-mount", include_bytes!("../../../../lab/guest/smb-mount")),
    ("bin/smb-server", include_bytes!("../../../../lab/guest/smb-server")),
    ("bin/smb-tree", include_bytes!("../../../../lab/guest/smb-tree")),
];
const CONFIGURATION: &[u8] = include_bytes!("../../../../lab/guest/ksmbd.conf");
const SHARE_SIZE: &[u8] = include_bytes!("../../../../lab/guest/share-size.c");
const EXERCISER: &[u8] = include_bytes!("../../../../lab/guest/exerciser.c");

/// Inputs from this repository that determine the archive, beside those of the modules.
const INPUTS: [&[u8]; 4] = [CONFIGURATION, SHARE_SIZE, EXERCISER, include_bytes!("mod.rs")];

/// Builds the guest, and `target/guest/initrd-smb`, unless it is up to date.
///
/// # Errors
/// With exit code 2 if the packages cannot be had.
pub fn make() -> Result<()> {
    super::make()?;
    let unavailable = |error: anyhow::Error| Exit::usage(format!("no packages for SMB Direct: {error:#}"));
    packages::require(&packages::KERNEL_MODULES).map_err(unavailable)?;
    let guest = shell::root().join("target/guest");
    let directory = guest.join("smb");
    let kernel = Kernel::of_package(&super::kernel_package(&guest)?)?;
    let names = || {
        let tools = PACKAGES.iter().map(|name| (*name).to_owned());
        Ok(tools.chain(kernel.packages()).collect())
    };
    let wanted = format!("{} {}\n", kernel.release, PACKAGES.join(" "));
    let fetched = debian::fetch(&directory.join("packages"), &wanted, names).map_err(unavailable)?;
    let scripts = SCRIPTS.iter().map(|(_, script)| script);
    let inputs: Vec<&[u8]> = INPUTS.iter().chain(&kernel_build::INPUTS).chain(scripts).copied().collect();
    let of_guest = fs::read(guest.join("key"))?;
    let key = debian::key(&fetched, &[&inputs[..], &[&of_guest]].concat());
    let made = directory.join("key");
    if fs::read_to_string(&made).is_ok_and(|old| old == key) {
        return Ok(());
    }
    let built = kernel_build::make(&directory.join("modules"), &kernel, &fetched)?;
    let root = directory.join("root");
    debian::empty(&root)?;
    debian::unpack_parts(&super::kernel_package(&guest)?, &root, &KERNEL_PARTS)?;
    for package in &fetched {
        if PACKAGES.iter().any(|name| is_of(package, name)) {
            debian::unpack(package, &root)?;
        }
    }
    // The first completes the answers of `ksmbd.mountd`.
    let share_size = compile(&directory, "share-size", SHARE_SIZE, &["-shared", "-fPIC"])?;
    let exerciser = compile(&directory, "exerciser", EXERCISER, &[])?;
    let mut archive = Archive::new(Vec::new());
    let roots = Root(vec![built.clone(), guest.join("root"), root]);
    fill(&mut archive, &built, &roots, share_size, exerciser)?;
    let archive = archive.finish()?;
    fs::write(guest.join("initrd-smb"), [fs::read(guest.join("initrd"))?, archive].concat())?;
    fs::write(&made, key)?;
    Ok(())
}

/// Returns true if a package file is of the package `name`.
fn is_of(package: &Path, name: &str) -> bool {
    let file = package.file_name().unwrap_or_default().to_string_lossy();
    file.strip_prefix(name).is_some_and(|rest| rest.starts_with('_'))
}

/// Compiles a source file of this repository. Returns the program or library.
fn compile(directory: &Path, name: &str, source: &[u8], options: &[&str]) -> Result<Vec<u8>> {
    let (from, to) = (directory.join(format!("{name}.c")), directory.join(name));
    fs::write(&from, source)?;
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-Wall", "-Wextra", "-Werror"]).args(options).arg("-o").arg(&to).arg(&from);
    shell::run(&mut gcc)?;
    Ok(fs::read(to)?)
}

fn fill<W: std::io::Write>(
    archive: &mut Archive<W>,
    built: &Path,
    root: &Root,
    share_size: Vec<u8>,
    exerciser: Vec<u8>,
) -> Result<()> {
    for directory in ["mnt", "export", "run"] {
        archive.directory(directory)?;
    }
    for applet in APPLETS {
        archive.link(&format!("bin/{applet}"), "busybox")?;
    }
    for tool in TOOLS {
        archive.link(&format!("usr/bin/ksmbd.{tool}"), "../libexec/ksmbd.tools")?;
    }
    for (path, script) in SCRIPTS {
        archive.program(path, script)?;
    }
    archive.program("usr/lib/share-size.so", &share_size)?;
    archive.program("bin/exerciser", &exerciser)?;
    archive.file("etc/ksmbd/ksmbd.conf", CONFIGURATION)?;
    archive.file("etc/nsswitch.conf", b"hosts: files\npasswd: files\ngroup: files\n")?;
    archive.file("etc/passwd", b"root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n")?;
    archive.file("etc/group", b"root:x:0:\nnogroup:x:65534:\n")?;
    let converters = root.read(CONVERTERS)?;
    let wanted = converters.split_inclusive(|&byte| byte == b'\n').filter(|line| contains(line, b"UTF-16"));
    archive.file(CONVERTERS, &wanted.collect::<Vec<_>>().concat())?;
    add_programs(archive, root, &PROGRAMS, &LOADED, vec![share_size, exerciser])?;

    let names: Vec<&str> = LOADED_MODULES.iter().chain(&MODULES).copied().collect();
    let mut order = modules::in_order(root.directories(), &names)?;
    let loaded = modules::in_order(root.directories(), &LOADED_MODULES)?;
    order.retain(|(path, _)| !loaded.iter().any(|(other, _)| other == path));
    // What was built replaces what the guest has.
    for (path, content) in loaded.iter().filter(|(path, _)| path.starts_with(built)) {
        archive.file(&modules::place(path), content)?;
    }
    modules::add(archive, &order, "etc/modules-smb").context("modules of SMB")
}

fn contains(line: &[u8], text: &[u8]) -> bool {
    line.windows(text.len()).any(|part| part == text)
}
