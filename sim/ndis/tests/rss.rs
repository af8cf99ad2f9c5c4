// SPDX-License-Identifier: MIT OR Apache-2.0

//! Receive side scaling: capabilities, requests, and the hash and the processor of received frames.

use std::{
    mem::offset_of,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicI32, Ordering::SeqCst},
    },
};

use crate::common::{
    lists::{self, list_of},
    scripted::{Script, general_with, in_initialize, kept, register, simulation, verdict},
};
use device_sim::NicOptions;
use ndis_sim::{HashParameters, Miniport, NdisHost as _, RssCapabilities, RssParameters, data_path};
use ndk_abi::{
    ndis::{
        NDIS_HASH_IPV4, NDIS_HASH_TCP_IPV4, NDIS_HASH_TCP_IPV6, NDIS_HASH_UDP_IPV4,
        NDIS_MINIPORT_DRIVER_CHARACTERISTICS, NDIS_NET_BUFFER_LIST_INFO, NDIS_OBJECT_TYPE_RSS_CAPABILITIES,
        NDIS_RECEIVE_HASH_FLAG_ENABLE_HASH, NDIS_RECEIVE_SCALE_CAPABILITIES,
        NDIS_RECEIVE_SCALE_CAPABILITIES_REVISION_3, NDIS_RECEIVE_SCALE_PARAMETERS,
        NDIS_RSS_CAPS_HASH_TYPE_TCP_IPV4, NDIS_RSS_CAPS_HASH_TYPE_TCP_IPV6, NDIS_RSS_CAPS_USING_MSI_X,
        NDIS_RSS_PARAM_FLAG_DISABLE_RSS, NDIS_RSS_PARAM_FLAG_HASH_INFO_UNCHANGED,
        NDIS_RSS_PARAM_FLAG_HASH_KEY_UNCHANGED, NDIS_RSS_PARAM_FLAG_ITABLE_UNCHANGED,
        NDIS_SIZEOF_RECEIVE_SCALE_CAPABILITIES_REVISION_3, NDIS_STATUS_FAILURE, NDIS_STATUS_SUCCESS,
        NET_BUFFER_LIST, NdisHashFunctionToeplitz, OID_GEN_RECEIVE_HASH, OID_GEN_RECEIVE_SCALE_PARAMETERS,
    },
    nt::GROUP_AFFINITY,
};
use nt_sim::{guest::Guest, host::HostOptions, nt::processor::KeSetSystemGroupAffinityThread};

/// (windows-driver-docs: network/verifying-the-rss-hash-calculation)
const KEY: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0,
    0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42,
    0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
];
const TYPES: u32 = NDIS_HASH_IPV4 | NDIS_HASH_TCP_IPV4;
/// The hash of [`tcp`], whose entry in a table of 4 is 2.
const TCP_HASH: u32 = 0xc626_b0ea;
const TCP: u32 = NdisHashFunctionToeplitz | NDIS_HASH_TCP_IPV4;
const CPUS: u32 = 3;
/// Of the version of NDIS 6 of which the miniports are, unless a test is about that.
const MINOR: u8 = 60;

/// The status with which the miniport answers requests.
static ANSWER: AtomicI32 = AtomicI32::new(NDIS_STATUS_SUCCESS);
/// The miniports share what is static.
static TEST: Mutex<()> = Mutex::new(());

fn capabilities() -> NDIS_RECEIVE_SCALE_CAPABILITIES {
    let mut capabilities = NDIS_RECEIVE_SCALE_CAPABILITIES::zeroed();
    capabilities.Header = crate::common::scripted::header(
        NDIS_OBJECT_TYPE_RSS_CAPABILITIES,
        NDIS_RECEIVE_SCALE_CAPABILITIES_REVISION_3,
        NDIS_SIZEOF_RECEIVE_SCALE_CAPABILITIES_REVISION_3,
    );
    capabilities.CapabilitiesFlags = NdisHashFunctionToeplitz
        | NDIS_RSS_CAPS_HASH_TYPE_TCP_IPV4
        | NDIS_RSS_CAPS_HASH_TYPE_TCP_IPV6
        | NDIS_RSS_CAPS_USING_MSI_X;
    capabilities.NumberOfInterruptMessages = 4;
    capabilities.NumberOfReceiveQueues = 3;
    capabilities.NumberOfIndirectionTableEntries = 8;
    capabilities
}

