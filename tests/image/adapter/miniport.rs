// SPDX-License-Identifier: MIT OR Apache-2.0

//! NDK functions of the miniport: interface versions, OIDs, RDMA state changes, pause, address removal.

use std::{
    mem::offset_of,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use lab::{
    image,
    testbed::{Options, Testbed},
};
use ndis_sim::{IpHost as _, Miniport, NdisHost as _, NdkEvent};
use ndk_abi::{
    ndis::{
        NDIS_OID, NDIS_PACKET_TYPE_DIRECTED, NDIS_REQUEST_TYPE, NDIS_STATUS_ADAPTER_NOT_READY,
        NDIS_STATUS_BAD_VERSION, NDIS_STATUS_BUFFER_TOO_SHORT, NDIS_STATUS_INVALID_LENGTH,
        NDIS_STATUS_INVALID_PARAMETER, NDIS_STATUS_NOT_SUPPORTED, NDIS_STATUS_RESOURCES, NDIS_STATUS_SUCCESS,
        OID_802_3_MULTICAST_LIST, OID_GEN_CURRENT_PACKET_FILTER, OID_GEN_MAXIMUM_TOTAL_SIZE,
        OID_GEN_STATISTICS, OID_GEN_VENDOR_DESCRIPTION,
    },
    ndk::{
        NDIS_NDK_PERFORMANCE_COUNTERS, NDIS_NDK_STATISTICS_INFO, NDIS_OPEN_NDK_ADAPTER_PARAMETERS,
        NDK_VERSION, OID_NDK_CONNECTIONS, OID_NDK_LOCAL_ENDPOINTS, OID_NDK_SET_STATE, OID_NDK_STATISTICS,
    },
};
use ndk_consumer::{
    Listener,
    endpoint::{Endpoint, EndpointConfig, listen_for_one},
    transfer::Progress,
};
use nt_sim::delays::Moment;
use support::{
    bed::{counter, finish, miniport, started, word},
    copying::try_copy,
    frames::frame,
};

const MOMENT: Duration = Duration::from_secs(5);
const ON: &[u8] = &[1];
const OFF: &[u8] = &[0];

/// Type, revision and size of an answer's header.
fn header(answer: &[u8]) -> (u8, u8, u16) {
    (answer[0], answer[1], u16::from_le_bytes([answer[2], answer[3]]))
}

fn copy(bed: &Testbed, bytes: usize, watch: impl Fn(Progress) + Send + 'static) {
    for end in try_copy(bed, bytes, watch) {
        end.expect("the copy completes");
    }
}

//= R-OPEN-1, R-OPEN-2, R-OPEN-8, R-OPEN-9, R-OPEN-10, R-OPEN-11, R-OPEN-14, R-OPEN-15
#[test]
fn only_supported_ndk_versions_can_be_opened() {
    let Some(bed) = started(&[]) else { return };
    let miniport = miniport(bed.machines()[0]);
    for (major, minor) in [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1)] {
        let opened = miniport.ndk().open(major, minor);
        miniport.ndk().close(opened.unwrap_or_else(|_| panic!("{major}.{minor} is served"))).unwrap();
    }
    for (major, minor) in [(0, 0), (1, 3), (1, 0xFFFF), (2, 2), (3, 0)] {
        assert_eq!(miniport.ndk().open(major, minor), Err(NDIS_STATUS_BAD_VERSION), "{major}.{minor}");
    }
    assert_eq!(miniport.ndk().open_adapters(), 0);
    finish(bed);
}

/// An idle device is notified of each frame.
#[test]
fn notifications_of_the_transmit_queue_are_counted() {
    let Some(bed) = started(&[]) else { return };
    let machine = bed.machines()[0];
    let counts = || (machine.counters()["tx_notifications"], machine.nic().counters().notifications);
    let before = counts();
    let mut frame = [0; 60];
    frame[..6].fill(0xff);
    frame[6..12].copy_from_slice(&machine.nic().mac());
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    for _ in 0..3 {
        assert_eq!(miniport(machine).send(&frame, MOMENT), Some(NDIS_STATUS_SUCCESS));
    }
    let after = counts();
    assert_eq!((after.0 - before.0, after.1 - before.1), (3, 3));
    assert!(machine.counters().contains_key("tx_notifications_suppressed"));
    finish(bed);
}

