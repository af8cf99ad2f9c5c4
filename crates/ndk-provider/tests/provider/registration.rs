// SPDX-License-Identifier: MIT OR Apache-2.0

//! Fast registration, memory windows, and invalidation by either side.

use crate::support::*;
use core::ptr::null_mut;
use ndk_abi::ndk::*;
use ndk_abi::nt::*;

const FAST_REGISTER: i32 = 4;
const BIND: i32 = 8;
const INVALIDATE: i32 = 16;
const RECEIVE_AND_INVALIDATE: i32 = 32769;
/// Access rights of a fast registration.
const ALL_RIGHTS: u32 = NDK_OP_FLAG_ALLOW_REMOTE_READ | NDK_OP_FLAG_ALLOW_REMOTE_WRITE;

/// Two connected hosts, of which the right one exposes memory.
struct Hosts {
    left: End,
    right: End,
    listener: Listener,
    _a: Node,
    b: Node,
}

impl Hosts {
    fn new() -> Self {
        let (a, b) = pair();
        let (left, right, listener) = connect(&a, &b);
        Self { left, right, listener, _a: a, b }
    }

    fn close(self) {
        self.left.close();
        self.right.close();
        self.listener.close();
    }
}

fn window(pd: *mut NDK_PD) -> *mut NDK_MW {
    create(|done, context, out| call!(pd, NdkCreateMw, done, context, out)).expect("a window")
}

/// Returns an unused virtual address for the first byte of the mapping.
fn base(mapped: &Mapped) -> u64 {
    0xa5a5_0000_0000_0000 + u64::from(mapped.offset)
}

impl Hosts {
    fn register(&self, mr: *mut NDK_MR, mapped: &Mapped, length: usize, flags: u32) -> NTSTATUS {
        let pages = mapped.pages();
        let base = pointer(base(mapped));
        let (count, array) = (pages.len() as u32, pages.as_ptr().cast());
        call!(
            self.right.qp,
            NdkFastRegister,
            pointer(1),
            mr,
            count,
            array,
            mapped.offset,
            length,
            base,
            flags
        )
    }

    fn invalidate(&self, object: *mut NDK_OBJECT_HEADER) -> NTSTATUS {
        call!(self.right.qp, NdkInvalidate, pointer(2), object, 0)
    }

    /// Writes from the left host to the right one's memory and returns the completion's status.
    fn write(&self, from: NDK_SGE, to: (u64, u32)) -> NTSTATUS {
        assert_eq!(self.left.write(3, &[from], to), STATUS_SUCCESS);
        self.left.cq.next().Status
    }
}

/// Binds `mw` to the whole of `memory` in `mr`.
fn bind(hosts: &Hosts, mr: *mut NDK_MR, mw: *mut NDK_MW, memory: &Memory, flags: u32) -> NTSTATUS {
    call!(hosts.right.qp, NdkBind, pointer(6), mr, mw, pointer(memory.base()), 4096, flags)
}

fn expect(result: &NDK_RESULT_EX, kind: i32, status: NTSTATUS) {
    assert_eq!((result.Type.0, result.Status), (kind, status));
}

