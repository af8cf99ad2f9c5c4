// SPDX-License-Identifier: MIT OR Apache-2.0

//! Comparison of structures and constants with numbers, at compile time.

/// Returns the size of a field.
pub const fn size_of_field<S, F>(_: fn(&S) -> &F) -> usize {
    size_of::<F>()
}

/// Compares the size and alignment of a type, and for each field its offset and size.
macro_rules! layout {
    ($type:path: $size:literal, $align:literal; $($field:ident $offset:literal $bytes:literal,)*) => {
        const _: () = {
            assert!(size_of::<$type>() == $size, stringify!($type));
            assert!(align_of::<$type>() == $align, stringify!($type));
            $(
                assert!(
                    core::mem::offset_of!($type, $field) == $offset,
                    concat!(stringify!($type), "::", stringify!($field))
                );
                assert!(
                    crate::abi::assertions::size_of_field(|value: &$type| &value.$field) == $bytes,
                    concat!(stringify!($type), "::", stringify!($field))
                );
            )*
        };
    };
}

/// Compares a constant with a value.
macro_rules! value {
    ($name:path, $value:literal) => {
        const _: () = assert!($name as i128 == $value, stringify!($name));
    };
}

pub(super) use {layout, value};