//= R-OPEN-31
#[test]
fn ndk_adapter_of_another_switch_or_virtual_port_is_refused() {
    let Some(bed) = started(&[]) else { return };
    let miniport = miniport(bed.machines()[0]);
    let version = NDK_VERSION { Major: 2, Minor: 1 };
    for (switch_id, vport_id) in [(1, 0), (0, 1), (1, 1)] {
        let parameters =
            NDIS_OPEN_NDK_ADAPTER_PARAMETERS { Version: version, SwitchId: switch_id, VPortId: vport_id };
        let opened = miniport.ndk().open_with(parameters);
        assert_eq!(opened, Err(NDIS_STATUS_INVALID_PARAMETER), "{switch_id}, {vport_id}");
    }
    finish(bed);
}

//= R-OPEN-23
#[test]
fn adapters_can_be_closed_in_any_order() {
    let Some(bed) = started(&[]) else { return };
    let miniport = miniport(bed.machines()[0]);
    let [first, second, third] =
        [(1, 2), (2, 1), (2, 0)].map(|(major, minor)| miniport.ndk().open(major, minor).unwrap());
    for opened in [second, first, third] {
        miniport.ndk().close(opened).unwrap();
    }
    finish(bed);
}

//= R-OPEN-4, R-OPEN-5, R-OPEN-6, R-OPEN-16, R-OPEN-37, R-OIDNDK-6, R-OIDNDK-7, R-PNP-1
#[test]
fn disabled_by_keyword_rdma_reports_its_limits_but_cannot_be_enabled() {
    let Some(bed) = started(&[("*NetworkDirect", "0")]) else { return };
    let miniport = miniport(bed.machines()[0]);
    let (enabled, capabilities, info) = miniport.attributes().ndk.expect("NDK attributes are set");
    assert!(!enabled);
    assert!(capabilities.MaxQpCount > 0 && info.MaxCqDepth > 0);
    assert_eq!(miniport.ndk().open(2, 1), Err(NDIS_STATUS_ADAPTER_NOT_READY));
    let refused = miniport.set(OID_NDK_SET_STATE, ON).unwrap_err();
    assert_eq!(refused.status, NDIS_STATUS_NOT_SUPPORTED);
    assert_eq!(miniport.ndk().open(2, 1), Err(NDIS_STATUS_ADAPTER_NOT_READY));
    assert!(miniport.ndk().events().is_empty());
    finish(bed);
}

/// Windows restarts an adapter whose keywords were changed: it is halted and initialized again.
//= R-PNP-13
#[test]
fn changed_keyword_holds_after_a_restart() {
    let Some(mut bed) = started(&[]) else { return };
    for (value, enabled) in [("0", false), ("1", true)] {
        let machine = bed.machine_mut(0);
        machine.halt_adapter().expect("the adapter halts");
        machine.host().set_keyword("*NetworkDirect", value);
        machine.start_adapter().expect("the adapter starts");
        let miniport = miniport(machine);
        assert_eq!(miniport.attributes().ndk.expect("NDK attributes are set").0, enabled);
        assert_eq!(
            miniport.ndk().open(2, 1).map(|opened| miniport.ndk().close(opened).unwrap()).is_ok(),
            enabled
        );
    }
    finish(bed);
}

//= R-OPEN-6, R-PNP-2
#[test]
fn enabled_by_keyword_rdma_is_available_after_start() {
    let Some(bed) = started(&[]) else { return };
    let miniport = miniport(bed.machines()[0]);
    let (enabled, ..) = miniport.attributes().ndk.expect("NDK attributes are set");
    assert!(enabled);
    assert!(miniport.ndk().events().is_empty(), "no event if enabled from the start");
    finish(bed);
}

