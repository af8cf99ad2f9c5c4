// SPDX-License-Identifier: MIT OR Apache-2.0

//! Checks of task offloads: each is reported to a miniport that commits the offence.

use std::{
    mem::offset_of,
    sync::atomic::{AtomicU16, AtomicU64, Ordering::Relaxed},
};

use crate::common::{
    lists::list_of,
    scripted::{
        Script, assert_all_reported, header, host, in_initialize, register, simulation, verdict,
        verdict_while_running,
    },
};
use ndis_sim::{Miniport, SendRequest, adapter, data_path, ndk, offload::encapsulation};
use ndk_abi::ndis::{
    NDIS_ENCAPSULATION_IEEE_802_3, NDIS_MINIPORT_ADAPTER_OFFLOAD_ATTRIBUTES,
    NDIS_MINIPORT_ADAPTER_OFFLOAD_ATTRIBUTES_REVISION_1, NDIS_MINIPORT_DRIVER_CHARACTERISTICS,
    NDIS_NET_BUFFER_LIST_INFO, NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_OFFLOAD_ATTRIBUTES,
    NDIS_OBJECT_TYPE_OFFLOAD, NDIS_OBJECT_TYPE_STATUS_INDICATION, NDIS_OFFLOAD, NDIS_OFFLOAD_REVISION_6,
    NDIS_SIZEOF_MINIPORT_ADAPTER_OFFLOAD_ATTRIBUTES_REVISION_1, NDIS_SIZEOF_NDIS_OFFLOAD_REVISION_1,
    NDIS_SIZEOF_NDIS_OFFLOAD_REVISION_2, NDIS_SIZEOF_NDIS_OFFLOAD_REVISION_3,
    NDIS_SIZEOF_NDIS_OFFLOAD_REVISION_4, NDIS_SIZEOF_NDIS_OFFLOAD_REVISION_5,
    NDIS_SIZEOF_NDIS_OFFLOAD_REVISION_6, NDIS_SIZEOF_STATUS_INDICATION_REVISION_1, NDIS_STATUS_INDICATION,
    NDIS_STATUS_SUCCESS, NDIS_STATUS_TASK_OFFLOAD_CURRENT_CONFIG,
    NDIS_TCP_IP_CHECKSUM_NET_BUFFER_LIST_INFO as Checksum, NET_BUFFER_LIST, OID_OFFLOAD_ENCAPSULATION,
    OID_TCP_OFFLOAD_PARAMETERS,
};
use nt_sim::{guest::Guest, nt::time::sleep};

/// Options, TCP, UDP and IP header.
pub(super) const ALL_IPV4: u32 = 0b01_01_01_01_01;
const TCP_IPV4: u32 = 0b01_01_01;

pub(super) type Edit =
    fn(&mut NDIS_MINIPORT_ADAPTER_OFFLOAD_ATTRIBUTES, &mut NDIS_OFFLOAD, &mut NDIS_OFFLOAD);

pub(super) fn offload(receive4: u32) -> NDIS_OFFLOAD {
    let mut offload = NDIS_OFFLOAD::zeroed();
    offload.Header =
        header(NDIS_OBJECT_TYPE_OFFLOAD, NDIS_OFFLOAD_REVISION_6, NDIS_SIZEOF_NDIS_OFFLOAD_REVISION_6);
    if receive4 != 0 {
        offload.Checksum.IPv4Receive.Encapsulation = NDIS_ENCAPSULATION_IEEE_802_3;
        offload.Checksum.IPv4Receive.IpOptionsSupported = receive4;
    }
    offload
}

/// Sets offload attributes after `edit` has changed them, what is possible and what is in force: all that is received over IPv4.
pub(super) fn attributes(handle: usize, edit: Edit) {
    let (mut possible, mut current) = (offload(ALL_IPV4), offload(ALL_IPV4));
    let mut attributes = NDIS_MINIPORT_ADAPTER_OFFLOAD_ATTRIBUTES::zeroed();
    attributes.Header = header(
        NDIS_OBJECT_TYPE_MINIPORT_ADAPTER_OFFLOAD_ATTRIBUTES,
        NDIS_MINIPORT_ADAPTER_OFFLOAD_ATTRIBUTES_REVISION_1,
        NDIS_SIZEOF_MINIPORT_ADAPTER_OFFLOAD_ATTRIBUTES_REVISION_1,
    );
    edit(&mut attributes, &mut possible, &mut current);
    attributes.HardwareOffloadCapabilities = &raw mut possible;
    attributes.DefaultOffloadConfiguration = &raw mut current;
    let status = adapter::NdisMSetMiniportAttributes(handle, Guest::new(&raw mut attributes).cast());
    assert_eq!(status, NDIS_STATUS_SUCCESS);
}

