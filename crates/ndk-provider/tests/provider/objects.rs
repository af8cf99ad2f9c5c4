// SPDX-License-Identifier: MIT OR Apache-2.0

//! Creating and closing objects without a peer: statuses, limits and the order of closes.

use crate::support::*;
use core::ffi::c_void;
use core::ptr::null_mut;
use ndk_abi::ndk::*;
use ndk_abi::nt::*;
use std::sync::atomic::{AtomicBool, Ordering};

//= R-CREATE-8, R-OPEN-12, R-OPEN-13, R-OPEN-19
#[test]
fn object_header_has_its_type_and_the_version_of_its_adapter() {
    let (a, _b) = pair();
    let cq = a.cq(16);
    let pd = a.pd();
    let qp = qp(pd, &cq);
    let connector = a.connector();
    let listener = a.idle_listener();
    let headers: [(*mut NDK_OBJECT_HEADER, i32); 6] = [
        (a.adapter().cast(), 1),
        (qp.cast(), 2),
        (cq.raw.cast(), 3),
        (pd.cast(), 6),
        (connector.cast(), 8),
        (listener.raw.cast(), 9),
    ];
    for (header, kind) in headers {
        // SAFETY: live objects of the provider.
        let header = unsafe { header.read() };
        assert_eq!((header.Version.Major, header.Version.Minor, header.ObjectType.0), (2, 1, kind));
        assert!(header.NdkReserved.rf.iter().all(|reserved| reserved.is_null()));
    }
    close!(connector, NdkCloseConnector);
    listener.close();
    close!(qp, NdkCloseQp);
    close!(pd, NdkClosePd);
    cq.close();
}

//= R-OPEN-9, R-OPEN-10, R-OPEN-11, R-OPEN-16, R-OPEN-18
#[test]
fn open_depends_on_version_and_enabled_state() {
    let (a, _b) = pair();
    let open = |major, minor| a.provider.open(NDK_VERSION { Major: major, Minor: minor });
    for (major, minor) in [(1, 0), (1, 2), (2, 0)] {
        let adapter = open(major, minor).expect("supported");
        // SAFETY: the adapter was opened in the line above, and has no objects or other user.
        unsafe { a.provider.close(adapter) };
    }
    assert_eq!(open(3, 0).err(), Some(0xC001_0004_u32.cast_signed()));
    assert_eq!(open(1, 3).err(), Some(0xC001_0004_u32.cast_signed()));
    a.provider.set_enabled(false);
    assert_eq!(open(2, 0).err(), Some(0xC001_0011_u32.cast_signed()));
    a.provider.set_enabled(true);
}

//= R-INFO-2, R-INFO-3, R-INFO-4, R-INFO-5, R-INFO-6, R-INFO-8, R-CONSUMER-17
//= R-INFO-7, R-INFO-35
#[test]
fn adapter_info_is_written_only_if_it_fits() {
    let (a, _b) = pair();
    // Aligned like the consumer's structure.
    let mut words = [0xeeee_eeee_eeee_eeee_u64; 21];
    let pointer = words.as_mut_ptr().cast::<u8>();
    let query = |buffer: *mut u8, size: &mut u32| {
        call!(a.adapter(), NdkQueryAdapterInfo, buffer.cast(), &raw mut *size)
    };
    let bytes = |words: &[u64; 21]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>();
    for short in [0, 1, 95] {
        let mut size = short;
        assert_eq!(query(pointer, &mut size), STATUS_BUFFER_TOO_SMALL);
        assert_eq!(size, 104);
        assert!(bytes(&words).iter().all(|byte| *byte == 0xee));
    }
    let mut size = 0;
    assert_eq!(query(null_mut(), &mut size), STATUS_BUFFER_TOO_SMALL);
    //= R-CONSUMER-17
    for old in [96, 100, 103] {
        words.fill(0xeeee_eeee_eeee_eeee);
        let mut size = old;
        assert_eq!(query(pointer, &mut size), STATUS_SUCCESS);
        assert_eq!(size, 96);
        let info = bytes(&words);
        assert_eq!(info[..4], [2, 0, 1, 0]);
        // The flags, which are last, are written, and nothing behind them.
        assert_eq!(info[92..96], 0x1_0116_u32.to_ne_bytes());
        assert!(info[96..].iter().all(|byte| *byte == 0xee));
    }
    let mut size = 104;
    assert_eq!(query(pointer, &mut size), STATUS_SUCCESS);
    assert_eq!(bytes(&words)[96..104], [4, 0, 0, 0, 0, 0, 0, 0]);
    // So is the padding in the middle, which the consumer would otherwise get from a kernel stack.
    let device_end = core::mem::offset_of!(NDK_ADAPTER_INFO, DeviceId) + 4;
    assert_eq!(
        bytes(&words)[device_end..core::mem::offset_of!(NDK_ADAPTER_INFO, MaxRegistrationSize)],
        [0; 4]
    );
    words.fill(0xeeee_eeee_eeee_eeee);
    let mut size = 168;
    assert_eq!(query(pointer, &mut size), STATUS_SUCCESS);
    assert_eq!(size, 104);
    let info = bytes(&words);
    assert_eq!(info[..4], [2, 0, 1, 0]);
    assert!(info[104..].iter().all(|byte| *byte == 0xee));
}

