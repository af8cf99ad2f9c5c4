// SPDX-License-Identifier: MIT OR Apache-2.0

//! Installs the Debian packages that a command needs, or names them where it cannot.

use std::{path::Path, process::Command};

use anyhow::{Context as _, Result};

use crate::shell::{self, Exit};

/// A package, and a file that exists if it is installed.
pub struct Package {
    pub name: &'static str,
    pub file: &'static str,
}

/// Needed by `cargo xtask image`, beside a compiler.
pub const IMAGE: [Package; 3] = [
    Package { name: "libclang-19-dev", file: "/usr/lib/llvm-19/lib/clang/19/include/stddef.h" },
    Package { name: "llvm-19", file: "/usr/bin/llvm-dlltool-19" },
    Package { name: "mingw-w64-common", file: "/usr/share/mingw-w64/include/ddk/ntifs.h" },
];

/// Debian's compiler with the source of its library, for machines where rustup cannot install the target.
pub const COMPILER: [Package; 4] = [
    Package { name: "rustc-web", file: "/usr/bin/rustc" },
    Package { name: "cargo-web", file: "/usr/bin/cargo" },
    Package { name: "rust-web-src", file: "/usr/lib/rustlib/src/rust/library/core/Cargo.toml" },
    Package { name: "lld-19", file: "/usr/bin/lld-link-19" },
];

/// Checks captures in `cargo xtask test`.
pub const CAPTURE: [Package; 1] = [Package { name: "tshark", file: "/usr/bin/tshark" }];

/// Counts instructions in `cargo xtask bench`.
pub const VALGRIND: [Package; 1] = [Package { name: "valgrind", file: "/usr/bin/valgrind" }];

/// Names the source lines of instructions in `cargo xtask bench`.
pub const ADDR2LINE: [Package; 1] = [Package { name: "binutils", file: "/usr/bin/addr2line" }];

/// Needed by `cargo xtask package --sign`.
pub const SIGNING: [Package; 2] = [
    Package { name: "openssl", file: "/usr/bin/openssl" },
    Package { name: "osslsigncode", file: "/usr/bin/osslsigncode" },
];

/// Installs an INF without Windows: Wine, and a compiler for the program that asks it to.
pub const WINE: [Package; 3] = [
    Package { name: "wine", file: "/usr/bin/wine" },
    Package { name: "wine64", file: "/usr/lib/wine/wine64" },
    Package { name: "gcc-mingw-w64-x86-64", file: "/usr/bin/x86_64-w64-mingw32-gcc" },
];

/// Builds the examples in C: CMake, and both compilers that they have a toolchain file for. clang uses the headers and libraries of MinGW-w64.
pub const C_EXAMPLES: [Package; 4] = [
    Package { name: "cmake", file: "/usr/bin/cmake" },
    Package { name: "gcc-mingw-w64-x86-64", file: "/usr/bin/x86_64-w64-mingw32-gcc" },
    Package { name: "clang-19", file: "/usr/bin/clang-19" },
    Package { name: "lld-19", file: "/usr/bin/ld.lld-19" },
];

/// Needed by the tests on QEMU's device.
pub const QEMU: [Package; 1] = [Package { name: "qemu-system-x86", file: "/usr/bin/qemu-system-x86_64" }];

/// Needed by the test of the ICRC on a processor without PCLMULQDQ, which QEMU emulates.
pub const QEMU_USER: [Package; 1] =
    [Package { name: "qemu-user-static", file: "/usr/bin/qemu-x86_64-static" }];

/// Needed by the tests for arm64: a linker, a library of C, and the processor, which QEMU emulates.
pub const ARM64: [Package; 3] = [
    Package { name: "gcc-aarch64-linux-gnu", file: "/usr/bin/aarch64-linux-gnu-gcc" },
    Package { name: "libc6-dev-arm64-cross", file: "/usr/aarch64-linux-gnu/lib/libc.so.6" },
    Package { name: "qemu-user-static", file: "/usr/bin/qemu-aarch64-static" },
];

/// Needed by the tests on QEMU's device with tap interfaces, beside [`QEMU`].
pub const TAP: [Package; 1] = [Package { name: "iproute2", file: "/usr/sbin/ip" }];

/// Needed by the tests on QEMU's device with DPDK as its backend.
pub const DPDK: [Package; 2] = [
    Package { name: "dpdk-dev", file: "/usr/bin/dpdk-testpmd" },
    Package { name: "librte-net-vhost23", file: "/usr/lib/x86_64-linux-gnu/librte_net_vhost.so.23" },
];

