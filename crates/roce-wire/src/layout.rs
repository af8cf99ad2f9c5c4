//! Message layouts as tables.
//!
//! [`layout!`] takes one line per field - name, type, place - and makes the view, the summary, `parse` and
//! `emit` of it. Places are types: [`Be16`] and friends take the offset of their first byte, [`Bits`] a byte
//! and its highest and lowest bit, as the tables of the specification have them.

use super::{MtuCode, Psn, Qpn, field};

/// A place in a message of `N` bytes.
pub(super) trait Place {
    type Raw;
    fn get<const N: usize>(b: &[u8; N]) -> Self::Raw;
    /// Other bits of the same bytes stay.
    fn put<const N: usize>(b: &mut [u8; N], raw: Self::Raw);
}

/// A value that a place can hold.
pub(super) trait Value: Copy {
    type Raw;
    fn from_raw(raw: Self::Raw) -> Self;
    fn into_raw(self) -> Self::Raw;
}

macro_rules! plain {
    ($($type:ty),*) => {$(
        impl Value for $type {
            type Raw = Self;
            #[inline]
            fn from_raw(raw: Self) -> Self { raw }
            #[inline]
            fn into_raw(self) -> Self { self }
        }
    )*};
}
plain!(u8, u16, u32, u64, bool);

impl<const LEN: usize> Value for [u8; LEN] {
    type Raw = Self;
    #[inline]
    fn from_raw(raw: Self) -> Self {
        raw
    }
    #[inline]
    fn into_raw(self) -> Self {
        self
    }
}

/// Newtypes: made from and turned into their raw value.
macro_rules! wrapped {
    ($($type:ty: $raw:ty, $from:expr, $into:expr;)*) => {$(
        impl $crate::layout::Value for $type {
            type Raw = $raw;
            #[inline]
            fn from_raw(raw: $raw) -> Self { $from(raw) }
            #[inline]
            fn into_raw(self) -> $raw { $into(self) }
        }
    )*};
}
pub(super) use wrapped;

wrapped! {
    Qpn: u32, Qpn::new, Qpn::value;
    Psn: u32, Psn::new, Psn::value;
    MtuCode: u8, MtuCode, |code: MtuCode| code.0;
    super::Gid: [u8; 16], super::Gid, |gid: super::Gid| gid.0;
}

