// SPDX-License-Identifier: MIT OR Apache-2.0

//! Buffers built of typed fields.

use std::{
    fs,
    net::{IpAddr, SocketAddr},
    path::Path,
};

use super::{raw, variables::Variables};

/// A buffer of a script is at most this long.
const LIMIT: usize = 64 << 20;

const AF_INET: u16 = 2;
const AF_INET6: u16 = 23;

/// A field: where it is, and what.
#[derive(Clone, Debug)]
pub struct Field {
    /// Offset in bytes; behind the field before if there is none.
    at: Option<usize>,
    value: Value,
}

#[derive(Clone, Debug)]
enum Value {
    /// An integer of this many bytes, little endian, from a text with variables.
    Integer(usize, String),
    /// `SOCKADDR_IN` or `SOCKADDR_IN6`, as the address is.
    Sockaddr(String),
    /// `SOCKADDR_INET`: 28 bytes in either case.
    SockaddrInet(String),
    Utf16(String),
    Text(String),
    Bytes(Vec<u8>),
}

impl Field {
    /// Checks a field. Files that it names are relative to `directory`.
    pub fn new(raw: raw::Field, directory: &Path) -> Result<Self, String> {
        let integer = |bytes| move |value: raw::Value| Ok(Value::Integer(bytes, value.text()));
        let length = raw.length;
        let ramp = |first: u8| {
            let length = length.ok_or("a ramp needs a length")?;
            checked_length(length)?;
            Ok(Value::Bytes((0..length).map(|index| first.wrapping_add(index as u8)).collect()))
        };
        let fill = |byte: u8| {
            let length = length.ok_or("a fill needs a length")?;
            checked_length(length)?;
            Ok(Value::Bytes(vec![byte; length]))
        };
        if length.is_some() && raw.ramp.is_none() && raw.fill.is_none() {
            return Err("a field has a length, which only a ramp and a fill have".to_owned());
        }
        let values: [Option<Result<Value, String>>; 11] = [
            raw.u8.map(integer(1)),
            raw.u16.map(integer(2)),
            raw.u32.map(integer(4)),
            raw.u64.map(integer(8)),
            raw.sockaddr.map(|text| Ok(Value::Sockaddr(text))),
            raw.sockaddr_inet.map(|text| Ok(Value::SockaddrInet(text))),
            raw.utf16.map(|text| Ok(Value::Utf16(text))),
            raw.text.map(|text| Ok(Value::Text(text))),
            raw.hex.map(|text| hex(&text).map(Value::Bytes)),
            raw.file.map(|name| content(&directory.join(name)).map(Value::Bytes)),
            raw.zeros.map(|count| checked_length(count).map(|()| Value::Bytes(vec![0; count]))),
        ];
        let mut values = values.into_iter().flatten().chain(raw.ramp.map(ramp)).chain(raw.fill.map(fill));
        match (values.next(), values.next()) {
            (Some(value), None) => Ok(Self { at: raw.at, value: value? }),
            (None, _) => Err("a field has no value".to_owned()),
            _ => Err("a field has two values".to_owned()),
        }
    }

    /// Returns the bytes of the field.
    fn bytes(&self, variables: &Variables) -> Result<Vec<u8>, String> {
        match &self.value {
            Value::Integer(bytes, text) => integer(&variables.expand(text)?, *bytes),
            Value::Sockaddr(text) => Ok(sockaddr(socket_address(&variables.expand(text)?)?)),
            Value::SockaddrInet(text) => {
                let mut bytes = sockaddr(socket_address(&variables.expand(text)?)?);
                bytes.resize(28, 0);
                Ok(bytes)
            }
            Value::Utf16(text) => {
                Ok(variables.expand(text)?.encode_utf16().flat_map(u16::to_le_bytes).collect())
            }
            Value::Text(text) => Ok(variables.expand(text)?.into_bytes()),
            Value::Bytes(bytes) => Ok(bytes.clone()),
        }
    }
}

