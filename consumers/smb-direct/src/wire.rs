// SPDX-License-Identifier: MIT OR Apache-2.0

//! The three messages of SMB Direct ([MS-SMBD] 2.2).
//!
//! No message says what it is: the first one of the initiator is a Negotiate Request, the first answer a Negotiate
//! Response, and all others are Data Transfer messages.

use crate::codec::{Reader, Writer};
use crate::reason::Reason;

/// Version 1.0, the only one.
pub const VERSION: u16 = 0x0100;

/// Smallest `MaxReceiveSize` in bytes.
pub const MIN_RECEIVE_SIZE: u32 = 128;

/// Smallest `MaxFragmentedSize` in bytes.
pub const MIN_FRAGMENTED_SIZE: u32 = 131_072;

/// Offset of payload in messages of this crate, in bytes: the header and 4 bytes of padding.
pub const DATA_OFFSET: u32 = 24;

/// `Status` values of the Negotiate Response, of [MS-ERREF].
pub mod status {
    /// The negotiation succeeded.
    pub const SUCCESS: u32 = 0;
    /// No common version.
    pub const NOT_SUPPORTED: u32 = 0xC000_00BB;
    /// No receive could be posted.
    pub const INSUFFICIENT_RESOURCES: u32 = 0xC000_009A;
}

/// First message of the initiator.
//= R-SMBD-1, R-SMBD-2
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NegotiateRequest {
    pub min_version: u16,
    pub max_version: u16,
    /// Number of credits wanted from the receiver.
    pub credits_requested: u16,
    /// Largest message that the sender wants to send, in bytes.
    pub preferred_send_size: u32,
    /// Largest message that the sender can receive, in bytes.
    pub max_receive_size: u32,
    /// Largest payload that the sender can reassemble, in bytes.
    pub max_fragmented_size: u32,
}

impl NegotiateRequest {
    /// Length in bytes.
    pub const LEN: usize = 20;

    /// Reads a message. Bytes behind the last field are ignored.
    ///
    /// # Errors
    /// [`Reason::Truncated`].
    //= R-SMBD-15
    pub fn parse(message: &[u8]) -> Result<Self, Reason> {
        Self::read(&mut Reader::new(message)).ok_or(Reason::Truncated)
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (min_version, max_version, _reserved) = (reader.u16()?, reader.u16()?, reader.u16()?);
        Some(Self {
            min_version,
            max_version,
            credits_requested: reader.u16()?,
            preferred_send_size: reader.u32()?,
            max_receive_size: reader.u32()?,
            max_fragmented_size: reader.u32()?,
        })
    }

    /// Writes the message; the reserved field is zero.
    pub fn emit(&self, bytes: &mut [u8; Self::LEN]) {
        let mut writer = Writer::new(bytes);
        writer.u16(self.min_version);
        writer.u16(self.max_version);
        writer.u16(0);
        writer.u16(self.credits_requested);
        writer.u32(self.preferred_send_size);
        writer.u32(self.max_receive_size);
        writer.u32(self.max_fragmented_size);
    }
}

/// Answer to a [`NegotiateRequest`].
//= R-SMBD-1, R-SMBD-2
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NegotiateResponse {
    pub min_version: u16,
    pub max_version: u16,
    pub negotiated_version: u16,
    /// Number of credits wanted from the receiver.
    pub credits_requested: u16,
    /// Number of credits granted to the receiver.
    pub credits_granted: u16,
    /// An NTSTATUS; see [`status`].
    pub status: u32,
    /// Largest RDMA transfer for one request, in bytes.
    pub max_read_write_size: u32,
    /// Largest message that the sender will send, in bytes.
    pub preferred_send_size: u32,
    /// Largest message that the sender can receive, in bytes.
    pub max_receive_size: u32,
    /// Largest payload that the sender can reassemble, in bytes.
    pub max_fragmented_size: u32,
}

impl NegotiateResponse {
    /// Length in bytes.
    pub const LEN: usize = 32;

