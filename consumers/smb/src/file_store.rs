// SPDX-License-Identifier: MIT OR Apache-2.0

//! Content in a file of the process.

use alloc::vec;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};

use ndk_consumer::Cause;
use ndk_consumer::transfer::Digest;
use sha2::{Digest as _, Sha256};

use crate::Store;
use crate::store::TOO_LARGE;

/// Bytes that are copied at a time.
const PIECE: usize = 64 << 10;

/// Content in a file.
#[derive(Debug)]
pub struct FileStore {
    file: File,
    length: u64,
}

impl FileStore {
    /// Returns a store in `file`, which is empty and open for reading and writing.
    #[must_use]
    pub const fn new(file: File) -> Self {
        Self { file, length: 0 }
    }
}

impl Store for FileStore {
    fn len(&self) -> u64 {
        self.length
    }

    fn clear(&mut self) -> Result<(), Cause> {
        self.file.set_len(0)?;
        self.length = 0;
        Ok(())
    }

    fn write(&mut self, offset: u64, length: usize, load: &dyn Fn(usize, &mut [u8])) -> Result<(), Cause> {
        let end = offset.checked_add(length as u64).ok_or(TOO_LARGE)?;
        // Behind the end, the system fills the gap.
        self.file.seek(SeekFrom::Start(offset))?;
        let mut piece = vec![0; length.min(PIECE)];
        for at in (0..length).step_by(PIECE) {
            let piece = &mut piece[..PIECE.min(length - at)];
            load(at, piece);
            self.file.write_all(piece)?;
        }
        self.length = self.length.max(end);
        Ok(())
    }

    fn read(&mut self, offset: u64, length: usize, store: &dyn Fn(usize, &[u8])) -> Result<(), Cause> {
        self.file.seek(SeekFrom::Start(offset))?;
        let mut piece = vec![0; length.min(PIECE)];
        for at in (0..length).step_by(PIECE) {
            let piece = &mut piece[..PIECE.min(length - at)];
            self.file.read_exact(piece)?;
            store(at, piece);
        }
        Ok(())
    }

    fn digest(&mut self) -> Result<Option<Digest>, Cause> {
        self.file.seek(SeekFrom::Start(0))?;
        let (mut hash, mut piece) = (Sha256::new(), vec![0; PIECE]);
        loop {
            match self.file.read(&mut piece)? {
                0 => return Ok(Some(hash.finalize().into())),
                length => hash.update(&piece[..length]),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;
    use core::cell::RefCell;

    use super::*;
    use crate::MemoryStore;

    /// Writes `data` at `offset`.
    fn write(store: &mut dyn Store, offset: u64, data: &[u8]) {
        let load = |at: usize, into: &mut [u8]| into.copy_from_slice(&data[at..at + into.len()]);
        store.write(offset, data.len(), &load).unwrap();
    }

    /// Reads `length` bytes at `offset`.
    fn read(store: &mut dyn Store, offset: u64, length: usize) -> Result<Vec<u8>, Cause> {
        let bytes = RefCell::new(vec![0; length]);
        store.read(offset, length, &|at, from| {
            bytes.borrow_mut()[at..at + from.len()].copy_from_slice(from);
        })?;
        Ok(bytes.into_inner())
    }

    #[test]
    fn stores_return_what_was_written_and_zeros_in_gaps() {
        let data: Vec<u8> = (0..2 * PIECE + 5).map(|at| ((at * 7) >> 3) as u8).collect();
        let mut file = FileStore::new(tempfile::tempfile().unwrap());
        let mut memory = MemoryStore::default();
        for store in [&mut memory as &mut dyn Store, &mut file] {
            write(store, 0, b"to be removed");
            store.clear().unwrap();
            assert!(store.is_empty());
            write(store, 100, &data);
            write(store, 10, b"before");
            let mut wanted = vec![0; 100];
            wanted[10..16].copy_from_slice(b"before");
            wanted.extend(&data);
            assert_eq!(store.len(), wanted.len() as u64);
            assert!(read(store, 0, wanted.len()).unwrap() == wanted);
            assert_eq!(read(store, 99, 3).unwrap(), wanted[99..102]);
            assert!(read(store, 99, wanted.len()).is_err());
            assert!(store.write(u64::MAX, 1, &|_, _| ()).is_err());
            assert_eq!(store.digest().unwrap(), Some(Sha256::digest(&wanted).into()));
        }
    }
}
