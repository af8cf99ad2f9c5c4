// SPDX-License-Identifier: MIT OR Apache-2.0

//! The digest of a PE image that signatures and catalogs hold. It leaves out what a signature changes: the checksum, the entry of the
//! certificate table, and the table. (Windows Authenticode Portable Executable Signature Format)

use anyhow::{Context as _, Result};
use sha2::{Digest as _, Sha256};

/// Returns the SHA-256 digest of a 64-bit image, signed or not.
///
/// # Errors
/// The data is no such image.
pub fn digest(image: &[u8]) -> Result<[u8; 32]> {
    let word = |at: usize| -> Result<usize> {
        let bytes = at.checked_add(4).and_then(|end| image.get(at..end)).context("the image ends early")?;
        Ok(u32::from_le_bytes(bytes.try_into()?) as usize)
    };
    let optional = word(0x3c)? + 24;
    anyhow::ensure!(word(optional)? & 0xffff == 0x20b, "no 64-bit PE image");
    let checksum = optional + 64;
    let entry = optional + 112 + 4 * 8;
    let end = match word(entry)? {
        0 => image.len(),
        table => table,
    };
    let mut hash = Sha256::new();
    for range in [0..checksum, checksum + 4..entry, entry + 8..end] {
        hash.update(image.get(range).context("the certificate table is outside of the image")?);
    }
    // The table begins at a multiple of eight, and is preceded by zeros.
    hash.update(&[0; 8][..end.next_multiple_of(8) - end]);
    Ok(hash.finalize().into())
}