macro_rules! big_endian {
    ($($(#[$doc:meta])* $name:ident, $raw:ty, $get:ident, $put:ident;)*) => {$(
        $(#[$doc])*
        pub(super) struct $name<const AT: usize>;

        impl<const AT: usize> Place for $name<AT> {
            type Raw = $raw;
            #[inline]
            fn get<const N: usize>(b: &[u8; N]) -> $raw { field::$get::<AT, N>(b) }
            #[inline]
            fn put<const N: usize>(b: &mut [u8; N], raw: $raw) { field::$put::<AT, N>(b, raw) }
        }
    )*};
}

big_endian! {
    /// Two bytes.
    Be16, u16, be16, put16;
    /// Three bytes.
    Be24, u32, be24, put24;
    /// Four bytes.
    Be32, u32, be32, put32;
    /// Eight bytes.
    Be64, u64, be64, put64;
}

/// Bits `HIGH` to `LOW` of a byte, 7 being the most significant.
pub(super) struct Bits<const AT: usize, const HIGH: u32, const LOW: u32>;

impl<const AT: usize, const HIGH: u32, const LOW: u32> Bits<AT, HIGH, LOW> {
    /// Of the value, before it is shifted.
    const MASK: u8 = {
        assert!(HIGH <= 7 && LOW <= HIGH);
        u8::MAX >> (7 - (HIGH - LOW))
    };
}

impl<const AT: usize, const HIGH: u32, const LOW: u32> Place for Bits<AT, HIGH, LOW> {
    type Raw = u8;

    #[inline]
    fn get<const N: usize>(b: &[u8; N]) -> u8 {
        let [byte] = *field::sub::<AT, 1, N>(b);
        byte >> LOW & Self::MASK
    }

    #[inline]
    fn put<const N: usize>(b: &mut [u8; N], raw: u8) {
        let [byte] = *field::sub::<AT, 1, N>(b);
        let byte = byte & !(Self::MASK << LOW) | (raw & Self::MASK) << LOW;
        field::put::<AT, 1, N>(b, &[byte]);
    }
}

/// A whole byte.
pub(super) type Byte<const AT: usize> = Bits<AT, 7, 0>;

/// One bit of a byte.
pub(super) struct Flag<const AT: usize, const BIT: u32>;

impl<const AT: usize, const BIT: u32> Place for Flag<AT, BIT> {
    type Raw = bool;

    #[inline]
    fn get<const N: usize>(b: &[u8; N]) -> bool {
        Bits::<AT, BIT, BIT>::get(b) != 0
    }

    #[inline]
    fn put<const N: usize>(b: &mut [u8; N], raw: bool) {
        Bits::<AT, BIT, BIT>::put(b, u8::from(raw));
    }
}

/// 20 bits, the upper ones of three bytes.
pub(super) struct Be20<const AT: usize>;

impl<const AT: usize> Place for Be20<AT> {
    type Raw = u32;

    #[inline]
    fn get<const N: usize>(b: &[u8; N]) -> u32 {
        field::be24::<AT, N>(b) >> 4
    }

    #[inline]
    fn put<const N: usize>(b: &mut [u8; N], raw: u32) {
        let low = field::be24::<AT, N>(b) & 0xF;
        field::put24::<AT, N>(b, raw << 4 | low);
    }
}

/// Three bytes that stand apart, the most significant first.
pub(super) struct Apart24<const HIGH: usize, const MIDDLE: usize, const LOW: usize>;

impl<const HIGH: usize, const MIDDLE: usize, const LOW: usize> Place for Apart24<HIGH, MIDDLE, LOW> {
    type Raw = u32;

    #[inline]
    fn get<const N: usize>(b: &[u8; N]) -> u32 {
        u32::from_be_bytes([0, Byte::<HIGH>::get(b), Byte::<MIDDLE>::get(b), Byte::<LOW>::get(b)])
    }

    #[inline]
    fn put<const N: usize>(b: &mut [u8; N], raw: u32) {
        let [_, high, middle, low] = raw.to_be_bytes();
        Byte::<HIGH>::put(b, high);
        Byte::<MIDDLE>::put(b, middle);
        Byte::<LOW>::put(b, low);
    }
}

/// `LEN` bytes as they are.
pub(super) struct Bytes<const AT: usize, const LEN: usize>;

impl<const AT: usize, const LEN: usize> Place for Bytes<AT, LEN> {
    type Raw = [u8; LEN];

    #[inline]
    fn get<const N: usize>(b: &[u8; N]) -> [u8; LEN] {
        *field::sub::<AT, LEN, N>(b)
    }

    #[inline]
    fn put<const N: usize>(b: &mut [u8; N], raw: [u8; LEN]) {
        field::put::<AT, LEN, N>(b, &raw);
    }
}

/// A view and a summary of a message, from a table of its fields. What no field covers is reserved: not
/// read, and written as zero.
macro_rules! layout {
    (
        $(#[$doc:meta])*
        $view:ident, $repr:ident, $len:literal bytes {
            $($(#[$field_doc:meta])* $field:ident: $type:ty = $place:ty;)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $view<'a>(&'a [u8; $len]);

        impl<'a> $view<'a> {
            pub const LEN: usize = $len;

            /// A view of the first bytes of `bytes`.
            #[inline]
            pub fn new_checked(bytes: &'a [u8]) -> Result<Self, $crate::Truncated> {
                $crate::field::header(bytes).map(Self)
            }

            #[inline]
            pub fn new(bytes: &'a [u8; $len]) -> Self {
                Self(bytes)
            }

            $(
                $(#[$field_doc])*
                #[inline]
                pub fn $field(&self) -> $type {
                    <$type as $crate::layout::Value>::from_raw(
                        <$place as $crate::layout::Place>::get(self.0),
                    )
                }
            )*
        }

        #[doc = concat!("Summary of a [`", stringify!($view), "`].")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $repr {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl $repr {
            pub fn parse(view: &$view<'_>) -> Self {
                Self { $($field: view.$field(),)* }
            }

            /// Writes all of the message; what is reserved becomes zero.
            pub fn emit(&self, bytes: &mut [u8; $len]) {
                bytes.fill(0);
                $(<$place as $crate::layout::Place>::put(
                    bytes,
                    $crate::layout::Value::into_raw(self.$field),
                );)*
            }
        }
    };
}
pub(super) use layout;
