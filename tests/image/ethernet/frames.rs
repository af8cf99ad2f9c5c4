// SPDX-License-Identifier: MIT OR Apache-2.0

//! Ethernet beside RDMA, on the image: the RoCEv2 port, packet filters, multicast lists, frame lengths, keywords' limits, link state, sends
//! that wait for the device, received frames that the stack keeps.

use std::time::{Duration, Instant};

use device_sim::{Quirks, pci};
use lab::{machine::Machine, testbed::Options};
use ndis_sim::{AdapterState, Keyword, Miniport, SendId, StatusIndication};
use ndk_abi::ndis::{
    NDIS_LINK_SPEED_UNKNOWN, NDIS_PACKET_TYPE_ALL_LOCAL, NDIS_PACKET_TYPE_ALL_MULTICAST,
    NDIS_PACKET_TYPE_BROADCAST, NDIS_PACKET_TYPE_DIRECTED, NDIS_PACKET_TYPE_MULTICAST,
    NDIS_PACKET_TYPE_PROMISCUOUS, NDIS_STATUS, NDIS_STATUS_ADAPTER_REMOVED, NDIS_STATUS_INVALID_LENGTH,
    NDIS_STATUS_LINK_STATE, NDIS_STATUS_MULTICAST_FULL, NDIS_STATUS_NOT_SUPPORTED, NDIS_STATUS_PAUSED,
    NDIS_STATUS_RESOURCES, NDIS_STATUS_SEND_ABORTED, NDIS_STATUS_SUCCESS, OID_802_3_MULTICAST_LIST,
    OID_GEN_CURRENT_PACKET_FILTER, OID_GEN_MAXIMUM_TOTAL_SIZE, OID_GEN_STATISTICS,
};
use ndk_abi::ndk::OID_NDK_SET_STATE;
use nt_sim::delays::Moment;
use support::{
    bed::{finish, miniport, started, started_with},
    frames::{
        BROADCAST, GROUP, MOMENT, OTHER_GROUP, OTHER_STATION, RECEIVER, SENDER, frame, on_host, received,
        send, wait,
    },
};

#[test]
fn each_packet_filter_admits_its_kind_of_frame_and_no_other() {
    let Some(bed) = started(&[]) else { return };
    let all = [RECEIVER, OTHER_STATION, BROADCAST, GROUP, OTHER_GROUP];
    let expected = [
        (0, &[][..]),
        (NDIS_PACKET_TYPE_DIRECTED, &[RECEIVER]),
        (NDIS_PACKET_TYPE_BROADCAST, &[BROADCAST]),
        (NDIS_PACKET_TYPE_MULTICAST, &[GROUP]),
        (NDIS_PACKET_TYPE_ALL_MULTICAST, &[GROUP, OTHER_GROUP]),
        (NDIS_PACKET_TYPE_DIRECTED | NDIS_PACKET_TYPE_BROADCAST, &[RECEIVER, BROADCAST]),
        (NDIS_PACKET_TYPE_PROMISCUOUS, &all),
    ];
    let expected = expected.map(|(filter, admitted)| (filter, admitted.to_vec()));
    assert_eq!(expected.clone().map(|(filter, _)| (filter, received(&bed, filter, &all))), expected);
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
    let Some(bed) = started_with(&Options { path_mtu: 1024, ..Options::default() }) else { return };
    let miniport = miniport(bed.machines()[0]);
    // The shortest is a header.
    for length in [1514, 14] {
        send(&miniport, &frame(RECEIVER, length));
    }
    for frame in [frame(RECEIVER, 1515), frame(RECEIVER, 9014), RECEIVER.to_vec()] {
        let status = miniport.send(&frame, MOMENT);
        assert_eq!(status, Some(NDIS_STATUS_INVALID_LENGTH), "{} bytes", frame.len());
    }
    send(&miniport, &frame(RECEIVER, 1514));
    finish(bed);
}

