// SPDX-License-Identifier: MIT OR Apache-2.0

//! The header of a message ([MS-SMB2] 2.2.1.2).

use alloc::vec::Vec;

use super::codec::{Reader, Writer};

/// Length of the header in bytes.
pub const HEADER: usize = 64;

const PROTOCOL: [u8; 4] = [0xFE, b'S', b'M', b'B'];
/// `SMB2_FLAGS_SERVER_TO_REDIR`.
const RESPONSE: u32 = 1;

/// A file that is open: `FileId`.
pub type FileId = [u8; 16];

/// `Status` values, of [MS-ERREF].
pub mod status {
    pub const SUCCESS: u32 = 0;
    pub const INVALID_PARAMETER: u32 = 0xC000_000D;
    /// An interim response: the response proper follows.
    pub const PENDING: u32 = 0x103;
    pub const END_OF_FILE: u32 = 0xC000_0011;
    pub const INSUFFICIENT_RESOURCES: u32 = 0xC000_009A;
    pub const FILE_CLOSED: u32 = 0xC000_0128;
}

/// The command of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum Command {
    Create = 5,
    Close = 6,
    Read = 8,
    Write = 9,
}

impl Command {
    /// Returns whether the command reads or writes a file.
    #[must_use]
    pub fn transfers(self) -> bool {
        matches!(self, Self::Read | Self::Write)
    }

    fn from_value(value: u16) -> Option<Self> {
        [Self::Create, Self::Close, Self::Read, Self::Write]
            .into_iter()
            .find(|&command| command as u16 == value)
    }
}

/// The fields that requests and responses use.
pub struct Header {
    pub command: Command,
    pub status: u32,
    pub is_response: bool,
    pub message_id: u64,
}

impl Header {
    /// Appends the header to an empty message.
    pub fn emit(&self, message: &mut Vec<u8>) {
        message.extend(PROTOCOL);
        message.put_u16(HEADER as u16);
        // CreditCharge
        message.put_u16(1);
        message.put_u32(self.status);
        message.put_u16(self.command as u16);
        // Credits
        message.put_u16(1);
        message.put_u32(if self.is_response { RESPONSE } else { 0 });
        // NextCommand
        message.put_u32(0);
        message.put_u64(self.message_id);
        // Reserved, TreeId, SessionId, Signature
        message.put_zeros(4 + 4 + 8 + 16);
    }

    /// Reads the header of a message without a compound. Returns `None` if it is not one, or of another command.
    pub fn parse(message: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(message, 0);
        if reader.array()? != PROTOCOL || reader.u16()? as usize != HEADER {
            return None;
        }
        reader.skip(2)?;
        let status = reader.u32()?;
        let command = Command::from_value(reader.u16()?)?;
        reader.skip(2)?;
        let is_response = reader.u32()? & RESPONSE != 0;
        if reader.u32()? != 0 {
            return None;
        }
        let message_id = reader.u64()?;
        (message.len() >= HEADER).then_some(Self { command, status, is_response, message_id })
    }
}