//= R-OIDNDK-4, R-OIDNDK-5, R-OIDNDK-8, R-OIDNDK-10, R-OIDNDK-13, R-OIDNDK-14, R-PNP-16
#[test]
fn each_rdma_state_change_is_indicated_once() {
    let Some(bed) = started(&[]) else { return };
    let miniport = miniport(bed.machines()[0]);
    for _ in 0..2 {
        miniport.set(OID_NDK_SET_STATE, OFF).unwrap();
        assert_eq!(miniport.ndk().open(2, 1), Err(NDIS_STATUS_ADAPTER_NOT_READY), "from the request on");
    }
    assert!(miniport.ndk().await_events(1, MOMENT));
    for _ in 0..2 {
        miniport.set(OID_NDK_SET_STATE, ON).unwrap();
    }
    assert!(miniport.ndk().await_events(2, MOMENT));
    assert_eq!(miniport.ndk().events(), [NdkEvent::Disable, NdkEvent::Enable]);
    let opened = miniport.ndk().open(2, 1).expect("enabled again");
    miniport.ndk().close(opened).unwrap();
    finish(bed);
}

//= R-OIDNDK-14, R-PNP-15
#[test]
fn last_state_request_wins_and_events_alternate() {
    let Some(bed) = started(&[]) else { return };
    let miniport = miniport(bed.machines()[0]);
    for _ in 0..100 {
        miniport.set(OID_NDK_SET_STATE, OFF).unwrap();
        miniport.set(OID_NDK_SET_STATE, ON).unwrap();
    }
    miniport.set(OID_NDK_SET_STATE, OFF).unwrap();
    assert!(miniport.ndk().await_events(1, MOMENT));
    // Pending changes have completed when the adapter is halted.
    let events = {
        let watched = miniport.clone();
        assert_eq!(miniport.ndk().open(2, 1), Err(NDIS_STATUS_ADAPTER_NOT_READY));
        finish(bed);
        watched.ndk().events()
    };
    assert!(events.len() % 2 == 1, "off in the end: {events:?}");
    for (number, event) in events.iter().enumerate() {
        let expected = if number % 2 == 0 { NdkEvent::Disable } else { NdkEvent::Enable };
        assert_eq!(*event, expected, "event {number} of {events:?}");
    }
}

//= R-OIDNDK-12, R-PNP-3
#[test]
fn disabled_rdma_continues_until_its_consumers_have_closed() {
    let Some(bed) = started(&[]) else { return };
    let miniport = miniport(bed.machines()[0]);
    let switch = miniport.clone();
    let refused = Arc::new(Mutex::new(0));
    let seen = refused.clone();
    copy(&bed, 4 << 20, move |at| {
        if at.done > 1 << 20 {
            switch.set(OID_NDK_SET_STATE, OFF).unwrap();
            assert_eq!(switch.ndk().open(2, 1), Err(NDIS_STATUS_ADAPTER_NOT_READY));
            *seen.lock().unwrap() += 1;
        }
    });
    assert!(*refused.lock().unwrap() > 0);
    assert!(miniport.ndk().await_events(1, MOMENT));
    assert_eq!(miniport.ndk().events(), [NdkEvent::Disable]);
    finish(bed);
}

//= R-OPEN-17
#[test]
fn opening_survives_the_failure_of_any_of_its_allocations() {
    let Some(bed) = started(&[]) else { return };
    let machine = bed.machines()[0];
    let (host, miniport) = (machine.host().clone(), miniport(machine));
    for victim in 0.. {
        let before = host.low_resources.asked();
        host.low_resources.fail_nth(victim);
        let opened = miniport.ndk().open(2, 1);
        let spared = host.low_resources.asked() - before <= victim;
        host.low_resources.fail_nth(u64::MAX / 2);
        match opened {
            Err(status) => assert_eq!(status, NDIS_STATUS_RESOURCES, "allocation {victim}"),
            Ok(opened) => miniport.ndk().close(opened).unwrap(),
        }
        if spared {
            assert!(victim > 0, "opening allocates");
            break;
        }
    }
    finish(bed);
}

//= R-OIDNDK-9
#[test]
fn keyword_is_read_on_each_request_to_enable_rdma() {
    let Some(bed) = started(&[]) else { return };
    let machine = bed.machines()[0];
    let miniport = miniport(machine);
    miniport.set(OID_NDK_SET_STATE, OFF).unwrap();
    assert!(miniport.ndk().await_events(1, MOMENT));
    machine.host().set_keyword("*NetworkDirect", "0");
    assert_eq!(miniport.set(OID_NDK_SET_STATE, ON).unwrap_err().status, NDIS_STATUS_NOT_SUPPORTED);
    machine.host().set_keyword("*NetworkDirect", "1");
    miniport.set(OID_NDK_SET_STATE, ON).unwrap();
    assert!(miniport.ndk().await_events(2, MOMENT));
    finish(bed);
}

