// SPDX-License-Identifier: MIT OR Apache-2.0

//! The receive filters of the device, on the image: what NDIS sets reaches the device, also after a reset and a low-power state,
//! and devices that refuse filters or do not answer commands.

use std::time::Duration;

use crate::bed::miniport;
use lab::testbed::Testbed;
use ndk_abi::ndis::{
    NDIS_PACKET_TYPE_ALL_MULTICAST, NDIS_PACKET_TYPE_DIRECTED, NDIS_PACKET_TYPE_MULTICAST,
    NDIS_PACKET_TYPE_PROMISCUOUS, NDIS_STATUS_SUCCESS, OID_802_3_MULTICAST_LIST,
    OID_GEN_CURRENT_PACKET_FILTER, OID_GEN_RCV_OK,
};
use nt_sim::host::TimerResolution;

/// The clock of Windows: threads wake with its ticks, every 15.6 ms.
pub const WINDOWS: TimerResolution = TimerResolution::Windows { high: Duration::from_millis(1) };
pub const SOON: Duration = Duration::from_millis(100);
pub const MOMENT: Duration = Duration::from_secs(20);
pub const STATION: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub const OTHER_STATION: [u8; 6] = [2, 0, 0, 0, 0, 9];
pub const GROUP: [u8; 6] = [1, 0, 0x5E, 0, 0, 1];
pub const OTHER_GROUP: [u8; 6] = [1, 0, 0x5E, 0, 0, 2];
pub const ALL: [[u8; 6]; 4] = [STATION, OTHER_STATION, GROUP, OTHER_GROUP];

pub fn set_filter(bed: &Testbed, types: u32) {
    miniport(bed.machines()[0]).set(OID_GEN_CURRENT_PACKET_FILTER, &types.to_le_bytes()).unwrap();
}

/// Sends a frame from the second host to each address. Returns how many the first device has delivered to its driver.
pub fn delivered(bed: &Testbed, destinations: &[[u8; 6]]) -> u64 {
    let [receiver, sender] = bed.machines().map(miniport);
    let count = || {
        let answer = receiver.query(OID_GEN_RCV_OK, 8).unwrap();
        u64::from_le_bytes(answer.try_into().unwrap())
    };
    let before = count();
    for destination in destinations {
        let mut frame = [&destination[..], &[2, 0, 0, 0, 0, 2, 0x88, 0xB5]].concat();
        frame.resize(100, 0);
        assert_eq!(sender.send(&frame, MOMENT), Some(NDIS_STATUS_SUCCESS));
    }
    let _ = bed.event().wait(SOON);
    count() - before
}

/// Each filter of NDIS, and what of [`ALL`] the device delivers.
pub fn each_filter(bed: &Testbed) {
    miniport(bed.machines()[0]).set(OID_802_3_MULTICAST_LIST, &GROUP).unwrap();
    for (types, count) in [
        (NDIS_PACKET_TYPE_DIRECTED, 1),
        (NDIS_PACKET_TYPE_MULTICAST, 2),
        (NDIS_PACKET_TYPE_ALL_MULTICAST, 3),
        (NDIS_PACKET_TYPE_PROMISCUOUS, 4),
        // RDMA receives in any case.
        (0, 1),
    ] {
        set_filter(bed, types);
        // Address resolution of the hosts may add frames.
        let counts: Vec<_> = (0..5).map(|_| delivered(bed, &ALL)).collect();
        assert_eq!(counts.iter().min(), Some(&count), "filter {types:#x}: {counts:?}");
    }
}
