// SPDX-License-Identifier: MIT OR Apache-2.0

//! Uses that known consumers make beyond the letter of the documentation.

use crate::support::*;
use core::ffi::c_void;
use core::ptr::{null, null_mut};
use ndk_abi::ndk::*;
use ndk_abi::nt::*;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::time::Duration;

/// Depth of the queues, and of the completion queue, of a consumer's socket.
const DEPTH: u32 = 0x200;

/// Returns an end with the sizes that Microsoft's test drivers ask for: 512 requests of up to 32 elements each way.
fn socket(adapter: &OpenAdapter, connector: *mut NDK_CONNECTOR) -> End {
    let (cq, pd) = (adapter.cq(DEPTH), adapter.pd());
    let qp = create(|done, context, out| {
        call!(pd, NdkCreateQp, cq.raw, cq.raw, QP_CONTEXT, DEPTH, DEPTH, 0x20, 0x20, 0, done, context, out)
    });
    End { cq, pd, qp: qp.expect("a queue pair"), connector, disconnected: CallbackRecord::new() }
}

/// Connects two sockets.
fn sockets(a: &Node, b: &Node) -> (End, End, Listener) {
    let listener = b.listener(445);
    let active = socket(a, a.connector());
    let connecting = active.connect(a.at(0), b.at(445), &[]);
    let passive = socket(b, listener.accept());
    establish(&active, &passive, &connecting);
    (active, passive, listener)
}

fn close_all(ends: [End; 2], listener: Listener) {
    ends.into_iter().for_each(End::close);
    listener.close();
}

/// A server exposes a buffer by one fast registration; its client writes to it with one element.
//= R-CONSUMER-2, R-CONSUMER-20, R-MR-33, R-QP-42
#[test]
fn buffer_of_489_pages_is_exposed_by_one_fast_registration() {
    const EXPOSED: usize = 2_000_000;
    const WRITTEN: usize = 1_750_000;
    let (a, b) = pair();
    let (client, server, listener) = sockets(&a, &b);
    let (mut source, mut exposed) = (Memory::new(WRITTEN), Memory::new(EXPOSED));
    source.bytes().iter_mut().enumerate().for_each(|(index, byte)| *byte = (index + 0x30) as u8);
    exposed.bytes().fill(0x30);
    let (from, to) = (Mapped::new(&a, &source, WRITTEN), Mapped::new(&b, &exposed, EXPOSED));
    assert_eq!(to.pages().len(), 489);
    let mr = fast_mr(server.pd);
    assert_eq!(initialize(mr, 512, 1), STATUS_SUCCESS);
    let (base, token) = (0x1234_5678_0000_0000_u64, call!(mr, NdkGetRemoteTokenFromMr));
    assert_ne!(token, 0);
    let (pages, flags) =
        (to.pages().as_ptr().cast(), NDK_OP_FLAG_ALLOW_REMOTE_READ | NDK_OP_FLAG_ALLOW_REMOTE_WRITE);
    let registered =
        call!(server.qp, NdkFastRegister, pointer(1), mr, 489, pages, 0, EXPOSED, pointer(base), flags);
    assert_eq!(registered, STATUS_SUCCESS);
    assert_eq!(server.cq.next().Status, STATUS_SUCCESS);
    let element = privileged(client.pd, from.pages()[0], WRITTEN);
    assert_eq!(client.write(2, &[element], (base, token)), STATUS_SUCCESS);
    assert_eq!(client.cq.next().Status, STATUS_SUCCESS);
    assert_eq!(exposed.bytes()[..WRITTEN], *source.bytes());
    assert!(exposed.bytes()[WRITTEN..].iter().all(|byte| *byte == 0x30));
    assert_eq!(call!(server.qp, NdkInvalidate, pointer(3), mr.cast(), 0), STATUS_SUCCESS);
    assert_eq!(server.cq.next().Status, STATUS_SUCCESS);
    close!(mr, NdkCloseMr);
    drop((from, to));
    close_all([client, server], listener);
}

