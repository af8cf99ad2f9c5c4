// SPDX-License-Identifier: MIT OR Apache-2.0

//! Values of fields, as bytes.

use core::net::{IpAddr, SocketAddr};

/// Type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Unsigned, 32 bits.
    U32,
    /// Unsigned, 32 bits, shown in hexadecimal.
    Hex,
    /// Unsigned, 64 bits.
    U64,
    /// ASCII, ends with a zero.
    Text,
    /// `SOCKADDR_IN` or `SOCKADDR_IN6` after its length in two bytes.
    Address,
    /// `NTSTATUS`.
    Status,
}

impl Kind {
    /// Returns the type, and how it is shown if not in the usual way. (`TraceLoggingProvider.h`: `TlgIn_t`, `TlgOut_t`)
    #[must_use]
    pub const fn codes(self) -> (u8, Option<u8>) {
        match self {
            Self::U32 => (8, None),
            Self::Hex => (20, None),
            Self::U64 => (10, None),
            Self::Text => (2, None),
            Self::Address => (14, Some(10)),
            Self::Status => (7, Some(14)),
        }
    }
}

/// A field of an event.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    pub name: &'static str,
    pub kind: Kind,
}

/// A value of a field.
pub trait Value: Copy {
    const KIND: Kind;

    fn put(self, payload: &mut Payload);
}

/// A number that is shown in hexadecimal.
#[derive(Clone, Copy, Debug)]
pub struct Hex(pub u32);

/// An `NTSTATUS`.
#[derive(Clone, Copy, Debug)]
pub struct Status(pub i32);

/// Longest text in bytes; what is longer is cut.
const LONGEST_TEXT: usize = 40;

/// The values of an event's fields. On the stack, and large enough for each event of the table.
#[derive(Debug)]
pub struct Payload {
    bytes: [u8; Self::SIZE],
    length: usize,
}

impl Payload {
    const SIZE: usize = 256;

    #[must_use]
    pub const fn new() -> Self {
        Self { bytes: [0; Self::SIZE], length: 0 }
    }

    /// Returns the values that were put.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    /// Appends bytes. What has no room is left out, which a test of the table excludes.
    fn append(&mut self, bytes: &[u8]) {
        let end = self.length.saturating_add(bytes.len());
        if let Some(to) = self.bytes.get_mut(self.length..end) {
            // A copy of slices calls a panic function in the image.
            to.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
            self.length = end;
        }
    }
}

impl Default for Payload {
    fn default() -> Self {
        Self::new()
    }
}

impl Value for u32 {
    const KIND: Kind = Kind::U32;

    fn put(self, payload: &mut Payload) {
        payload.append(&self.to_le_bytes());
    }
}

impl Value for u64 {
    const KIND: Kind = Kind::U64;

    fn put(self, payload: &mut Payload) {
        payload.append(&self.to_le_bytes());
    }
}

impl Value for Hex {
    const KIND: Kind = Kind::Hex;

    fn put(self, payload: &mut Payload) {
        payload.append(&self.0.to_le_bytes());
    }
}

impl Value for Status {
    const KIND: Kind = Kind::Status;

    fn put(self, payload: &mut Payload) {
        payload.append(&self.0.to_le_bytes());
    }
}

impl Value for &'static str {
    const KIND: Kind = Kind::Text;

    fn put(self, payload: &mut Payload) {
        let bytes = self.as_bytes();
        payload.append(bytes.get(..LONGEST_TEXT).unwrap_or(bytes));
        payload.append(&[0]);
    }
}

/// Address families of Windows. (`ws2def.h`)
const AF_INET: u8 = 2;
const AF_INET6: u8 = 23;

impl Value for SocketAddr {
    const KIND: Kind = Kind::Address;

    fn put(self, payload: &mut Payload) {
        let [high, low] = self.port().to_be_bytes();
        match self.ip() {
            IpAddr::V4(ip) => {
                payload.append(&[16, 0, AF_INET, 0, high, low]);
                payload.append(&ip.octets());
                payload.append(&[0; 8]);
            }
            IpAddr::V6(ip) => {
                payload.append(&[28, 0, AF_INET6, 0, high, low, 0, 0, 0, 0]);
                payload.append(&ip.octets());
                payload.append(&[0; 4]);
            }
        }
    }
}

/// Most bytes of a value.
#[cfg(test)]
pub(super) const fn most_bytes(kind: Kind) -> usize {
    match kind {
        Kind::U32 | Kind::Hex | Kind::Status => 4,
        Kind::U64 => 8,
        Kind::Text => LONGEST_TEXT + 1,
        Kind::Address => 30,
    }
}

#[cfg(test)]
pub(super) const SIZE: usize = Payload::SIZE;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_windows_reads_them() {
        let mut payload = Payload::new();
        7_u32.put(&mut payload);
        Hex(0x0102_0304).put(&mut payload);
        Status(-1).put(&mut payload);
        "ab".put(&mut payload);
        assert_eq!(payload.bytes(), [7, 0, 0, 0, 4, 3, 2, 1, 255, 255, 255, 255, b'a', b'b', 0]);
        let mut payload = Payload::new();
        SocketAddr::from(([10, 0, 0, 1], 445)).put(&mut payload);
        assert_eq!(payload.bytes()[..10], [16, 0, 2, 0, 1, 189, 10, 0, 0, 1]);
        assert_eq!(payload.bytes().len(), 18);
        let mut payload = Payload::new();
        SocketAddr::from(([0xfe80, 0, 0, 0, 0, 0, 0, 1], 1)).put(&mut payload);
        assert_eq!(payload.bytes().len(), 30);
        assert_eq!(payload.bytes()[..6], [28, 0, 23, 0, 0, 1]);
    }

    #[test]
    fn a_long_text_is_cut_and_a_full_payload_takes_no_more() {
        let mut payload = Payload::new();
        "0123456789012345678901234567890123456789rest".put(&mut payload);
        assert_eq!(payload.bytes().len(), LONGEST_TEXT + 1);
        for _ in 0..Payload::SIZE {
            payload.append(&[1; 8]);
        }
        assert!(payload.bytes().len() <= Payload::SIZE);
    }
}
