// SPDX-License-Identifier: MIT OR Apache-2.0

//! READ and WRITE messages of other implementations, changed where their data take another way: by RDMA instead of in the
//! message, or the reverse. All other fields stay as they are.
//!
//! The messages are ones that [`Request::parse`](super::Request::parse) and [`Response::parse`](super::Response::parse) read:
//! without a compound, and at least as long as the fixed part.

use alloc::vec::Vec;

use smb_direct::Channel;

use super::codec::{Reader, Writer};
use super::header::{HEADER, Header};

/// End of the fixed part of a request, and of a response to READ.
const REQUEST: usize = HEADER + 48;
const RESPONSE: usize = HEADER + 16;
/// Offset of `Channel`, `RemainingBytes` and the place of the channel information: of READ, and of WRITE.
const READ_CHANNEL: usize = HEADER + 36;
const WRITE_CHANNEL: usize = HEADER + 32;
/// Offset of `DataOffset` and `Length` of WRITE.
const WRITE_DATA: usize = HEADER + 2;
/// Offset of `DataLength` and `DataRemaining` of a response to READ.
const RESPONSE_DATA: usize = HEADER + 4;
/// Offset of `Flags` in the header, and `SMB2_FLAGS_SIGNED`.
const FLAGS: usize = 16;
const SIGNED: u32 = 8;

/// Returns whether the message is signed: it cannot be changed.
#[must_use]
pub fn is_signed(message: &[u8]) -> bool {
    Reader::new(message, FLAGS).u32().is_some_and(|flags| flags & SIGNED != 0)
}

/// Returns `MessageId` and `Status` of a response to READ or WRITE, and `None` of any other message.
#[must_use]
pub fn transfer_response(message: &[u8]) -> Option<(u64, u32)> {
    let header = Header::parse(message).filter(|header| header.is_response)?;
    header.command.transfers().then_some((header.message_id, header.status))
}

/// Returns a READ whose data are wanted in the response.
#[must_use]
pub fn read_without_channel(message: &[u8]) -> Vec<u8> {
    let mut changed = message[..REQUEST].to_vec();
    put(&mut changed, READ_CHANNEL, &channel(Channel::None, 0, &[]));
    // Buffer is at least one byte long.
    changed.push(0);
    changed
}

/// Returns a READ whose data are wanted in the memory that `channel_info` describes.
#[must_use]
pub fn read_with_channel(message: &[u8], by: Channel, channel_info: &[u8]) -> Vec<u8> {
    let mut changed = message[..REQUEST].to_vec();
    put(&mut changed, READ_CHANNEL, &channel(by, 0, channel_info));
    changed.extend(channel_info);
    changed
}

/// Returns a WRITE with `data` in the message.
#[must_use]
pub fn write_without_channel(message: &[u8], data: &[u8]) -> Vec<u8> {
    let mut changed = message[..REQUEST].to_vec();
    put(&mut changed, WRITE_DATA, &(REQUEST as u16).to_le_bytes());
    put(&mut changed, WRITE_DATA + 2, &(data.len() as u32).to_le_bytes());
    put(&mut changed, WRITE_CHANNEL, &channel(Channel::None, 0, &[]));
    changed.extend(data);
    changed
}

/// Returns a WRITE of `length` bytes in the memory that `channel_info` describes.
#[must_use]
pub fn write_with_channel(message: &[u8], by: Channel, channel_info: &[u8], length: u32) -> Vec<u8> {
    let mut changed = message[..REQUEST].to_vec();
    put(&mut changed, WRITE_DATA, &[0; 2 + 4]);
    put(&mut changed, WRITE_CHANNEL, &channel(by, length, channel_info));
    changed.extend(channel_info);
    changed
}

/// Returns the response to a READ whose `length` bytes were transferred by RDMA.
#[must_use]
pub fn read_response_without_data(message: &[u8], length: u32) -> Vec<u8> {
    read_response(message, &[], length)
}

