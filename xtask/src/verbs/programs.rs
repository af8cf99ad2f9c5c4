// SPDX-License-Identifier: MIT OR Apache-2.0

//! The programs that judge the libraries: unmodified ones of Debian, unpacked into `target/verbs/programs`, not installed.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use flate2::read::GzDecoder;

use crate::{guest::debian, shell};

/// Packages with the programs and the libraries that these need, but for the C library, Python and those that are replaced.
const PACKAGES: [&str; 30] = [
    "ibverbs-providers",
    "ibverbs-utils",
    "libatomic1",
    "libevent-core-2.1-7",
    "libevent-pthreads-2.1-7",
    "libfabric-bin",
    "libfabric1",
    "libgomp1",
    "libhwloc15",
    "libibumad3",
    "libibverbs-dev",
    "libmunge2",
    "libnl-3-200",
    "libnl-route-3-200",
    "libnuma1",
    "libopenmpi3",
    "libpci3",
    "libpmix2",
    "libpsm-infinipath1",
    "libpsm2-2",
    "librdmacm-dev",
    "libucx0",
    "netpipe-openmpi",
    "openmpi-bin",
    "openmpi-common",
    "perftest",
    "python3-pyverbs",
    "qperf",
    "rdmacm-utils",
    "ucx-utils",
];

/// Folders with libraries, below that of the programs.
pub const LIBRARIES: [&str; 2] = ["usr/lib/x86_64-linux-gnu", "usr/lib/libpsm1"];

/// The tests of rdma-core, below the folder of the programs.
pub const PYVERBS_TESTS: &str = "pyverbs";

/// Returns the folder of the programs, below `target/verbs`.
pub fn folder() -> PathBuf {
    shell::root().join("target/verbs/programs")
}

/// Downloads and unpacks the packages, unless that was done before, and returns the folder of the programs.
///
/// # Errors
/// A package cannot be had.
pub fn unpack() -> Result<PathBuf> {
    let (packages, programs) = (shell::root().join("target/verbs/packages"), folder());
    let files = debian::fetch(&packages, &PACKAGES.join(" "), || Ok(PACKAGES.map(str::to_owned).to_vec()))?;
    let (key, mark) = (debian::key(&files, &[include_bytes!("programs.rs")]), programs.join("unpacked"));
    if fs::read_to_string(&mark).is_ok_and(|old| old == key) {
        return Ok(programs);
    }
    debian::empty(&programs)?;
    for file in &files {
        debian::unpack(file, &programs)?;
    }
    // What the package's installation does by update-alternatives.
    let name = "libpsm_infinipath.so.1";
    std::os::unix::fs::symlink(format!("{name}.16"), programs.join("usr/lib/libpsm1").join(name))?;
    unpack_tests(&programs.join("usr/share/doc/rdma-core/tests"), &programs.join(PYVERBS_TESTS))?;
    fs::write(&mark, key)?;
    Ok(programs)
}

/// Copies the tests of pyverbs, which the package has compressed among its documents, to where Python can import them. The folder of
/// their module has to be named `tests`.
fn unpack_tests(from: &Path, to: &Path) -> Result<()> {
    let to = to.join("tests");
    fs::create_dir_all(&to)?;
    let mut count = 0;
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let path = entry?.path();
        let mut text = Vec::new();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let file = File::open(&path)?;
        let name = if let Some(name) = name.strip_suffix(".gz") {
            GzDecoder::new(file).read_to_end(&mut text)?;
            name
        } else {
            io::copy(&mut &file, &mut text)?;
            &name
        };
        fs::write(to.join(name), text)?;
        count += 1;
    }
    ensure!(count > 0, "{} is empty", from.display());
    Ok(())
}
