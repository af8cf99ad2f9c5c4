// SPDX-License-Identifier: MIT OR Apache-2.0

//! Events of TraceLogging: metadata and values, read back. (Windows SDK: `TraceLoggingProvider.h`)

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr, SocketAddr},
};

/// The channel of such events. (`evntprov.h`: `WINEVENT_CHANNEL_TRACELOGGING`)
pub const CHANNEL: u8 = 11;

/// Bits of a field's type that are not the type: arrays, and that a code of the presentation follows.
const ARRAY: u8 = 0x60;
const CHAIN: u8 = 0x80;

/// Codes of presentation. (`TlgOut_t`)
const SOCKET_ADDRESS: u8 = 10;
const NT_STATUS: u8 = 14;

/// A value of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Number(u64),
    Hex(u64),
    Status(u32),
    Text(String),
    Address(SocketAddr),
    Bytes(Vec<u8>),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(value) => write!(f, "{value}"),
            Self::Hex(value) => write!(f, "{value:#x}"),
            Self::Status(value) => write!(f, "{value:#010x}"),
            Self::Text(value) => f.write_str(value),
            Self::Address(value) => write!(f, "{value}"),
            Self::Bytes(value) => write!(f, "{value:02x?}"),
        }
    }
}

/// An event's name and fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    pub name: String,
    pub fields: Vec<(String, Value)>,
}

impl Content {
    /// Returns the value of a field.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Value> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, value)| value)
    }

    /// Reads an event.
    ///
    /// # Errors
    /// What is wrong with metadata or values.
    pub fn read(metadata: &[u8], values: &[u8]) -> Result<Self, String> {
        let mut metadata = Reader(metadata);
        let (length, whole) = (metadata.number::<2>("length")?, metadata.0.len() + 2);
        if length as usize != whole {
            return Err(format!("metadata of {whole} bytes says that it has {length}"));
        }
        while metadata.number::<1>("tag")? & u64::from(CHAIN) != 0 {}
        let name = metadata.text("name of the event")?;
        let (mut values, mut fields) = (Reader(values), Vec::new());
        while !metadata.0.is_empty() {
            let field = metadata.text("name of a field")?;
            let kind = metadata.number::<1>("type")? as u8;
            let out = if kind & CHAIN == 0 { 0 } else { metadata.number::<1>("presentation")? as u8 };
            if kind & ARRAY != 0 || out & CHAIN != 0 {
                return Err(format!("field {field} is an array or has a tag, which are not read here"));
            }
            let value =
                values.value(kind & !CHAIN, out).map_err(|error| format!("field {field}: {error}"))?;
            fields.push((field, value));
        }
        if values.0.is_empty() {
            Ok(Self { name, fields })
        } else {
            Err(format!("{} bytes follow the last field of {name}", values.0.len()))
        }
    }
}

/// Returns the name in the traits of a provider.
///
/// # Errors
/// What is wrong with them.
pub fn provider(traits: &[u8]) -> Result<String, String> {
    let mut reader = Reader(traits);
    let length = reader.number::<2>("length")?;
    if length as usize != traits.len() {
        return Err(format!("traits of {} bytes say that they have {length}", traits.len()));
    }
    reader.text("name of the provider")
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize, what: &str) -> Result<&'a [u8], String> {
        let (bytes, rest) = self.0.split_at_checked(count).ok_or_else(|| format!("{what} is cut"))?;
        self.0 = rest;
        Ok(bytes)
    }

    fn number<const SIZE: usize>(&mut self, what: &str) -> Result<u64, String> {
        let mut number = [0; 8];
        number[..SIZE].copy_from_slice(self.bytes(SIZE, what)?);
        Ok(u64::from_le_bytes(number))
    }

    fn text(&mut self, what: &str) -> Result<String, String> {
        let end = self.0.iter().position(|&byte| byte == 0).ok_or_else(|| format!("{what} does not end"))?;
        let text = String::from_utf8(self.bytes(end, what)?.to_vec());
        self.bytes(1, what)?;
        text.map_err(|_| format!("{what} is no text"))
    }

    /// Reads a value of a type. (`TlgIn_t`)
    fn value(&mut self, kind: u8, out: u8) -> Result<Value, String> {
        Ok(match (kind, out) {
            (2, _) => Value::Text(self.text("text")?),
            (4, _) => Value::Number(self.number::<1>("number")?),
            (6, _) => Value::Number(self.number::<2>("number")?),
            (7, NT_STATUS) => Value::Status(self.number::<4>("status")? as u32),
            (8, _) => Value::Number(self.number::<4>("number")?),
            (10, _) => Value::Number(self.number::<8>("number")?),
            (20, _) => Value::Hex(self.number::<4>("number")?),
            (21, _) => Value::Hex(self.number::<8>("number")?),
            (14, out) => {
                let length = self.number::<2>("length of bytes")? as usize;
                let bytes = self.bytes(length, "bytes")?;
                if out == SOCKET_ADDRESS { address(bytes)? } else { Value::Bytes(bytes.to_vec()) }
            }
            _ => return Err(format!("type {kind} with presentation {out} is not read here")),
        })
    }
}

/// Reads `SOCKADDR_IN` or `SOCKADDR_IN6`. (`ws2def.h`, `ws2ipdef.h`)
fn address(bytes: &[u8]) -> Result<Value, String> {
    let port = |bytes: &[u8]| u16::from_be_bytes([bytes[2], bytes[3]]);
    let ip: IpAddr = match (bytes.first(), bytes.len()) {
        (Some(2), 16) => [bytes[4], bytes[5], bytes[6], bytes[7]].into(),
        (Some(23), 28) => {
            let ip: [u8; 16] = bytes[8..24].try_into().expect("16 bytes");
            Ipv6Addr::from(ip).into()
        }
        (family, length) => {
            return Err(format!("a socket address of family {family:?} and {length} bytes"));
        }
    };
    Ok(Value::Address(SocketAddr::new(ip, port(bytes))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_read_and_each_fault_of_it_is_named() {
        let metadata = b"\x0f\0\0Ev\0Qp\0\x08To\0\x8e\x0a";
        let values = b"\x07\0\0\0\x10\0\x02\0\x01\xbd\x0a\0\0\x01\0\0\0\0\0\0\0\0";
        let content = Content::read(metadata, values).unwrap();
        assert_eq!(content.name, "Ev");
        assert_eq!(content.field("Qp"), Some(&Value::Number(7)));
        assert_eq!(content.field("To").unwrap().to_string(), "10.0.0.1:445");
        let error = |metadata: &[u8], values: &[u8]| Content::read(metadata, values).unwrap_err();
        assert!(error(&metadata[..14], values).contains("says that it has 15"));
        assert!(error(metadata, &values[..3]).contains("field Qp: number is cut"));
        assert!(error(metadata, &[values, &b"\0"[..]].concat()).contains("1 bytes follow the last field"));
        assert!(error(b"\x08\0\0Ev\0Qp", b"").contains("does not end"));
        assert!(error(b"\x09\0\0Ev\0Q\0\x0b", b"\0\0\0\0").contains("type 11"));
        assert_eq!(provider(b"\x07\0Name\0").unwrap(), "Name");
        assert!(provider(b"\x08\0Name\0").unwrap_err().contains("say that they have 8"));
    }
}
