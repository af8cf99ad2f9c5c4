// SPDX-License-Identifier: MIT OR Apache-2.0

//! Every function of every dispatch table but `NdkQueryAdapterInfo` is called at `DISPATCH_LEVEL`.

use crate::support::pool::BYTES;
use crate::support::*;
use core::ffi::c_void;
use core::ptr::{null, null_mut};
use ndk_abi::ndk::*;
use ndk_abi::nt::*;
use ndk_provider::{Config, CreateCompletion};

/// Calls at `DISPATCH_LEVEL`: the host's spin lock raises the level as the kernel's does.
macro_rules! at_dispatch {
    ($call:expr) => {{
        let lock = nt::SpinLock::new(());
        let raised = lock.lock();
        assert_eq!(nt::irql::current(), nt::irql::DISPATCH_LEVEL);
        let answer = $call;
        drop(raised);
        answer
    }};
}

/// Calls with the level raised until the call has returned, and waits below that level if it pends.
fn created_at_dispatch<T>(
    call: impl FnOnce(Option<NDK_FN_CREATE_COMPLETION>, *mut c_void, *mut *mut T) -> NTSTATUS,
) -> *mut T {
    create(|done, context, out| at_dispatch!(call(done, context, out))).expect("an object")
}

/// Makes a create call, waits for the object, and returns it with whether the call pended.
fn created<T>(
    raised: bool,
    call: impl FnOnce(Option<NDK_FN_CREATE_COMPLETION>, *mut c_void, *mut *mut T) -> NTSTATUS,
) -> (*mut T, bool) {
    let mut pended = false;
    let object = create(|done, context, out| {
        let status = if raised { at_dispatch!(call(done, context, out)) } else { call(done, context, out) };
        pended = status == STATUS_PENDING;
        status
    });
    (object.expect("an object"), pended)
}

/// Creates queues of these depths, and gives two of them this depth again. Returns whether each call pended.
fn create_queues(a: &Node, raised: bool, depth: u32, sges: u32) -> [bool; 6] {
    let (adapter, null) = (a.adapter(), null_mut());
    let pd = a.pd();
    let (cq, cq_pended) = created(raised, |done, context, out| {
        call!(adapter, NdkCreateCq, 4 * depth, Some(on_cq), null, null.cast(), done, context, out)
    });
    let (srq, srq_pended): (*mut NDK_SRQ, _) = created(raised, |done, context, out| {
        call!(pd, NdkCreateSrq, depth, sges, 0, None, null, null.cast(), done, context, out)
    });
    let (qp, qp_pended): (*mut NDK_QP, _) = created(raised, |done, context, out| {
        call!(pd, NdkCreateQp, cq, cq, null, depth, depth, sges, sges, 0, done, context, out)
    });
    let (with_srq, with_srq_pended): (*mut NDK_QP, _) = created(raised, |done, context, out| {
        call!(pd, NdkCreateQpWithSrq, cq, cq, srq, null, depth, sges, 0, done, context, out)
    });
    let changed = |call: &dyn Fn(Option<NDK_FN_REQUEST_COMPLETION>, *mut c_void) -> NTSTATUS| {
        let mut pended = false;
        let status = request(|done, context| {
            let status = if raised { at_dispatch!(call(done, context)) } else { call(done, context) };
            pended = status == STATUS_PENDING;
            status
        });
        assert_eq!(status, STATUS_SUCCESS);
        pended
    };
    let resized = changed(&|done, context| call!(cq, NdkResizeCq, 4 * depth, done, context));
    let modified = changed(&|done, context| call!(srq, NdkModifySrq, depth, 0, done, context));
    close!(qp, NdkCloseQp);
    close!(with_srq, NdkCloseQp);
    close!(srq, NdkCloseSrq);
    close!(cq, NdkCloseCq);
    close!(pd, NdkClosePd);
    [cq_pended, srq_pended, qp_pended, with_srq_pended, resized, modified]
}

