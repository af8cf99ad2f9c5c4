// SPDX-License-Identifier: MIT OR Apache-2.0

//! The virtio-net device under the project's own driver, and under drivers that break the rules.

use std::sync::Arc;

use crate::bench::{Bench, Machine};
use device_sim::{
    Bus as _, Nic, NicOptions, Quirks, Registers as _,
    link::{Endpoint, Wire, WireOptions},
    pci::{self, BrokenCapabilities, COMMON, NOTIFY, VIRTIO_BAR},
    virtio_net::{Features, UsedQuirk},
};
use trapped_access::Width;
use virtio_net::Error;

const LEFT: [u8; 6] = [2, 0, 0, 0, 0, 1];
const RIGHT: [u8; 6] = [2, 0, 0, 0, 0, 2];

fn alone() -> Bench {
    Bench::new(NicOptions::new(LEFT))
}

fn misbehaving(quirks: Quirks) -> Bench {
    Bench::new(NicOptions { quirks, ..NicOptions::new(LEFT) })
}

/// Runs `test` with the features of each ring format.
fn over_formats(test: impl Fn(Features)) {
    for format in [Features::default(), Features::RING_PACKED] {
        test(Features::DEFAULT | format);
        test(Features::DEFAULT.without(Features::EVENT_IDX) | format);
    }
}

/// Two NICs on one wire, in one machine.
fn pair(options: WireOptions, features: Features, right: Quirks) -> (Bench, Bench, Arc<Wire>) {
    let machine = Arc::new(Machine::default());
    let wire = Wire::new(options);
    let left = Bench::on(&machine, NicOptions { features, ..NicOptions::new(LEFT) });
    let right = Bench::on(&machine, NicOptions { features, quirks: right, ..NicOptions::new(RIGHT) });
    left.nic.connect(wire.port(0));
    right.nic.connect(wire.port(1));
    (left, right, wire)
}

fn frame(number: u32) -> Vec<u8> {
    let header = [RIGHT.as_slice(), &LEFT, &[0x88, 0xb5]].concat();
    [header, number.to_le_bytes().repeat(40)].concat()
}

/// The other end of a wire: resets a NIC in the middle of its work, as the driver does on another processor.
struct Resetter(Arc<Nic>);

impl Resetter {
    fn reset(&self) {
        const STATUS: u64 = 20;
        self.0.write(VIRTIO_BAR, COMMON + STATUS, Width::Byte, 0).expect("a reset is no misuse");
    }
}

impl Endpoint for Resetter {
    fn wake_at(&self, _time: u64) {
        self.reset();
    }

    fn writable(&self) {
        self.reset();
    }

    fn is_alive(&self) -> bool {
        true
    }
}

#[test]
fn device_that_is_reset_after_it_has_sent_a_frame_accesses_no_memory() {
    let (left, wire) = (alone(), Wire::new(WireOptions::immediate()));
    left.nic.connect(wire.port(0));
    let other = Arc::new(Resetter(left.nic.clone()));
    let endpoint: Arc<dyn Endpoint> = other.clone();
    wire.port(1).attach(Arc::downgrade(&endpoint));
    let mut driver = left.bring_up().unwrap();
    for number in 0..3 {
        assert!(driver.send(&frame(number)));
    }
    driver.kick();
    left.machine.settle();
    assert_eq!(wire.counters(0).sent, 1);
    assert_eq!(left.machine.misuse(), [""; 0]);
}

#[test]
fn device_that_is_reset_after_it_has_taken_a_frame_off_the_wire_accesses_no_memory() {
    let (left, wire) = (alone(), Wire::new(WireOptions { capacity: 1, ..WireOptions::immediate() }));
    left.nic.connect(wire.port(0));
    let other = Arc::new(Resetter(left.nic.clone()));
    let endpoint: Arc<dyn Endpoint> = other.clone();
    wire.port(1).attach(Arc::downgrade(&endpoint));
    let _driver = left.bring_up().unwrap();
    let mut to_left = frame(1);
    to_left[..6].copy_from_slice(&LEFT);
    wire.port(1).transmit(left.machine.now(), to_left);
    assert!(!wire.port(1).is_writable(), "the wire is full, so that its sender is notified of room");
    left.machine.settle();
    assert_eq!(wire.counters(1).delivered, 1);
    assert_eq!(left.machine.misuse(), [""; 0]);
}

