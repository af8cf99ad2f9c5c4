// SPDX-License-Identifier: MIT OR Apache-2.0

//! Copies a frame to send from its NET_BUFFER to a transmit slot, and inserts its tag there. IRQL <= `DISPATCH_LEVEL`.

use ndk_abi::ndis::{NDIS_STATUS, NDIS_STATUS_INVALID_LENGTH, NDIS_STATUS_INVALID_PACKET, NET_BUFFER};

use crate::nbl::{copy_data, data_len};
use crate::nic::vlan_tag::{self, TAG_LEN, Tag};

/// A frame to send.
#[derive(Clone, Copy)]
pub struct Outgoing {
    /// A NET_BUFFER of an NBL that the driver owns.
    pub net_buffer: *mut NET_BUFFER,
    /// The tag to insert.
    pub tag: Option<Tag>,
    /// The adapter's VLAN; 0 for none.
    pub vlan: u16,
    /// Longest frame on the wire with its Ethernet header, without a tag, in bytes.
    pub max_frame: usize,
}

impl Outgoing {
    /// Bytes to leave free in front of the frame for the tag.
    pub const fn room(&self) -> usize {
        if self.tag.is_some() { TAG_LEN } else { 0 }
    }

    /// Copies the frame, of at most `longest` bytes, into a slot, behind the [`room`](Self::room) for its tag. Returns the copy. A frame
    /// that the stack has tagged may be longer by that tag; where [`insert_tag_unless_tagged`](Self::insert_tag_unless_tagged) inserts no
    /// other tag, it needs no room for one.
    pub fn copy<'s>(&self, slot: &'s mut [u8], longest: usize) -> Result<&'s mut [u8], NDIS_STATUS> {
        if data_len(self.net_buffer) as usize <= longest {
            return self.copy_untagged(slot, longest);
        }
        if self.tag.is_some() && self.vlan == 0 {
            return Err(NDIS_STATUS_INVALID_LENGTH);
        }
        let place = slot.get_mut(..longest.saturating_add(TAG_LEN)).unwrap_or_default();
        let len = copy_data(self.net_buffer, place)?;
        let frame = place.get_mut(..len).unwrap_or_default();
        if Tag::of(frame).is_some() { Ok(frame) } else { Err(NDIS_STATUS_INVALID_LENGTH) }
    }

    /// Copies the frame, of at most `longest` bytes, into a slot, behind the room for its tag. A tag of the stack's counts as a part of the
    /// frame. Returns the copy.
    pub fn copy_untagged<'s>(&self, slot: &'s mut [u8], longest: usize) -> Result<&'s mut [u8], NDIS_STATUS> {
        let behind = slot.get_mut(self.room()..).unwrap_or_default();
        let longest = longest.min(behind.len());
        let place = behind.get_mut(..longest).unwrap_or_default();
        let len = copy_data(self.net_buffer, place)?;
        Ok(place.get_mut(..len).unwrap_or_default())
    }

    /// Inserts the tag in front of the `len` bytes that were copied into a slot. Returns the length including the tag.
    pub fn insert_tag(&self, slot: &mut [u8], len: usize) -> usize {
        if let Some(tag) = self.tag {
            vlan_tag::insert(slot, tag);
        }
        len.saturating_add(self.room())
    }

    /// Inserts the tag in front of the `len` bytes that were copied into a slot, unless the stack has already tagged the frame with the
    /// adapter's VLAN or VLAN ID 0: then sets the VLAN ID in that tag.
    ///
    /// # Errors
    /// `NDIS_STATUS_INVALID_PACKET`: the stack has tagged the frame for another VLAN.
    pub fn insert_tag_unless_tagged(&self, slot: &mut [u8], len: usize) -> Result<usize, NDIS_STATUS> {
        // A longer frame has a tag, and was copied without room for another.
        let start = if len > self.max_frame { 0 } else { self.room() };
        let frame = slot.get(start..).unwrap_or_default();
        match Tag::of(frame.get(..len).unwrap_or_default()) {
            Some(present) if self.vlan != 0 => {
                if present.id() != 0 && present.id() != self.vlan {
                    return Err(NDIS_STATUS_INVALID_PACKET);
                }
                // Copied again, without room for another tag.
                let len = copy_data(self.net_buffer, slot)?;
                vlan_tag::set_id(slot, self.vlan);
                Ok(len)
            }
            // The device can write to the slot, and has removed the tag.
            _ if len > self.max_frame => Err(NDIS_STATUS_INVALID_LENGTH),
            _ => Ok(self.insert_tag(slot, len)),
        }
    }
}