//= R-MR-27, R-MR-29, R-MR-30, R-MR-33, R-MR-36, R-MR-37, R-MR-40, R-MR-44, R-CQ-24
#[test]
fn peer_has_access_between_fast_registration_and_invalidation() {
    let hosts = Hosts::new();
    let (mut source, mut exposed) = (Memory::new(10_000), Memory::at_offset(10_000, 123));
    source.bytes().fill(7);
    let from = source.register(hosts.left.pd, 0);
    let mapped = Mapped::new(&hosts.b, &exposed, 10_000);
    let mr = fast_mr(hosts.right.pd);
    assert_eq!(initialize(mr, 3, 1), STATUS_SUCCESS);
    let token = call!(mr, NdkGetRemoteTokenFromMr);
    assert_ne!(token, 0);
    for round in 0..100_u8 {
        assert_eq!(hosts.register(mr, &mapped, 10_000, ALL_RIGHTS), STATUS_SUCCESS);
        assert_eq!(call!(mr, NdkGetRemoteTokenFromMr), token, "the token does not change");
        expect(&hosts.right.cq.next(), FAST_REGISTER, STATUS_SUCCESS);
        source.bytes()[9_999] = round;
        assert_eq!(hosts.write(from.sge(), (base(&mapped), token)), STATUS_SUCCESS);
        assert_eq!((exposed.bytes()[0], exposed.bytes()[9_999]), (7, round));
        assert_eq!(hosts.invalidate(mr.cast()), STATUS_SUCCESS);
        expect(&hosts.right.cq.next(), INVALIDATE, STATUS_SUCCESS);
    }
    assert_eq!(hosts.write(from.sge(), (base(&mapped), token)), STATUS_ACCESS_VIOLATION);
    close!(mr, NdkCloseMr);
    drop(mapped);
    from.close();
    hosts.close();
}

//= R-MR-48, R-QP-77, R-CQ-25, R-CQ-26, R-MR-45, R-MR-46
#[test]
fn send_and_invalidate_invalidates_the_peers_region() {
    let hosts = Hosts::new();
    let (source, exposed) = (Memory::new(4096), Memory::new(4096));
    let from = source.register(hosts.left.pd, 0);
    let mapped = Mapped::new(&hosts.b, &exposed, 4096);
    let mr = fast_mr(hosts.right.pd);
    assert_eq!(initialize(mr, 1, 1), STATUS_SUCCESS);
    assert_eq!(hosts.register(mr, &mapped, 4096, ALL_RIGHTS), STATUS_SUCCESS);
    expect(&hosts.right.cq.next(), FAST_REGISTER, STATUS_SUCCESS);
    let token = call!(mr, NdkGetRemoteTokenFromMr);
    assert_eq!(hosts.right.receive(4, &[]), STATUS_SUCCESS);
    let sent = call!(hosts.left.qp, NdkSendAndInvalidate, pointer(5), core::ptr::null(), 0, 0, token);
    assert_eq!(sent, STATUS_SUCCESS);
    let received = hosts.right.cq.next();
    expect(&received, RECEIVE_AND_INVALIDATE, STATUS_SUCCESS);
    assert_eq!(received.TypeSpecificCompletionOutput, token as usize);
    expect(&hosts.left.cq.next(), 2, STATUS_SUCCESS);
    // A second invalidation fails and ends the connection.
    assert_eq!(hosts.invalidate(mr.cast()), STATUS_SUCCESS);
    expect(&hosts.right.cq.next(), INVALIDATE, STATUS_INVALID_DEVICE_REQUEST);
    close!(mr, NdkCloseMr);
    drop(mapped);
    from.close();
    hosts.close();
}

//= R-MR-50, R-QP-78
#[test]
fn send_and_invalidate_of_a_normal_region_ends_the_connection() {
    let hosts = Hosts::new();
    let exposed = Memory::new(4096);
    let to = exposed.register(hosts.right.pd, 7);
    assert_eq!(hosts.right.receive(4, &[]), STATUS_SUCCESS);
    let sent = call!(hosts.left.qp, NdkSendAndInvalidate, pointer(5), core::ptr::null(), 0, 0, to.token());
    assert_eq!(sent, STATUS_SUCCESS);
    assert_ne!(hosts.left.cq.next().Status, STATUS_SUCCESS);
    hosts.right.disconnected.wait(1);
    to.close();
    hosts.close();
}