#[test]
fn frames_arrive_in_order_and_unchanged() {
    over_formats(|features| {
        let (left, right, wire) = pair(WireOptions::ten_gigabit(), features, Quirks::default());
        let (mut sender, mut receiver) = (left.bring_up().unwrap(), right.bring_up().unwrap());
        let mut expected = 0;
        for first in (0..10_000).step_by(100) {
            for number in first..first + 100 {
                assert!(sender.send(&frame(number)));
            }
            sender.kick();
            left.machine.settle();
            for received in receiver.received().unwrap() {
                assert_eq!(received, frame(expected));
                expected += 1;
            }
        }
        assert_eq!(expected, 10_000);
        assert_eq!(wire.counters(0).delivered, 10_000);
        assert_eq!(left.machine.misuse(), Vec::<String>::new());
    });
}

#[test]
fn receiver_without_buffers_blocks_the_sender_without_loss() {
    over_formats(|features| {
        let options = WireOptions { capacity: 64, ..WireOptions::immediate() };
        let (left, right, wire) = pair(options, features, Quirks::default());
        let (mut sender, mut receiver) = (left.bring_up().unwrap(), right.bring_up().unwrap());
        // 256 buffers, 64 frames on the wire, 256 in the sender's ring.
        let mut sent = 0;
        while sender.send(&frame(sent)) {
            sent += 1;
            sender.kick();
            left.machine.settle();
        }
        assert!(sent > 256 + 64, "{sent} frames went out before the sender had to wait");
        assert!(wire.counters(0).paused > 0);
        let mut arrived = Vec::new();
        loop {
            let more = receiver.received().unwrap();
            if more.is_empty() {
                break;
            }
            arrived.extend(more);
            left.machine.settle();
        }
        assert_eq!(arrived, (0..sent).map(frame).collect::<Vec<_>>());
    });
}

#[test]
fn device_interrupts_for_the_first_frame_and_then_on_request() {
    for features in [Features::DEFAULT, Features::DEFAULT | Features::RING_PACKED] {
        let (left, right, _) = pair(WireOptions::immediate(), features, Quirks::default());
        let (mut sender, mut receiver) = (left.bring_up().unwrap(), right.bring_up().unwrap());
        let interrupts = |sender: &mut crate::bench::Driver, number| {
            let before = right.nic.counters().interrupts;
            assert!(sender.send(&frame(number)));
            sender.kick();
            left.machine.settle();
            right.nic.counters().interrupts - before
        };
        assert_eq!(interrupts(&mut sender, 0), 1);
        assert_eq!(interrupts(&mut sender, 1), 0, "not asked for");
        assert_eq!(receiver.received().unwrap().len(), 2);
        assert!(!receiver.receive(0).request_interrupt());
        assert_eq!(interrupts(&mut sender, 2), 1);
    }
}

#[test]
fn device_starts_again_after_a_reset() {
    over_formats(|features| {
        let bench = Bench::new(NicOptions { features, ..NicOptions::new(LEFT) });
        for _ in 0..3 {
            drop(bench.bring_up().unwrap());
            assert!(!bench.nic.is_running());
        }
        assert_eq!(bench.machine.misuse(), Vec::<String>::new());
    });
}

/// As QEMU's device: with buffers in the queue, it does not ask for notifications of more.
#[test]
fn receive_queue_wants_no_notifications_while_it_has_buffers() {
    over_formats(|features| {
        let (left, right, _) = pair(WireOptions::immediate(), features, Quirks::default());
        let (mut sender, mut receiver) = (left.bring_up().unwrap(), right.bring_up().unwrap());
        let before = right.nic.counters().notifications;
        for number in 0..20 {
            assert!(sender.send(&frame(number)));
            sender.kick();
            left.machine.settle();
            assert_eq!(receiver.received().unwrap().len(), 1);
            left.machine.settle();
        }
        assert_eq!(right.nic.counters().notifications - before, 0, "{features:?}");
        drop((sender, receiver));
        assert_eq!(left.machine.misuse(), Vec::<String>::new());
    });
}

/// Drivers of others set vectors late, which QEMU's device takes.
#[test]
fn lenient_device_takes_the_vector_of_an_enabled_queue() {
    for lenient in [false, true] {
        let bench = misbehaving(Quirks { lenient, ..Quirks::default() });
        let driver = bench.bring_up().unwrap();
        bench.write(COMMON + 0x16, Width::Word, 0);
        let before = bench.read_common(0x1a);
        assert_ne!(before, 2);
        bench.write(COMMON + 0x1a, Width::Word, 2);
        let misuse = bench.machine.misuse().join("; ");
        assert_eq!(misuse.contains("register 0x1a of enabled queue 0 written"), !lenient, "{misuse}");
        assert_eq!(bench.read_common(0x1a), if lenient { 2 } else { before });
        drop(driver);
        let bench = misbehaving(Quirks { lenient, ..Quirks::default() });
        bench.write(COMMON + 0x16, Width::Word, 0);
        bench.write(COMMON + 0x1a, Width::Word, 0xffff);
        let misuse = bench.machine.misuse().join("; ");
        assert_eq!(misuse.contains("before FEATURES_OK"), !lenient, "{misuse}");
    }
}