/// A test's change of the capabilities.
static EDIT: Mutex<fn(&mut NDIS_RECEIVE_SCALE_CAPABILITIES)> = Mutex::new(|_| {});

fn scaling(handle: usize) {
    let status = general_with(handle, |attributes| {
        let mut capabilities = capabilities();
        EDIT.lock().unwrap()(&mut capabilities);
        attributes.RecvScaleCapabilities = kept(capabilities).as_ptr();
    });
    assert_eq!(status, NDIS_STATUS_SUCCESS);
}

fn parameters(table: &[u8]) -> RssParameters {
    RssParameters { types: TYPES, key: KEY, table: table.to_vec(), default_processor: 0 }
}

/// A segment from 199.92.111.2:14230 to 65.69.140.83:4739.
fn tcp() -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0]);
    frame.extend([199, 92, 111, 2, 65, 69, 140, 83]);
    frame.extend(14230_u16.to_be_bytes());
    frame.extend(4739_u16.to_be_bytes());
    frame.resize(60, 0);
    frame
}

fn arp() -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend([8, 6]);
    frame.resize(60, 0);
    frame
}

fn info_at(slot: NDIS_NET_BUFFER_LIST_INFO) -> usize {
    let slot = usize::try_from(slot.0).expect("a slot has a positive number");
    offset_of!(NET_BUFFER_LIST, NetBufferListInfo) + slot * size_of::<usize>()
}

/// Indicates a frame on a processor with this hash information and value; the stack returns it.
fn indicate(miniport: &Miniport, frame: &[u8], processor: u8, info: u32, value: u32) {
    let mask = GROUP_AFFINITY { Mask: 1 << processor, Group: 0, Reserved: [0; 3] };
    KeSetSystemGroupAffinityThread(kept(mask), Guest::null());
    let handle = miniport.adapter().handle;
    let list = list_of(handle, frame);
    list.field::<usize>(info_at(NDIS_NET_BUFFER_LIST_INFO::NetBufferListHashInfo)).write(info as usize);
    list.field::<usize>(info_at(NDIS_NET_BUFFER_LIST_INFO::NetBufferListHashValue)).write(value as usize);
    data_path::NdisMIndicateReceiveNetBufferLists(handle, list, 0, 1, 0);
    nt_sim::nt::time::sleep(100_000);
    lists::free(list);
}

/// Runs a miniport with receive side scaling, and `body` while it runs; returns what the verifier says.
fn run(body: impl FnOnce(&Miniport) + Send + 'static) -> String {
    run_with(|_| {}, body)
}

/// Runs the miniport, as [`run`] does, after `edit` has changed the capabilities.
fn run_with(
    edit: fn(&mut NDIS_RECEIVE_SCALE_CAPABILITIES),
    body: impl FnOnce(&Miniport) + Send + 'static,
) -> String {
    run_as(MINOR, edit, body)
}

/// Runs the miniport, as [`run_with`] does, of a driver of NDIS 6.`minor`.
fn run_as(
    minor: u8,
    edit: fn(&mut NDIS_RECEIVE_SCALE_CAPABILITIES),
    body: impl FnOnce(&Miniport) + Send + 'static,
) -> String {
    let _test = TEST.lock().unwrap_or_else(PoisonError::into_inner);
    *EDIT.lock().unwrap() = edit;
    ANSWER.store(NDIS_STATUS_SUCCESS, SeqCst);
    let mut sim = simulation();
    let host: Arc<_> = sim.add_host(HostOptions { cpus: CPUS, ..HostOptions::new("host") });
    host.plug(NicOptions::new([2, 0, 0, 0, 0, 1]));
    let script =
        Script { initialize: Some(scaling), answer: Some(|_, _| ANSWER.load(SeqCst)), ..Script::default() };
    let version = move |of: &mut NDIS_MINIPORT_DRIVER_CHARACTERISTICS| of.MinorNdisVersion = minor;
    assert_eq!(register(&host, script, version), Some(NDIS_STATUS_SUCCESS));
    if let Ok(miniport) = Miniport::start(&host) {
        let running = miniport.clone();
        let _ = host.spawn("caller", move || body(&running)).join();
        if !host.is_dead() {
            miniport.halt().unwrap();
        }
    }
    sim.verdict().to_string()
}