//= R-MR-24, R-MR-25, R-MR-26, R-MR-28, R-CREATE-42, R-CREATE-43
#[test]
fn each_kind_of_region_refuses_the_functions_of_the_other() {
    let hosts = Hosts::new();
    let (pd, exposed) = (hosts.right.pd, Memory::new(4096));
    let mapped = Mapped::new(&hosts.b, &exposed, 4096);
    let (normal, fast) = (exposed.register(pd, 7), fast_mr(pd));
    assert_eq!(initialize(normal.mr, 1, 1), STATUS_INVALID_DEVICE_REQUEST);
    assert_eq!(hosts.register(normal.mr, &mapped, 4096, ALL_RIGHTS), STATUS_INVALID_DEVICE_REQUEST);
    assert_eq!(hosts.invalidate(normal.mr.cast()), STATUS_INVALID_DEVICE_REQUEST);
    let registered =
        request(|done, context| call!(fast, NdkRegisterMr, exposed.mdl(), 4096, 7, done, context));
    assert_eq!(registered, STATUS_INVALID_DEVICE_REQUEST);
    let deregistered = request(|done, context| call!(fast, NdkDeregisterMr, done, context));
    assert_eq!(deregistered, STATUS_INVALID_DEVICE_REQUEST);

    assert_eq!(hosts.register(fast, &mapped, 4096, ALL_RIGHTS), STATUS_INVALID_DEVICE_REQUEST);
    assert_eq!(initialize(fast, 0, 1), STATUS_INVALID_PARAMETER);
    assert_eq!([513, u32::MAX].map(|pages| initialize(fast, pages, 1)), [STATUS_IMPLEMENTATION_LIMIT; 2]);
    for pages in [16, 489, 512, 1] {
        assert_eq!(initialize(fast, pages, 1), STATUS_SUCCESS, "{pages} pages");
    }
    assert_eq!(hosts.register(fast, &mapped, 4096, ALL_RIGHTS), STATUS_SUCCESS);
    expect(&hosts.right.cq.next(), FAST_REGISTER, STATUS_SUCCESS);
    assert_eq!(initialize(fast, 1, 1), STATUS_INVALID_DEVICE_STATE, "while memory is registered");
    close!(fast, NdkCloseMr);
    normal.close();
    drop(mapped);
    hosts.close();
}

//= R-MR-31, R-MR-32, R-MR-34, R-MR-35, R-MR-36, R-MR-38, R-QP-34
#[test]
fn invalid_fast_registration_fails_inline() {
    let hosts = Hosts::new();
    let exposed = Memory::new(8192);
    let mapped = Mapped::new(&hosts.b, &exposed, 8192);
    let (mr, local) = (fast_mr(hosts.right.pd), fast_mr(hosts.right.pd));
    assert_eq!([initialize(mr, 2, 1), initialize(local, 2, 0)], [STATUS_SUCCESS; 2]);
    let post = |mr, count, offset, length, base, flags| {
        let array = mapped.pages().as_ptr().cast();
        call!(
            hosts.right.qp,
            NdkFastRegister,
            null_mut(),
            mr,
            count,
            array,
            offset,
            length,
            pointer(base),
            flags
        )
    };
    let good = 0x10_0000;
    for (reason, status) in [
        ("no pages", post(mr, 0, 0, 1, good, 0)),
        ("more pages than initialized", post(mr, 3, 0, 1, good, 0)),
        ("more pages than supported", post(mr, u32::MAX, 0, 1, good, 0)),
        ("an offset beyond the page", post(mr, 2, 4096, 1, good, 0)),
        ("a length of 0", post(mr, 2, 0, 0, good, 0)),
        ("a length beyond the pages", post(mr, 2, 0, 8193, good, 0)),
        ("a base that does not fit the offset", post(mr, 2, 0, 1, good + 1, 0)),
        ("an end beyond all addresses", post(mr, 2, 0, 8192, u64::MAX - 4095, 0)),
        ("an invalid flag", post(mr, 2, 0, 8192, good, NDK_OP_FLAG_INLINE)),
    ] {
        assert_eq!(status, STATUS_INVALID_PARAMETER, "{reason}");
    }
    let remote = NDK_OP_FLAG_ALLOW_REMOTE_READ;
    assert_eq!(post(local, 2, 0, 8192, good, remote), STATUS_ACCESS_VIOLATION);
    let null_pages =
        call!(hosts.right.qp, NdkFastRegister, null_mut(), mr, 2, core::ptr::null(), 0, 1, pointer(good), 0);
    assert_eq!(null_pages, STATUS_INVALID_PARAMETER);
    assert_eq!(post(local, 2, 0, 8192, good, NDK_OP_FLAG_ALLOW_LOCAL_WRITE), STATUS_SUCCESS);
    expect(&hosts.right.cq.next(), FAST_REGISTER, STATUS_SUCCESS);
    assert!(hosts.right.cq.poll().is_none(), "a failed post completed");
    close!(mr, NdkCloseMr);
    close!(local, NdkCloseMr);
    drop(mapped);
    hosts.close();
}

