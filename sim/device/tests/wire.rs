// SPDX-License-Identifier: MIT OR Apache-2.0

//! The wire's faults: their rate, their repetition with the same seed, and their capture.

use std::{
    io::{self, Write},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use device_sim::link::{Capture, Endpoint, Fate, Faults, Frame, Lost, Port, Wire, WireOptions};
use pcap_file::pcapng::{Block, PcapNgReader};

/// An endpoint that counts how often the wire became writable.
#[derive(Default)]
struct Sink {
    writable: AtomicU32,
}

impl Endpoint for Sink {
    fn wake_at(&self, _time: u64) {}
    fn writable(&self) {
        self.writable.fetch_add(1, Relaxed);
    }
    fn is_alive(&self) -> bool {
        true
    }
}

struct Link {
    wire: Arc<Wire>,
    left: Port,
    right: Port,
    ends: [Arc<Sink>; 2],
}

fn link(mut options: WireOptions) -> Link {
    options.capacity = usize::MAX;
    bounded_link(options)
}

fn bounded_link(options: WireOptions) -> Link {
    let wire = Wire::new(options);
    let ends = [Arc::new(Sink::default()), Arc::new(Sink::default())];
    let [left, right] = [0, 1].map(|end| {
        let port = wire.port(end);
        let end: Arc<dyn Endpoint> = ends[end].clone();
        port.attach(Arc::downgrade(&end));
        port
    });
    Link { wire, left, right, ends }
}

fn frame(number: u32) -> Frame {
    [vec![0; 14], number.to_be_bytes().repeat(16)].concat()
}

/// Sends `count` frames 1 µs apart and returns the frames that arrive.
fn send(link: &Link, count: u32) -> Vec<Frame> {
    for number in 0..count {
        link.left.transmit(u64::from(number) * 1000, frame(number));
    }
    std::iter::from_fn(|| link.right.receive(u64::MAX)).collect()
}

const ALL: Faults = Faults {
    loss: 0.05,
    duplication: 0.02,
    corruption: 0.01,
    reordering: 0.1,
    marking: 0.0,
    jitter: Duration::from_micros(20),
};

#[test]
fn each_fault_occurs_at_its_configured_rate() {
    let link = link(WireOptions::immediate().with_faults(ALL).with_seed(7));
    let arrived = send(&link, 100_000);
    let counters = link.wire.counters(0);
    let near = |count: u64, share: f64| {
        let measured = f64::from(u32::try_from(count).unwrap()) / 100_000.0;
        (measured - share).abs() < 0.1 * share + 0.001
    };
    assert!(near(counters.lost, ALL.loss), "{counters:?}");
    assert!(near(counters.duplicated, ALL.duplication), "{counters:?}");
    assert!(near(counters.corrupted, ALL.corruption), "{counters:?}");
    assert!(near(counters.delayed, ALL.reordering), "{counters:?}");
    assert_eq!(arrived.len() as u64, 100_000 - counters.lost + counters.duplicated);
    let overtaken = arrived.windows(2).filter(|pair| pair[0] > pair[1]).count();
    assert!(overtaken > 1000, "only {overtaken} frames were overtaken");
}

/// Returns a frame with an IP header of this kind and ECN field.
fn ip_frame(v6: bool, ecn: u8) -> Frame {
    let mut frame = vec![0; 14 + 40];
    if v6 {
        frame[12..16].copy_from_slice(&[0x86, 0xdd, 0x60, ecn << 4]);
    } else {
        frame[12..16].copy_from_slice(&[0x08, 0x00, 0x45, ecn]);
        let checksum = !ones_complement_sum(&frame[14..34]);
        frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    }
    frame
}

fn ones_complement_sum(header: &[u8]) -> u16 {
    let words = header.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum: u32 = words.sum();
    ((sum & 0xffff) + (sum >> 16)) as u16
}

#[test]
fn ecn_capable_packets_are_marked_and_no_others() {
    let link = link(WireOptions::immediate().with_faults(Faults { marking: 1.0, ..Faults::NONE }));
    for (v6, ecn, marked) in
        [(false, 0, 0), (false, 1, 3), (false, 2, 3), (false, 3, 3), (true, 0, 0), (true, 1, 3), (true, 2, 3)]
    {
        link.left.transmit(0, ip_frame(v6, ecn));
        let arrived = link.right.receive(u64::MAX).unwrap();
        assert_eq!(arrived, ip_frame(v6, marked), "IPv6 {v6}, ECN field {ecn}");
        assert!(v6 || ones_complement_sum(&arrived[14..34]) == 0xffff, "the checksum is right");
    }
    link.left.transmit(0, frame(0));
    assert_eq!(link.right.receive(u64::MAX).unwrap(), frame(0), "no IP packet");
    assert_eq!(link.wire.counters(0).marked, 5);
}

#[test]
fn faults_repeat_with_the_same_seed_only() {
    let run = |seed| send(&link(WireOptions::immediate().with_faults(ALL).with_seed(seed)), 2000);
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn fault_of_a_frame_depends_on_its_number_only() {
    let fate = |number| ALL.fate(9, 0, number);
    let forward: Vec<Fate> = (0..500).map(fate).collect();
    let backward: Vec<Fate> = (0..500).rev().map(fate).collect();
    assert!(forward.iter().eq(backward.iter().rev()));
    let other: Vec<Fate> = (0..500).map(|number| ALL.fate(9, 1, number)).collect();
    assert_ne!(forward, other, "directions are independent");
}

#[test]
fn corrupted_frame_differs_in_one_bit_after_the_ethernet_header() {
    let faults = Faults { corruption: 1.0, ..Faults::NONE };
    let link = link(WireOptions::immediate().with_faults(faults));
    for (number, arrived) in send(&link, 1000).into_iter().enumerate() {
        let sent = frame(number as u32);
        assert_eq!(arrived[..14], sent[..14]);
        let bits: u32 = arrived.iter().zip(&sent).map(|(a, b)| (a ^ b).count_ones()).sum();
        assert_eq!(bits, 1);
    }
}

#[test]
fn delay_of_a_frame_follows_from_rate_and_latency() {
    let link = link(WireOptions::ten_gigabit());
    link.left.transmit(0, vec![0; 1476]);
    link.left.transmit(0, vec![0; 1476]);
    // 1500 bytes with overhead are 1.2 µs at 10 Gbit/s.
    assert_eq!(link.right.receive(6199), None);
    assert!(link.right.receive(6200).is_some());
    assert_eq!(link.right.receive(7399), None);
    assert!(link.right.receive(7400).is_some());
}

#[test]
fn waiting_sender_is_woken_when_its_end_is_cut_off() {
    let link = bounded_link(WireOptions { capacity: 1, ..WireOptions::immediate() });
    link.right.transmit(0, frame(0));
    assert!(!link.right.is_writable());
    link.wire.cut(1);
    assert_eq!(link.ends[1].writable.load(Relaxed), 1);
    assert!(link.right.is_writable());
}

#[test]
fn cut_end_sends_and_receives_nothing() {
    let link = link(WireOptions::immediate());
    link.left.transmit(0, frame(0));
    link.wire.cut(1);
    assert_eq!(link.right.receive(u64::MAX), None);
    link.left.transmit(0, frame(1));
    link.right.transmit(0, frame(2));
    assert_eq!(link.right.receive(u64::MAX), None);
    assert_eq!(link.left.receive(u64::MAX), None);
    assert_eq!(link.wire.counters(0).cut, 2);
    assert_eq!(link.wire.counters(1).cut, 1);
}

#[test]
fn renamed_end_is_reached_and_seen_at_its_new_address_only() {
    const ARP: [u8; 2] = [8, 6];
    let (left, old, new) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 9]);
    let arp = |to: [u8; 6], from: [u8; 6], sender: [u8; 6], target: [u8; 6]| {
        [&to[..], &from, &ARP, &[0; 8], &sender, &[0; 4], &target, &[0; 4]].concat()
    };
    let link = link(WireOptions::immediate());
    link.wire.rename(1, old, new);
    link.left.transmit(0, arp(old, left, left, old));
    assert_eq!(link.right.receive(u64::MAX), None);
    assert_eq!(link.wire.counters(0).cut, 1);
    link.left.transmit(0, arp(new, left, left, new));
    assert_eq!(link.right.receive(u64::MAX), Some(arp(old, left, left, old)));
    link.right.transmit(0, arp(left, old, old, left));
    assert_eq!(link.left.receive(u64::MAX), Some(arp(left, new, new, left)));
}

