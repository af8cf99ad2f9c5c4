// SPDX-License-Identifier: MIT OR Apache-2.0

//! Requests ([MS-SMB2] 2.2.13, 2.2.15, 2.2.19, 2.2.21).

use alloc::string::String;
use alloc::vec::Vec;

use smb_direct::Channel;

use super::codec::{Reader, Writer};
use super::header::{Command, FileId, HEADER, Header, status};

/// Length of the fixed part of CREATE, and of READ and WRITE, in bytes.
const CREATE: usize = 56;
const TRANSFER: usize = 48;
/// `GENERIC_READ` and `GENERIC_WRITE`.
const READ_AND_WRITE: u32 = 0xC000_0000;
/// `FILE_OVERWRITE_IF`.
const OVERWRITE: u32 = 5;
/// `FILE_NON_DIRECTORY_FILE`.
const NO_DIRECTORY: u32 = 0x40;
/// Impersonation level `Impersonation`.
const IMPERSONATION: u32 = 2;

/// A request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request<'a> {
    pub message_id: u64,
    pub body: RequestBody<'a>,
}

/// The body of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RequestBody<'a> {
    /// Creates a file, or empties one that exists.
    Create { name: String },
    /// Closes a file.
    Close { file: FileId },
    /// Reads `length` bytes at `offset`. `channel_info` describes the memory for them, unless the channel is none.
    Read { file: FileId, offset: u64, length: u32, channel: Channel, channel_info: &'a [u8] },
    /// Writes at `offset`.
    Write { file: FileId, offset: u64, data: WriteData<'a> },
}

/// The data of a WRITE.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WriteData<'a> {
    /// In the message.
    Message(&'a [u8]),
    /// `length` bytes in the memory that `channel_info` describes.
    Channel { channel: Channel, channel_info: &'a [u8], length: u32 },
}

impl<'a> Request<'a> {
    /// Returns the message.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let mut message = Vec::new();
        let command = match self.body {
            RequestBody::Create { .. } => Command::Create,
            RequestBody::Close { .. } => Command::Close,
            RequestBody::Read { .. } => Command::Read,
            RequestBody::Write { .. } => Command::Write,
        };
        let header =
            Header { command, status: status::SUCCESS, is_response: false, message_id: self.message_id };
        header.emit(&mut message);
        match &self.body {
            RequestBody::Create { name } => emit_create(&mut message, name),
            RequestBody::Close { file } => {
                message.put_u16(24);
                message.put_zeros(2 + 4);
                message.extend(file);
            }
            &RequestBody::Read { ref file, offset, length, channel, channel_info } => {
                message.put_u16(49);
                // Padding: wanted offset of the data in the response; Flags
                message.put_u8((HEADER + 16) as u8);
                message.put_u8(0);
                message.put_u32(length);
                message.put_u64(offset);
                message.extend(file);
                // MinimumCount
                message.put_u32(0);
                emit_channel(&mut message, channel, 0, channel_info);
                emit_buffer(&mut message, channel_info);
            }
            RequestBody::Write { file, offset, data } => emit_write(&mut message, file, *offset, data),
        }
        message
    }

    /// Reads a message. Returns `None` if it is no request of this module.
    #[must_use]
    pub fn parse(message: &'a [u8]) -> Option<Self> {
        let header = Header::parse(message).filter(|header| !header.is_response)?;
        let mut reader = Reader::new(message, HEADER);
        let body = match (header.command, reader.u16()?) {
            (Command::Create, 57) => parse_create(&mut reader)?,
            (Command::Close, 24) => {
                reader.skip(2 + 4)?;
                RequestBody::Close { file: reader.array()? }
            }
            (Command::Read, 49) => {
                reader.skip(2)?;
                let (length, offset, file) = (reader.u32()?, reader.u64()?, reader.array()?);
                reader.skip(4)?;
                let (channel, _, channel_info) = parse_channel(&mut reader)?;
                RequestBody::Read { file, offset, length, channel, channel_info }
            }
            (Command::Write, 49) => {
                let (data_offset, length) = (reader.u16()?, reader.u32()?);
                let (offset, file) = (reader.u64()?, reader.array()?);
                let (channel, remaining, channel_info) = parse_channel(&mut reader)?;
                // Flags
                reader.skip(4)?;
                let data = match channel {
                    Channel::None => WriteData::Message(reader.at(data_offset.into(), length as usize)?),
                    _ => WriteData::Channel { channel, channel_info, length: remaining },
                };
                RequestBody::Write { file, offset, data }
            }
            _ => return None,
        };
        Some(Self { message_id: header.message_id, body })
    }
}

fn emit_create(message: &mut Vec<u8>, name: &str) {
    let name: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
    message.put_u16(57);
    // SecurityFlags, RequestedOplockLevel
    message.put_zeros(2);
    message.put_u32(IMPERSONATION);
    // SmbCreateFlags, Reserved
    message.put_zeros(8 + 8);
    message.put_u32(READ_AND_WRITE);
    // FileAttributes, ShareAccess
    message.put_zeros(4 + 4);
    message.put_u32(OVERWRITE);
    message.put_u32(NO_DIRECTORY);
    message.put_u16((HEADER + CREATE) as u16);
    message.put_u16(name.len() as u16);
    // CreateContextsOffset, CreateContextsLength
    message.put_zeros(4 + 4);
    emit_buffer(message, &name);
}

fn parse_create<'a>(reader: &mut Reader<'a>) -> Option<RequestBody<'a>> {
    reader.skip(CREATE - 2 - 12)?;
    let (offset, length) = (reader.u16()?, reader.u16()?);
    let (units, rest) = reader.at(offset.into(), length.into())?.as_chunks();
    if !rest.is_empty() {
        return None;
    }
    let units = units.iter().map(|unit| u16::from_le_bytes(*unit));
    let name = char::decode_utf16(units).collect::<Result<String, _>>().ok()?;
    Some(RequestBody::Create { name })
}