pub(super) fn report(handle: usize, mut current: NDIS_OFFLOAD) {
    let mut indication = NDIS_STATUS_INDICATION::zeroed();
    indication.Header =
        header(NDIS_OBJECT_TYPE_STATUS_INDICATION, 1, NDIS_SIZEOF_STATUS_INDICATION_REVISION_1);
    indication.SourceHandle = std::ptr::without_provenance_mut(handle);
    indication.StatusCode = NDIS_STATUS_TASK_OFFLOAD_CURRENT_CONFIG;
    indication.StatusBuffer = (&raw mut current).cast();
    indication.StatusBufferSize = size_of::<NDIS_OFFLOAD>() as u32;
    ndk::NdisMIndicateStatusEx(handle, Guest::new(&raw mut indication));
}

#[test]
fn offload_attributes_that_contradict_themselves_are_reported() {
    assert_eq!(verdict(in_initialize(|handle| attributes(handle, |_, _, _| {}))), "no violation");
    let header = "an NDIS_OFFLOAD with the header";
    let beyond = "task offloads are in force that the hardware does not have";
    assert_all_reported(&[
        (
            |handle| attributes(handle, |of, _, _| of.Header.Revision = 2),
            "the offload attributes have revision 2",
        ),
        (
            |handle| attributes(handle, |of, _, _| of.Header.Size = 8),
            "the offload attributes have revision 1 and size 8",
        ),
        (|handle| attributes(handle, |_, possible, _| possible.Header.Revision = 7), header),
        (|handle| attributes(handle, |_, possible, _| possible.Header.Revision = 0), header),
        (|handle| attributes(handle, |_, possible, _| possible.Header.Size -= 1), header),
        (|handle| attributes(handle, |_, _, current| current.Header.Type = 0x80), header),
        (
            |handle| attributes(handle, |_, _, current| current.Checksum.IPv4Receive.Encapsulation = 0),
            "checksums 0x155 with the encapsulation 0x0",
        ),
        (
            |handle| {
                attributes(handle, |_, possible, _| {
                    possible.Checksum.IPv4Receive.IpOptionsSupported = TCP_IPV4;
                });
            },
            beyond,
        ),
        (
            |handle| {
                attributes(handle, |_, _, current| {
                    current.LsoV2.IPv4.Encapsulation = NDIS_ENCAPSULATION_IEEE_802_3;
                });
            },
            beyond,
        ),
        (
            |handle| {
                attributes(handle, |_, _, current| {
                    current.UdpSegmentation.IPv6.Encapsulation = NDIS_ENCAPSULATION_IEEE_802_3;
                });
            },
            beyond,
        ),
        (
            |handle| attributes(handle, |_, possible, _| possible.Rsc.IPv4.Enabled = 1),
            "the adapter coalesces segments, but OID_TCP_RSC_STATISTICS is not supported",
        ),
        (
            |handle| {
                attributes(handle, |_, possible, current| {
                    (*possible, *current) = (offload(TCP_IPV4), offload(TCP_IPV4));
                });
                report(handle, offload(ALL_IPV4));
            },
            beyond,
        ),
    ]);
}