//= R-MR-58, R-MR-59, R-MR-60, R-MR-61, R-MR-62, R-MR-65, R-MR-67, R-MR-20
#[test]
fn memory_window_gives_access_to_a_part_of_a_region() {
    let hosts = Hosts::new();
    let (mut source, mut exposed) = (Memory::new(8192), Memory::new(8192));
    source.bytes().fill(9);
    let from = source.register(hosts.left.pd, 0);
    let to = exposed.register(hosts.right.pd, NDK_MR_FLAG_ALLOW_LOCAL_WRITE);
    let narrow = exposed.register(hosts.right.pd, 0);
    let mw = window(hosts.right.pd);
    let bind = |mr: &Registered, address, length: usize, flags| {
        call!(hosts.right.qp, NdkBind, pointer(6), mr.mr, mw, pointer(address), length, flags)
    };
    let (start, write) = (exposed.base(), NDK_OP_FLAG_ALLOW_REMOTE_WRITE);
    assert_eq!(bind(&narrow, start, 4096, write), STATUS_ACCESS_VIOLATION, "no local write right");
    assert_eq!(bind(&to, start, 4096, 0), STATUS_INVALID_PARAMETER, "no rights");
    assert_eq!(bind(&to, start, 0, write), STATUS_INVALID_PARAMETER, "no bytes");
    assert_eq!(bind(&to, start + 100, 1000, write), STATUS_SUCCESS);
    let token = call!(mw, NdkGetRemoteTokenFromMw);
    expect(&hosts.right.cq.next(), BIND, STATUS_SUCCESS);
    assert_eq!(hosts.write(from.part(0, 1000), (start + 100, token)), STATUS_SUCCESS);
    assert_eq!((exposed.bytes()[99], exposed.bytes()[100], exposed.bytes()[1100]), (0, 9, 0));
    //= R-MR-20
    let deregistered = request(|done, context| call!(to.mr, NdkDeregisterMr, done, context));
    assert_eq!(deregistered, STATUS_DEVICE_BUSY);
    assert_eq!(hosts.invalidate(mw.cast()), STATUS_SUCCESS);
    expect(&hosts.right.cq.next(), INVALIDATE, STATUS_SUCCESS);
    assert_eq!(hosts.write(from.part(0, 1000), (start + 100, token)), STATUS_ACCESS_VIOLATION);
    close!(mw, NdkCloseMw);
    to.close();
    narrow.close();
    from.close();
    hosts.close();
}

//= R-CLOSE-14, R-CLOSE-29
#[test]
fn region_closes_after_the_window_that_is_bound_to_it() {
    let hosts = Hosts::new();
    let exposed = Memory::new(4096);
    let to = exposed.register(hosts.right.pd, 7);
    let mw = window(hosts.right.pd);
    assert_eq!(bind(&hosts, to.mr, mw, &exposed, NDK_OP_FLAG_ALLOW_REMOTE_READ), STATUS_SUCCESS);
    expect(&hosts.right.cq.next(), BIND, STATUS_SUCCESS);
    let region = begin_close!(to.mr, NdkCloseMr);
    assert_eq!(region.status, STATUS_PENDING);
    assert!(!region.is_done());
    close!(mw, NdkCloseMw);
    region.wait();
    hosts.close();
}