//= R-OIDNDK-2, R-OIDNDK-3
//= R-OIDNDK-1
#[test]
fn set_state_takes_one_byte() {
    let oids = [OID_NDK_SET_STATE, OID_NDK_STATISTICS, OID_NDK_CONNECTIONS, OID_NDK_LOCAL_ENDPOINTS];
    assert_eq!(oids, [0xFC04_0201, 0xFC04_0202, 0xFC04_0203, 0xFC04_0204]);
    let Some(bed) = started(&[]) else { return };
    let miniport = miniport(bed.machines()[0]);
    let refused = miniport.set(OID_NDK_SET_STATE, &[]).unwrap_err();
    assert_eq!((refused.status, refused.needed), (NDIS_STATUS_INVALID_LENGTH, 1));
    assert_eq!(miniport.query(OID_NDK_SET_STATE, 1).unwrap_err().status, NDIS_STATUS_NOT_SUPPORTED);
    miniport.set(OID_NDK_SET_STATE, &[1, 0xAA, 0xAA]).expect("further bytes are ignored");
    finish(bed);
}

//= R-OIDNDK-16, R-OIDNDK-17, R-OIDNDK-28
#[test]
fn statistics_are_available_as_oid_and_direct_oid_while_rdma_is_disabled() {
    let Some(bed) = started(&[("*NetworkDirect", "0")]) else { return };
    let miniport = miniport(bed.machines()[0]);
    for answer in [miniport.query(OID_NDK_STATISTICS, 300), miniport.query_direct(OID_NDK_STATISTICS, 300)] {
        let answer = answer.unwrap();
        assert_eq!((answer.len(), header(&answer), word(&answer, 4)), (248, (0x80, 1, 248), 0));
    }
    finish(bed);
}

/// RDMA frames and an Ethernet frame are received in one batch. What a driver above finds while it receives the Ethernet frame: the
/// frames before it are counted, and nothing of them is kept for the rest of the batch.
//= R-OIDNDK-16
#[test]
fn statistics_at_the_indication_of_a_frame_have_the_rdma_frames_before_it() {
    let Some(bed) = started(&[]) else { return };
    let [client, server] = bed.machines();
    let (local, remote) = (SocketAddr::new(client.address(), 0), SocketAddr::new(server.address(), 5445));
    let config = EndpointConfig { requests: 8, receives: 8, message: 64 };
    let [listening, connected, begin, sent] = [(); 4].map(|()| bed.event());
    let [is_listening, is_connected, may_begin, is_sent] =
        [&listening, &connected, &begin, &sent].map(Clone::clone);
    let serving = server.consumer("server", move |adapter| {
        let mut end = Endpoint::new(adapter, config)?;
        end.accept(listen_for_one(adapter, remote, MOMENT, |_| listening.set())?, &[])?;
        let outcome = (0..3).try_for_each(|_| end.next_message().map(drop));
        end.close(outcome).0
    });
    let sending = client.consumer("client", move |adapter| {
        let _ = is_listening.wait(MOMENT);
        let mut end = Endpoint::new(adapter, config)?;
        end.connect(local, remote, &[])?;
        connected.set();
        let _ = may_begin.wait(MOMENT);
        (0..3).try_for_each(|tag| end.send(b"message", tag))?;
        sent.set();
        let outcome = end.complete_requests();
        end.close(outcome).0
    });
    assert!(is_connected.wait(MOMENT));
    let _ = bed.event().wait(Duration::from_millis(100));
    let frames_in = |miniport: &Miniport| {
        let answer = miniport.query_direct(OID_NDK_STATISTICS, 300).unwrap();
        let frames = offset_of!(NDIS_NDK_PERFORMANCE_COUNTERS, RDMAInFrames);
        counter(&answer, offset_of!(NDIS_NDK_STATISTICS_INFO, CounterSet) + frames)
    };
    let [sender, receiver] = [client, server].map(miniport);
    receiver.set(OID_GEN_CURRENT_PACKET_FILTER, &NDIS_PACKET_TYPE_DIRECTED.to_le_bytes()).unwrap();
    let before = frames_in(&receiver);
    let (seen, above) = (Arc::new(Mutex::new(Vec::new())), receiver.clone());
    let found = seen.clone();
    receiver.stack().on_received(move |frame| {
        if frame.ends_with(b"beside") {
            found.lock().unwrap().push(frames_in(&above));
        }
    });
    let dpc = Moment::Call("MiniportMessageInterruptDPC");
    // Shorter than the time after which the sender would probe.
    let late = server.host().delays.add(dpc, Duration::from_micros(200));
    begin.set();
    assert!(is_sent.wait(MOMENT));
    let frame = [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xB5][..], &[0; 60], b"beside"].concat();
    assert_eq!(sender.send(&frame, MOMENT), Some(NDIS_STATUS_SUCCESS));
    for end in [sending, serving] {
        end.join().unwrap_or_else(|lost| panic!("{lost}\n{}", bed.violations().join("\n"))).unwrap();
    }
    assert!(late.is_reached());
    assert_eq!(*seen.lock().unwrap(), [before + 3]);
    finish(bed);
}

