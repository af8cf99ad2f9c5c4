// SPDX-License-Identifier: MIT OR Apache-2.0

//! Programs of Python that cases run, written to where the programs are.

use std::{fs, path::Path};

use anyhow::Result;

use crate::shell;

/// Their folder, below `target/verbs`.
pub const FOLDER: &str = "scripts";

const SCRIPTS: [(&str, &str); 2] = [
    ("manners.py", include_str!("scripts/manners.py")),
    ("migration.py", include_str!("scripts/migration.py")),
];

/// Writes them below `target/verbs`.
///
/// # Errors
/// A file cannot be written.
pub fn write(root: &Path) -> Result<()> {
    let folder = root.join(FOLDER);
    fs::create_dir_all(&folder)?;
    SCRIPTS
        .into_iter()
        .try_for_each(|(name, text)| shell::write_if_changed(&folder.join(name), text.as_bytes()))
}
