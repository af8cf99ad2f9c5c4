// SPDX-License-Identifier: MIT OR Apache-2.0

//! Captures that tests leave.

use std::{env, fs, path::PathBuf};

/// Returns where a test leaves its capture `name`.pcapng: in the directory `$NTSIM_CAPTURES`, whose captures `cargo xtask test` lets
/// tshark dissect, or in `target/test/captures`.
///
/// # Panics
/// When the directory cannot be made.
pub fn path(name: &str) -> PathBuf {
    let directory =
        env::var_os("NTSIM_CAPTURES").map_or_else(|| lab::root().join("target/test/captures"), PathBuf::from);
    fs::create_dir_all(&directory).expect("a directory for captures");
    directory.join(name).with_extension("pcapng")
}
