// SPDX-License-Identifier: MIT OR Apache-2.0

//! Received frames that take several buffers, on the image, and a device that lies about their number.

use std::time::Duration;

use device_sim::{Quirks, virtio_net::Features};
use lab::{
    device::{DeviceKind, QemuVariant},
    has_qemu,
    testbed::{Options, Testbed},
};
use ndis_sim::Keyword;
use ndk_abi::ndis::{NDIS_PACKET_TYPE_DIRECTED, NDIS_STATUS_SUCCESS, OID_GEN_CURRENT_PACKET_FILTER};
use support::{
    bed::{exchange, finish, miniport, started_with},
    copying::copy,
    faults::{assert_recovered, event},
};

const MOMENT: Duration = Duration::from_secs(20);

/// Options for frames of up to 9014 bytes: the device does not limit them.
fn jumbo() -> Options {
    let keywords = vec![("*JumboPacket", Keyword::Text("9014".into()))];
    Options { keywords, features: Features::DEFAULT.without(Features::MTU), ..Options::default() }
}

/// Sends frames of these lengths from the second host to the first one, which receives them whole and in order.
fn send(bed: &Testbed, lengths: &[usize]) {
    let [receiver, sender] = bed.machines().map(miniport);
    let header = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xB5];
    let frame =
        |&len: &usize| header.into_iter().chain((0..).map(|n: usize| (n / 3) as u8)).take(len).collect();
    let frames: Vec<Vec<u8>> = lengths.iter().map(frame).collect();
    exchange(bed, &sender, &receiver, &frames);
}

/// Lengths around the end of the first buffer, and the longest, more than the ring has buffers.
fn lengths() -> Vec<usize> {
    [100, 4595, 4596, 4597, 9014].repeat(60)
}

//= virtio §10
#[test]
fn frames_longer_than_a_buffer_are_received_whole_with_every_ring_format() {
    for format in [Features::default(), Features::RING_PACKED] {
        for without in [Features::default(), Features::EVENT_IDX, Features::MRG_RXBUF] {
            let options = jumbo();
            let features = options.features.without(without) | format;
            let Some(bed) = started_with(&Options { features, ..options }) else { return };
            send(&bed, &lengths());
            copy(&bed);
            finish(bed);
        }
    }
}

//= virtio §10
#[test]
fn frames_longer_than_a_buffer_are_received_whole_from_qemus_device() {
    if !has_qemu() {
        return;
    }
    for property in ["mrg_rxbuf=on", "mrg_rxbuf=off", "packed=on"] {
        let device = DeviceKind::Qemu(QemuVariant {
            properties: vec![property.into(), "host_mtu=9000".into()],
            ..QemuVariant::default()
        });
        let Some(bed) = started_with(&Options { device, real_time: true, path_mtu: 1024, ..jumbo() }) else {
            return;
        };
        send(&bed, &lengths()[..50]);
        finish(bed);
    }
}

/// A buffer is no longer than with a small MTU, so that as many frames arrive while the driver is busy.
//= virtio §10
#[test]
fn large_mtu_leaves_as_many_receive_buffers() {
    const RECEIVE_VECTOR: u16 = 1;
    const BUFFERS: u64 = 256;
    for mtu in [9000, 16_384, 65_520, u16::MAX] {
        let quirks = Quirks { mtu: Some(mtu), ..Quirks::default() };
        let Some(bed) = started_with(&Options { quirks, ..Options::default() }) else { return };
        let [receiver, sender] = bed.machines().map(miniport);
        let nic = bed.machines()[0].nic();
        nic.mask_vector(RECEIVE_VECTOR, true);
        let before = nic.counters().received_frames;
        let frame = [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xB5][..], &[0; 86]].concat();
        for id in sender.send_chain(&vec![frame; 400], 0) {
            assert_eq!(sender.send_status(id, MOMENT), Some(NDIS_STATUS_SUCCESS));
        }
        let _ = bed.event().wait(Duration::from_millis(100));
        assert_eq!(nic.counters().received_frames - before, BUFFERS, "MTU {mtu}");
        nic.mask_vector(RECEIVE_VECTOR, false);
        let _ = (bed.event().wait(Duration::from_millis(100)), receiver.received());
        finish(bed);
    }
}

/// A frame waits if the buffers that are left are too few for it, and the driver notifies the device of more.
//= virtio §10
#[test]
fn frames_wait_for_as_many_buffers_as_they_need_in_every_ring_format() {
    const RECEIVE_VECTOR: u16 = 1;
    for format in [Features::default(), Features::RING_PACKED] {
        let options = jumbo();
        let Some(bed) = started_with(&Options { features: options.features | format, ..options }) else {
            return;
        };
        let [receiver, sender] = bed.machines().map(miniport);
        receiver.set(OID_GEN_CURRENT_PACKET_FILTER, &NDIS_PACKET_TYPE_DIRECTED.to_le_bytes()).unwrap();
        let nic = bed.machines()[0].nic();
        let dropped = nic.counters().dropped;
        let frame = |len: usize| {
            [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xB5][..], &vec![len as u8; len - 14]].concat()
        };
        nic.mask_vector(RECEIVE_VECTOR, true);
        // An odd number of buffers is left for frames of two buffers.
        let frames: Vec<_> =
            std::iter::once(frame(100)).chain((0..200).map(|number| frame(9014 - number))).collect();
        for id in sender.send_chain(&frames, 0) {
            assert_eq!(sender.send_status(id, MOMENT), Some(NDIS_STATUS_SUCCESS));
        }
        let _ = bed.event().wait(Duration::from_millis(100));
        nic.mask_vector(RECEIVE_VECTOR, false);
        let _ = bed.event().wait(Duration::from_millis(100));
        assert!(receiver.received() == frames);
        assert_eq!(nic.counters().dropped, dropped);
        finish(bed);
    }
}

/// One that cannot reset queues.
//= virtio §18
#[test]
fn device_that_lies_about_the_buffers_of_a_frame_is_reset() {
    for count in [0, 2, 256, u16::MAX] {
        for format in [Features::default(), Features::RING_PACKED] {
            // The frame that breaks the ring is the only one that arrives until the reset.
            let quirks = Quirks { num_buffers: Some((1, count)), ..Quirks::default() };
            let options = jumbo();
            let features = options.features.without(Features::RING_RESET) | format;
            let Some(bed) = started_with(&Options { quirks, features, ..options }) else { return };
            let [machine, _] = bed.machines();
            let sender = miniport(bed.machines()[1]);
            let frame = [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xB5][..], &[0; 86]].concat();
            assert_eq!(sender.send(&frame, MOMENT), Some(NDIS_STATUS_SUCCESS));
            assert!(miniport(machine).ndk().await_events(2, MOMENT), "{}", bed.violations().join("\n"));
            assert_recovered(machine, event::BROKEN_RING, 1);
            finish(bed);
        }
    }
}
