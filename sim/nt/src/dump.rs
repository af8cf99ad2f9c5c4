// SPDX-License-Identifier: MIT OR Apache-2.0

//! A copy of the memory of a host, as a debugger gets it from a crash dump.

use std::{collections::BTreeMap, fs::File, io, ops::Range, os::unix::fs::FileExt as _};

use crate::{host::Host, memory::PAGE_SIZE};

/// The pool blocks in use and the loaded images of a host, at one moment. Pages without access, such as discarded sections, are missing.
pub struct Dump {
    /// By first address. They do not overlap.
    ranges: BTreeMap<usize, Vec<u8>>,
    /// The name and the addresses of each image.
    images: Vec<(String, Range<usize>)>,
}

impl Dump {
    /// Copies the memory of `host`. In virtual time no other thread runs meanwhile; in real time what they change may be inconsistent.
    ///
    /// # Errors
    /// The memory of this process cannot be opened.
    pub fn of(host: &Host) -> io::Result<Self> {
        let memory = File::open("/proc/self/mem")?;
        let mut ranges = BTreeMap::new();
        let mut images = Vec::new();
        for image in host.images().iter() {
            let addresses = image.base()..image.base() + image.size();
            for page in addresses.clone().step_by(PAGE_SIZE) {
                copy(&memory, page..page + PAGE_SIZE, &mut ranges);
            }
            images.push((image.name().to_owned(), addresses));
        }
        for block in host.memory.pool.ranges() {
            copy(&memory, block, &mut ranges);
        }
        Ok(Self { ranges, images })
    }

    /// Removes the pool, which a small dump lacks.
    pub fn remove_pool(&mut self) {
        let images = &self.images;
        self.ranges.retain(|start, _| images.iter().any(|(_, image)| image.contains(start)));
    }

    /// Returns the images: file name and addresses.
    #[must_use]
    pub fn images(&self) -> &[(String, Range<usize>)] {
        &self.images
    }

    /// Returns `length` bytes at an address; `None` if the dump lacks one of them.
    #[must_use]
    pub fn read(&self, address: usize, length: usize) -> Option<Vec<u8>> {
        let mut bytes = Vec::with_capacity(length);
        while bytes.len() < length {
            let at = address.checked_add(bytes.len())?;
            let (start, range) = self.ranges.range(..=at).next_back()?;
            let rest = range.get(at - start..).filter(|rest| !rest.is_empty())?;
            bytes.extend(rest.iter().take(length - bytes.len()));
        }
        Some(bytes)
    }
}

/// Copies a range that can be read.
fn copy(memory: &File, range: Range<usize>, into: &mut BTreeMap<usize, Vec<u8>>) {
    let mut bytes = vec![0; range.len()];
    if memory.read_exact_at(&mut bytes, range.start as u64).is_ok() {
        into.insert(range.start, bytes);
    }
}