#[test]
fn frame_of_the_maximum_length_is_received_whole() {
    let Some(bed) = started_with(&Options { path_mtu: 1024, ..Options::default() }) else { return };
    let [sender, receiver] = bed.machines().map(miniport);
    receiver.set(OID_GEN_CURRENT_PACKET_FILTER, &NDIS_PACKET_TYPE_DIRECTED.to_le_bytes()).unwrap();
    let mut longest = frame(RECEIVER, 1514);
    longest[1513] = 0xA5;
    send(&sender, &longest);
    wait(&bed, Duration::from_millis(50));
    assert_eq!(receiver.received(), [longest]);
    finish(bed);
}

#[test]
fn jumbo_packet_takes_both_ends_of_its_range_and_its_default_beyond() {
    // The device's MTU of 4192 bytes limits the greatest value, and is used if the value is the default.
    for (value, total) in
        [("590", 590), ("1515", 1515), ("9230", 4206), ("1514", 4206), ("589", 4206), ("9231", 4206)]
    {
        let Some(bed) = started(&[("*JumboPacket", value)]) else { return };
        let answer = miniport(bed.machines()[0]).query(OID_GEN_MAXIMUM_TOTAL_SIZE, 4).unwrap();
        assert_eq!(answer, u32::to_le_bytes(total), "*JumboPacket = {value}");
        finish(bed);
    }
}

/// The host's setting for the device counts, as long as the keyword is the default.
//= virtio §4
#[test]
fn mtu_of_the_device_raises_the_adapters_default() {
    for (mtu, keyword, total) in
        [(9000, "1514", 9014), (65_535, "1514", 9230), (1400, "1514", 1414), (9000, "1515", 1515)]
    {
        let keywords = vec![("*JumboPacket", Keyword::Text(keyword.into()))];
        let options = Options { mtu: Some(mtu), path_mtu: 1024, keywords, ..Options::default() };
        let Some(bed) = started_with(&options) else { return };
        let [sender, receiver] = bed.machines().map(miniport);
        let answer = sender.query(OID_GEN_MAXIMUM_TOTAL_SIZE, 4).unwrap();
        assert_eq!(answer, u32::to_le_bytes(total), "MTU {mtu}, *JumboPacket = {keyword}");
        assert_eq!(sender.attributes().general.unwrap().MtuSize, total - 14);
        receiver.set(OID_GEN_CURRENT_PACKET_FILTER, &NDIS_PACKET_TYPE_DIRECTED.to_le_bytes()).unwrap();
        let longest = frame(RECEIVER, total as usize);
        send(&sender, &longest);
        wait(&bed, Duration::from_millis(50));
        assert_eq!(receiver.received(), [longest]);
        finish(bed);
    }
}

/// Slots of the driver's transmit queue.
const RING: usize = 256;
/// NET_BUFFER_LISTs in which the driver indicates received frames.
const RECEIVE_LISTS: usize = 256;
/// MSI-X vector of the transmit queue.
const TRANSMIT_VECTOR: u16 = 2;
const SOON: Duration = Duration::from_millis(50);

/// Holds back the message by which the device reports free transmit slots, or delivers it.
fn hold_transmit_message(machine: &Machine, hold: bool) {
    let nic = machine.nic().clone();
    on_host(machine, move || nic.mask_vector(TRANSMIT_VECTOR, hold));
}

/// Frames to the second host whose last bytes are their numbers.
fn numbered(count: usize) -> Vec<Vec<u8>> {
    let number = |n: usize| [&frame(RECEIVER, 98)[..], &(n as u16).to_le_bytes()].concat();
    (0..count).map(number).collect()
}

fn statuses(miniport: &Miniport, sends: &[SendId]) -> Vec<Option<NDIS_STATUS>> {
    sends.iter().map(|&id| miniport.send_status(id, MOMENT)).collect()
}

/// Sets the receiver's packet filter to frames for its own address.
fn receive_directed(miniport: &Miniport) {
    miniport.set(OID_GEN_CURRENT_PACKET_FILTER, &NDIS_PACKET_TYPE_DIRECTED.to_le_bytes()).unwrap();
    drop(miniport.received());
}

#[test]
fn link_change_is_indicated_with_state_and_speed() {
    for megabits in [100_u32, 25_000] {
        link_changes_of_a_device_with_speed(megabits);
    }
}