/// By default consumers meet both outcomes.
//= R-CREATE-1, R-CREATE-2, R-CREATE-13
#[test]
fn queues_are_created_inline_where_their_memory_is_at_hand_and_pend_where_it_is_not() {
    let settings = [
        (CreateCompletion::Auto, [false, false, true]),
        (CreateCompletion::Inline, [false; 3]),
        (CreateCompletion::Pend, [true; 3]),
    ];
    for (create_completion, [below, small, large]) in settings {
        let (a, _b) = pair_with(Config { create_completion, ..Config::default() });
        for (raised, depth, expected) in
            [(false, 16, below), (false, 4096, below), (true, 16, small), (true, 4096, large)]
        {
            let pended = create_queues(&a, raised, depth, 4);
            assert_eq!(pended, [expected; 6], "{create_completion:?}, raised {raised}, depth {depth}");
        }
    }
}

/// The effects of a call at `DISPATCH_LEVEL`: the bytes that it allocated before it returned, and whether it pended.
type Allocated = (i64, bool);

/// Creates an object and closes it.
fn measured<T>(
    call: impl FnOnce(Option<NDK_FN_CREATE_COMPLETION>, *mut c_void, *mut *mut T) -> NTSTATUS,
    close: impl FnOnce(*mut T),
) -> Allocated {
    let before = BYTES.get();
    let (object, pended) = created(true, call);
    let bytes = BYTES.get() - before;
    close(object);
    (bytes, pended)
}

/// Creates queues of `depth`, whose requests have up to `sges` elements and `inline` bytes of inline data.
fn measured_queues(a: &Node, depth: u32, sges: u32, inline: u32) -> [Allocated; 3] {
    let (pd, cq, null) = (a.pd(), a.cq(1), null_mut());
    let measured = [
        measured(
            |done, context, out: *mut *mut NDK_QP| {
                let (receive, send) = (cq.raw, cq.raw);
                call!(
                    pd,
                    NdkCreateQp,
                    receive,
                    send,
                    null,
                    depth,
                    depth,
                    sges,
                    sges,
                    inline,
                    done,
                    context,
                    out
                )
            },
            |qp| close!(qp, NdkCloseQp),
        ),
        measured(
            |done, context, out: *mut *mut NDK_SRQ| {
                call!(pd, NdkCreateSrq, depth, sges, 0, None, null, null.cast(), done, context, out)
            },
            |srq| close!(srq, NdkCloseSrq),
        ),
        measured(
            |done, context, out| {
                call!(a.adapter(), NdkCreateCq, depth, Some(on_cq), null, null.cast(), done, context, out)
            },
            |cq| close!(cq, NdkCloseCq),
        ),
    ];
    cq.close();
    close!(pd, NdkClosePd);
    measured
}

/// The limit of `needed_memory`, and the sizes on which it rests: each call is made inline, to see what it allocates, and as it
/// is by default.
#[test]
fn calls_pend_at_dispatch_level_exactly_if_they_would_allocate_much() {
    let (inline_only, _b) =
        pair_with(Config { create_completion: CreateCompletion::Inline, ..Config::default() });
    let (default, _b) = pair();
    let mut outcomes = [0, 0];
    for depth in (1..=12).map(|bits| 1 << bits) {
        for (sges, inline) in [(1, 0), (1, 128), (2, 0), (32, 128)] {
            let allocated = measured_queues(&inline_only, depth, sges, inline);
            let chosen = measured_queues(&default, depth, sges, inline);
            for ((bytes, _), (_, pends)) in allocated.into_iter().zip(chosen) {
                let what = format!("depth {depth}, {sges} elements, {inline} bytes inline: {bytes} bytes");
                assert!(pends || bytes <= 64 << 10, "inline: {what}");
                // What objects have beside their queues counts as one page or two.
                assert!(!pends || bytes > 56 << 10, "pended: {what}");
                outcomes[usize::from(pends)] += 1;
            }
        }
    }
    assert!(outcomes.iter().all(|count| *count > 10), "inline and pended: {outcomes:?}");
}

/// Its page frame numbers are copied: 8 bytes a page.
//= R-CREATE-13
#[test]
fn registration_of_much_memory_pends_at_dispatch_level() {
    let (a, _b) = pair();
    let (pd, memory) = (a.pd(), Memory::new(40 << 20));
    for (raised, length, expected) in [(true, 4096, false), (true, 40 << 20, true), (false, 40 << 20, false)]
    {
        let mr: *mut NDK_MR =
            create(|done, context, out| call!(pd, NdkCreateMr, 0, done, context, out)).expect("a region");
        let mut pended = false;
        let status = request(|done, context| {
            let register = || call!(mr, NdkRegisterMr, memory.mdl(), length, 1, done, context);
            let status = if raised { at_dispatch!(register()) } else { register() };
            pended = status == STATUS_PENDING;
            status
        });
        assert_eq!((status, pended), (STATUS_SUCCESS, expected), "raised {raised}, {length} bytes");
        assert_eq!(request(|done, context| call!(mr, NdkDeregisterMr, done, context)), STATUS_SUCCESS);
        close!(mr, NdkCloseMr);
    }
    close!(pd, NdkClosePd);
}

