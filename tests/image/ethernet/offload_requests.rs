// SPDX-License-Identifier: MIT OR Apache-2.0

//! `OID_TCP_OFFLOAD_PARAMETERS` on the image: task offloads change at run time.

use device_sim::virtio_net::Features;
use lab::testbed::{Options, Testbed};
use ndis_sim::{Offloads, SendRequest, offload::encapsulation};
use ndk_abi::ndis::{
    NDIS_OBJECT_TYPE_DEFAULT, NDIS_OFFLOAD_PARAMETERS_LSOV2_DISABLED, NDIS_OFFLOAD_PARAMETERS_LSOV2_ENABLED,
    NDIS_OFFLOAD_PARAMETERS_REVISION_1, NDIS_OFFLOAD_PARAMETERS_REVISION_5,
    NDIS_OFFLOAD_PARAMETERS_RSC_DISABLED, NDIS_OFFLOAD_PARAMETERS_RSC_ENABLED,
    NDIS_OFFLOAD_PARAMETERS_RX_ENABLED_TX_DISABLED, NDIS_OFFLOAD_PARAMETERS_TX_ENABLED_RX_DISABLED,
    NDIS_OFFLOAD_PARAMETERS_TX_RX_DISABLED, NDIS_OFFLOAD_PARAMETERS_TX_RX_ENABLED,
    NDIS_OFFLOAD_PARAMETERS_USO_DISABLED, NDIS_OFFLOAD_PARAMETERS_USO_ENABLED, NDIS_STATUS_FAILURE,
    NDIS_STATUS_INVALID_DATA, NDIS_STATUS_INVALID_LENGTH, NDIS_STATUS_INVALID_PARAMETER,
    NDIS_STATUS_NOT_SUPPORTED, NDIS_STATUS_SUCCESS, OID_OFFLOAD_ENCAPSULATION, OID_TCP_OFFLOAD_PARAMETERS,
};
use support::{
    bed::{finish, miniport, started_with},
    packets::{deliver_requests, everything, frame4, frame6, tcp, udp, udp4},
};

/// Lengths of an NDIS_OFFLOAD_PARAMETERS of revisions 1 and 5.
const PARAMETERS: usize = 20;
const PARAMETERS_5: usize = 36;

/// Two hosts on a link with an MTU of 1500, without coalescing.
fn with(features: Features) -> Option<Testbed> {
    let features = features.without(Features::COALESCING);
    started_with(&Options { features, path_mtu: 1024, ..Options::default() })
}

/// An NDIS_OFFLOAD_PARAMETERS of a revision, without changes.
fn unchanged<const LENGTH: usize>(revision: u8) -> [u8; LENGTH] {
    let mut parameters = [0; LENGTH];
    parameters[..3].copy_from_slice(&[NDIS_OBJECT_TYPE_DEFAULT, revision, LENGTH as u8]);
    parameters
}

fn parameters() -> [u8; PARAMETERS] {
    unchanged(NDIS_OFFLOAD_PARAMETERS_REVISION_1)
}

fn parameters5() -> [u8; PARAMETERS_5] {
    unchanged(NDIS_OFFLOAD_PARAMETERS_REVISION_5)
}

/// Offsets of its members.
const TCP_IPV4: usize = 5;
const LSOV1: usize = 9;
const LSOV2_IPV4: usize = 11;
const LSOV2_IPV6: usize = 12;
const RSC: usize = 22;
const USO: usize = 32;

