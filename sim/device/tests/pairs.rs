// SPDX-License-Identifier: MIT OR Apache-2.0

//! Several queue pairs of the virtio-net device.

use std::sync::Arc;

use crate::bench::{Bench, Driver, Machine};
use device_sim::{
    NicOptions,
    link::{Wire, WireOptions},
    pci,
    virtio_net::Features,
};
use trapped_access::Width;

const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
/// Pairs of each device.
const PAIRS: u16 = 3;
/// Frames that the wire holds.
const CAPACITY: usize = 64;

/// A wire between two NICs whose drivers have programmed all pairs, in one machine.
fn hosts(features: Features) -> ([Bench; 2], [Driver; 2]) {
    let machine = Arc::new(Machine::default());
    let wire = Wire::new(WireOptions { capacity: CAPACITY, ..WireOptions::immediate() });
    let benches = [0, 1].map(|end| {
        let options = NicOptions::with_pairs(MACS[end], PAIRS);
        let bench = Bench::on(&machine, NicOptions { features: options.features | features, ..options });
        bench.nic.connect(wire.port(end));
        bench
    });
    let drivers = [0, 1].map(|end: usize| benches[end].bring_up_with(PAIRS).unwrap());
    (benches, drivers)
}

fn over_formats(test: impl Fn([Bench; 2], [Driver; 2])) {
    for format in [Features::default(), Features::RING_PACKED] {
        let (benches, drivers) = hosts(format);
        test(benches, drivers);
    }
}

/// A UDP packet from host `from` to the other.
fn udp(from: usize, ports: [u16; 2]) -> Vec<u8> {
    let addresses = [[10, 0, 0, 1], [10, 0, 0, 2]];
    let mut frame = [&MACS[1 - from][..], &MACS[from], &[0x08, 0x00, 0x45]].concat();
    frame.resize(60, 0);
    frame[23] = 17;
    frame[26..30].copy_from_slice(&addresses[from]);
    frame[30..34].copy_from_slice(&addresses[1 - from]);
    frame[34..36].copy_from_slice(&ports[0].to_be_bytes());
    frame[36..38].copy_from_slice(&ports[1].to_be_bytes());
    frame
}

/// Returns the number of frames that each pair received.
fn received(driver: &mut Driver) -> [usize; PAIRS as usize] {
    std::array::from_fn(|pair| driver.received_by(pair).unwrap().len())
}

#[test]
fn flow_returns_on_the_pair_that_sent_it_with_the_interrupt_of_that_pair() {
    over_formats(|[left, _right], [mut near, mut far]| {
        assert_eq!((near.set_pairs(PAIRS), far.set_pairs(1)), (Ok(true), Ok(true)));
        assert_eq!(left.nic.active_pairs(), 3);
        for pair in [2, 0, 1] {
            near.send_by(pair, &udp(0, [700, 53]));
            left.machine.settle();
            assert_eq!(received(&mut far), [1, 0, 0]);
            let _ = left.machine.messages();
            let before = left.nic.counters().interrupts;
            for other in 0..3 {
                assert!(!near.receive(other).request_interrupt());
            }
            far.send_by(0, &udp(1, [53, 700]));
            left.machine.settle();
            // The second vector is that of the first pair. The other NIC may interrupt, too.
            assert_eq!(left.nic.counters().interrupts, before + 1);
            assert!(left.machine.messages().contains(&(1 + pair as u32)));
            let mut expected = [0; 3];
            expected[pair] = 1;
            assert_eq!(received(&mut near), expected);
        }
        assert_eq!(left.machine.misuse(), [""; 0]);
    });
}

#[test]
fn frames_of_many_flows_are_spread_over_the_pairs_in_use() {
    over_formats(|[left, _right], [mut near, mut far]| {
        let send = |far: &mut Driver| {
            for port in 0..30 {
                far.send_by(0, &udp(1, [port, 4791]));
            }
            left.machine.settle();
        };
        send(&mut far);
        assert_eq!(received(&mut near), [30, 0, 0], "the first pair alone is in use");
        assert_eq!(near.set_pairs(2), Ok(true));
        send(&mut far);
        let [first, second, third] = received(&mut near);
        assert!(first >= 5 && second >= 5 && third == 0, "{first} {second} {third}");
        assert_eq!(first + second, 30);
        assert_eq!(near.set_pairs(1), Ok(true));
        send(&mut far);
        assert_eq!(received(&mut near), [30, 0, 0]);
        assert_eq!(left.machine.misuse(), [""; 0]);
    });
}

