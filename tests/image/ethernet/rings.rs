// SPDX-License-Identifier: MIT OR Apache-2.0

//! The sizes of the queues: what `*ReceiveBuffers`, `*TransmitBuffers` and the device allow.

use std::time::Duration;

use device_sim::{Quirks, virtio_net::Features};
use lab::testbed::Options;
use ndis_sim::Keyword;
use ndk_abi::ndis::{OID_GEN_RECEIVE_BUFFER_SPACE, OID_GEN_TRANSMIT_BUFFER_SPACE};
use nt_sim::delays::Moment;
use support::bed::{exchange, finish, miniport, started_with, word};

fn keyword(name: &'static str, value: u32) -> (&'static str, Keyword) {
    (name, Keyword::Text(value.to_string()))
}

/// Returns a frame of `len` bytes to the second host.
fn frame(len: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5];
    frame.resize(len, 0);
    frame
}

/// Rounded down to powers of two, of which a split ring's size is one. An invalid value is replaced by the default.
//= virtio §3
#[test]
fn queues_are_as_large_as_keywords_and_device_allow() {
    for (keywords, device, expected) in [
        (&[][..], [1024, 1024], [1024, 1024]),
        (&[], [256, 512], [256, 512]),
        (&[], [4096, 4096], [2048, 1024]),
        (&[keyword("*ReceiveBuffers", 4096), keyword("*TransmitBuffers", 16)], [4096, 4096], [4096, 16]),
        (&[keyword("*ReceiveBuffers", 1000), keyword("*TransmitBuffers", 31)], [4096, 4096], [512, 16]),
        (&[keyword("*ReceiveBuffers", 4097), keyword("*TransmitBuffers", 15)], [4096, 4096], [2048, 1024]),
    ] {
        for format in [Features::default(), Features::RING_PACKED] {
            let options = Options {
                keywords: keywords.to_vec(),
                queue_sizes: device,
                features: Features::DEFAULT | format,
                path_mtu: 1024,
                ..Options::default()
            };
            let Some(bed) = started_with(&options) else { return };
            let nic = bed.machines()[0].nic();
            assert_eq!(nic.queue_sizes(), expected, "{keywords:?}, {device:?}");
            let [here, there] = bed.machines().map(miniport);
            let spaces = [OID_GEN_RECEIVE_BUFFER_SPACE, OID_GEN_TRANSMIT_BUFFER_SPACE];
            let spaces = spaces.map(|oid| word(&here.query(oid, 4).unwrap(), 0));
            assert_eq!(spaces, expected.map(|buffers| u32::from(buffers) * 1514));
            exchange(&bed, &here, &there, &vec![frame(100); 2]);
            finish(bed);
        }
    }
}

/// At 10 Gb/s, 1130 frames of a RoCE frame size of 1024 arrive in a millisecond. The device drops what it has no buffer for.
#[test]
fn frames_that_arrive_while_a_dpc_is_a_millisecond_late_are_not_lost() {
    for (keywords, is_enough) in [
        (vec![], true),
        (vec![keyword("*ReceiveBuffers", 1024)], false),
        (vec![keyword("*ReceiveBuffers", 256)], false),
    ] {
        let what = format!("{keywords:?}");
        let options = Options {
            keywords,
            queue_sizes: [4096, 1024],
            peer_quirks: Quirks { drops_without_buffer: true, ..Quirks::default() },
            path_mtu: 1024,
            ..Options::default()
        };
        let Some(bed) = started_with(&options) else { return };
        let [here, there] = bed.machines();
        let late =
            there.host().delays.add(Moment::Call("MiniportMessageInterruptDPC"), Duration::from_millis(1));
        // Ethernet, IPv4, UDP, BTH, payload, ICRC.
        let frame = frame(14 + 20 + 8 + 12 + 1024 + 4);
        let before = there.nic().counters();
        let _ = miniport(here).send_chain(&vec![frame; 1300], 0);
        let _ = bed.event().wait(Duration::from_millis(10));
        let after = there.nic().counters();
        assert!(late.is_reached());
        let (received, lost) =
            (after.received_frames - before.received_frames, after.dropped - before.dropped);
        assert_eq!(received + lost, 1300);
        assert_eq!(lost == 0, is_enough, "{what}: {lost} frames are lost");
        finish(bed);
    }
}