#[test]
fn direct_requests_of_other_types_and_oids_are_refused() {
    let Some(bed) = started(&[]) else { return };
    let miniport = miniport(bed.machines()[0]);
    let statistics = NDIS_REQUEST_TYPE::NdisRequestQueryStatistics;
    assert!(miniport.request_direct(statistics, OID_NDK_STATISTICS, 300).is_ok(), "as a query");
    for kind in [NDIS_REQUEST_TYPE::NdisRequestSetInformation, NDIS_REQUEST_TYPE::NdisRequestMethod] {
        let refused = miniport.request_direct(kind, OID_NDK_STATISTICS, 300).unwrap_err();
        assert_eq!(refused.status, NDIS_STATUS_NOT_SUPPORTED, "{kind:?}");
    }
    for oid in [OID_GEN_STATISTICS, OID_NDK_CONNECTIONS, OID_NDK_SET_STATE] {
        let refused = miniport.query_direct(oid, 300).unwrap_err();
        assert_eq!(refused.status, NDIS_STATUS_NOT_SUPPORTED, "{oid:#x}");
    }
    finish(bed);
}

//= R-OIDNDK-18
#[test]
fn short_buffer_fails_with_the_needed_length() {
    let Some(bed) = started(&[]) else { return };
    let miniport = miniport(bed.machines()[0]);
    for (oid, needed) in [(OID_NDK_STATISTICS, 248), (OID_NDK_CONNECTIONS, 16), (OID_NDK_LOCAL_ENDPOINTS, 16)]
    {
        let refused = miniport.query(oid, needed - 1).unwrap_err();
        assert_eq!(
            (refused.status, refused.needed as usize),
            (NDIS_STATUS_BUFFER_TOO_SHORT, needed),
            "{oid:#x}"
        );
        assert_eq!(miniport.query(oid, needed).unwrap().len(), needed, "{oid:#x}");
    }
    finish(bed);
}

//= R-OIDNDK-20, R-OIDNDK-21, R-OIDNDK-22, R-OIDNDK-23
//= R-OIDNDK-25
#[test]
fn listeners_are_listed_as_local_endpoints() {
    let Some(bed) = started(&[]) else { return };
    let machine = bed.machines()[0];
    let (miniport, address) = (miniport(machine), machine.address());
    let seen = miniport.clone();
    let listening = machine.consumer("listener", move |adapter| {
        let _first = Listener::new(adapter, SocketAddr::new(address, 4000)).expect("the port is free");
        let _second = Listener::new(adapter, SocketAddr::new(address, 4001)).expect("the port is free");
        seen.query(OID_NDK_LOCAL_ENDPOINTS, 4096).unwrap()
    });
    let answer = listening.join().unwrap();
    assert_eq!((answer.len(), header(&answer), word(&answer, 8)), (16 + 2 * 36, (0x80, 1, 16 + 2 * 36), 2));
    assert_eq!(answer[12], 0, "RoCE does not use TCP");
    let mut ports = Vec::new();
    for entry in answer[16..].chunks_exact(36) {
        assert_eq!((entry[0], entry[28], entry[29]), (2, 0, 1), "IPv4, kernel owned, a listener");
        ports.push(u16::from_be_bytes([entry[2], entry[3]]));
    }
    ports.sort_unstable();
    assert_eq!(ports, [4000, 4001]);
    assert_eq!(
        miniport.query(OID_NDK_LOCAL_ENDPOINTS, 4096).unwrap().len(),
        16,
        "closed ones are not listed"
    );
    finish(bed);
}

