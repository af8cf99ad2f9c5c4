// SPDX-License-Identifier: MIT OR Apache-2.0

//! Paths of the workspace, and what `cargo xtask` builds or installs there for this package.

use std::{
    ffi::OsString,
    fs::File,
    io::{ErrorKind, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
};

use anyhow::{Context as _, Result, ensure};
use ndis_sim::Keyword;
use qemu_device::{TapNetwork, dpdk::TESTPMD, tap};

use crate::exit::Exit;

/// Names the program to ask for [requirements](provide); `cargo xtask` sets it to itself.
const XTASK: &str = "VIORDMA_XTASK";
/// Names the driver image to use instead of the one that `cargo xtask image` builds.
pub(crate) const IMAGE: &str = "VIORDMA_IMAGE";

/// Names the image of the strict edition to use.
pub(crate) const STRICT_IMAGE: &str = "VIORDMA_STRICT_IMAGE";

/// Returns the root directory of the workspace.
///
/// # Panics
/// Never: this package lies in a directory of the workspace.
#[must_use]
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("lab is a directory of the workspace")
}

/// Returns the path of an up-to-date driver image: `$VIORDMA_IMAGE`, or the one that `cargo xtask` builds now.
///
/// # Errors
/// If the image cannot be built, or `$VIORDMA_IMAGE` is not a file.
pub fn built_image() -> Result<PathBuf> {
    let path = image_path();
    if std::env::var_os(IMAGE).is_none() {
        provide(&["image"])?;
    } else if !path.is_file() {
        return Err(Exit::usage(format!("{IMAGE} is {}, which is not a file", path.display())));
    }
    Ok(path)
}

/// The images of the driver's two editions.
#[derive(Clone, Debug)]
pub struct Images {
    pub standard: PathBuf,
    /// With the strict provider, for authors of NDK consumers.
    pub strict: PathBuf,
}

impl Images {
    /// Returns the image that has all these keywords.
    #[must_use]
    pub fn with(&self, keywords: &[(&str, Keyword)]) -> &Path {
        let is_strict = keywords.iter().any(|(name, _)| name.starts_with("NdkStrict"));
        if is_strict { &self.strict } else { &self.standard }
    }
}

/// Returns the paths of up-to-date images of both editions: `$VIORDMA_IMAGE` and `$VIORDMA_STRICT_IMAGE`, or those that `cargo xtask`
/// builds now.
///
/// # Errors
/// If an image cannot be built, or a variable does not name a file.
pub fn built_images() -> Result<Images> {
    let standard = built_image()?;
    let strict = strict_image_path();
    if std::env::var_os(STRICT_IMAGE).is_none() {
        provide(&["strict-image"])?;
    } else if !strict.is_file() {
        return Err(Exit::usage(format!("{STRICT_IMAGE} is {}, which is not a file", strict.display())));
    }
    Ok(Images { standard, strict })
}

/// Returns the path of an up-to-date image of the test driver, which `cargo xtask` builds now.
///
/// # Errors
/// If it cannot be built.
pub fn built_test_driver() -> Result<PathBuf> {
    provide(&["test-driver"])?;
    Ok(root().join("target/image/test-driver.sys"))
}

/// Lets `cargo xtask` build or install what a command needs: `image`, `strict-image`, `test-driver`, `guest`, or the name of a program.
///
/// # Errors
/// If a requirement can neither be found nor be installed; `cargo xtask` has printed the reason.
pub fn provide(requirements: &[&str]) -> Result<()> {
    let mut command = if let Some(program) = std::env::var_os(XTASK) {
        Command::new(program)
    } else {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or(OsString::from("cargo")));
        cargo.arg("xtask").current_dir(root());
        cargo
    };
    command.arg("provide").args(requirements).stdin(Stdio::null()).stdout(Stdio::null());
    let status = command.status().context("cannot run cargo xtask")?;
    if status.code() == Some(2) {
        return Err(Exit::usage(format!("{} cannot be provided", requirements.join(", "))));
    }
    ensure!(status.success(), "{} cannot be provided", requirements.join(", "));
    Ok(())
}

/// Returns the driver image for a test: `$VIORDMA_IMAGE`, or what `cargo xtask image` has built.
///
/// Returns `None`, after printing a message, when there is none: the test has nothing to test. With
/// `$NTSIM_REQUIRE_IMAGES` set, as `cargo xtask test` sets it, that is a failure.
///
/// # Panics
/// When an image is required and there is none.
#[must_use]
pub fn image() -> Option<PathBuf> {
    for_test(image_path(), "driver image", "build it with `cargo xtask image`")
}

/// Returns the image of the strict edition for a test: `$VIORDMA_STRICT_IMAGE`, or what `cargo xtask image --strict` has built;
/// otherwise as [`image`].
///
/// # Panics
/// When an image is required and there is none.
#[must_use]
pub fn strict_image() -> Option<PathBuf> {
    for_test(strict_image_path(), "strict driver image", "build it with `cargo xtask image --strict`")
}

