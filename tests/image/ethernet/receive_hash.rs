// SPDX-License-Identifier: MIT OR Apache-2.0

//! Hashes of received frames without receive side scaling (`OID_GEN_RECEIVE_HASH`). The simulated NDIS checks the hash of each frame.

use device_sim::virtio_net::Features;
use lab::testbed::Options;
use ndis_sim::HashParameters;
use ndk_abi::ndis::*;
use support::{
    bed::{finish, miniport, started_with},
    copying::copy,
    scaling::*,
};

fn hash(types: u32) -> HashParameters {
    HashParameters { types, key: KEY }
}

/// With and without receive side scaling among what the adapter offers, in its DPC and polled by NDIS.
#[test]
fn frames_have_the_hash_that_is_requested_and_are_indicated_where_they_arrive_in_every_ring_format() {
    over_formats(|format| {
        let features = Features::DEFAULT | Features::MQ | format;
        let of = |pairs, processors| Options { features, ..options(pairs, processors) };
        let mut without = of(2, 4);
        without.keywords.push(("*RSS", ndis_sim::Keyword::Text("0".into())));
        for options in [of(1, 1), of(4, 4), polled(of(4, 4)), without] {
            let Some(bed) = started_with(&options) else { return };
            let receiver = miniport(bed.machines()[1]);
            for types in [ALL_TYPES, TCP_TYPES, NDIS_HASH_UDP_IPV6] {
                receiver.scaling().set_hash(Some(&hash(types))).unwrap();
                settle(&bed);
                send(&bed, &mixture());
                send_flows(&bed, 20, 20);
            }
            assert_eq!(handed_over(bed.machines()[1]), 0, "frames stay on the processor of their interrupt");
            receiver.scaling().set_hash(None).unwrap();
            settle(&bed);
            send(&bed, &mixture());
            copy(&bed);
            finish(bed);
        }
    });
}

#[test]
fn hashes_alone_and_receive_side_scaling_exclude_each_other() {
    let Some(bed) = started_with(&options(2, 4)) else { return };
    let receiver = miniport(bed.machines()[1]);
    let rss = parameters(ALL_TYPES, &[0, 1, 2, 3]);
    receiver.scaling().set(Some(&rss)).unwrap();
    let refused = Err(NDIS_STATUS_NOT_SUPPORTED);
    assert_eq!(receiver.scaling().set_hash(Some(&hash(ALL_TYPES))).map_err(|error| error.status), refused);
    receiver.scaling().set_hash(None).unwrap();
    settle(&bed);
    send(&bed, &mixture());
    assert_eq!(receiver.scaling().parameters(), Some(rss.clone()), "to disable hashes leaves it enabled");
    receiver.scaling().set(None).unwrap();
    receiver.scaling().set_hash(Some(&hash(TCP_TYPES))).unwrap();
    assert_eq!(receiver.scaling().set(Some(&rss)).map_err(|error| error.status), refused);
    receiver.scaling().set(None).unwrap();
    settle(&bed);
    send(&bed, &mixture());
    assert_eq!(receiver.scaling().hash(), Some(hash(TCP_TYPES)), "to disable scaling leaves them enabled");
    receiver.scaling().set_hash(None).unwrap();
    receiver.scaling().set(Some(&rss)).unwrap();
    settle(&bed);
    send(&bed, &mixture());
    finish(bed);
}