/// Creates objects until that fails, closes one and creates one again. Returns the number of objects.
fn count<T>(create: impl Fn() -> Result<*mut T, NTSTATUS>, close: impl Fn(*mut T)) -> usize {
    let mut created = Vec::new();
    let failure = loop {
        match create() {
            Ok(object) => created.push(object),
            Err(status) => break status,
        }
    };
    assert_eq!(failure, STATUS_INSUFFICIENT_RESOURCES);
    let count = created.len();
    close(created.pop().expect("at least one"));
    created.push(create().expect("one more after a close"));
    assert_eq!(create().err(), Some(STATUS_INSUFFICIENT_RESOURCES));
    created.into_iter().for_each(close);
    count
}

//= R-CREATE-15
//= R-CREATE-27
#[test]
fn reported_number_of_objects_can_be_created() {
    let (a, _b) = pair();
    let reported = a.provider.capabilities();
    let pds = count(
        || create(|done, context, out| call!(a.adapter(), NdkCreatePd, done, context, out)),
        |pd| close!(pd, NdkClosePd),
    );
    let cqs = count(
        || {
            create(|done, context, out| {
                let (adapter, null) = (a.adapter(), null_mut());
                call!(adapter, NdkCreateCq, 1, Some(on_cq), null, null.cast(), done, context, out)
            })
        },
        |cq: *mut NDK_CQ| close!(cq, NdkCloseCq),
    );
    let pd = a.pd();
    let mrs = count(
        || create(|done, context, out| call!(pd, NdkCreateMr, 0, done, context, out)),
        |mr| close!(mr, NdkCloseMr),
    );
    let mws = count(
        || create(|done, context, out| call!(pd, NdkCreateMw, done, context, out)),
        |mw| close!(mw, NdkCloseMw),
    );
    let srqs = count(
        || {
            create(|done, context, out| {
                let null = null_mut();
                call!(pd, NdkCreateSrq, 1, 1, 0, None, null, null.cast(), done, context, out)
            })
        },
        |srq: *mut NDK_SRQ| close!(srq, NdkCloseSrq),
    );
    let queue = a.cq(1);
    let qps = count(
        || {
            create(|done, context, out| {
                let raw = queue.raw;
                call!(pd, NdkCreateQp, raw, raw, null_mut(), 1, 1, 1, 1, 0, done, context, out)
            })
        },
        |qp: *mut NDK_QP| close!(qp, NdkCloseQp),
    );
    queue.close();
    close!(pd, NdkClosePd);
    let counts = [pds, cqs, mrs, mws, srqs, qps].map(|count| count as u32);
    let limits = [
        reported.MaxPdCount,
        reported.MaxCqCount,
        reported.MaxMrCount,
        reported.MaxMwCount,
        reported.MaxSrqCount,
        reported.MaxQpCount,
    ];
    assert_eq!(counts, limits);
}