#[track_caller]
fn assert_reported(verdict: &str, expected: &str) {
    assert!(verdict.contains(expected), "expected '{expected}', got: {verdict}");
}

#[test]
fn capabilities_are_those_of_the_general_attributes() {
    let verdict = run(|miniport| {
        let expected =
            RssCapabilities { flags: capabilities().CapabilitiesFlags, messages: 4, queues: 3, entries: 8 };
        assert_eq!(miniport.scaling().capabilities(), Some(expected));
        assert_eq!(expected.types(), TYPES | NDIS_HASH_TCP_IPV6 | 0x400, "addresses of IPv6, too");
        assert_eq!(miniport.scaling().parameters(), None);
    });
    assert_eq!(verdict, "no violation");
    let without = in_initialize(|_| {});
    assert_eq!(self::verdict(without), "no violation");
}

#[test]
fn wrong_capabilities_are_reported() {
    type Edit = fn(&mut NDIS_RECEIVE_SCALE_CAPABILITIES);
    let lacks = "of RSS lack the Toeplitz hash, or IPv4";
    let offences: [(Edit, &str); 11] = [
        (
            |of| of.Header.Type = 0x80,
            "NDIS_RECEIVE_SCALE_CAPABILITIES with type 0x80, revision 3 and 18 bytes",
        ),
        (|of| of.Header.Revision = 0, "with type 0x88, revision 0 and 18 bytes"),
        (|of| of.Header.Revision = 4, "with type 0x88, revision 4 and 18 bytes"),
        (|of| of.Header.Size = 16, "with type 0x88, revision 3 and 16 bytes"),
        (|of| (of.Header.Revision, of.Header.Size) = (1, 12), "with type 0x88, revision 1 and 12 bytes"),
        (|of| of.CapabilitiesFlags &= !NdisHashFunctionToeplitz, lacks),
        (|of| of.CapabilitiesFlags &= !NDIS_RSS_CAPS_HASH_TYPE_TCP_IPV4, lacks),
        (|of| of.NumberOfInterruptMessages = 0, "RSS with 0 interrupt messages and 3 receive queues"),
        (|of| of.NumberOfReceiveQueues = 0, "RSS with 4 interrupt messages and 0 receive queues"),
        (
            |of| of.NumberOfIndirectionTableEntries = 6,
            "RSS with 6 entries of the indirection table: no power of 2, or more than 128",
        ),
        (
            |of| of.NumberOfIndirectionTableEntries = 256,
            "RSS with 256 entries of the indirection table: no power of 2, or more than 128",
        ),
    ];
    for (edit, expected) in offences {
        assert_reported(&run_with(edit, |_| {}), expected);
    }
}

/// (windows-driver-docs-ddi: ntddndis/ns-ntddndis-_ndis_receive_scale_capabilities)
#[test]
fn revisions_of_the_capabilities_are_those_of_the_drivers_ndis() {
    type Edit = fn(&mut NDIS_RECEIVE_SCALE_CAPABILITIES);
    let revisions: [(u8, Edit, u16); 3] = [
        (20, |of| (of.Header.Revision, of.Header.Size, of.NumberOfIndirectionTableEntries) = (1, 16, 6), 128),
        (30, |of| (of.Header.Revision, of.Header.Size) = (2, 18), 8),
        (60, |of| (of.Header.Revision, of.Header.Size) = (3, 18), 8),
    ];
    for (minor, edit, entries) in revisions {
        let verdict = run_as(minor, edit, move |miniport| {
            let found = miniport.scaling().capabilities().expect("the driver scales");
            assert_eq!((found.messages, found.queues, found.entries), (4, 3, entries));
        });
        assert_eq!(verdict, "no violation", "NDIS 6.{minor}");
    }
    for (minor, edit, _) in &revisions[1..] {
        let verdict = run_as(minor - 1, *edit, |_| {});
        assert_reported(&verdict, &format!("and 18 bytes; NDIS 6.{}", minor - 1));
    }
}

