// SPDX-License-Identifier: MIT OR Apache-2.0

//! Management datagrams (MADs, IBTA Vol 1 §13.4).

use crate::{
    layout::layout,
    place::{Be16, Be32, Be64, Byte},
    truncated::Truncated,
    value::newtypes,
};

/// The attribute ID of a management datagram: the kind of CM message.
///
/// Source: rocev2 §11.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Attribute(pub u16);

impl Attribute {
    pub const CM_REQ: Self = Self(0x0010);
    pub const CM_MRA: Self = Self(0x0011);
    pub const CM_REJ: Self = Self(0x0012);
    pub const CM_REP: Self = Self(0x0013);
    pub const CM_RTU: Self = Self(0x0014);
    pub const CM_DREQ: Self = Self(0x0015);
    pub const CM_DREP: Self = Self(0x0016);
    pub const CM_SIDR_REQ: Self = Self(0x0017);
    pub const CM_SIDR_REP: Self = Self(0x0018);
    pub const CM_LAP: Self = Self(0x0019);
    pub const CM_APR: Self = Self(0x001A);
}

newtypes! {
    Attribute: u16, Attribute, |attribute: Attribute| attribute.0;
}

//= rocev2 §11
layout! {
    /// A MAD header.
    MadHeader, MadHeaderRepr, 24 bytes {
        base_version: u8 = Byte<0>;
        class: u8 = Byte<1>;
        class_version: u8 = Byte<2>;
        method: u8 = Byte<3>;
        status: u16 = Be16<4>;
        class_specific: u16 = Be16<6>;
        /// Chosen by the sender; responses repeat it.
        transaction_id: u64 = Be64<8>;
        attribute: Attribute = Be16<16>;
        /// Zero, unless the sender offers vendor options.
        attribute_modifier: u32 = Be32<20>;
    }
}

impl MadHeader<'_> {
    /// Returns whether this is a connection management message of the only version that exists.
    #[must_use]
    pub fn is_cm(&self) -> bool {
        let cm = MadHeaderRepr::cm(Attribute(0), 0);
        self.base_version() == cm.base_version
            && self.class() == cm.class
            && self.class_version() == cm.class_version
            && self.method() == cm.method
    }
}

impl MadHeaderRepr {
    /// Returns the header of a connection management message.
    #[must_use]
    pub const fn cm(attribute: Attribute, transaction_id: u64) -> Self {
        Self {
            base_version: 1,
            class: 7,
            class_version: 2,
            method: 3,
            status: 0,
            class_specific: 0,
            transaction_id,
            attribute,
            attribute_modifier: 0,
        }
    }
}

/// A management datagram.
#[derive(Clone, Copy, Debug)]
pub struct Mad<'a> {
    header: &'a [u8; MadHeader::LEN],
    body: &'a [u8; Mad::BODY_LEN],
}

impl<'a> Mad<'a> {
    /// Length of every management datagram in bytes.
    pub const LEN: usize = 256;
    /// Bytes behind the header.
    pub const BODY_LEN: usize = Mad::LEN - MadHeader::LEN;

    /// Returns a view of the first bytes of `bytes`.
    ///
    /// # Errors
    /// [`Truncated`] if there are fewer than [`Mad::LEN`].
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, Truncated> {
        let (header, rest) = bytes.split_first_chunk().ok_or(Truncated)?;
        let body = rest.first_chunk().ok_or(Truncated)?;
        Ok(Self { header, body })
    }

    /// Returns the MAD header.
    #[must_use]
    pub fn header(&self) -> MadHeader<'a> {
        MadHeader::new(self.header)
    }

    /// Returns the message behind the header.
    #[must_use]
    pub fn body(&self) -> &'a [u8; Mad::BODY_LEN] {
        self.body
    }
}

/// Writes the MAD header of a CM message; returns the room for the message. Never `None`: there is room.
pub(crate) fn begin(
    attribute: Attribute,
    transaction_id: u64,
    mad: &mut [u8; Mad::LEN],
) -> Option<&mut [u8; Mad::BODY_LEN]> {
    let (header, rest) = mad.split_first_chunk_mut()?;
    MadHeaderRepr::cm(attribute, transaction_id).emit(header);
    rest.first_chunk_mut()
}