/// Each connection has 512 regions. They are closed without a wait, then the rest, then the adapter.
//= R-CONSUMER-3, R-CONSUMER-11, R-MR-13, R-MR-27, R-MR-70, R-INFO-13, R-CLOSE-22
#[test]
fn domain_and_adapter_close_while_region_closes_pend() {
    for (a, _b) in [pair(), pending_pair()] {
        let sockets: Vec<_> = (0..4)
            .map(|_| {
                let adapter = a.open(2, 0);
                let pd = adapter.pd();
                let regions: Vec<_> = (0..512).map(|_| fast_mr(pd)).collect();
                assert!(regions.iter().all(|mr| initialize(*mr, 512, 1) == STATUS_SUCCESS));
                assert!(regions.iter().all(|mr| call!(*mr, NdkGetRemoteTokenFromMr) != 0));
                (adapter, pd, regions)
            })
            .collect();
        for (adapter, pd, regions) in sockets {
            let closing: Vec<_> = regions.into_iter().map(|mr| begin_close!(mr, NdkCloseMr)).collect();
            let domain = begin_close!(pd, NdkClosePd);
            adapter.close();
            assert!(domain.is_done() && closing.iter().all(Closing::is_done));
        }
    }
}

/// Dereferences its context as a consumer does that passes none for a mapping.
unsafe extern "efiapi" fn never_called(_context: *mut c_void, _status: NTSTATUS) {
    std::process::abort();
}

//= R-CONSUMER-4, R-LAM-15
#[test]
fn mapping_is_built_inline_even_if_calls_pend() {
    let (a, _b) = pending_pair();
    let memory = Memory::new(0x1_0000 + 0x20);
    let (mut words, mut size, mut offset) = ([0u64; 2 + 17], 8 * 19_u32, 0);
    let into = words.as_mut_ptr().cast();
    let (size, offset) = (&raw mut size, &raw mut offset);
    let (mdl, none) = (memory.mdl(), null_mut());
    let status = call!(a.adapter(), NdkBuildLAM, mdl, 0x1_0020, Some(never_called), none, into, size, offset);
    assert_eq!(status, STATUS_SUCCESS);
    std::thread::sleep(Duration::from_millis(20));
    call!(a.adapter(), NdkReleaseLAM, words.as_mut_ptr().cast());
}

/// A consumer that works in its notification: takes all results, releases a mapping for each, and arms again.
struct Drain {
    cq: AtomicPtr<NDK_CQ>,
    /// Released with the lock held, which raises to `DISPATCH_LEVEL`.
    mappings: nt::SpinLock<Vec<Mapped>>,
    statuses: Mutex<Vec<(NTSTATUS, usize)>>,
    empty: AtomicU32,
}

// SAFETY: calls on NDK objects may come from any thread, and a lock protects each list.
unsafe impl Sync for Drain {}
// SAFETY: a `Drain` has addresses of NDK objects, which belong to no thread.
unsafe impl Send for Drain {}

unsafe extern "efiapi" fn drain(context: *mut c_void, status: NTSTATUS) {
    assert_eq!(status, STATUS_SUCCESS);
    // SAFETY: the context of the queue is the `Drain` that its test leaks.
    let this = unsafe { &*context.cast::<Drain>() };
    let cq = Cq { raw: this.cq.load(Ordering::SeqCst), notified: CallbackRecord::new() };
    let results: Vec<_> = std::iter::from_fn(|| cq.poll()).collect();
    this.empty.fetch_add(u32::from(results.is_empty()), Ordering::SeqCst);
    for result in results {
        let mut mappings = this.mappings.lock();
        assert_eq!(nt::irql::current(), nt::irql::DISPATCH_LEVEL);
        drop(mappings.pop());
        drop(mappings);
        this.statuses.lock().unwrap().push((result.Status, result.RequestContext.addr()));
    }
    cq.arm(NDK_CQ_NOTIFY_ANY);
}

