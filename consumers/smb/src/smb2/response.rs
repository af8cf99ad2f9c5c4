// SPDX-License-Identifier: MIT OR Apache-2.0

//! Responses ([MS-SMB2] 2.2.2, 2.2.14, 2.2.16, 2.2.20, 2.2.22).

use alloc::vec::Vec;

use super::codec::{Reader, Writer};
use super::header::{Command, FileId, HEADER, Header, status};

/// Length of the fixed part of READ in bytes.
const READ: usize = 16;

/// A response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Response<'a> {
    pub message_id: u64,
    pub body: ResponseBody<'a>,
}

/// The body of a response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ResponseBody<'a> {
    /// The file is open.
    Create {
        file: FileId,
    },
    Close,
    /// Data in the message, and the number of bytes that were transferred by RDMA.
    Read {
        data: &'a [u8],
        transferred: u32,
    },
    /// Number of bytes written.
    Write {
        count: u32,
    },
    /// The command failed.
    Error {
        command: Command,
        status: u32,
    },
}

impl<'a> Response<'a> {
    /// Returns the message.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let mut message = Vec::new();
        let (command, status) = match self.body {
            ResponseBody::Create { .. } => (Command::Create, status::SUCCESS),
            ResponseBody::Close => (Command::Close, status::SUCCESS),
            ResponseBody::Read { .. } => (Command::Read, status::SUCCESS),
            ResponseBody::Write { .. } => (Command::Write, status::SUCCESS),
            ResponseBody::Error { command, status } => (command, status),
        };
        Header { command, status, is_response: true, message_id: self.message_id }.emit(&mut message);
        match self.body {
            ResponseBody::Create { file } => {
                message.put_u16(89);
                // OplockLevel, Flags, CreateAction, times, AllocationSize, EndofFile, FileAttributes, Reserved2
                message.put_zeros(2 + 4 + 32 + 8 + 8 + 4 + 4);
                message.extend(file);
                // CreateContextsOffset, CreateContextsLength
                message.put_zeros(4 + 4);
            }
            ResponseBody::Close => {
                message.put_u16(60);
                message.put_zeros(58);
            }
            ResponseBody::Read { data, transferred } => {
                message.put_u16(17);
                message.put_u8((HEADER + READ) as u8);
                message.put_u8(0);
                message.put_u32(data.len() as u32);
                message.put_u32(transferred);
                message.put_u32(0);
                message.extend(data);
            }
            ResponseBody::Write { count } => {
                message.put_u16(17);
                message.put_zeros(2);
                message.put_u32(count);
                message.put_zeros(4 + 2 + 2);
            }
            ResponseBody::Error { .. } => {
                message.put_u16(9);
                message.put_zeros(7);
            }
        }
        message
    }

    /// Reads a message. Returns `None` if it is no response of this module.
    #[must_use]
    pub fn parse(message: &'a [u8]) -> Option<Self> {
        let header = Header::parse(message).filter(|header| header.is_response)?;
        let Header { command, status, message_id, .. } = header;
        if status != status::SUCCESS {
            return Some(Self { message_id, body: ResponseBody::Error { command, status } });
        }
        let mut reader = Reader::new(message, HEADER);
        let body = match (command, reader.u16()?) {
            (Command::Create, 89) => {
                reader.skip(62)?;
                ResponseBody::Create { file: reader.array()? }
            }
            (Command::Close, 60) => ResponseBody::Close,
            (Command::Read, 17) => {
                let offset = reader.u8()?;
                reader.skip(1)?;
                let (length, transferred) = (reader.u32()?, reader.u32()?);
                // Flags
                reader.skip(4)?;
                let data = reader.at(offset.into(), length as usize)?;
                ResponseBody::Read { data, transferred }
            }
            (Command::Write, 17) => {
                reader.skip(2)?;
                ResponseBody::Write { count: reader.u32()? }
            }
            _ => return None,
        };
        Some(Self { message_id, body })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_read_as_they_were_written() {
        let bodies = [
            ResponseBody::Create { file: [3; 16] },
            ResponseBody::Close,
            ResponseBody::Read { data: b"data", transferred: 0 },
            ResponseBody::Read { data: b"", transferred: 8 << 20 },
            ResponseBody::Write { count: 1 << 20 },
            ResponseBody::Error { command: Command::Read, status: status::END_OF_FILE },
        ];
        for (message_id, body) in (1..).zip(bodies) {
            let response = Response { message_id, body };
            assert_eq!(Response::parse(&response.emit()), Some(response.clone()));
        }
    }

    #[test]
    fn data_beyond_the_end_of_a_response_are_refused() {
        let response = Response { message_id: 1, body: ResponseBody::Read { data: b"data", transferred: 0 } };
        let message = response.emit();
        assert_eq!(Response::parse(&message[..message.len() - 1]), None);
    }
}
