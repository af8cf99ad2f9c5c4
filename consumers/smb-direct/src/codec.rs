// SPDX-License-Identifier: MIT OR Apache-2.0

//! Reads and writes little-endian integers in sequence.

/// The rest of a message that is read. Every method returns `None` if the message ends before the field does.
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
}

/// The rest of a buffer that is written. A field that does not fit is left out; callers write into arrays of the message's length.
pub(crate) struct Writer<'a>(&'a mut [u8]);

impl<'a> Writer<'a> {
    pub(crate) const fn new(bytes: &'a mut [u8]) -> Self {
        Self(bytes)
    }

    fn put<const N: usize>(&mut self, value: [u8; N]) {
        if let Some((field, rest)) = core::mem::take(&mut self.0).split_first_chunk_mut() {
            *field = value;
            self.0 = rest;
        }
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.put(value.to_le_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.put(value.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.put(value.to_le_bytes());
    }
}
