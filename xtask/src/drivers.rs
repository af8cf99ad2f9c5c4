// SPDX-License-Identifier: MIT OR Apache-2.0

//! The packages that are drivers.

/// Packages that are drivers: only they depend on the crates of the Windows Driver Kit, and only the mirror of the
/// workspaces compiles their code.
pub const DRIVERS: [&str; 4] = ["viordma", "test-driver", "example-consumer", "smb-driver"];
