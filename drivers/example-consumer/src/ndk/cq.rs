// SPDX-License-Identifier: MIT OR Apache-2.0

//! Completion queues.

#![allow(clippy::multiple_unsafe_ops_per_block, reason = "a place behind two pointers is one access")]

use core::ffi::c_void;
use core::ptr::null_mut;

use driver_support::status::{Result, check};
use fallible::Arc;
use ndk_abi::ndk::{NDK_CQ, NDK_CQ_NOTIFY_ANY, NDK_FN_CQ_NOTIFICATION_CALLBACK, NDK_RESULT_EX};

use super::adapter::Adapter;
use super::object::{NdkObject, Object, entry};
use super::pending;

/// Notifications may be delayed by this many microseconds, to serve several completions at once.
const MODERATION_MICROSECONDS: u32 = 20;
/// Notifications are not limited by a number of completions.
const MODERATION_COUNT: u32 = u32::MAX;

/// A completion queue. Dropping it closes it; no notification runs afterwards.
pub struct Cq {
    object: Object<NDK_CQ>,
    _adapter: Arc<Adapter>,
}

impl Cq {
    /// Creates a queue of `depth` entries. With `moderated`, notifications are delayed a little; the adapter must offer
    /// that. `PASSIVE_LEVEL`.
    ///
    /// # Safety
    /// `notification` may be called with `context` until the queue is closed.
    pub unsafe fn new(
        adapter: &Arc<Adapter>,
        depth: u32,
        moderated: bool,
        notification: NDK_FN_CQ_NOTIFICATION_CALLBACK,
        context: *mut c_void,
    ) -> Result<Self> {
        let create = entry(adapter.dispatch().NdkCreateCq)?;
        let object = Object::<NDK_CQ>::create(|| {
            pending::create(|completion, request, into| {
                let (notification, affinity) = (Some(notification), null_mut());
                // SAFETY: the adapter is open; this function's contract for the notification's context; that of the
                // create lives until its completion.
                unsafe {
                    create(adapter.raw(), depth, notification, context, affinity, completion, request, into)
                }
            })
        })?;
        if moderated {
            let control = entry(object.dispatch().NdkControlCqInterruptModeration)?;
            // SAFETY: `object` keeps the queue open, and the function is a member of its dispatch table.
            check(unsafe { control(object.raw(), MODERATION_MICROSECONDS, MODERATION_COUNT) })?;
        }
        Ok(Self { object, _adapter: Arc::clone(adapter) })
    }

    pub fn raw(&self) -> *mut NDK_CQ {
        self.object.raw()
    }

    pub fn close(&self) {
        self.object.close();
    }
}

/// Takes completions out of the queue; returns their number. IRQL <= `DISPATCH_LEVEL`.
///
/// # Safety
/// The queue is open, and no other thread polls or arms it meanwhile.
pub unsafe fn poll(cq: *mut NDK_CQ, results: &mut [NDK_RESULT_EX]) -> Result<usize> {
    // SAFETY: the caller passes an open queue, whose dispatch table is valid until it is closed.
    let table = unsafe { &*(*cq).dispatch() };
    let get = entry(table.NdkGetCqResultsEx)?;
    // SAFETY: this function's contract; `results` has the length passed.
    let taken = unsafe { get(cq, results.as_mut_ptr(), results.len() as u32) } as usize;
    Ok(taken.min(results.len()))
}

/// Requests one notification. IRQL <= `DISPATCH_LEVEL`.
///
/// # Safety
/// As for [`poll`].
pub unsafe fn arm(cq: *mut NDK_CQ) -> Result {
    // SAFETY: the caller passes an open queue, whose dispatch table is valid until it is closed.
    let table = unsafe { &*(*cq).dispatch() };
    let arm = entry(table.NdkArmCq)?;
    // SAFETY: the caller passes an open queue, which no other thread arms.
    unsafe { arm(cq, NDK_CQ_NOTIFY_ANY) };
    Ok(())
}
