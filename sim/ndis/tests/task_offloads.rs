// SPDX-License-Identifier: MIT OR Apache-2.0

//! Task offloads of drivers that are right: coalesced frames without new checksums, and the request at the binding of a stack.

use std::{
    mem::offset_of,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicI32, Ordering::SeqCst},
    },
    time::Duration,
};

use crate::{
    common::{
        lists::{self, list_of},
        scripted::{Script, general_with, host, kept, register, simulation, verdict_while_running},
    },
    offload_offences::{ALL_IPV4, attributes, offload, report},
};
use ndis_sim::{Miniport, data_path, tcp_stack::TcpStack};
use ndk_abi::ndis::{
    NDIS_ENCAPSULATION_IEEE_802_3, NDIS_NET_BUFFER_LIST_INFO, NDIS_OFFLOAD, NDIS_OID_REQUEST, NDIS_STATUS,
    NDIS_STATUS_INVALID_PARAMETER, NDIS_STATUS_NOT_SUPPORTED, NDIS_STATUS_SUCCESS,
    NDIS_TCP_IP_CHECKSUM_NET_BUFFER_LIST_INFO as Checksum, NET_BUFFER_LIST, OID_GEN_CURRENT_PACKET_FILTER,
    OID_OFFLOAD_ENCAPSULATION, OID_TCP_OFFLOAD_PARAMETERS, OID_TCP_RSC_STATISTICS,
};
use nt_sim::{current, guest::Guest, nt::time::sleep};

/// Succeeded and ValueInvalid, of TCP and of IPv4: the value of a driver that leaves the checksums of the first segment.
const LEFT: u32 = 0x1a8;

/// The requests that set something, and the status of those for offloads.
static REQUESTS: Mutex<Vec<u32>> = Mutex::new(Vec::new());
static ANSWER: AtomicI32 = AtomicI32::new(NDIS_STATUS_SUCCESS);
/// Runs while the miniport does, as its code.
type Body = fn(&Miniport);

/// The tests share what is static.
static TEST: Mutex<()> = Mutex::new(());

/// The offloads of the miniport: coalescing, and checksums of TCP over IPv4 both ways.
fn offloads() -> NDIS_OFFLOAD {
    let mut offload = offload(ALL_IPV4);
    offload.Checksum.IPv4Transmit.Encapsulation = NDIS_ENCAPSULATION_IEEE_802_3;
    offload.Checksum.IPv4Transmit.IpOptionsSupported = ALL_IPV4;
    offload.Rsc.IPv4.Enabled = 1;
    offload
}

fn initialize(handle: usize) {
    let status = general_with(handle, |of| {
        of.SupportedOidList = kept([OID_TCP_RSC_STATISTICS]).cast().as_ptr();
    });
    assert_eq!(status, NDIS_STATUS_SUCCESS);
    attributes(handle, |_, possible, current| (*possible, *current) = (offloads(), offloads()));
}

fn answer(handle: usize, request: *mut NDIS_OID_REQUEST) -> NDIS_STATUS {
    // SAFETY: requests that set and that query begin with the OID.
    let oid = unsafe { Guest::new(request).read().DATA.SET_INFORMATION.Oid };
    REQUESTS.lock().unwrap().push(oid);
    if ![OID_OFFLOAD_ENCAPSULATION, OID_TCP_OFFLOAD_PARAMETERS].contains(&oid) {
        return NDIS_STATUS_SUCCESS;
    }
    if ANSWER.load(SeqCst) == NDIS_STATUS_SUCCESS {
        report(handle, offloads());
    }
    ANSWER.load(SeqCst)
}

fn send(handle: usize, chain: *mut NET_BUFFER_LIST) {
    data_path::NdisMSendNetBufferListsComplete(handle, Guest::new(chain), 0);
}

const SCRIPT: Script = Script {
    initialize: Some(initialize),
    answer: Some(answer),
    send: Some(send),
    restart: None,
    halt: None,
    oid: None,
    pause: None,
    pausing: None,
    options: None,
    open: None,
    attribute_flags: 0,
    is_virtual: false,
    silent: false,
    status: NDIS_STATUS_SUCCESS,
};

