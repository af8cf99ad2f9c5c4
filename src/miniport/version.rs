// SPDX-License-Identifier: MIT OR Apache-2.0

//! The driver's version number.

/// Major and minor version of the package, for the registration with NDIS and `OID_GEN_VENDOR_DRIVER_VERSION`.
pub const DRIVER_VERSION: (u8, u8) =
    (digits(env!("CARGO_PKG_VERSION_MAJOR")), digits(env!("CARGO_PKG_VERSION_MINOR")));

/// Parses a decimal number below 256.
const fn digits(text: &str) -> u8 {
    let mut rest = text.as_bytes();
    let mut number = 0_u8;
    while let [digit, after @ ..] = rest {
        number = number * 10 + (*digit - b'0');
        rest = after;
    }
    number
}
