// SPDX-License-Identifier: MIT OR Apache-2.0

//! Packets of TCP and UDP between the two hosts of a testbed, sent with requests for offloads and tags.

use std::time::Duration;

use crate::{
    bed::miniport,
    tcp::{MACS, stream},
};
use device_sim::checksum::Transport;
use lab::testbed::Testbed;
use ndis_sim::{ReceivedFrame, SendRequest};
use ndk_abi::ndis::{
    NDIS_PACKET_TYPE_DIRECTED, NDIS_STATUS, NDIS_STATUS_SUCCESS, OID_GEN_CURRENT_PACKET_FILTER,
};

const MOMENT: Duration = Duration::from_secs(5);

/// Returns a frame from one host to the other, with an IP header of the length given by `options` in 32-bit words, and an
/// IPv4 header checksum. The packet's payload begins with its own header, whose checksum is 0.
pub fn frame4(from: usize, protocol: u8, options: usize, transport: &[u8]) -> Vec<u8> {
    let mut frame = [&MACS[1 - from][..], &MACS[from][..], &[8, 0]].concat();
    let total = (20 + 4 * options + transport.len()) as u16;
    frame.extend([0x45 + options as u8, 0]);
    frame.extend(total.to_be_bytes());
    frame.extend([0, 7, 0, 0, 64, protocol, 0, 0, 10, 0, 0, from as u8 + 1, 10, 0, 0, 2 - from as u8]);
    frame.extend(vec![1; 4 * options]);
    let sum = !device_sim::checksum::sum(&frame[14..], 0);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame.extend(transport);
    frame
}

/// Returns a frame over IPv6, with `extensions` headers of destination options.
pub fn frame6(from: usize, protocol: u8, extensions: usize, transport: &[u8]) -> Vec<u8> {
    let mut frame = [&MACS[1 - from][..], &MACS[from][..], &[0x86, 0xdd, 0x60, 0, 0, 0]].concat();
    frame.extend(((8 * extensions + transport.len()) as u16).to_be_bytes());
    frame.extend([if extensions == 0 { protocol } else { 60 }, 64]);
    for host in [from as u8 + 1, 2 - from as u8] {
        frame.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
    }
    for left in (0..extensions).rev() {
        frame.extend([if left == 0 { protocol } else { 60 }, 0, 1, 4, 0, 0, 0, 0]);
    }
    frame.extend(transport);
    frame
}

/// A TCP segment with options of `options` 32-bit words, and `len` bytes of payload.
pub fn tcp(options: usize, len: usize) -> Vec<u8> {
    let mut segment =
        vec![0xc0, 1, 1, 0xbd, 0, 0, 0, 1, 0, 0, 0, 2, (5 + options as u8) << 4, 0x18, 1, 0, 0, 0, 0, 0];
    segment.extend(vec![1; 4 * options]);
    segment.extend(stream(0, len));
    segment
}

pub fn udp4(from: usize, options: usize, len: usize) -> Vec<u8> {
    frame4(from, 17, options, &udp(len))
}

pub fn udp(len: usize) -> Vec<u8> {
    let mut datagram = vec![0xc0, 1, 0, 53];
    datagram.extend(((8 + len) as u16).to_be_bytes());
    datagram.extend([0, 0]);
    datagram.extend(stream(0, len));
    datagram
}

/// Returns a frame with the right checksum of TCP or UDP.
pub fn complete(mut frame: Vec<u8>) -> Vec<u8> {
    let found = Transport::find(&frame).unwrap();
    let seed = found.pseudo_header(&frame, found.range.len());
    let sum = !device_sim::checksum::sum(&frame[found.range.clone()], seed.into());
    found.write(&mut frame, if sum == 0 { 0xffff } else { sum });
    frame
}

/// Every kind of packet that offloads know: over both IP versions, with and without options, of odd and even lengths.
pub fn packets() -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    for len in [0, 1, 18, 1000, 1399] {
        for options in [0, 3] {
            packets.extend([udp4(0, options, len), frame4(0, 6, options, &tcp(options, len))]);
            packets.extend([frame6(0, 17, options, &udp(len)), frame6(0, 6, options, &tcp(options, len))]);
        }
    }
    packets
}

/// Sends frames from one host without requests; returns those that the other receives.
pub fn deliver(bed: &Testbed, from: usize, frames: Vec<Vec<u8>>) -> Vec<ReceivedFrame> {
    let requests = frames.into_iter().map(|frame| (frame, SendRequest::default())).collect();
    let (statuses, received) = deliver_requests(bed, from, requests);
    assert!(statuses.iter().all(|&status| status == NDIS_STATUS_SUCCESS));
    received
}

pub fn deliver_requests(
    bed: &Testbed,
    from: usize,
    frames: Vec<(Vec<u8>, SendRequest)>,
) -> (Vec<NDIS_STATUS>, Vec<ReceivedFrame>) {
    let machines = bed.machines();
    let (sender, receiver) = (miniport(machines[from]), miniport(machines[1 - from]));
    receiver.set(OID_GEN_CURRENT_PACKET_FILTER, &NDIS_PACKET_TYPE_DIRECTED.to_le_bytes()).unwrap();
    let _ = receiver.received();
    let ids = sender.send_requests(frames);
    let statuses = ids.into_iter().map(|id| sender.send_status(id, MOMENT).expect("the send completes"));
    let statuses = statuses.collect();
    let event = bed.event();
    let _ = receiver.host().spawn("wait", move || event.wait(Duration::from_millis(20))).join();
    (statuses, receiver.received_frames())
}

/// The bytes of received frames, without the padding of short ones.
pub fn bytes(received: Vec<ReceivedFrame>) -> Vec<Vec<u8>> {
    let unpadded = |frame: ReceivedFrame| {
        let end = Transport::find(&frame.bytes).map_or(frame.bytes.len(), |found| found.range.end);
        frame.bytes[..end].to_vec()
    };
    received.into_iter().map(unpadded).collect()
}

pub fn everything() -> ndis_sim::offload::Checksums {
    ndis_sim::offload::Checksums { ipv4: true, tcp4: true, udp4: true, tcp6: true, udp6: true }
}