#[test]
fn structure_of_offloads_has_a_revision_of_the_drivers_version_or_an_earlier_one() {
    static REVISION: AtomicU16 = AtomicU16::new(0);
    static SIZE: AtomicU16 = AtomicU16::new(0);
    let revisions = [
        (0, NDIS_SIZEOF_NDIS_OFFLOAD_REVISION_1),
        (1, NDIS_SIZEOF_NDIS_OFFLOAD_REVISION_2),
        (30, NDIS_SIZEOF_NDIS_OFFLOAD_REVISION_3),
        (50, NDIS_SIZEOF_NDIS_OFFLOAD_REVISION_4),
        (70, NDIS_SIZEOF_NDIS_OFFLOAD_REVISION_5),
        (83, NDIS_SIZEOF_NDIS_OFFLOAD_REVISION_6),
    ];
    for minor in [30, 50, 60, 70, 80, 83, 85] {
        for (revision, (since, size)) in (1..).zip(revisions) {
            REVISION.store(revision, Relaxed);
            SIZE.store(size, Relaxed);
            let mut sim = simulation();
            let host = host(&mut sim);
            let script = in_initialize(|handle| {
                attributes(handle, |_, possible, current| {
                    for of in [possible, current] {
                        of.Header.Revision = REVISION.load(Relaxed) as u8;
                        of.Header.Size = SIZE.load(Relaxed);
                    }
                });
            });
            let older = move |of: &mut NDIS_MINIPORT_DRIVER_CHARACTERISTICS| of.MinorNdisVersion = minor;
            assert_eq!(register(&host, script, older), Some(NDIS_STATUS_SUCCESS));
            let started = Miniport::start(&host).is_ok();
            assert_eq!(started, since <= minor, "revision {revision}, NDIS 6.{minor}: {}", sim.verdict());
        }
    }
}

#[test]
fn change_of_offloads_that_is_not_reported_is_a_violation() {
    let silent = Script {
        initialize: Some(|handle| attributes(handle, |_, _, _| {})),
        answer: Some(|_, _| NDIS_STATUS_SUCCESS),
        ..Script::default()
    };
    for set in [
        |miniport: &Miniport| {
            let _ = miniport.set(OID_TCP_OFFLOAD_PARAMETERS, &[0; 20]);
        },
        |miniport: &Miniport| {
            let _ = miniport.set(OID_OFFLOAD_ENCAPSULATION, &encapsulation([true; 2]));
        },
    ] {
        let verdict = verdict_while_running(silent, set);
        assert!(verdict.contains("succeeded without NDIS_STATUS_TASK_OFFLOAD_CURRENT_CONFIG"), "{verdict}");
    }
}

/// A TCP segment without payload, with right checksums.
const SEGMENT: [u8; 54] = {
    let mut frame = [0; 54];
    frame[12] = 8;
    frame[14] = 0x45;
    frame[17] = 40;
    frame[23] = 6;
    // !(4500 + 0028 + 0006)
    frame[24] = 0xba;
    frame[25] = 0xd1;
    frame[46] = 0x50;
    // !(0006 + 0014 + 5000)
    frame[50] = 0xaf;
    frame[51] = 0xe5;
    frame
};