#[test]
fn frames_with_the_hash_and_the_processor_of_their_flow_are_correct() {
    let verdict = run(|miniport| {
        indicate(miniport, &tcp(), 1, 0, 0);
        let rss = parameters(&[0, 1, 2, 1]);
        miniport.scaling().set(Some(&rss)).unwrap();
        assert_eq!(miniport.scaling().parameters(), Some(rss));
        nt_sim::nt::time::sleep(20_000_000);
        indicate(miniport, &tcp(), 2, TCP, TCP_HASH);
        indicate(miniport, &arp(), 0, 0, 7);
        miniport.scaling().set(None).unwrap();
        assert_eq!(miniport.scaling().parameters(), None);
        nt_sim::nt::time::sleep(20_000_000);
        indicate(miniport, &tcp(), 1, 0, 0);
    });
    assert_eq!(verdict, "no violation");
}

#[test]
fn frames_with_a_wrong_hash_or_on_a_wrong_processor_are_reported() {
    type Frame = (Vec<u8>, u8, u32, u32);
    let udp = NdisHashFunctionToeplitz | NDIS_HASH_UDP_IPV4;
    let addresses = NdisHashFunctionToeplitz | NDIS_HASH_IPV4;
    let offences: [(Frame, &str); 9] = [
        (
            (tcp(), 0, TCP, TCP_HASH),
            "a frame of entry 2 of the indirection table was received on processor 0, not 2",
        ),
        (
            (tcp(), 2, TCP, TCP_HASH ^ 1),
            "is 0xc626b0eb of type 0x200 by function 1, not 0xc626b0ea of type 0x200",
        ),
        ((tcp(), 2, udp, TCP_HASH), "is 0xc626b0ea of type 0x4000 by function 1"),
        ((tcp(), 2, addresses, 0xd718_262a), "is 0xd718262a of type 0x100 by function 1"),
        ((tcp(), 2, 0, TCP_HASH), "the hash of a received frame is none by function 0"),
        ((tcp(), 2, NDIS_HASH_TCP_IPV4 | 2, TCP_HASH), "the hash of a received frame is none by function 2"),
        ((arp(), 0, TCP, TCP_HASH), "by function 1, not none"),
        ((arp(), 0, 2, 0), "the hash of a received frame is none by function 2, not none"),
        // Of the table, but not the default processor.
        ((arp(), 2, 0, 0), "a frame without a hash was received on processor 2, not 0"),
    ];
    for ((frame, processor, info, value), expected) in offences {
        let verdict = run(move |miniport| {
            miniport.scaling().set(Some(&parameters(&[0, 2, 2, 0]))).unwrap();
            nt_sim::nt::time::sleep(20_000_000);
            indicate(miniport, &frame, processor, info, value);
        });
        assert_reported(&verdict, expected);
    }
    let verdict = run(|miniport| indicate(miniport, &tcp(), 0, TCP, TCP_HASH));
    assert_reported(&verdict, "a hash is reported, but none is requested");
}