fn emit_write(message: &mut Vec<u8>, file: &FileId, offset: u64, data: &WriteData<'_>) {
    let (in_message, channel, channel_info, length) = match *data {
        WriteData::Message(data) => (data, Channel::None, &[][..], 0),
        WriteData::Channel { channel, channel_info, length } => (&[][..], channel, channel_info, length),
    };
    message.put_u16(49);
    let data_offset = if in_message.is_empty() { 0 } else { HEADER + TRANSFER };
    message.put_u16(data_offset as u16);
    message.put_u32(in_message.len() as u32);
    message.put_u64(offset);
    message.extend(file);
    emit_channel(message, channel, length, channel_info);
    // Flags
    message.put_u32(0);
    emit_buffer(message, if in_message.is_empty() { channel_info } else { in_message });
}

/// `Channel`, `RemainingBytes` and the place of the channel information, which follows the fixed part.
fn emit_channel(message: &mut Vec<u8>, channel: Channel, remaining: u32, channel_info: &[u8]) {
    message.put_u32(channel.value());
    message.put_u32(remaining);
    message.put_u16(if channel_info.is_empty() { 0 } else { (HEADER + TRANSFER) as u16 });
    message.put_u16(channel_info.len() as u16);
}

fn parse_channel<'a>(reader: &mut Reader<'a>) -> Option<(Channel, u32, &'a [u8])> {
    let channel = Channel::from_value(reader.u32()?).ok()?;
    let remaining = reader.u32()?;
    let (offset, length) = (reader.u16()?, reader.u16()?);
    Some((channel, remaining, reader.at(offset.into(), length.into())?))
}

/// Appends `Buffer`, which is at least one byte long.
fn emit_buffer(message: &mut Vec<u8>, buffer: &[u8]) {
    message.extend(buffer);
    if buffer.is_empty() {
        message.put_u8(0);
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn requests() -> Vec<Request<'static>> {
        const INFO: [u8; 16] = [7; 16];
        let file = [9; 16];
        let (offset, channel) = (1 << 40, Channel::RdmaV1Invalidate);
        let bodies = vec![
            RequestBody::Create { name: "ä file.txt".into() },
            RequestBody::Close { file },
            RequestBody::Read { file, offset, length: 5, channel: Channel::None, channel_info: &[] },
            RequestBody::Read { file, offset, length: 8 << 20, channel, channel_info: &INFO },
            RequestBody::Write { file, offset, data: WriteData::Message(b"data") },
            RequestBody::Write {
                file,
                offset,
                data: WriteData::Channel { channel, channel_info: &INFO, length: 8 << 20 },
            },
        ];
        (1..).zip(bodies).map(|(message_id, body)| Request { message_id, body }).collect()
    }

    #[test]
    fn requests_are_read_as_they_were_written() {
        for request in requests() {
            assert_eq!(Request::parse(&request.emit()), Some(request.clone()));
        }
    }

    #[test]
    fn truncated_requests_are_refused() {
        for request in requests() {
            let message = request.emit();
            // The last byte of a request without a buffer is not read.
            let needed = message.len() - usize::from(message.len() == HEADER + TRANSFER + 1);
            for length in 0..needed {
                assert_eq!(Request::parse(&message[..length]), None, "{request:?} of {length} bytes");
            }
        }
    }

    #[test]
    fn descriptor_is_where_linux_has_it() {
        let info = [0x11; 16];
        let data = WriteData::Channel { channel: Channel::RdmaV1Invalidate, channel_info: &info, length: 25 };
        let request = Request { message_id: 1, body: RequestBody::Write { file: [0; 16], offset: 0, data } };
        let message = request.emit();
        // Observed: the descriptor at 112, Length and DataOffset 0, RemainingBytes the size.
        assert_eq!(message[112..128], info);
        assert_eq!(message[66..72], [0; 6]);
        assert_eq!(message[100..104], 25_u32.to_le_bytes());
    }
}