#[test]
fn frames_that_waited_on_the_wire_for_buffers_are_delivered_when_pairs_are_added() {
    over_formats(|[left, _right], [mut near, mut far]| {
        // More than the 256 buffers of the only pair in use, which is not polled.
        for port in 0..300 {
            if port == 256 {
                left.machine.settle();
                far.transmit(0).reap().unwrap();
            }
            far.send_by(0, &udp(1, [port, 4791]));
        }
        left.machine.settle();
        // The receive queue of a pair that is not in use.
        left.write(pci::NOTIFY + u64::from(2 * pci::NOTIFY_MULTIPLIER), Width::Word, 2);
        left.machine.settle();
        assert!(near.received_by(1).unwrap().is_empty());
        assert_eq!(near.set_pairs(PAIRS), Ok(true));
        left.machine.settle();
        let counts = received(&mut near);
        assert!(counts[0] >= 256 && counts[1] > 0 && counts[2] > 0, "{counts:?}");
        left.machine.settle();
        let rest = received(&mut near);
        assert_eq!(counts.iter().chain(&rest).sum::<usize>(), 300);
    });
}

#[test]
fn frames_are_counted_by_pair_and_those_beyond_the_limit_as_dropped() {
    over_formats(|[left, _right], [mut near, mut far]| {
        assert_eq!(near.set_pairs(PAIRS), Ok(true));
        near.send_by(2, &udp(0, [700, 53]));
        left.machine.settle();
        // The pair has 256 buffers, and 1000 frames may wait for more.
        for number in 0..1300 {
            far.send_by(0, &udp(1, [53, 700]));
            if number % 100 == 99 {
                left.machine.settle();
                far.transmit(0).reap().unwrap();
            }
        }
        let counters =
            left.nic.pair_counters().iter().map(|pair| (pair.sent, pair.received)).collect::<Vec<_>>();
        assert_eq!(counters, [(0, 0), (0, 0), (1, 256)]);
        assert_eq!(left.nic.counters().dropped, 1300 - 1256);
        assert_eq!(near.set_pairs(2), Ok(true));
        assert_eq!(left.nic.counters().dropped, 1300 - 256, "nor is there a pair for those that waited");
        assert_eq!(left.machine.misuse(), [""; 0]);
    });
}

#[test]
fn each_pair_goes_on_to_send_when_a_full_wire_has_room() {
    over_formats(|[left, _right], [mut near, mut far]| {
        assert_eq!(near.set_pairs(PAIRS), Ok(true));
        // The other host has 256 buffers.
        for number in 0..200 {
            for pair in 0..3 {
                near.send_by(pair, &udp(0, [number, 53]));
            }
        }
        let mut count = 0;
        for _ in 0..10 {
            left.machine.settle();
            count += received(&mut far)[0];
        }
        assert_eq!(count, 600);
        assert_eq!(left.machine.misuse(), [""; 0]);
    });
}

#[test]
fn pair_that_hangs_sends_nothing_until_the_device_is_reset() {
    over_formats(|[left, _right], [mut near, mut far]| {
        assert_eq!(near.set_pairs(PAIRS), Ok(true));
        left.nic.misbehavior().hang(1);
        for pair in [1, 2] {
            near.send_by(pair, &udp(0, [pair as u16, 53]));
        }
        left.machine.settle();
        assert_eq!(received(&mut far), [1, 0, 0]);
        let mut near = left.bring_up_with(PAIRS).unwrap();
        assert_eq!(left.nic.active_pairs(), 1);
        assert_eq!(near.set_pairs(PAIRS), Ok(true));
        near.send_by(1, &udp(0, [1, 53]));
        left.machine.settle();
        assert_eq!(received(&mut far), [1, 0, 0]);
        assert_eq!(left.machine.misuse(), [""; 0]);
    });
}

#[test]
fn pair_that_hangs_sends_again_when_its_queue_is_reset() {
    for format in [Features::default(), Features::RING_PACKED] {
        let ([left, _right], [mut near, mut far]) = hosts(Features::RING_RESET | format);
        assert_eq!(near.set_pairs(PAIRS), Ok(true));
        left.nic.misbehavior().hang(1);
        near.send_by(1, &udp(0, [1, 53]));
        left.machine.settle();
        near.reset_queue(1);
        for _ in 0..3 {
            near.send_by(1, &udp(0, [2, 53]));
        }
        left.machine.settle();
        assert_eq!(received(&mut far), [3, 0, 0], "all but the frame that the queue had");
        assert_eq!(left.machine.misuse(), [""; 0]);
    }
}

