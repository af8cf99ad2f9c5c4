// SPDX-License-Identifier: MIT OR Apache-2.0

//! Builds `cifs` and `ksmbd` with SMB Direct, and `rdma_rxe`, from Debian's source of the kernel, against Debian's headers.
//!
//! Nothing is installed: headers and source are unpacked below `target/guest/smb`. The modules are built once for a machine or a user, in
//! `$CARGO_HOME/viordma`, and again only if a package or this file has changed.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail, ensure};

use crate::{guest::debian, image::toolchain, shell};

/// Parts of the source that the modules are made of.
const SOURCES: [&str; 6] = [
    "fs/smb/*",
    "fs/internal.h",
    "fs/mount.h",
    "scripts/asn1_compiler.c",
    "include/linux/asn1*",
    "drivers/infiniband/sw/rxe/*",
];

/// Directories that are built, with the options of each.
const DIRECTORIES: [(&str, &[&str]); 2] = [
    (
        "fs/smb",
        &[
            "CONFIG_CIFS_SMB_DIRECT=y",
            "CONFIG_SMB_SERVER_SMBDIRECT=y",
            "KCFLAGS=-DCONFIG_CIFS_SMB_DIRECT=1 -DCONFIG_SMB_SERVER_SMBDIRECT=1",
        ],
    ),
    ("drivers/infiniband/sw/rxe", &[]),
];

/// The modules.
const MODULES: [&str; 5] = [
    "fs/smb/client/cifs.ko",
    "fs/smb/server/ksmbd.ko",
    "fs/smb/common/cifs_arc4.ko",
    "fs/smb/common/cifs_md4.ko",
    "drivers/infiniband/sw/rxe/rdma_rxe.ko",
];

/// Grammars of which C is made.
const GRAMMARS: [&str; 3] = [
    "fs/smb/client/cifs_spnego_negtokeninit.asn1",
    "fs/smb/server/ksmbd_spnego_negtokeninit.asn1",
    "fs/smb/server/ksmbd_spnego_negtokentarg.asn1",
];

/// Inputs from this repository.
pub const INPUTS: [&[u8]; 1] = [include_bytes!("kernel_build.rs")];

/// A change of the source: in `file`, `old` is replaced by `new`.
struct Change {
    file: &'static str,
    old: &'static str,
    new: &'static str,
}

/// Defects of Linux 6.1 that keep a share from being used at all, by IPv6, or on a link with loss. A change whose `old` is not
/// in the file is not needed.
const CHANGES: [Change; 6] = [
    // ksmbd: each open without an oplock, as of a directory, ends with a null pointer here.
    Change {
        file: "fs/smb/server/oplock.c",
        old: "void opinfo_put(struct oplock_info *opinfo)\n{\n\tif (!atomic_dec_and_test",
        new: "void opinfo_put(struct oplock_info *opinfo)\n{\n\tif (!opinfo)\n\t\treturn;\n\tif (!atomic_dec_and_test",
    },
    // cifs: padding of compounds is in the module's data, of which there is no page to be sent by RDMA.
    Change { file: "fs/smb/client/smb2ops.c", old: "char smb2_padding[7] = {0, 0, 0, 0, 0, 0, 0};", new: "" },
    Change {
        file: "fs/smb/client/smb2pdu.h",
        old: "extern char smb2_padding[7];",
        new: "#define smb2_padding ((char *)empty_zero_page)",
    },
    // ksmbd: listens on IPv4 only. An unspecified address of IPv6 is for both.
    Change {
        file: "fs/smb/server/transport_rdma.c",
        old: "struct sockaddr_in sin = {\n\t\t.sin_family\t\t= AF_INET,\n\t\t.sin_addr.s_addr\t= htonl(INADDR_ANY),\n\t\t.sin_port\t\t= htons(port),",
        new: "struct sockaddr_in6 sin = {\n\t\t.sin6_family = AF_INET6,\n\t\t.sin6_port = htons(port),",
    },
    // ksmbd: may use a connection that has ended while it ends all of them. Shutting down does not wait for what takes the lock.
    Change {
        file: "fs/smb/server/connection.c",
        old: "\t\t\tup_read(&conn_list_lock);\n\t\t\tt->ops->shutdown(t);\n\t\t\tdown_read(&conn_list_lock);\n",
        new: "\t\t\tt->ops->shutdown(t);\n",
    },
    // rxe: if a SEND before a registration is repeated, the registration is repeated, too, and fails. A queue pair in this state
    // repeats nothing more. A registration that is done has no second turn.
    Change {
        file: "drivers/infiniband/sw/rxe/rxe_req.c",
        old: "\tif (wqe->mask & WR_LOCAL_OP_MASK) {\n",
        new: "\tif ((wqe->mask & WR_LOCAL_OP_MASK) && wqe->state == wqe_state_done) {\n\
              \t\tqp->req.wqe_index = queue_next_index(q, qp->req.wqe_index);\n\
              \t\tgoto done;\n\
              \t}\n\
              \tif (wqe->mask & WR_LOCAL_OP_MASK) {\n",
    },
];

