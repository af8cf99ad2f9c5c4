// SPDX-License-Identifier: MIT OR Apache-2.0

//! Little-endian fields in a message.

use alloc::vec::Vec;

/// A message, read from front to back.
pub struct Reader<'a> {
    message: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Reads `message` from `at` on.
    pub fn new(message: &'a [u8], at: usize) -> Self {
        Self { message, at }
    }

    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let field = self.message.get(self.at..)?.first_chunk()?;
        self.at += N;
        Some(*field)
    }

    pub fn skip(&mut self, bytes: usize) -> Option<()> {
        self.at = self.at.checked_add(bytes).filter(|&at| at <= self.message.len())?;
        Some(())
    }

    pub fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Returns `length` bytes at `offset` from the beginning of the message; none at all if `length` is 0.
    pub fn at(&self, offset: usize, length: usize) -> Option<&'a [u8]> {
        if length == 0 {
            return Some(&[]);
        }
        self.message.get(offset..offset.checked_add(length)?)
    }
}

/// Appends fields to a message.
pub trait Writer {
    fn put_u8(&mut self, value: u8);
    fn put_u16(&mut self, value: u16);
    fn put_u32(&mut self, value: u32);
    fn put_u64(&mut self, value: u64);
    fn put_zeros(&mut self, count: usize);
}

impl Writer for Vec<u8> {
    fn put_u8(&mut self, value: u8) {
        self.push(value);
    }

    fn put_u16(&mut self, value: u16) {
        self.extend(value.to_le_bytes());
    }

    fn put_u32(&mut self, value: u32) {
        self.extend(value.to_le_bytes());
    }

    fn put_u64(&mut self, value: u64) {
        self.extend(value.to_le_bytes());
    }

    fn put_zeros(&mut self, count: usize) {
        self.resize(self.len() + count, 0);
    }
}