/// "When the indirection table is changed, for a short time, packets can be processed on the wrong CPU"
/// (windows-driver-docs: network/rss-configuration).
#[test]
fn former_table_is_valid_for_a_short_time_after_a_change() {
    let verdict = run(|miniport| {
        miniport.scaling().set(Some(&parameters(&[0, 0, 2, 0]))).unwrap();
        indicate(miniport, &tcp(), 1, 0, 0);
        nt_sim::nt::time::sleep(20_000_000);
        indicate(miniport, &tcp(), 2, TCP, TCP_HASH);
        miniport.scaling().set(Some(&parameters(&[0, 0, 1, 0]))).unwrap();
        indicate(miniport, &tcp(), 2, TCP, TCP_HASH);
        indicate(miniport, &tcp(), 1, TCP, TCP_HASH);
        nt_sim::nt::time::sleep(20_000_000);
        indicate(miniport, &tcp(), 1, TCP, TCP_HASH);
        ANSWER.store(NDIS_STATUS_FAILURE, SeqCst);
        miniport.scaling().set(Some(&parameters(&[0, 0, 0, 0]))).unwrap_err();
        assert_eq!(miniport.scaling().parameters(), Some(parameters(&[0, 0, 1, 0])), "the request failed");
        indicate(miniport, &tcp(), 1, TCP, TCP_HASH);
        indicate(miniport, &tcp(), 2, TCP, TCP_HASH);
    });
    assert_reported(
        &verdict,
        "a frame of entry 2 of the indirection table was received on processor 2, not 1",
    );
}