//= R-IRQL-1, R-CREATE-13, R-CLOSE-21, R-IRQL-3
#[test]
fn functions_are_called_at_dispatch_level() {
    for (a, b) in [pair(), pending_pair()] {
        let adapter = a.adapter();
        let cq = created_at_dispatch(|done, context, out| {
            call!(
                adapter,
                NdkCreateCq,
                64,
                Some(on_cq),
                CallbackRecord::new().context(),
                null_mut(),
                done,
                context,
                out
            )
        });
        let cq = Cq { raw: cq, notified: CallbackRecord::new() };
        let pd = created_at_dispatch(|done, context, out| call!(adapter, NdkCreatePd, done, context, out));
        let mw: *mut NDK_MW =
            created_at_dispatch(|done, context, out| call!(pd, NdkCreateMw, done, context, out));
        let srq: *mut NDK_SRQ = created_at_dispatch(|done, context, out| {
            call!(pd, NdkCreateSrq, 8, 1, 0, None, null_mut(), null_mut(), done, context, out)
        });
        let with_srq: *mut NDK_QP = created_at_dispatch(|done, context, out| {
            call!(pd, NdkCreateQpWithSrq, cq.raw, cq.raw, srq, null_mut(), 1, 1, 0, done, context, out)
        });
        let qp = created_at_dispatch(|done, context, out| {
            call!(pd, NdkCreateQp, cq.raw, cq.raw, QP_CONTEXT, 8, 8, 1, 1, 0, done, context, out)
        });
        let connector =
            created_at_dispatch(|done, context, out| call!(adapter, NdkCreateConnector, done, context, out));
        let raised = |call: &dyn Fn(Option<NDK_FN_REQUEST_COMPLETION>, *mut c_void) -> NTSTATUS| {
            request(|done, context| at_dispatch!(call(done, context)))
        };
        let listener = b.listener(445);
        at_dispatch!(call!(listener.raw, NdkControlConnectEvents, 0));
        let end = End { cq, pd, qp, connector, disconnected: CallbackRecord::new() };
        let connecting = at_dispatch!(end.connect(a.at(0), b.at(445), &[]));
        let passive = b.end(listener.accept());
        let accepting = at_dispatch!(passive.accept(&[]));
        assert_eq!(connecting.wait(), STATUS_SUCCESS);
        let (event, none) = (end.disconnected.context(), null_mut::<c_void>());
        let completed = raised(&|done, context| {
            call!(connector, NdkCompleteConnect, Some(on_disconnect), event, done, context)
        });
        assert_eq!(completed, STATUS_SUCCESS);
        assert_eq!(accepting.wait(), STATUS_SUCCESS);
        at_dispatch!(end.cq.arm(NDK_CQ_NOTIFY_ANY));
        assert_eq!(at_dispatch!(end.receive(1, &[])), STATUS_SUCCESS);
        assert_eq!(at_dispatch!(call!(srq, NdkSrqReceive, none, null(), 0)), STATUS_SUCCESS);
        assert_eq!(at_dispatch!(end.send(2, &[], 0)), STATUS_SUCCESS);
        let _ = at_dispatch!(end.cq.poll());
        at_dispatch!(call!(qp, NdkFlush));
        passive.disconnected.wait(1);
        at_dispatch!(begin_close!(connector, NdkCloseConnector)).wait();
        at_dispatch!(begin_close!(qp, NdkCloseQp)).wait();
        at_dispatch!(begin_close!(with_srq, NdkCloseQp)).wait();
        at_dispatch!(begin_close!(srq, NdkCloseSrq)).wait();
        at_dispatch!(begin_close!(mw, NdkCloseMw)).wait();
        at_dispatch!(begin_close!(pd, NdkClosePd)).wait();
        at_dispatch!(begin_close!(end.cq.raw, NdkCloseCq)).wait();
        passive.close();
        at_dispatch!(begin_close!(listener.raw, NdkCloseListener)).wait();
    }
}

