// SPDX-License-Identifier: MIT OR Apache-2.0

//! [`layout!`]: a header as a table of its fields.
//!
//! One line per field: name, type ([`Value`](crate::value::Value)), place ([`crate::place`]). From the table come
//! the view, the summary, `parse`, `emit` and the mask of the ICRC. All headers of the crate are declared this way.
//!
//! Why a table and not structs read by a library such as zerocopy: half of these headers have fields that are no
//! whole bytes or no power of two (flags, 20- and 24-bit numbers, a number in three separate bytes), for which a
//! `repr(C)` struct would still need hand-written accessors; the table reads like the one in the specification.

/// Declares a header.
///
/// ```text
/// layout! {
///     /// An example.
///     Example, ExampleRepr, 4 bytes {
///         kind: u8 = Byte<0>;                 // in the view and in the summary
///         hop_limit: u8 = Byte<1>, variant;   // changed by routers: counts as ones in the ICRC
///     }
///     constant {
///         version: u8 = Bits<2, 7, 4>, 1;     // in the view only; `emit` always writes 1
///     }
///     then write_checksum;                    // called by `emit` with the finished header
/// }
/// ```
///
/// Bits that no field covers are reserved: not read, and written as zero.
macro_rules! layout {
    (
        $(#[$doc:meta])*
        $view:ident, $repr:ident, $len:literal bytes {
            $($(#[$field_doc:meta])* $field:ident: $type:ty = $place:ty $(, $variant:ident)?;)*
        }
        $(constant {
            $($(#[$const_doc:meta])*
                $const:ident: $const_type:ty = $const_place:ty, $value:expr $(, $const_variant:ident)?;)*
        })?
        $(then $then:path;)?
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $view<'a>(&'a [u8; $len]);

        #[allow(dead_code, reason = "not every header needs each of these")]
        impl<'a> $view<'a> {
            /// Length of the header in bytes.
            pub const LEN: usize = $len;

            /// The bits that the ICRC counts as ones because routers may change them.
            pub(crate) const VARIANT: [u8; $len] = {
                #[allow(unused_mut, reason = "some headers have no variant field")]
                let mut ones = [0; $len];
                $($($crate::layout::layout!(@ones $variant, $place, &mut ones);)?)*
                $($($($crate::layout::layout!(@ones $const_variant, $const_place, &mut ones);)?)*)?
                ones
            };

            /// Returns a view of the first bytes of `bytes`.
            ///
            /// # Errors
            /// [`Truncated`](crate::Truncated) if there are fewer than [`Self::LEN`].
            #[inline]
            pub fn new_checked(bytes: &'a [u8]) -> Result<Self, $crate::truncated::Truncated> {
                bytes.first_chunk().map(Self).ok_or($crate::truncated::Truncated)
            }

            /// Returns a view of exactly the header's bytes.
            #[must_use]
            #[inline]
            pub const fn new(bytes: &'a [u8; $len]) -> Self {
                Self(bytes)
            }

            /// Returns the header's bytes.
            #[must_use]
            #[inline]
            pub const fn as_bytes(&self) -> &'a [u8; $len] {
                self.0
            }

            $(
                $(#[$field_doc])*
                #[must_use]
                #[inline]
                pub fn $field(&self) -> $type {
                    <$type as $crate::value::Value>::from_raw(<$place>::get(self.0))
                }
            )*
            $($(
                $(#[$const_doc])*
                #[must_use]
                #[inline]
                pub fn $const(&self) -> $const_type {
                    <$const_type as $crate::value::Value>::from_raw(<$const_place>::get(self.0))
                }
            )*)?
        }

        #[doc = concat!("Summary of a [`", stringify!($view), "`].")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(clippy::struct_excessive_bools, reason = "the flags of the header")]
        pub struct $repr {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        #[allow(dead_code, reason = "not every header needs each of these")]
        impl $repr {
            /// Reads all fields.
            #[must_use]
            #[inline]
            pub fn parse(view: &$view<'_>) -> Self {
                Self { $($field: view.$field(),)* }
            }

            /// Writes the whole header; reserved bits become zero.
            #[inline]
            pub fn emit(&self, bytes: &mut [u8; $len]) {
                bytes.fill(0);
                $($(<$const_place>::put(
                    bytes,
                    <$const_type as $crate::value::Value>::into_raw($value),
                );)*)?
                $(<$place>::put(bytes, <$type as $crate::value::Value>::into_raw(self.$field));)*
                $($then(bytes);)?
            }
        }
    };
    (@ones variant, $place:ty, $bytes:expr) => {
        <$place>::put($bytes, <$place>::ONES)
    };
}
pub(crate) use layout;