fn info_at(slot: NDIS_NET_BUFFER_LIST_INFO) -> usize {
    let slot = usize::try_from(slot.0).expect("a slot has a positive number");
    offset_of!(NET_BUFFER_LIST, NetBufferListInfo) + slot * size_of::<usize>()
}

/// Indicates a frame with these checksums, of so many segments; the stack returns it.
fn indicate(miniport: &Miniport, frame: &[u8], checksum: u32, segments: usize) {
    let handle = miniport.adapter().handle;
    let list = list_of(handle, frame);
    let word = |slot| list.field::<usize>(info_at(slot));
    word(NDIS_NET_BUFFER_LIST_INFO::TcpIpChecksumNetBufferListInfo).write(checksum as usize);
    word(NDIS_NET_BUFFER_LIST_INFO::TcpRecvSegCoalesceInfo).write(segments);
    data_path::NdisMIndicateReceiveNetBufferLists(handle, list, 0, 1, 0);
    sleep(1_000_000);
    lists::free(list);
}

/// Payload of TCP over IPv4, with checksums that are wrong.
fn segments(payload: usize) -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend([8, 0, 0x45, 0]);
    frame.extend(((40 + payload) as u16).to_be_bytes());
    frame.extend([0, 0, 0, 0, 64, 6, 0, 1, 10, 0, 0, 2, 10, 0, 0, 1]);
    frame.extend([0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x18, 0, 0, 0, 1, 0, 0]);
    frame.resize(54 + payload, 7);
    frame
}

/// "Indicating Coalesced Segments" (WDK): a miniport that does not compute the checksums of a coalesced frame says so, beside Succeeded.
#[test]
fn coalesced_frame_may_keep_the_checksums_of_a_segment_and_no_other_frame() {
    let _one = TEST.lock().unwrap_or_else(PoisonError::into_inner);
    ANSWER.store(NDIS_STATUS_SUCCESS, SeqCst);
    let computed = Checksum::RECEIVE_TCP_SUCCEEDED | Checksum::RECEIVE_IP_SUCCEEDED;
    let cases: [(Body, &str); 4] = [
        (|miniport| indicate(miniport, &segments(3000), LEFT, 3), "no violation"),
        (
            |miniport| indicate(miniport, &segments(100), LEFT, 0),
            "TcpIpChecksumNetBufferListInfo of a received frame is 0x1a8",
        ),
        (
            |miniport| indicate(miniport, &segments(3000), LEFT & !Checksum::RECEIVE_TCP_VALUE_INVALID, 3),
            "the checksum of Tcp is reported as 0x128, which it is not",
        ),
        (
            |miniport| indicate(miniport, &segments(3000), LEFT & !Checksum::RECEIVE_IP_VALUE_INVALID, 3),
            "the checksum of an IPv4 header is reported as 0xa8, which it is not",
        ),
    ];
    assert_eq!(LEFT & computed, computed);
    for (body, expected) in cases {
        static BODY: Mutex<Body> = Mutex::new(|_| {});
        *BODY.lock().unwrap_or_else(PoisonError::into_inner) = body;
        let verdict = verdict_while_running(SCRIPT, |miniport| {
            miniport.start_offloads().expect("they start");
            let body = *BODY.lock().unwrap_or_else(PoisonError::into_inner);
            body(miniport);
        });
        assert!(verdict.contains(expected), "expected '{expected}', got: {verdict}");
    }
}