#[test]
fn change_of_the_speed_alone_is_indicated_while_the_link_is_up() {
    const GIGABIT: u64 = 1_000_000_000;
    let Some(bed) = started(&[]) else { return };
    let machine = bed.machines()[0];
    let miniport = miniport(machine);
    let before = miniport.indications().len();
    let set = |change: fn(&device_sim::Nic)| {
        let nic = machine.nic().clone();
        on_host(machine, move || change(&nic));
        wait(&bed, SOON);
        let indications = miniport.indications();
        let speeds = indications[before..].iter().map(|StatusIndication { code, buffer }| {
            assert_eq!(*code, NDIS_STATUS_LINK_STATE);
            u64::from_le_bytes(buffer[16..24].try_into().unwrap())
        });
        speeds.collect::<Vec<_>>()
    };
    assert_eq!(set(|nic| nic.set_speed(25_000)), [25 * GIGABIT]);
    assert_eq!(set(|nic| nic.set_speed(25_000)), [25 * GIGABIT], "no change");
    let down = [25 * GIGABIT, NDIS_LINK_SPEED_UNKNOWN];
    assert_eq!(set(|nic| nic.set_link(false)), down);
    assert_eq!(set(|nic| nic.set_speed(100_000)), down, "the speed of a link that is down is unknown");
    assert_eq!(set(|nic| nic.set_link(true))[2..], [100 * GIGABIT]);
    finish(bed);
}

fn link_changes_of_a_device_with_speed(megabits: u32) {
    let quirks = Quirks { speed: Some(megabits), ..Quirks::default() };
    let Some(bed) = started_with(&Options { quirks, ..Options::default() }) else { return };
    let machine = bed.machines()[0];
    let miniport = miniport(machine);
    let before = miniport.indications().len();
    let speed = u64::from(megabits) * 1_000_000;
    // The state and the duplex state: connected, full duplex; disconnected, unknown.
    let (connected, disconnected) = ((1, 2, speed), (2, 0, NDIS_LINK_SPEED_UNKNOWN));
    for (count, up) in [(1, false), (2, true), (3, false)] {
        let nic = machine.nic().clone();
        on_host(machine, move || nic.set_link(up));
        wait(&bed, SOON);
        let indications = &miniport.indications()[before..];
        assert_eq!(indications.len(), count, "one indication for each change");
        let StatusIndication { code, buffer } = &indications[count - 1];
        assert_eq!((*code, buffer.len()), (NDIS_STATUS_LINK_STATE, 40));
        let word = |at: usize| u32::from_le_bytes(buffer[at..at + 4].try_into().unwrap());
        let long = |at: usize| u64::from_le_bytes(buffer[at..at + 8].try_into().unwrap());
        assert_eq!(buffer[..4], [0x80, 1, 40, 0], "header");
        assert_eq!((word(4), word(8), long(16)), if up { connected } else { disconnected });
        assert_eq!(long(24), long(16), "bit/s, receive as transmit");
    }
    finish(bed);
}

#[test]
fn sends_beyond_the_ring_wait_and_complete_in_order_once_slots_are_free() {
    let Some(bed) = started(&[]) else { return };
    let [sender, receiver] = bed.machines().map(miniport);
    receive_directed(&receiver);
    hold_transmit_message(bed.machines()[0], true);
    let frames = numbered(3 * RING);
    let sends = sender.send_chain(&frames, 0);
    let (sent, waiting) = sends.split_at(RING);
    assert_eq!(statuses(&sender, sent), vec![Some(NDIS_STATUS_SUCCESS); sent.len()]);
    assert_eq!(sender.send_status(waiting[0], SOON), None, "no slot is free");
    hold_transmit_message(bed.machines()[0], false);
    assert_eq!(statuses(&sender, waiting), vec![Some(NDIS_STATUS_SUCCESS); waiting.len()]);
    wait(&bed, SOON);
    assert!(receiver.received() == frames, "every frame arrives once, in order");
    finish(bed);
}

