// SPDX-License-Identifier: MIT OR Apache-2.0

//! The files that a build of a driver produces.

use std::path::PathBuf;

/// A driver image and its debug information.
pub struct Image {
    pub sys: PathBuf,
    pub pdb: PathBuf,
}
