// SPDX-License-Identifier: MIT OR Apache-2.0

//! Lists of the stack on their way to a miniport and back, and received ones.

use std::{
    mem::offset_of,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use crate::common::{
    lists,
    scripted::{Script, host, register, simulation},
};
use ndis_sim::{Miniport, SendRequest, data_path, list_fields};
use ndk_abi::ndis::{
    NDIS_NET_BUFFER_LIST_INFO, NDIS_RETURN_FLAGS_DISPATCH_LEVEL, NDIS_SEND_COMPLETE_FLAGS_DISPATCH_LEVEL,
    NDIS_STATUS, NDIS_STATUS_ADAPTER_REMOVED, NDIS_STATUS_RESOURCES, NDIS_STATUS_SUCCESS, NET_BUFFER,
    NET_BUFFER_LIST,
};
use nt_sim::{Host, Irql, Sim, current, guest::Guest, nt::mdl::GuestMdl};

/// Longer than any send takes.
const LONG: Duration = Duration::from_secs(60);
const INFO: usize = offset_of!(NET_BUFFER_LIST, NetBufferListInfo);

/// The tests share what is static.
static TEST: Mutex<()> = Mutex::new(());
/// The calls of the miniport's send handler: the lists of each, with their values and the length of each frame.
static SENT: Mutex<Vec<Vec<SentList>>> = Mutex::new(Vec::new());
/// Flags of the calls by which lists were returned.
static RETURNED: Mutex<Vec<u32>> = Mutex::new(Vec::new());

type SentList = ([usize; 6], Vec<usize>);

fn one_test() -> MutexGuard<'static, ()> {
    let one = TEST.lock().unwrap_or_else(PoisonError::into_inner);
    SENT.lock().unwrap().clear();
    RETURNED.lock().unwrap().clear();
    one
}

/// Cancel ID, checksum, large send, priority and VLAN, hash, UDP segmentation.
const VALUES: [NDIS_NET_BUFFER_LIST_INFO; 6] = [
    NDIS_NET_BUFFER_LIST_INFO::NetBufferListCancelId,
    NDIS_NET_BUFFER_LIST_INFO::TcpIpChecksumNetBufferListInfo,
    NDIS_NET_BUFFER_LIST_INFO::TcpLargeSendNetBufferListInfo,
    NDIS_NET_BUFFER_LIST_INFO::Ieee8021QNetBufferListInfo,
    NDIS_NET_BUFFER_LIST_INFO::NetBufferListHashValue,
    NDIS_NET_BUFFER_LIST_INFO::UdpSegmentationOffloadInfo,
];

fn describe(list: Guest<NET_BUFFER_LIST>) -> SentList {
    let values = VALUES.map(|slot| list.field::<usize>(INFO + 8 * slot.0.cast_unsigned() as usize).read());
    let mut lengths = Vec::new();
    let mut at: Guest<NET_BUFFER> =
        Guest::new(list.field::<*mut NET_BUFFER>(offset_of!(NET_BUFFER_LIST, FirstNetBuffer)).read());
    while !at.is_null() {
        lengths.push(at.field::<usize>(offset_of!(NET_BUFFER, Anonymous)).read());
        at = Guest::new(at.field::<*mut NET_BUFFER>(offset_of!(NET_BUFFER, Next)).read());
    }
    (values, lengths)
}

/// Completes the sends with the flags of the level. The result of a large send of version 2 has no bytes.
fn complete(handle: usize, lists: *mut NET_BUFFER_LIST) {
    let lists = Guest::new(lists);
    let chain = list_fields::chain(lists);
    SENT.lock().unwrap().push(chain.iter().copied().map(describe).collect());
    for list in chain {
        list.field::<NDIS_STATUS>(list_fields::STATUS).write(NDIS_STATUS_SUCCESS);
        let large = list.field::<usize>(list_fields::LARGE_SEND);
        large.write(large.read() & TYPE_V2 as usize);
    }
    let at_dispatch = current().irql() == Irql::DISPATCH_LEVEL;
    let flags = if at_dispatch { NDIS_SEND_COMPLETE_FLAGS_DISPATCH_LEVEL } else { 0 };
    data_path::NdisMSendNetBufferListsComplete(handle, lists, flags);
}

/// The type in the information of a large send.
const TYPE_V2: u32 = 1 << 30;

unsafe extern "efiapi" fn give_back(_: ndk_abi::ndis::NDIS_HANDLE, lists: *mut NET_BUFFER_LIST, flags: u32) {
    RETURNED.lock().unwrap().push(flags);
    for list in list_fields::chain(Guest::new(lists)) {
        lists::free(list);
    }
}