/// The list that waits first is looked at, not those behind it. Time of the processor, least of many calls: other tests may run.
#[test]
fn send_into_a_full_ring_takes_as_long_with_many_waiting_as_with_few() {
    const MANY: usize = 40_000;
    let Some(bed) = started(&[]) else { return };
    let machine = bed.machines()[0];
    let sender = miniport(machine);
    let command = machine.nic().with_config(|config| config.command()).expect("the device is there");
    // The device takes no buffer.
    machine.nic().with_config(|config| config.set_command(command & !pci::COMMAND_BUS_MASTER));
    let _ = sender.send_chain(&numbered(2 * RING), 0);
    let fastest = || {
        let call = || {
            let id = sender.send_chain(&numbered(1), 0);
            assert_eq!(id.len(), 1);
        };
        let time = || {
            let began = Instant::now();
            call();
            began.elapsed()
        };
        (0..100).map(|_| time()).min().expect("many calls")
    };
    let few = fastest();
    let _ = sender.send_chain(&numbered(MANY), 0);
    let many = fastest();
    assert!(many < 3 * few, "{many:?} with {MANY} waiting, {few:?} with {RING}");
    finish(bed);
}

/// NDIS has to map the data of a frame that is memory of user mode.
#[test]
fn send_whose_data_cannot_be_mapped_fails_for_lack_of_resources() {
    let Some(bed) = started(&[]) else { return };
    let machine = bed.machines()[0];
    let sender = miniport(machine);
    let resources = &machine.host().low_resources;
    let before = resources.asked();
    send(&sender, &frame(RECEIVER, 100));
    // The last of them: NDIS's lists are allocated before.
    resources.fail_nth(resources.asked() - before - 1);
    assert_eq!(sender.send(&frame(RECEIVER, 100), MOMENT), Some(NDIS_STATUS_RESOURCES));
    send(&sender, &frame(RECEIVER, 100));
    finish(bed);
}

#[test]
fn cancel_completes_waiting_sends_with_its_id_and_no_other() {
    let Some(bed) = started(&[]) else { return };
    let sender = miniport(bed.machines()[0]);
    hold_transmit_message(bed.machines()[0], true);
    // More than three rings: a send may fill slots that the device has used meanwhile.
    let before = sender.send_chain(&numbered(5 * RING), 1);
    let cancelled = sender.send_chain(&numbered(10), 2);
    let after = sender.send_chain(&numbered(10), 3);
    sender.cancel_sends(2);
    assert_eq!(statuses(&sender, &cancelled), [Some(NDIS_STATUS_SEND_ABORTED); 10]);
    assert_eq!(sender.send_status(before[5 * RING - 1], SOON), None);
    assert_eq!(sender.send_status(after[0], SOON), None);
    hold_transmit_message(bed.machines()[0], false);
    assert_eq!(statuses(&sender, &before), vec![Some(NDIS_STATUS_SUCCESS); 5 * RING]);
    assert_eq!(statuses(&sender, &after), [Some(NDIS_STATUS_SUCCESS); 10]);
    finish(bed);
}

#[test]
fn pause_completes_sends_that_wait_for_slots() {
    let Some(bed) = started(&[]) else { return };
    let sender = miniport(bed.machines()[0]);
    hold_transmit_message(bed.machines()[0], true);
    let sends = sender.send_chain(&numbered(2 * RING), 0);
    sender.pause().unwrap();
    let (sent, waiting) = sends.split_at(RING);
    assert_eq!(statuses(&sender, sent), [Some(NDIS_STATUS_SUCCESS); RING]);
    assert_eq!(statuses(&sender, waiting), [Some(NDIS_STATUS_PAUSED); RING]);
    hold_transmit_message(bed.machines()[0], false);
    sender.restart().unwrap();
    assert_eq!(sender.send(&frame(RECEIVER, 100), MOMENT), Some(NDIS_STATUS_SUCCESS));
    finish(bed);
}

