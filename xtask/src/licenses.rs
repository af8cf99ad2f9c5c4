// SPDX-License-Identifier: MIT OR Apache-2.0

//! License headers of source files, and licenses, sources and advisories of dependencies, by cargo-deny.

use std::{fs, path::Path, process::Command};

use anyhow::{Result, ensure};

use crate::{shell, workspace::Workspace};

/// The first line of each source file.
const HEADER: &str = "// SPDX-License-Identifier: MIT OR Apache-2.0";

/// Checks that each source file begins with its license.
///
/// # Errors
/// Files without the line.
pub fn headers() -> Result<()> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "*.rs", "*.c", "*.h"]).current_dir(shell::root());
    let mut missing = 0;
    for file in shell::output(&mut git)?.split_terminator('\0') {
        // A file that is gone was just deleted.
        let Ok(text) = fs::read_to_string(shell::root().join(file)) else { continue };
        if text.lines().next() != Some(HEADER) {
            println!("{file} does not begin with {HEADER}");
            missing += 1;
        }
    }
    ensure!(missing == 0, "{missing} files without a license");
    Ok(())
}

/// Checks licenses and sources of all dependencies, by `deny.toml`.
///
/// # Errors
/// A package under a license or from a source that is not allowed.
pub fn dependencies(cargo_deny: &Path) -> Result<()> {
    for workspace in Workspace::ALL {
        // Packages of other systems, too, which no build here downloads.
        shell::run(workspace.cargo().args(["fetch", "--quiet"]))?;
        shell::run(deny(cargo_deny, workspace).args(["--offline", "check", "bans", "licenses", "sources"]))?;
    }
    Ok(())
}

/// Checks that no advisory is known about a dependency.
///
/// # Errors
/// An advisory, or a package that was withdrawn.
pub fn advisories(cargo_deny: &Path) -> Result<()> {
    for workspace in Workspace::ALL {
        shell::run(deny(cargo_deny, workspace).args(["check", "--disable-fetch", "advisories"]))?;
    }
    Ok(())
}

/// Fetches the database of advisories; `false` where that is not possible.
pub fn fetch_advisories(cargo_deny: &Path) -> bool {
    shell::succeeds(Command::new(cargo_deny).args(["fetch", "db"]).current_dir(shell::root()))
}

/// Returns a command of cargo-deny on a workspace.
fn deny(program: &Path, workspace: Workspace) -> Command {
    let mut command = Command::new(program);
    // What it would warn of is allowed.
    command.args(["--log-level", "error", "--manifest-path"]).arg(workspace.file("Cargo.toml"));
    command.current_dir(shell::root());
    command
}
