// SPDX-License-Identifier: MIT OR Apache-2.0

//! Requests that pend until the server ends, and that their callers may cancel.
//!
//! A request is completed by who removes it from the list. Before, its cancel routine must have been taken from it: if
//! the I/O manager has taken it, the routine runs or will run, finds the request in the list, and completes it.

#![allow(clippy::multiple_unsafe_ops_per_block, reason = "a place behind two pointers is one access")]

use alloc::vec::Vec;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, Ordering};

use driver_support::status::{Result, no_memory};
use fallible::vec;
use ndk_abi::nt::{
    DEVICE_OBJECT, DRIVER_CANCEL, IO_STACK_LOCATION, IRP, IoReleaseCancelSpinLock, NTSTATUS,
    SL_PENDING_RETURNED, STATUS_CANCELLED, STATUS_PENDING, STATUS_SUCCESS,
};
use nt::SpinLock;

use super::file::Request;

/// Requests that wait.
pub struct Waiting(SpinLock<Vec<Waiter>>);

#[derive(Clone, Copy)]
struct Waiter {
    irp: NonNull<IRP>,
    /// The open file of the request.
    file: usize,
    /// The number of the server that it waits for.
    server: u64,
}

// SAFETY: a pended request may be completed on any thread.
unsafe impl Send for Waiter {}

impl Waiting {
    pub const fn new() -> Self {
        Self(SpinLock::new(Vec::new()))
    }

    /// Pends a request, whose driver context becomes this list, until the server with this number ends. Returns `STATUS_PENDING`, or why it does not pend; then the caller completes it.
    pub fn pend(&self, request: &Request, server: u64) -> Result<usize> {
        let (irp, file) = (request.irp(), request.file());
        let mut waiters = self.0.lock();
        vec::push(&mut waiters, Waiter { irp, file, server }).map_err(no_memory)?;
        mark_pending(irp);
        // SAFETY: the request is this driver's, and this member of a request that it has is, too.
        let context = unsafe { &mut (*irp.as_ptr()).Tail.Overlay.DriverContext };
        *context = [(&raw const *self).cast_mut().cast(), null_mut(), null_mut(), null_mut()];
        set_cancel_routine(irp, Some(cancel));
        // SAFETY: the request is this driver's; a volatile read, because its caller may cancel it now.
        let is_cancelled = unsafe { (&raw const (*irp.as_ptr()).Cancel).read_volatile() } != 0;
        if is_cancelled && take_cancel_routine(irp) {
            // Cancelled before the routine was set: the I/O manager does not call it.
            waiters.retain(|waiter| waiter.irp != irp);
            drop(waiters);
            // SAFETY: removed from the list here, so no other thread completes it.
            unsafe { complete(irp, STATUS_CANCELLED) };
        }
        Err(STATUS_PENDING)
    }

    /// Completes the requests that wait for a server, with success.
    pub fn server_ended(&self, server: u64) {
        self.complete(|waiter| waiter.server == server, STATUS_SUCCESS);
    }

    /// Cancels the requests of an open file that is being closed.
    pub fn cancel_of(&self, file: usize) {
        self.complete(|waiter| waiter.file == file, STATUS_CANCELLED);
    }

    fn complete(&self, includes: impl Fn(&Waiter) -> bool, status: NTSTATUS) {
        loop {
            let mut waiters = self.0.lock();
            let found = waiters.iter().position(|waiter| includes(waiter) && take_cancel_routine(waiter.irp));
            let Some(index) = found else { return };
            let waiter = waiters.swap_remove(index);
            drop(waiters);
            // SAFETY: removed from the list here, so no other thread completes it.
            unsafe { complete(waiter.irp, status) };
        }
    }

    /// Removes a request whose cancel routine runs; returns whether it was there.
    fn remove(&self, irp: NonNull<IRP>) -> bool {
        let mut waiters = self.0.lock();
        let before = waiters.len();
        waiters.retain(|waiter| waiter.irp != irp);
        waiters.len() != before
    }
}

/// # Safety
/// The request is pended, and no other thread completes it.
unsafe fn complete(irp: NonNull<IRP>, status: NTSTATUS) {
    // SAFETY: the caller owns the request, has removed it from the queue, and does not use it again.
    let _ = unsafe { Request::new(irp) }.complete(status, 0);
}

/// The cancel routine of pended requests.
unsafe extern "efiapi" fn cancel(_device: *mut DEVICE_OBJECT, irp: *mut IRP) {
    // SAFETY: set by `pend`; no other thread completes the request before it is out of the list.
    let waiting = unsafe { (*irp).Tail.Overlay.DriverContext }[0].cast::<Waiting>();
    // SAFETY: the I/O manager holds the cancel lock, and has stored the IRQL to return to.
    unsafe { IoReleaseCancelSpinLock((*irp).CancelIrql) };
    let Some(irp) = NonNull::new(irp) else { return };
    // SAFETY: the list is part of the device's state, which is there as long as there are requests.
    if unsafe { &*waiting }.remove(irp) {
        // SAFETY: removed from the list here, so no other thread completes it.
        unsafe { complete(irp, STATUS_CANCELLED) };
    }
}

/// `IoMarkIrpPending`.
fn mark_pending(irp: NonNull<IRP>) {
    // SAFETY: the request is this driver's.
    let location: *mut IO_STACK_LOCATION = unsafe { (*irp.as_ptr()).Tail.Overlay.CurrentStackLocation };
    // SAFETY: the current stack location of the request.
    let control = unsafe { &mut (*location).Control };
    *control |= SL_PENDING_RETURNED;
}

/// `IoSetCancelRoutine`: an exchange, because the I/O manager takes the routine in the same way.
fn set_cancel_routine(irp: NonNull<IRP>, routine: Option<DRIVER_CANCEL>) -> bool {
    // SAFETY: a member of the request, which is pended or about to be.
    let member = unsafe { &raw mut (*irp.as_ptr()).CancelRoutine };
    // SAFETY: the member is aligned, and accessed atomically by all.
    let member = unsafe { AtomicPtr::from_ptr(member.cast::<*mut ()>()) };
    let routine = routine.map_or(null_mut(), |routine| routine as *mut ());
    !member.swap(routine, Ordering::AcqRel).is_null()
}

/// Takes the cancel routine; false if the I/O manager has taken it.
fn take_cancel_routine(irp: NonNull<IRP>) -> bool {
    set_cancel_routine(irp, None)
}