#[test]
fn driver_refuses_unusable_devices() {
    let refused = |quirks| misbehaving(quirks).bring_up().err().expect("the driver refuses it");
    let quirks = Quirks::default();
    assert_eq!(refused(Quirks { no_version_1: true, ..quirks }), Error::NoVersion1);
    assert_eq!(refused(Quirks { bypasses_iommu: true, ..quirks }), Error::BypassesIommu);
    assert_eq!(refused(Quirks { rejects_features: true, ..quirks }), Error::FeaturesRejected);
    assert_eq!(refused(Quirks { never_resets: true, ..quirks }), Error::ResetTimeout);
    assert_eq!(refused(Quirks { refuses_vectors_from: Some(0), ..quirks }), Error::VectorRefused);
    for broken in [
        BrokenCapabilities::Loop,
        BrokenCapabilities::NoSuchBar,
        BrokenCapabilities::BeyondBar,
        BrokenCapabilities::Truncated,
        BrokenCapabilities::NoCommon,
        BrokenCapabilities::NoList,
    ] {
        refused(Quirks { capabilities: Some(broken), ..quirks });
    }
}

#[test]
fn corrupted_used_ring_reaches_the_driver() {
    over_formats(|features| {
        let lie = |quirk| {
            let quirks = Quirks { used: Some((3, quirk)), ..Quirks::default() };
            let (left, right, _) = pair(WireOptions::immediate(), features, quirks);
            let (mut sender, mut receiver) = (left.bring_up().unwrap(), right.bring_up().unwrap());
            for number in 0..5 {
                assert!(sender.send(&frame(number)));
            }
            sender.kick();
            left.machine.settle();
            receiver.received()
        };
        assert!(matches!(lie(UsedQuirk::IdOutOfRange), Err(Error::BrokenRing(_))));
        assert!(matches!(lie(UsedQuirk::IndexJump), Err(Error::BrokenRing(_))));
        // A buffer returned twice may be posted again by then: the driver sees one frame twice.
        for quirk in [UsedQuirk::IdTwice, UsedQuirk::LengthTooLarge, UsedQuirk::LengthTooSmall] {
            assert_ne!(lie(quirk), Ok((0..5).map(frame).collect()), "{quirk:?} went unnoticed");
        }
    });
}

#[test]
fn removed_device_reads_all_ones() {
    let bench = alone();
    let mut driver = bench.bring_up().unwrap();
    bench.nic.remove();
    assert_eq!(driver.control.reset().err(), Some(Error::Removed));
    assert!(bench.nic.with_config(|_| ()).is_none());
}

#[test]
fn device_responds_only_while_memory_decoding_is_on() {
    let bench = alone();
    let status = || bench.nic.read(VIRTIO_BAR, COMMON + 0x14, Width::Byte);
    assert_eq!(status(), Ok(0));
    bench.nic.with_config(|config| config.set_command(pci::COMMAND_BUS_MASTER));
    assert_eq!(status(), Ok(0xff));
    bench.write(COMMON + 0x14, Width::Byte, 1);
    bench.nic.with_config(|config| config.set_command(pci::COMMAND_AT_START));
    assert_eq!(status(), Ok(0), "the write was lost");
}

#[test]
fn device_uses_memory_and_interrupts_only_as_bus_master() {
    let bench = alone();
    let mut driver = bench.bring_up().unwrap();
    bench.machine.messages();
    let mut attempt = |command, up| {
        bench.nic.with_config(|config| config.set_command(command));
        assert!(driver.send(&frame(0)));
        driver.kick();
        bench.machine.settle();
        bench.nic.set_link(up);
        (bench.nic.counters().sent_frames, bench.machine.messages())
    };
    assert_eq!(attempt(pci::COMMAND_AT_START | pci::COMMAND_BUS_MASTER, false), (1, vec![2, 0]));
    assert_eq!(attempt(pci::COMMAND_AT_START, true), (1, vec![]));
}

