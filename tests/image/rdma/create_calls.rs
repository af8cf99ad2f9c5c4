// SPDX-License-Identifier: MIT OR Apache-2.0

//! Both outcomes of a create call on the image: at `DISPATCH_LEVEL`, it completes inline if its memory is at hand, and pends if it
//! is not.
#![allow(unsafe_code, reason = "calls the driver through pointers, as a consumer does")]

use core::ffi::c_void;
use core::ptr::null_mut;
use std::sync::Mutex;

use lab::{
    image,
    testbed::{Options, Testbed},
};
use ndk_abi::ndk::{NDK_ADAPTER, NDK_CQ, NDK_OBJECT_HEADER};
use ndk_abi::nt::{NTSTATUS, STATUS_PENDING, STATUS_SUCCESS};
use nt_sim::{Irql, current, nt::time::sleep};
use support::bed::miniport;

/// The address and the level of each object that a completion callback has reported.
static CREATED: Mutex<Vec<(usize, Irql)>> = Mutex::new(Vec::new());

unsafe extern "efiapi" fn on_create(_: *mut c_void, status: NTSTATUS, object: *mut NDK_OBJECT_HEADER) {
    assert_eq!(status, STATUS_SUCCESS);
    CREATED.lock().unwrap().push((object.addr(), current().irql()));
}

unsafe extern "efiapi" fn on_cq(_: *mut c_void, _: NTSTATUS) {}

/// Creates a completion queue at `level` and closes it. Returns whether the call pended; then the callback ran at
/// `PASSIVE_LEVEL`.
fn pends(adapter: *mut NDK_ADAPTER, level: Irql, depth: u32) -> bool {
    CREATED.lock().unwrap().clear();
    // SAFETY: an open adapter of the image.
    let dispatch = unsafe { (*adapter).Dispatch };
    // SAFETY: the table of an open adapter, which is the image's own.
    let create = unsafe { (*dispatch).NdkCreateCq }.expect("no member is null");
    let mut queue: *mut NDK_CQ = null_mut();
    let out = &raw mut queue;
    let before = current().raise(level);
    let status = nt_sim::image::call("NdkCreateCq", || {
        // SAFETY: the adapter is open, and the output is a variable.
        unsafe {
            create(adapter, depth, Some(on_cq), null_mut(), null_mut(), Some(on_create), null_mut(), out)
        }
    });
    current().lower(before);
    sleep(100_000_000);
    let created = core::mem::take(&mut *CREATED.lock().unwrap());
    let pended = status == STATUS_PENDING;
    if pended {
        let [(object, Irql::PASSIVE_LEVEL)] = created[..] else { panic!("{created:?}") };
        queue = core::ptr::with_exposed_provenance_mut(object);
    } else {
        assert_eq!((status, created), (STATUS_SUCCESS, Vec::new()));
    }
    // SAFETY: a live object of the image.
    let dispatch = unsafe { (*queue).Dispatch };
    // SAFETY: the table of a live object, which is the image's own.
    let close = unsafe { (*dispatch).NdkCloseCq }.expect("no member is null");
    // SAFETY: the queue is open, and no other line closes it.
    let closed = nt_sim::image::call("NdkCloseCq", || unsafe { close(queue.cast(), None, null_mut()) });
    assert_eq!(closed, STATUS_SUCCESS);
    pended
}

//= R-CREATE-1, R-CREATE-2, R-CREATE-13
#[test]
fn a_queue_is_created_inline_or_by_a_worker_as_its_memory_is_at_hand_at_the_callers_level() {
    let Some(image) = image() else { return };
    let mut bed = Testbed::new(&image, &Options::default()).expect("the image can be loaded");
    bed.start().expect("both drivers start");
    let [machine, _] = bed.machines();
    let adapter = miniport(machine);
    let opened = adapter.ndk().open(2, 1).expect("an NDK adapter");
    let address = opened.as_ptr().expose_provenance();
    let outcomes = machine.host().spawn("consumer", move || {
        let adapter = core::ptr::with_exposed_provenance_mut(address);
        [(Irql::PASSIVE_LEVEL, 16_384), (Irql::DISPATCH_LEVEL, 512), (Irql::DISPATCH_LEVEL, 4096)]
            .map(|(level, depth)| pends(adapter, level, depth))
    });
    assert_eq!(outcomes.join().expect("the consumer ends"), [false, false, true]);
    adapter.ndk().close(opened).expect("closed");
    bed.stop().expect("both drivers stop");
    assert!(bed.violations().is_empty(), "{}", bed.violations().join("\n"));
}
