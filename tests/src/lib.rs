//! The testbed that integration tests, the demo and the benches share: simulated hosts with the driver image on them.

pub mod copy;
pub mod interop;
pub mod measure;
pub mod os;
pub mod outlet;
pub mod testbed;

use std::path::{Path, PathBuf};

/// The driver image to test: `$VIORDMA_IMAGE`, or what `cargo xtask image` builds.
///
/// `None`, after saying so, when it was not built: the test has nothing to test. With `$NTSIM_REQUIRE_IMAGES` set,
/// as `cargo xtask test` sets it, that is a failure.
///
/// # Panics
/// When an image is required and there is none.
#[must_use]
pub fn image() -> Option<PathBuf> {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/image/viordma.sys");
    let path = std::env::var_os("VIORDMA_IMAGE").map_or_else(default, PathBuf::from);
    if path.is_file() {
        return Some(path);
    }
    let message = format!("no driver image at {}: build it with `cargo xtask image`", path.display());
    assert!(std::env::var_os("NTSIM_REQUIRE_IMAGES").is_none(), "{message}");
    eprintln!("skipped: {message}");
    None
}