/// Lays fields out: returns the offset and the bytes of each.
///
/// # Errors
/// One sentence, if a value is none or two fields overlap.
pub fn layout(fields: &[Field], variables: &Variables) -> Result<Vec<(usize, Vec<u8>)>, String> {
    let mut laid: Vec<(usize, Vec<u8>)> = Vec::new();
    for field in fields {
        let end = laid.last().map_or(0, |(at, bytes)| at + bytes.len());
        let at = field.at.unwrap_or(end);
        let bytes = field.bytes(variables)?;
        if at < end {
            return Err(format!("the field at {at:#x} begins inside the one before, which ends at {end:#x}"));
        }
        checked_length(at + bytes.len())?;
        laid.push((at, bytes));
    }
    Ok(laid)
}

/// Builds a buffer of `size` bytes; without a size, it ends with the last field. What no field covers is 0.
///
/// # Errors
/// As [`layout`], or the fields do not fit.
pub fn bytes(fields: &[Field], size: Option<usize>, variables: &Variables) -> Result<Vec<u8>, String> {
    let laid = layout(fields, variables)?;
    let end = laid.last().map_or(0, |(at, bytes)| at + bytes.len());
    let size = size.unwrap_or(end);
    checked_length(size)?;
    if end > size {
        return Err(format!("the fields end at {end:#x}, behind the size {size:#x}"));
    }
    let mut buffer = vec![0; size];
    for (at, bytes) in laid {
        buffer[at..at + bytes.len()].copy_from_slice(&bytes);
    }
    Ok(buffer)
}

fn checked_length(length: usize) -> Result<(), String> {
    if length > LIMIT { Err(format!("a buffer of {length} bytes is longer than {LIMIT}")) } else { Ok(()) }
}

fn integer(text: &str, bytes: usize) -> Result<Vec<u8>, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => i128::from_str_radix(digits, 16),
        None => text.parse(),
    };
    let value = parsed.map_err(|_| format!("'{text}' is not an integer"))?;
    let bits = bytes * 8;
    if value < -(1 << (bits - 1)) || value >= 1 << bits {
        return Err(format!("{text} does not fit {bits} bits"));
    }
    Ok(value.to_le_bytes()[..bytes].to_vec())
}

fn socket_address(text: &str) -> Result<SocketAddr, String> {
    let parse = || {
        let (address, port) = text.rsplit_once(':')?;
        let address = address.trim_start_matches('[').trim_end_matches(']');
        Some(SocketAddr::new(address.parse::<IpAddr>().ok()?, port.parse().ok()?))
    };
    parse().ok_or_else(|| format!("'{text}' is not an address and a port"))
}

/// The `SOCKADDR_IN` or `SOCKADDR_IN6` of an address.
fn sockaddr(address: SocketAddr) -> Vec<u8> {
    let mut bytes = Vec::new();
    match address {
        SocketAddr::V4(v4) => {
            bytes.extend(AF_INET.to_le_bytes());
            bytes.extend(v4.port().to_be_bytes());
            bytes.extend(v4.ip().octets());
            bytes.extend([0; 8]);
        }
        SocketAddr::V6(v6) => {
            bytes.extend(AF_INET6.to_le_bytes());
            bytes.extend(v6.port().to_be_bytes());
            bytes.extend([0; 4]);
            bytes.extend(v6.ip().octets());
            bytes.extend([0; 4]);
        }
    }
    bytes
}

fn hex(text: &str) -> Result<Vec<u8>, String> {
    let digits: String = text.split_whitespace().collect();
    let pairs = digits.as_bytes().chunks(2).map(|pair| {
        let pair = std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2)?;
        u8::from_str_radix(pair, 16).ok()
    });
    pairs.collect::<Option<_>>().ok_or_else(|| format!("'{text}' is not pairs of hexadecimal digits"))
}

fn content(path: &Path) -> Result<Vec<u8>, String> {
    let bytes = fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    checked_length(bytes.len())?;
    Ok(bytes)
}
