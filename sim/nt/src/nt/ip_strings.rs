// SPDX-License-Identifier: MIT OR Apache-2.0

//! IP addresses as text.

use std::net::{Ipv4Addr, Ipv6Addr};

use ndk_abi::nt::{STATUS_INVALID_PARAMETER, STATUS_SUCCESS};

use crate::{guest::Guest, imports};

/// Longest text of an address with scope and port, in characters; longer ones are none.
const LONGEST: usize = 128;

/// Reads a text that ends with a zero.
fn text(string: Guest<u16>) -> Option<String> {
    let units = (0..LONGEST).map(|index| string.add(index).read()).take_while(|&unit| unit != 0);
    let units: Vec<u16> = units.collect();
    (units.len() < LONGEST).then(|| String::from_utf16(&units).ok())?
}

/// Reads a number: hexadecimal after `0x`, octal after `0`, decimal otherwise.
fn number(text: &str) -> Option<u32> {
    let digits = |text: &str, radix| {
        let are_digits = !text.is_empty() && text.chars().all(|digit| digit.is_digit(radix));
        are_digits.then(|| u32::from_str_radix(text, radix).ok())?
    };
    match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => digits(&text[2..], 16),
        [b'0', _, ..] => digits(&text[1..], 8),
        _ => digits(text, 10),
    }
}

/// Reads an address of one to four parts, of which the last has the bytes that are left.
fn loose_address(text: &str) -> Option<Ipv4Addr> {
    let parts: Option<Vec<u32>> = text.split('.').map(number).collect();
    let parts = parts?;
    let (&last, first) = parts.split_last()?;
    let left = 4_usize.checked_sub(first.len())?;
    let fits = left > 0 && u64::from(last) < 1_u64 << (8 * left) && first.iter().all(|&part| part < 256);
    let upper = first.iter().enumerate().fold(0, |upper, (at, &part)| upper | part << (24 - 8 * at));
    fits.then(|| Ipv4Addr::from(upper | last))
}

/// Reads an address and a port, 0 without one.
fn endpoint4(text: &str, is_strict: bool) -> Option<(Ipv4Addr, u16)> {
    let (address, port) = match text.split_once(':') {
        Some((address, port)) => (address, u16::try_from(number(port)?).ok()?),
        None => (text, 0),
    };
    let address = if is_strict { address.parse().ok() } else { loose_address(address) };
    Some((address?, port))
}

/// Reads an address, a scope and a port, as in `[fe80::1%4]:445`; each of the latter is 0 without one.
fn endpoint6(text: &str) -> Option<(Ipv6Addr, u32, u16)> {
    let (inner, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (inner, behind) = rest.split_once(']')?;
            let port = match behind.strip_prefix(':') {
                Some(port) => u16::try_from(number(port)?).ok()?,
                None if behind.is_empty() => 0,
                None => return None,
            };
            (inner, port)
        }
        None => (text, 0),
    };
    let (address, scope) = match inner.split_once('%') {
        Some((address, scope)) => (address, scope.parse().ok()?),
        None => (inner, 0),
    };
    Some((address.parse().ok()?, scope, port))
}

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Converts text to an IPv4 address and a port, both in network byte order.
    [any]
    fn RtlIpv4StringToAddressExW(string: Guest<u16>, strict: u8, address: Guest<[u8; 4]>, port: Guest<[u8; 2]>) -> i32 {
        let Some((found, number)) = text(string).and_then(|text| endpoint4(&text, strict != 0)) else {
            return STATUS_INVALID_PARAMETER;
        };
        address.write(found.octets());
        port.write(number.to_be_bytes());
        STATUS_SUCCESS
    }

    /// Converts text to an IPv6 address and a port, both in network byte order, and a scope.
    [any]
    fn RtlIpv6StringToAddressExW(string: Guest<u16>, address: Guest<[u8; 16]>, scope: Guest<u32>, port: Guest<[u8; 2]>) -> i32 {
        let Some((found, index, number)) = text(string).and_then(|text| endpoint6(&text)) else {
            return STATUS_INVALID_PARAMETER;
        };
        address.write(found.octets());
        scope.write(index);
        port.write(number.to_be_bytes());
        STATUS_SUCCESS
    }
}
