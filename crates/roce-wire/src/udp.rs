//! UDP.

use super::{Truncated, field};

mod at {
    pub const SOURCE_PORT: usize = 0;
    pub const DESTINATION_PORT: usize = 2;
    pub const LENGTH: usize = 4;
    pub const CHECKSUM: usize = 6;
}

/// A UDP header.
#[derive(Clone, Copy, Debug)]
pub struct Udp<'a>(&'a [u8; Udp::LEN]);

impl<'a> Udp<'a> {
    pub const LEN: usize = 8;

    #[inline]
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, Truncated> {
        field::header(bytes).map(Self)
    }

    #[inline]
    pub fn new(bytes: &'a [u8; Udp::LEN]) -> Self {
        Self(bytes)
    }

    #[inline]
    pub fn as_bytes(&self) -> &'a [u8; Udp::LEN] {
        self.0
    }

    #[inline]
    pub fn source_port(&self) -> u16 {
        field::be16::<{ at::SOURCE_PORT }, _>(self.0)
    }

    #[inline]
    pub fn destination_port(&self) -> u16 {
        field::be16::<{ at::DESTINATION_PORT }, _>(self.0)
    }

    /// Bytes of header and payload.
    #[inline]
    pub fn length(&self) -> u16 {
        field::be16::<{ at::LENGTH }, _>(self.0)
    }

    /// 0 when the sender made none, which RoCE permits over IPv6 too.
    #[inline]
    pub fn checksum(&self) -> u16 {
        field::be16::<{ at::CHECKSUM }, _>(self.0)
    }
}

/// Summary of a UDP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpRepr {
    pub source_port: u16,
    pub destination_port: u16,
    /// Bytes behind the header, at most 65527.
    pub payload_len: u16,
    /// As on the wire; 0 for none.
    pub checksum: u16,
}

impl UdpRepr {
    pub fn parse(view: &Udp<'_>) -> Self {
        Self {
            source_port: view.source_port(),
            destination_port: view.destination_port(),
            payload_len: view.length().saturating_sub(Udp::LEN as u16),
            checksum: view.checksum(),
        }
    }

    pub fn emit(&self, header: &mut [u8; Udp::LEN]) {
        field::put16::<{ at::SOURCE_PORT }, _>(header, self.source_port);
        field::put16::<{ at::DESTINATION_PORT }, _>(header, self.destination_port);
        patch_length(header, self.payload_len.saturating_add(Udp::LEN as u16));
        field::put16::<{ at::CHECKSUM }, _>(header, self.checksum);
    }
}

/// Sets the length (header and payload) of a header written before.
#[inline]
pub(super) fn patch_length(header: &mut [u8; Udp::LEN], length: u16) {
    field::put16::<{ at::LENGTH }, _>(header, length);
}

/// Sets the field that the ICRC does not cover to ones.
#[inline]
pub(crate) const fn mask_variable(header: &mut [u8; Udp::LEN]) {
    //= rocev2 §2
    field::put16::<{ at::CHECKSUM }, _>(header, 0xFFFF);
}