//= R-CLOSE-14, R-CLOSE-29
#[test]
fn region_closes_without_waiting_for_an_invalidated_window() {
    let hosts = Hosts::new();
    let exposed = Memory::new(4096);
    let (to, other) = (exposed.register(hosts.right.pd, 7), exposed.register(hosts.right.pd, 7));
    let mw = window(hosts.right.pd);
    for region in [to.mr, other.mr] {
        assert_eq!(bind(&hosts, region, mw, &exposed, NDK_OP_FLAG_ALLOW_REMOTE_READ), STATUS_SUCCESS);
        expect(&hosts.right.cq.next(), BIND, STATUS_SUCCESS);
        assert_eq!(hosts.invalidate(mw.cast()), STATUS_SUCCESS);
        expect(&hosts.right.cq.next(), INVALIDATE, STATUS_SUCCESS);
        // The window is still open.
        close!(region, NdkCloseMr);
    }
    close!(mw, NdkCloseMw);
    hosts.close();
}

//= R-CLOSE-14
#[test]
fn failed_post_leaves_the_window_bound_to_its_region() {
    let hosts = Hosts::new();
    let exposed = Memory::new(4096);
    let (to, other) = (exposed.register(hosts.right.pd, 7), exposed.register(hosts.right.pd, 7));
    let mw = window(hosts.right.pd);
    assert_eq!(bind(&hosts, to.mr, mw, &exposed, NDK_OP_FLAG_ALLOW_REMOTE_READ), STATUS_SUCCESS);
    expect(&hosts.right.cq.next(), BIND, STATUS_SUCCESS);
    assert_eq!(bind(&hosts, other.mr, mw, &exposed, 0), STATUS_INVALID_PARAMETER, "no rights");
    let invalidated = call!(hosts.right.qp, NdkInvalidate, pointer(2), mw.cast(), NDK_OP_FLAG_INLINE);
    assert_eq!(invalidated, STATUS_INVALID_PARAMETER, "an invalid flag");
    close!(other.mr, NdkCloseMr);
    let region = begin_close!(to.mr, NdkCloseMr);
    assert_eq!(region.status, STATUS_PENDING);
    assert!(!region.is_done());
    close!(mw, NdkCloseMw);
    region.wait();
    hosts.close();
}

//= R-CLOSE-28
#[test]
fn region_closes_while_a_request_that_names_it_is_queued() {
    let hosts = Hosts::new();
    let exposed = Memory::new(4096);
    let mapped = Mapped::new(&hosts.b, &exposed, 4096);
    let mr = fast_mr(hosts.right.pd);
    assert_eq!(initialize(mr, 1, 1), STATUS_SUCCESS);
    assert_eq!(hosts.left.receive(9, &[]), STATUS_SUCCESS);
    assert_eq!(hosts.register(mr, &mapped, 4096, ALL_RIGHTS), STATUS_SUCCESS);
    expect(&hosts.right.cq.next(), FAST_REGISTER, STATUS_SUCCESS);
    // Behind a request that is deferred.
    assert_eq!(hosts.right.send(3, &[], NDK_OP_FLAG_DEFER), STATUS_SUCCESS);
    let invalidated = call!(hosts.right.qp, NdkInvalidate, pointer(4), mr.cast(), NDK_OP_FLAG_DEFER);
    assert_eq!(invalidated, STATUS_SUCCESS);
    close!(mr, NdkCloseMr);
    assert_eq!(hosts.right.send(5, &[], 0), STATUS_SUCCESS);
    assert_eq!(hosts.right.cq.next().Status, STATUS_SUCCESS);
    expect(&hosts.right.cq.next(), INVALIDATE, STATUS_INVALID_DEVICE_REQUEST);
    assert_eq!(hosts.right.cq.next().Status, STATUS_CANCELLED);
    drop(mapped);
    hosts.close();
}