    /// Reads a message. Bytes behind the last field are ignored.
    ///
    /// # Errors
    /// [`Reason::Truncated`].
    //= R-SMBD-25
    pub fn parse(message: &[u8]) -> Result<Self, Reason> {
        Self::read(&mut Reader::new(message)).ok_or(Reason::Truncated)
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (min_version, max_version) = (reader.u16()?, reader.u16()?);
        let (negotiated_version, _reserved) = (reader.u16()?, reader.u16()?);
        Some(Self {
            min_version,
            max_version,
            negotiated_version,
            credits_requested: reader.u16()?,
            credits_granted: reader.u16()?,
            status: reader.u32()?,
            max_read_write_size: reader.u32()?,
            preferred_send_size: reader.u32()?,
            max_receive_size: reader.u32()?,
            max_fragmented_size: reader.u32()?,
        })
    }

    /// Writes the message; the reserved field is zero.
    pub fn emit(&self, bytes: &mut [u8; Self::LEN]) {
        let mut writer = Writer::new(bytes);
        writer.u16(self.min_version);
        writer.u16(self.max_version);
        writer.u16(self.negotiated_version);
        writer.u16(0);
        writer.u16(self.credits_requested);
        writer.u16(self.credits_granted);
        writer.u32(self.status);
        writer.u32(self.max_read_write_size);
        writer.u32(self.preferred_send_size);
        writer.u32(self.max_receive_size);
        writer.u32(self.max_fragmented_size);
    }
}

/// Header of a Data Transfer message.
//= R-SMBD-1, R-SMBD-2
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataTransfer {
    /// Number of credits wanted from the receiver in all.
    pub credits_requested: u16,
    /// Number of credits granted to the receiver in addition.
    pub credits_granted: u16,
    /// [`Self::RESPONSE_REQUESTED`] or 0.
    pub flags: u16,
    /// Payload of the same upper-layer message that follows in later messages, in bytes.
    pub remaining_data_length: u32,
    /// Offset of the payload in this message, in bytes; 0 if there is none.
    pub data_offset: u32,
    /// Length of the payload in this message, in bytes.
    pub data_length: u32,
}

impl DataTransfer {
    /// Length of the header in bytes, without padding.
    pub const LEN: usize = 20;

    /// `SMB_DIRECT_RESPONSE_REQUESTED`: the receiver is to send a message promptly.
    pub const RESPONSE_REQUESTED: u16 = 0x0001;

    /// Reads a message and returns its header and its payload.
    ///
    /// # Errors
    /// [`Reason::Truncated`], [`Reason::Misaligned`], [`Reason::OutOfBounds`], [`Reason::Overlap`].
    pub fn parse(message: &[u8]) -> Result<(Self, &[u8]), Reason> {
        let header = Self::read(&mut Reader::new(message)).ok_or(Reason::Truncated)?;
        Ok((header, header.payload(message)?))
    }

    //= R-SMBD-36
    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (credits_requested, credits_granted) = (reader.u16()?, reader.u16()?);
        let (flags, _reserved) = (reader.u16()?, reader.u16()?);
        Some(Self {
            credits_requested,
            credits_granted,
            flags,
            remaining_data_length: reader.u32()?,
            data_offset: reader.u32()?,
            data_length: reader.u32()?,
        })
    }

    fn payload<'a>(&self, message: &'a [u8]) -> Result<&'a [u8], Reason> {
        let (offset, length) = (self.data_offset as usize, self.data_length as usize);
        //= R-SMBD-38
        if !offset.is_multiple_of(8) {
            return Err(Reason::Misaligned);
        }
        //= R-SMBD-39
        let end = offset.checked_add(length).ok_or(Reason::OutOfBounds)?;
        let payload = message.get(offset..end).ok_or(Reason::OutOfBounds)?;
        //= R-SMBD-40
        if !payload.is_empty() && offset < Self::LEN {
            return Err(Reason::Overlap);
        }
        Ok(payload)
    }

    /// Writes the header; the reserved field is zero.
    pub fn emit(&self, bytes: &mut [u8; Self::LEN]) {
        let mut writer = Writer::new(bytes);
        writer.u16(self.credits_requested);
        writer.u16(self.credits_granted);
        writer.u16(self.flags);
        writer.u16(0);
        writer.u32(self.remaining_data_length);
        writer.u32(self.data_offset);
        writer.u32(self.data_length);
    }
}
