// SPDX-License-Identifier: MIT OR Apache-2.0

//! Ethernet frames of many flows and copies by many connections, which use all queue pairs of a device.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use crate::bed::miniport;
use lab::{machine::Consumer, testbed::Testbed};
use ndk_abi::ndis::{NDIS_PACKET_TYPE_DIRECTED, OID_GEN_CURRENT_PACKET_FILTER};
use ndk_consumer::transfer;

const MOMENT: Duration = Duration::from_secs(20);
const SOON: Duration = Duration::from_millis(100);

/// A UDP packet from the first host to the second, of the flow with this source port.
pub fn udp(port: u16, number: u32) -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
    frame[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
    frame[23] = 17;
    frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    frame[34..36].copy_from_slice(&port.to_be_bytes());
    frame[36..38].copy_from_slice(&9_u16.to_be_bytes());
    frame[42..46].copy_from_slice(&number.to_be_bytes());
    frame
}

/// The flow of a frame of [`udp`], and its number.
fn of(frame: &[u8]) -> (u16, u32) {
    let number = u32::from_be_bytes(frame[42..46].try_into().unwrap());
    (u16::from_be_bytes(frame[34..36].try_into().unwrap()), number)
}

/// Sends `count` frames of each of `flows` flows, one of each flow in turn. All arrive, those of a flow in order.
pub fn send_flows(bed: &Testbed, flows: u16, count: u32) {
    let [sender, receiver] = bed.machines().map(miniport);
    receiver.set(OID_GEN_CURRENT_PACKET_FILTER, &NDIS_PACKET_TYPE_DIRECTED.to_le_bytes()).unwrap();
    let _ = receiver.received();
    let frames: Vec<_> =
        (0..count).flat_map(|number| (0..flows).map(move |flow| udp(1000 + flow, number))).collect();
    let _ = sender.send_chain(&frames, 0);
    let mut arrived = Vec::new();
    let deadline = bed.now() + MOMENT;
    while arrived.len() < frames.len() && bed.now() < deadline {
        let _ = bed.event().wait(SOON);
        arrived.extend(receiver.received());
    }
    assert_eq!(arrived.len(), frames.len());
    let mut next = BTreeMap::new();
    for (flow, number) in arrived.iter().map(|frame| of(frame)) {
        let expected = next.entry(flow).or_insert(0);
        assert_eq!(number, *expected, "flow {flow}");
        *expected += 1;
    }
}

/// Copies by so many connections at the same time, each with a protection domain and queues of its own.
pub fn copy_by(bed: &Testbed, connections: u16) {
    join(bed, begin_copies(bed, connections, 200_000));
}

/// Both ends of connections that copy.
pub type Copies = Vec<Consumer<Result<(), Box<transfer::Failure>>>>;

/// Begins copies as [`copy_by`], of `bytes` by each connection.
pub fn begin_copies(bed: &Testbed, connections: u16, bytes: u32) -> Copies {
    let [client, server] = bed.machines();
    let options = transfer::Options::default();
    let ends = (0..connections).flat_map(|number| {
        let address = SocketAddr::new(server.address(), 6000 + number);
        let local = SocketAddr::new(client.address(), 0);
        let listening = bed.event();
        let is_listening = listening.clone();
        let serving = server.consumer("server", move |adapter| {
            transfer::serve(adapter, &options, address, |_| is_listening.set(), &|_| {}).map(drop)
        });
        let copying = client.consumer("client", move |adapter| {
            let _ = listening.wait(MOMENT);
            let data = transfer::Generated { seed: 0, bytes: u64::from(bytes) };
            transfer::copy(adapter, &options, local, address, "data", &data, &|_| {}).map(drop)
        });
        [copying, serving]
    });
    ends.collect()
}

/// Waits until copies are complete.
pub fn join(bed: &Testbed, copies: Copies) {
    for end in copies {
        let end = end.join().unwrap_or_else(|lost| panic!("{lost}\n{}", bed.violations().join("\n")));
        end.unwrap_or_else(|error| panic!("the copy completes: {error:?}"));
    }
}