/// The guest's kernel.
pub struct Kernel {
    /// `6.1.0-56-amd64`.
    pub release: String,
    /// Version of its package.
    version: String,
}

impl Kernel {
    /// Reads release and version from the name of the package's file.
    pub fn of_package(file: &Path) -> Result<Self> {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let parts: Vec<&str> = name.split('_').collect();
        match parts.as_slice() {
            [package, version, _] => {
                let release = package.strip_prefix("linux-image-").context("not a kernel's package")?;
                Ok(Self { release: release.to_owned(), version: (*version).to_owned() })
            }
            _ => bail!("{name} is not a package's name"),
        }
    }

    /// Returns the packages of source and headers, in the kernel's version.
    pub fn packages(&self) -> impl Iterator<Item = String> + '_ {
        let series = self.series();
        let names = [
            format!("linux-source-{series}"),
            format!("linux-kbuild-{series}"),
            format!("linux-headers-{}", self.release),
            format!("linux-headers-{}", self.common()),
        ];
        names.into_iter().map(|name| format!("{name}={}", self.version))
    }

    /// Returns the first two numbers of the version.
    fn series(&self) -> String {
        self.release.split('.').take(2).collect::<Vec<_>>().join(".")
    }

    /// Returns the release of the headers that all variants share.
    fn common(&self) -> String {
        let base = self.release.rsplit_once('-').map_or(self.release.as_str(), |(base, _)| base);
        format!("{base}-common")
    }
}

/// Builds the modules, with `directory` for the sources, unless this machine has them. Returns the directory that holds them.
pub fn make(directory: &Path, kernel: &Kernel, packages: &[PathBuf]) -> Result<PathBuf> {
    let own =
        |path: &&PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("linux-"));
    let key = debian::key(&packages.iter().filter(own).cloned().collect::<Vec<_>>(), &INPUTS);
    let folder = toolchain::cargo_home()?.join("viordma");
    let modules = folder.join(format!("linux-modules-{key}"));
    if modules.is_dir() {
        return Ok(modules);
    }
    eprintln!("building cifs, ksmbd and rdma_rxe for Linux {} (a few minutes, once)", kernel.release);
    debian::empty(directory)?;
    let headers = unpack_headers(directory, kernel, packages)?;
    let source = unpack_source(directory, kernel, packages)?;
    change(&source)?;
    make_grammars(directory, &source)?;
    for (part, options) in DIRECTORIES {
        compile(directory, &headers, &source.join(part), options)?;
    }
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let built = tempfile::Builder::new().prefix("build-").tempdir_in(&folder)?;
    for module in MODULES {
        let from = source.join(module);
        let name = from.file_name().context("a module's name")?;
        shell::run(Command::new("strip").arg("-g").arg("-o").arg(built.path().join(name)).arg(&from))?;
    }
    for used in ["headers", "source"] {
        fs::remove_dir_all(directory.join(used))?;
    }
    // Another process may have been faster.
    let renamed = fs::rename(built.path(), &modules);
    ensure!(renamed.is_ok() || modules.is_dir(), "cannot write {}", modules.display());
    Ok(modules)
}

