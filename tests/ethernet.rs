//! Ethernet beside RDMA, on the image: packet filters, multicast lists, frame lengths, keywords' limits.

#![cfg(target_os = "linux")]

use std::time::Duration;

use lab::{
    image,
    testbed::{Machine, Options, Testbed},
};
use ndis_sim::{Keyword, Miniport};
use ndk_abi::ndis::{
    NDIS_PACKET_TYPE_ALL_LOCAL, NDIS_PACKET_TYPE_ALL_MULTICAST, NDIS_PACKET_TYPE_BROADCAST,
    NDIS_PACKET_TYPE_DIRECTED, NDIS_PACKET_TYPE_MULTICAST, NDIS_PACKET_TYPE_PROMISCUOUS,
    NDIS_STATUS_INVALID_LENGTH, NDIS_STATUS_MULTICAST_FULL, NDIS_STATUS_NOT_SUPPORTED, NDIS_STATUS_SUCCESS,
    OID_802_3_MULTICAST_LIST, OID_GEN_CURRENT_PACKET_FILTER, OID_GEN_MAXIMUM_TOTAL_SIZE,
};

const MOMENT: Duration = Duration::from_secs(5);
const SENDER: [u8; 6] = [2, 2, 0, 0, 0, 1];
const RECEIVER: [u8; 6] = [2, 0, 0, 0, 0, 2];
const OTHER_STATION: [u8; 6] = [2, 0, 0, 0, 0, 9];
const BROADCAST: [u8; 6] = [0xFF; 6];
const GROUP: [u8; 6] = [1, 0, 0x5E, 0, 0, 1];
const OTHER_GROUP: [u8; 6] = [1, 0, 0x5E, 0, 0, 2];

fn started(keywords: &[(&'static str, &str)]) -> Option<Testbed> {
    let keywords = keywords.iter().map(|&(name, value)| (name, Keyword::Text(value.into()))).collect();
    let options = Options { keywords, ..Options::default() };
    let mut bed = Testbed::new(&image()?, &options).expect("the image can be loaded");
    let outcome = bed.start();
    assert!(outcome.is_ok(), "both drivers start: {outcome:?}\n{}", bed.violations().join("\n"));
    Some(bed)
}

fn finish(mut bed: Testbed) {
    bed.stop().expect("both drivers stop");
    let violations = bed.violations();
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

fn miniport(machine: &Machine) -> Miniport {
    machine.miniport().expect("the adapter has started").clone()
}

/// An Ethernet frame of an EtherType that no protocol driver uses.
fn frame(destination: [u8; 6], length: usize) -> Vec<u8> {
    let mut frame = [&destination[..], &SENDER[..], &[0x88, 0xB5]].concat();
    frame.resize(length, 0);
    frame
}

fn send(miniport: &Miniport, frame: &[u8]) {
    assert_eq!(miniport.send(frame, MOMENT), Some(NDIS_STATUS_SUCCESS));
}

/// Waits on the simulated clock.
fn wait(bed: &Testbed, time: Duration) {
    let event = bed.event();
    let waiting = bed.machines()[1].consumer("wait", move |_| event.wait(time));
    waiting.join().expect("the host lives");
}

/// Returns the destinations of the frames that the second host receives with `filter` set, of one frame to each destination.
fn received(bed: &Testbed, filter: u32, destinations: &[[u8; 6]]) -> Vec<[u8; 6]> {
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

#[test]
fn each_packet_filter_admits_its_kind_of_frame_and_no_other() {
    let Some(bed) = started(&[]) else { return };
    let all = [RECEIVER, OTHER_STATION, BROADCAST, GROUP, OTHER_GROUP];
    for (filter, admitted) in [
        (0, &[][..]),
        (NDIS_PACKET_TYPE_DIRECTED, &[RECEIVER]),
        (NDIS_PACKET_TYPE_BROADCAST, &[BROADCAST]),
        (NDIS_PACKET_TYPE_MULTICAST, &[GROUP]),
        (NDIS_PACKET_TYPE_ALL_MULTICAST, &[GROUP, OTHER_GROUP]),
        (NDIS_PACKET_TYPE_DIRECTED | NDIS_PACKET_TYPE_BROADCAST, &[RECEIVER, BROADCAST]),
        (NDIS_PACKET_TYPE_PROMISCUOUS, &all),
    ] {
        assert_eq!(received(&bed, filter, &all), admitted, "filter {filter:#x}");
    }
    finish(bed);
}

#[test]
fn unsupported_packet_filter_is_refused_and_changes_nothing() {
    let Some(bed) = started(&[]) else { return };
    let miniport = miniport(bed.machines()[0]);
    miniport.set(OID_GEN_CURRENT_PACKET_FILTER, &NDIS_PACKET_TYPE_DIRECTED.to_le_bytes()).unwrap();
    let unsupported = NDIS_PACKET_TYPE_DIRECTED | NDIS_PACKET_TYPE_ALL_LOCAL;
    let refused = miniport.set(OID_GEN_CURRENT_PACKET_FILTER, &unsupported.to_le_bytes()).unwrap_err();
    assert_eq!(refused.status, NDIS_STATUS_NOT_SUPPORTED);
    let filter = miniport.query(OID_GEN_CURRENT_PACKET_FILTER, 4).unwrap();
    assert_eq!(filter, NDIS_PACKET_TYPE_DIRECTED.to_le_bytes());
    finish(bed);
}

#[test]
fn multicast_list_holds_32_addresses_and_refuses_one_more() {
    let Some(bed) = started(&[]) else { return };
    let miniport = miniport(bed.machines()[0]);
    let addresses = |count: u8| (0..count).flat_map(|n| [1, 0, 0x5E, 0, 0, n]).collect::<Vec<u8>>();
    miniport.set(OID_802_3_MULTICAST_LIST, &addresses(32)).unwrap();
    let refused = miniport.set(OID_802_3_MULTICAST_LIST, &addresses(33)).unwrap_err();
    assert_eq!(refused.status, NDIS_STATUS_MULTICAST_FULL);
    assert_eq!(miniport.query(OID_802_3_MULTICAST_LIST, 300).unwrap(), addresses(32));
    finish(bed);
}

#[test]
fn frames_up_to_the_maximum_are_sent_and_longer_or_headless_ones_complete_as_invalid() {
    let Some(bed) = started(&[("*JumboPacket", "1514")]) else { return };
    let miniport = miniport(bed.machines()[0]);
    send(&miniport, &frame(RECEIVER, 1514));
    for frame in [frame(RECEIVER, 1515), frame(RECEIVER, 9014), RECEIVER.to_vec()] {
        let status = miniport.send(&frame, MOMENT);
        assert_eq!(status, Some(NDIS_STATUS_INVALID_LENGTH), "{} bytes", frame.len());
    }
    send(&miniport, &frame(RECEIVER, 1514));
    finish(bed);
}

#[test]
fn jumbo_packet_takes_both_ends_of_its_range_and_its_default_beyond() {
    // The device's MTU of 4192 bytes limits the greatest value.
    for (value, total) in [("1514", 1514), ("9014", 4206), ("1513", 1514), ("9015", 1514)] {
        let Some(bed) = started(&[("*JumboPacket", value)]) else { return };
        let answer = miniport(bed.machines()[0]).query(OID_GEN_MAXIMUM_TOTAL_SIZE, 4).unwrap();
        assert_eq!(answer, u32::to_le_bytes(total), "*JumboPacket = {value}");
        finish(bed);
    }
}