/// A file in memory.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn captured(lost: Lost) -> (Vec<u8>, u64) {
    let faults = Faults { loss: 0.5, ..Faults::NONE };
    let link = link(WireOptions::immediate().with_faults(faults).with_seed(3));
    let memory = Memory::default();
    let capture = Capture::new(memory.clone(), &["left", "right"], lost).unwrap();
    link.wire.capture(capture.clone());
    send(&link, 100);
    link.right.transmit(123_456_789, frame(1000));
    let frames = capture.finish().unwrap();
    let bytes = memory.0.lock().unwrap().clone();
    (bytes, frames)
}

#[test]
fn capture_contains_every_sent_frame_and_marks_lost_ones() {
    let (bytes, frames) = captured(Lost::Marked);
    assert_eq!(frames, 101);
    let mut reader = PcapNgReader::new(bytes.as_slice()).unwrap();
    let (mut seen, mut marked) = (Vec::new(), 0);
    while let Some(block) = reader.next_block() {
        if let Block::EnhancedPacket(packet) = block.unwrap().into_owned() {
            marked += usize::from(packet.options.len() == 2);
            seen.push((packet.interface_id, packet.timestamp, packet.data.into_owned()));
        }
    }
    assert_eq!(seen.len(), 101);
    assert!((30..70).contains(&marked), "{marked} of 100 are marked as lost");
    assert_eq!(seen[5], (0, Duration::from_micros(5), frame(5)));
    assert_eq!(seen[100], (1, Duration::from_nanos(123_456_789), frame(1000)));
}

#[test]
fn capture_without_lost_frames_repeats_byte_for_byte() {
    let (bytes, frames) = captured(Lost::Omitted);
    assert!((31..71).contains(&frames), "{frames} frames");
    assert_eq!(captured(Lost::Omitted).0, bytes);
}
