// SPDX-License-Identifier: MIT OR Apache-2.0

//! 802.1Q tags: what the stack requests for a frame, and what a miniport reports of a received one, from which it removes the tag.
//! (WDK: `NDIS_NET_BUFFER_LIST_8021Q_INFO`, "Receiving 802.1Q-Marked Packets")

use ndk_abi::ndis::{NDIS_MAC_OPTION_8021P_PRIORITY, NDIS_MAC_OPTION_8021Q_VLAN};

use crate::{
    offload::ReceivedFrame,
    rules::{self, require},
};

const USER_PRIORITY: u32 = 0x7;
const VLAN_ID: u32 = 0xfff0;
const VLAN_ID_SHIFT: u32 = 4;

/// Returns `Ieee8021QNetBufferListInfo` with a priority and a VLAN ID.
#[must_use]
pub const fn tag(priority: u8, id: u16) -> u32 {
    priority as u32 & USER_PRIORITY | (id as u32) << VLAN_ID_SHIFT & VLAN_ID
}

/// Checks what a miniport with these `MacOptions` reports of a received frame.
pub(crate) fn require_true(frame: &ReceivedFrame, options: u32) {
    let info = frame.priority_vlan;
    let allowed = |option: u32, bits: u32| if options & option == 0 { 0 } else { bits };
    let (priority, vlan) = (NDIS_MAC_OPTION_8021P_PRIORITY, NDIS_MAC_OPTION_8021Q_VLAN);
    let known = allowed(priority, USER_PRIORITY) | allowed(vlan, VLAN_ID);
    require(info & !known == 0, rules::MAC_OPTIONS, || {
        format!("Ieee8021QNetBufferListInfo of a received frame is {info:#x}, MacOptions are {options:#x}")
    });
}