//= R-IRQL-1, R-CREATE-13, R-CLOSE-21, R-MR-14, R-MR-55, R-CONSUMER-5
#[test]
fn functions_of_regions_are_called_at_dispatch_level() {
    for (a, _b) in [pair(), pending_pair()] {
        let (adapter, memory, pd) = (a.adapter(), Memory::new(4096), a.pd());
        let mr: *mut NDK_MR =
            created_at_dispatch(|done, context, out| call!(pd, NdkCreateMr, 0, done, context, out));
        let fast: *mut NDK_MR =
            created_at_dispatch(|done, context, out| call!(pd, NdkCreateMr, 1, done, context, out));
        let raised = |call: &dyn Fn(Option<NDK_FN_REQUEST_COMPLETION>, *mut c_void) -> NTSTATUS| {
            request(|done, context| at_dispatch!(call(done, context)))
        };
        assert_eq!(
            raised(&|done, context| call!(mr, NdkRegisterMr, memory.mdl(), 4096, 7, done, context)),
            STATUS_SUCCESS
        );
        assert_eq!(
            raised(&|done, context| call!(fast, NdkInitializeFastRegisterMr, 4, 1, done, context)),
            STATUS_SUCCESS
        );
        for token in [
            at_dispatch!(call!(mr, NdkGetLocalTokenFromMr)),
            at_dispatch!(call!(mr, NdkGetRemoteTokenFromMr)),
            at_dispatch!(call!(fast, NdkGetRemoteTokenFromMr)),
        ] {
            assert_ne!(token, 0);
        }
        //= R-MR-14
        assert_eq!(call!(mr, NdkGetLocalTokenFromMr), call!(mr, NdkGetLocalTokenFromMr));
        let mut token = 0;
        at_dispatch!(call!(pd, NdkGetPrivilegedMemoryRegionToken, &raw mut token));
        assert_ne!(token, 0);
        let (mut words, mut size, mut offset) = ([0u64; 3], 24, 0);
        let built = at_dispatch!(call!(
            adapter,
            NdkBuildLAM,
            memory.mdl(),
            4096,
            None,
            null_mut(),
            words.as_mut_ptr().cast(),
            &raw mut size,
            &raw mut offset
        ));
        assert_eq!(built, STATUS_SUCCESS);
        at_dispatch!(call!(adapter, NdkReleaseLAM, words.as_mut_ptr().cast()));
        at_dispatch!(begin_close!(mr, NdkCloseMr)).wait();
        at_dispatch!(begin_close!(fast, NdkCloseMr)).wait();
        close!(pd, NdkClosePd);
    }
}