//= R-QP-38
#[test]
fn request_with_an_object_of_another_domain_or_type_starts_the_deferred_ones() {
    let hosts = Hosts::new();
    let (right, memory) = (&hosts.right, Memory::new(4096));
    let mapped = Mapped::new(&hosts.b, &memory, 4096);
    let (region, own_window) = (memory.register(right.pd, 7), window(right.pd));
    let pd = hosts.b.pd();
    let (mr, mw, fast) = (memory.register(pd, 7), window(pd), fast_mr(pd));
    assert_eq!(initialize(fast, 1, 1), STATUS_SUCCESS);
    let (base, array) = (pointer(memory.base()), mapped.pages().as_ptr().cast());
    let read = NDK_OP_FLAG_ALLOW_REMOTE_READ;
    let bad: [&dyn Fn() -> NTSTATUS; 7] = [
        &|| call!(right.qp, NdkBind, pointer(4), mr.mr, own_window, base, 4096, read),
        &|| call!(right.qp, NdkBind, pointer(4), region.mr, mw, base, 4096, read),
        &|| call!(right.qp, NdkBind, pointer(4), region.mr, region.mr.cast(), base, 4096, read),
        &|| call!(right.qp, NdkFastRegister, pointer(4), fast, 1, array, 0, 4096, base, ALL_RIGHTS),
        &|| {
            call!(
                right.qp,
                NdkFastRegister,
                pointer(4),
                own_window.cast(),
                1,
                array,
                0,
                4096,
                base,
                ALL_RIGHTS
            )
        },
        &|| call!(right.qp, NdkInvalidate, pointer(4), mw.cast(), 0),
        &|| call!(right.qp, NdkInvalidate, pointer(4), fast.cast(), 0),
    ];
    for (number, bad) in bad.iter().enumerate() {
        assert_eq!(hosts.left.receive(9, &[]), STATUS_SUCCESS);
        assert_eq!(right.send(3, &[], NDK_OP_FLAG_DEFER), STATUS_SUCCESS);
        assert_eq!(bad(), STATUS_INVALID_PARAMETER, "call {number}");
        let sent = right.cq.next();
        assert_eq!((sent.RequestContext, sent.Status), (pointer(3), STATUS_SUCCESS), "call {number}");
        assert_eq!(hosts.left.cq.next().Status, STATUS_SUCCESS);
    }
    close!(fast, NdkCloseMr);
    close!(mw, NdkCloseMw);
    mr.close();
    close!(own_window, NdkCloseMw);
    region.close();
    drop(mapped);
    close!(pd, NdkClosePd);
    hosts.close();
}

//= R-QP-4
#[test]
fn registration_requests_fail_without_a_connection() {
    let (a, _b) = pair();
    let (cq, pd) = (a.cq(16), a.pd());
    let qp = qp(pd, &cq);
    let exposed = Memory::new(4096);
    let mapped = Mapped::new(&a, &exposed, 4096);
    let (normal, mr, mw) = (exposed.register(pd, 7), fast_mr(pd), window(pd));
    assert_eq!(initialize(mr, 1, 1), STATUS_SUCCESS);
    let array = mapped.pages().as_ptr().cast();
    let base = pointer(exposed.base());
    for status in [
        call!(qp, NdkFastRegister, null_mut(), mr, 1, array, 0, 4096, base, 0),
        call!(qp, NdkInvalidate, null_mut(), mr.cast(), 0),
        call!(qp, NdkBind, null_mut(), normal.mr, mw, base, 4096, NDK_OP_FLAG_ALLOW_REMOTE_READ),
        call!(qp, NdkSendAndInvalidate, null_mut(), core::ptr::null(), 0, 0, 1),
    ] {
        assert_eq!(status, STATUS_CONNECTION_INVALID);
    }
    close!(mw, NdkCloseMw);
    close!(mr, NdkCloseMr);
    normal.close();
    drop(mapped);
    close!(qp, NdkCloseQp);
    close!(pd, NdkClosePd);
    cq.close();
}

