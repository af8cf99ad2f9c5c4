// SPDX-License-Identifier: MIT OR Apache-2.0

//! Access to memory that the image names by pointer.
//!
//! A [`Guest`] is a pointer as the image passed it. It cannot be validated here: the image is the program
//! under test. The accessors are sound as hardware is: a valid pointer works, an invalid one faults, and the
//! fault is reported as the image's bug check (see [`crate::image::fault`]). Accesses never create
//! references, because other threads of the image and devices may change the memory at any time. They are functions of
//! C, since those of Rust panic in builds with debug assertions when they get a null pointer.

use std::{
    fmt,
    mem::{ManuallyDrop, MaybeUninit},
};

/// A pointer into memory of a host, as the image passes it: same size and ABI as `*mut T`.
#[repr(transparent)]
pub struct Guest<T>(*mut T);

impl<T> Guest<T> {
    #[must_use]
    pub const fn new(pointer: *mut T) -> Self {
        Self(pointer)
    }

    #[must_use]
    pub const fn null() -> Self {
        Self(std::ptr::null_mut())
    }

    #[must_use]
    pub const fn from_address(address: usize) -> Self {
        Self(std::ptr::without_provenance_mut(address))
    }

    #[must_use]
    pub fn address(self) -> usize {
        self.0.expose_provenance()
    }

    #[must_use]
    pub const fn as_ptr(self) -> *mut T {
        self.0
    }

    #[must_use]
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    #[must_use]
    pub const fn cast<U>(self) -> Guest<U> {
        Guest(self.0.cast())
    }

    /// Returns a pointer to the element `count` elements further.
    #[must_use]
    #[allow(clippy::should_implement_trait)]
    pub const fn add(self, count: usize) -> Self {
        Self(self.0.wrapping_add(count))
    }

    /// Returns a pointer to a field at `offset` bytes, as listed in the ABI table.
    #[must_use]
    pub const fn field<U>(self, offset: usize) -> Guest<U> {
        Guest(self.0.wrapping_byte_add(offset).cast())
    }

    #[must_use]
    pub fn read(self) -> T
    where
        T: Copy,
    {
        let mut value = MaybeUninit::<T>::uninit();
        // SAFETY: see the module documentation: a bad pointer faults and is reported.
        unsafe { libc::memcpy(value.as_mut_ptr().cast(), self.0.cast(), size_of::<T>()) };
        // SAFETY: just copied; a value that the image stored.
        unsafe { value.assume_init() }
    }

    pub fn write(self, value: T) {
        let value = ManuallyDrop::new(value);
        // SAFETY: see the module documentation: a bad pointer faults and is reported.
        unsafe { libc::memcpy(self.0.cast(), (&raw const value).cast(), size_of::<T>()) };
    }
}

impl Guest<u8> {
    /// Copies `into.len()` bytes out of the memory.
    pub fn read_bytes(self, into: &mut [u8]) {
        // SAFETY: see the module documentation; `into` is exclusively ours.
        unsafe { libc::memmove(into.as_mut_ptr().cast(), self.0.cast(), into.len()) };
    }

    pub fn write_bytes(self, bytes: &[u8]) {
        // SAFETY: a `Guest` pointer may dangle; the fault is the driver's, and becomes its bug check (module
        // documentation).
        unsafe { libc::memmove(self.0.cast(), bytes.as_ptr().cast(), bytes.len()) };
    }

    /// Returns whether the memory contains `bytes`.
    #[must_use]
    pub fn holds(self, bytes: &[u8]) -> bool {
        // SAFETY: reads up to `bytes.len()` bytes at a pointer of the driver; a fault becomes its bug check (module
        // documentation).
        unsafe { libc::memcmp(self.0.cast(), bytes.as_ptr().cast(), bytes.len()) == 0 }
    }

    pub fn fill(self, byte: u8, count: usize) {
        // SAFETY: writes `count` bytes at a pointer of the driver; a fault becomes its bug check (module
        // documentation).
        unsafe { libc::memset(self.0.cast(), byte.into(), count) };
    }
}

impl<T> Clone for Guest<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Guest<T> {}

// SAFETY: an address; the memory behind it is shared by all threads of the host.
unsafe impl<T> Send for Guest<T> {}
// SAFETY: an address, copied by value: a shared reference to it gives no access that a copy does not.
unsafe impl<T> Sync for Guest<T> {}

impl<T> PartialEq for Guest<T> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl<T> Eq for Guest<T> {}

impl<T> fmt::Debug for Guest<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0.addr())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_are_compared_by_address_and_memory_by_contents() {
        let mut bytes = *b"abc";
        let memory = Guest::new(bytes.as_mut_ptr());
        assert!(memory.holds(b"abc") && !memory.holds(b"abd"));
        assert!(memory == Guest::from_address(memory.address()) && memory != memory.add(1));
        assert_eq!(format!("{:?}", Guest::<u8>::from_address(0x1234)), "0x1234");
    }
}