//= R-IRQL-1, R-MR-55
#[test]
fn requests_on_memory_are_posted_at_dispatch_level() {
    let (a, b) = pair();
    let (active, passive, listener) = connect(&a, &b);
    let (qp, pd) = (active.qp, active.pd);
    let (near, far) = (Memory::new(4096), Memory::new(4096));
    let (here, there) = (near.register(pd, 7), far.register(passive.pd, 7));
    let (fast, mapped) = (fast_mr(pd), Mapped::new(&a, &near, 4096));
    let mw: *mut NDK_MW =
        create(|done, context, out| call!(pd, NdkCreateMw, done, context, out)).expect("a window");
    assert_eq!(initialize(fast, 1, 1), STATUS_SUCCESS);
    let done = |status: NTSTATUS| {
        assert_eq!(status, STATUS_SUCCESS);
        assert_eq!(active.cq.next().Status, STATUS_SUCCESS);
    };
    done(at_dispatch!(active.write(1, &[here.sge()], there.remote())));
    done(at_dispatch!(active.read(2, &[here.sge()], there.remote())));
    let (base, array) = (pointer(0x10_0000), mapped.pages().as_ptr().cast());
    let flags = NDK_OP_FLAG_ALLOW_REMOTE_READ;
    done(at_dispatch!(call!(qp, NdkFastRegister, pointer(3), fast, 1, array, 0, 4096, base, flags)));
    done(at_dispatch!(call!(qp, NdkInvalidate, pointer(4), fast.cast(), 0)));
    let start = pointer(near.base());
    done(at_dispatch!(call!(qp, NdkBind, pointer(5), here.mr, mw, start, 4096, flags)));
    assert_ne!(at_dispatch!(call!(mw, NdkGetRemoteTokenFromMw)), 0);
    done(at_dispatch!(call!(qp, NdkInvalidate, pointer(6), mw.cast(), 0)));
    // The peer has a region that may be invalidated, and a receive.
    let theirs = fast_mr(passive.pd);
    assert_eq!(initialize(theirs, 1, 1), STATUS_SUCCESS);
    let exposed = Mapped::new(&b, &far, 4096);
    let array = exposed.pages().as_ptr().cast();
    let registered = call!(passive.qp, NdkFastRegister, pointer(7), theirs, 1, array, 0, 4096, base, flags);
    assert_eq!((registered, passive.cq.next().Status), (STATUS_SUCCESS, STATUS_SUCCESS));
    assert_eq!(passive.receive(8, &[]), STATUS_SUCCESS);
    let token = call!(theirs, NdkGetRemoteTokenFromMr);
    done(at_dispatch!(call!(qp, NdkSendAndInvalidate, pointer(9), null(), 0, 0, token)));
    let mut result = core::mem::MaybeUninit::<NDK_RESULT>::uninit();
    assert_eq!(at_dispatch!(call!(active.cq.raw, NdkGetCqResults, result.as_mut_ptr(), 1)), 0);
    drop(mapped);
    drop(exposed);
    close!(mw, NdkCloseMw);
    close!(fast, NdkCloseMr);
    close!(theirs, NdkCloseMr);
    let deregistered = request(|done, context| at_dispatch!(call!(here.mr, NdkDeregisterMr, done, context)));
    assert_eq!(deregistered, STATUS_SUCCESS);
    here.close();
    there.close();
    active.close();
    passive.close();
    listener.close();
}

//= R-IRQL-1, R-CREATE-13, R-CLOSE-21
#[test]
fn functions_of_endpoints_are_called_at_dispatch_level() {
    for (a, b) in [pair(), pending_pair()] {
        let never = never as NDK_FN_CONNECT_EVENT_CALLBACK;
        let listener: *mut NDK_LISTENER = created_at_dispatch(|done, context, out| {
            call!(b.adapter(), NdkCreateListener, Some(never), null_mut(), done, context, out)
        });
        let (address, length) = socket_address(b.at(446));
        let listening = request(|done, context| {
            at_dispatch!(call!(listener, NdkListen, (&raw const address).cast(), length, done, context))
        });
        assert_eq!(listening, STATUS_SUCCESS);
        let found = returned_address(|out, length| {
            at_dispatch!(call!(listener, NdkGetLocalAddress, out.cast(), length))
        });
        assert_eq!(found, Ok(b.at(446)));
        at_dispatch!(begin_close!(listener, NdkCloseListener)).wait();
        let (address, length) = socket_address(a.at(5000));
        let endpoint: *mut NDK_SHARED_ENDPOINT = created_at_dispatch(|done, context, out| {
            let address = (&raw const address).cast();
            call!(a.adapter(), NdkCreateSharedEndpoint, address, length, done, context, out)
        });
        let found = returned_address(|out, length| {
            at_dispatch!(call!(endpoint, NdkGetLocalAddress, out.cast(), length))
        });
        assert_eq!(found, Ok(a.at(5000)));
        let listener = b.listener(445);
        let active = a.active();
        let connecting = at_dispatch!(active.connect_with(endpoint, b.at(445)));
        let connector = listener.accept();
        for get in [local_address, peer_address] {
            assert!(at_dispatch!(get(connector)).is_ok());
        }
        assert!(at_dispatch!(private_data(connector)).is_ok());
        let (passive, accepted) = (b.end(connector), CallbackRecord::new());
        let (none, done) = (null_mut(), Some(on_request as NDK_FN_REQUEST_COMPLETION));
        let accepting = at_dispatch!(call!(
            connector,
            NdkAcceptEx,
            passive.qp,
            1,
            1,
            none,
            0,
            None,
            none,
            done,
            accepted.context()
        ));
        assert_eq!((accepting, connecting.wait()), (STATUS_PENDING, STATUS_SUCCESS));
        let completed = request(|done, context| {
            at_dispatch!(call!(active.connector, NdkCompleteConnectEx, None, none, done, context))
        });
        assert_eq!((completed, accepted.wait(1)), (STATUS_SUCCESS, STATUS_SUCCESS));
        let disconnected = CallbackRecord::new();
        let leaving =
            at_dispatch!(call!(active.connector, NdkDisconnect, Some(on_request), disconnected.context()));
        assert_eq!(leaving, STATUS_PENDING);
        close!(passive.connector, NdkCloseConnector);
        disconnected.wait(1);
        close!(active.connector, NdkCloseConnector);
        at_dispatch!(begin_close!(endpoint, NdkCloseSharedEndpoint)).wait();
        let refused = a.active();
        let connecting = refused.connect(a.at(0), b.at(445), &[]);
        let connector = listener.accept();
        assert_eq!(at_dispatch!(call!(connector, NdkReject, null_mut(), 0)), STATUS_SUCCESS);
        assert_eq!(connecting.wait(), STATUS_CONNECTION_REFUSED);
        close!(connector, NdkCloseConnector);
        refused.close();
        for end in [active, passive] {
            close!(end.qp, NdkCloseQp);
            end.cq.close();
            close!(end.pd, NdkClosePd);
        }
        listener.close();
    }
}

