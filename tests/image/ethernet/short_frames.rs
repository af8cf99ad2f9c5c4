// SPDX-License-Identifier: MIT OR Apache-2.0

//! Received frames that are shorter than Ethernet's minimum, here without the tag that the driver removes: it pads them.

use std::time::Duration;

use ndis_sim::offload::SendRequest;
use ndk_abi::ndis::{NDIS_PACKET_TYPE_BROADCAST, NDIS_STATUS_SUCCESS, OID_GEN_CURRENT_PACKET_FILTER};
use support::bed::{finish, miniport, started};

const MOMENT: Duration = Duration::from_secs(5);
/// `Ieee8021QNetBufferListInfo`: priority 5, no VLAN. With its tag the frame has 60 bytes on the wire, without it 56.
const PRIORITY: u32 = 5;

/// An ARP request of 42 bytes, as Linux sends it.
fn arp() -> Vec<u8> {
    let who = [0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2];
    [&[0xFF; 6][..], &[2, 0, 0, 0, 0, 1, 8, 6], &who].concat()
}

/// Also in a buffer that an earlier, longer frame has filled.
#[test]
fn frame_shorter_than_sixty_bytes_is_padded_with_zeros() {
    let Some(bed) = started(&[]) else { return };
    let [sender, receiver] = bed.machines().map(miniport);
    receiver.set(OID_GEN_CURRENT_PACKET_FILTER, &NDIS_PACKET_TYPE_BROADCAST.to_le_bytes()).unwrap();
    let _ = receiver.received();
    let mut long = arp();
    long.resize(1514, 0x5A);
    let mut padded = arp();
    assert_eq!(padded.len(), 42);
    padded.resize(60, 0);
    let mut barely = arp();
    barely.resize(61, 0x77);
    for _ in 0..300 {
        for (frame, priority_vlan) in [(long.clone(), 0), (arp(), PRIORITY), (barely.clone(), 0)] {
            let request = SendRequest { priority_vlan, ..SendRequest::default() };
            for id in sender.send_requests(vec![(frame, request)]) {
                assert_eq!(sender.send_status(id, MOMENT), Some(NDIS_STATUS_SUCCESS));
            }
        }
        let mut arrived = Vec::new();
        while arrived.len() < 3 && bed.violations().is_empty() {
            arrived.extend(receiver.received());
            let _ = bed.event().wait(Duration::from_millis(1));
        }
        assert_eq!(arrived, [long.clone(), padded.clone(), barely.clone()]);
    }
    finish(bed);
}