#[test]
fn offloads_change_at_run_time_and_the_change_is_reported() {
    let Some(bed) = with(Features::DEFAULT) else { return };
    let miniport = miniport(bed.machines()[0]);
    let all = miniport.offloads();
    assert_eq!((all.send, all.receive), (everything(), everything()));
    assert_eq!((all.large_send, all.udp_segmentation), ([Some((64_000, 2)); 2], [Some((34_304, 2)); 2]));
    assert_eq!(all, miniport.possible_offloads());
    let of = |checksums: ndis_sim::offload::Checksums| {
        [checksums.ipv4, checksums.tcp4, checksums.udp4, checksums.tcp6, checksums.udp6]
    };
    for member in 0..5 {
        for (value, send, receive) in [
            (NDIS_OFFLOAD_PARAMETERS_TX_RX_DISABLED, false, false),
            (NDIS_OFFLOAD_PARAMETERS_TX_ENABLED_RX_DISABLED, true, false),
            (NDIS_OFFLOAD_PARAMETERS_RX_ENABLED_TX_DISABLED, false, true),
            (NDIS_OFFLOAD_PARAMETERS_TX_RX_ENABLED, true, true),
        ] {
            let mut change = parameters();
            change[4 + member] = value;
            miniport.set(OID_TCP_OFFLOAD_PARAMETERS, &change).unwrap();
            let (mut sends, mut receives) = ([true; 5], [true; 5]);
            (sends[member], receives[member]) = (send, receive);
            let now = miniport.offloads();
            assert_eq!((of(now.send), of(now.receive)), (sends, receives), "member {member}, {value}");
            assert_eq!(now.large_send, all.large_send);
        }
    }
    for (member, version) in [(LSOV2_IPV4, 0), (LSOV2_IPV6, 1)] {
        let mut change = parameters();
        change[member] = NDIS_OFFLOAD_PARAMETERS_LSOV2_DISABLED;
        miniport.set(OID_TCP_OFFLOAD_PARAMETERS, &change).unwrap();
        assert_eq!(miniport.offloads().large_send[version], None);
        // Lists on their way are dropped.
        let mut frame = [frame4(0, 6, 0, &tcp(0, 3000)), frame6(0, 6, 0, &tcp(0, 3000))][version].clone();
        let request = SendRequest::large_send(&mut frame, 1400);
        let sent = deliver_requests(&bed, 0, vec![(frame.clone(), request)]);
        assert_eq!(sent, (vec![NDIS_STATUS_FAILURE], vec![]));
        change[member] = NDIS_OFFLOAD_PARAMETERS_LSOV2_ENABLED;
        miniport.set(OID_TCP_OFFLOAD_PARAMETERS, &change).unwrap();
        assert_eq!(miniport.offloads(), all);
        assert_eq!(deliver_requests(&bed, 0, vec![(frame, request)]).0, [NDIS_STATUS_SUCCESS]);
    }
    for version in [0, 1] {
        let mut change = parameters5();
        change[USO + version] = NDIS_OFFLOAD_PARAMETERS_USO_DISABLED;
        miniport.set(OID_TCP_OFFLOAD_PARAMETERS, &change).unwrap();
        let mut expected = all;
        expected.udp_segmentation[version] = None;
        assert_eq!(miniport.offloads(), expected);
        let mut frame = [udp4(0, 0, 3000), frame6(0, 17, 0, &udp(3000))][version].clone();
        let request = SendRequest::udp_segmentation(&mut frame, 1400);
        let sent = deliver_requests(&bed, 0, vec![(frame.clone(), request)]);
        assert_eq!(sent, (vec![NDIS_STATUS_FAILURE], vec![]));
        change[USO + version] = NDIS_OFFLOAD_PARAMETERS_USO_ENABLED;
        // Earlier revisions do not have the member.
        miniport.set(OID_TCP_OFFLOAD_PARAMETERS, &change[..USO]).unwrap();
        change[1] = NDIS_OFFLOAD_PARAMETERS_REVISION_5 - 1;
        miniport.set(OID_TCP_OFFLOAD_PARAMETERS, &change).unwrap();
        assert_eq!(miniport.offloads(), expected);
        change[1] = NDIS_OFFLOAD_PARAMETERS_REVISION_5;
        miniport.set(OID_TCP_OFFLOAD_PARAMETERS, &change).unwrap();
        assert_eq!(miniport.offloads(), all);
        assert_eq!(deliver_requests(&bed, 0, vec![(frame, request)]).0, [NDIS_STATUS_SUCCESS]);
    }
    for (on, sends) in [([false, true], [false, false, false, true, true]), ([true; 2], [true; 5])] {
        miniport.set(OID_OFFLOAD_ENCAPSULATION, &encapsulation(on)).unwrap();
        assert_eq!(of(miniport.offloads().send), sends);
        assert_eq!(miniport.offloads().large_send.map(|of| of.is_some()), on);
        assert_eq!(miniport.offloads().udp_segmentation.map(|of| of.is_some()), on);
    }
    finish(bed);
}

