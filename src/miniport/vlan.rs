// SPDX-License-Identifier: MIT OR Apache-2.0

//! The adapter's VLAN, and priorities of frames: the tags that are inserted into sent frames, the received frames that the adapter accepts,
//! and the tag information that is reported to NDIS. IRQL <= `DISPATCH_LEVEL`. (WDK: "Sending 802.1Q-Marked Packets", "Receiving
//! 802.1Q-Marked Packets", `OID_GEN_VLAN_ID`, `*PriorityVLANTag`)
//!
//! The RDMA engine does not handle tags: its frames belong to the adapter's VLAN, with priority 0. A frame that arrives with the tag of
//! another VLAN is not an RDMA frame of this adapter.

use core::sync::atomic::{AtomicU16, Ordering};

use ndk_abi::ndis::{
    NDIS_MAC_OPTION_8021P_PRIORITY, NDIS_MAC_OPTION_8021Q_VLAN, NDIS_STATUS, NDIS_STATUS_INVALID_PACKET,
};

use crate::nic::vlan_tag::Tag;

/// `NDIS_NET_BUFFER_LIST_8021Q_INFO`: bits of `UserPriority`, `CanonicalFormatId`, `VlanId`.
const USER_PRIORITY: usize = 0x7;
const CANONICAL_FORMAT: usize = 0x8;
const VLAN_ID_SHIFT: u32 = 4;
const VLAN_ID: usize = 0xFFF;
/// The largest ID of a VLAN. (IEEE 802.1Q §9.6)
pub const MAX_ID: u16 = 4094;

/// Link-local and bridge-group addresses, 01-80-C2-00-00-00 to -2F: frames that bridges do not forward, and registration protocols. These
/// frames belong to no VLAN. (IEEE 802.1Q §8.6.3, §10.5)
const BRIDGE_GROUPS: [u8; 5] = [0x01, 0x80, 0xC2, 0x00, 0x00];
const LAST_BRIDGE_GROUP: u8 = 0x2F;

/// VLAN and priority of an adapter.
pub struct Vlan {
    sets_priority: bool,
    sets_id: bool,
    /// VLAN ID; 0 if the adapter is in no VLAN.
    id: AtomicU16,
}

impl Vlan {
    /// `setting` is the value of `*PriorityVLANTag`, `id` that of `VlanID`.
    pub const fn new(setting: u32, id: u16) -> Self {
        let sets_id = setting & 2 != 0;
        Self { sets_priority: setting & 1 != 0, sets_id, id: AtomicU16::new(if sets_id { id } else { 0 }) }
    }

    /// Returns the VLAN and priority bits of `MacOptions`.
    pub const fn mac_options(&self) -> u32 {
        let priority = if self.sets_priority { NDIS_MAC_OPTION_8021P_PRIORITY } else { 0 };
        if self.sets_id { priority | NDIS_MAC_OPTION_8021Q_VLAN } else { priority }
    }

    /// Returns the ID of the adapter's VLAN; 0 if it has none.
    pub fn id(&self) -> u16 {
        self.id.load(Ordering::Relaxed)
    }

    /// Sets the ID, at most [`MAX_ID`]; `false` if VLANs are off.
    pub fn set_id(&self, id: u16) -> bool {
        if self.sets_id {
            self.id.store(id, Ordering::Relaxed);
        }
        self.sets_id
    }

    /// Returns the VLAN whose frames the device must deliver, 0 for frames without a VLAN; `None` for the frames of all
    /// VLANs.
    pub fn filter(&self) -> Option<u16> {
        match self.id() {
            0 if self.sets_id => None,
            id => Some(id),
        }
    }

    /// Returns the tag of frames that the driver sends without an NBL.
    pub fn own_tag(&self) -> Option<Tag> {
        match self.id() {
            0 => None,
            id => Some(Tag::new(0, id)),
        }
    }

    /// Returns the tag that an NBL requests for its frames by `Ieee8021QNetBufferListInfo`.
    ///
    /// # Errors
    /// The status with which the NBL fails.
    pub fn requested(&self, info: usize) -> Result<Option<Tag>, NDIS_STATUS> {
        let own = self.id();
        let id = if self.sets_id { info.wrapping_shr(VLAN_ID_SHIFT) & VLAN_ID } else { 0 } as u16;
        let is_foreign = own != 0 && id != 0 && id != own;
        if info & CANONICAL_FORMAT != 0 || is_foreign || id > MAX_ID {
            return Err(NDIS_STATUS_INVALID_PACKET);
        }
        let id = if own == 0 { id } else { own };
        let priority = if self.sets_priority { info & USER_PRIORITY } else { 0 } as u16;
        Ok((id | priority != 0).then_some(Tag::new(priority, id)))
    }

    /// Whether a received frame with this tag is in the adapter's VLAN, so that it may be an RDMA frame.
    pub fn has_frame(&self, tag: Option<Tag>) -> bool {
        let own = self.id();
        match tag {
            None => own == 0,
            Some(tag) => tag.id() == own,
        }
    }

    /// Whether a received frame that had this tag is indicated. If VLANs are on and the adapter is in no VLAN, it accepts the frames of all
    /// VLANs.
    pub fn admits(&self, tag: Option<Tag>, frame: &[u8]) -> bool {
        self.has_frame(tag)
            || self.filter().is_none()
            || tag.is_none()
                && frame.starts_with(&BRIDGE_GROUPS)
                && frame.get(BRIDGE_GROUPS.len()).is_some_and(|&last| last <= LAST_BRIDGE_GROUP)
    }

    /// Returns `Ieee8021QNetBufferListInfo` of a received frame that had this tag.
    pub fn report(&self, tag: Option<Tag>) -> usize {
        let Some(tag) = tag else { return 0 };
        let priority = if self.sets_priority { usize::from(tag.priority()) } else { 0 };
        let id = if self.sets_id { usize::from(tag.id()) } else { 0 };
        id.wrapping_shl(VLAN_ID_SHIFT) | priority
    }
}
