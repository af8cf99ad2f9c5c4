// SPDX-License-Identifier: MIT OR Apache-2.0

//! Ethernet beside RDMA, on the image: the RoCEv2 port, packet filters, multicast lists, frame lengths, keywords' limits, link state, sends
//! that wait for the device, received frames that the stack keeps.

use std::time::Duration;

use crate::bed::miniport;
use lab::{machine::Machine, testbed::Testbed};
use ndis_sim::Miniport;
use ndk_abi::ndis::{NDIS_STATUS_SUCCESS, OID_802_3_MULTICAST_LIST, OID_GEN_CURRENT_PACKET_FILTER};

pub const MOMENT: Duration = Duration::from_secs(5);
pub const SENDER: [u8; 6] = [2, 2, 0, 0, 0, 1];
pub const RECEIVER: [u8; 6] = [2, 0, 0, 0, 0, 2];
pub const OTHER_STATION: [u8; 6] = [2, 0, 0, 0, 0, 9];
pub const BROADCAST: [u8; 6] = [0xFF; 6];
pub const GROUP: [u8; 6] = [1, 0, 0x5E, 0, 0, 1];
pub const OTHER_GROUP: [u8; 6] = [1, 0, 0x5E, 0, 0, 2];

/// An Ethernet frame of an EtherType that no protocol driver uses.
pub fn frame(destination: [u8; 6], length: usize) -> Vec<u8> {
    let mut frame = [&destination[..], &SENDER[..], &[0x88, 0xB5]].concat();
    frame.resize(length, 0);
    frame
}

pub fn send(miniport: &Miniport, frame: &[u8]) {
    assert_eq!(miniport.send(frame, MOMENT), Some(NDIS_STATUS_SUCCESS));
}

/// Waits on the simulated clock.
pub fn wait(bed: &Testbed, time: Duration) {
    let event = bed.event();
    on_host(bed.machines()[1], move || event.wait(time));
}

/// Returns the destinations of the frames that the second host receives with `filter` set, of one frame to each destination.
pub fn received(bed: &Testbed, filter: u32, destinations: &[[u8; 6]]) -> Vec<[u8; 6]> {
    let [sender, receiver] = bed.machines().map(miniport);
    receiver.set(OID_GEN_CURRENT_PACKET_FILTER, &filter.to_le_bytes()).unwrap();
    receiver.set(OID_802_3_MULTICAST_LIST, &GROUP).unwrap();
    drop(receiver.received());
    for &destination in destinations {
        send(&sender, &frame(destination, 100));
    }
    wait(bed, Duration::from_millis(50));
    receiver.received().iter().map(|frame| frame[..6].try_into().unwrap()).collect()
}

/// Runs `body` on a thread of the host.
pub fn on_host<T: Send + 'static>(machine: &Machine, body: impl FnOnce() -> T + Send + 'static) -> T {
    machine.host().spawn("test", body).join().expect("the host lives")
}
