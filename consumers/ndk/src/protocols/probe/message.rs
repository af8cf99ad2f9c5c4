// SPDX-License-Identifier: MIT OR Apache-2.0

//! Messages of the probe.

use crate::RemoteMemory;

const MAGIC: [u8; 4] = *b"VRDP";
const VERSION: u8 = 1;

/// Length of a control message in bytes.
pub const CONTROL: usize = 32;

/// The private data of the client's request.
///
/// | bytes | are |
/// | --- | --- |
/// | 0-3 | "VRDP" |
/// | 4 | version, 1 |
/// | 5 | scenario |
/// | 6-7 | zero |
/// | 8-11 | count |
/// | 12-15 | length |
/// | 16-23 | address of the client's buffer |
/// | 24-27 | its key |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    pub scenario: u8,
    pub count: u32,
    pub length: u32,
    /// The client's buffer. Its length is not transmitted.
    pub buffer: RemoteMemory,
}

/// The private data of the server's reply: bytes 0 to 7 as in the request, then address (8), key (4) and length (4) of the
/// server's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reply {
    pub scenario: u8,
    pub window: RemoteMemory,
}

/// A control message.
///
/// | bytes | are |
/// | --- | --- |
/// | 0-3 | "VRDP" |
/// | 4 | kind |
/// | 5 | 1 if the item is right, else 0 |
/// | 6-7 | zero |
/// | 8-11 | number of the item |
/// | 12-15 | its length |
/// | 16-19 | a key |
/// | 20-31 | zero |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Control {
    pub kind: Kind,
    pub ok: bool,
    pub item: u32,
    pub length: u32,
    pub key: u32,
}

/// The numbers of a queue pair that a side connects by itself, and of its memory.
///
/// | bytes | are |
/// | --- | --- |
/// | 0-5 | as in a control message |
/// | 6-7 | zero |
/// | 8-11 | number of the queue pair |
/// | 12-15 | PSN of its first packet |
/// | 16-19 | key of the memory that the peer may access |
/// | 20-27 | its address |
/// | 28-31 | Q_Key |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Numbers {
    pub qpn: u32,
    pub psn: u32,
    pub key: u32,
    pub address: u64,
    pub q_key: u32,
}

/// The kind of a control message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kind(pub u8);

impl Kind {
    /// The client has written or read an item.
    pub const CHECK: Self = Self(1);
    /// The result of the server's check of an item.
    pub const VERDICT: Self = Self(2);
    /// The key of the memory that the server has fast-registered.
    pub const KEY: Self = Self(3);
    /// The queue pair of a side is ready.
    pub const DONE: Self = Self(4);
    /// [`Numbers`] of a queue pair.
    pub const NUMBERS: Self = Self(5);
}

impl Request {
    #[must_use]
    pub fn encode(&self) -> [u8; 28] {
        let mut bytes = [0; 28];
        put(&mut bytes, 0, &head(self.scenario));
        put(&mut bytes, 8, &self.count.to_be_bytes());
        put(&mut bytes, 12, &self.length.to_be_bytes());
        put(&mut bytes, 16, &self.buffer.address.to_be_bytes());
        put(&mut bytes, 24, &self.buffer.token.to_be_bytes());
        bytes
    }

    /// Zeros may follow.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let address = u64::from(word(bytes, 16)?) << 32 | u64::from(word(bytes, 20)?);
        Some(Self {
            scenario: scenario(bytes)?,
            count: word(bytes, 8)?,
            length: word(bytes, 12)?,
            buffer: RemoteMemory { address, token: word(bytes, 24)?, length: 0 },
        })
    }
}

impl Reply {
    #[must_use]
    pub fn encode(&self) -> [u8; 24] {
        let mut bytes = [0; 24];
        put(&mut bytes, 0, &head(self.scenario));
        put(&mut bytes, 8, &self.window.address.to_be_bytes());
        put(&mut bytes, 16, &self.window.token.to_be_bytes());
        put(&mut bytes, 20, &(self.window.length as u32).to_be_bytes());
        bytes
    }

    /// Zeros may follow.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let address = u64::from(word(bytes, 8)?) << 32 | u64::from(word(bytes, 12)?);
        let window = RemoteMemory { address, token: word(bytes, 16)?, length: word(bytes, 20)?.into() };
        Some(Self { scenario: scenario(bytes)?, window })
    }
}

impl Control {
    /// Returns a message for an item that is right.
    #[must_use]
    pub fn new(kind: Kind, item: u32, length: usize) -> Self {
        Self { kind, ok: true, item, length: length as u32, key: 0 }
    }