//= R-OIDNDK-19, R-OIDNDK-21, R-OIDNDK-22, R-OIDNDK-24, R-OIDNDK-27
#[test]
fn established_connection_is_listed_until_it_ends() {
    let Some(bed) = started(&[]) else { return };
    let miniports = bed.machines().map(miniport);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let watch = {
        let (miniport, seen) = (miniports[0].clone(), seen.clone());
        move |_| *seen.lock().unwrap() = miniport.query(OID_NDK_CONNECTIONS, 4096).unwrap()
    };
    copy(&bed, 1 << 20, watch);
    let answer = seen.lock().unwrap().clone();
    assert_eq!((answer.len(), header(&answer), word(&answer, 8)), (16 + 64, (0x80, 1, 16 + 64), 1));
    let remote = &answer[16 + 28..];
    assert_eq!(u16::from_be_bytes([remote[2], remote[3]]), 5445);
    assert_eq!(&remote[4..8], &[10, 0, 0, 2]);
    for miniport in &miniports {
        assert_eq!(word(&miniport.query(OID_NDK_CONNECTIONS, 4096).unwrap(), 8), 0, "it is over");
        let endpoints = miniport.query(OID_NDK_LOCAL_ENDPOINTS, 4096).unwrap();
        assert_eq!(word(&endpoints, 8), 0);
    }
    finish(bed);
}

//= R-OIDNDK-29
#[test]
fn adapter_statistics_include_rdma() {
    let Some(bed) = started(&[]) else { return };
    copy(&bed, 1 << 20, |_| {});
    for machine in bed.machines() {
        let miniport = miniport(machine);
        let (ndk, all) = (
            miniport.query(OID_NDK_STATISTICS, 248).unwrap(),
            miniport.query(OID_GEN_STATISTICS, 152).unwrap(),
        );
        let (rdma_in, rdma_out) = (counter(&ndk, 8 + 26 * 8), counter(&ndk, 8 + 27 * 8));
        let (all_in, all_out) = (counter(&all, 24), counter(&all, 56));
        assert!(rdma_in > 1 << 20 && rdma_out > 1 << 20, "{rdma_in} in, {rdma_out} out");
        assert!(all_in >= rdma_in && all_out >= rdma_out, "{all_in} in, {all_out} out");
    }
    finish(bed);
}

//= R-PNP-6, R-PNP-7
#[test]
fn rdma_continues_while_the_miniport_is_paused() {
    let Some(bed) = started(&[]) else { return };
    let miniports = bed.machines().map(miniport);
    for miniport in &miniports {
        miniport.pause().unwrap();
    }
    copy(&bed, 1 << 20, |_| {});
    for miniport in &miniports {
        miniport.restart().unwrap();
    }
    copy(&bed, 1 << 20, |_| {});
    finish(bed);
}

#[test]
fn ethernet_frames_are_delivered_during_rdma_transfers() {
    for real_time in [false, true] {
        let Some(image) = image() else { return };
        let mut bed = Testbed::new(&image, &Options { real_time, ..Options::default() })
            .expect("the image can be loaded");
        bed.start().expect("both drivers start");
        let [sender, receiver] = bed.machines().map(miniport);
        receiver.set(OID_GEN_CURRENT_PACKET_FILTER, &1_u32.to_le_bytes()).unwrap();
        let sent = Arc::new(Mutex::new(0_u8));
        let number = sent.clone();
        copy(&bed, 16 << 20, move |_| {
            let mut number = number.lock().unwrap();
            // To the second host, from the first, with an experimental EtherType.
            let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xB5];
            frame.resize(100, *number);
            assert_eq!(sender.send(&frame, MOMENT), Some(NDIS_STATUS_SUCCESS));
            *number += 1;
        });
        let sent = *sent.lock().unwrap();
        let numbers: Vec<u8> = receiver.received().iter().map(|frame| frame[99]).collect();
        assert!(sent > 16, "{sent} frames during the copy");
        assert_eq!(numbers, (0..sent).collect::<Vec<_>>(), "every frame once, in order");
        finish(bed);
    }
}