//= R-MR-52
#[test]
fn region_of_another_protection_domain_is_refused() {
    let hosts = Hosts::new();
    let exposed = Memory::new(4096);
    let mapped = Mapped::new(&hosts.b, &exposed, 4096);
    let pd = hosts.b.pd();
    let mr = fast_mr(pd);
    assert_eq!(initialize(mr, 1, 1), STATUS_SUCCESS);
    assert_eq!(hosts.register(mr, &mapped, 4096, ALL_RIGHTS), STATUS_INVALID_PARAMETER);
    close!(mr, NdkCloseMr);
    close!(pd, NdkClosePd);
    drop(mapped);
    hosts.close();
}

/// The token stays valid only for the registered addresses: the region has no address 0.
//= R-MR-23, R-IRQL-8, R-MR-7
#[test]
fn registered_addresses_are_those_of_the_mdl_and_name_no_memory_of_this_machine() {
    let hosts = Hosts::new();
    let (mut source, mut exposed) = (Memory::new(4096), Memory::new(4096));
    source.bytes().fill(5);
    // The address that the MDL gives is mapped nowhere in this process.
    assert!(exposed.base() >= INVENTED);
    let (from, to) = (source.register(hosts.left.pd, 0), exposed.register(hosts.right.pd, 7));
    let (base, token) = to.remote();
    assert_eq!(hosts.write(from.sge(), (base, token)), STATUS_SUCCESS);
    assert!(exposed.bytes().iter().all(|byte| *byte == 5));
    exposed.bytes().fill(0);
    assert_eq!(hosts.write(from.sge(), (0, token)), STATUS_ACCESS_VIOLATION);
    assert!(exposed.bytes().iter().all(|byte| *byte == 0));
    to.close();
    from.close();
    hosts.close();
}

//= R-MR-4
#[test]
fn length_of_a_registration_is_limited() {
    let (a, _b) = pair();
    let (pd, memory) = (a.pd(), Memory::new(4096));
    let limit = a.info().MaxRegistrationSize;
    let mr: *mut NDK_MR = create(|done, context, out| call!(pd, NdkCreateMr, 0, done, context, out)).unwrap();
    // Longer than the chain, which is another reason to refuse; but one is refused before the chain is looked at.
    for length in [limit + 1, usize::MAX] {
        let register =
            call!(mr, NdkRegisterMr, null_mut::<MDL>().wrapping_add(1), length, 1, None, null_mut());
        assert_eq!(register, STATUS_INVALID_PARAMETER);
    }
    let registered = request(|done, context| call!(mr, NdkRegisterMr, memory.mdl(), 4096, 1, done, context));
    assert_eq!(registered, STATUS_SUCCESS);
    close!(mr, NdkCloseMr);
    close!(pd, NdkClosePd);
}

/// The receive is taken by the poll that reports no token.
//= R-MR-49, R-CQ-28
#[test]
fn region_is_invalidated_remotely_whichever_way_the_receive_is_polled() {
    let hosts = Hosts::new();
    let (mut source, exposed) = (Memory::new(4096), Memory::new(4096));
    source.bytes().fill(7);
    let from = source.register(hosts.left.pd, 0);
    let mapped = Mapped::new(&hosts.b, &exposed, 4096);
    let mr = fast_mr(hosts.right.pd);
    assert_eq!(initialize(mr, 1, 1), STATUS_SUCCESS);
    assert_eq!(hosts.register(mr, &mapped, 4096, ALL_RIGHTS), STATUS_SUCCESS);
    expect(&hosts.right.cq.next(), FAST_REGISTER, STATUS_SUCCESS);
    let token = call!(mr, NdkGetRemoteTokenFromMr);
    assert_eq!(hosts.write(from.sge(), (base(&mapped), token)), STATUS_SUCCESS);
    assert_eq!(hosts.right.receive(4, &[]), STATUS_SUCCESS);
    let sent = call!(hosts.left.qp, NdkSendAndInvalidate, pointer(5), core::ptr::null(), 0, 0, token);
    assert_eq!(sent, STATUS_SUCCESS);
    let mut result = core::mem::MaybeUninit::<NDK_RESULT>::uninit();
    wait("the receive is there", || call!(hosts.right.cq.raw, NdkGetCqResults, result.as_mut_ptr(), 1) == 1);
    assert_eq!(hosts.left.cq.next().Status, STATUS_SUCCESS);
    assert_eq!(hosts.write(from.sge(), (base(&mapped), token)), STATUS_ACCESS_VIOLATION);
    close!(mr, NdkCloseMr);
    drop(mapped);
    from.close();
    hosts.close();
}

