// SPDX-License-Identifier: MIT OR Apache-2.0

//! Buffer descriptors: memory that a peer offers for RDMA ([MS-SMBD] 2.2.3.1, 3.1.4.5, 3.1.4.6).

use core::fmt;

use crate::codec::{Reader, Writer};

/// Steering tag of registered memory: a remote token of NDKPI, an R_Key of RoCE.
pub type Token = u32;

/// `SMB_DIRECT_BUFFER_DESCRIPTOR_V1`: a piece of registered memory.
//= R-SMBD-75
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferDescriptor {
    /// Address of the first byte as the provider of the memory counts.
    pub offset: u64,
    pub token: Token,
    /// Length in bytes.
    pub length: u32,
}

impl BufferDescriptor {
    /// Length of a descriptor in bytes.
    pub const LEN: usize = 16;

    /// Reads a descriptor.
    #[must_use]
    pub fn parse(bytes: &[u8; Self::LEN]) -> Self {
        Self::read(&mut Reader::new(bytes)).unwrap_or(Self { offset: 0, token: 0, length: 0 })
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        Some(Self { offset: reader.u64()?, token: reader.u32()?, length: reader.u32()? })
    }

    /// Writes the descriptor.
    pub fn emit(&self, bytes: &mut [u8; Self::LEN]) {
        let mut writer = Writer::new(bytes);
        writer.u64(self.offset);
        writer.u32(self.token);
        writer.u32(self.length);
    }
}

/// Why descriptors cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DescriptorError {
    /// The channel information is empty, or not a whole number of descriptors.
    Length,
    /// There are more descriptors than the consumer allows.
    TooMany,
    /// A descriptor's memory extends beyond the end of the address space, or the lengths exceed 32 bits together.
    Overflow,
    /// The transfer extends beyond the memory that the descriptors offer.
    OutOfBounds,
    /// The channel is none that this crate knows.
    Channel,
}

impl fmt::Display for DescriptorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Length => "the channel information is not a whole number of descriptors",
            Self::TooMany => "too many descriptors",
            Self::Overflow => "the memory of a descriptor wraps",
            Self::OutOfBounds => "the transfer exceeds the memory that is offered",
            Self::Channel => "unknown channel",
        })
    }
}

impl core::error::Error for DescriptorError {}

/// How the peer offers memory: `Channel` of an SMB2 READ or WRITE request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// `SMB2_CHANNEL_NONE`: data are in the message.
    None,
    /// `SMB2_CHANNEL_RDMA_V1`: the peer invalidates its tokens.
    RdmaV1,
    /// `SMB2_CHANNEL_RDMA_V1_INVALIDATE`: the answer invalidates the token of the first descriptor.
    RdmaV1Invalidate,
}

impl Channel {
    /// Returns the channel of this number.
    ///
    /// # Errors
    /// [`DescriptorError::Channel`].
    pub const fn from_value(value: u32) -> Result<Self, DescriptorError> {
        match value {
            0 => Ok(Self::None),
            1 => Ok(Self::RdmaV1),
            2 => Ok(Self::RdmaV1Invalidate),
            _ => Err(DescriptorError::Channel),
        }
    }

    /// Returns the number of the channel.
    #[must_use]
    pub const fn value(self) -> u32 {
        match self {
            Self::None => 0,
            Self::RdmaV1 => 1,
            Self::RdmaV1Invalidate => 2,
        }
    }

    /// Returns the token that the answer to a request is to invalidate.
    //= R-SMBD-80
    #[must_use]
    pub fn invalidated_token(self, descriptors: &Descriptors<'_>) -> Option<Token> {
        match self {
            Self::None | Self::RdmaV1 => None,
            Self::RdmaV1Invalidate => descriptors.iter().next().map(|first| first.token),
        }
    }
}

/// The descriptors of a request, in sequence one buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptors<'a> {
    array: &'a [[u8; BufferDescriptor::LEN]],
    length: u32,
}

impl<'a> Descriptors<'a> {
    /// Reads the channel information of a request, which may hold `max` descriptors.
    ///
    /// # Errors
    /// [`DescriptorError::Length`], [`DescriptorError::TooMany`], [`DescriptorError::Overflow`].
    //= R-SMBD-79
    pub fn parse(channel_info: &'a [u8], max: usize) -> Result<Self, DescriptorError> {
        let (array, rest) = channel_info.as_chunks();
        if array.is_empty() || !rest.is_empty() {
            return Err(DescriptorError::Length);
        }
        if array.len() > max {
            return Err(DescriptorError::TooMany);
        }
        let mut length = 0u32;
        for descriptor in array.iter().map(BufferDescriptor::parse) {
            descriptor.offset.checked_add(u64::from(descriptor.length)).ok_or(DescriptorError::Overflow)?;
            length = length.checked_add(descriptor.length).ok_or(DescriptorError::Overflow)?;
        }
        Ok(Self { array, length })
    }

    /// Returns the length of the buffer in bytes.
    #[must_use]
    pub const fn length(&self) -> u32 {
        self.length
    }

    /// Returns the descriptors in order.
    pub fn iter(&self) -> impl Iterator<Item = BufferDescriptor> + use<'a> {
        self.array.iter().map(BufferDescriptor::parse)
    }

    /// Returns the pieces of registered memory that hold `length` bytes from `offset` of the buffer, in order: one RDMA
    /// operation each. Pieces of no bytes are left out.
    ///
    /// # Errors
    /// [`DescriptorError::OutOfBounds`] if the buffer ends before.
    //= R-SMBD-76, R-SMBD-77
    pub fn segments(
        &self,
        offset: u32,
        length: u32,
    ) -> Result<impl Iterator<Item = BufferDescriptor> + use<'a>, DescriptorError> {
        //= R-SMBD-78
        if offset.checked_add(length).is_none_or(|end| end > self.length) {
            return Err(DescriptorError::OutOfBounds);
        }
        let segments = self.iter().scan((offset, length), |(skip, left), descriptor| {
            let start = descriptor.length.min(*skip);
            *skip -= start;
            let length = (descriptor.length - start).min(*left);
            *left -= length;
            let offset = descriptor.offset.wrapping_add(u64::from(start));
            Some(BufferDescriptor { offset, token: descriptor.token, length })
        });
        Ok(segments.filter(|segment| segment.length > 0))
    }
}