/// The pause itself waits for frames that the stack keeps. The sends do not.
#[test]
fn pause_completes_waiting_sends_while_the_stack_keeps_received_frames() {
    let Some(bed) = started(&[]) else { return };
    let (machine, [sender, peer]) = (bed.machines()[0], bed.machines().map(miniport));
    receive_directed(&sender);
    sender.stack().keep(true);
    let kept = frame([2, 0, 0, 0, 0, 1], 100);
    assert_eq!(peer.send(&kept, MOMENT), Some(NDIS_STATUS_SUCCESS));
    wait(&bed, SOON);
    hold_transmit_message(machine, true);
    let sends = sender.send_chain(&numbered(2 * RING), 0);
    let pausing = {
        let sender = sender.clone();
        machine.host().spawn("pause", move || sender.pause())
    };
    let (sent, waiting) = sends.split_at(RING);
    assert_eq!(statuses(&sender, waiting), [Some(NDIS_STATUS_PAUSED); RING]);
    assert_eq!(statuses(&sender, sent), [Some(NDIS_STATUS_SUCCESS); RING]);
    assert_eq!(sender.state(), AdapterState::Pausing, "the stack keeps a frame");
    sender.stack().keep(false);
    pausing.join().expect("the host lives").unwrap();
    hold_transmit_message(machine, false);
    sender.restart().unwrap();
    finish(bed);
}

/// A send that arrives when the pause has completed those that waited, and before it stops traffic. `keeps` says that the stack
/// keeps a received frame, for which the pause waits after that.
fn send_while_a_pause_begins(keeps: bool) {
    let Some(bed) = started(&[]) else { return };
    let (machine, [sender, peer]) = (bed.machines()[0], bed.machines().map(miniport));
    receive_directed(&sender);
    sender.stack().keep(keeps);
    send(&peer, &frame([2, 0, 0, 0, 0, 1], 100));
    wait(&bed, SOON);
    hold_transmit_message(machine, true);
    let sends = sender.send_chain(&numbered(2 * RING), 0);
    let completed = Moment::Return("NdisMSendNetBufferListsComplete");
    // Shorter than the interval of the driver's watchdog, which finds slots without an interrupt.
    let delay = machine.host().delays.add(completed, 3 * SOON);
    let pausing = {
        let sender = sender.clone();
        machine.host().spawn("pause", move || sender.pause())
    };
    wait(&bed, SOON);
    assert!(delay.is_reached(), "{}", bed.violations().join("\n"));
    // The device has used the slots meanwhile.
    let late = sender.send_chain(&numbered(3 * RING), 0);
    let (_, late) = late.split_at(2 * RING);
    assert_eq!(sender.send_status(late[0], SOON), None, "no slot is free");
    wait(&bed, 6 * SOON);
    sender.stack().keep(false);
    pausing.join().expect("the host lives").unwrap();
    assert_eq!(statuses(&sender, late), [Some(NDIS_STATUS_PAUSED); RING]);
    assert_eq!(statuses(&sender, &sends[RING..]), [Some(NDIS_STATUS_PAUSED); RING]);
    hold_transmit_message(machine, false);
    sender.restart().unwrap();
    finish(bed);
}

#[test]
fn pause_completes_a_send_that_arrives_before_traffic_stops() {
    send_while_a_pause_begins(false);
    send_while_a_pause_begins(true);
}

#[test]
fn sends_of_a_paused_adapter_are_completed_as_paused() {
    let Some(bed) = started(&[]) else { return };
    let sender = miniport(bed.machines()[0]);
    sender.pause().unwrap();
    assert_eq!(sender.send(&frame(RECEIVER, 100), MOMENT), Some(NDIS_STATUS_PAUSED));
    sender.restart().unwrap();
    send(&sender, &frame(RECEIVER, 100));
    finish(bed);
}

