// SPDX-License-Identifier: MIT OR Apache-2.0

//! Values: the types that fields have in Rust, converted from and to the raw integer of their place.

use core::net::{Ipv4Addr, Ipv6Addr};

/// The type of a header field.
pub(crate) trait Value: Copy {
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

/// Implements [`Value`] for newtypes, each with its raw type and the two conversions.
macro_rules! newtypes {
    ($($type:ty: $raw:ty, $from:expr, $into:expr;)*) => {$(
        impl $crate::value::Value for $type {
            type Raw = $raw;
            #[inline]
            fn from_raw(raw: $raw) -> Self { $from(raw) }
            #[inline]
            fn into_raw(self) -> $raw { $into(self) }
        }
    )*};
}
pub(crate) use newtypes;

newtypes! {
    Ipv4Addr: u32, Ipv4Addr::from_bits, Ipv4Addr::to_bits;
    Ipv6Addr: [u8; 16], Ipv6Addr::from, |ip: Ipv6Addr| ip.octets();
}