/// Needed by `cargo xtask interop`: a virtual machine for the Linux guest, and a compiler for its probe.
pub const GUEST: [Package; 3] = [
    Package { name: "qemu-system-x86", file: "/usr/bin/qemu-system-x86_64" },
    Package { name: "gcc", file: "/usr/bin/gcc" },
    Package { name: "libc6-dev", file: "/usr/include/stdio.h" },
];

/// Needed to build modules of the guest's kernel, beside [`GUEST`]. `libelf1` is of the kernel's build tools.
pub const KERNEL_MODULES: [Package; 5] = [
    Package { name: "make", file: "/usr/bin/make" },
    Package { name: "gcc-12", file: "/usr/bin/gcc-12" },
    Package { name: "xz-utils", file: "/usr/bin/xz" },
    Package { name: "binutils", file: "/usr/bin/strip" },
    Package { name: "libelf1", file: "/usr/lib/x86_64-linux-gnu/libelf.so.1" },
];

/// Needed by the SMB cases of `cargo xtask interop`: a server, and a client.
pub const SAMBA: [Package; 2] = [
    Package { name: "samba", file: "/usr/sbin/smbd" },
    Package { name: "smbclient", file: "/usr/bin/smbclient" },
];

/// Checks the Debian package of `cargo xtask verbs --package`.
#[cfg(unix)]
pub const LINTIAN: [Package; 1] = [Package { name: "lintian", file: "/usr/bin/lintian" }];

/// Installs Python packages, such as the decoder of the trace.
pub const PIP: [Package; 2] = [
    Package { name: "python3", file: "/usr/bin/python3" },
    Package { name: "python3-pip", file: "/usr/bin/pip3" },
];

/// Needed by libFuzzer, which is C++, beside a linker.
pub const FUZZ: [Package; 1] = [Package { name: "g++", file: "/usr/bin/g++" }];

/// Installs the packages that are missing, and prints their names.
///
/// # Errors
/// On a system without apt-get, an error with exit code 2 that names them.
pub fn require(packages: &[Package]) -> Result<()> {
    let missing: Vec<&str> = packages
        .iter()
        .filter(|package| !Path::new(package.file).exists())
        .map(|package| package.name)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names = missing.join(" ");
    if shell::find_program("apt-get").is_none() {
        return Err(Exit::usage(format!(
            "missing: {names} (names of Debian 12 packages). Install them, at the paths that Debian uses, and try again"
        )));
    }
    eprintln!("installing Debian packages: {names}");
    apt_get(&["update", "--quiet=2"])?;
    let mut arguments = vec!["install", "--quiet=2", "--yes", "--no-install-recommends"];
    arguments.extend(&missing);
    apt_get(&arguments)?;
    let still: Vec<&str> = packages
        .iter()
        .filter(|package| !Path::new(package.file).exists())
        .map(|package| package.file)
        .collect();
    if still.is_empty() {
        Ok(())
    } else {
        Err(Exit::usage(format!("installed {names}, but there is still no {}", still.join(", "))))
    }
}

/// Returns the package that `package` depends on and whose name begins with `prefix`.
pub fn dependency(package: &str, prefix: &str) -> Result<String> {
    let named = || -> Result<Option<String>> {
        let text = shell::output(Command::new("apt-cache").args(["depends", package]))?;
        let depends = text.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
        Ok(depends.map(str::to_owned).find(|name| name.starts_with(prefix)))
    };
    // Before the first update there are no package lists.
    if let Ok(Some(name)) = named() {
        return Ok(name);
    }
    apt_get(&["update", "--quiet=2"])?;
    named()?.with_context(|| format!("{package} depends on no {prefix}*"))
}

/// Downloads packages into a directory, without installing them.
pub fn download(names: &[String], directory: &Path) -> Result<()> {
    let fetch = || {
        // As this user: apt's own user may not write there.
        let mut command = Command::new("apt-get");
        command
            .args(["download", "--quiet=2", "-o", "APT::Sandbox::User="])
            .args(names)
            .current_dir(directory);
        shell::output(&mut command).map(drop)
    };
    if fetch().is_ok() {
        return Ok(());
    }
    // The package lists may be out of date.
    apt_get(&["update", "--quiet=2"])?;
    fetch()
}

/// Runs apt-get as root. Its output is printed only if it fails.
fn apt_get(arguments: &[&str]) -> Result<()> {
    let root = shell::output(Command::new("id").arg("-u"))?.trim() == "0";
    let mut command = if root { Command::new("env") } else { Command::new("sudo") };
    command.args(["DEBIAN_FRONTEND=noninteractive", "apt-get"]).args(arguments);
    shell::output(&mut command).map(drop)
}