fn started(send: fn(usize, *mut NET_BUFFER_LIST)) -> (Sim, Arc<Host>, Miniport) {
    let mut sim = simulation();
    let host = host(&mut sim);
    let script = Script { send: Some(send), ..Script::default() };
    let edit = |of: &mut ndk_abi::ndis::NDIS_MINIPORT_DRIVER_CHARACTERISTICS| {
        of.ReturnNetBufferListsHandler = Some(give_back);
    };
    assert_eq!(register(&host, script, edit), Some(NDIS_STATUS_SUCCESS));
    let miniport = Miniport::start(&host).expect("it starts");
    (sim, host, miniport)
}

fn finish(sim: &Sim, miniport: &Miniport) {
    let _ = miniport.halt();
    assert_eq!(sim.verdict().to_string(), "no violation");
}

#[test]
fn sent_list_has_the_values_that_the_stack_asks_for() {
    let _one = one_test();
    let (sim, _, miniport) = started(complete);
    let all = SendRequest {
        checksum: 0x15,
        large_send: TYPE_V2 | 0x5b4,
        udp_segmentation: 0x17,
        priority_vlan: 0x19,
        hash: 0x1b,
        missing: 3,
        ..SendRequest::default()
    };
    let empty = SendRequest { is_empty: true, ..SendRequest::default() };
    let ids = miniport.send_requests(vec![(vec![0; 60], all), (vec![0; 60], empty)]);
    assert_eq!(ids.map_status(&miniport), [Some(NDIS_STATUS_SUCCESS); 2]);
    let ids = miniport.send_chain(&[vec![0; 61], vec![0; 62]], 7);
    assert_eq!(ids.map_status(&miniport), [Some(NDIS_STATUS_SUCCESS); 2]);
    let large = (TYPE_V2 | 0x5b4) as usize;
    let expected = [
        vec![([0, 0x15, large, 0x19, 0x1b, 0x17], vec![63]), ([0; 6], vec![])],
        vec![([7, 0, 0, 0, 0, 0], vec![61]), ([7, 0, 0, 0, 0, 0], vec![62])],
    ];
    assert_eq!(*SENT.lock().unwrap(), expected);
    finish(&sim, &miniport);
}

/// The statuses of sends.
trait MapStatus {
    fn map_status(&self, miniport: &Miniport) -> Vec<Option<NDIS_STATUS>>;
}

impl MapStatus for Vec<ndis_sim::SendId> {
    fn map_status(&self, miniport: &Miniport) -> Vec<Option<NDIS_STATUS>> {
        self.iter().map(|&id| miniport.send_status(id, LONG)).collect()
    }
}

#[test]
fn frames_of_one_list_are_sent_together() {
    let _one = one_test();
    let (sim, _, miniport) = started(complete);
    let frames = [vec![1; 60], vec![2; 100], vec![3; 80]];
    let id = miniport.send_list(&frames, 32, 10);
    assert_eq!(miniport.send_status(id, LONG), Some(NDIS_STATUS_SUCCESS));
    assert_eq!(*SENT.lock().unwrap(), [vec![([0; 6], vec![60, 100, 80])]]);
    finish(&sim, &miniport);
}

/// The chain of MDLs describes the frame, and the bytes in front of it.
#[test]
fn frames_of_one_list_are_in_the_mdls_that_were_requested() {
    type Buffer = (usize, Vec<Vec<u8>>);
    /// Bytes of each list, and the data of its MDLs.
    static LISTS: Mutex<Vec<(usize, Vec<Buffer>)>> = Mutex::new(Vec::new());
    let see = |handle, chain: *mut NET_BUFFER_LIST| {
        for list in list_fields::chain(Guest::new(chain)) {
            let first = list.field::<*mut NET_BUFFER>(offset_of!(NET_BUFFER_LIST, FirstNetBuffer)).read();
            let next = |at: *mut NET_BUFFER| (!at.is_null()).then(|| Guest::new(at));
            let buffers = std::iter::successors(next(first), |at| next(at.read().Next));
            let mdls = |buffer: Guest<NET_BUFFER>| {
                let next = |at: usize| (at != 0).then(|| GuestMdl(Guest::from_address(at)));
                let all = std::iter::successors(next(buffer.read().MdlChain.addr()), |at| next(at.next()));
                let bytes = |mdl: GuestMdl| {
                    let mut bytes = vec![0; mdl.byte_count() as usize];
                    Guest::<u8>::from_address(mdl.mapped()).read_bytes(&mut bytes);
                    bytes
                };
                assert!(!buffer.read().CurrentMdl.is_null());
                (buffer.read().DataOffset as usize, all.map(bytes).collect())
            };
            let size = current().host().memory.pool.size_of(list.address()).expect("a block");
            LISTS.lock().unwrap().push((size, buffers.map(mdls).collect()));
        }
        complete(handle, chain);
    };
    let _one = one_test();
    let (sim, _, miniport) = started(see);
    let frames = [(0..60).collect::<Vec<u8>>(), (60..200).collect()];
    let id = miniport.send_list(&frames, 32, 10);
    assert_eq!(miniport.send_status(id, LONG), Some(NDIS_STATUS_SUCCESS));
    let ids = miniport.send_chain(&[vec![5; 60], vec![]], 0);
    assert_eq!(ids.map_status(&miniport), [Some(NDIS_STATUS_SUCCESS); 2]);
    let buffer = |frame: &[u8], offset: usize, each| {
        let bytes = [&vec![0xEE; offset][..], frame].concat();
        let parts: Vec<_> = bytes.chunks(each).map(<[u8]>::to_vec).collect();
        (offset, if parts.is_empty() { vec![vec![]] } else { parts })
    };
    let size = |count| lists::LIST_LEN + count * size_of::<NET_BUFFER>();
    let expected = [
        (size(2), frames.iter().map(|frame| buffer(frame, 10, 32)).collect::<Vec<_>>()),
        (size(1), vec![buffer(&[5; 60], 0, 60)]),
        (size(1), vec![buffer(&[], 0, 1)]),
    ];
    assert_eq!(*LISTS.lock().unwrap(), expected);
    finish(&sim, &miniport);
}

