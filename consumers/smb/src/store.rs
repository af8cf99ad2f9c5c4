// SPDX-License-Identifier: MIT OR Apache-2.0

//! Where a server keeps the content of its file.

use alloc::vec::Vec;
use ndk_consumer::Cause;
use ndk_consumer::transfer::Digest;
use sha2::{Digest as _, Sha256};

/// A range that ends behind the largest offset.
pub(crate) const TOO_LARGE: &str = "the file is too large";

/// The content of a file.
pub trait Store {
    /// Returns the length in bytes.
    fn len(&self) -> u64;

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes the content.
    ///
    /// # Errors
    /// The content cannot be changed.
    fn clear(&mut self) -> Result<(), Cause>;

    /// Writes `length` bytes at `offset`, and zeros between the end and `offset`. `load` fills a buffer with the bytes from a place
    /// of these on.
    ///
    /// # Errors
    /// There is no room, or the content cannot be changed.
    fn write(&mut self, offset: u64, length: usize, load: &dyn Fn(usize, &mut [u8])) -> Result<(), Cause>;

    /// Reads `length` bytes at `offset`, and passes them to `store` piece by piece, each with its place in these.
    ///
    /// # Errors
    /// The content ends before, or cannot be read.
    fn read(&mut self, offset: u64, length: usize, store: &dyn Fn(usize, &[u8])) -> Result<(), Cause>;

    /// Returns the digest of the content, or `None` if there is no content but a length.
    ///
    /// # Errors
    /// The content cannot be read.
    fn digest(&mut self) -> Result<Option<Digest>, Cause>;
}

/// Content in memory.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct MemoryStore(Vec<u8>);

/// A length without content, to measure transfers alone.
#[derive(Clone, Copy, Default, Debug)]
pub struct NoStore {
    length: u64,
}

impl Store for MemoryStore {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn clear(&mut self) -> Result<(), Cause> {
        self.0.clear();
        Ok(())
    }

    fn write(&mut self, offset: u64, length: usize, load: &dyn Fn(usize, &mut [u8])) -> Result<(), Cause> {
        let from = usize::try_from(offset).ok();
        let end = from.and_then(|from| from.checked_add(length)).ok_or(TOO_LARGE)?;
        if end > self.0.len() {
            self.0.try_reserve(end - self.0.len())?;
            self.0.resize(end, 0);
        }
        load(0, &mut self.0[end - length..end]);
        Ok(())
    }

    fn read(&mut self, offset: u64, length: usize, store: &dyn Fn(usize, &[u8])) -> Result<(), Cause> {
        let from = usize::try_from(offset).ok();
        let bytes = from.and_then(|from| self.0.get(from..)?.get(..length));
        store(0, bytes.ok_or("the end is reached")?);
        Ok(())
    }

    fn digest(&mut self) -> Result<Option<Digest>, Cause> {
        Ok(Some(Sha256::digest(&self.0).into()))
    }
}

impl Store for NoStore {
    fn len(&self) -> u64 {
        self.length
    }

    fn clear(&mut self) -> Result<(), Cause> {
        self.length = 0;
        Ok(())
    }

    fn write(&mut self, offset: u64, length: usize, _load: &dyn Fn(usize, &mut [u8])) -> Result<(), Cause> {
        self.length = self.length.max(offset.saturating_add(length as u64));
        Ok(())
    }

    fn read(&mut self, _offset: u64, _length: usize, _store: &dyn Fn(usize, &[u8])) -> Result<(), Cause> {
        Ok(())
    }

    fn digest(&mut self) -> Result<Option<Digest>, Cause> {
        Ok(None)
    }
}
