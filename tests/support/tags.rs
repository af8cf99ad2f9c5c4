// SPDX-License-Identifier: MIT OR Apache-2.0

//! 802.1Q tags on the image: priorities and VLANs of sent and received frames, an adapter's own VLAN, the device's filter, and
//! tagged frames with checksum and segmentation offloads.

use std::time::Duration;

use crate::{packets::deliver_requests, tcp::MACS};
use lab::{
    image,
    testbed::{Options, Testbed},
};
use ndis_sim::{Keyword, NdisHost as _, ReceivedFrame, SendRequest};
use ndk_abi::ndis::{NDIS_STATUS, NDIS_STATUS_SUCCESS};

pub const SETTING: &str = "*PriorityVLANTag";
pub const VLAN: &str = "VlanID";
pub const MOMENT: Duration = Duration::from_secs(5);

/// Event number of the driver's event table.
pub const COMMAND_REFUSED: u32 = 29;

pub fn options() -> Options {
    Options { path_mtu: 1024, ..Options::default() }
}

pub fn keyword(name: &'static str, value: u32) -> (&'static str, Keyword) {
    (name, Keyword::Text(value.to_string()))
}

/// Starts both hosts; the adapter of the second is in VLAN `id`, that of the first in none.
pub fn second_in_vlan(id: u16, options: &Options) -> Option<Testbed> {
    let mut bed = Testbed::new(&image()?, options).expect("the image can be loaded");
    bed.machines()[1].host().set_keyword(VLAN, Keyword::Text(id.to_string()));
    bed.start().expect("both drivers start");
    Some(bed)
}

/// A frame of 100 bytes from one host to the other, and the same with a tag in its data.
pub fn frame(from: usize) -> Vec<u8> {
    let mut frame = [&MACS[1 - from][..], &MACS[from][..], &[0x88, 0xb5]].concat();
    frame.resize(100, 7);
    frame
}

pub fn tagged(mut frame: Vec<u8>, priority: u16, id: u16) -> Vec<u8> {
    frame.splice(12..12, [[0x81, 0], (priority << 13 | id).to_be_bytes()].concat());
    frame
}

pub fn requesting(priority_vlan: u32) -> SendRequest {
    SendRequest { priority_vlan, ..SendRequest::default() }
}

/// Sends a frame with a request. Returns its status, and what the other host receives: the bytes and the reported tag.
pub fn send(
    bed: &Testbed,
    from: usize,
    frame: Vec<u8>,
    priority_vlan: u32,
) -> (NDIS_STATUS, Vec<(Vec<u8>, u32)>) {
    let (statuses, received) = deliver_requests(bed, from, vec![(frame, requesting(priority_vlan))]);
    let pair = |frame: ReceivedFrame| (frame.bytes, frame.priority_vlan);
    (statuses[0], received.into_iter().map(pair).collect())
}

pub const OK: NDIS_STATUS = NDIS_STATUS_SUCCESS;