/// Receives come back by notifications alone after a flush of a live connection.
//= R-CONSUMER-5, R-CONSUMER-7, R-CONSUMER-10, R-QP-62, R-QP-65, R-QP-66
#[test]
fn flushed_receives_come_back_through_notifications() {
    let (a, b) = pair();
    let listener = b.listener(445);
    let active = a.active();
    let connecting = active.connect(a.at(0), b.at(445), &[]);
    let drained: &'static Drain = Box::leak(Box::new(Drain {
        cq: AtomicPtr::default(),
        mappings: nt::SpinLock::new(Vec::new()),
        statuses: Mutex::default(),
        empty: AtomicU32::new(0),
    }));
    let raw = create(|done, request, out| {
        let (adapter, context) = (b.adapter(), core::ptr::from_ref(drained).cast_mut().cast());
        call!(adapter, NdkCreateCq, DEPTH, Some(drain), context, null_mut(), done, request, out)
    })
    .expect("a queue");
    drained.cq.store(raw, Ordering::SeqCst);
    let (cq, pd, disconnected) = (Cq { raw, notified: CallbackRecord::new() }, b.pd(), CallbackRecord::new());
    let passive = End { qp: qp(pd, &cq), cq, pd, connector: listener.accept(), disconnected };
    establish(&active, &passive, &connecting);
    let memory = Memory::new(0x1000);
    for context in 0..32 {
        let mapped = Mapped::new(&b, &memory, 0x1000);
        let element = privileged(pd, mapped.pages()[0], 0x1000);
        drained.mappings.lock().push(mapped);
        assert_eq!(passive.receive(context, &[element]), STATUS_SUCCESS);
    }
    passive.cq.arm(NDK_CQ_NOTIFY_ANY);
    call!(passive.qp, NdkFlush);
    wait("all receives are back", || drained.statuses.lock().unwrap().len() == 32);
    let expected: Vec<_> = (0..32).map(|context| (STATUS_CANCELLED, context)).collect();
    assert_eq!(*drained.statuses.lock().unwrap(), expected);
    assert_eq!((drained.empty.load(Ordering::SeqCst), drained.mappings.lock().len()), (0, 0));
    close_all([active, passive], listener);
}

//= R-CONSUMER-7, R-CQ-13
#[test]
fn notification_is_not_made_once_its_results_were_polled() {
    let (a, b) = pair();
    let (active, passive, listener) = connect(&a, &b);
    assert_eq!([1, 2].map(|context| passive.receive(context, &[])), [STATUS_SUCCESS; 2]);
    let held = b.hold_callbacks();
    passive.cq.arm(NDK_CQ_NOTIFY_ANY);
    assert_eq!(active.send(1, &[], 0), STATUS_SUCCESS);
    passive.cq.next();
    drop(held);
    // Whatever was due before this is over now.
    drop(b.hold_callbacks());
    assert_eq!(passive.cq.notified.count(), 0);
    // The arm is still outstanding.
    assert_eq!(active.send(2, &[], 0), STATUS_SUCCESS);
    assert_eq!(passive.cq.notified.wait(1), STATUS_SUCCESS);
    passive.cq.next();
    close_all([active, passive], listener);
}

//= R-CONSUMER-8, R-CONSUMER-9, R-CQ-10, R-CQ-12
#[test]
fn arm_notifies_of_results_that_are_there_but_not_of_results_that_were_fetched() {
    let (a, b) = pair();
    let (active, passive, listener) = connect(&a, &b);
    assert_eq!([1, 2].map(|context| passive.receive(context, &[])), [STATUS_SUCCESS; 2]);
    assert_eq!([1, 2].map(|context| active.send(context, &[], 0)), [STATUS_SUCCESS; 2]);
    assert_eq!([active.cq.next().Status, active.cq.next().Status], [STATUS_SUCCESS; 2]);
    // Armed late: both results are there.
    passive.cq.arm(NDK_CQ_NOTIFY_ANY);
    assert_eq!(passive.cq.notified.wait(1), STATUS_SUCCESS);
    assert_eq!([passive.cq.next().Status, passive.cq.next().Status], [STATUS_SUCCESS; 2]);
    passive.cq.arm(NDK_CQ_NOTIFY_ANY);
    drop(b.hold_callbacks());
    assert_eq!(passive.cq.notified.count(), 1);
    close_all([active, passive], listener);
}

/// The tables' functions as a compiler calls them that leaves the upper halves of narrow arguments undefined.
#[repr(transparent)]
struct Wide(unsafe extern "efiapi" fn(u64, u64, u64, u64, u64, u64) -> i32);

impl Wide {
    /// Takes a member of a dispatch table.
    fn new<F: Copy>(member: Option<F>) -> Self {
        const { assert!(size_of::<F>() == size_of::<Self>()) };
        let member = member.expect("no member is null");
        // SAFETY: a function pointer; arguments are passed in registers or slots of 64 bits each, whatever their type.
        unsafe { core::mem::transmute_copy(&member) }
    }

    fn call<T>(&self, object: *mut T, arguments: [u64; 5]) -> NTSTATUS {
        let [second, third, fourth, fifth, sixth] = arguments;
        // SAFETY: the arguments are valid for the member that the test names.
        unsafe { (self.0)(object.expose_provenance() as u64, second, third, fourth, fifth, sixth) }
    }
}