//= R-CREATE-20, R-CREATE-21, R-CREATE-22, R-CREATE-29, R-CREATE-32, R-CREATE-39
#[test]
fn sizes_are_accepted_up_to_the_reported_limits() {
    let (a, _b) = pair();
    let info = a.info();
    let cq = |depth| {
        create(|done, context, out| {
            call!(a.adapter(), NdkCreateCq, depth, Some(on_cq), null_mut(), null_mut(), done, context, out)
        })
    };
    for depth in [1, info.MaxCqDepth] {
        close!(cq(depth).expect("a queue"), NdkCloseCq);
    }
    assert_eq!(cq(0).err(), Some(STATUS_INVALID_PARAMETER));
    assert_eq!(cq(info.MaxCqDepth + 1).err(), Some(STATUS_INVALID_PARAMETER));

    let (queue, pd) = (a.cq(1), a.pd());
    let qp = |sizes: [u32; 5]| {
        let [receives, initiators, receive_sges, initiator_sges, inline] = sizes;
        let raw = queue.raw;
        create(|done, context, out| {
            call!(
                pd,
                NdkCreateQp,
                raw,
                raw,
                null_mut(),
                receives,
                initiators,
                receive_sges,
                initiator_sges,
                inline,
                done,
                context,
                out
            )
        })
    };
    let limits = [
        info.MaxReceiveQueueDepth,
        info.MaxInitiatorQueueDepth,
        info.MaxReceiveRequestSge,
        info.MaxInitiatorRequestSge,
        info.MaxInlineDataSize,
    ];
    //= R-INFO-18
    close!(qp(limits).expect("everything at its maximum"), NdkCloseQp);
    for index in 0..limits.len() {
        let mut beyond = [1; 5];
        beyond[index] = limits[index] + 1;
        assert_eq!(qp(beyond).err(), Some(STATUS_INVALID_PARAMETER));
    }
    //= R-CREATE-35
    close!(qp([0; 5]).expect("a queue pair of size zero"), NdkCloseQp);
    close!(pd, NdkClosePd);
    queue.close();
}

//= R-CREATE-36
#[test]
fn completion_queue_of_another_adapter_is_refused() {
    let (a, b) = pair();
    let (pd, other) = (a.pd(), b.cq(4));
    let refused: Result<*mut NDK_QP, _> = create(|done, context, out| {
        call!(pd, NdkCreateQp, other.raw, other.raw, null_mut(), 1, 1, 1, 1, 0, done, context, out)
    });
    assert_eq!(refused.err(), Some(STATUS_INVALID_PARAMETER));
    other.close();
    close!(pd, NdkClosePd);
}

//= R-CLOSE-9, R-CLOSE-11, R-CLOSE-13, R-CLOSE-14, R-CREATE-19
#[test]
fn antecedent_closes_after_its_last_successor() {
    let (a, _b) = pair();
    let (cq, pd) = (a.cq(16), a.pd());
    let qp = qp(pd, &cq);
    let closing_pd = begin_close!(pd, NdkClosePd);
    let closing_cq = begin_close!(cq.raw, NdkCloseCq);
    assert_eq!([closing_pd.status, closing_cq.status], [STATUS_PENDING; 2]);
    // The successor still works.
    assert_eq!(call!(qp, NdkReceive, null_mut(), core::ptr::null(), 0), STATUS_SUCCESS);
    assert!(!closing_pd.is_done() && !closing_cq.is_done());
    close!(qp, NdkCloseQp);
    closing_pd.wait();
    closing_cq.wait();
}

//= R-CLOSE-23
#[test]
fn close_without_callback_completes_silently() {
    let (a, _b) = pair();
    let (cq, pd) = (a.cq(16), a.pd());
    let qp = qp(pd, &cq);
    assert_eq!(close_with!(pd, NdkClosePd, None, null_mut()), STATUS_PENDING);
    close!(qp, NdkCloseQp);
    cq.close();
}

