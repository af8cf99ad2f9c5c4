// SPDX-License-Identifier: MIT OR Apache-2.0

//! Names of objects, as UTF-16 constants.

use ndk_abi::nt::UNICODE_STRING;

/// A constant name of `N` ASCII characters.
pub struct Name<const N: usize>([u16; N]);

/// Converts a name of `N` ASCII characters at compile time.
///
/// # Panics
/// At compile time, if the text has another length or other characters.
#[must_use]
#[allow(clippy::indexing_slicing, reason = "evaluated at compile time")]
pub const fn name<const N: usize>(text: &str) -> Name<N> {
    let bytes = text.as_bytes();
    assert!(bytes.len() == N, "the length of the name");
    let mut characters = [0; N];
    let mut index = 0;
    while index < N {
        assert!(bytes[index].is_ascii(), "an ASCII name");
        characters[index] = bytes[index] as u16;
        index += 1;
    }
    Name(characters)
}

impl<const N: usize> Name<N> {
    /// Returns the name for a call of the kernel, which copies it.
    #[must_use]
    pub const fn string(&'static self) -> UNICODE_STRING {
        let length = const { (N * 2) as u16 };
        UNICODE_STRING { Length: length, MaximumLength: length, Buffer: self.0.as_ptr().cast_mut() }
    }
}