/// A pointer as an argument.
fn address<T>(pointer: *const T) -> u64 {
    pointer.expose_provenance() as u64
}

//= R-CONSUMER-12
#[test]
#[cfg_attr(miri, ignore = "calls functions by another signature")]
fn narrow_arguments_may_have_garbage_above_their_width() {
    const GARBAGE: u64 = 0x7_0000_0000;
    const BYTE_GARBAGE: u64 = 0xabcd_ef01_2345_6700;
    let (a, b) = pair();
    let (active, passive, listener) = connect(&a, &b);
    // SAFETY: both queue pairs are open until the end of the test, and their table is static.
    let [active_qp, passive_qp] = [active.qp, passive.qp].map(|qp| unsafe { &*(*qp).Dispatch });
    // SAFETY: `close_all` closes the domain and the listener at the end; tables are static.
    let (pd_table, listener_table) = unsafe { (&*(*passive.pd).Dispatch, &*(*listener.raw).Dispatch) };
    // SAFETY: the queue and the connector are open as long; their tables are static.
    let (cq_table, connector_table) =
        unsafe { (&*(*passive.cq.raw).Dispatch, &*(*active.connector).Dispatch) };
    // Number of elements, flags, number of results, type of an arm.
    assert_eq!(Wide::new(passive_qp.NdkReceive).call(passive.qp, [1, 0, GARBAGE, 0, 0]), STATUS_SUCCESS);
    Wide::new(cq_table.NdkArmCq).call(passive.cq.raw, [GARBAGE | u64::from(NDK_CQ_NOTIFY_ANY), 0, 0, 0, 0]);
    assert_eq!(Wide::new(active_qp.NdkSend).call(active.qp, [2, 0, GARBAGE, GARBAGE, 0]), STATUS_SUCCESS);
    assert_eq!(passive.cq.notified.wait(1), STATUS_SUCCESS);
    let mut result = core::mem::MaybeUninit::<NDK_RESULT_EX>::uninit();
    let into = address(result.as_mut_ptr());
    assert_eq!(Wide::new(cq_table.NdkGetCqResultsEx).call(passive.cq.raw, [into, GARBAGE | 1, 0, 0, 0]), 1);
    // A length of private data.
    let mut length = 0_u32;
    let data = [0, 0, 0, address(&raw mut length), 0];
    assert_eq!(Wide::new(connector_table.NdkGetConnectionData).call(active.connector, data), STATUS_SUCCESS);
    // Booleans: FastRegister, RemoteAccess, Pause.
    for fast in [0, 1] {
        let mut mr: *mut NDK_MR = null_mut();
        let created = Wide::new(pd_table.NdkCreateMr)
            .call(passive.pd, [BYTE_GARBAGE | fast, 0, 0, address(&raw mut mr), 0]);
        assert_eq!(created, STATUS_SUCCESS);
        // SAFETY: the call above has created the region, and no call has closed it yet.
        let table = unsafe { &*(*mr).Dispatch };
        let initialized =
            Wide::new(table.NdkInitializeFastRegisterMr).call(mr, [GARBAGE | 1, BYTE_GARBAGE, 0, 0, 0]);
        assert_eq!(initialized, if fast == 1 { STATUS_SUCCESS } else { STATUS_INVALID_DEVICE_REQUEST });
        if fast == 1 {
            let page = [0x10_0000_u64];
            let flags = NDK_OP_FLAG_ALLOW_REMOTE_READ;
            let status = call!(
                passive.qp,
                NdkFastRegister,
                null_mut(),
                mr,
                1,
                page.as_ptr().cast(),
                0,
                1,
                null_mut(),
                flags
            );
            assert_eq!(status, STATUS_ACCESS_VIOLATION, "RemoteAccess is FALSE");
        }
        close!(mr, NdkCloseMr);
    }
    // Any byte but 0 is true.
    for pause in [1, 2, 0x80] {
        Wide::new(listener_table.NdkControlConnectEvents)
            .call(listener.raw, [BYTE_GARBAGE | pause, 0, 0, 0, 0]);
        let refused = a.active();
        assert_eq!(refused.connect(a.at(0), b.at(445), &[]).wait(), STATUS_CONNECTION_REFUSED);
        refused.close();
        Wide::new(listener_table.NdkControlConnectEvents).call(listener.raw, [BYTE_GARBAGE, 0, 0, 0, 0]);
    }
    let accepted = a.active();
    let connecting = accepted.connect(a.at(0), b.at(445), &[]);
    close!(listener.accept(), NdkCloseConnector);
    assert_eq!(connecting.wait(), STATUS_CONNECTION_REFUSED);
    accepted.close();
    close_all([active, passive], listener);
}