//= R-CREATE-2, R-CREATE-3, R-CREATE-6, R-CREATE-7, R-CLOSE-2
#[test]
fn every_call_pends_when_so_configured() {
    let (a, _b) = pending_pair();
    let (cq, pd) = (a.cq(16), a.pd());
    let qp = qp(pd, &cq);
    let too_deep: Result<*mut NDK_CQ, _> = create(|done, context, out| {
        call!(a.adapter(), NdkCreateCq, u32::MAX, Some(on_cq), null_mut(), null_mut(), done, context, out)
    });
    assert_eq!(too_deep.err(), Some(STATUS_INVALID_PARAMETER));
    let mut memory = Memory::new(5000);
    memory.bytes().fill(1);
    let registered = memory.register(pd, 7);
    assert_ne!(registered.token(), 0);
    let mr = registered.mr;
    assert_eq!(request(|done, context| call!(mr, NdkDeregisterMr, done, context)), STATUS_SUCCESS);
    registered.close();
    let listener = a.listener(445);
    listener.close();
    let closing = begin_close!(qp, NdkCloseQp);
    assert_eq!(closing.status, STATUS_PENDING);
    closing.wait();
    close!(pd, NdkClosePd);
    cq.close();
}

//= R-OPEN-24, R-OPEN-25, R-OPEN-26
#[test]
fn closing_the_adapter_waits_for_all_its_objects() {
    let (a, _b) = pair();
    let adapter = a.provider.open(NDK_VERSION { Major: 1, Minor: 0 }).expect("an adapter");
    let pd: *mut NDK_PD =
        create(|done, context, out| call!(adapter, NdkCreatePd, done, context, out)).expect("a PD");
    let (provider, address) = (std::sync::Arc::clone(&a.provider), adapter.expose_provenance());
    let closer = std::thread::spawn(move || {
        // SAFETY: the adapter was opened above, and no other line closes it.
        unsafe { provider.close(core::ptr::with_exposed_provenance_mut(address)) };
    });
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert!(!closer.is_finished());
    close!(pd, NdkClosePd);
    closer.join().unwrap();
    assert_eq!(a.provider.open_adapters(), 1);
}

//= R-MR-1, R-MR-3, R-MR-12, R-MR-13, R-MR-18, R-MR-19, R-CREATE-42, R-CREATE-43, R-CREATE-44
#[test]
fn region_is_registered_and_deregistered_in_turn() {
    let (a, _b) = pair();
    let pd = a.pd();
    let memory = Memory::new(8192);
    let mr: *mut NDK_MR = create(|done, context, out| call!(pd, NdkCreateMr, 0, done, context, out)).unwrap();
    let register =
        |length| request(|done, context| call!(mr, NdkRegisterMr, memory.mdl(), length, 5, done, context));
    let deregister = || request(|done, context| call!(mr, NdkDeregisterMr, done, context));
    assert_eq!(call!(mr, NdkGetRemoteTokenFromMr), 0);
    assert_eq!(deregister(), STATUS_INVALID_DEVICE_STATE);
    assert_eq!(register(0), STATUS_INVALID_PARAMETER);
    assert_eq!(register(8193), STATUS_INVALID_PARAMETER);
    assert_eq!(register(8192), STATUS_SUCCESS);
    let first = call!(mr, NdkGetRemoteTokenFromMr);
    assert_ne!(first, 0);
    assert_eq!(register(8192), STATUS_INVALID_DEVICE_STATE);
    assert_eq!(deregister(), STATUS_SUCCESS);
    assert_eq!(register(100), STATUS_SUCCESS);
    //= R-MR-69
    assert_ne!(call!(mr, NdkGetRemoteTokenFromMr), first);
    close!(mr, NdkCloseMr);

    let fast: *mut NDK_MR =
        create(|done, context, out| call!(pd, NdkCreateMr, 1, done, context, out)).unwrap();
    let wrong = request(|done, context| call!(fast, NdkRegisterMr, memory.mdl(), 1, 0, done, context));
    assert_eq!(wrong, STATUS_INVALID_DEVICE_REQUEST);
    close!(fast, NdkCloseMr);
    close!(pd, NdkClosePd);
}