unsafe extern "efiapi" fn never(_context: *mut c_void, _connector: *mut NDK_CONNECTOR) {
    panic!("no connect event is expected");
}

/// Asks an object for an extension that no object has.
macro_rules! query_extension {
    ($object:expr) => {{
        let object = $object;
        // SAFETY: a live object of the provider; its table is static.
        let table = unsafe { &*(*object).Dispatch };
        let query = table.NdkQueryExtension.expect("no member is null");
        let mut id = GUID { Data1: 1, Data2: 2, Data3: 3, Data4: [4; 8] };
        let mut extension = NDK_EXTENSION_INTERFACE { Dispatch: null() };
        let version = NDK_VERSION { Major: 1, Minor: 0 };
        // SAFETY: the object is open, and both variables outlive the call.
        let status = at_dispatch!(unsafe { query(object.cast(), &raw mut id, version, &raw mut extension) });
        at_dispatch!(observed::call(table, "NdkQueryExtension", &status, module_path!()));
        assert_eq!(status, STATUS_NOT_SUPPORTED);
    }};
}

//= R-EXT-1, R-EXT-2, R-EXT-4, R-IRQL-1
#[test]
fn every_object_is_asked_for_an_extension_at_dispatch_level() {
    let (a, _b) = pair();
    let (cq, pd) = (a.cq(16), a.pd());
    let (qp, connector, listener) = (qp(pd, &cq), a.connector(), a.idle_listener());
    let mr: *mut NDK_MR = create(|done, context, out| call!(pd, NdkCreateMr, 0, done, context, out)).unwrap();
    let mw: *mut NDK_MW = create(|done, context, out| call!(pd, NdkCreateMw, done, context, out)).unwrap();
    let srq: *mut NDK_SRQ = create(|done, context, out| {
        call!(pd, NdkCreateSrq, 8, 1, 0, None, null_mut(), null_mut(), done, context, out)
    })
    .unwrap();
    let endpoint = a.shared_endpoint(5000);
    query_extension!(a.adapter());
    query_extension!(cq.raw);
    query_extension!(pd);
    query_extension!(qp);
    query_extension!(mr);
    query_extension!(mw);
    query_extension!(srq);
    query_extension!(connector);
    query_extension!(listener.raw);
    query_extension!(endpoint);
    let modified = request(|done, context| at_dispatch!(call!(srq, NdkModifySrq, 16, 0, done, context)));
    assert_eq!(modified, STATUS_SUCCESS);
    let _ = request(|done, context| at_dispatch!(call!(cq.raw, NdkResizeCq, 32, done, context)));
    let _ = at_dispatch!(call!(cq.raw, NdkControlCqInterruptModeration, 20, 4));
    close!(endpoint, NdkCloseSharedEndpoint);
    close!(connector, NdkCloseConnector);
    listener.close();
    close!(qp, NdkCloseQp);
    close!(srq, NdkCloseSrq);
    close!(mw, NdkCloseMw);
    close!(mr, NdkCloseMr);
    close!(pd, NdkClosePd);
    cq.close();
}
