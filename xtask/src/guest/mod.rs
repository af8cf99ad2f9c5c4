// SPDX-License-Identifier: MIT OR Apache-2.0

//! Builds the Linux guest from Debian packages: a kernel and an initial RAM file system in `target/guest`.
//!
//! Packages are downloaded and unpacked there. They are not installed on this machine, and their scripts do not run.
//! The file system contains the programs listed here, their shared libraries, kernel modules with their dependencies
//! in load order, `lab/guest/init` as the first process, and `lab/guest/probe.c` with `services.h`, compiled. It is built again only if
//! an input has changed.

//!
//! [`smb`] adds what the guest needs to speak SMB Direct.

mod cpio;
pub mod debian;
mod elf;
mod modules;
mod root;
pub mod smb;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Result, bail};

use self::{
    cpio::Archive,
    root::{LIBRARIES, Root},
};
use crate::{packages, shell};

/// The package that depends on Debian's current kernel.
const KERNEL: &str = "linux-image-amd64";

/// Packages of the programs, their libraries, and the headers for the probe.
const PACKAGES: [&str; 28] = [
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
    "libibumad3",
    "libibverbs-dev",
    "libibverbs1",
    "libmd0",
    "libmnl0",
    "libnl-3-200",
    "libnl-route-3-200",
    "libpci3",
    "librdmacm-dev",
    "librdmacm1",
    "libtirpc3",
    "libudev1",
    "perftest",
    "rdmacm-utils",
    "zlib1g",
    "libdb5.3",
    "libselinux1",
];

/// Programs of the packages that go into the guest.
const PROGRAMS: [&str; 19] = [
    "bin/dash",
    "bin/ip",
    "usr/bin/ib_atomic_bw",
    "usr/bin/ib_read_bw",
    "usr/bin/ib_send_bw",
    "usr/bin/ib_send_lat",
    "usr/bin/ib_write_bw",
    "usr/bin/ib_write_lat",
    "usr/bin/ibv_devinfo",
    "usr/bin/ibv_rc_pingpong",
    "usr/bin/ibv_srq_pingpong",
    "usr/bin/ibv_uc_pingpong",
    "usr/bin/ibv_ud_pingpong",
    "usr/bin/rdma",
    "usr/bin/rdma_client",
    "usr/bin/rdma_server",
    "usr/bin/rping",
    "usr/bin/ucmatose",
    "usr/bin/udaddy",
];

/// Libraries that programs load at run time: the verbs provider of rxe, and libgcc, which thread cancellation needs.
const LOADED: [&str; 2] =
    ["usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so", "lib/x86_64-linux-gnu/libgcc_s.so.1"];

/// Applets of busybox that the guest's scripts use. Not its shell, which would use its own `ip`.
const APPLETS: [&str; 24] = [
    "cat", "cut", "echo", "grep", "head", "insmod", "kill", "ln", "mkfifo", "mount", "nc", "ping", "printf",
    "ps", "rm", "seq", "setsid", "sleep", "stty", "tail", "test", "timeout", "touch", "uname",
];

/// Modules that are loaded, after their dependencies.
const MODULES: [&str; 6] = ["virtio_pci", "virtio_net", "crc32_generic", "rdma_rxe", "ib_uverbs", "rdma_ucm"];

/// Modules that only `cargo xtask bench` loads, by the list `etc/modules-bench`: the kernel's generator of frames.
const BENCH_MODULES: [&str; 1] = ["pktgen"];

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

const INIT: &[u8] = include_bytes!("../../../lab/guest/init");
const PROBE: &[u8] = include_bytes!("../../../lab/guest/probe.c");
const SERVICES: &[u8] = include_bytes!("../../../lab/guest/services.h");
/// Inputs from this repository. They include this code, since it determines the rest of the image.
const INPUTS: [&[u8]; 8] = [
    INIT,
    PROBE,
    SERVICES,
    include_bytes!("mod.rs"),
    include_bytes!("cpio.rs"),
    include_bytes!("elf.rs"),
    include_bytes!("modules.rs"),
    include_bytes!("root.rs"),
];

/// Builds the guest's kernel and file system in `target/guest`, unless they are up to date.
pub fn make() -> Result<()> {
    packages::require(&packages::GUEST)?;
    let directory = shell::root().join("target/guest");
    let wanted = format!("{KERNEL} {}\n", PACKAGES.join(" "));
    let fetched = debian::fetch(&directory.join("packages"), &wanted, || {
        let mut names = vec![packages::dependency(KERNEL, "linux-image-")?];
        names.extend(PACKAGES.map(str::to_owned));
        Ok(names)
    })?;
    let key = debian::key(&fetched, &INPUTS);
    let made = directory.join("key");
    if fs::read_to_string(&made).is_ok_and(|old| old == key) {
        return Ok(());
    }
    eprintln!("building the guest from {} packages", fetched.len());
    let root = directory.join("root");
    debian::empty(&root)?;
    for package in &fetched {
        if is_kernel(package) {
            debian::unpack_parts(package, &root, &KERNEL_PARTS)?;
        } else {
            debian::unpack(package, &root)?;
        }
    }
    let probe = compile_probe(&directory, &root)?;
    let kernel = only(&root.join("boot"), "vmlinuz-")?;
    fs::copy(&kernel, directory.join("vmlinuz"))?;
    let mut archive = Archive::new(std::io::BufWriter::new(fs::File::create(directory.join("initrd"))?));
    fill(&mut archive, &Root(vec![root]), &probe)?;
    archive.finish()?;
    fs::write(&made, key)?;
    Ok(())
}

fn compile_probe(directory: &Path, root: &Path) -> Result<PathBuf> {
    let (source, program) = (directory.join("probe.c"), directory.join("probe"));
    fs::write(&source, PROBE)?;
    fs::write(directory.join("services.h"), SERVICES)?;
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

    let content = fs::read(probe)?;
    archive.program("usr/bin/probe", &content)?;
    root::add_programs(archive, root, &PROGRAMS, &LOADED, vec![content])?;
    modules::add(archive, &modules::in_order(root.directories(), &MODULES)?, "etc/modules")?;
    modules::add(archive, &modules::in_order(root.directories(), &BENCH_MODULES)?, "etc/modules-bench")
}

/// Returns the kernel's package file, which [`make`] has downloaded to `target/guest`.
fn kernel_package(directory: &Path) -> Result<PathBuf> {
    only(&directory.join("packages"), "linux-image-")
}

/// Returns true if this package holds the kernel.
fn is_kernel(package: &Path) -> bool {
    package.file_name().is_some_and(|name| name.to_string_lossy().starts_with("linux-image-"))
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