//= R-LAM-4, R-LAM-5, R-LAM-6, R-LAM-7, R-LAM-8, R-LAM-9, R-LAM-10, R-LAM-11, R-LAM-16, R-LAM-22
#[test]
fn logical_address_mapping_describes_every_page() {
    let (a, _b) = pending_pair();
    for (length, offset) in [(1, 0), (4096, 0), (4096, 1), (8193, 4095)] {
        let memory = Memory::at_offset(length, offset);
        let pages = (offset + length).div_ceil(4096);
        let mut words = [u64::MAX; 16];
        let mut fbo = u32::MAX;
        let mut build = |room: u32| {
            let mut size = room;
            let lam = if room == 0 { null_mut() } else { words.as_mut_ptr().cast() };
            let status = call!(
                a.adapter(),
                NdkBuildLAM,
                memory.mdl(),
                length,
                None,
                null_mut(),
                lam,
                &raw mut size,
                &raw mut fbo
            );
            (status, size)
        };
        let needed = 16 + 8 * pages as u32;
        assert_eq!(build(0), (STATUS_BUFFER_TOO_SMALL, needed));
        assert_eq!(build(needed - 1), (STATUS_BUFFER_TOO_SMALL, needed));
        assert_eq!(build(needed), (STATUS_SUCCESS, needed));
        assert_eq!((words[1] as u32, fbo), (pages as u32, offset as u32));
        assert!(words[2..2 + pages].iter().all(|page| page % 4096 == 0));
        assert_eq!(words[2 + pages], u64::MAX);
        call!(a.adapter(), NdkReleaseLAM, words.as_mut_ptr().cast());
    }
}

//= R-OPEN-29
#[test]
fn logical_address_mapping_is_released_with_its_adapter() {
    let (a, _b) = pair();
    let memory = Memory::new(4096);
    let mut words = [0u64; 3];
    let mut size = 24;
    let status = call!(
        a.adapter(),
        NdkBuildLAM,
        memory.mdl(),
        4096,
        None,
        null_mut(),
        words.as_mut_ptr().cast(),
        &raw mut size,
        null_mut()
    );
    assert_eq!(status, STATUS_SUCCESS);
}

/// The callbacks of a create and of the close of its parent.
#[derive(Default)]
struct Order {
    created: AtomicBool,
    parent_closed: AtomicBool,
}

unsafe extern "efiapi" fn on_failed_create(
    context: *mut c_void,
    status: NTSTATUS,
    object: *mut NDK_OBJECT_HEADER,
) {
    // SAFETY: the context is the `Order` that the test of both callbacks leaks.
    let order = unsafe { &*context.cast::<Order>() };
    assert_eq!((status, object), (STATUS_INVALID_PARAMETER, null_mut()));
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert!(!order.parent_closed.load(Ordering::SeqCst), "the parent was closed during the callback");
    order.created.store(true, Ordering::SeqCst);
}

unsafe extern "efiapi" fn on_parent_closed(context: *mut c_void) {
    // SAFETY: the test leaks the `Order`, so that a late callback finds it, too.
    unsafe { &*context.cast::<Order>() }.parent_closed.store(true, Ordering::SeqCst);
}

//= R-CREATE-7, R-CLOSE-4
#[test]
fn parent_of_a_failed_pended_create_closes_after_its_callback() {
    let (a, _b) = pending_pair();
    let (cq, pd) = (a.cq(4), a.pd());
    let order: &'static Order = Box::leak(Box::default());
    let context = core::ptr::from_ref(order).cast_mut().cast();
    let (raw, too_deep, mut out) = (cq.raw, u32::MAX, null_mut());
    let done = Some(on_failed_create as NDK_FN_CREATE_COMPLETION);
    let status =
        call!(pd, NdkCreateQp, raw, raw, null_mut(), too_deep, 1, 1, 1, 0, done, context, &raw mut out);
    assert_eq!(status, STATUS_PENDING);
    assert_eq!(close_with!(pd, NdkClosePd, Some(on_parent_closed), context), STATUS_PENDING);
    wait("the parent is closed", || order.parent_closed.load(Ordering::SeqCst));
    assert!(order.created.load(Ordering::SeqCst), "the create callback failed or was not made");
    cq.close();
}