#[test]
fn sends_without_memory_are_completed_and_leave_none() {
    let _one = one_test();
    let (sim, host, miniport) = started(complete);
    let blocks = || host.memory.pool.blocks().len();
    let before = blocks();
    for nth in 0..8 {
        host.low_resources.fail_nth(nth);
        let ids = miniport.send_chain(&[vec![0; 60], vec![0; 60]], 0);
        let ended = ids.map_status(&miniport);
        let failed = [Some(NDIS_STATUS_RESOURCES); 2];
        assert!(ended == failed || nth > 3 && ended == [Some(NDIS_STATUS_SUCCESS); 2], "{nth}: {ended:x?}");
    }
    // Data, four MDLs, the list.
    for nth in 0..6 {
        host.low_resources.fail_nth(nth);
        let id = miniport.send_list(&[vec![0; 100]], 32, 0);
        assert_eq!(miniport.send_status(id, LONG), Some(NDIS_STATUS_RESOURCES), "{nth}");
        assert_eq!(blocks(), before, "{nth}");
    }
    finish(&sim, &miniport);
}

#[test]
fn sends_to_an_adapter_that_was_removed_say_so() {
    let _one = one_test();
    let (sim, _, miniport) = started(complete);
    miniport.halt().expect("the host lives");
    let id = miniport.send_list(&[vec![0; 60]], 0, 0);
    assert_eq!(miniport.send_status(id, LONG), Some(NDIS_STATUS_ADAPTER_REMOVED));
    let ids = miniport.send_chain(&[vec![0; 60]], 0);
    assert_eq!(ids.map_status(&miniport), [Some(NDIS_STATUS_ADAPTER_REMOVED)]);
    assert!(SENT.lock().unwrap().is_empty());
    assert_eq!(sim.verdict().to_string(), "no violation");
}

/// Keeps the sends until [`complete_later`].
fn keep(handle: usize, lists: *mut NET_BUFFER_LIST) {
    HELD.lock().unwrap().push((handle, lists.expose_provenance()));
}

static HELD: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

#[test]
fn a_wait_for_a_send_ends_with_the_send() {
    let _one = one_test();
    let (sim, host, miniport) = started(keep);
    let id = miniport.send_chain(&[vec![0; 60]], 0)[0];
    let waiting = {
        let miniport = miniport.clone();
        host.spawn("waiting", move || {
            let begin = current().world().now();
            let status = miniport.send_status(id, LONG);
            (status, Duration::from_nanos(current().world().now() - begin))
        })
    };
    let completing = host.spawn("miniport", || {
        nt_sim::nt::time::sleep(5_000_000);
        let (handle, lists) = HELD.lock().unwrap().pop().expect("a send");
        complete(handle, std::ptr::with_exposed_provenance_mut(lists));
    });
    completing.join().expect("the host lives");
    let (status, took) = waiting.join().expect("the host lives");
    assert_eq!(status, Some(NDIS_STATUS_SUCCESS));
    assert!((Duration::from_millis(5)..Duration::from_millis(50)).contains(&took), "{took:?}");
    finish(&sim, &miniport);
}

#[test]
fn completions_with_the_flag_of_the_level_are_counted() {
    let _one = one_test();
    let (sim, _, miniport) = started(complete);
    let ids = miniport.send_chain(&[vec![0; 60]], 0);
    let _ = ids.map_status(&miniport);
    assert_eq!(miniport.stack().flagged_completions(), 0);
    let ids = miniport.send_chain_at_dispatch(&[vec![0; 60], vec![0; 60]]);
    let _ = ids.map_status(&miniport);
    assert_eq!(miniport.stack().flagged_completions(), 2);
    finish(&sim, &miniport);
}