fn package<'a>(packages: &'a [PathBuf], name: &str) -> Result<&'a Path> {
    let is = |path: &Path| {
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        file.strip_prefix(name).is_some_and(|rest| rest.starts_with('_'))
    };
    let found = packages.iter().find(|path| is(path)).with_context(|| format!("no package {name}"))?;
    Ok(found)
}

/// Unpacks the headers. Returns the directory for `make`.
fn unpack_headers(directory: &Path, kernel: &Kernel, packages: &[PathBuf]) -> Result<PathBuf> {
    let root = directory.join("headers");
    fs::create_dir_all(&root)?;
    let (release, common) = (&kernel.release, kernel.common());
    let kbuild = format!("linux-kbuild-{}", kernel.series());
    for name in [&format!("linux-headers-{release}"), &format!("linux-headers-{common}"), &kbuild] {
        debian::unpack(package(packages, name)?, &root)?;
    }
    // The only absolute path among them.
    let source = root.join("usr/src");
    let headers = source.join(format!("linux-headers-{release}"));
    let makefile = source.join(format!("linux-headers-{common}/Makefile"));
    fs::write(headers.join("Makefile"), format!("include {}\n", makefile.display()))?;
    Ok(headers)
}

/// Unpacks the parts of the kernel's source. Returns its root.
fn unpack_source(directory: &Path, kernel: &Kernel, packages: &[PathBuf]) -> Result<PathBuf> {
    let name = format!("linux-source-{}", kernel.series());
    let root = directory.join("source");
    fs::create_dir_all(&root)?;
    debian::unpack_parts(package(packages, &name)?, &root, &[&format!("./usr/src/{name}.tar.xz")])?;
    let archive = root.join(format!("usr/src/{name}.tar.xz"));
    let parts = SOURCES.map(|part| format!("{name}/{part}"));
    let mut tar = Command::new("tar");
    tar.arg("-xJf").arg(&archive).arg("-C").arg(&root).arg("--wildcards").args(parts);
    shell::run(&mut tar)?;
    fs::remove_file(archive)?;
    Ok(root.join(name))
}

fn change(source: &Path) -> Result<()> {
    for Change { file, old, new } in CHANGES {
        let path = source.join(file);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        fs::write(&path, text.replace(old, new))?;
    }
    Ok(())
}

/// Compiles the kernel's ASN.1 compiler, which the headers lack, and runs it.
fn make_grammars(directory: &Path, source: &Path) -> Result<()> {
    let include = directory.join("source/asn1");
    fs::create_dir_all(include.join("linux"))?;
    for header in ["asn1.h", "asn1_ber_bytecode.h"] {
        fs::copy(source.join("include/linux").join(header), include.join("linux").join(header))?;
    }
    let compiler = directory.join("source/asn1_compiler");
    let mut gcc = Command::new("gcc");
    gcc.arg("-O2")
        .arg("-I")
        .arg(&include)
        .arg("-o")
        .arg(&compiler)
        .arg(source.join("scripts/asn1_compiler.c"));
    shell::run(&mut gcc)?;
    for grammar in GRAMMARS {
        let grammar = source.join(grammar);
        let with = |end| format!("{}.{end}", grammar.display());
        let mut command = Command::new(&compiler);
        shell::run(command.arg(&grammar).args([with("c"), with("h")]).stdout(Stdio::null()))?;
    }
    Ok(())
}

/// Compiles the modules of a directory.
fn compile(directory: &Path, headers: &Path, part: &Path, options: &[&str]) -> Result<()> {
    let jobs = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut make = Command::new("make");
    make.arg(format!("-j{jobs}")).arg("-C").arg(headers).arg(format!("M={}", part.display()));
    make.args(options).arg("modules");
    let output = make.stdin(Stdio::null()).output().context("cannot run make")?;
    let log = directory.join("log");
    fs::write(&log, [output.stdout, output.stderr].concat())?;
    ensure!(output.status.success(), "the modules cannot be built; see {}", log.display());
    Ok(())
}