/// Returns the images of both editions for a test.
///
/// # Panics
/// When images are required and one is missing.
#[must_use]
pub fn images() -> Option<Images> {
    Some(Images { standard: image()?, strict: strict_image()? })
}

/// Returns the example of an NDK consumer for a test, as `cargo xtask image --package example-consumer` has built it;
/// otherwise as [`image`].
///
/// # Panics
/// As [`image`].
#[must_use]
pub fn example_consumer() -> Option<PathBuf> {
    let path = root().join("target/image/example-consumer.sys");
    for_test(path, "driver image", "build it with `cargo xtask image --package example-consumer`")
}

/// Returns the driver with client and server of SMB Direct for a test, as `cargo xtask image --package smb-driver` has built
/// it; otherwise as [`image`].
///
/// # Panics
/// As [`image`].
#[must_use]
pub fn smb_driver() -> Option<PathBuf> {
    let path = root().join("target/image/smb-driver.sys");
    for_test(path, "driver image", "build it with `cargo xtask image --package smb-driver`")
}

/// Returns whether QEMU is there for a test, as `cargo xtask test` installs it; otherwise as [`image`].
///
/// # Panics
/// As [`image`].
#[must_use]
pub fn has_qemu() -> bool {
    let path = PathBuf::from("/usr/bin/qemu-system-x86_64");
    for_test(path, "QEMU", "install the package qemu-system-x86").is_some()
}

/// Returns whether DPDK's backend of QEMU's devices is there for a test, as `cargo xtask test` installs it; otherwise as
/// [`image`].
///
/// # Panics
/// As [`image`].
#[must_use]
pub fn has_dpdk() -> bool {
    for_test(PathBuf::from(TESTPMD), "DPDK", "install the packages dpdk-dev and librte-net-vhost23").is_some()
}

/// Returns a network namespace with Linux as the peer of QEMU's devices for a test. `None`, after printing a message, when there is
/// none.
///
/// That `ip` is missing is a failure with `$NTSIM_REQUIRE_IMAGES`, as `cargo xtask test` installs it. What no package adds is
/// not: a machine without `/dev/net/tun`, privileges, namespaces or bridges.
///
/// # Panics
/// When `ip` is required and missing, or the namespace cannot be created for another reason.
#[must_use]
pub fn tap_network() -> Option<Arc<TapNetwork>> {
    for_test(PathBuf::from(tap::IP), "program `ip`", "install the package iproute2")?;
    match TapNetwork::new() {
        Ok(network) => Some(Arc::new(network)),
        Err(error) if ABSENT.contains(&error.kind()) => {
            skip(&format!("this machine has no tap interfaces in a network namespace: {error}"));
            None
        }
        Err(error) => panic!("no network namespace: {error}"),
    }
}

/// Facility that a machine does not have, or does not permit.
const ABSENT: [ErrorKind; 3] = [ErrorKind::NotFound, ErrorKind::PermissionDenied, ErrorKind::Unsupported];

fn for_test(path: PathBuf, what: &str, remedy: &str) -> Option<PathBuf> {
    if path.is_file() {
        return Some(path);
    }
    let message = format!("no {what} at {}: {remedy}", path.display());
    assert!(std::env::var_os("NTSIM_REQUIRE_IMAGES").is_none(), "{message}");
    skip(&message);
    None
}

/// Reports that the test of this thread is skipped: on standard error, which test runners hide when a test passes, and as a line of the
/// file `$NTSIM_SKIPPED_TESTS`, if it is set: names of program and test, and the reason.
///
/// # Panics
/// When the file cannot be written.
pub fn skip(reason: &str) {
    eprintln!("skipped: {reason}");
    let Some(file) = std::env::var_os("NTSIM_SKIPPED_TESTS") else { return };
    let program = std::env::current_exe().ok();
    let program = program.as_deref().and_then(Path::file_stem).unwrap_or_default().to_string_lossy();
    // Cargo adds a hash.
    let program = program.rsplit_once('-').map_or(&*program, |(name, _)| name);
    let thread = std::thread::current();
    let line = format!("{program} {}: {}\n", thread.name().unwrap_or_default(), reason.replace('\n', " "));
    let mut file = File::options().append(true).create(true).open(file).expect("the file of skipped tests");
    file.write_all(line.as_bytes()).expect("the file of skipped tests");
}

/// Returns where the driver image is: `$VIORDMA_IMAGE`, or what `cargo xtask image` builds.
#[must_use]
pub fn image_path() -> PathBuf {
    std::env::var_os(IMAGE).map_or_else(|| root().join("target/image/viordma.sys"), PathBuf::from)
}

fn strict_image_path() -> PathBuf {
    std::env::var_os(STRICT_IMAGE)
        .map_or_else(|| root().join("target/image/viordma-strict.sys"), PathBuf::from)
}
