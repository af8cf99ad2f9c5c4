// SPDX-License-Identifier: MIT OR Apache-2.0

//! A file of the process as a source.

use std::fs::File;
use std::io;

use crate::Cause;
use crate::transfer::Source;

/// A file of fixed size.
pub struct FileSource {
    file: File,
    length: u64,
}

impl FileSource {
    /// Returns the source for an open file.
    ///
    /// # Errors
    /// If the size cannot be read.
    pub fn new(file: File) -> io::Result<Self> {
        let length = file.metadata()?.len();
        Ok(Self { file, length })
    }
}

impl Source for FileSource {
    fn len(&self) -> u64 {
        self.length
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), Cause> {
        Ok(read_exact_at(&self.file, into, offset)?)
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, into: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, into, offset)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut into: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !into.is_empty() {
        let count = std::os::windows::fs::FileExt::seek_read(file, into, offset)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        into = &mut into[count..];
        offset += count as u64;
    }
    Ok(())
}