/// A driver that knows its IRQL saves NDIS the question.
#[test]
fn sends_at_dispatch_level_are_completed_with_its_flag_and_no_others() {
    let Some(mut bed) = started(&[]) else { return };
    let sender = miniport(bed.machines()[0]);
    let check = |status| {
        for (at_dispatch, flagged) in [(true, 1), (false, 0)] {
            let before = sender.stack().flagged_completions();
            let frames = numbered(1);
            let sends = if at_dispatch {
                sender.send_chain_at_dispatch(&frames)
            } else {
                sender.send_chain(&frames, 0)
            };
            assert_eq!(statuses(&sender, &sends), [Some(status)]);
            assert_eq!(sender.stack().flagged_completions() - before, flagged, "{status:#x}");
        }
    };
    check(NDIS_STATUS_SUCCESS);
    sender.pause().unwrap();
    check(NDIS_STATUS_PAUSED);
    sender.restart().unwrap();
    sender.shut_down().unwrap();
    check(NDIS_STATUS_ADAPTER_REMOVED);
    bed.machine_mut(0).halt_adapter().unwrap();
    finish(bed);
}

#[test]
fn surprise_removal_completes_every_send_that_waits_for_slots() {
    let Some(mut bed) = started(&[]) else { return };
    let sender = miniport(bed.machines()[0]);
    hold_transmit_message(bed.machines()[0], true);
    let sends = sender.send_chain(&numbered(2 * RING), 0);
    bed.machine_mut(0).surprise_remove_adapter().unwrap();
    let (sent, waiting) = sends.split_at(RING);
    assert_eq!(statuses(&sender, sent), [Some(NDIS_STATUS_SUCCESS); RING]);
    assert_eq!(statuses(&sender, waiting), [Some(NDIS_STATUS_ADAPTER_REMOVED); RING]);
    finish(bed);
}

#[test]
fn pause_completes_only_after_the_stack_returned_every_received_frame() {
    let Some(bed) = started(&[]) else { return };
    let [sender, receiver] = bed.machines().map(miniport);
    receive_directed(&receiver);
    receiver.stack().keep(true);
    send(&sender, &frame(RECEIVER, 100));
    wait(&bed, SOON);
    assert_eq!(receiver.received().len(), 1);
    let paused = receiver.clone();
    let pausing = bed.machines()[1].host().spawn("PnP", move || paused.pause());
    wait(&bed, SOON);
    assert_eq!(receiver.state(), AdapterState::Pausing, "{}", bed.violations().join("\n"));
    receiver.stack().keep(false);
    pausing.join().unwrap().unwrap();
    assert_eq!(receiver.state(), AdapterState::Paused);
    receiver.restart().unwrap();
    finish(bed);
}

/// Returns `ifInDiscards` of the adapter's statistics.
fn receive_discards(miniport: &Miniport) -> u64 {
    let statistics = miniport.query(OID_GEN_STATISTICS, 152).unwrap();
    u64::from_le_bytes(statistics[8..16].try_into().unwrap())
}

/// The last lists are indicated with `NDIS_RECEIVE_FLAGS_RESOURCES`: the stack copies their data instead of keeping them.
#[test]
fn stack_that_keeps_as_many_frames_as_it_may_still_receives_every_frame() {
    let Some(bed) = started(&[]) else { return };
    let [sender, receiver] = bed.machines().map(miniport);
    receive_directed(&receiver);
    receiver.stack().keep(true);
    for _ in 0..2 {
        let frames = numbered(3 * RECEIVE_LISTS);
        let sends = sender.send_chain(&frames, 0);
        assert_eq!(statuses(&sender, &sends), vec![Some(NDIS_STATUS_SUCCESS); frames.len()]);
        wait(&bed, SOON);
        assert!(receiver.received() == frames, "every frame arrives, in order");
        let kept = receiver.stack().lent();
        assert!((RECEIVE_LISTS / 2..RECEIVE_LISTS).contains(&kept), "{kept} lists are kept");
        receiver.stack().keep(false);
        wait(&bed, SOON);
        assert_eq!(receiver.stack().lent(), 0);
        receiver.stack().keep(true);
    }
    assert_eq!(receive_discards(&receiver), 0);
    receiver.stack().keep(false);
    finish(bed);
}