#[test]
fn bus_mastering_is_off_after_a_low_power_state() {
    let bench = alone();
    bench.nic.enter_low_power();
    bench.nic.leave_low_power();
    assert_eq!(bench.nic.with_config(|config| config.command()), Some(pci::COMMAND_AT_START));
}

#[test]
fn device_that_needs_a_reset_raises_the_configuration_interrupt() {
    let bench = alone();
    let driver = bench.bring_up().unwrap();
    bench.machine.messages();
    bench.nic.need_reset();
    assert_eq!(bench.machine.messages(), [0]);
    drop(driver);
    assert!(bench.bring_up().is_ok(), "it works again after the reset");
}

#[test]
fn register_access_at_the_wrong_time_or_width_is_reported() {
    let misuse = |misbehave: &dyn Fn(&Bench)| {
        let bench = alone();
        misbehave(&bench);
        bench.machine.misuse().join("; ")
    };
    let early = misuse(&|bench| bench.write(NOTIFY, Width::Word, 0));
    assert!(early.contains("before DRIVER_OK"), "{early}");
    let order = misuse(&|bench| bench.write(COMMON + 0x14, Width::Byte, 4));
    assert!(order.contains("skips a step"), "{order}");
    let wide = misuse(&|bench| bench.write(COMMON + 0x14, Width::Dword, 0));
    assert!(wide.contains("32-bit access"), "{wide}");
    let queue = misuse(&|bench| bench.write(COMMON + 0x1c, Width::Word, 1));
    assert!(queue.contains("before FEATURES_OK"), "{queue}");
    let unknown = misuse(&|bench| {
        bench.write(COMMON + 0x14, Width::Byte, 1);
        bench.write(COMMON + 0x14, Width::Byte, 3);
        bench.write(COMMON + 0x0c, Width::Dword, 1 << 10);
    });
    assert!(unknown.contains("not offered"), "{unknown}");
}

#[test]
fn dma_to_unmapped_memory_is_reported() {
    over_formats(|features| {
        let (left, right, _) = pair(WireOptions::immediate(), features, Quirks::default());
        let (mut sender, _receiver) = (left.bring_up().unwrap(), right.bring_up().unwrap());
        assert!(sender.send(&frame(0)));
        left.unmap_all();
        sender.kick();
        left.machine.settle();
        let misuse = left.machine.misuse().join("; ");
        assert!(misuse.contains("not mapped for the device"), "{misuse}");
        assert!(!left.nic.is_running(), "the device stops");
    });
}

#[test]
fn malformed_descriptor_of_a_packed_ring_is_reported() {
    let features = Features::DEFAULT.without(Features::INDIRECT_DESC) | Features::RING_PACKED;
    // The field of the second descriptor, its new value, and the report.
    let cases = [
        (8, 4, 0, "a descriptor of 0 bytes"),
        (12, 2, 256, "buffer id 256 in a packed ring of 256"),
        (14, 2, 0x80 | 1, "continues with one that is not available"),
        (14, 2, 0x80 | 2, "device-writable buffer"),
        (14, 2, 0x80 | 4, "INDIRECT_DESC was not negotiated"),
        (14, 2, 0x80 | 8, "descriptor flags 0x88"),
    ];
    for (field, len, value, expected) in cases {
        let bench = Bench::new(NicOptions { features, ..NicOptions::new(LEFT) });
        let mut driver = bench.bring_up().unwrap();
        assert!(driver.send(&frame(0)));
        assert!(driver.send(&frame(1)));
        bench.poke(bench.area(1, 0) + 16 + field, len, value);
        driver.kick();
        bench.machine.settle();
        let misuse = bench.machine.misuse().join("; ");
        assert!(misuse.contains(expected), "{expected}: {misuse}");
    }
}

#[test]
fn malformed_event_of_a_packed_ring_is_reported() {
    let features = Features::DEFAULT | Features::RING_PACKED;
    let without_events = features.without(Features::EVENT_IDX);
    for (features, event, expected) in [
        (features, 3 << 16, "event suppression flags 0x3"),
        (without_events, 2 << 16, "event suppression flags 0x2"),
        (features, 2 << 16 | 256, "an interrupt event at descriptor 256"),
    ] {
        let bench = Bench::new(NicOptions { features, ..NicOptions::new(LEFT) });
        let mut driver = bench.bring_up().unwrap();
        assert!(driver.send(&frame(0)));
        bench.poke(bench.area(1, 1), 4, event);
        driver.kick();
        bench.machine.settle();
        let misuse = bench.machine.misuse().join("; ");
        assert!(misuse.contains(expected), "{expected}: {misuse}");
    }
}
