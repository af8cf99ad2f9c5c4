// SPDX-License-Identifier: MIT OR Apache-2.0

//! The packages of the workspace that are drivers, and those that need libFuzzer.

/// Packages that are drivers: only they depend on the crates of the Windows Driver Kit, and only the mirror of the
/// workspace compiles their code.
pub const DRIVERS: [&str; 4] = ["viordma", "test-driver", "example-consumer", "smb-driver"];

/// The fuzz targets.
const FUZZ: &str = "roce-fuzz";

/// Arguments of cargo for all packages but the drivers and the fuzz targets.
pub fn all_others() -> impl Iterator<Item = &'static str> {
    let excluded = DRIVERS.into_iter().chain([FUZZ]).flat_map(|name| ["--exclude", name]);
    std::iter::once("--workspace").chain(excluded)
}
