// SPDX-License-Identifier: MIT OR Apache-2.0

//! Results of each create call: to a removed device, and with each of its allocations failing in turn. The adapter's number
//! of objects is tested in `objects`.

use crate::out_of_memory::grant_until_success;
use crate::support::*;
use core::ffi::c_void;
use core::ptr::null_mut;
use ndk_abi::ndk::*;
use ndk_abi::netio::SOCKADDR;
use ndk_abi::nt::*;

/// The objects that create calls need.
struct Parents {
    adapter: *mut NDK_ADAPTER,
    cq: *mut NDK_CQ,
    pd: *mut NDK_PD,
    srq: *mut NDK_SRQ,
    /// The address of a shared endpoint: any port of the host.
    address: *const SOCKADDR,
}

type Done = Option<NDK_FN_CREATE_COMPLETION>;

/// A create call.
struct CreateCall {
    name: &'static str,
    make: fn(&Parents, Done, *mut c_void, *mut *mut c_void) -> NTSTATUS,
    /// Closes an object without successors, which completes inline.
    close: fn(*mut c_void),
}

/// Declares create calls: the member, the object it is called on, the arguments before the callback, the type of the new object
/// and the member that closes it.
macro_rules! create_calls {
    ($($member:ident on $object:ident($($argument:expr),*) with $parents:ident: $Public:ty, $close:ident;)*) => {
        [$(CreateCall {
            name: stringify!($member),
            make: |$parents, done, context, out| {
                call!($parents.$object, $member, $($argument,)* done, context, out.cast())
            },
            close: |object| {
                let status = close_with!(object.cast::<$Public>(), $close, None, null_mut());
                assert_eq!(status, STATUS_SUCCESS);
            },
        }),*]
    };
}

unsafe extern "efiapi" fn never(_context: *mut c_void, _connector: *mut NDK_CONNECTOR) {
    panic!("no connect event is expected");
}

fn create_calls() -> [CreateCall; 11] {
    create_calls! {
        NdkCreateCq on adapter(16, Some(on_cq), null_mut(), null_mut()) with p: NDK_CQ, NdkCloseCq;
        NdkCreatePd on adapter() with p: NDK_PD, NdkClosePd;
        NdkCreateSharedEndpoint on adapter(p.address, 16) with p: NDK_SHARED_ENDPOINT, NdkCloseSharedEndpoint;
        NdkCreateConnector on adapter() with p: NDK_CONNECTOR, NdkCloseConnector;
        NdkCreateListener on adapter(Some(never), null_mut()) with p: NDK_LISTENER, NdkCloseListener;
        NdkCreateMr on pd(0) with p: NDK_MR, NdkCloseMr;
        NdkCreateMr on pd(1) with p: NDK_MR, NdkCloseMr;
        NdkCreateMw on pd() with p: NDK_MW, NdkCloseMw;
        NdkCreateSrq on pd(8, 2, 0, None, null_mut(), null_mut()) with p: NDK_SRQ, NdkCloseSrq;
        NdkCreateQp on pd(p.cq, p.cq, null_mut(), 8, 8, 2, 2, 32) with p: NDK_QP, NdkCloseQp;
        NdkCreateQpWithSrq on pd(p.cq, p.cq, p.srq, null_mut(), 8, 2, 32) with p: NDK_QP, NdkCloseQp;
    }
}

/// Runs `test` with a host and what create calls need.
fn with_parents((a, _b): (Node, Node), test: impl FnOnce(&Node, &Parents)) {
    let (cq, pd, (address, _)) = (a.cq(4), a.pd(), socket_address(a.at(0)));
    let srq: *mut NDK_SRQ = create(|done, context, out| {
        call!(pd, NdkCreateSrq, 4, 1, 0, None, null_mut(), null_mut(), done, context, out)
    })
    .expect("a shared receive queue");
    let address = (&raw const address).cast();
    test(&a, &Parents { adapter: a.adapter(), cq: cq.raw, pd, srq, address });
    close!(srq, NdkCloseSrq);
    close!(pd, NdkClosePd);
    cq.close();
}

//= R-CREATE-16, R-CREATE-5
#[test]
fn create_calls_fail_inline_when_the_device_is_removed() {
    for pair in [pair(), pending_pair()] {
        with_parents(pair, |node, parents| {
            node.host.remove_device();
            for CreateCall { name, make, .. } in create_calls() {
                let mut out = core::ptr::without_provenance_mut(8);
                let status = make(parents, Some(not_called), null_mut(), &raw mut out);
                assert_eq!((status, out.is_null()), (STATUS_DEVICE_REMOVED, true), "{name}");
            }
        });
    }
}

unsafe extern "efiapi" fn not_called(
    _context: *mut c_void,
    _status: NTSTATUS,
    _object: *mut NDK_OBJECT_HEADER,
) {
    panic!("no callback is expected");
}

//= R-CREATE-14
#[test]
fn create_calls_without_memory_fail_and_leak_nothing() {
    with_parents(pair(), |_, parents| {
        for CreateCall { name, make, close } in create_calls() {
            let mut out = null_mut();
            let slot = &raw mut out;
            let undo = || {
                // SAFETY: written by the call, which has succeeded.
                close(unsafe { *slot });
            };
            grant_until_success(name, || make(parents, None, null_mut(), slot), undo);
        }
    });
}