/// No private data in either direction; the limits are asked for after the connection is established.
//= R-CONSUMER-13, R-CONSUMER-14, R-CONN-14, R-CONN-64, R-CONN-73, R-CONN-75, R-CONN-77
#[test]
fn connection_without_private_data_reports_its_limits_and_addresses() {
    let (a, b) = pair();
    let listener = b.listener(445);
    let (active, connected, accepted) = (a.active(), CallbackRecord::new(), CallbackRecord::new());
    let ((source, length), (target, _)) = (socket_address(a.at(0)), socket_address(b.at(445)));
    let (source, target) = ((&raw const source).cast(), (&raw const target).cast());
    let (done, context) = (Some(on_request as NDK_FN_REQUEST_COMPLETION), connected.context());
    let status = call!(
        active.connector,
        NdkConnect,
        active.qp,
        source,
        length,
        target,
        length,
        16,
        16,
        null(),
        0,
        done,
        context,
    );
    assert_eq!(status, STATUS_PENDING);
    let connector = listener.accept();
    let mut storage = [0u8; 0x80];
    let mut size = 0x80;
    let peer = call!(connector, NdkGetPeerAddress, storage.as_mut_ptr().cast(), &raw mut size);
    assert_eq!((peer, size), (STATUS_SUCCESS, 16));
    let limits = |connector: *mut NDK_CONNECTOR| {
        let (mut inbound, mut outbound, mut length) = (0, 0, 0);
        let (first, second, none) = (&raw mut inbound, &raw mut outbound, null_mut());
        let status = call!(connector, NdkGetConnectionData, first, second, none, &raw mut length);
        (status, inbound, outbound)
    };
    assert_eq!(limits(connector), (STATUS_SUCCESS, 16, 16));
    let passive = b.end(connector);
    let (event, none) =
        (Some(on_disconnect as NDK_FN_DISCONNECT_EVENT_CALLBACK), passive.disconnected.context());
    let context = accepted.context();
    let status = call!(connector, NdkAccept, passive.qp, 16, 16, null(), 0, event, none, done, context);
    assert_eq!(status, STATUS_PENDING);
    assert_eq!(connected.wait(1), STATUS_SUCCESS);
    assert_eq!(active.complete(), STATUS_SUCCESS);
    assert_eq!(accepted.wait(1), STATUS_SUCCESS);
    assert_eq!([active.connector, connector].map(limits), [(STATUS_SUCCESS, 16, 16); 2]);
    let mut local = [0u8; 16];
    let mut size = 16;
    let status = call!(active.connector, NdkGetLocalAddress, local.as_mut_ptr().cast(), &raw mut size);
    assert_eq!((status, size, &local[4..8]), (STATUS_SUCCESS, 16, &[192, 0, 2, 1][..]));
    assert!(u16::from_be_bytes([local[2], local[3]]) >= 49152);
    close_all([active, passive], listener);
}

//= R-CONSUMER-15, R-QP-6
#[test]
fn message_waits_for_a_receive_that_is_posted_after_accept() {
    let (a, b) = pair();
    let (active, passive, listener) = sockets(&a, &b);
    let (mut source, mut target) = (Memory::at_offset(0x1_0000, 0x20), Memory::at_offset(0x1_0000, 0x20));
    source.bytes().fill(0x5a);
    let (from, into) = (Mapped::new(&a, &source, 0x1_0000), Mapped::new(&b, &target, 0x1_0000));
    //= R-CONSUMER-20
    assert_eq!(into.pages().len(), 17);
    let element = privileged(active.pd, from.pages()[0] + u64::from(from.offset), 0x1_0000);
    assert_eq!(active.send(1, &[element], 0), STATUS_SUCCESS);
    std::thread::sleep(Duration::from_millis(100));
    // One element for each page.
    let pages = into.pages().iter().enumerate().map(|(index, page)| match index {
        0 => privileged(passive.pd, page + 0x20, 0x1000 - 0x20),
        16 => privileged(passive.pd, *page, 0x20),
        _ => privileged(passive.pd, *page, 0x1000),
    });
    assert_eq!(passive.receive(2, &pages.collect::<Vec<_>>()), STATUS_SUCCESS);
    assert_eq!(active.cq.next().Status, STATUS_SUCCESS);
    let received = passive.cq.next();
    assert_eq!((received.Status, received.BytesTransferred), (STATUS_SUCCESS, 0x1_0000));
    assert_eq!(target.bytes(), source.bytes());
    drop((from, into));
    close_all([active, passive], listener);
}