/// "the miniport driver must pick a subset of the CPU numbers" (windows-driver-docs-ddi:
/// ntddndis/ns-ntddndis-_ndis_receive_scale_parameters).
#[test]
fn miniport_with_fewer_queues_than_processors_keeps_a_flow_on_one_of_them() {
    let fewer = |of: &mut NDIS_RECEIVE_SCALE_CAPABILITIES| of.NumberOfReceiveQueues = 2;
    let verdict = run_with(fewer, |miniport| {
        miniport.scaling().set(Some(&parameters(&[0, 1, 2, 1]))).unwrap();
        nt_sim::nt::time::sleep(20_000_000);
        indicate(miniport, &tcp(), 0, TCP, TCP_HASH);
        indicate(miniport, &tcp(), 0, TCP, TCP_HASH);
        indicate(miniport, &arp(), 2, 0, 0);
        indicate(miniport, &tcp(), 1, TCP, TCP_HASH);
    });
    let expected = "frames of entry 2 of the indirection table were received on processors 0 and 1";
    assert_reported(&verdict, expected);
    let one = |of: &mut NDIS_RECEIVE_SCALE_CAPABILITIES| of.NumberOfReceiveQueues = 1;
    let verdict = run_with(one, |miniport| {
        miniport.scaling().set(Some(&parameters(&[0, 1, 1, 1]))).unwrap();
        nt_sim::nt::time::sleep(20_000_000);
        indicate(miniport, &tcp(), 2, TCP, TCP_HASH);
    });
    assert_reported(
        &verdict,
        "a frame of entry 2 of the indirection table was received on processor 2, not 1",
    );
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// A request that the miniport must fail: what is changed, and why.
#[test]
fn malformed_requests_that_succeed_are_reported() {
    type Edit = fn(&mut Vec<u8>);
    let table = offset_of!(NDIS_RECEIVE_SCALE_PARAMETERS, IndirectionTableOffset);
    assert_eq!(table, 16);
    let hash = "its hash information is not among the capabilities";
    let in_table = "its table is beyond its end, or names no processor";
    let in_key = "its key is beyond its end, or has not 40 bytes";
    let offences: [(Edit, &str); 14] = [
        (|of| of.truncate(39), "it is shorter than the structure"),
        (|of| of[0] = 0x80, "its header is wrong"),
        (|of| of[1] = 1, "its header is wrong"),
        (|of| put(of, 2, &39_u16.to_le_bytes()), "its header is wrong"),
        (|of| put(of, 8, &(2 | TYPES).to_le_bytes()), hash),
        (|of| put(of, 8, &NdisHashFunctionToeplitz.to_le_bytes()), hash),
        (|of| put(of, 8, &(NdisHashFunctionToeplitz | NDIS_HASH_UDP_IPV4).to_le_bytes()), hash),
        (|of| put(of, 16, &u32::MAX.to_le_bytes()), in_table),
        (|of| put(of, 12, &15_u16.to_le_bytes()), in_table),
        (|of| of[46] = CPUS as u8, in_table),
        (|of| of[44] = 1, in_table),
        (|of| put(of, 12, &12_u16.to_le_bytes()), "its table has a number of entries that is not supported"),
        (|of| put(of, 20, &39_u16.to_le_bytes()), in_key),
        (|of| put(of, 24, &61_u32.to_le_bytes()), in_key),
    ];
    for (edit, expected) in offences {
        let verdict = run(move |miniport| {
            let mut request = parameters(&[0, 1, 2, 0]).encode(0);
            edit(&mut request);
            let _ = miniport.set(OID_GEN_RECEIVE_SCALE_PARAMETERS, &request);
        });
        let expected = format!("OID_GEN_RECEIVE_SCALE_PARAMETERS succeeded, although {expected}");
        assert_reported(&verdict, &expected);
    }
    let verdict = run(|miniport| {
        let _ = miniport.scaling().set(Some(&parameters(&[0; 16])));
    });
    assert_reported(&verdict, "its table has a number of entries that is not supported");
}

#[test]
fn parts_that_a_request_leaves_unchanged_are_kept() {
    let verdict = run(|miniport| {
        let unchanged = NDIS_RSS_PARAM_FLAG_HASH_INFO_UNCHANGED
            | NDIS_RSS_PARAM_FLAG_HASH_KEY_UNCHANGED
            | NDIS_RSS_PARAM_FLAG_ITABLE_UNCHANGED;
        let set = |rss: &RssParameters, flags| {
            miniport.set(OID_GEN_RECEIVE_SCALE_PARAMETERS, &rss.encode(flags)).unwrap();
        };
        let first = parameters(&[0, 1, 2, 0]);
        set(&first, unchanged);
        assert_eq!(miniport.scaling().parameters(), Some(first.clone()), "there was nothing to keep");
        let other = RssParameters {
            types: NDIS_HASH_TCP_IPV4,
            key: [1; 40],
            table: vec![1; 8],
            default_processor: 2,
        };
        set(&other, unchanged);
        assert_eq!(miniport.scaling().parameters(), Some(RssParameters { default_processor: 2, ..first }));
        set(&other, unchanged | NDIS_RSS_PARAM_FLAG_DISABLE_RSS);
        assert_eq!(miniport.scaling().parameters(), None);
        set(&other, 0);
        assert_eq!(miniport.scaling().parameters(), Some(other));
        let mut request = parameters(&[0; 4]).encode(0);
        put(&mut request, 8, &TYPES.to_le_bytes());
        miniport.set(OID_GEN_RECEIVE_SCALE_PARAMETERS, &request).unwrap();
        assert_eq!(miniport.scaling().parameters(), None, "without a hash function");
    });
    assert_eq!(verdict, "no violation");
}

fn receive_hash() -> HashParameters {
    HashParameters { types: TYPES, key: KEY }
}

#[test]
fn frames_with_the_requested_hash_are_no_violation_on_any_processor() {
    let verdict = run(|miniport| {
        miniport.scaling().set_hash(Some(&receive_hash())).unwrap();
        assert_eq!(miniport.scaling().hash(), Some(receive_hash()));
        nt_sim::nt::time::sleep(20_000_000);
        indicate(miniport, &tcp(), 0, TCP, TCP_HASH);
        indicate(miniport, &tcp(), 2, TCP, TCP_HASH);
        indicate(miniport, &arp(), 1, 0, 0);
        miniport.scaling().set_hash(None).unwrap();
        assert_eq!(miniport.scaling().hash(), None);
        nt_sim::nt::time::sleep(20_000_000);
        indicate(miniport, &tcp(), 1, 0, 0);
    });
    assert_eq!(verdict, "no violation");
}

#[test]
fn frames_with_another_hash_than_the_requested_one_are_reported() {
    for (info, value, expected) in [
        (0, 0, "the hash of a received frame is none by function 0"),
        (TCP, TCP_HASH ^ 1, "is 0xc626b0eb of type 0x200 by function 1"),
    ] {
        let verdict = run(move |miniport| {
            miniport.scaling().set_hash(Some(&receive_hash())).unwrap();
            nt_sim::nt::time::sleep(20_000_000);
            indicate(miniport, &tcp(), 0, info, value);
        });
        assert_reported(&verdict, expected);
    }
}

/// A request for hashes alone that the miniport must fail: what is changed, and why.
#[test]
fn malformed_requests_for_hashes_that_succeed_are_reported() {
    type Edit = fn(&mut Vec<u8>);
    let types = "its hash types are not among the capabilities";
    let in_key = "its key is beyond its end, or has not 40 bytes";
    let offences: [(Edit, &str); 8] = [
        (|of| of.truncate(19), "it is shorter than the structure"),
        (|of| of[0] = 0x89, "its header is wrong"),
        (|of| of[1] = 0, "its header is wrong"),
        (|of| put(of, 2, &19_u16.to_le_bytes()), "its header is wrong"),
        (|of| put(of, 8, &TYPES.to_le_bytes()), "its hash function is not Toeplitz"),
        (|of| put(of, 8, &NdisHashFunctionToeplitz.to_le_bytes()), types),
        (|of| put(of, 8, &0x801_u32.to_le_bytes()), types),
        (|of| put(of, 16, &21_u32.to_le_bytes()), in_key),
    ];
    for (edit, expected) in offences {
        let verdict = run(move |miniport| {
            let mut request = receive_hash().encode(NDIS_RECEIVE_HASH_FLAG_ENABLE_HASH);
            edit(&mut request);
            let _ = miniport.set(OID_GEN_RECEIVE_HASH, &request);
        });
        assert_reported(&verdict, &format!("OID_GEN_RECEIVE_HASH succeeded, although {expected}"));
    }
}

#[test]
fn hashes_alone_beside_receive_side_scaling_are_reported() {
    let verdict = run(|miniport| {
        miniport.scaling().set(Some(&parameters(&[0, 1]))).unwrap();
        miniport.scaling().set_hash(None).unwrap();
        assert_eq!(miniport.scaling().parameters(), Some(parameters(&[0, 1])));
        let _ = miniport.scaling().set_hash(Some(&receive_hash()));
    });
    assert_reported(&verdict, "OID_GEN_RECEIVE_HASH succeeded, although receive side scaling is enabled");
    let verdict = run(|miniport| {
        miniport.scaling().set_hash(Some(&receive_hash())).unwrap();
        miniport.scaling().set(None).unwrap();
        assert_eq!(miniport.scaling().hash(), Some(receive_hash()));
        let _ = miniport.scaling().set(Some(&parameters(&[0, 1])));
    });
    assert_reported(
        &verdict,
        "OID_GEN_RECEIVE_SCALE_PARAMETERS succeeded, although hashes are requested alone",
    );
}

/// A request that fails leaves what frames may be received with for a moment after the change before it.
#[test]
fn request_that_fails_does_not_end_the_time_after_a_change() {
    let verdict = run(|miniport| {
        miniport.scaling().set(Some(&parameters(&[0, 0, 2, 0]))).unwrap();
        ANSWER.store(NDIS_STATUS_FAILURE, SeqCst);
        miniport.scaling().set_hash(Some(&receive_hash())).unwrap_err();
        indicate(miniport, &tcp(), 1, 0, 0);
    });
    assert_eq!(verdict, "no violation");
}

/// The value of any other OID is not read as parameters.
#[test]
fn other_requests_change_no_parameters() {
    let verdict = run(|miniport| {
        let value = parameters(&[0, 0, 2, 0]).encode(0);
        miniport.set(0x0001_010e, &value).unwrap();
        nt_sim::nt::time::sleep(20_000_000);
        indicate(miniport, &tcp(), 2, TCP, TCP_HASH);
    });
    assert_ne!(verdict, "no violation");
}
