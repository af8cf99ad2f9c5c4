// SPDX-License-Identifier: MIT OR Apache-2.0

//! Work items of the I/O manager: one call at `PASSIVE_LEVEL`, on a system worker thread.

use alloc::boxed::Box;
use core::ffi::c_void;
use core::ptr::NonNull;

use driver_support::status::{Result, no_memory};
use fallible::try_box;
use ndk_abi::nt::{
    DEVICE_OBJECT, IO_WORKITEM, IoAllocateWorkItem, IoFreeWorkItem, IoQueueWorkItem,
    STATUS_INSUFFICIENT_RESOURCES, WORK_QUEUE_TYPE,
};

/// A routine with all that queueing it needs: allocating may fail, queueing cannot. The I/O manager holds a reference
/// on the device, and so keeps the driver loaded, until the routine has returned.
pub struct WorkItem<F: FnOnce() + Send + 'static>(Box<Item<F>>);

struct Item<F> {
    handle: Handle,
    routine: F,
}

/// Frees the work item when it is dropped.
struct Handle(NonNull<IO_WORKITEM>);

// SAFETY: work items are queued and freed from any thread.
unsafe impl Send for Handle {}

impl<F: FnOnce() + Send + 'static> WorkItem<F> {
    /// Allocates a work item for `routine`. IRQL <= `DISPATCH_LEVEL`.
    pub fn new(device: NonNull<DEVICE_OBJECT>, routine: F) -> Result<Self> {
        // SAFETY: the device exists as long as the driver has open files or work items.
        let handle = unsafe { IoAllocateWorkItem(device.as_ptr()) };
        let handle = Handle(NonNull::new(handle).ok_or(STATUS_INSUFFICIENT_RESOURCES)?);
        Ok(Self(try_box(Item { handle, routine }).map_err(no_memory)?))
    }

    /// Queues the routine to run once. IRQL <= `DISPATCH_LEVEL`.
    pub fn queue(self) {
        let handle = self.0.handle.0;
        let context = Box::into_raw(self.0);
        // SAFETY: the work item is not queued, and `run` takes back the context's ownership once.
        unsafe {
            IoQueueWorkItem(
                handle.as_ptr(),
                Some(run::<F>),
                WORK_QUEUE_TYPE::DelayedWorkQueue,
                context.cast(),
            );
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: allocated by `WorkItem::new`; not queued, or in its own routine, where it may be freed.
        unsafe { IoFreeWorkItem(self.0.as_ptr()) };
    }
}

/// # Safety
/// `context` is an `Item<F>` from `Box::into_raw`.
unsafe extern "efiapi" fn run<F: FnOnce()>(_device: *mut DEVICE_OBJECT, context: *mut c_void) {
    // SAFETY: the context is what `Box::into_raw` returned where the item was queued, and each item runs once.
    let item = unsafe { Box::from_raw(context.cast::<Item<F>>()) };
    let Item { handle, routine } = *item;
    // Freed before the routine reports to another thread that its work is done.
    drop(handle);
    routine();
}