#[test]
fn device_refuses_numbers_of_pairs_that_it_does_not_have() {
    over_formats(|[left, _right], [mut near, _far]| {
        assert_eq!((near.set_pairs(0), near.set_pairs(PAIRS + 1)), (Ok(false), Ok(false)));
        assert_eq!(left.nic.active_pairs(), 1);
        assert_eq!(left.machine.misuse(), [""; 0]);
    });
}

#[test]
fn frame_sent_by_a_pair_that_is_not_in_use_is_a_misuse() {
    over_formats(|[left, _right], [mut near, _far]| {
        assert_eq!(near.set_pairs(2), Ok(true));
        near.send_by(2, &udp(0, [1, 2]));
        left.machine.settle();
        let misuse = left.machine.misuse();
        assert_eq!(misuse, ["a frame is sent by pair 2, which is not in use (virtio 5.1.6.5.5)"]);
    });
}

/// Of the third pair, one queue or both are not enabled.
#[test]
fn use_of_a_pair_with_a_queue_that_is_not_enabled_is_a_misuse() {
    for queues in [&[4][..], &[5], &[4, 5]] {
        let options = NicOptions::with_pairs(MACS[0], PAIRS);
        let bench = Bench::new(NicOptions { features: options.features | Features::RING_RESET, ..options });
        let mut driver = bench.bring_up_with(2).unwrap();
        for &queue in queues {
            bench.write(pci::COMMON + 0x16, Width::Word, queue);
            bench.write(pci::COMMON + 0x3a, Width::Word, 1);
        }
        assert!(driver.set_pairs(3).is_err(), "the device has stopped");
        let misuse = bench.machine.misuse();
        assert_eq!(misuse, ["3 queue pairs are used, but not all are enabled (virtio 5.1.6.5.5)"]);
    }
}

/// The driver sends no such command: an earlier one is changed, and made available again.
#[test]
fn command_for_the_number_of_pairs_is_refused_without_mq() {
    let options = NicOptions::with_pairs(MACS[0], PAIRS);
    // A command is a chain of two descriptors, which the test writes.
    let features = options.features.without(Features::MQ | Features::INDIRECT_DESC);
    let bench = Bench::new(NicOptions { features, ..options });
    let mut driver = bench.bring_up().unwrap();
    receive_everything(&mut driver);
    let [descriptors, available] = [0, 1].map(|area| bench.area(2, area));
    let (command, answer) = (bench.peek(descriptors), bench.peek(descriptors + 16));
    bench.poke(command, 4, 0x0001_0004);
    bench.poke(descriptors + 8, 4, 4);
    bench.poke(answer, 1, 0xff);
    let index = bench.peek(available) >> 16 & 0xffff;
    bench.poke(available + 4 + 2 * (index % 8), 2, 0);
    bench.poke(available + 2, 2, index + 1);
    bench.write(pci::NOTIFY + u64::from(2 * pci::NOTIFY_MULTIPLIER), Width::Word, 2);
    bench.machine.settle();
    assert_eq!(bench.peek(answer) & 0xff, 1, "an error");
    assert_eq!(bench.machine.misuse(), [""; 0]);
}

fn receive_everything(driver: &mut Driver) {
    let mode = virtio_net::ReceiveMode {
        promiscuous: true,
        all_multicast: false,
        station: None,
        multicast: &[],
        vlan: None,
    };
    assert_eq!(
        driver.commands().set_receive_mode(&mode, |waited| waited < std::time::Duration::from_secs(2)),
        Ok(true)
    );
}

#[test]
fn driver_without_mq_has_one_pair_and_the_control_queue_behind_it() {
    let options = NicOptions::with_pairs(MACS[0], PAIRS);
    let features = options.features.without(Features::MQ);
    let bench = Bench::new(NicOptions { features, ..options });
    let mut driver = bench.bring_up_with(PAIRS).unwrap();
    assert_eq!(driver.nic().pairs.len(), 1);
    receive_everything(&mut driver);
    assert_eq!(bench.machine.misuse(), [""; 0]);
}