/// Returns the response to a READ with its data.
#[must_use]
pub fn read_response_with_data(message: &[u8], data: &[u8]) -> Vec<u8> {
    read_response(message, data, 0)
}

fn read_response(message: &[u8], data: &[u8], remaining: u32) -> Vec<u8> {
    let mut changed = message[..RESPONSE].to_vec();
    changed[HEADER + 2] = RESPONSE as u8;
    put(&mut changed, RESPONSE_DATA, &(data.len() as u32).to_le_bytes());
    put(&mut changed, RESPONSE_DATA + 4, &remaining.to_le_bytes());
    changed.extend(data);
    changed
}

/// `Channel`, `RemainingBytes`, and offset and length of the channel information, which follows the fixed part.
fn channel(channel: Channel, remaining: u32, channel_info: &[u8]) -> Vec<u8> {
    let mut fields = Vec::new();
    fields.put_u32(channel.value());
    fields.put_u32(remaining);
    fields.put_u16(if channel_info.is_empty() { 0 } else { REQUEST as u16 });
    fields.put_u16(channel_info.len() as u16);
    fields
}

fn put(message: &mut [u8], at: usize, field: &[u8]) {
    message[at..at + field.len()].copy_from_slice(field);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::smb2::{Request, RequestBody, Response, ResponseBody, WriteData};

    const FILE: [u8; 16] = [9; 16];
    const INFO: [u8; 32] = [7; 32];
    const BY: Channel = Channel::RdmaV1Invalidate;

    fn read(channel: Channel, channel_info: &[u8]) -> Vec<u8> {
        let body = RequestBody::Read { file: FILE, offset: 1 << 40, length: 5000, channel, channel_info };
        Request { message_id: 3, body }.emit()
    }

    fn write(data: WriteData<'_>) -> Vec<u8> {
        Request { message_id: 4, body: RequestBody::Write { file: FILE, offset: 1 << 40, data } }.emit()
    }

    #[test]
    fn reads_get_and_lose_a_channel() {
        assert_eq!(read_with_channel(&read(Channel::None, &[]), BY, &INFO), read(BY, &INFO));
        assert_eq!(read_without_channel(&read(BY, &INFO)), read(Channel::None, &[]));
    }

    #[test]
    fn writes_get_and_lose_a_channel() {
        let (plain, by_channel) = (
            write(WriteData::Message(&[5; 5000])),
            write(WriteData::Channel { channel: BY, channel_info: &INFO, length: 5000 }),
        );
        assert_eq!(write_with_channel(&plain, BY, &INFO, 5000), by_channel);
        assert_eq!(write_without_channel(&by_channel, &[5; 5000]), plain);
    }

    #[test]
    fn responses_get_and_lose_data() {
        let response = |data: &[u8], transferred| {
            Response { message_id: 3, body: ResponseBody::Read { data, transferred } }.emit()
        };
        let (plain, by_channel) = (response(&[5; 5000], 0), response(&[], 5000));
        assert_eq!(read_response_without_data(&plain, 5000), by_channel);
        assert_eq!(read_response_with_data(&by_channel, &[5; 5000]), plain);
        assert_eq!(transfer_response(&plain), Some((3, 0)));
        assert_eq!(transfer_response(&read(Channel::None, &[])), None, "a request");
        let closed = Response { message_id: 3, body: ResponseBody::Close }.emit();
        assert_eq!(transfer_response(&closed), None);
    }

    #[test]
    fn fields_that_have_nothing_to_do_with_the_channel_stay() {
        let mut message = read(Channel::None, &[]);
        // CreditCharge, Credits, TreeId, SessionId, Padding, MinimumCount
        for at in [6, 14, 36, 40, 66, 96] {
            message[at] = 0xA5;
        }
        let changed = read_without_channel(&read_with_channel(&message, BY, &INFO));
        assert_eq!(changed, message);
        assert!(!is_signed(&message));
        message[FLAGS] |= 8;
        assert!(is_signed(&message));
    }
}