/// The engine, in a DPC, has just taken the lock of the transmit queue when another processor sends a frame.
#[test]
fn ethernet_frame_sent_while_the_engine_takes_the_transmit_lock_is_completed() {
    let Some(bed) = started(&[]) else { return };
    let sender = miniport(bed.machines()[0]);
    let (host, event) = (bed.machines()[0].host().clone(), bed.event());
    let met = Arc::new(AtomicU32::new(0));
    let meetings = met.clone();
    copy(&bed, 16 << 20, move |_| {
        let locking = Moment::ReturnToDpc("KeTryToAcquireSpinLockAtDpcLevel");
        let delay = host.delays.add(locking, Duration::from_micros(50));
        for _ in 0..100 {
            if delay.is_reached() {
                break;
            }
            let _ = event.wait(Duration::from_micros(5));
        }
        meetings.fetch_add(delay.is_reached().into(), Ordering::Relaxed);
        let ended = sender.send(&frame([2, 0, 0, 0, 0, 2], 100), MOMENT);
        assert_eq!(ended, Some(NDIS_STATUS_SUCCESS));
    });
    let met = met.load(Ordering::Relaxed);
    assert!(met > 8, "{met} DPCs were delayed");
    finish(bed);
}

//= R-CONN-101
#[test]
fn removed_address_ends_its_connections_only() {
    let Some(bed) = started(&[]) else { return };
    let server = bed.machines()[1];
    let (host, address) = (server.host().clone(), server.address());
    let ends = try_copy(&bed, 4 << 20, move |at| {
        if at.done > 1 << 20 && !host.addresses().is_empty() {
            host.remove_address(address);
        }
    });
    for end in ends {
        let error = end.expect_err("the connection is gone");
        assert!(error.is_connection_loss(), "{error}");
    }
    server.host().add_address(address, 24);
    copy(&bed, 1 << 20, |_| {});
    finish(bed);
}

//= R-OPEN-36
#[test]
fn roce_frame_size_above_the_mtu_is_lowered_with_an_event() {
    let keywords = [("*JumboPacket", "1515"), ("*NetworkDirectRoCEFrameSize", "4096")];
    let Some(bed) = started(&keywords) else { return };
    let log = bed.machines()[0].event_log();
    let [entry] = &log[..] else { panic!("one event: {log:?}") };
    assert_eq!((entry.code, &entry.data[..]), (0xA0DA_0028, &[1024, 4096][..]));
    copy(&bed, 1 << 20, |_| {});
    finish(bed);
}

//= R-OPEN-3
#[test]
fn supported_oids_are_answered_and_unknown_oids_rejected() {
    let Some(bed) = started(&[]) else { return };
    let miniport = miniport(bed.machines()[0]);
    let unknown: NDIS_OID = 0x00FF_FFFF;
    assert_eq!(miniport.query(unknown, 64).unwrap_err().status, NDIS_STATUS_NOT_SUPPORTED);
    assert_eq!(miniport.set(unknown, &[0; 64]).unwrap_err().status, NDIS_STATUS_NOT_SUPPORTED);
    let frame = miniport.query(OID_GEN_MAXIMUM_TOTAL_SIZE, 4).unwrap();
    assert_eq!(word(&frame, 0), 4096 + 96 + 14);
    assert!(miniport.query(OID_GEN_VENDOR_DESCRIPTION, 64).unwrap().ends_with(b"\0"));
    miniport.set(OID_GEN_CURRENT_PACKET_FILTER, &0xB_u32.to_le_bytes()).unwrap();
    assert_eq!(word(&miniport.query(OID_GEN_CURRENT_PACKET_FILTER, 4).unwrap(), 0), 0xB);
    let groups = [[1, 0, 0x5E, 0, 0, 1], [0x33, 0x33, 0, 0, 0, 1]].concat();
    miniport.set(OID_802_3_MULTICAST_LIST, &groups).unwrap();
    assert_eq!(miniport.query(OID_802_3_MULTICAST_LIST, 64).unwrap(), groups);
    assert_eq!(
        miniport.set(OID_802_3_MULTICAST_LIST, &groups[..7]).unwrap_err().status,
        NDIS_STATUS_INVALID_LENGTH
    );
    finish(bed);
}