#[test]
fn malformed_request_gets_its_status_and_changes_nothing() {
    type Edit = fn(&mut Vec<u8>);
    let (length, invalid) = (NDIS_STATUS_INVALID_LENGTH, NDIS_STATUS_INVALID_PARAMETER);
    let requests: [(Edit, NDIS_STATUS, &str); 12] = [
        (Vec::clear, length, "no bytes"),
        (|of| of.truncate(19), length, "shorter than the structure"),
        (|of| of.truncate(59), length, "without the end of its key"),
        (|of| of[0] = 0x89, invalid, "another type"),
        (|of| of[1] = 0, invalid, "no revision"),
        (|of| put(of, 2, &19_u16.to_le_bytes()), invalid, "a short structure"),
        (|of| put(of, 8, &(2 | ALL_TYPES).to_le_bytes()), invalid, "another function"),
        (|of| put(of, 8, &ALL_TYPES.to_le_bytes()), invalid, "no function"),
        (|of| put(of, 8, &1_u32.to_le_bytes()), invalid, "no type"),
        (|of| put(of, 8, &0x801_u32.to_le_bytes()), invalid, "a type that is not supported"),
        (|of| put(of, 12, &39_u16.to_le_bytes()), invalid, "a short key"),
        (|of| put(of, 16, &u32::MAX.to_le_bytes()), length, "a key behind the end"),
    ];
    let Some(bed) = started_with(&options(2, 4)) else { return };
    let receiver = miniport(bed.machines()[1]);
    for first in [None, Some(hash(NDIS_HASH_UDP_IPV4))] {
        receiver.scaling().set_hash(first.as_ref()).unwrap();
        settle(&bed);
        for (edit, expected, what) in &requests {
            let mut request = hash(TCP_TYPES).encode(NDIS_RECEIVE_HASH_FLAG_ENABLE_HASH);
            edit(&mut request);
            let outcome = receiver.set(OID_GEN_RECEIVE_HASH, &request);
            assert_eq!(outcome.map_err(|error| error.status), Err(*expected), "{what}");
        }
        assert_eq!(receiver.scaling().hash(), first);
        send(&bed, &mixture());
    }
    finish(bed);
}

#[test]
fn parts_that_a_request_leaves_unchanged_are_kept() {
    let unchanged = NDIS_RECEIVE_HASH_FLAG_HASH_INFO_UNCHANGED | NDIS_RECEIVE_HASH_FLAG_HASH_KEY_UNCHANGED;
    let Some(bed) = started_with(&options(2, 4)) else { return };
    let receiver = miniport(bed.machines()[1]);
    let other = HashParameters { types: TCP_TYPES, key: [1; 40] };
    let cases = [
        (hash(ALL_TYPES), unchanged, hash(ALL_TYPES)),
        (other.clone(), unchanged, hash(ALL_TYPES)),
        (other.clone(), NDIS_RECEIVE_HASH_FLAG_HASH_KEY_UNCHANGED, hash(TCP_TYPES)),
        (
            other,
            NDIS_RECEIVE_HASH_FLAG_HASH_INFO_UNCHANGED,
            HashParameters { types: TCP_TYPES, key: [1; 40] },
        ),
    ];
    for (requested, flags, expected) in cases {
        let request = requested.encode(NDIS_RECEIVE_HASH_FLAG_ENABLE_HASH | flags);
        receiver.set(OID_GEN_RECEIVE_HASH, &request).unwrap();
        assert_eq!(receiver.scaling().hash(), Some(expected));
        settle(&bed);
        send(&bed, &mixture());
    }
    finish(bed);
}

/// Across a reset of the device and a low-power state, too. A device that steers goes on as at its start; the driver computes hashes.
#[test]
fn device_reports_hashes_if_it_does_not_steer_and_the_driver_computes_them_otherwise() {
    for steers in [false, true] {
        let options = options(4, 5);
        let reports = options.features | Features::HASH_REPORT;
        let features = if steers { reports | Features::RSS } else { reports };
        let options = Options { features, ..options };
        let Some(bed) = started_with(&options) else { return };
        let machine = bed.machines()[1];
        let receiver = miniport(machine);
        receiver.scaling().set_hash(Some(&hash(TCP_TYPES))).unwrap();
        settle(&bed);
        let of_device = if steers { 0 } else { 0x1b };
        assert_eq!(machine.nic().hash_types(), of_device);
        send(&bed, &mixture());
        receiver.sleep().unwrap();
        receiver.wake().unwrap();
        assert_eq!(machine.nic().hash_types(), of_device);
        send(&bed, &mixture());
        receiver.scaling().set_hash(None).unwrap();
        assert_eq!(machine.nic().hash_types(), 0);
        settle(&bed);
        send(&bed, &mixture());
        copy(&bed);
        finish(bed);
    }
}