    #[must_use]
    pub fn encode(&self) -> [u8; CONTROL] {
        let mut bytes = [0; CONTROL];
        put(&mut bytes, 0, &MAGIC);
        put(&mut bytes, 4, &[self.kind.0, self.ok.into()]);
        put(&mut bytes, 8, &self.item.to_be_bytes());
        put(&mut bytes, 12, &self.length.to_be_bytes());
        put(&mut bytes, 16, &self.key.to_be_bytes());
        bytes
    }

    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (&[a, b, c, d, kind, ok, ..], true) = (bytes.first_chunk::<6>()?, bytes.len() == CONTROL) else {
            return None;
        };
        ([a, b, c, d] == MAGIC).then_some(())?;
        Some(Self {
            kind: Kind(kind),
            ok: ok != 0,
            item: word(bytes, 8)?,
            length: word(bytes, 12)?,
            key: word(bytes, 16)?,
        })
    }
}

impl Numbers {
    #[must_use]
    pub fn encode(&self) -> [u8; CONTROL] {
        let control =
            Control { kind: Kind::NUMBERS, ok: true, item: self.qpn, length: self.psn, key: self.key };
        let mut bytes = control.encode();
        put(&mut bytes, 20, &self.address.to_be_bytes());
        put(&mut bytes, 28, &self.q_key.to_be_bytes());
        bytes
    }

    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let control = Control::decode(bytes).filter(|control| control.kind == Kind::NUMBERS)?;
        let address = u64::from(word(bytes, 20)?) << 32 | u64::from(word(bytes, 24)?);
        let Control { item: qpn, length: psn, key, .. } = control;
        Some(Self { qpn, psn, key, address, q_key: word(bytes, 28)? })
    }
}

fn head(scenario: u8) -> [u8; 8] {
    let [a, b, c, d] = MAGIC;
    [a, b, c, d, VERSION, scenario, 0, 0]
}

fn scenario(bytes: &[u8]) -> Option<u8> {
    let &[a, b, c, d, version, scenario] = bytes.first_chunk()?;
    ([a, b, c, d] == MAGIC && version == VERSION).then_some(scenario)
}

fn put(bytes: &mut [u8], at: usize, field: &[u8]) {
    bytes[at..at + field.len()].copy_from_slice(field);
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_be_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUFFER: RemoteMemory =
        RemoteMemory { address: 0x0102_0304_0506_0708, token: 0x1122_3344, length: 0 };

    #[test]
    fn request_has_the_documented_layout() {
        let request = Request { scenario: 12, count: 64, length: 4096, buffer: BUFFER };
        let mut bytes = request.encode().to_vec();
        assert_eq!(bytes[..8], *b"VRDP\x01\x0c\0\0");
        assert_eq!(bytes[8..], [0, 0, 0, 64, 0, 0, 16, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0x11, 0x22, 0x33, 0x44]);
        bytes.resize(56, 0);
        assert_eq!(Request::decode(&bytes), Some(request));
    }

    #[test]
    fn reply_has_the_documented_layout() {
        let reply = Reply { scenario: 2, window: RemoteMemory { length: 4160, ..BUFFER } };
        let mut bytes = reply.encode().to_vec();
        assert_eq!(bytes[8..], [1, 2, 3, 4, 5, 6, 7, 8, 0x11, 0x22, 0x33, 0x44, 0, 0, 16, 64]);
        bytes.resize(196, 0);
        assert_eq!(Reply::decode(&bytes), Some(reply));
    }

    #[test]
    fn control_message_has_the_documented_layout() {
        let control = Control { key: 0x1122_3344, ..Control::new(Kind::VERDICT, 7, 4095) };
        let bytes = control.encode();
        assert_eq!(bytes[..20], *b"VRDP\x02\x01\0\0\0\0\0\x07\0\0\x0f\xff\x11\x22\x33\x44");
        assert_eq!(Control::decode(&bytes), Some(control));
    }

    #[test]
    fn numbers_have_the_documented_layout() {
        let numbers =
            Numbers { qpn: 0x17, psn: 0xff_fffe, key: 0x1122_3344, address: 0x0102_0304_0506_0708, q_key: 5 };
        let bytes = numbers.encode();
        assert_eq!(bytes[..20], *b"VRDP\x05\x01\0\0\0\0\0\x17\0\xff\xff\xfe\x11\x22\x33\x44");
        assert_eq!(bytes[20..], [1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 5]);
        assert_eq!(Numbers::decode(&bytes), Some(numbers));
        assert_eq!(Numbers::decode(&Control::new(Kind::CHECK, 0, 0).encode()), None);
    }

    #[test]
    fn truncated_and_other_messages_are_rejected() {
        let request = Request { scenario: 1, count: 0, length: 0, buffer: BUFFER }.encode();
        assert!((0..request.len()).all(|length| Request::decode(&request[..length]).is_none()));
        let control = Control::new(Kind::CHECK, 0, 0).encode();
        assert!((0..control.len()).all(|length| Control::decode(&control[..length]).is_none()));
        assert_eq!(Request::decode(&[b'R'; 56]), None);
        assert_eq!(Control::decode(&[b'R'; CONTROL]), None);
    }
}