/// NDIS offers no such flag to a poll.
#[test]
fn frames_beyond_what_the_stack_can_hold_of_a_poll_count_as_discarded_and_returned_lists_serve_again() {
    let Some(bed) = started(&[("*NdisPoll", "1")]) else { return };
    let [sender, receiver] = bed.machines().map(miniport);
    receive_directed(&receiver);
    receiver.stack().keep(true);
    let frames = numbered(RECEIVE_LISTS + 10);
    let mut discards = Vec::new();
    for _ in 0..2 {
        let discarded = receive_discards(&receiver);
        let sends = sender.send_chain(&frames, 0);
        assert_eq!(statuses(&sender, &sends), vec![Some(NDIS_STATUS_SUCCESS); frames.len()]);
        wait(&bed, SOON);
        assert!(receiver.received() == frames[..RECEIVE_LISTS], "the first frames arrive");
        discards.push(receive_discards(&receiver) - discarded);
        receiver.stack().keep(false);
        wait(&bed, SOON);
        receiver.stack().keep(true);
    }
    assert_eq!(discards, [10, 10]);
    receiver.stack().keep(false);
    finish(bed);
}

/// A frame to the UDP port of RoCEv2 that is not a packet of any queue pair.
fn to_roce_port(station: [u8; 6], ip: [u8; 4]) -> Vec<u8> {
    let mut header = [&[0x45, 0, 0, 64, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 77][..], &ip[..]].concat();
    let sum: u32 = header.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let checksum = !((sum & 0xFFFF) as u16 + (sum >> 16) as u16);
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    let udp = [0xC0, 0, 0x12, 0xB7, 0, 44, 0, 0];
    // A SEND_ONLY to queue pair 0x123456.
    let bth = [4, 0, 0xFF, 0xFF, 0, 0x12, 0x34, 0x56, 0, 0, 0, 1];
    [&station[..], &SENDER[..], &[8, 0], &header[..], &udp[..], &bth[..], &[0x5A; 24][..]].concat()
}

/// While RDMA is disabled, and for frames to other stations or addresses, UDP port 4791 belongs to the stack.
#[test]
fn frames_to_the_roce_port_reach_the_stack_unless_rdma_takes_them() {
    let Some(bed) = started(&[]) else { return };
    let [sender, receiver] = bed.machines().map(miniport);
    receiver.set(OID_GEN_CURRENT_PACKET_FILTER, &NDIS_PACKET_TYPE_PROMISCUOUS.to_le_bytes()).unwrap();
    let own = to_roce_port(RECEIVER, [10, 0, 0, 2]);
    let frames = [
        own.clone(),
        to_roce_port(RECEIVER, [10, 0, 0, 9]),
        to_roce_port(OTHER_STATION, [10, 0, 0, 2]),
        to_roce_port(BROADCAST, [10, 0, 0, 255]),
    ];
    let delivered = || {
        drop(receiver.received());
        for frame in &frames {
            send(&sender, frame);
        }
        wait(&bed, SOON);
        receiver.received()
    };
    assert_eq!(delivered(), frames[1..], "RDMA takes what is to its own station and address");
    receiver.set(OID_NDK_SET_STATE, &[0]).unwrap();
    assert!(receiver.ndk().await_events(1, MOMENT));
    assert_eq!(delivered(), frames, "RDMA is disabled");
    receiver.set(OID_NDK_SET_STATE, &[1]).unwrap();
    assert!(receiver.ndk().await_events(2, MOMENT));
    assert_eq!(delivered(), frames[1..], "RDMA is enabled again");
    finish(bed);
}

/// The DPC starts late, so that more frames wait than it may indicate at once: NDIS calls it again for the others.
#[test]
fn frames_beyond_the_limit_of_a_dpc_are_indicated_by_the_next_one() {
    const FRAMES: usize = 200;
    let Some(bed) = started(&[]) else { return };
    let [sender, receiver] = bed.machines();
    let (to, from) = (miniport(receiver), miniport(sender));
    receive_directed(&to);
    let late = Moment::Call("MiniportMessageInterruptDPC");
    let late = receiver.host().delays.add(late, Duration::from_millis(2));
    let frames = numbered(FRAMES);
    let _ = from.send_chain(&frames, 0);
    wait(&bed, Duration::from_millis(20));
    assert!(late.is_reached(), "the DPC was called");
    assert_eq!(to.received(), frames);
    finish(bed);
}
