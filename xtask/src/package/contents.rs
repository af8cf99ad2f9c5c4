// SPDX-License-Identifier: MIT OR Apache-2.0

//! The files of a package.

use std::{collections::BTreeMap, fmt::Write as _};

use anyhow::{Context as _, Result};
use sha2::{Digest as _, Sha256};

/// Files that are delivered as they are, in the folder [`FOLDER`].
pub const DELIVERED: [&str; 9] = [
    "README.md",
    "Enable-ViordmaVerifier.ps1",
    "Install-Viordma.ps1",
    "Invoke-ViordmaFirstRun.ps1",
    "Save-ViordmaReport.ps1",
    "Move-AdapterAddress.ps1",
    "Test-Viordma.ps1",
    "Uninstall-Viordma.ps1",
    "viordma.js",
];

/// The folder of the repository that has them.
pub const FOLDER: &str = "inf/package";

/// The steps of `Test-Viordma.ps1`.
pub const STEPS: &str = "Test-Viordma.json";

/// The list of checksums, in the format of `sha256sum`.
pub const CHECKSUMS: &str = "SHA256SUMS";

/// The list of what the image is made of, in the format of CycloneDX.
pub const SBOM: &str = "sbom.cdx.json";

/// A package.
#[derive(Clone, Default)]
pub struct Contents {
    /// The name of the folder in the archive, and of the archive.
    pub folder: String,
    /// The name of the driver: `viordma`, `viordma-strict`.
    pub driver: String,
    /// Files by name.
    pub files: BTreeMap<String, Vec<u8>>,
}

impl Contents {
    /// Returns the name of the driver's file with this extension.
    pub fn name(&self, extension: &str) -> String {
        format!("{}.{extension}", self.driver)
    }

    /// Returns the driver's file with this extension.
    ///
    /// # Errors
    /// There is none.
    pub fn file(&self, extension: &str) -> Result<&[u8]> {
        let name = self.name(extension);
        self.files.get(&name).map(Vec::as_slice).with_context(|| format!("there is no {name}"))
    }

    /// Returns the text of the driver's file with this extension.
    ///
    /// # Errors
    /// There is none, or it is no text.
    pub fn text(&self, extension: &str) -> Result<&str> {
        Ok(std::str::from_utf8(self.file(extension)?)?)
    }

    /// Adds the checksums of all files.
    pub fn add_checksums(&mut self) {
        let mut list = String::new();
        for (name, data) in self.files.iter().filter(|(name, _)| *name != CHECKSUMS) {
            let _ = writeln!(list, "{}  {name}", hexadecimal(&Sha256::digest(data)));
        }
        self.files.insert(CHECKSUMS.to_owned(), list.into_bytes());
    }
}

pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