//= R-CONN-50, R-CONN-51, R-CONN-52, R-CONN-54, R-CLOSE-17, R-CREATE-47, R-CREATE-48, R-CREATE-49
#[test]
fn address_in_use_is_refused() {
    let (a, b) = pair();
    let (first, second) = (a.listener(445), a.idle_listener());
    assert_eq!(first.listen(a.at(446)), STATUS_INVALID_DEVICE_STATE);
    assert_eq!(second.listen(a.at(445)), STATUS_SHARING_VIOLATION);
    assert_eq!(second.listen(b.at(445)), STATUS_INVALID_ADDRESS);
    assert_eq!(second.listen(a.at(0)), STATUS_SUCCESS);
    let endpoint = |address| {
        let (bytes, length) = socket_address(address);
        create(|done, context, out| {
            call!(a.adapter(), NdkCreateSharedEndpoint, (&raw const bytes).cast(), length, done, context, out)
        })
    };
    assert_eq!(endpoint(a.at(445)).err(), Some(STATUS_SHARING_VIOLATION));
    assert_eq!(endpoint(b.at(445)).err(), Some(STATUS_INVALID_ADDRESS));
    first.close();
    let shared: *mut NDK_SHARED_ENDPOINT = endpoint(a.at(445)).expect("an endpoint on the released address");
    let (mut address, mut length) = ([0u16; 14], 0);
    let get =
        |out: *mut u16, length: &mut u32| call!(shared, NdkGetLocalAddress, out.cast(), &raw mut *length);
    //= R-CONN-75, R-CONN-76
    assert_eq!(get(null_mut(), &mut length), STATUS_BUFFER_TOO_SMALL);
    assert_eq!(length, 16);
    length = 15;
    assert_eq!(get(address.as_mut_ptr(), &mut length), STATUS_BUFFER_TOO_SMALL);
    length = 28;
    assert_eq!(get(address.as_mut_ptr(), &mut length), STATUS_SUCCESS);
    assert_eq!((length, address[0], u16::from_be(address[1])), (16, 2, 445));
    close!(shared, NdkCloseSharedEndpoint);
    second.close();
}

//= R-EXT-1, R-EXT-2, R-EXT-3
//= R-EXT-5, R-EXT-7
#[test]
fn no_extension_is_supported() {
    let (a, _b) = pair();
    // The processor information of RSS, for which there is a public header.
    let rss = GUID {
        Data1: 0xbab2_7026,
        Data2: 0x86c3,
        Data3: 0x4e31,
        Data4: [0x9f, 0x72, 0x49, 0x36, 0xde, 0xd7, 0x6d, 0x42],
    };
    let canary = core::ptr::without_provenance(0x77);
    let adapter = a.adapter();
    for mut id in [rss, GUID { Data1: 1, Data2: 2, Data3: 3, Data4: [4; 8] }] {
        for major in [1, 2, 0xffff] {
            let mut extension = NDK_EXTENSION_INTERFACE { Dispatch: canary };
            let version = NDK_VERSION { Major: major, Minor: 0 };
            // SAFETY: the test keeps the contract of NDKPI.
            let status = unsafe {
                ((*(*adapter).Dispatch).NdkQueryExtension.unwrap())(
                    adapter.cast(),
                    &raw mut id,
                    version,
                    &raw mut extension,
                )
            };
            assert_eq!((status, extension.Dispatch), (STATUS_NOT_SUPPORTED, canary));
        }
    }
}

//= R-CREATE-16, R-PNP-9
#[test]
fn create_fails_on_a_removed_device() {
    let (a, _b) = pair();
    let pd = a.pd();
    a.host.remove_device();
    let cq: Result<*mut NDK_CQ, _> = create(|done, context, out| {
        call!(a.adapter(), NdkCreateCq, 1, Some(on_cq), null_mut(), null_mut(), done, context, out)
    });
    assert_eq!(cq.err(), Some(STATUS_DEVICE_REMOVED));
    assert!(a.provider.open(NDK_VERSION { Major: 2, Minor: 0 }).is_err());
    close!(pd, NdkClosePd);
}