/// Indicates a frame of the miniport's.
fn indicate(miniport: &Miniport, frame: [u8; 60]) {
    let (adapter, host) = (miniport.adapter().clone(), miniport.host().clone());
    let indicate = move || {
        let list = lists::list_of(adapter.handle, &frame);
        data_path::NdisMIndicateReceiveNetBufferLists(adapter.handle, list, 0, 1, 0);
    };
    host.spawn("miniport", indicate).join().expect("the host lives");
}

#[test]
fn received_lists_that_the_stack_keeps_are_returned_when_it_is_asked() {
    let _one = one_test();
    let (sim, host, miniport) = started(complete);
    let rest = || host.spawn("rest", || nt_sim::nt::time::sleep(1_000_000)).join().expect("the host lives");
    miniport.stack().keep(true);
    indicate(&miniport, [1; 60]);
    indicate(&miniport, [2; 60]);
    rest();
    assert_eq!((miniport.stack().lent(), RETURNED.lock().unwrap().len()), (2, 0));
    miniport.stack().keep(false);
    rest();
    // In a DPC, as the flag says.
    assert_eq!(miniport.stack().lent(), 0);
    assert_eq!(*RETURNED.lock().unwrap(), [NDIS_RETURN_FLAGS_DISPATCH_LEVEL]);
    miniport.stack().return_at_once(true);
    indicate(&miniport, [3; 60]);
    assert_eq!(*RETURNED.lock().unwrap(), [NDIS_RETURN_FLAGS_DISPATCH_LEVEL, 0]);
    assert_eq!(miniport.received(), [[1; 60], [2; 60], [3; 60]]);
    finish(&sim, &miniport);
}

/// The harness's handler of received frames is not called once the adapter is halted.
#[test]
fn handler_of_received_frames_ends_with_the_adapter() {
    let _one = one_test();
    let (sim, _, miniport) = started(complete);
    let token = Arc::new(());
    let held = token.clone();
    miniport.stack().on_received(move |_| _ = &held);
    assert_eq!(Arc::strong_count(&token), 2);
    finish(&sim, &miniport);
    assert_eq!(Arc::strong_count(&token), 1);
}

/// Whether a call of the miniport that takes a while has returned.
static RETURNED_FROM: AtomicBool = AtomicBool::new(false);

fn take_a_while() {
    nt_sim::nt::time::sleep(5_000_000);
    RETURNED_FROM.store(true, SeqCst);
}

/// Runs `call`, which takes a while in the miniport, and meanwhile `change`, which has to wait for it.
fn change_waits_for(miniport: &Miniport, call: fn(&Miniport), change: fn(&Miniport)) {
    RETURNED_FROM.store(false, SeqCst);
    let (calling, host) = (miniport.clone(), miniport.host().clone());
    let calling = host.spawn("stack", move || call(&calling));
    host.spawn("rest", || nt_sim::nt::time::sleep(1_000_000)).join().expect("the host lives");
    assert!(!RETURNED_FROM.load(SeqCst));
    change(miniport);
    assert!(RETURNED_FROM.load(SeqCst));
    calling.join().expect("the host lives");
}

#[test]
fn pause_and_halt_wait_for_calls_of_the_stack() {
    /// The ID of the sends that were canceled.
    static CANCELED: AtomicUsize = AtomicUsize::new(0);
    unsafe extern "efiapi" fn cancel(_: ndk_abi::ndis::NDIS_HANDLE, id: *mut std::ffi::c_void) {
        CANCELED.store(id.addr(), SeqCst);
        take_a_while();
    }
    let _one = one_test();
    let mut sim = simulation();
    let host = host(&mut sim);
    let send = |handle, lists| {
        complete(handle, lists);
        take_a_while();
    };
    let halt = |_| assert!(RETURNED_FROM.load(SeqCst));
    let script = Script { send: Some(send), halt: Some(halt), ..Script::default() };
    let edit = |of: &mut ndk_abi::ndis::NDIS_MINIPORT_DRIVER_CHARACTERISTICS| {
        of.CancelSendHandler = Some(cancel);
    };
    assert_eq!(register(&host, script, edit), Some(NDIS_STATUS_SUCCESS));
    let miniport = Miniport::start(&host).expect("it starts");
    let sends = |miniport: &Miniport| _ = miniport.send(&[0; 60], LONG);
    change_waits_for(&miniport, sends, |miniport| miniport.pause().expect("the host lives"));
    let cancels = |miniport: &Miniport| miniport.cancel_sends(7);
    change_waits_for(&miniport, cancels, |miniport| miniport.halt().expect("the host lives"));
    assert_eq!(CANCELED.load(SeqCst), 7);
    assert_eq!(sim.verdict().to_string(), "no violation");
}