#[test]
fn malformed_and_impossible_offload_requests_get_their_documented_status_and_change_nothing() {
    let without = Features::HOST_TSO6 | Features::HOST_USO;
    let Some(bed) = with(Features::DEFAULT.without(without)) else { return };
    let miniport = miniport(bed.machines()[0]);
    let before = miniport.offloads();
    let changed = |at: usize, value: u8| {
        let mut parameters = parameters();
        parameters[at] = value;
        parameters.to_vec()
    };
    let changed5 = |at: usize, value: u8| {
        let mut parameters = parameters5();
        parameters[at] = value;
        parameters.to_vec()
    };
    let encapsulated = |at: usize, value: u8| {
        let mut encapsulation = encapsulation([true; 2]);
        encapsulation[at] = value;
        encapsulation
    };
    let (parameters_oid, encapsulation_oid) = (OID_TCP_OFFLOAD_PARAMETERS, OID_OFFLOAD_ENCAPSULATION);
    let cases = [
        (parameters_oid, parameters()[..PARAMETERS - 1].to_vec(), NDIS_STATUS_INVALID_LENGTH),
        (parameters_oid, vec![], NDIS_STATUS_INVALID_LENGTH),
        // Type, revision.
        (parameters_oid, changed(0, 0xa7), NDIS_STATUS_INVALID_DATA),
        (parameters_oid, changed(1, 0), NDIS_STATUS_INVALID_DATA),
        // Unknown values.
        (parameters_oid, changed(4, 5), NDIS_STATUS_INVALID_DATA),
        (parameters_oid, changed(8, 0xff), NDIS_STATUS_INVALID_DATA),
        (parameters_oid, changed(LSOV2_IPV4, 3), NDIS_STATUS_INVALID_DATA),
        // What the adapter does not have.
        (parameters_oid, changed(LSOV2_IPV6, 2), NDIS_STATUS_INVALID_DATA),
        (parameters_oid, changed(LSOV1, 2), NDIS_STATUS_INVALID_DATA),
        (parameters_oid, changed(10, 2), NDIS_STATUS_INVALID_DATA),
        (parameters_oid, changed5(USO, NDIS_OFFLOAD_PARAMETERS_USO_ENABLED), NDIS_STATUS_INVALID_DATA),
        (parameters_oid, changed5(USO + 1, NDIS_OFFLOAD_PARAMETERS_USO_ENABLED), NDIS_STATUS_INVALID_DATA),
        (parameters_oid, changed5(USO, 3), NDIS_STATUS_INVALID_DATA),
        (parameters_oid, changed5(RSC, NDIS_OFFLOAD_PARAMETERS_RSC_ENABLED), NDIS_STATUS_INVALID_DATA),
        (parameters_oid, changed5(RSC + 1, NDIS_OFFLOAD_PARAMETERS_RSC_ENABLED), NDIS_STATUS_INVALID_DATA),
        (encapsulation_oid, encapsulation([true; 2])[..27].to_vec(), NDIS_STATUS_INVALID_LENGTH),
        (encapsulation_oid, encapsulated(0, 0x80), NDIS_STATUS_INVALID_DATA),
        (encapsulation_oid, encapsulated(1, 0), NDIS_STATUS_INVALID_DATA),
        // Unknown value; an encapsulation that the adapter does not support.
        (encapsulation_oid, encapsulated(4, 3), NDIS_STATUS_INVALID_PARAMETER),
        (encapsulation_oid, encapsulated(8, 1), NDIS_STATUS_INVALID_PARAMETER),
        (encapsulation_oid, encapsulated(20, 0x10), NDIS_STATUS_INVALID_PARAMETER),
    ];
    for (oid, value, status) in cases {
        let refused = miniport.set(oid, &value).unwrap_err();
        assert_eq!(refused.status, status, "{oid:#x}, {value:02x?}");
        assert_eq!(miniport.offloads(), before);
    }
    assert_eq!(miniport.set(parameters_oid, &[]).unwrap_err().needed, PARAMETERS as u32);
    // Disabled is what they are.
    for at in [LSOV1, LSOV2_IPV6] {
        miniport.set(parameters_oid, &changed(at, 1)).unwrap();
    }
    miniport.set(parameters_oid, &changed5(USO, NDIS_OFFLOAD_PARAMETERS_USO_DISABLED)).unwrap();
    miniport.set(parameters_oid, &changed5(RSC, NDIS_OFFLOAD_PARAMETERS_RSC_DISABLED)).unwrap();
    // Revisions before 3 do not have the member.
    let mut older = changed5(RSC, NDIS_OFFLOAD_PARAMETERS_RSC_ENABLED);
    older[1] = 2;
    miniport.set(parameters_oid, &older).unwrap();
    assert_eq!(miniport.offloads(), before);
    finish(bed);
}

#[test]
fn device_without_offloads_has_an_adapter_without() {
    let none = Features::DEFAULT.without(Features::OFFLOADS);
    let Some(bed) = with(none) else { return };
    let miniport = miniport(bed.machines()[0]);
    assert_eq!(miniport.possible_offloads(), Offloads::default());
    let refused = miniport.set(OID_OFFLOAD_ENCAPSULATION, &encapsulation([true; 2])).unwrap_err();
    assert_eq!(refused.status, NDIS_STATUS_NOT_SUPPORTED);
    let mut frame = frame4(0, 6, 0, &tcp(0, 3000));
    let request = SendRequest::large_send(&mut frame, 1400);
    assert_eq!(deliver_requests(&bed, 0, vec![(frame, request)]), (vec![NDIS_STATUS_FAILURE], vec![]));
    let mut change = parameters();
    change[TCP_IPV4] = NDIS_OFFLOAD_PARAMETERS_TX_RX_ENABLED;
    let refused = miniport.set(OID_TCP_OFFLOAD_PARAMETERS, &change).unwrap_err();
    assert_eq!(refused.status, NDIS_STATUS_INVALID_DATA);
    finish(bed);
}