/// Binds a stack to the miniport, and has it send a SYN; returns the requests, the number of frames sent with checksums left to the miniport,
/// and the verdict. At the end the miniport reports a checksum.
fn bind(status: NDIS_STATUS) -> (Vec<u32>, u64, String) {
    ANSWER.store(status, SeqCst);
    REQUESTS.lock().unwrap().clear();
    let mut sim = simulation();
    let host = host(&mut sim);
    assert_eq!(register(&host, SCRIPT, |_| {}), Some(NDIS_STATUS_SUCCESS));
    let miniport = Miniport::start(&host).unwrap();
    REQUESTS.lock().unwrap().clear();
    let running = miniport.clone();
    let use_it = move || {
        let own = ([10, 0, 0, 1].into(), 24);
        let mut stack = TcpStack::new(&running, [2; 6], own).expect("it is bound");
        let requests = REQUESTS.lock().unwrap().clone();
        stack.connect([10, 0, 0, 2].into(), 80);
        stack.poll(Duration::ZERO);
        let mut reply = vec![2; 6];
        reply.extend([4, 0, 0, 0, 0, 1, 8, 6, 0, 1, 8, 0, 6, 4, 0, 2, 4, 0, 0, 0, 0, 1, 10, 0, 0, 2]);
        reply.extend([2, 2, 2, 2, 2, 2, 10, 0, 0, 1]);
        reply.resize(60, 0);
        indicate(&running, &reply, 0, 0);
        stack.poll(Duration::from_secs(2));
        let counters = stack.counters();
        assert!(counters.sent >= 2, "a request of ARP, and a SYN");
        (requests, counters.checksums)
    };
    let (requests, checksums) = host.spawn("stack", use_it).join().expect("the host lives");
    let running = miniport.clone();
    let _ = host.spawn("miniport", move || indicate(&running, &segments(3000), LEFT, 3)).join();
    if !host.is_dead() {
        miniport.halt().unwrap();
    }
    (requests, checksums, sim.verdict().to_string())
}

/// OID_OFFLOAD_ENCAPSULATION (WDK): a protocol driver sets it when it is bound. If that fails, it uses no offloads, and the miniport has
/// nothing to report.
#[test]
fn stack_that_is_bound_starts_the_offloads_and_uses_none_that_are_refused() {
    let _one = TEST.lock().unwrap_or_else(PoisonError::into_inner);
    let expected = [OID_GEN_CURRENT_PACKET_FILTER, OID_OFFLOAD_ENCAPSULATION];
    let (requests, checksums, verdict) = bind(NDIS_STATUS_SUCCESS);
    assert_eq!((requests, verdict.as_str()), (expected.to_vec(), "no violation"));
    assert!(checksums > 0, "that of the SYN");
    for status in [NDIS_STATUS_NOT_SUPPORTED, NDIS_STATUS_INVALID_PARAMETER] {
        let (requests, checksums, verdict) = bind(status);
        assert_eq!((requests, checksums), (expected.to_vec(), 0));
        assert!(verdict.contains("but that offload is not in force"), "{verdict}");
    }
}

/// Only OID_OFFLOAD_ENCAPSULATION starts offloads, whatever the parameters of others have at the place of its members.
#[test]
fn parameters_of_offloads_start_none() {
    let _one = TEST.lock().unwrap_or_else(PoisonError::into_inner);
    ANSWER.store(NDIS_STATUS_SUCCESS, SeqCst);
    let verdict = verdict_while_running(SCRIPT, |miniport| {
        let mut encapsulation = [0; 28];
        (encapsulation[4], encapsulation[16]) = (1, 1);
        assert_eq!(miniport.set(OID_TCP_OFFLOAD_PARAMETERS, &encapsulation), Ok(()));
        indicate(miniport, &segments(3000), LEFT, 3);
    });
    assert!(verdict.contains("but that offload is not in force"), "{verdict}");
}

#[test]
fn wait_of_the_stack_ends_when_a_frame_arrives() {
    let _one = TEST.lock().unwrap_or_else(PoisonError::into_inner);
    ANSWER.store(NDIS_STATUS_SUCCESS, SeqCst);
    let verdict = verdict_while_running(SCRIPT, |miniport| {
        let own = ([10, 0, 0, 1].into(), 24);
        let mut stack = TcpStack::new(miniport, [2; 6], own).expect("it is bound");
        let (begin, running) = (current().world().now(), miniport.clone());
        let indicating = miniport.host().spawn("miniport", move || {
            sleep(5_000_000);
            indicate(&running, &[7; 60], 0, 0);
        });
        stack.wait(Duration::ZERO, Duration::from_secs(10));
        let took = current().world().now() - begin;
        assert!((5_000_000..50_000_000).contains(&took), "{took}");
        indicating.join().expect("the host lives");
    });
    assert_eq!(verdict, "no violation");
}