//= R-CLOSE-27
#[test]
fn region_that_is_closed_without_deregistration_is_no_longer_accessed() {
    let hosts = Hosts::new();
    let (mut source, exposed) = (Memory::new(4096), Memory::new(4096));
    source.bytes().fill(7);
    let before = exposed.snapshot();
    let from = source.register(hosts.left.pd, 0);
    let to = exposed.register(hosts.right.pd, NDK_MR_FLAG_ALLOW_REMOTE_WRITE);
    let remote = to.remote();
    close!(to.mr, NdkCloseMr);
    assert_eq!(hosts.write(from.sge(), remote), STATUS_ACCESS_VIOLATION);
    assert!(exposed.snapshot() == before, "the memory was written");
    from.close();
    hosts.close();
}

/// The description of a mapping, of up to 14 pages, and the status of building it.
fn describe(adapter: *mut NDK_ADAPTER, memory: &Memory, length: usize) -> ([u64; 16], NTSTATUS) {
    let (mut words, mut size, mut offset) = ([u64::MAX; 16], 128, 0);
    let (into, size, offset) = (words.as_mut_ptr().cast(), &raw mut size, &raw mut offset);
    let none = null_mut();
    let status = call!(adapter, NdkBuildLAM, memory.mdl(), length, None, none, into, size, offset);
    (words, status)
}

/// The consumer keeps the description, wherever it likes, and gives back what it was given.
//= R-LAM-13, R-LAM-14, R-LAM-21, R-LAM-24
#[test]
fn mapping_is_released_by_what_the_provider_wrote_into_it() {
    for (a, b) in [pair(), pending_pair()] {
        let (active, passive, listener) = connect(&a, &b);
        let memory = Memory::new(8192);
        // SAFETY: the MDL has 8 words, 6 of its header and 2 page numbers, and lives as long as `memory`.
        let header = || unsafe { memory.mdl().cast::<[u64; 8]>().read() };
        let before = header();
        let [first, second] = [(); 2].map(|()| {
            let (words, status) = describe(a.adapter(), &memory, 8192);
            assert_eq!(status, STATUS_SUCCESS);
            // Complete when the call returns: context, number of pages, addresses.
            assert_eq!((words[1] as u32, words[4]), (2, u64::MAX));
            words
        });
        assert_ne!(first[0], second[0]);
        // A copy: the first mapping is gone, the second one is not.
        let mut copy = [first[0], first[1]];
        call!(a.adapter(), NdkReleaseLAM, copy.as_mut_ptr().cast());
        assert_eq!(header(), before, "the MDL was changed");
        assert_eq!(passive.receive(1, &[]), STATUS_SUCCESS);
        assert_eq!(passive.receive(2, &[]), STATUS_SUCCESS);
        assert_eq!(active.send(3, &[privileged(active.pd, second[2], 0)], 0), STATUS_SUCCESS);
        assert_eq!(active.cq.next().Status, STATUS_SUCCESS);
        assert_eq!(active.send(4, &[privileged(active.pd, first[2], 16)], 0), STATUS_SUCCESS);
        assert_eq!(active.cq.next().Status, STATUS_ACCESS_VIOLATION);
        copy = [second[0], second[1]];
        call!(a.adapter(), NdkReleaseLAM, copy.as_mut_ptr().cast());
        assert_eq!(header(), before);
        active.close();
        passive.close();
        listener.close();
    }
}
