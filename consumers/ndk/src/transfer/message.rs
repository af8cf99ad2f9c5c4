// SPDX-License-Identifier: MIT OR Apache-2.0

//! Messages of the transfer: little-endian, starting with a marker and a kind byte, padded with zeros to [`MIN_MESSAGE`].

use alloc::borrow::ToOwned as _;
use alloc::string::String;
use alloc::vec::Vec;

use crate::RemoteMemory;
use crate::transfer::Digest;

/// Length of the shortest message in bytes. Wireshark dissects shorter messages as malformed RPC over RDMA.
pub const MIN_MESSAGE: usize = 32;
/// Length of the longest message in bytes.
pub const MAX_MESSAGE: usize = 512;
/// Length of the longest name in bytes.
pub const MAX_NAME: usize = 255;

/// Starts every message. Wireshark dissects a payload whose third and fourth byte are zero as an Ethernet frame.
const MARK: [u8; 3] = *b"vio";

/// Starts the private data of both directions.
const MAGIC: [u8; 8] = *b"viordma1";

/// Private data: the segment size that the copying side proposes, or that the serving side chose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentProposal {
    /// Size of a segment in bytes.
    pub segment: u64,
}

/// A message of the transfer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// The file, and the memory for the receipt.
    Announce { size: u64, receipt: RemoteMemory, name: String },
    /// The memory for segments.
    Window(RemoteMemory),
    /// A segment has been written.
    Written { offset: u64, length: u64 },
    /// The segment has arrived and may be read back.
    Verified { offset: u64 },
    /// All segments have been read back.
    Finish { digest: Digest },
    /// The receipt has been written.
    Receipt,
}

impl SegmentProposal {
    pub fn encode(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..].copy_from_slice(&self.segment.to_le_bytes());
        bytes
    }

    /// Decodes private data, ignoring padding; `None` if it is invalid.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        (reader.take()? == MAGIC).then_some(())?;
        let segment = reader.u64()?;
        (segment != 0).then_some(Self { segment })
    }
}

impl Message {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(MAX_MESSAGE);
        bytes.extend(MARK);
        match self {
            Self::Announce { size, receipt, name } => {
                bytes.push(1);
                bytes.extend(size.to_le_bytes());
                put(&mut bytes, receipt);
                bytes.push(name.len() as u8);
                bytes.extend(name.as_bytes());
            }
            Self::Window(memory) => {
                bytes.push(2);
                put(&mut bytes, memory);
            }
            Self::Written { offset, length } => {
                bytes.push(3);
                bytes.extend(offset.to_le_bytes());
                bytes.extend(length.to_le_bytes());
            }
            Self::Verified { offset } => {
                bytes.push(4);
                bytes.extend(offset.to_le_bytes());
            }
            Self::Finish { digest } => {
                bytes.push(5);
                bytes.extend(digest);
            }
            Self::Receipt => bytes.push(6),
        }
        bytes.resize(bytes.len().max(MIN_MESSAGE), 0);
        bytes
    }

    /// Decodes a message; `None` if it is invalid.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let marked = bytes.strip_prefix(&MARK).filter(|_| bytes.len() >= MIN_MESSAGE)?;
        let (kind, rest) = marked.split_first()?;
        let mut reader = Reader(rest);
        let message = match kind {
            1 => {
                let (size, receipt) = (reader.u64()?, reader.memory()?);
                let [length] = reader.take()?;
                let (name, padding) = reader.0.split_at_checked(length.into())?;
                reader.0 = padding;
                let name = core::str::from_utf8(name).ok()?;
                Self::Announce { size, receipt, name: name.to_owned() }
            }
            2 => Self::Window(reader.memory()?),
            3 => Self::Written { offset: reader.u64()?, length: reader.u64()? },
            4 => Self::Verified { offset: reader.u64()? },
            5 => Self::Finish { digest: reader.take()? },
            6 => Self::Receipt,
            _ => return None,
        };
        let padding = reader.0;
        let padded = bytes.len() == MIN_MESSAGE && padding.iter().all(|byte| *byte == 0);
        (padding.is_empty() || padded).then_some(message)
    }
}

fn put(bytes: &mut Vec<u8>, memory: &RemoteMemory) {
    bytes.extend(memory.address.to_le_bytes());
    bytes.extend(memory.token.to_le_bytes());
    bytes.extend(memory.length.to_le_bytes());
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take()?))
    }

    fn memory(&mut self) -> Option<RemoteMemory> {
        let (address, token, length) = (self.u64()?, u32::from_le_bytes(self.take()?), self.u64()?);
        Some(RemoteMemory { address, token, length })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every_kind() -> [Message; 6] {
        let memory = RemoteMemory { address: 0xffff_8000_1234_5000, token: 0x1234_5678, length: 1 << 33 };
        [
            Message::Announce { size: u64::MAX, receipt: memory, name: "Größe.bin".to_owned() },
            Message::Window(memory),
            Message::Written { offset: 1 << 40, length: 77 },
            Message::Verified { offset: 3 },
            Message::Finish { digest: [7; 32] },
            Message::Receipt,
        ]
    }

    #[test]
    fn messages_survive_encoding() {
        for message in every_kind() {
            assert_eq!(Message::decode(&message.encode()), Some(message));
        }
    }

    #[test]
    fn longest_message_fits_its_buffer() {
        let memory = RemoteMemory { address: 0, token: 0, length: 0 };
        let longest = Message::Announce { size: 0, receipt: memory, name: "x".repeat(MAX_NAME) };
        assert!(longest.encode().len() <= MAX_MESSAGE);
    }

    #[test]
    fn truncated_and_extended_messages_are_rejected() {
        for message in every_kind() {
            let mut bytes = message.encode();
            for length in 0..bytes.len() {
                assert_eq!(Message::decode(&bytes[..length]), None, "{message:?} cut to {length}");
            }
            bytes.push(0);
            assert_eq!(Message::decode(&bytes), None, "{message:?} with a byte more");
        }
    }

    #[test]
    fn segment_proposal_may_be_padded() {
        let segment_proposal = SegmentProposal { segment: 1 << 20 };
        let mut bytes = segment_proposal.encode().to_vec();
        bytes.resize(196, 0);
        assert_eq!(SegmentProposal::decode(&bytes), Some(segment_proposal));
        bytes[0] ^= 1;
        assert_eq!(SegmentProposal::decode(&bytes), None);
    }
}