/// Whether the offloads are started, what the miniport does, and the report.
type Case = (bool, fn(usize), &'static str);

/// Indicates a frame with this `TcpIpChecksumNetBufferListInfo`.
fn indicate(handle: usize, frame: &[u8], checksum: u32) {
    let list = list_of(handle, frame);
    list.field::<usize>(offset_of!(NET_BUFFER_LIST, NetBufferListInfo)).write(checksum as usize);
    data_path::NdisMIndicateReceiveNetBufferLists(handle, list, 0, 1, 0);
}

/// Runs a miniport whose stack starts the offloads, if `start` says so, and that commits the offence when it is paused.
fn reported(start: bool, offence: fn(usize)) -> String {
    let script = Script {
        initialize: Some(|handle| attributes(handle, |_, _, _| {})),
        answer: Some(|handle, _| {
            report(handle, offload(ALL_IPV4));
            NDIS_STATUS_SUCCESS
        }),
        pausing: Some(offence),
        ..Script::default()
    };
    if start {
        verdict_while_running(script, |miniport| {
            let _ = miniport.start_offloads();
        })
    } else {
        verdict_while_running(script, |_| {})
    }
}

#[test]
fn checksum_that_is_reported_but_was_not_computed_is_a_violation() {
    let right = reported(true, |handle| {
        indicate(handle, &SEGMENT, Checksum::RECEIVE_TCP_SUCCEEDED | Checksum::RECEIVE_IP_SUCCEEDED);
    });
    // The lists of the tests are not freed.
    assert!(!right.contains("checksum"), "{right}");
    let mut cases: Vec<Case> = vec![
        (
            false,
            |handle| indicate(handle, &SEGMENT, Checksum::RECEIVE_TCP_SUCCEEDED),
            "that offload is not in force",
        ),
        (
            false,
            |handle| indicate(handle, &SEGMENT, Checksum::RECEIVE_IP_SUCCEEDED),
            "an IPv4 checksum is reported, but that offload is not in force",
        ),
        (
            true,
            |handle| indicate(handle, &SEGMENT, Checksum::RECEIVE_UDP_SUCCEEDED),
            "that offload is not in force, or there is none",
        ),
        (true, |handle| indicate(handle, &SEGMENT, Checksum::RECEIVE_TCP_FAILED), "which it is not"),
        (
            true,
            |handle| indicate(handle, &SEGMENT, Checksum::RECEIVE_IP_FAILED),
            "the checksum of an IPv4 header is reported as",
        ),
        (
            true,
            |handle| indicate(handle, &SEGMENT, 1 << 6),
            "TcpIpChecksumNetBufferListInfo of a received frame is 0x40",
        ),
    ];
    cases.push((
        true,
        |handle| indicate(handle, &SEGMENT, Checksum::RECEIVE_TCP_SUCCEEDED | Checksum::RECEIVE_TCP_FAILED),
        "TcpIpChecksumNetBufferListInfo of a received frame is 0x9",
    ));
    cases.push((
        true,
        |handle| {
            let mut wrong = SEGMENT;
            wrong[53] = 1;
            indicate(handle, &wrong, Checksum::RECEIVE_TCP_SUCCEEDED);
        },
        "which it is not",
    ));
    cases.push((
        true,
        |handle| {
            let mut wrong = SEGMENT;
            wrong[22] = 1;
            indicate(handle, &wrong, Checksum::RECEIVE_IP_SUCCEEDED);
        },
        "the checksum of an IPv4 header is reported as",
    ));
    // Once the frames that were on their way have arrived, what was switched off is no longer reported.
    let stopped = Script {
        initialize: Some(|handle| attributes(handle, |_, _, _| {})),
        answer: Some(|handle, _| {
            report(handle, offload(ALL_IPV4));
            NDIS_STATUS_SUCCESS
        }),
        pause: Some(|handle| {
            indicate(handle, &SEGMENT, Checksum::RECEIVE_TCP_SUCCEEDED);
            NDIS_STATUS_SUCCESS
        }),
        ..Script::default()
    };
    for (wait, reported) in [(0, false), (20_000_000, true)] {
        static WAIT: AtomicU64 = AtomicU64::new(0);
        WAIT.store(wait, Relaxed);
        let verdict = verdict_while_running(stopped, |miniport| {
            let _ = miniport.start_offloads();
            let _ = miniport.set(OID_OFFLOAD_ENCAPSULATION, &encapsulation([false; 2]));
            sleep(WAIT.load(Relaxed));
        });
        assert_eq!(verdict.contains("that offload is not in force"), reported, "{verdict}");
    }
    for (start, offence, expected) in cases {
        let verdict = reported(start, offence);
        assert!(verdict.contains(expected), "expected '{expected}', got: {verdict}");
    }
}

#[test]
fn large_send_that_completes_without_its_result_is_reported() {
    let complete = |handle, list: *mut NET_BUFFER_LIST| {
        data_path::NdisMSendNetBufferListsComplete(handle, Guest::new(list), 0);
    };
    let mut sim = simulation();
    let host = host(&mut sim);
    let registered = register(&host, Script { send: Some(complete), ..Script::default() }, |_| {});
    assert_eq!(registered, Some(NDIS_STATUS_SUCCESS));
    let miniport = Miniport::start(&host).unwrap();
    let send = move || {
        let mut frame = SEGMENT.to_vec();
        let request = SendRequest::large_send(&mut frame, 1000);
        miniport.send_requests(vec![(frame, request)])
    };
    assert!(host.spawn("protocol", send).join().is_err(), "the host dies");
    let verdict = sim.verdict().to_string();
    assert!(verdict.contains("TcpLargeSendNetBufferListInfo of a completed list is"), "{verdict}");
}

#[test]
fn priority_or_vlan_that_is_reported_without_its_mac_option_is_a_violation() {
    let verdict = reported(false, |handle| {
        let list = list_of(handle, &SEGMENT);
        let slot = NDIS_NET_BUFFER_LIST_INFO::Ieee8021QNetBufferListInfo.0 as usize * size_of::<usize>();
        list.field::<usize>(offset_of!(NET_BUFFER_LIST, NetBufferListInfo) + slot).write(0x53);
        data_path::NdisMIndicateReceiveNetBufferLists(handle, list, 0, 1, 0);
    });
    assert!(verdict.contains("Ieee8021QNetBufferListInfo of a received frame is 0x53"), "{verdict}");
}