/// The consumer releases the mapping, and may free the memory, without waiting for the completion.
//= R-CONSUMER-16, R-LAM-22, R-MR-57
#[test]
fn mapping_may_be_released_while_its_send_is_in_flight() {
    let timing = ndk_provider::Timing { ack_timeout: Duration::from_millis(20), ..Default::default() };
    let (a, b) = pair_with(ndk_provider::Config { timing, ..Default::default() });
    let (active, passive, listener) = connect(&a, &b);
    let (mut source, mut target) = (Memory::new(0x1000), Memory::new(0x1000));
    let into = target.register(passive.pd, NDK_MR_FLAG_ALLOW_LOCAL_WRITE);
    assert_eq!([1, 2].map(|context| passive.receive(context, &[into.sge()])), [STATUS_SUCCESS; 2]);
    let mut send = |context| {
        source.bytes().fill(1);
        let mapped = Mapped::new(&a, &source, 0x1000);
        assert_eq!(
            active.send(context, &[privileged(active.pd, mapped.pages()[0], 0x1000)], 0),
            STATUS_SUCCESS
        );
        drop(mapped);
        source.bytes().fill(0xee);
    };
    // Transmitted before the call returned: it succeeds, unless its acknowledgement is so late that it is transmitted again.
    let timer = a.host.hold_timer();
    send(1);
    assert_eq!(active.cq.next().Status, STATUS_SUCCESS);
    drop(timer);
    assert_eq!(passive.cq.next().Status, STATUS_SUCCESS);
    assert!(target.bytes().iter().all(|byte| *byte == 1));
    // Lost: it would have to be transmitted again, from memory that is no longer the consumer's.
    a.host.cut();
    send(2);
    a.host.restore();
    assert_eq!(active.cq.next().Status, STATUS_ACCESS_VIOLATION);
    active.disconnected.wait(1);
    passive.disconnected.wait(1);
    assert!(passive.cq.poll().is_none());
    assert!(target.bytes().iter().all(|byte| *byte == 1));
    into.close();
    close_all([active, passive], listener);
}

/// All posts of a chain but the last are deferred; receives are taken with their type, sends without.
//= R-CONSUMER-18, R-CONSUMER-21, R-QP-36, R-QP-37, R-QP-40, R-CQ-28
#[test]
fn chain_of_sixteen_deferred_posts_completes_in_order() {
    let (a, b) = pair();
    let (active, passive, listener) = connect(&a, &b);
    for context in 0..16 {
        assert_eq!(passive.receive(context, &[]), STATUS_SUCCESS);
        let flags = if context == 15 { 0 } else { NDK_OP_FLAG_DEFER };
        assert_eq!(active.send(context, &[], flags), STATUS_SUCCESS);
    }
    for context in 0..16 {
        let received = passive.cq.next();
        assert_eq!((received.Type.0, received.RequestContext), (1, pointer(context)));
    }
    for context in 0..16 {
        let mut result = core::mem::MaybeUninit::<NDK_RESULT>::uninit();
        wait("a send is complete", || call!(active.cq.raw, NdkGetCqResults, result.as_mut_ptr(), 1) == 1);
        // SAFETY: the call returned 1, so it wrote one result.
        let result = unsafe { result.assume_init() };
        assert_eq!((result.Status, result.RequestContext), (STATUS_SUCCESS, pointer(context)));
    }
    close_all([active, passive], listener);
}

//= R-CONSUMER-19, R-INFO-25, R-CQ-44, R-CQ-54
#[test]
fn interrupt_moderation_is_offered_and_takes_what_the_sample_asks_for() {
    let (a, _b) = pair();
    let flags = a.info().AdapterFlags;
    assert_ne!(flags & NDK_ADAPTER_FLAG_CQ_INTERRUPT_MODERATION_SUPPORTED, 0);
    //= R-INFO-23
    assert_ne!(flags & NDK_ADAPTER_FLAG_RDMA_READ_SINK_NOT_REQUIRED, 0);
    let cq = a.cq(DEPTH);
    assert_eq!(call!(cq.raw, NdkControlCqInterruptModeration, 20, u32::MAX), STATUS_SUCCESS);
    cq.close();
}
